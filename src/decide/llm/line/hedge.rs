//! A second request beside a slow first one.
//!
//! Owns: when it is due, which of the two answers counts, how that is told.
//! Does not know: how one request is sent and settled (see [`super::Line`]).
//!
//! Method: hedged requests, Dean and Barroso, "The Tail at Scale", CACM 2013.

use std::time::Duration;

use serde_json::{Map, Value};
use tokio::time::sleep;

use super::super::metrics::{self, Hedge, Number};
use super::super::read::Completion;
use super::attempt::AttemptError;
use super::{Budget, Line, Read, Ticket};

/// After as much of its good attempts an attempt counts as slow.
pub(super) const SLOW: usize = 95;

const NOTE_FIRST: &str = "a second request was sent beside a slow one; the first answer came from the first";
const NOTE_SECOND: &str = "a second request was sent beside a slow one; the first answer came from the second";
const NOTE_NEITHER: &str = "a second request was sent beside a slow one; neither gave an answer";

/// Counts a hedge however it ends.
struct Hedged(Number, Hedge);

impl Drop for Hedged {
    fn drop(&mut self) {
        metrics::hedge(self.0, self.1);
    }
}

impl Line {
    /// The first request, and a second one beside it when it is not back after `due`: the first good answer wins, the
    /// other exchange is aborted.
    pub(super) async fn race(
        &self,
        body: &Map<String, Value>,
        read: &Read<'_>,
        first: Ticket<'_>,
        due: Duration,
        budget: &mut Budget,
        may_hedge: &mut bool,
    ) -> Result<Completion, AttemptError> {
        let another = first.allowed.another;
        let mut first = std::pin::pin!(self.send(body, read, first));
        tokio::select! {
            biased;
            result = &mut first => return result,
            () = sleep(due) => {}
        }
        *may_hedge = false;
        let Some(second) = self.second(budget, another) else {
            metrics::hedge(self.number, Hedge::Skipped);
            return first.await;
        };
        let mut hedged = Hedged(self.number, Hedge::Cut);
        let mut second = std::pin::pin!(self.send(body, read, second));
        let (first_is_back, result) = tokio::select! {
            biased;
            result = &mut first => (true, result),
            result = &mut second => (false, result),
        };
        let (by_first, result) = match (result, first_is_back) {
            (Ok(completion), by_first) => (by_first, Ok(completion)),
            (Err(_), true) => (false, second.await),
            (Err(_), false) => (true, first.await),
        };
        let (end, note) = match (&result, by_first) {
            (Ok(_), true) => (Hedge::Lost, NOTE_FIRST),
            (Ok(_), false) => (Hedge::Won, NOTE_SECOND),
            (Err(_), _) => (Hedge::Failed, NOTE_NEITHER),
        };
        hedged.1 = end;
        budget.note(note);
        result
    }

    /// Leave for a second request beside the first: only where nothing has to wait for it.
    fn second(&self, budget: &mut Budget, another: bool) -> Option<Ticket<'_>> {
        if !budget.has_attempt() || budget.deadline.has_passed() {
            return None;
        }
        let place = self.limit.try_enter()?;
        if self.breaker.refuses() || self.rate.as_ref().is_some_and(|rate| !rate.try_take()) {
            return None;
        }
        let admission = self.breaker.admit()?;
        Some(Ticket { admission, _place: place, allowed: budget.take(another) })
    }
}
