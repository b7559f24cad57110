//! Names of the decider's metrics and the closed sets of their labels.

use std::time::Duration;

use metrics::{counter, histogram};

use crate::telemetry::names;

/// Why an answer needed a second question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    UnknownTool,
    InvalidArguments,
    TextAnswer,
    SeveralCalls,
}

impl Fault {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UnknownTool => "unknown_tool",
            Self::InvalidArguments => "invalid_arguments",
            Self::TextAnswer => "text_answer",
            Self::SeveralCalls => "several_calls",
        }
    }
}

pub(super) fn attempt(result: &'static str, took: Duration) {
    counter!(names::LLM_ATTEMPTS, "result" => result).increment(1);
    histogram!(names::LLM_ATTEMPT_DURATION, "result" => result).record(took.as_secs_f64());
}

pub(super) fn repair(fault: Fault) {
    counter!(names::LLM_REPAIRS, "kind" => fault.as_str()).increment(1);
}

pub(super) fn tokens(prompt: u32, completion: u32) {
    counter!(names::LLM_TOKENS, "kind" => "prompt").increment(prompt.into());
    counter!(names::LLM_TOKENS, "kind" => "completion").increment(completion.into());
}

pub(super) fn breaker(to: &'static str) {
    counter!(names::LLM_BREAKER_CHANGES, "to" => to).increment(1);
}

pub(super) fn overloaded() {
    counter!(names::LLM_OVERLOADED).increment(1);
}
