//! One conversation with one endpoint: from a request to a verdict.
//!
//! Owns: the order of asking, reading and repairing, and what a finished conversation is worth. The mode that asks
//! twice has a file of its own ([`super::fill`]).
//! Does not know: which endpoint comes next when this one is down.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::ask::{self, Cut, PROMPT_VERSION, Prompt, Shortlist, Wording};
use super::line::{Read, Spot};
use super::read::Completion;
use super::repair::{Checks, Dialogue, Step};
use super::spent::Spent;
use super::{AnswerMode, EndpointSettings, LlmError, Settings, confidence, metrics, read};
use crate::catalog::Tool;
use crate::decide::made::{Made, made};
use crate::decide::plan::{self, Conflicts, Plan, Refusal};
use crate::decide::{Answer, Proposal, Request, Verdict};
use crate::decision::{DecidedBy, Degraded};
use crate::types::{Confidence, Problem};

const FAILED_BEFORE: &str = "this very call has just failed and would fail again; its result stands in the history";

/// A verdict, and how probable the model held its choice where the endpoint tells.
pub(super) struct Held {
    pub verdict: Verdict,
    pub choice: Option<f32>,
}

/// What asking about one thing came to.
pub(super) enum Told<V> {
    /// Never empty.
    Calls(Vec<V>),
    End(Verdict),
}

pub(super) struct Conversation<'a> {
    pub settings: &'a Settings,
    pub endpoint: &'a EndpointSettings,
    pub spot: Spot<'a>,
    pub request: &'a Request<'a>,
}

impl Conversation<'_> {
    /// # Errors
    /// [`LlmError`] when the endpoint gave no usable answer.
    pub async fn hold(&self, spent: &mut Spent<'_>) -> Result<Answer, LlmError> {
        let Self { settings, endpoint, request, .. } = self;
        let wording = Wording::of(request.query.language);
        let list = Shortlist::new(request, endpoint.max_tools, endpoint.mode);
        let mut prompt = Prompt::new(request, &list, endpoint.mode, settings);
        let mut degraded = BTreeSet::new();
        if list.cut > 0 {
            degraded.insert(Degraded::TruncatedTools);
            tracing::warn!(cut = list.cut, max_tools = endpoint.max_tools, "tools left out of the prompt");
        }
        if prompt.cut_history {
            degraded.insert(Degraded::TruncatedHistory);
        }
        if prompt.cut_cards > Cut::Nothing || prompt.clipped_cards {
            degraded.insert(Degraded::TruncatedCards);
        }
        let prompt_hash = prompt.hash();
        let max_calls = endpoint.mode.max_calls(request.max_calls);
        let mut dialogue = Dialogue::new(&list, wording, max_calls, settings.max_repairs);
        if let Some(note) = prompt.cut_cards.note() {
            metrics::cards_cut(prompt.cut_cards.as_str());
            tracing::warn!(
                step = prompt.cut_cards.as_str(),
                budget = settings.card_tokens,
                "cards shortened for the prompt"
            );
            dialogue.notes.push(note);
        }
        let held = match endpoint.mode {
            AnswerMode::Functions | AnswerMode::JsonSchema => {
                self.choose_and_fill(&list, &mut prompt, &mut dialogue, spent).await
            }
            AnswerMode::ChooseThenFill => self.choose_then_fill(&list, &mut prompt, &mut dialogue, spent).await,
        };
        let Dialogue { repairs, notes, failed, from_text, .. } = dialogue;
        let repaired = repairs.len();
        spent.take_over(repairs, notes);
        let Held { verdict, choice } = held?;
        Ok(Answer {
            confidence: confidence_in(&verdict, request, choice, from_text, repaired),
            verdict,
            decided_by: DecidedBy::Llm,
            degraded,
            tokens: spent.tokens,
            llm_calls: spent.budget.spent,
            repairs: std::mem::take(&mut spent.repairs),
            prompt_hash,
            prompt_version: PROMPT_VERSION.into(),
            model: endpoint.model.clone(),
            choice_probability: choice,
            notes: spent.take_notes(),
            failed,
        })
    }

    /// One question for the tool and its arguments.
    async fn choose_and_fill(
        &self,
        list: &Shortlist<'_>,
        prompt: &mut Prompt,
        dialogue: &mut Dialogue<'_>,
        spent: &mut Spent<'_>,
    ) -> Result<Held, LlmError> {
        let read = |body: &Value| {
            let completion = read::read(body, self.endpoint.mode, &|name| list.resolve(name).is_some())?;
            Ok(ask::restored(completion, list))
        };
        self.ask_for_calls(list, prompt, dialogue, &read, spent).await
    }

    /// Asks until there are calls that can be made, or an end.
    pub(super) async fn ask_for_calls(
        &self,
        list: &Shortlist<'_>,
        prompt: &mut Prompt,
        dialogue: &mut Dialogue<'_>,
        read: &Read<'_>,
        spent: &mut Spent<'_>,
    ) -> Result<Held, LlmError> {
        let checks = Checks {
            arguments: &|tool, arguments| propose(self.request, tool, arguments),
            plan: &|calls, conflicts| self.arrange(calls, conflicts),
        };
        let (told, choice) = self.ask(list, prompt, dialogue, read, &checks, spent).await?;
        let verdict = match told {
            Told::Calls(proposals) => Verdict::Call(proposals),
            Told::End(verdict) => verdict,
        };
        Ok(Held { verdict, choice })
    }

    /// Asks until `dialogue` has what it wants or ends.
    pub(super) async fn ask<V: Send>(
        &self,
        list: &Shortlist<'_>,
        prompt: &mut Prompt,
        dialogue: &mut Dialogue<'_>,
        read: &Read<'_>,
        checks: &Checks<'_, V>,
        spent: &mut Spent<'_>,
    ) -> Result<(Told<V>, Option<f32>), LlmError> {
        let mut choice = None;
        let read = |body: &Value| {
            let completion = read(body)?;
            Ok(Completion { choice: self.probability(body, &completion, list), ..completion })
        };
        loop {
            let body = prompt.body(self.endpoint, self.settings);
            let completion = match self.spot.ask(body, &mut spent.budget, &read).await {
                Ok(completion) => completion,
                // Another endpoint may still answer.
                Err(error) if !matches!(error, LlmError::Deadline) && self.spot.has_another() && spent.may_ask() => {
                    return Err(error);
                }
                // An earlier answer may have left something to ask the user for.
                Err(error) => {
                    let late = spent.out_of_time(&error);
                    let end = dialogue.give_up().or(late).ok_or(error)?;
                    return Ok((Told::End(end), choice));
                }
            };
            spent.count(completion.usage);
            choice = completion.choice;
            match dialogue.step(&completion, checks) {
                Step::Calls(calls) => return Ok((Told::Calls(calls), choice)),
                Step::End(verdict) => return Ok((Told::End(verdict), choice)),
                Step::ReAsk { answer, complaint } => prompt.push_reask(&answer, &complaint),
            }
            if !spent.may_ask() {
                let verdict = dialogue.give_up().unwrap_or_else(|| spent.over_budget());
                return Ok((Told::End(verdict), choice));
            }
        }
    }

    pub(super) fn arrange(&self, calls: Vec<Proposal>, conflicts: Conflicts) -> Result<Plan<Proposal>, Refusal> {
        let max_calls = self.endpoint.mode.max_calls(self.request.max_calls);
        plan::arrange(calls, &Request { max_calls, ..*self.request }, conflicts)
    }

    fn probability(&self, body: &Value, completion: &Completion, list: &Shortlist<'_>) -> Option<f32> {
        if !self.endpoint.logprobs {
            return None;
        }
        let chosen: Vec<&str> = completion.calls.iter().map(|call| call.name.as_str()).collect();
        read::choice_probability(body, &chosen, &list.names())
    }
}

/// Arguments of the model as a call that fits the schema, with what only the session knows. A call that has just failed
/// in a way that will not pass is refused.
pub(super) fn propose(
    request: &Request<'_>,
    tool: &Tool,
    mut arguments: Map<String, Value>,
) -> Result<Proposal, Box<Problem>> {
    ask::fill(&mut arguments, tool, request.session);
    let call = Proposal::of(tool, arguments, request)?;
    if let Some(Made::Failed(problem)) = made(tool, call.checked.args.as_map(), request.history)
        && !problem.retryable
    {
        // What the tool wrote stands in the conversation, fenced; the complaint is ours.
        let complaint =
            Problem { message: FAILED_BEFORE.into(), fields: Vec::new(), next: None, suggestion: None, ..problem };
        return Err(complaint.into());
    }
    Ok(call)
}

fn confidence_in(
    verdict: &Verdict,
    request: &Request<'_>,
    choice: Option<f32>,
    from_text: bool,
    repairs: usize,
) -> Confidence {
    match verdict {
        // A plan is as sure as its least sure call.
        Verdict::Call(proposals) => proposals
            .iter()
            .map(|proposal| confidence::of_call(&proposal.tool, request.candidates, choice, repairs))
            .reduce(|a, b| if b < a { b } else { a })
            .unwrap_or(Confidence::ZERO),
        Verdict::Clarify { .. } | Verdict::NoTool(_) if from_text => Confidence::new(confidence::TEXT),
        Verdict::Clarify { .. } | Verdict::NoTool(_) => confidence::of_control(choice, repairs),
        Verdict::Handoff(_) => Confidence::ZERO,
    }
}
