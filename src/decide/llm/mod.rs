//! The LLM decider: one choice among the candidates, by any OpenAI-compatible endpoint.
//!
//! Owns: the prompt, the exchange with the endpoint and everything that limits it, reading and repairing answers.
//! Does not know: what happens when the endpoint is down (the caller falls back) or whether a call may run.
//!
//! Reading order: `prompt` and `shortlist` make the question, `call` gets a response through `client`, `budget` and
//! `breaker`, `answer` reads it, `repair` decides what follows.

mod prompt;
mod session;
mod shortlist;
mod wording;

mod breaker;
mod budget;
mod call;
mod client;
mod retry_after;

mod answer;
mod confidence;
mod in_text;
mod repair;

mod metrics;

#[cfg(test)]
pub(super) mod testing;

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Map, Value};

use super::{Answer, Proposal, Request, Verdict, ground};
use crate::args::validate;
use crate::catalog::Tool;
use crate::decision::{DecidedBy, Degraded, HandoffReason, TokenUse};
use crate::types::{Confidence, Deadline, Problem};

use budget::Budget;
use call::Line;
use prompt::Prompt;
use repair::{Dialogue, Step};
use shortlist::Shortlist;
use wording::Wording;

pub use wording::PROMPT_VERSION;

/// How the model is asked to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerMode {
    /// `tools` and `tool_calls`.
    Functions,
    /// A JSON-schema answer: tool name and arguments.
    JsonSchema,
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

#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Such as `https://api.openai.com/v1`.
    pub base_url: String,
    pub model: String,
    pub api_key: Option<ApiKey>,
    pub mode: AnswerMode,
    pub temperature: f32,
    pub seed: Option<i64>,
    /// Per HTTP attempt.
    pub timeout: Duration,
    /// HTTP attempts per decision, first one included.
    pub max_attempts: u32,
    /// Re-asks after the first answer.
    pub max_repairs: u32,
    pub max_completion_tokens: u32,
    /// Most tools in one prompt.
    pub max_tools: usize,
    /// Requests to the endpoint at a time.
    pub concurrency: usize,
    /// Requests waiting for a free place beyond which further ones are refused.
    pub queue: usize,
    /// Consecutive failures that open the breaker.
    pub breaker_failures: u32,
    /// Within this window, and how long the breaker stays open.
    pub breaker_window: Duration,
}

#[derive(Debug, thiserror::Error)]
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

/// A client for one endpoint with its breaker and limits.
pub struct Llm {
    settings: Settings,
    line: Line,
}

impl Llm {
    /// # Errors
    /// A message for the operator when the settings cannot be used (bad URL).
    pub fn new(settings: Settings) -> Result<Self, String> {
        let least = match settings.mode {
            AnswerMode::Functions => shortlist::CONTROLS + 1,
            AnswerMode::JsonSchema => 1,
        };
        if settings.max_tools < least {
            return Err(format!("llm.max_tools must be at least {least}: declining and asking are functions too"));
        }
        if settings.max_attempts == 0 {
            return Err("llm.max_attempts must be at least 1".into());
        }
        if settings.timeout.is_zero() {
            return Err("llm.timeout_ms must be at least 1".into());
        }
        let line = Line::new(&settings)?;
        Ok(Self { settings, line })
    }

    /// Everything about this decider that may change a decision: endpoint, model, answer mode, prompt version.
    pub fn fingerprint(&self) -> String {
        let Settings { base_url, model, mode, .. } = &self.settings;
        format!("{base_url} {model} {mode:?} {PROMPT_VERSION}")
    }

    /// Cancel safe: dropping the future aborts the HTTP exchange under way.
    ///
    /// # Errors
    /// [`LlmError`] when the endpoint gave no usable answer; a bad answer ends as a verdict, not as an error.
    pub async fn decide(&self, request: &Request<'_>, deadline: Deadline) -> Result<Answer, LlmError> {
        let settings = &self.settings;
        let wording = Wording::of(request.query.language);
        let list = Shortlist::new(request, settings.max_tools, settings.mode);
        let mut prompt = Prompt::new(request, &list, settings.mode, wording);
        let mut degraded = BTreeSet::new();
        if list.cut > 0 {
            degraded.insert(Degraded::TruncatedTools);
            tracing::warn!(cut = list.cut, max_tools = settings.max_tools, "tools left out of the prompt");
        }
        if prompt.cut_history {
            degraded.insert(Degraded::TruncatedHistory);
        }
        let prompt_hash = prompt.hash();
        let mut budget = Budget::new(deadline, settings.timeout, settings.max_attempts);
        let mut dialogue = Dialogue::new(&list, wording, request.max_calls, settings.max_repairs);
        let mut tokens = TokenUse::default();
        let verdict = self.converse(request, &list, &mut prompt, &mut budget, &mut dialogue, &mut tokens).await?;
        let repairs = dialogue.repairs.len();
        Ok(Answer {
            confidence: confidence_in(&verdict, request, dialogue.from_text, repairs),
            verdict,
            decided_by: DecidedBy::Llm,
            degraded,
            tokens,
            llm_calls: budget.spent,
            repairs: dialogue.repairs,
            prompt_hash,
            prompt_version: PROMPT_VERSION.into(),
            model: settings.model.clone(),
            notes: dialogue.notes.into_iter().map(str::to_owned).collect(),
        })
    }

    /// Asks until there is a verdict.
    async fn converse(
        &self,
        request: &Request<'_>,
        list: &Shortlist<'_>,
        prompt: &mut Prompt,
        budget: &mut Budget,
        dialogue: &mut Dialogue<'_>,
        tokens: &mut TokenUse,
    ) -> Result<Verdict, LlmError> {
        let read = |body: &Value| answer::read(body, self.settings.mode, &|name| list.resolve(name).is_some());
        let check = |tool: &Tool, arguments: Map<String, Value>| propose(request, tool, arguments);
        loop {
            let completion = match self.line.ask(prompt.body(&self.settings), budget, &read).await {
                Ok(completion) => completion,
                // An earlier answer may have left something to ask the user for.
                Err(error) => return dialogue.give_up().ok_or(error),
            };
            metrics::tokens(completion.usage.prompt, completion.usage.completion);
            tokens.prompt = tokens.prompt.saturating_add(completion.usage.prompt);
            tokens.completion = tokens.completion.saturating_add(completion.usage.completion);
            match dialogue.step(&completion, &check) {
                Step::Calls(proposals) => return Ok(Verdict::Call(proposals)),
                Step::End(verdict) => return Ok(verdict),
                Step::ReAsk { answer, complaint } => prompt.push_reask(&answer, &complaint),
            }
            if !budget.has_attempt() {
                return Ok(dialogue.give_up().unwrap_or(Verdict::Handoff(HandoffReason::Budget)));
            }
        }
    }
}

fn propose(request: &Request<'_>, tool: &Tool, mut arguments: Map<String, Value>) -> Result<Proposal, Box<Problem>> {
    session::fill(&mut arguments, tool, request.session);
    let checked = validate(&tool.schema, &Value::Object(arguments))?;
    let (query, history, session) = (request.query, request.history, request.session);
    let origins = ground::trace(checked.args.as_map(), &tool.schema, query, history, session, &checked.defaulted);
    Ok(Proposal { tool: tool.id().clone(), checked, origins })
}

fn confidence_in(verdict: &Verdict, request: &Request<'_>, from_text: bool, repairs: usize) -> Confidence {
    match verdict {
        // A plan is as sure as its least sure call.
        Verdict::Call(proposals) => proposals
            .iter()
            .map(|proposal| confidence::agreement(&proposal.tool, request.candidates, repairs))
            .reduce(|a, b| if b < a { b } else { a })
            .unwrap_or(Confidence::ZERO),
        Verdict::Clarify { .. } | Verdict::NoTool(_) if from_text => Confidence::new(confidence::TEXT),
        Verdict::Clarify { .. } | Verdict::NoTool(_) => confidence::repaired(confidence::CONTROL, repairs),
        Verdict::Handoff(_) => Confidence::ZERO,
    }
}
