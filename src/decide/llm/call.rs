//! One question to the endpoint: limit, breaker, attempts and pauses.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::time::Instant;

use super::answer::{Completion, Unusable};
use super::breaker::Breaker;
use super::budget::{Budget, Limit};
use super::client::{Endpoint, ExchangeError, Parameter};
use super::{LlmError, Settings, metrics};

/// The endpoint with everything that protects it and us.
pub(super) struct Line {
    endpoint: Endpoint,
    limit: Limit,
    breaker: Breaker,
    /// Parameters this endpoint has refused by name; never sent again.
    withdrawn: Mutex<BTreeSet<Parameter>>,
}

/// How one attempt ended badly.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum AttemptError {
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
enum NextStep {
    Retry { after: Option<Duration> },
    Withdraw(Vec<Parameter>),
    Stop,
}

impl Line {
    pub fn new(settings: &Settings) -> Result<Self, String> {
        Ok(Self {
            endpoint: Endpoint::new(&settings.base_url, settings.api_key.as_ref(), settings.timeout)?,
            limit: Limit::new(settings.concurrency, settings.queue),
            breaker: Breaker::new(settings.breaker_failures, settings.breaker_window),
            withdrawn: Mutex::new(BTreeSet::new()),
        })
    }

    /// Sends `body` until `read` accepts a response or the budget is used up. Cancel safe: dropping the future aborts
    /// the attempt under way and frees its place.
    pub async fn ask(
        &self,
        mut body: Map<String, Value>,
        budget: &mut Budget,
        read: &(dyn Fn(&Value) -> Result<Completion, Unusable> + Sync),
    ) -> Result<Completion, LlmError> {
        let mut withdrawn = self.withdrawn();
        withdrawn.iter().for_each(|parameter| parameter.withdraw(&mut body));
        let mut failures = 0;
        loop {
            let error = match self.attempt(&body, budget, read).await? {
                Ok(completion) => {
                    self.withdrawn.lock().unwrap_or_else(PoisonError::into_inner).extend(withdrawn);
                    return Ok(completion);
                }
                Err(error) => error,
            };
            tracing::debug!(attempt = budget.spent, %error, "LLM attempt failed");
            match error.next_step() {
                NextStep::Withdraw(refused) => {
                    let sent = |parameter: &Parameter| body.contains_key(parameter.as_str());
                    let news: Vec<Parameter> = refused
                        .into_iter()
                        .filter(|parameter| sent(parameter) && !withdrawn.contains(parameter))
                        .collect();
                    if news.is_empty() || !budget.has_attempt() {
                        return Err(error.into_llm_error());
                    }
                    news.iter().for_each(|parameter| parameter.withdraw(&mut body));
                    withdrawn.extend(news);
                }
                NextStep::Stop => return Err(error.into_llm_error()),
                NextStep::Retry { after } => {
                    failures += 1;
                    let Some(pause) = budget.pause(failures, after) else { return Err(error.into_llm_error()) };
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }

    /// One attempt. The outer error means that none was made.
    async fn attempt(
        &self,
        body: &Map<String, Value>,
        budget: &mut Budget,
        read: &(dyn Fn(&Value) -> Result<Completion, Unusable> + Sync),
    ) -> Result<Result<Completion, AttemptError>, LlmError> {
        let refused = || LlmError::Unavailable("the circuit breaker is open".into());
        if self.breaker.refuses() {
            return Err(refused());
        }
        let _place = self.limit.enter(budget.deadline).await?;
        if budget.deadline.has_passed() {
            return Err(LlmError::Deadline);
        }
        let admission = self.breaker.admit().ok_or_else(refused)?;
        let (allowed, whole) = budget.take();
        let started = Instant::now();
        let result = match tokio::time::timeout(allowed, self.endpoint.chat(body)).await {
            Ok(Ok(value)) => read(&value).map_err(AttemptError::from),
            Ok(Err(error)) => Err(error.into()),
            Err(_) if whole => Err(AttemptError::Timeout(allowed)),
            Err(_) => Err(AttemptError::Deadline),
        };
        metrics::attempt(result.as_ref().err().map_or("ok", AttemptError::label), started.elapsed());
        match &result {
            Ok(_) => admission.succeeded(),
            // The caller was in a hurry; that says nothing about the endpoint.
            Err(AttemptError::Deadline) => drop(admission),
            Err(error) if error.is_about_the_request() => admission.succeeded(),
            Err(_) => admission.failed(),
        }
        Ok(result)
    }

    fn withdrawn(&self) -> BTreeSet<Parameter> {
        self.withdrawn.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
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
    fn next_step(&self) -> NextStep {
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
    fn is_about_the_request(&self) -> bool {
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

    fn label(&self) -> &'static str {
        match self {
            Self::Exchange(ExchangeError::Status { status: 429, .. }) | Self::ErrorBody { status: Some(429) } => {
                "rate_limited"
            }
            Self::Exchange(ExchangeError::Status { status: 500..=599, .. }) => "server_error",
            Self::Exchange(ExchangeError::Status { .. } | ExchangeError::Request) => "refused",
            Self::Exchange(ExchangeError::Connect) => "connect",
            Self::Exchange(ExchangeError::Broken) => "broken",
            Self::Exchange(ExchangeError::TooLong | ExchangeError::NotJson) | Self::NoMessage => "malformed",
            Self::ErrorBody { .. } => "error_body",
            Self::Timeout(_) => "timeout",
            Self::Deadline => "deadline",
        }
    }

    fn into_llm_error(self) -> LlmError {
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
