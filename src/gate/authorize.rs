//! What may happen with a call, given what became of earlier ones.
//!
//! Owns: the order of checks, replays, the one write that each decision is.
//! Does not know: permissions and bounds ([`super::plan`]), how calls end ([`super::settle`]).

use std::time::Duration;

use super::books::{Books, Shelf};
use super::confirm::{Token, sign};
use super::plan::{self, Plan};
use super::{Cleared, Runner, Shown, Verdict, key, machine, refusal, tokens};
use crate::store::{CallFacts, CallRow, Change, Changed, StoreError, TokenRow};
use crate::types::{CallId, CallState, Problem, UnixMs};

use CallState::{Cancelled, Confirmed, Dispatched, EffectUnknown, Expired, Failed, Previewed, Proposed, Succeeded};

/// Looks at the records again when another process was faster.
const TRIES: usize = 16;

/// What to do about a request.
enum Next {
    Answer(Box<Verdict>),
    Write(Box<Draft>),
}

/// One change and what is answered once it is written.
struct Draft {
    before: Option<CallRow>,
    after: CallRow,
    spend: Option<String>,
    answer: Answer,
}

#[derive(Clone, Copy)]
enum Answer {
    Go { time_left: Option<Duration> },
    Show,
}

impl Next {
    fn refuse(problem: Problem) -> Self {
        Self::answer(Verdict::Refused(problem))
    }

    fn answer(verdict: Verdict) -> Self {
        Self::Answer(Box::new(verdict))
    }
}

/// One look at the records.
struct Look<'a> {
    books: &'a Books,
    shelf: &'a Shelf,
    plan: &'a Plan,
    now: UnixMs,
    /// The preview tool's token in the arguments, bound to this call.
    presented: Option<TokenRow>,
}

impl Books {
    pub(super) fn decide(&self, plan: &Plan) -> Result<Verdict, StoreError> {
        let shelf = self.shelf(plan.guarded);
        let _one_at_a_time = shelf.enter();
        for _ in 0..TRIES {
            let now = self.clock.now();
            let presented = match self.presented(plan)? {
                Ok(presented) => presented,
                Err(problem) => return Ok(Verdict::Refused(problem)),
            };
            let look = Look { books: self, shelf, plan, now, presented };
            let draft = match look.next()? {
                Next::Answer(verdict) => return Ok(*verdict),
                Next::Write(draft) => draft,
            };
            let (before, retired) = retire(draft.before.as_ref(), draft.after.id, now);
            let change =
                Change { before, retired: retired.as_ref(), after: &draft.after, spend: draft.spend.as_deref() };
            match self.write(shelf, &change, now)? {
                Changed::Done { .. } => return look.answer(&draft),
                Changed::Full => return Ok(Verdict::Refused(refusal::no_room())),
                Changed::Raced => {}
            }
        }
        Ok(Verdict::Refused(refusal::no_room()))
    }

    /// The preview tool's token of a call that needs one.
    fn presented(&self, plan: &Plan) -> Result<Result<Option<TokenRow>, Problem>, StoreError> {
        let Some(param) = tokens::token_param(&plan.tool.card) else { return Ok(Ok(None)) };
        let shown = tokens::Shown {
            tool: &plan.tool,
            registry: &plan.registry,
            arguments: &plan.arguments,
            caller: &plan.caller.name,
            conversation: &plan.conversation,
        };
        let text = match tokens::in_arguments(&shown, param) {
            Ok(text) => text,
            Err(problem) => return Ok(Err(problem)),
        };
        let tenant = &plan.caller.tenant;
        let row = self.shelf(true).ledger.token(tenant, plan.tool.id(), &tokens::token_digest(tenant, text))?;
        Ok(tokens::check(row, &shown).map(Some))
    }
}

/// The call that `after` follows, and how it is left behind if that is another one.
fn retire(before: Option<&CallRow>, after: CallId, now: UnixMs) -> (Option<(CallId, i64)>, Option<CallRow>) {
    let Some(before) = before else { return (None, None) };
    let mut retired = before.clone();
    retired.current = false;
    if matches!(retired.state, Proposed | Previewed | Confirmed) {
        machine::advance(&mut retired, &[Cancelled], now);
    }
    (Some((before.id, before.revision)), (before.id != after).then_some(retired))
}

impl Look<'_> {
    fn next(&self) -> Result<Next, StoreError> {
        let Some(key) = &self.plan.key else { return self.let_go(None) };
        let found = self.shelf.ledger.current(&self.plan.caller.tenant, &self.plan.conversation, key)?;
        let row = match found.map(|row| machine::as_of(row, self.now)) {
            Some(row) if machine::is_live(&row, self.now) => row,
            past => return self.fresh(past),
        };
        if row.facts.tool != *self.plan.tool.id() || row.facts.arguments != self.plan.digest {
            return Ok(Next::refuse(refusal::conflict()));
        }
        if self.shows_something_else(&row) {
            return self.beside(row);
        }
        match row.state {
            Dispatched => Ok(self.repeated(&row, Verdict::InFlight)?),
            Proposed | Previewed | Confirmed => self.waiting(row),
            // A read that failed may be tried again.
            Failed if !self.plan.guarded => self.fresh(Some(row)),
            // A preview that was agreed to after a failure is leave for another try.
            Failed if self.is_agreed_anew() => self.fresh(Some(row)),
            Succeeded | Failed => self.repeated(&row, Verdict::Replay),
            EffectUnknown if self.plan.tool.card.idempotent => match self.foreign_token(&row)? {
                Some(problem) => Ok(Next::refuse(problem)),
                None if self.is_agreed_still(&row) => self.let_go(Some(row)),
                None => Ok(Next::refuse(self.effect_unknown())),
            },
            EffectUnknown => Ok(Next::refuse(self.effect_unknown())),
            Expired | Cancelled => self.fresh(Some(row)),
        }
    }

    /// The token is of a preview that showed something else than the one `row` stands for, such as another sum.
    fn shows_something_else(&self, row: &CallRow) -> bool {
        self.presented.as_ref().is_some_and(|token| row.facts.previewed.as_ref() != Some(&token.facts.previewed))
    }

    /// Another call than `row`, though its arguments are the same.
    fn beside(&self, row: CallRow) -> Result<Next, StoreError> {
        let waits = matches!(row.state, Proposed | Previewed | Confirmed);
        match row.state {
            _ if self.plan.given => Ok(Next::refuse(refusal::conflict())),
            Dispatched => Ok(Next::refuse(refusal::in_flight(&row))),
            // What is not known of the other may be of this one.
            EffectUnknown => Ok(Next::refuse(self.effect_unknown())),
            _ if waits && self.plan.consent && self.plan.token.is_some() => {
                Ok(Next::refuse(self.plan.refuse_token("the preview differs from the one that was agreed to")))
            }
            _ => self.fresh(Some(row)),
        }
    }

    fn is_agreed_anew(&self) -> bool {
        !self.plan.given && self.presented.as_ref().is_some_and(|token| token.spent_by.is_none())
    }

    /// Whether the consent behind `row` still is consent to this request: the same token, under the same policy, to the
    /// same card.
    fn is_agreed_still(&self, row: &CallRow) -> bool {
        let plan = self.plan;
        if plan.propose && plan.runner == Runner::Gate {
            return false;
        }
        !plan.consent || (plan.token.is_some() && plan.binding(row) == plan::binding(row))
    }

    fn effect_unknown(&self) -> Problem {
        let Plan { tool, registry, caller, .. } = self.plan;
        refusal::effect_unknown(&tool.card, registry, caller)
    }

    /// The same call again: it has its answer, unless it comes with a token that is not the first one's.
    fn repeated(&self, row: &CallRow, answer: fn(super::Record) -> Verdict) -> Result<Next, StoreError> {
        Ok(match self.foreign_token(row)? {
            Some(problem) => Next::refuse(problem),
            None => Next::answer(answer(self.shelf.record(row))),
        })
    }

    /// Why the token that came along does not belong to `row`, which was let go.
    fn foreign_token(&self, row: &CallRow) -> Result<Option<Problem>, StoreError> {
        if let Some(problem) = self.unusable(Some(row)) {
            return Ok(Some(problem));
        }
        let Some(text) = self.plan.token.as_ref().filter(|_| self.plan.consent) else { return Ok(None) };
        let same = row.facts.token.as_ref() == Some(&own_digest(text)) && row.facts.caller == self.plan.caller.name;
        if same { Ok(None) } else { self.explain(text).map(Some) }
    }

    /// Why the preview tool's token cannot be used for `row`, or for a new call.
    fn unusable(&self, row: Option<&CallRow>) -> Option<Problem> {
        let token = self.presented.as_ref()?;
        let sent = row.is_some_and(|row| !matches!(row.state, Proposed | Previewed | Confirmed));
        match &token.spent_by {
            Some(origin) if row.is_none_or(|row| row.facts.origin != *origin) => {
                Some(self.plan.refuse_token("the token is spent"))
            }
            Some(_) if sent => None,
            _ if token.until <= self.now => Some(self.plan.refuse_token("the token is late")),
            _ => None,
        }
    }

    /// A call that nothing stands for yet. `past` is what its key meant last.
    fn fresh(&self, past: Option<CallRow>) -> Result<Next, StoreError> {
        if let Some(problem) = self.unusable(None) {
            return Ok(Next::refuse(problem));
        }
        match &self.plan.token {
            _ if !self.plan.consent => self.let_go(past.map(without_history)),
            Some(text) => Ok(Next::refuse(self.explain(text)?)),
            None => Ok(self.show(past)),
        }
    }

    /// A call that waits for consent, or that was not started.
    fn waiting(&self, row: CallRow) -> Result<Next, StoreError> {
        if let Some(problem) = self.unusable(Some(&row)) {
            return Ok(Next::refuse(problem));
        }
        if !self.plan.consent {
            let row = if row.state == Proposed { row } else { without_history(row) };
            return self.let_go(Some(row));
        }
        let Some(text) = &self.plan.token else {
            let shown = matches!(row.state, Previewed | Confirmed);
            if shown && self.plan.binding(&row) == plan::binding(&row) {
                return Ok(Next::answer(self.shown(&row)?));
            }
            return Ok(self.show(Some(row)));
        };
        if row.state == Proposed || !self.verifies(text, &row)? {
            return Ok(Next::refuse(self.explain(text)?));
        }
        if self.plan.propose && self.plan.runner == Runner::Gate {
            return Ok(Next::refuse(refusal::proposed_only()));
        }
        match &row.facts.second_person {
            Some(scope) if row.state == Previewed => Ok(Next::refuse(refusal::second_person(&row, scope))),
            _ => self.let_go(Some(row)),
        }
    }

    fn verifies(&self, text: &str, row: &CallRow) -> Result<bool, StoreError> {
        let Some(token) = Token::read(text) else { return Ok(false) };
        let key = self.shelf.ledger.signing_key_of(token.key_id)?;
        Ok(key.is_some_and(|key| token.verify(&key, &self.plan.binding(row))))
    }

    /// Why a token of ours does not count.
    fn explain(&self, text: &str) -> Result<Problem, StoreError> {
        let unknown = || self.plan.refuse_token("this is no token of this gate, or it is late");
        let Some(token) = Token::read(text) else { return Ok(unknown()) };
        let Some(id) = CallId::parse(token.origin) else { return Ok(unknown()) };
        let Some(row) = self.shelf.ledger.call(&self.plan.caller.tenant, id)? else { return Ok(unknown()) };
        let key = self.shelf.ledger.signing_key_of(token.key_id)?;
        let given = plan::binding(&row);
        if !key.is_some_and(|key| token.verify(&key, &given)) {
            return Ok(unknown());
        }
        let asked = self.plan.binding(&row);
        Ok(self.plan.refuse_token(plan::difference(&given, &asked, row.facts.consent_until, self.now)))
    }

    /// Records a preview that waits for consent.
    fn show(&self, before: Option<CallRow>) -> Next {
        let until = self.now.plus(self.books.settings.token_ttl);
        let mut after = self.new_row();
        machine::advance(&mut after, &[Previewed], self.now);
        after.until = until;
        after.keep = until.plus(self.books.settings.token_ttl);
        after.facts.consent_until = until;
        Next::Write(Box::new(Draft { before, after, spend: None, answer: Answer::Show }))
    }

    /// Lets the call go. `before` is the call it carries on, if that one was not retired for good.
    fn let_go(&self, before: Option<CallRow>) -> Result<Next, StoreError> {
        let time_left = match self.step()? {
            Ok(time_left) => time_left,
            Err(problem) => return Ok(Next::refuse(problem)),
        };
        let mut after = match &before {
            Some(row) if carries_on(row) => self.another_attempt(row),
            _ => self.new_row(),
        };
        let path: &[CallState] = match after.state {
            Previewed => &[Confirmed, Dispatched],
            EffectUnknown if after.facts.confirmed_by.is_some() => &[Confirmed, Dispatched],
            EffectUnknown => &[Proposed, Dispatched],
            _ => &[Dispatched],
        };
        if !machine::advance(&mut after, path, self.now) {
            return Ok(Next::refuse(refusal::no_room()));
        }
        let Plan { caller, token, consent, lease, ttl, .. } = self.plan;
        after.until = self.now.plus(*lease);
        after.keep = after.until.plus(*ttl);
        let facts = &mut after.facts;
        facts.attempts += 1;
        facts.runner.clone_from(&caller.name);
        facts.by_gate = self.plan.runner == Runner::Gate;
        if *consent {
            facts.token = token.as_deref().map(own_digest);
            facts.confirmed_by.get_or_insert_with(|| caller.name.clone());
        }
        let spend = self.presented.as_ref().map(|token| token.digest.clone());
        Ok(Next::Write(Box::new(Draft { before, after, spend, answer: Answer::Go { time_left } })))
    }

    /// Counts a step of the turn; what is left of its time.
    fn step(&self) -> Result<Result<Option<Duration>, Problem>, StoreError> {
        let Plan { caller, conversation, turn, .. } = self.plan;
        if turn.is_empty() {
            return Ok(Ok(None));
        }
        let (_, started, counted) = self.books.step(&caller.tenant, conversation, turn, self.now)?;
        let settings = &self.books.settings;
        let over = started.plus(settings.turn_budget);
        let left = u64::try_from(over.0.saturating_sub(self.now.0)).unwrap_or(0);
        Ok(match counted {
            true => Ok(Some(Duration::from_millis(left))),
            false if left == 0 => Err(refusal::turn_over()),
            false => Err(refusal::steps(settings.max_steps)),
        })
    }

    fn new_row(&self) -> CallRow {
        let plan = self.plan;
        let id = CallId::generate();
        CallRow {
            id,
            tenant: plan.caller.tenant.clone(),
            conversation: plan.conversation.clone(),
            key: plan.key.clone().unwrap_or_else(|| id.to_string()),
            current: true,
            state: Proposed,
            revision: 0,
            updated: self.now,
            until: self.now,
            keep: self.now,
            facts: CallFacts {
                tool: plan.tool.id().clone(),
                card_hash: plan.tool.hash.clone(),
                class: if plan.guarded { plan.class.max(crate::tool::SideEffect::Write) } else { plan.class },
                origin: id.to_string(),
                caller: plan.caller.name.clone(),
                runner: plan.caller.name.clone(),
                by_gate: false,
                unknown_before: false,
                confirmed_by: None,
                arguments: plan.digest.clone(),
                policy_version: plan.policy_version.clone(),
                preview: plan.preview_digest.clone(),
                second_person: plan.second_person.clone(),
                token: None,
                previewed: self.presented.as_ref().map(|token| token.facts.previewed.clone()),
                consent_until: self.now,
                ttl_ms: u64::try_from(plan.ttl.as_millis()).unwrap_or(u64::MAX),
                attempts: 0,
                created: self.now,
                ending: None,
            },
        }
    }

    /// The same intent once more. After a first attempt it has an id of its own, so that a report on the first, which
    /// may come late or twice, never speaks for the second.
    fn another_attempt(&self, row: &CallRow) -> CallRow {
        let mut after = row.clone();
        if row.facts.attempts > 0 {
            after.id = CallId::generate();
            after.current = true;
            after.facts.ending = None;
            after.facts.unknown_before |= row.state == EffectUnknown;
            after.facts.created = self.now;
            after.facts.card_hash = self.plan.tool.hash.clone();
        }
        after
    }

    fn answer(&self, draft: &Draft) -> Result<Verdict, StoreError> {
        match draft.answer {
            Answer::Go { time_left } => {
                let key = self.plan.guarded.then(|| draft.after.facts.origin.clone());
                Ok(Verdict::Go(Cleared { record: self.shelf.record(&draft.after), key, time_left }))
            }
            Answer::Show => self.shown(&draft.after),
        }
    }

    fn shown(&self, row: &CallRow) -> Result<Verdict, StoreError> {
        let token = sign(&self.books.signing_key(self.now)?, &plan::binding(row));
        let (record, preview) = (self.shelf.record(row), self.plan.preview.clone());
        let shown = Shown { record, token, until: row.facts.consent_until, preview };
        Ok(if self.plan.propose { Verdict::Propose(shown) } else { Verdict::Confirm(shown) })
    }
}

/// Whether a call that is let go after `row` is the same intent.
fn carries_on(row: &CallRow) -> bool {
    row.current && matches!(row.state, Proposed | Previewed | Confirmed | EffectUnknown)
}

/// Only followed, not carried on.
fn without_history(mut row: CallRow) -> CallRow {
    row.current = false;
    row
}

/// Digest under which a token of ours is remembered with the call it was used for.
pub(super) fn own_digest(text: &str) -> String {
    key::digest(&["confirm token", text])
}
