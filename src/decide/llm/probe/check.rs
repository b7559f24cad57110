//! The checks and what a check can find.

use std::time::Duration;

/// One question about an endpoint, in the order in which they are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    Models,
    Plain,
    Usage,
    Latency,
    MaxCompletionTokens,
    Temperature,
    Seed,
    Tools,
    ToolChoice,
    ParallelToolCalls,
    JsonSchema,
    Logprobs,
    Chinese,
    MaxTools,
    Decision,
}

impl Check {
    pub const ALL: [Self; 15] = [
        Self::Models,
        Self::Plain,
        Self::Usage,
        Self::Latency,
        Self::MaxCompletionTokens,
        Self::Temperature,
        Self::Seed,
        Self::Tools,
        Self::ToolChoice,
        Self::ParallelToolCalls,
        Self::JsonSchema,
        Self::Logprobs,
        Self::Chinese,
        Self::MaxTools,
        Self::Decision,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Models => "models",
            Self::Plain => "plain",
            Self::Usage => "usage",
            Self::Latency => "latency",
            Self::MaxCompletionTokens => "max_completion_tokens",
            Self::Temperature => "temperature",
            Self::Seed => "seed",
            Self::Tools => "tools",
            Self::ToolChoice => "tool_choice",
            Self::ParallelToolCalls => "parallel_tool_calls",
            Self::JsonSchema => "json_schema",
            Self::Logprobs => "logprobs",
            Self::Chinese => "chinese",
            Self::MaxTools => "max_tools",
            Self::Decision => "decision",
        }
    }
}

/// How well a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grade {
    Yes,
    /// Usable, with the restriction the remark names.
    Partly,
    No,
    /// It could not be told: no answer, or one that shows nothing.
    Unknown,
    Skipped,
}

impl Grade {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::Partly => "partly",
            Self::No => "no",
            Self::Unknown => "unknown",
            Self::Skipped => "skipped",
        }
    }
}

/// What one check found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub check: Check,
    pub grade: Grade,
    /// One line for the operator; text of the endpoint in it is short and printable.
    pub remark: String,
    /// Absent where nothing was asked.
    pub took: Option<Duration>,
}
