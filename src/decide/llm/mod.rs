//! The LLM decider: one choice among the candidates, by any OpenAI-compatible endpoint.
//!
//! Owns: the prompt, the exchange with the endpoint and everything that limits it, reading and repairing answers.
//! Does not know: what happens when the endpoint is down (the caller falls back) or whether a call may run.
//!
//! Reading order: `converse` holds one conversation: `ask` makes the question, `line` gets a response, `read` reads it,
//! `repair` decides what follows; `fill` is the mode that asks for the arguments separately. `spent` adds up what a
//! decision takes, `quota` what a tenant takes. `probe` examines an endpoint apart from all requests.

mod ask;
mod line;
mod read;
mod repair;

mod converse;
mod fill;
pub mod quota;
mod spent;

mod confidence;

mod metrics;

pub mod probe;

#[cfg(test)]
pub(super) mod testing;

use std::time::Duration;

use super::{Answer, Request, Verdict};
use crate::decision::{DecidedBy, HandoffReason, Repair, TokenUse};
use crate::types::{Confidence, Deadline};

use converse::Conversation;
use line::{Budget, Line, Spot};
use metrics::Number;
use quota::Quota;
use spent::Spent;

pub use ask::{PROMPT_VERSION, prompt_text};

/// How much of each card a prompt holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptForm {
    Full,
    /// The use in brief, no phrases, texts of required arguments alone.
    Compact,
}

/// How the model is asked to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerMode {
    /// `tools` and `tool_calls`.
    Functions,
    /// A JSON-schema answer: tool name and arguments.
    JsonSchema,
    /// A JSON-schema answer of the tool name alone; the arguments are read off the conversation or asked for.
    ChooseThenFill,
}

impl AnswerMode {
    /// Example turns where the settings name no number.
    fn usual_examples(self) -> usize {
        match self {
            Self::Functions | Self::JsonSchema => 0,
            Self::ChooseThenFill => 4,
        }
    }

    /// How many of the calls a request allows can be planned.
    fn max_calls(self, allowed: usize) -> usize {
        match self {
            Self::Functions | Self::JsonSchema => allowed,
            Self::ChooseThenFill => 1,
        }
    }
}

impl AnswerMode {
    /// As in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Functions => "functions",
            Self::JsonSchema => "json_schema",
            Self::ChooseThenFill => "choose_then_fill",
        }
    }
}

/// A key that never shows itself.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    pub fn new(key: impl Into<String>) -> Self {
        Self(key.into())
    }
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// One endpoint and how it is talked to.
#[derive(Debug, Clone, PartialEq)]
pub struct EndpointSettings {
    /// Such as `https://api.openai.com/v1`.
    pub base_url: String,
    pub model: String,
    pub api_key: Option<ApiKey>,
    pub mode: AnswerMode,
    /// Most tools in one prompt.
    pub max_tools: usize,
    /// Ask for the probabilities of the answer's tokens.
    pub logprobs: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// In the order in which they are asked; never empty.
    pub endpoints: Vec<EndpointSettings>,
    /// Not sent when absent.
    pub temperature: Option<f32>,
    /// Not sent when absent.
    pub seed: Option<i64>,
    /// Per HTTP attempt.
    pub timeout: Duration,
    /// HTTP attempts per decision, first one included, whichever endpoint they go to.
    pub max_attempts: u32,
    /// Prompt and answer tokens per decision, beyond which nothing more is asked; 0: no limit.
    pub max_tokens: u32,
    /// Re-asks after the first answer.
    pub max_repairs: u32,
    pub max_completion_tokens: u32,
    /// Estimated tokens that the cards of one prompt may take together before they are shortened; 0 for any number.
    pub card_tokens: usize,
    /// How much of each card a prompt holds before anything has to be shortened.
    pub prompt_form: PromptForm,
    /// Example turns in a prompt; the mode's own number when not given.
    pub examples: Option<usize>,
    /// Requests to one endpoint at a time.
    pub concurrency: usize,
    /// Requests waiting for a free place beyond which further ones are refused.
    pub queue: usize,
    /// Requests to one endpoint per minute; 0: no limit.
    pub requests_per_minute: u32,
    /// Send a second request beside one that is slower than 95 of 100.
    pub hedge: bool,
    /// Consecutive failures that open the breaker.
    pub breaker_failures: u32,
    /// Within this window, and how long the breaker stays open.
    pub breaker_window: Duration,
    pub quota: quota::Settings,
}

/// Said of a decision the LLM had no time for: another request with more of it asks again.
pub const NO_TIME: &str = "the LLM had no time left to answer";
/// Most endpoints: their numbers are labels of metrics.
pub const MOST_ENDPOINTS: usize = 8;

#[derive(Debug, Clone, thiserror::Error)]
pub enum LlmError {
    #[error("no answer from the LLM within the deadline")]
    Deadline,
    #[error("the LLM endpoint is unavailable: {0}")]
    Unavailable(String),
    #[error("too many requests are waiting for the LLM")]
    Overloaded,
    #[error("the LLM endpoint refuses the request: {0}")]
    Refused(String),
}

/// No answer: why, and what was spent on it in vain.
#[derive(Debug, thiserror::Error)]
#[error("the LLM gave no usable answer")]
pub struct Failed {
    #[source]
    pub error: LlmError,
    pub tokens: TokenUse,
    pub llm_calls: u32,
    pub repairs: Vec<Repair>,
    pub notes: Vec<String>,
}

impl Failed {
    fn unasked(error: LlmError) -> Self {
        Self { error, tokens: TokenUse::default(), llm_calls: 0, repairs: Vec::new(), notes: Vec::new() }
    }
}

/// Clients for the endpoints with their breakers and limits.
pub struct Llm {
    settings: Settings,
    lines: Vec<Line>,
    quota: Quota,
}

impl Llm {
    /// # Errors
    /// A message for the operator when the settings cannot be used (bad URL).
    pub fn new(settings: Settings) -> Result<Self, String> {
        if settings.endpoints.is_empty() {
            return Err("an LLM needs an endpoint: set llm.base_url".into());
        }
        if settings.endpoints.len() > MOST_ENDPOINTS {
            return Err(format!("at most {MOST_ENDPOINTS} LLM endpoints can be asked"));
        }
        if settings.max_attempts == 0 {
            return Err("llm.max_attempts must be at least 1".into());
        }
        if settings.timeout.is_zero() {
            return Err("llm.timeout_ms must be at least 1".into());
        }
        let lines = settings.endpoints.iter().enumerate().map(|(index, endpoint)| {
            let number = Number::of(index);
            line(number, endpoint, &settings)
                .map_err(|why| if settings.endpoints.len() > 1 { format!("endpoint {number}: {why}") } else { why })
        });
        let lines = lines.collect::<Result<_, _>>()?;
        Ok(Self { lines, quota: Quota::new(settings.quota.clone()), settings })
    }

    /// Everything about this decider that may change a decision: endpoints, models, answer modes, what prompts hold.
    pub fn fingerprint(&self) -> String {
        let endpoint = |endpoint: &EndpointSettings| {
            let EndpointSettings { base_url, model, mode, logprobs, .. } = endpoint;
            format!("{base_url} {model} {mode:?} {logprobs}")
        };
        let endpoints: Vec<String> = self.settings.endpoints.iter().map(endpoint).collect();
        let Settings { card_tokens, prompt_form, examples, .. } = &self.settings;
        format!("{} {PROMPT_VERSION} {card_tokens} {prompt_form:?} {examples:?}", endpoints.join(" "))
    }

    /// Asks the endpoints in order until one answers. Cancel safe: dropping the future aborts the HTTP exchange under
    /// way.
    ///
    /// # Errors
    /// [`Failed`] when none gave a usable answer; a bad answer ends as a verdict, not as an error, and so do a quota and
    /// a budget that are used up.
    pub async fn decide(&self, request: &Request<'_>, deadline: Deadline) -> Result<Answer, Failed> {
        // Nobody pays for a question that cannot be asked.
        if !self.lines.iter().any(Line::is_ready) {
            return Err(Failed::unasked(LlmError::Unavailable("the circuit breaker is open".into())));
        }
        let charge = match self.quota.admit(request.tenant) {
            Ok(charge) => charge,
            Err(refusal) => return Ok(handoff(refusal.to_string())),
        };
        let budget = Budget::new(deadline, self.settings.timeout, self.settings.max_attempts);
        let mut spent = Spent::new(budget, self.settings.max_tokens, charge);
        let several = self.lines.len() > 1;
        let mut failure = None;
        for (spot, endpoint) in Spot::all(&self.lines).zip(&self.settings.endpoints) {
            if failure.is_some() && !spent.may_ask() {
                break;
            }
            let before = spent.budget.spent;
            let conversation = Conversation { settings: &self.settings, endpoint, spot, request };
            // Boxed: it is the deepest part of every future that routes, and types nested too deeply do not compile.
            let error = match Box::pin(conversation.hold(&mut spent)).await {
                Ok(mut answer) => {
                    if several {
                        answer.notes.push(format!("endpoint {} answered", spot.number()));
                    }
                    return Ok(answer);
                }
                Err(error) => error,
            };
            if several {
                spent.notes.push(format!("endpoint {}: {error}", spot.number()));
            }
            if matches!(error, LlmError::Deadline) {
                return Err(spent.failed(error));
            }
            let was_asked = spent.budget.spent > before;
            failure = Some(failure.map_or(error.clone(), |earlier| graver(earlier, error, was_asked)));
        }
        Err(spent.failed(failure.expect("there is an endpoint, and each one ends with an answer or an error")))
    }
}

fn line(number: Number, endpoint: &EndpointSettings, settings: &Settings) -> Result<Line, String> {
    let least = match endpoint.mode {
        AnswerMode::Functions => ask::CONTROLS + 1,
        AnswerMode::JsonSchema | AnswerMode::ChooseThenFill => 1,
    };
    if endpoint.max_tools < least {
        return Err(format!("llm.max_tools must be at least {least}: declining and asking are functions too"));
    }
    Line::new(number, endpoint, settings)
}

/// What two endpoints in a row amount to: one that works but has no room is worth coming back to; one that was not even
/// asked says less than one that was.
fn graver(earlier: LlmError, later: LlmError, later_was_asked: bool) -> LlmError {
    match (&earlier, &later) {
        (LlmError::Overloaded, _) => earlier,
        (_, LlmError::Overloaded) => later,
        (
            LlmError::Unavailable(_) | LlmError::Refused(_) | LlmError::Deadline,
            LlmError::Unavailable(_) | LlmError::Refused(_) | LlmError::Deadline,
        ) => {
            if later_was_asked {
                later
            } else {
                earlier
            }
        }
    }
}

/// Over to a person, before anything was asked.
fn handoff(note: String) -> Answer {
    Answer {
        decided_by: DecidedBy::Llm,
        notes: vec![note],
        ..Answer::local(Verdict::Handoff(HandoffReason::Budget), Confidence::ZERO)
    }
}
