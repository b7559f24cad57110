//! The one error body: the same to the model, the caller and the log.

use serde::{Deserialize, Serialize};

use super::ToolId;

/// Stable, machine-readable reason; on the wire the text of [`ProblemCode::as_str`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum ProblemCode {
    /// Arguments do not satisfy the tool's schema.
    InvalidArgs,
    /// A tool name that is not on the shortlist or not in the catalog.
    UnknownTool,
    /// A part of the request itself is unusable.
    InvalidRequest,
    PermissionDenied,
    Timeout,
    Unavailable,
    /// A step that has to come first is missing, such as a preview and its token.
    PreconditionMissing,
    /// A confirm token that does not count: unknown, spent, late, or of another call.
    TokenRefused,
    /// A rule of the operator's policy forbids the call.
    PolicyDenied,
    /// The idempotency key was used with other arguments or for another tool.
    IdempotencyConflict,
    /// The same call is being run at this moment.
    InFlight,
    /// The call was sent and its end is not known: it may have taken effect.
    EffectUnknown,
    /// The turn has used up its steps.
    StepLimit,
    /// This server has no way to run the tool, or may not: the caller or a person does.
    NotExecutable,
    /// An operator has taken the tool out of service.
    Disabled,
    /// A code of the tool itself, such as `ORDER_NOT_FOUND`.
    Tool(ToolCode),
}

/// A code that a tool reports: 1 to 64 capital letters, digits and underscores.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ToolCode(String);

impl ToolCode {
    pub(super) const LONGEST: usize = 64;

    /// `None` for anything that is not of the form.
    pub fn new(code: &str) -> Option<Self> {
        let is_part = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_';
        let fits = (1..=Self::LONGEST).contains(&code.len()) && code.bytes().all(is_part);
        fits.then(|| Self(code.to_owned()))
    }

    /// One of our own making.
    pub(super) fn of(code: &'static str) -> Self {
        Self(code.to_owned())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl ProblemCode {
    /// One of our own codes, or a tool's; `None` for a text that is no code.
    pub fn parse(code: &str) -> Option<Self> {
        let own = [
            Self::InvalidArgs,
            Self::UnknownTool,
            Self::InvalidRequest,
            Self::PermissionDenied,
            Self::Timeout,
            Self::Unavailable,
            Self::PreconditionMissing,
            Self::TokenRefused,
            Self::PolicyDenied,
            Self::IdempotencyConflict,
            Self::InFlight,
            Self::EffectUnknown,
            Self::StepLimit,
            Self::NotExecutable,
            Self::Disabled,
        ];
        own.into_iter().find(|own| own.as_str() == code).or_else(|| ToolCode::new(code).map(Self::Tool))
    }

    pub fn as_str(&self) -> &str {
        match self {
            Self::InvalidArgs => "INVALID_ARGS",
            Self::UnknownTool => "UNKNOWN_TOOL",
            Self::InvalidRequest => "INVALID_REQUEST",
            Self::PermissionDenied => "PERMISSION_DENIED",
            Self::Timeout => "TIMEOUT",
            Self::Unavailable => "UNAVAILABLE",
            Self::PreconditionMissing => "PRECONDITION_MISSING",
            Self::TokenRefused => "TOKEN_REFUSED",
            Self::PolicyDenied => "POLICY_DENIED",
            Self::IdempotencyConflict => "IDEMPOTENCY_CONFLICT",
            Self::InFlight => "IN_FLIGHT",
            Self::EffectUnknown => "EFFECT_UNKNOWN",
            Self::StepLimit => "STEP_LIMIT",
            Self::NotExecutable => "NOT_EXECUTABLE",
            Self::Disabled => "TOOL_DISABLED",
            Self::Tool(code) => code.as_str(),
        }
    }
}

impl From<ProblemCode> for String {
    fn from(code: ProblemCode) -> Self {
        code.as_str().to_owned()
    }
}

impl TryFrom<String> for ProblemCode {
    type Error = String;

    fn try_from(code: String) -> Result<Self, String> {
        Self::parse(&code).ok_or_else(|| "expected 1 to 64 capital letters, digits and underscores".to_owned())
    }
}

/// One field at fault. `path` is a JSON pointer into the arguments, or a dotted field path of the request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldProblem {
    pub path: String,
    /// What would be right, in words: "SO- and 14 digits", "one of pdf, ofd, xml", "required".
    pub expected: String,
    /// A value that would pass, taken from the schema where it gives one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub example: Option<String>,
}

/// The tool that can provide what is missing, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NextStep {
    pub tool: ToolId,
    pub hint: String,
}

/// A failure reduced to what its reader can act on. Never holds a stack trace, a secret or an internal host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Coarse class in snake case: `bad_params`, `not_found`, `timeout`, …
    pub status: String,
    pub code: ProblemCode,
    pub message: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FieldProblem>,
    /// The same call may succeed later.
    pub retryable: bool,
    /// The same tool may succeed with other arguments.
    pub repairable: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<NextStep>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
}

impl Problem {
    /// Arguments that fail their schema: not retryable, repairable.
    pub fn invalid_args(message: impl Into<String>, fields: Vec<FieldProblem>) -> Self {
        Self { fields, ..Self::repairable("bad_params", ProblemCode::InvalidArgs, message) }
    }

    /// A name outside the allowed ones: not retryable, repairable by choosing one of `allowed`.
    pub fn unknown_tool(name: &str, allowed: &[&str]) -> Self {
        let suggestion = Some(format!("choose one of: {}", allowed.join(", ")));
        let message = format!("there is no tool `{name}`");
        Self { suggestion, ..Self::repairable("unknown_tool", ProblemCode::UnknownTool, message) }
    }

    /// A request field that cannot be used: neither retryable nor repairable by the model.
    pub fn invalid_request(message: impl Into<String>, fields: Vec<FieldProblem>) -> Self {
        let repairable = Self::repairable("bad_request", ProblemCode::InvalidRequest, message);
        Self { fields, repairable: false, ..repairable }
    }

    /// Neither retryable nor repairable, nothing else said.
    pub fn refused(status: &str, code: ProblemCode, message: impl Into<String>) -> Self {
        Self { repairable: false, ..Self::repairable(status, code, message) }
    }

    /// The same call may succeed later; other arguments would not help.
    pub fn passing(status: &str, code: ProblemCode, message: impl Into<String>) -> Self {
        Self { retryable: true, ..Self::refused(status, code, message) }
    }

    /// Not retryable, repairable, nothing else said.
    pub fn repairable(status: &str, code: ProblemCode, message: impl Into<String>) -> Self {
        Self {
            status: status.into(),
            code,
            message: message.into(),
            fields: Vec::new(),
            retryable: false,
            repairable: true,
            retry_after_ms: None,
            next: None,
            suggestion: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_keep_their_names_on_the_wire() {
        for code in [
            "INVALID_ARGS",
            "UNKNOWN_TOOL",
            "INVALID_REQUEST",
            "PERMISSION_DENIED",
            "TIMEOUT",
            "UNAVAILABLE",
            "IN_FLIGHT",
            "TOOL_DISABLED",
        ] {
            let parsed: ProblemCode = serde_json::from_value(code.into()).unwrap();
            assert!(!matches!(parsed, ProblemCode::Tool(_)), "{code}");
            assert_eq!(serde_json::to_value(&parsed).unwrap(), code);
        }
        let own: ProblemCode = serde_json::from_value("ORDER_NOT_FOUND".into()).unwrap();
        assert_eq!(own, ProblemCode::Tool(ToolCode::new("ORDER_NOT_FOUND").unwrap()));
        assert_eq!(serde_json::to_value(&own).unwrap(), "ORDER_NOT_FOUND");
        for bad in ["", "order", "A B", "退款", &"A".repeat(65)] {
            assert!(serde_json::from_value::<ProblemCode>(bad.into()).is_err(), "{bad}");
        }
    }
}
