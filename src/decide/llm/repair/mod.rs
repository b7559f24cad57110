//! What becomes of an answer: a choice, an end, or one more question.
//!
//! Owns: when the model is asked again and with which words, and how it ends when asking again does not help.
//! Does not know: how a question travels, or what makes arguments valid (the caller passes that in).
//!
//! Bounds: `max_repairs` re-asks in all; one each for an unknown tool, text instead of a choice, an answer that was cut
//! off, several calls where one was asked for and calls that exclude each other; none after the same unusable answer
//! twice, nor for a problem that neither other arguments nor time can cure.

mod question;
#[cfg(test)]
mod tests;
mod unfit;

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::ask::{Named, Shortlist, Wording, clip};
use super::metrics::{self, Fault};
use super::read::{Arguments, Completion, RawCall};
use crate::catalog::Tool;
use crate::decide::Verdict;
use crate::decide::plan::{Conflicts, Plan, Refusal};
use crate::decision::{NoToolReason, Repair};
use crate::tool::canonical_json;
use crate::types::{Problem, ToolId};

use unfit::{Unfit, unreadable};

const MAX_TRANSCRIPT: usize = 2_000;

const NOTE_TEXT: &str = "the model answered with text instead of a choice";
const NOTE_EMPTY: &str = "the model answered nothing";
const NOTE_BEST: &str = "the model proposed several calls where one was asked for; the best ranked was taken";
const NOTE_CONTROL: &str = "the model declined or asked beside proposing a call; the call was taken";
const NOTE_SAME: &str = "the model gave the same unusable answer twice";

/// Checks arguments of one tool and makes the caller's kind of proposal of them.
pub(crate) type Check<'c, V> = dyn Fn(&Tool, Map<String, Value>) -> Result<V, Box<Problem>> + Sync + 'c;
/// Puts several calls in order.
pub(crate) type Arrange<'c, V> = dyn Fn(Vec<V>, Conflicts) -> Result<Plan<V>, Refusal> + Sync + 'c;

/// What makes an answer's calls usable.
pub(crate) struct Checks<'c, V> {
    pub arguments: &'c Check<'c, V>,
    pub plan: &'c Arrange<'c, V>,
}

/// What follows from an answer.
#[derive(Debug)]
pub(crate) enum Step<V> {
    /// Never empty, at most `max_calls`.
    Calls(Vec<V>),
    End(Verdict),
    /// The answer as it goes into the conversation, and what is wrong with it.
    ReAsk {
        answer: String,
        complaint: String,
    },
}

/// The state of one decision between answers.
#[derive(Debug)]
pub(crate) struct Dialogue<'a> {
    list: &'a Shortlist<'a>,
    wording: &'a Wording,
    max_calls: usize,
    max_repairs: u32,
    answers: u32,
    reasks: u32,
    met: BTreeSet<Fault>,
    seen: BTreeSet<String>,
    /// Where an unusable answer leaves us if nobody can be asked again.
    fallback: Option<Verdict>,
    pub repairs: Vec<Repair>,
    pub notes: Vec<&'static str>,
    /// The tool of the last unusable call.
    pub failed: Option<ToolId>,
    /// The end was concluded from text.
    pub from_text: bool,
}

impl<'a> Dialogue<'a> {
    pub fn new(list: &'a Shortlist<'a>, wording: &'a Wording, max_calls: usize, max_repairs: u32) -> Self {
        Self {
            list,
            wording,
            max_calls: max_calls.max(1),
            max_repairs,
            answers: 0,
            reasks: 0,
            met: BTreeSet::new(),
            seen: BTreeSet::new(),
            fallback: None,
            repairs: Vec::new(),
            notes: Vec::new(),
            failed: None,
            from_text: false,
        }
    }

    /// Takes one answer.
    pub fn step<V>(&mut self, completion: &Completion, checks: &Checks<'_, V>) -> Step<V> {
        self.answers += 1;
        self.from_text = false;
        self.fallback = None;
        let transcript = transcript(completion);
        let unfit = match self.judge(completion, &transcript, checks) {
            Ok(step) => return step,
            Err(unfit) => unfit,
        };
        metrics::repair(unfit.fault);
        if unfit.fault == Fault::TextAnswer {
            self.note(if completion.text.trim().is_empty() { NOTE_EMPTY } else { NOTE_TEXT });
            self.from_text = true;
        }
        let may_help = unfit.problem.repairable || unfit.problem.retryable;
        let again = may_help && self.may_reask(unfit.fault, &transcript);
        if self.seen.contains(&transcript) {
            self.note(NOTE_SAME);
        }
        let complaint = format!("{}\n{}\n{}", self.wording.reask, body_of(&unfit.problem), self.wording.reask_end);
        self.repairs.push(Repair { attempt: self.answers, problem: *unfit.problem });
        self.met.insert(unfit.fault);
        self.failed = unfit.tool;
        self.seen.insert(transcript.clone());
        if !again {
            return Step::End(*unfit.end);
        }
        self.reasks += 1;
        self.fallback = matches!(*unfit.end, Verdict::Clarify { .. }).then_some(*unfit.end);
        Step::ReAsk { answer: clip(&transcript, MAX_TRANSCRIPT), complaint }
    }

    /// The end when the next question cannot be asked: the question to the user that the last answer allows, if any.
    pub fn give_up(&mut self) -> Option<Verdict> {
        self.fallback.take()
    }

    fn may_reask(&self, fault: Fault, transcript: &str) -> bool {
        let again = match fault {
            Fault::InvalidArguments | Fault::FailedBefore => true,
            Fault::UnknownTool | Fault::TextAnswer | Fault::SeveralCalls | Fault::CutOff | Fault::Conflict => {
                !self.met.contains(&fault)
            }
        };
        again && self.reasks < self.max_repairs && !self.seen.contains(transcript)
    }

    fn note(&mut self, note: &'static str) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    fn judge<V>(
        &mut self,
        completion: &Completion,
        transcript: &str,
        checks: &Checks<'_, V>,
    ) -> Result<Step<V>, Unfit> {
        let is_prose =
            completion.calls.is_empty() && !completion.text.contains('{') && !completion.text.trim().is_empty();
        if completion.cut && !is_prose {
            return Err(Unfit::cut_off(self.only_tool(completion)));
        }
        if completion.calls.is_empty() {
            return Err(Unfit::text(&completion.text, self.list, self.wording));
        }
        let mut chosen: Vec<(&Tool, &Arguments)> = Vec::new();
        let (mut declines, mut question) = (false, None);
        for call in &completion.calls {
            match self.list.resolve(&call.name) {
                Some(Named::Tool(tool)) => {
                    if !chosen.iter().any(|(other, given)| other.id() == tool.id() && **given == call.arguments) {
                        chosen.push((tool, &call.arguments));
                    }
                }
                Some(Named::None) => declines = true,
                Some(Named::Ask) => question = question.or(Some(&call.arguments)),
                None => return Err(Unfit::unknown_tool(&call.name, self.list)),
            }
        }
        let beside = declines || question.is_some();
        if chosen.is_empty() {
            // Asking is the more careful of the two.
            let verdict = question.map(|arguments| question::question(self.list, self.wording, arguments));
            return Ok(Step::End(verdict.unwrap_or(Verdict::NoTool(NoToolReason::NothingFits))));
        }
        if self.max_calls == 1 && (chosen.len() > 1 || beside) {
            if self.may_reask(Fault::SeveralCalls, transcript) {
                return Err(Unfit::several_calls());
            }
            if chosen.len() > 1 {
                self.note(NOTE_BEST);
            }
            // Stable, so of two calls of one tool the first stays.
            chosen.sort_by_key(|(tool, _)| self.list.rank(tool.id()));
            chosen.truncate(1);
        }
        if beside {
            self.note(NOTE_CONTROL);
        }
        let proposals = chosen.into_iter().map(|(tool, arguments)| {
            let checked = match arguments {
                Arguments::Object(map) => (checks.arguments)(tool, map.clone()),
                Arguments::Unreadable(_) => Err(unreadable().into()),
            };
            checked.map_err(|problem| Unfit::arguments(tool, arguments, problem))
        });
        let proposals = proposals.collect::<Result<_, _>>()?;
        self.planned(proposals, transcript, checks)
    }

    /// Calls that exclude each other are asked about once; then the better ranked one is enough.
    fn planned<V>(&mut self, calls: Vec<V>, transcript: &str, checks: &Checks<'_, V>) -> Result<Step<V>, Unfit> {
        let again = self.may_reask(Fault::Conflict, transcript);
        let conflicts = if again { Conflicts::Refuse } else { Conflicts::KeepBetter };
        let plan = (checks.plan)(calls, conflicts).map_err(|refusal| Unfit::plan(refusal, self.list))?;
        plan.notes.into_iter().for_each(|note| self.note(note));
        Ok(Step::Calls(plan.calls))
    }

    fn only_tool(&self, completion: &Completion) -> Option<&'a Tool> {
        let [call] = completion.calls.as_slice() else { return None };
        match self.list.resolve(&call.name)? {
            Named::Tool(tool) => Some(tool),
            Named::None | Named::Ask => None,
        }
    }
}

fn body_of(problem: &Problem) -> String {
    serde_json::to_string(problem).expect("a problem holds only JSON-representable data")
}

/// An answer as text: equal answers give equal texts, whatever ids or white space the endpoint added.
fn transcript(completion: &Completion) -> String {
    let call = |call: &RawCall| {
        let arguments = match &call.arguments {
            Arguments::Object(map) => Value::Object(map.clone()),
            Arguments::Unreadable(text) => Value::String(text.clone()),
        };
        canonical_json(&json!({"name": call.name, "arguments": arguments}))
    };
    if completion.calls.is_empty() {
        return completion.text.trim().to_owned();
    }
    completion.calls.iter().map(call).collect::<Vec<_>>().join("\n")
}
