//! How one attempt at a tool ended, and what may be said about it.

use std::time::Duration;

use crate::tool::ToolCard;
use crate::types::{Problem, ProblemCode, ToolAnswer};

const DO_NOT_GUESS: &str = "say that this could not be found out; do not guess the result";
const MAY_HAVE_HAPPENED: &str =
    "it may have taken effect: read the present state before trying again; do not guess the result";

/// How one attempt ended.
#[derive(Debug)]
pub(super) enum Attempt {
    Answered(Answer),
    Unsent(Unsent),
    Lost(Loss),
}

#[derive(Debug)]
pub(super) struct Answer {
    pub answer: ToolAnswer,
    /// The answer says that the other side is unwell, not that it dislikes what was asked.
    pub unwell: bool,
}

/// Why nothing was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unsent {
    Connect,
    /// The target's address is of a kind the operator has not allowed.
    Private,
    /// The caller's deadline came before there was a connection.
    NoTime,
}

/// Why there is no answer to what was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    /// `cut` when the caller's deadline came before the tool's own timeout.
    Timeout { after: Duration, cut: bool },
    /// The connection ended before the answer did.
    Broken,
    /// Something came that is no answer.
    Unreadable,
}

impl Attempt {
    /// For metrics.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Answered(answer) => match answer.answer.status {
                Some(429) => "rate_limited",
                Some(500..) => "server_error",
                Some(300..) => "refused",
                _ if answer.answer.failed => "tool_error",
                _ => "ok",
            },
            Self::Unsent(Unsent::Connect) => "connect",
            Self::Unsent(Unsent::Private) => "private_address",
            Self::Lost(Loss::Timeout { cut: false, .. }) => "timeout",
            Self::Unsent(Unsent::NoTime) | Self::Lost(Loss::Timeout { cut: true, .. }) => "deadline",
            Self::Lost(Loss::Broken) => "broken",
            Self::Lost(Loss::Unreadable) => "unreadable",
        }
    }

    pub fn is_success(&self) -> bool {
        matches!(self, Self::Answered(answer) if !answer.answer.failed && answer.answer.status.is_none_or(|s| s < 300))
    }

    /// Whether it shows the tool to be down (`Some(true)`) or up; `None` if it says nothing about that.
    pub fn shows_down(&self) -> Option<bool> {
        match self {
            Self::Answered(answer) if answer.answer.status == Some(429) => None,
            Self::Answered(answer) => Some(answer.unwell),
            Self::Unsent(Unsent::Connect) => Some(true),
            // The caller was in a hurry; that says nothing about the tool.
            Self::Unsent(Unsent::Private | Unsent::NoTime) | Self::Lost(Loss::Timeout { cut: true, .. }) => None,
            Self::Lost(Loss::Timeout { cut: false, .. } | Loss::Broken | Loss::Unreadable) => Some(true),
        }
    }
}

impl Unsent {
    pub fn problem(self) -> Problem {
        match self {
            Self::Connect => {
                let message = "the tool could not be reached; nothing was done";
                suggest(Problem::passing("unavailable", ProblemCode::Unavailable, message), DO_NOT_GUESS)
            }
            Self::Private => {
                let message = "the tool's address is not allowed here; nothing was done";
                Problem::refused("not_executable", ProblemCode::NotExecutable, message)
            }
            Self::NoTime => too_late(),
        }
    }
}

impl Loss {
    pub fn problem(self, card: &ToolCard) -> Problem {
        let problem = match self {
            Self::Timeout { after, .. } => {
                let message = format!("the tool did not answer within {} ms", after.as_millis());
                Problem::passing("timeout", ProblemCode::Timeout, message)
            }
            Self::Broken => {
                let message = "the connection broke off before the tool had answered";
                Problem::passing("unavailable", ProblemCode::Unavailable, message)
            }
            Self::Unreadable => {
                let message = "what the tool answered cannot be read";
                Problem::passing("unavailable", ProblemCode::Unavailable, message)
            }
        };
        suggest(problem, if card.is_known_to_read() { DO_NOT_GUESS } else { MAY_HAVE_HAPPENED })
    }
}

/// The breaker lets nothing through.
pub(super) fn closed_off() -> Problem {
    let message = "the tool is temporarily not available; nothing was done";
    suggest(Problem::passing("unavailable", ProblemCode::Unavailable, message), DO_NOT_GUESS)
}

/// There is no time left to begin.
pub(super) fn too_late() -> Problem {
    let message = "no time was left for the tool; nothing was done";
    suggest(Problem::passing("timeout", ProblemCode::Timeout, message), DO_NOT_GUESS)
}

fn suggest(problem: Problem, suggestion: &str) -> Problem {
    Problem { suggestion: Some(suggestion.into()), ..problem }
}
