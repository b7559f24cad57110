//! What a decision holds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::args::Origins;
use crate::text::Language;
use crate::tool::SideEffect;
use crate::types::{Candidate, Confidence, DecisionId, IndexKind, Problem, Score, ToolId};

/// Who made the choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecidedBy {
    Rule,
    CacheExact,
    CacheTemplate,
    Local,
    Llm,
    Fallback,
}

impl DecidedBy {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rule => "rule",
            Self::CacheExact => "cache_exact",
            Self::CacheTemplate => "cache_template",
            Self::Local => "local",
            Self::Llm => "llm",
            Self::Fallback => "fallback",
        }
    }
}

/// A mode in which the answer is worth less than it could be. Always visible in the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Degraded {
    /// An LLM is configured and could not be asked; the local decider answered.
    LlmUnavailable,
    /// No encoder could be used; words alone found the candidates.
    LexicalOnly,
    /// The utterance was longer than is read, or than the encoder reads.
    TruncatedInput,
    /// The utterance's language has no encoder of its own.
    UnsupportedLanguage,
    /// Earlier turns beyond the limit were not read.
    TruncatedHistory,
    /// Fewer tools than eligible were shown to the LLM because of its tool limit.
    TruncatedTools,
    /// Texts of tool cards that decide were shortened for the LLM because of their length.
    TruncatedCards,
    /// Tools were left out because their breakers are open.
    UnavailableTools,
    /// Tools were left out because an operator has disabled them, or one that they need.
    DisabledTools,
    /// An operator has switched the LLM off.
    LocalOnly,
    /// An operator has left all choices to rules.
    RulesOnly,
}

impl Degraded {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::LlmUnavailable => "llm_unavailable",
            Self::LexicalOnly => "lexical_only",
            Self::TruncatedInput => "truncated_input",
            Self::UnsupportedLanguage => "unsupported_language",
            Self::TruncatedHistory => "truncated_history",
            Self::TruncatedTools => "truncated_tools",
            Self::TruncatedCards => "truncated_cards",
            Self::UnavailableTools => "unavailable_tools",
            Self::DisabledTools => "disabled_tools",
            Self::LocalOnly => "local_only",
            Self::RulesOnly => "rules_only",
        }
    }
}

/// One call that should be made, with arguments that satisfy the tool's schema.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedCall {
    pub tool: ToolId,
    /// Version of the card's text the decision was made with.
    pub tool_version: String,
    pub arguments: Map<String, Value>,
    pub origins: Origins,
    pub side_effect: SideEffect,
    /// The call must not run before a person has agreed to exactly these arguments.
    pub needs_confirmation: bool,
    /// Remarks on what was changed on the way: a value clamped, a default taken instead of an unusable value.
    pub notices: Vec<String>,
}

/// Something must be asked first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClarifyOutcome {
    /// The tool that fits, if that is clear.
    pub tool: Option<ToolId>,
    /// What is known already.
    pub arguments: Map<String, Value>,
    /// Required arguments that nobody gave, in schema order.
    pub missing: Vec<String>,
    /// In the language of the utterance.
    pub question: String,
    /// Bring this back with the user's answer to fill the same call.
    pub pending: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoToolReason {
    /// No tool is open to this caller under these conditions.
    NothingEligible,
    /// Tools were considered and none fits.
    NothingFits,
    /// The decider may not decide this class of tool in its present mode.
    NotAllowedDegraded,
    /// A rule refuses such requests.
    Refused,
    /// The open question that was answered is about a tool an operator has disabled.
    Disabled,
}

impl NoToolReason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NothingEligible => "nothing_eligible",
            Self::NothingFits => "nothing_fits",
            Self::NotAllowedDegraded => "not_allowed_degraded",
            Self::Refused => "refused",
            Self::Disabled => "disabled",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HandoffReason {
    /// Repeated failures; automatic attempts have stopped.
    FuseBlown,
    /// A policy keeps this from being decided here.
    Policy,
    /// Time, attempts or tokens are used up.
    Budget,
}

impl HandoffReason {
    pub const ALL: [Self; 3] = [Self::FuseBlown, Self::Policy, Self::Budget];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::FuseBlown => "fuse_blown",
            Self::Policy => "policy",
            Self::Budget => "budget",
        }
    }
}

/// The closed set of answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Outcome {
    /// At least one call, in the order in which they should run.
    Call {
        calls: Vec<PlannedCall>,
    },
    Clarify(ClarifyOutcome),
    NoTool {
        reason: NoToolReason,
    },
    Handoff {
        reason: HandoffReason,
        /// For the user, in the language of the utterance where there is a sentence in it.
        #[serde(default)]
        message: String,
    },
}

impl Outcome {
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Call { .. } => "call",
            Self::Clarify(_) => "clarify",
            Self::NoTool { .. } => "no_tool",
            Self::Handoff { .. } => "handoff",
        }
    }

    /// The tool of the first call, or the one a question is about.
    pub fn tool(&self) -> Option<&ToolId> {
        match self {
            Self::Call { calls } => calls.first().map(|call| &call.tool),
            Self::Clarify(clarify) => clarify.tool.as_ref(),
            Self::NoTool { .. } | Self::Handoff { .. } => None,
        }
    }
}

/// Stages whose time is reported, in pipeline order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    Normalise,
    Rules,
    Cache,
    Embed,
    Prefilter,
    Decide,
    Total,
}

impl Stage {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normalise => "normalise",
            Self::Rules => "rules",
            Self::Cache => "cache",
            Self::Embed => "embed",
            Self::Prefilter => "prefilter",
            Self::Decide => "decide",
            Self::Total => "total",
        }
    }
}

pub type Timings = BTreeMap<Stage, Duration>;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenUse {
    pub prompt: u32,
    pub completion: u32,
}

/// One answer of the LLM that had to be repaired.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Repair {
    /// 1 for the first answer.
    pub attempt: u32,
    pub problem: Problem,
}

/// How the decision came about, beyond its result.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// `all` when every eligible tool was handed on, `layered` when the domain was chosen first, `rule` when a rule
    /// decided, `narrowed` otherwise.
    pub strategy: String,
    /// Number of tools the caller could reach.
    pub eligible: usize,
    /// Tools shown to the decider, in the order shown.
    pub shown: Vec<ToolId>,
    /// First 16 hex digits of the SHA-256 of the prompt, empty without one.
    pub prompt_hash: String,
    pub prompt_version: String,
    pub model: String,
    pub llm_calls: u32,
    /// Probability the LLM gave the chosen name among all it was offered, before it is combined into the confidence.
    /// `None` where the endpoint does not tell.
    #[serde(default)]
    pub choice_probability: Option<f32>,
    pub repairs: Vec<Repair>,
    /// `hit`, `joined`, `miss`, `off` or `bypass` (history or an open question present).
    pub cache: String,
    pub stored: bool,
    /// Steps worth reading, constant texts only.
    pub notes: Vec<String>,
    /// Id of the rule that decided or narrowed; empty when none fired.
    pub rule: String,
    /// Version of the rule file; empty without one.
    pub rules_version: String,
    /// States of the conversation that limited what could be chosen.
    pub states: Vec<String>,
    /// The domain step, best first; empty without one.
    pub domains: Vec<DomainScore>,
    /// Why tools beyond the rule's or the chosen domain's were looked at after all.
    pub widened: Option<Widened>,
    /// The choice that was made beside the rules and not served.
    pub shadow: Option<Shadow>,
    /// Why the open question that came back cannot be finished.
    #[serde(default)]
    pub refused: Option<Problem>,
}

/// One domain as the domain step scored it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DomainScore {
    /// Empty for tools without a domain.
    pub domain: String,
    pub score: Score,
    /// Its tools were handed on.
    pub chosen: bool,
}

/// Why a narrowed choice was opened to all eligible tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Widened {
    /// Nothing within fitted.
    NothingFits,
    /// Nothing within came close to the best tool of all.
    NothingClose,
}

impl Widened {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NothingFits => "nothing_fits",
            Self::NothingClose => "nothing_close",
        }
    }
}

/// What the dynamic choice would have been where rules decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shadow {
    pub agreement: Agreement,
    /// Kind of its outcome; empty when there is none yet.
    pub outcome: String,
    pub tools: Vec<ToolId>,
    pub decided_by: Option<DecidedBy>,
}

/// How the dynamic choice compares with the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Agreement {
    /// Outcome, tools and arguments.
    Same,
    /// Outcome and tools.
    SameTool,
    Different,
    /// Not known when the answer left; counted and logged when it is.
    Late,
    Failed,
    /// Too many such choices were being made.
    Skipped,
}

impl Agreement {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::SameTool => "same_tool",
            Self::Different => "different",
            Self::Late => "late",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }
}

/// The answer to one request.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    pub id: DecisionId,
    /// [`crate::types::CatalogVersion`] as text.
    pub catalog_version: String,
    pub index: IndexKind,
    pub language: Language,
    pub outcome: Outcome,
    pub decided_by: DecidedBy,
    pub confidence: Confidence,
    pub degraded: BTreeSet<Degraded>,
    /// By score, then name.
    pub candidates: Vec<Candidate>,
    pub timings: Timings,
    pub tokens: TokenUse,
    pub trace: Trace,
    /// From the caller's trace context, or made here: 32 hex digits.
    pub trace_id: String,
}
