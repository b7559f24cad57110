//! One question of a check: bounded in time, asked again where the endpoint was merely busy.
//!
//! Owns: the time of a check, what became of a question.
//! Does not know: what is asked. No breaker, no limits: nobody else is served meanwhile.

use std::time::Duration;

use serde_json::{Map, Value};
use tokio::time::{Instant, timeout_at};

use super::super::ask::clip;
use super::super::line::{Endpoint, ExchangeError};
use super::super::read::{self, RawCall, Unusable};
use super::super::{AnswerMode, EndpointSettings};
use crate::decision::TokenUse;

/// Further questions after an answer that says "later".
const RETRIES: u32 = 2;
const PAUSE: Duration = Duration::from_secs(1);
/// Longest text of an endpoint in a remark.
const SHOWN: usize = 60;

/// Why a question has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Trouble {
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    #[error("an error in a body with status 200")]
    ErrorBody { status: Option<u16> },
    #[error("no message in the response")]
    NoMessage,
    #[error("no answer within {}", seconds(*.0))]
    Timeout(Duration),
}

impl Trouble {
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Exchange(ExchangeError::Status { status, .. }) => Some(*status),
            Self::ErrorBody { status } => *status,
            Self::Exchange(_) | Self::NoMessage | Self::Timeout(_) => None,
        }
    }

    /// The endpoint understood and will not have it; another form of the question may do.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::ErrorBody { status } => status.is_none_or(|status| status != 429),
            Self::Exchange(_) | Self::NoMessage | Self::Timeout(_) => {
                self.status().is_some_and(|status| matches!(status, 400 | 404 | 405 | 413 | 422 | 500 | 501))
            }
        }
    }

    /// Whether the complaint names this parameter.
    pub fn names(&self, parameter: &str) -> bool {
        match self {
            Self::Exchange(ExchangeError::Status { refused, .. }) => refused.iter().any(|it| it.as_str() == parameter),
            Self::Exchange(_) | Self::ErrorBody { .. } | Self::NoMessage | Self::Timeout(_) => false,
        }
    }

    /// Nothing else can be asked either.
    pub fn is_final(&self) -> bool {
        match self {
            Self::Exchange(ExchangeError::Connect) | Self::Timeout(_) => true,
            Self::Exchange(_) | Self::ErrorBody { .. } | Self::NoMessage => {
                self.status().is_some_and(|status| (300..400).contains(&status))
            }
        }
    }

    fn may_pass(&self) -> Option<Duration> {
        match self {
            Self::Exchange(ExchangeError::Status { status: 429 | 502 | 503 | 504, retry_after, .. }) => {
                Some(retry_after.unwrap_or(PAUSE))
            }
            Self::ErrorBody { status: Some(429) } => Some(PAUSE),
            Self::Exchange(_) | Self::ErrorBody { .. } | Self::NoMessage | Self::Timeout(_) => None,
        }
    }
}

/// One answer.
#[derive(Debug)]
pub(super) struct Reply {
    body: Value,
    pub took: Duration,
}

impl Reply {
    /// Calls where they belong: beside the text, not in it.
    pub fn calls(&self) -> Vec<RawCall> {
        read::read(&self.body, AnswerMode::Functions, &|_| false).map(|read| read.calls).unwrap_or_default()
    }

    /// Calls in the text, of functions with these names.
    pub fn calls_in_text(&self, names: &[&str]) -> Vec<RawCall> {
        let known = |name: &str| names.contains(&name);
        read::read(&self.body, AnswerMode::Functions, &known).map(|read| read.calls).unwrap_or_default()
    }

    pub fn text(&self) -> String {
        read::read(&self.body, AnswerMode::Functions, &|_| false).map(|read| read.text).unwrap_or_default()
    }

    pub fn usage(&self) -> TokenUse {
        read::read(&self.body, AnswerMode::Functions, &|_| false).map(|read| read.usage).unwrap_or_default()
    }

    /// How many alternatives stand beside the first token with a probability; `None` without probabilities.
    pub fn logprobs(&self) -> Option<usize> {
        let tokens = self.body.pointer("/choices/0/logprobs/content")?.as_array()?;
        let first = tokens.iter().find(|token| token.get("logprob").is_some_and(Value::is_number))?;
        Some(first.get("top_logprobs").and_then(Value::as_array).map_or(0, Vec::len))
    }
}

/// Asks one endpoint.
pub(super) struct Asker {
    endpoint: Endpoint,
    pub model: String,
    patience: Duration,
    started: Instant,
    /// Prompt tokens and time of every answer.
    pub samples: Vec<(u32, Duration)>,
}

impl Asker {
    /// # Errors
    /// A message for the operator.
    pub fn new(endpoint: &EndpointSettings, patience: Duration) -> Result<Self, String> {
        Ok(Self {
            endpoint: Endpoint::new(&endpoint.base_url, endpoint.api_key.as_ref(), patience)?,
            model: endpoint.model.clone(),
            patience,
            started: Instant::now(),
            samples: Vec::new(),
        })
    }

    /// A check has the whole patience, whatever the ones before it took.
    pub fn begin(&mut self) {
        self.started = Instant::now();
    }

    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    pub fn deadline(&self) -> Instant {
        self.started + self.patience
    }

    pub async fn models(&self) -> Result<Value, Trouble> {
        match timeout_at(self.deadline(), self.endpoint.models()).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(Trouble::Timeout(self.patience)),
        }
    }

    pub async fn chat(&mut self, body: &Map<String, Value>) -> Result<Reply, Trouble> {
        let mut retries = 0;
        loop {
            let trouble = match self.once(body).await {
                Ok(reply) => {
                    self.samples.push((reply.usage().prompt, reply.took));
                    return Ok(reply);
                }
                Err(trouble) => trouble,
            };
            let pause = trouble.may_pass().filter(|pause| Instant::now() + *pause < self.deadline());
            let Some(pause) = pause.filter(|_| retries < RETRIES) else { return Err(trouble) };
            retries += 1;
            tokio::time::sleep(pause).await;
        }
    }

    async fn once(&self, body: &Map<String, Value>) -> Result<Reply, Trouble> {
        let started = Instant::now();
        let answer = timeout_at(self.deadline(), self.endpoint.chat(body)).await;
        let body = answer.map_err(|_| Trouble::Timeout(self.patience))??;
        read::read(&body, AnswerMode::Functions, &|_| false).map_err(|unusable| match unusable {
            Unusable::Error { status } => Trouble::ErrorBody { status },
            Unusable::NoMessage => Trouble::NoMessage,
        })?;
        Ok(Reply { body, took: started.elapsed() })
    }
}

/// Text of an endpoint for a remark: one short line of printable characters.
pub(super) fn shown(text: &str) -> String {
    let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(SHOWN + 1).collect();
    clip(&clean, SHOWN)
}

/// `0.4 s`.
pub(super) fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
