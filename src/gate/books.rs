//! The ledgers: one that survives everything for effects, one in memory for reads.
//!
//! Owns: which ledger a call is in, records as callers see them, keys, sweeping.
//! Does not know: what is decided.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Record, Settings, machine};
use crate::store::{CallRow, Change, Changed, Ledger, SigningKey, Steps, Store, StoreError, TokenRow};
use crate::telemetry::names;
use crate::types::{CallId, Clock, UnixMs};

/// Rows removed in one transaction.
const SWEEP: usize = 200;

pub(super) struct Books {
    pub settings: Settings,
    pub clock: Clock,
    effects: Shelf,
    reads: Shelf,
}

/// One ledger. Decisions on it are made one at a time in this process, so that parallel requests find what the first of
/// them wrote; between processes the ledger's compare-and-set decides.
pub(super) struct Shelf {
    pub ledger: Arc<dyn Ledger>,
    turnstile: Mutex<()>,
    /// Calls here have keys that callers see.
    guarded: bool,
}

impl Shelf {
    fn new(ledger: Arc<dyn Ledger>, guarded: bool) -> Self {
        Self { ledger, turnstile: Mutex::new(()), guarded }
    }

    pub(super) fn enter(&self) -> MutexGuard<'_, ()> {
        self.turnstile.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn record(&self, row: &CallRow) -> Record {
        Record {
            id: row.id,
            tool: row.facts.tool.clone(),
            state: row.state,
            key: if self.guarded { row.key.clone() } else { String::new() },
            conversation: row.conversation.clone(),
            caller: row.facts.caller.clone(),
            runner: row.facts.runner.clone(),
            by_gate: row.facts.by_gate,
            confirmed_by: row.facts.confirmed_by.clone(),
            attempts: row.facts.attempts,
            created: row.facts.created,
            updated: row.updated,
            until: row.until,
            ending: machine::ending(row),
        }
    }
}

impl Books {
    pub(super) fn new(settings: Settings, clock: Clock, store: Arc<Store>) -> Result<Self, StoreError> {
        let reads = Shelf::new(Arc::new(Store::in_memory()?), false);
        Ok(Self { settings, clock, effects: Shelf::new(store, true), reads })
    }

    pub(super) fn shelf(&self, guarded: bool) -> &Shelf {
        if guarded { &self.effects } else { &self.reads }
    }

    /// Where the call is, as it was written.
    pub(super) fn find(&self, tenant: &str, id: CallId) -> Result<Option<(&Shelf, CallRow)>, StoreError> {
        for shelf in [&self.reads, &self.effects] {
            if let Some(row) = shelf.ledger.call(tenant, id)? {
                return Ok(Some((shelf, row)));
            }
        }
        Ok(None)
    }

    pub(super) fn lookup(&self, tenant: &str, id: CallId) -> Result<Option<Record>, StoreError> {
        let now = self.clock.now();
        Ok(self.find(tenant, id)?.map(|(shelf, row)| shelf.record(&machine::as_of(row, now))))
    }

    pub(super) fn lookup_key(&self, tenant: &str, conversation: &str, key: &str) -> Result<Option<Record>, StoreError> {
        let now = self.clock.now();
        let row = self.effects.ledger.current(tenant, conversation, key)?;
        Ok(row.map(|row| self.effects.record(&machine::as_of(row, now))))
    }

    pub(super) fn write(&self, shelf: &Shelf, change: &Change<'_>, now: UnixMs) -> Result<Changed, StoreError> {
        let changed = shelf.ledger.change(change, self.settings.max_calls, now)?;
        if let Changed::Done { evicted } = changed
            && evicted > 0
        {
            metrics::counter!(names::GATE_DROPPED, "kind" => "call").increment(evicted as u64);
            tracing::warn!(evicted, guarded = shelf.guarded, "calls were forgotten before their time");
        }
        Ok(changed)
    }

    pub(super) fn keep_tokens(&self, rows: &[TokenRow]) -> Result<(), StoreError> {
        let now = self.clock.now();
        for row in rows {
            if !self.effects.ledger.put_token(row, self.settings.max_calls, now)? {
                metrics::counter!(names::GATE_DROPPED, "kind" => "token").increment(1);
                tracing::warn!("a preview's token could not be kept");
            }
        }
        Ok(())
    }

    /// The key that signs now. Older ones stay until the last token they signed is late.
    pub(super) fn signing_key(&self, now: UnixMs) -> Result<SigningKey, StoreError> {
        let made_after = back(now, self.settings.key_rotation);
        let forget = back(made_after, self.settings.token_ttl);
        self.effects.ledger.signing_key(made_after, forget, now)
    }

    /// Counts a step of a turn. Turns live in memory: after a restart they begin anew.
    pub(super) fn step(
        &self,
        tenant: &str,
        conversation: &str,
        turn: &str,
        now: UnixMs,
    ) -> Result<(u32, UnixMs, bool), StoreError> {
        let Settings { turn_budget, max_steps, max_calls, idempotency_ttl, .. } = &self.settings;
        self.reads.ledger.step(&Steps {
            tenant,
            conversation,
            turn,
            limit: *max_steps,
            now,
            began_after: back(now, *turn_budget),
            keep: now.plus(turn_budget.saturating_add(*idempotency_ttl)),
            max_turns: *max_calls,
        })
    }

    /// Calls removed, and whether nothing late is left.
    pub(super) fn sweep(&self) -> Result<(usize, bool), StoreError> {
        let now = self.clock.now();
        let (mut calls, mut done) = (0, true);
        for shelf in [&self.effects, &self.reads] {
            let swept = shelf.ledger.sweep(SWEEP, now)?;
            calls += swept.calls;
            done &= [swept.calls, swept.tokens, swept.turns].iter().all(|rows| *rows < SWEEP);
        }
        Ok((calls, done))
    }
}

fn back(now: UnixMs, time: Duration) -> UnixMs {
    UnixMs(now.0.saturating_sub(i64::try_from(time.as_millis()).unwrap_or(i64::MAX)))
}
