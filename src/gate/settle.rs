//! How calls go on after they were shown or let go: consent, refusal, reports.
//!
//! Owns: who may agree, who may report, what a report changes.
//! Does not know: whether a call may be let go ([`super::authorize`]).

use serde_json::{Value, json};

use super::authorize::own_digest;
use super::books::{Books, Shelf};
use super::confirm::Token;
use super::{Ending, Record, Runner, machine, plan, refusal};
use crate::catalog::Tool;
use crate::store::{CallRow, Change, Changed, StoreError};
use crate::telemetry::names;
use crate::types::{CallId, CallState, Caller, Problem, ProblemCode, UnixMs};

use CallState::{Cancelled, Confirmed, Dispatched, EffectUnknown, Expired, Failed, Previewed, Proposed, Succeeded};

const TRIES: usize = 16;
/// Longest result that is kept, as JSON text. Results are shaped before they come here; this is for those that are not.
const LONGEST_ENDING: usize = 256 * 1024;

/// What somebody says to a call that waits.
pub(super) struct Consent {
    pub caller: Caller,
    pub id: CallId,
    pub token: String,
    pub agreed: bool,
    pub tool: Tool,
    pub policy_version: String,
}

/// How a call ended, as `by` tells it for the caller.
pub(super) struct Report {
    pub caller: Caller,
    pub id: CallId,
    pub ending: Ending,
    pub by: Runner,
}

type Answer = Result<Record, Problem>;

/// What becomes of a record: an answer, or a new form of it to be written.
enum Outcome {
    Answer(Box<Answer>),
    Write(Box<CallRow>),
}

impl Outcome {
    fn refuse(problem: Problem) -> Self {
        Self::Answer(Box::new(Err(problem)))
    }
}

impl Books {
    pub(super) fn confirm(&self, consent: &Consent) -> Result<Answer, StoreError> {
        self.rewrite(&consent.caller.tenant, consent.id, |shelf, row, now| {
            self.consented(shelf, &machine::as_of(row, now), consent, now)
        })
    }

    /// The record as it stands then, and whether this report made it so.
    pub(super) fn settle(&self, report: &Report) -> Result<Result<(Record, bool), Problem>, StoreError> {
        let written = std::cell::Cell::new(false);
        let answer = self.rewrite(&report.caller.tenant, report.id, |shelf, row, now| {
            let outcome = reported(shelf, row, report, now);
            written.set(matches!(outcome, Outcome::Write(_)));
            Ok(outcome)
        })?;
        Ok(answer.map(|record| (record, written.get())))
    }

    /// Reads one call, writes what `change` makes of it, and starts again if another was faster.
    fn rewrite(
        &self,
        tenant: &str,
        id: CallId,
        change: impl Fn(&Shelf, CallRow, UnixMs) -> Result<Outcome, StoreError>,
    ) -> Result<Answer, StoreError> {
        for _ in 0..TRIES {
            let now = self.clock.now();
            let Some((shelf, row)) = self.find(tenant, id)? else { return Ok(Err(refusal::unknown_call())) };
            let before = Some((row.id, row.revision));
            let after = match change(shelf, row, now)? {
                Outcome::Answer(answer) => return Ok(*answer),
                Outcome::Write(after) => after,
            };
            let change = Change { before, retired: None, after: &after, spend: None };
            if let Changed::Done { .. } = self.write(shelf, &change, now)? {
                return Ok(Ok(shelf.record(&machine::as_of(*after, now))));
            }
        }
        Ok(Err(refusal::no_room()))
    }

    fn consented(&self, shelf: &Shelf, row: &CallRow, consent: &Consent, now: UnixMs) -> Result<Outcome, StoreError> {
        let refuse = |why: &str| Ok(Outcome::refuse(Problem::refused("token_refused", ProblemCode::TokenRefused, why)));
        let token = Token::read(&consent.token);
        let key = token.as_ref().map(|token| shelf.ledger.signing_key_of(token.key_id)).transpose()?.flatten();
        let holds = token.zip(key).is_some_and(|(token, key)| token.verify(&key, &plan::binding(row)));
        if !holds {
            return refuse("the token does not belong to this call, or it is late");
        }
        if let Some(problem) = not_allowed(row, consent) {
            return Ok(Outcome::refuse(problem));
        }
        let (path, said) = if consent.agreed { (Confirmed, Confirmed) } else { (Cancelled, Cancelled) };
        if row.state == said {
            return Ok(Outcome::Answer(Box::new(Ok(shelf.record(row)))));
        }
        if consent.agreed {
            if row.facts.tool != *consent.tool.id() || row.facts.card_hash != consent.tool.hash {
                return refuse("the tool has changed since its preview");
            }
            if row.facts.policy_version != consent.policy_version {
                return refuse("the policy has changed since the preview");
            }
        }
        let mut after = row.clone();
        // Only what waits can be agreed to. The way back from `dispatched` belongs to reports: taken here, a call that
        // runs would be free to run again.
        let waits = matches!(row.state, Proposed | Previewed | Confirmed);
        if !waits || !machine::advance(&mut after, &[path], now) {
            return refuse(match row.state {
                Expired => "the token is late",
                Cancelled => "the call was called off, or replaced by a newer preview",
                _ => "the call does not wait for consent any more",
            });
        }
        if consent.agreed {
            after.facts.confirmed_by = Some(consent.caller.name.clone());
            after.facts.token = Some(own_digest(&consent.token));
        }
        Ok(Outcome::Write(Box::new(after)))
    }
}

/// Why this caller may not say that to this call.
fn not_allowed(row: &CallRow, consent: &Consent) -> Option<Problem> {
    let own = row.facts.caller == consent.caller.name;
    match &row.facts.second_person {
        None if own => None,
        None => {
            let why = "the token was given to another caller";
            Some(Problem::refused("token_refused", ProblemCode::TokenRefused, why))
        }
        // Who asked may always take it back.
        Some(_) if own && !consent.agreed => None,
        Some(scope) if !own && consent.caller.holds(scope) => None,
        Some(scope) => Some(refusal::second_person(row, scope)),
    }
}

/// What a report makes of a call. `row` is as it was written: a report that comes after the lease is still the first.
fn reported(shelf: &Shelf, row: CallRow, report: &Report, now: UnixMs) -> Outcome {
    let Report { caller, by, .. } = report;
    let ending = &after_unknown(&row, &report.ending);
    if row.facts.runner != caller.name || row.facts.attempts == 0 {
        return Outcome::refuse(if row.facts.attempts == 0 { refusal::not_let_go(&row) } else { refusal::not_yours() });
    }
    let stands = match row.state {
        Dispatched => false,
        EffectUnknown => matches!(ending, Ending::EffectUnknown(_)),
        Proposed | Previewed | Confirmed | Succeeded | Failed | Expired | Cancelled => true,
    };
    // While this server runs a call, nobody else knows its end; once it is not known, a person may have looked.
    if !stands && row.facts.by_gate && *by == Runner::Caller {
        let unknown = machine::as_of(row.clone(), now).state == EffectUnknown;
        if !unknown || matches!(ending, Ending::NotStarted(_)) {
            return Outcome::refuse(refusal::run_here());
        }
    }
    if stands {
        return Outcome::Answer(Box::new(Ok(shelf.record(&machine::as_of(row, now)))));
    }
    let mut after = row;
    let consented = after.facts.confirmed_by.is_some();
    let path: &[CallState] = match (ending, consented, after.current) {
        (Ending::Succeeded(_), ..) => &[Succeeded],
        (Ending::Failed(_), ..) => &[Failed],
        (Ending::EffectUnknown(_), ..) => &[EffectUnknown],
        (Ending::NotStarted(_), true, true) => &[Confirmed],
        (Ending::NotStarted(_), false, true) => &[Proposed],
        // Another attempt stands for the key by now.
        (Ending::NotStarted(_), true, false) => &[Confirmed, Cancelled],
        (Ending::NotStarted(_), false, false) => &[Proposed, Cancelled],
    };
    if !machine::advance(&mut after, path, now) {
        return Outcome::refuse(refusal::no_room());
    }
    let ttl = std::time::Duration::from_millis(after.facts.ttl_ms);
    let replayed_until = now.plus(ttl);
    after.until = if after.state == Confirmed { after.facts.consent_until } else { replayed_until };
    after.keep = replayed_until.max(after.until);
    after.facts.ending = Some(kept(ending));
    Outcome::Write(Box::new(after))
}

/// An attempt that came to nothing does not tell what became of the one before.
fn after_unknown(row: &CallRow, ending: &Ending) -> Ending {
    match ending {
        // Of an end that was not known, somebody may have found out by now.
        Ending::Failed(_) if row.state == EffectUnknown => ending.clone(),
        Ending::NotStarted(problem) | Ending::Failed(problem) if row.facts.unknown_before => {
            let message = format!("an earlier attempt may have taken effect; this one did not: {}", problem.message);
            Ending::EffectUnknown(Problem { message, ..Problem::refused("unknown", ProblemCode::EffectUnknown, "") })
        }
        ending => ending.clone(),
    }
}

fn kept(ending: &Ending) -> Value {
    let value = serde_json::to_value(ending).unwrap_or_default();
    let fits = matches!(ending, Ending::Succeeded(_)) && value.to_string().len() <= LONGEST_ENDING;
    if fits || !matches!(ending, Ending::Succeeded(_)) {
        return value;
    }
    metrics::counter!(names::GATE_DROPPED, "kind" => "result").increment(1);
    json!({"succeeded": {"ok": true, "notices": ["the result was too large to be kept"]}})
}
