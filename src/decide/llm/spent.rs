//! What one decision takes: attempts, tokens and time, whichever endpoint they are spent on.
//!
//! Owns: the sums, the end of the token budget, what was noted and repaired on the way.
//! Does not know: how anything is spent.

use super::line::Budget;
use super::quota::Charge;
use super::{Failed, LlmError, NO_TIME, metrics};
use crate::decide::Verdict;
use crate::decision::{HandoffReason, Repair, TokenUse};

const NO_TOKENS: &str = "the decision's budget of LLM tokens is used up";
const NO_ATTEMPTS: &str = "the decision's budget of LLM attempts is used up";

pub(super) struct Spent<'a> {
    pub budget: Budget,
    pub tokens: TokenUse,
    /// Of all conversations so far.
    pub repairs: Vec<Repair>,
    pub notes: Vec<String>,
    max_tokens: u32,
    /// Tokens of the last prompt; the next one of the same conversation is longer.
    last_prompt: u32,
    /// Some endpoint gave an answer that could be read.
    answered: bool,
    /// Tells the tenant's quota, also when the caller leaves.
    charge: Charge<'a>,
}

impl<'a> Spent<'a> {
    /// `max_tokens` of 0 is no limit.
    pub fn new(budget: Budget, max_tokens: u32, charge: Charge<'a>) -> Self {
        Self {
            budget,
            tokens: TokenUse::default(),
            repairs: Vec::new(),
            notes: Vec::new(),
            max_tokens,
            last_prompt: 0,
            answered: false,
            charge,
        }
    }

    /// Adds what one answer took.
    pub fn count(&mut self, usage: TokenUse) {
        metrics::tokens(usage.prompt, usage.completion);
        self.tokens.prompt = self.tokens.prompt.saturating_add(usage.prompt);
        self.tokens.completion = self.tokens.completion.saturating_add(usage.completion);
        self.last_prompt = usage.prompt;
        self.answered = true;
        self.charge.tokens(usage);
    }

    /// Whether attempts and tokens allow another question. The first one is always allowed.
    pub fn may_ask(&self) -> bool {
        let used = self.tokens.prompt.saturating_add(self.tokens.completion).saturating_add(self.last_prompt);
        self.budget.has_attempt() && (self.max_tokens == 0 || !self.answered || used <= self.max_tokens)
    }

    /// The verdict when a question ended with `error` because the time is up, although something was read before.
    pub fn out_of_time(&mut self, error: &LlmError) -> Option<Verdict> {
        let late = self.answered && matches!(error, LlmError::Deadline);
        late.then(|| {
            self.notes.push(NO_TIME.into());
            Verdict::Handoff(HandoffReason::Budget)
        })
    }

    /// The verdict when something was read, but nothing more may be asked.
    pub fn over_budget(&mut self) -> Verdict {
        self.notes.push(if self.budget.has_attempt() { NO_TOKENS } else { NO_ATTEMPTS }.into());
        Verdict::Handoff(HandoffReason::Budget)
    }

    /// Keeps what a conversation told beside its end.
    pub fn take_over(&mut self, repairs: Vec<Repair>, notes: Vec<&'static str>) {
        self.repairs.extend(repairs);
        self.notes.extend(notes.into_iter().map(str::to_owned));
    }

    /// All notes so far.
    pub fn take_notes(&mut self) -> Vec<String> {
        let mut notes = std::mem::take(&mut self.notes);
        notes.extend(self.budget.notes.drain(..).map(str::to_owned));
        notes
    }

    pub fn failed(mut self, error: LlmError) -> Failed {
        let notes = self.take_notes();
        Failed { error, tokens: self.tokens, llm_calls: self.budget.spent, repairs: self.repairs, notes }
    }
}
