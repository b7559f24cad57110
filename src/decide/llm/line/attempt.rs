//! How one attempt ends badly, and what follows from it.

use std::time::Duration;

use super::super::LlmError;
use super::super::read::Unusable;
use super::client::{ExchangeError, Parameter};

/// How one attempt ended badly.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AttemptError {
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    #[error("an error in a body with status 200")]
    ErrorBody { status: Option<u16> },
    #[error("no message in the response")]
    NoMessage,
    #[error("no response within {0:?}")]
    Timeout(Duration),
    #[error("no response before the deadline")]
    Deadline,
}

/// What to do about it. `Retry` may help in time; `Withdraw` helps at once; `Stop` helps nobody.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NextStep {
    Retry { after: Option<Duration> },
    Withdraw(Vec<Parameter>),
    Stop,
}

impl From<Unusable> for AttemptError {
    fn from(unusable: Unusable) -> Self {
        match unusable {
            Unusable::Error { status } => Self::ErrorBody { status },
            Unusable::NoMessage => Self::NoMessage,
        }
    }
}

fn may_pass(status: u16) -> bool {
    matches!(status, 408 | 425 | 429 | 500..=599)
}

impl AttemptError {
    pub fn next_step(&self) -> NextStep {
        match self {
            Self::Exchange(ExchangeError::Status { status, retry_after, .. }) if may_pass(*status) => {
                NextStep::Retry { after: *retry_after }
            }
            Self::Exchange(ExchangeError::Status { refused, .. }) if !refused.is_empty() => {
                NextStep::Withdraw(refused.clone())
            }
            Self::Exchange(ExchangeError::Connect | ExchangeError::Broken | ExchangeError::NotJson)
            | Self::Timeout(_)
            | Self::NoMessage => NextStep::Retry { after: None },
            Self::ErrorBody { status } if status.is_none_or(may_pass) => NextStep::Retry { after: None },
            Self::Exchange(ExchangeError::Status { .. } | ExchangeError::TooLong | ExchangeError::Request)
            | Self::ErrorBody { .. }
            | Self::Deadline => NextStep::Stop,
        }
    }

    /// The endpoint answered properly and dislikes what we sent: no sign of its being down.
    pub fn is_about_the_request(&self) -> bool {
        match self {
            Self::Exchange(ExchangeError::Status { status, .. }) => matches!(status, 400 | 413 | 422),
            Self::Exchange(ExchangeError::Request) => true,
            Self::Exchange(
                ExchangeError::Connect | ExchangeError::Broken | ExchangeError::TooLong | ExchangeError::NotJson,
            )
            | Self::ErrorBody { .. }
            | Self::NoMessage
            | Self::Timeout(_)
            | Self::Deadline => false,
        }
    }

    pub fn label(&self) -> &'static str {
        match self {
            Self::Exchange(ExchangeError::Status { status: 429, .. }) | Self::ErrorBody { status: Some(429) } => {
                "rate_limited"
            }
            Self::Exchange(ExchangeError::Status { status, .. }) if may_pass(*status) => "server_error",
            Self::Exchange(ExchangeError::Status { .. } | ExchangeError::Request) => "refused",
            Self::Exchange(ExchangeError::Connect) => "connect",
            Self::Exchange(ExchangeError::Broken) => "broken",
            Self::Exchange(ExchangeError::TooLong | ExchangeError::NotJson) | Self::NoMessage => "malformed",
            Self::ErrorBody { .. } => "error_body",
            Self::Timeout(_) => "timeout",
            Self::Deadline => "deadline",
        }
    }

    pub fn into_llm_error(self) -> LlmError {
        match &self {
            Self::Deadline => LlmError::Deadline,
            Self::Exchange(ExchangeError::Status { status, .. }) if !may_pass(*status) => {
                LlmError::Refused(self.to_string())
            }
            Self::ErrorBody { status: Some(status) } if !may_pass(*status) => {
                LlmError::Refused(format!("HTTP status {status} in a body with status 200"))
            }
            Self::Exchange(ExchangeError::Request) => LlmError::Refused(self.to_string()),
            Self::Exchange(
                ExchangeError::Status { .. }
                | ExchangeError::Connect
                | ExchangeError::Broken
                | ExchangeError::TooLong
                | ExchangeError::NotJson,
            )
            | Self::ErrorBody { .. }
            | Self::NoMessage
            | Self::Timeout(_) => LlmError::Unavailable(self.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_pass_is_retried() {
        let status =
            |status| AttemptError::from(ExchangeError::Status { status, retry_after: None, refused: Vec::new() });
        for retried in [408, 429, 500, 502, 503, 504, 529] {
            assert_eq!(status(retried).next_step(), NextStep::Retry { after: None }, "{retried}");
        }
        for stopped in [301, 307, 400, 401, 403, 404, 413, 422] {
            assert_eq!(status(stopped).next_step(), NextStep::Stop, "{stopped}");
            assert!(matches!(status(stopped).into_llm_error(), LlmError::Refused(_)));
        }
        let refused = vec![Parameter::Seed];
        let error =
            AttemptError::from(ExchangeError::Status { status: 400, retry_after: None, refused: refused.clone() });
        assert_eq!(error.next_step(), NextStep::Withdraw(refused));
        assert_eq!(AttemptError::ErrorBody { status: Some(401) }.next_step(), NextStep::Stop);
        assert_eq!(AttemptError::ErrorBody { status: None }.next_step(), NextStep::Retry { after: None });
        assert_eq!(AttemptError::Deadline.next_step(), NextStep::Stop);
    }
}
