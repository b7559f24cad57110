//! Names of the decider's metrics and the closed sets of their labels.

use std::fmt;
use std::time::Duration;

use metrics::{counter, gauge, histogram};

use crate::telemetry::names;

/// Why an answer needed a second question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    UnknownTool,
    InvalidArguments,
    TextAnswer,
    SeveralCalls,
    /// Ended by the endpoint's limit of tokens.
    CutOff,
    /// Calls whose cards exclude each other.
    Conflict,
    /// A call that has just failed and would fail again.
    FailedBefore,
}

impl Fault {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UnknownTool => "unknown_tool",
            Self::InvalidArguments => "invalid_arguments",
            Self::TextAnswer => "text_answer",
            Self::SeveralCalls => "several_calls",
            Self::CutOff => "cut_off",
            Self::Conflict => "conflict",
            Self::FailedBefore => "failed_before",
        }
    }
}

/// The place of an endpoint in the configured order, from 1: how it is named in metrics, notes and messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Number(usize);

impl Number {
    /// Of the endpoint at `index`, from 0.
    pub fn of(index: usize) -> Self {
        Self(index.saturating_add(1))
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What kept a request from an endpoint that works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// No place, and none left to wait in.
    Queue,
    /// The rate limit lets it through after the deadline only.
    Rate,
}

/// How a hedge ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hedge {
    /// The second request answered first.
    Won,
    /// The first one did after all.
    Lost,
    /// Neither gave an answer.
    Failed,
    /// Due, but there was no room for it.
    Skipped,
    /// The caller left, or the time was up, while both were under way.
    Cut,
}

/// A limit of one tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QuotaKind {
    Calls,
    Tokens,
}

impl QuotaKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::Tokens => "tokens",
        }
    }
}

pub(crate) fn attempt(endpoint: Number, result: &'static str, took: Duration) {
    counter!(names::LLM_ATTEMPTS, "endpoint" => endpoint.to_string(), "result" => result).increment(1);
    histogram!(names::LLM_ATTEMPT_DURATION, "endpoint" => endpoint.to_string(), "result" => result)
        .record(took.as_secs_f64());
}

pub(crate) fn repair(fault: Fault) {
    counter!(names::LLM_REPAIRS, "kind" => fault.as_str()).increment(1);
}

pub(crate) fn tokens(prompt: u32, completion: u32) {
    counter!(names::LLM_TOKENS, "kind" => "prompt").increment(prompt.into());
    counter!(names::LLM_TOKENS, "kind" => "completion").increment(completion.into());
}

/// The breaker's change to `to`; `open` says whether it lets nothing but a probe through from now on.
pub(crate) fn breaker(endpoint: Number, to: &'static str, open: bool) {
    counter!(names::LLM_BREAKER_CHANGES, "endpoint" => endpoint.to_string(), "to" => to).increment(1);
    breaker_open(endpoint, open);
}

pub(crate) fn breaker_open(endpoint: Number, open: bool) {
    gauge!(names::LLM_BREAKER_OPEN, "endpoint" => endpoint.to_string()).set(if open { 1.0 } else { 0.0 });
}

pub(crate) fn overloaded(endpoint: Number, full: Full) {
    let reason = match full {
        Full::Queue => "queue",
        Full::Rate => "rate",
    };
    counter!(names::LLM_OVERLOADED, "endpoint" => endpoint.to_string(), "reason" => reason).increment(1);
}

pub(crate) fn rate_wait(endpoint: Number) {
    counter!(names::LLM_RATE_WAITS, "endpoint" => endpoint.to_string()).increment(1);
}

/// `parameter` is one of those we send.
pub(crate) fn withdrawn(endpoint: Number, parameter: &'static str) {
    counter!(names::LLM_WITHDRAWN, "endpoint" => endpoint.to_string(), "parameter" => parameter).increment(1);
}

pub(crate) fn hedge(endpoint: Number, hedge: Hedge) {
    let result = match hedge {
        Hedge::Won => "won",
        Hedge::Lost => "lost",
        Hedge::Failed => "failed",
        Hedge::Skipped => "skipped",
        Hedge::Cut => "cut",
    };
    counter!(names::LLM_HEDGES, "endpoint" => endpoint.to_string(), "result" => result).increment(1);
}

pub(crate) fn quota_refusal(kind: QuotaKind) {
    counter!(names::LLM_QUOTA_REFUSALS, "kind" => kind.as_str()).increment(1);
}

/// The cards of a prompt were shortened as far as `step`.
pub(crate) fn cards_cut(step: &'static str) {
    counter!(names::LLM_CARD_CUTS, "step" => step).increment(1);
}
