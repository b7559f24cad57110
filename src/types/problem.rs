//! The one error body: the same to the model, the caller and the log.

use serde::{Deserialize, Serialize};

use super::ToolId;

/// Stable, machine-readable reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
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
        Self {
            status: "bad_params".into(),
            code: ProblemCode::InvalidArgs,
            message: message.into(),
            fields,
            retryable: false,
            repairable: true,
            retry_after_ms: None,
            next: None,
            suggestion: None,
        }
    }

    /// A name outside the allowed ones: not retryable, repairable by choosing one of `allowed`.
    pub fn unknown_tool(name: &str, allowed: &[&str]) -> Self {
        Self {
            status: "unknown_tool".into(),
            code: ProblemCode::UnknownTool,
            message: format!("there is no tool `{name}`"),
            fields: Vec::new(),
            retryable: false,
            repairable: true,
            retry_after_ms: None,
            next: None,
            suggestion: Some(format!("choose one of: {}", allowed.join(", "))),
        }
    }

    /// A request field that cannot be used: neither retryable nor repairable by the model.
    pub fn invalid_request(message: impl Into<String>, fields: Vec<FieldProblem>) -> Self {
        Self {
            status: "bad_request".into(),
            code: ProblemCode::InvalidRequest,
            message: message.into(),
            fields,
            retryable: false,
            repairable: false,
            retry_after_ms: None,
            next: None,
            suggestion: None,
        }
    }
}
