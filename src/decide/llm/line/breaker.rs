//! Circuit breaker of one endpoint.
//!
//! Closed until the n-th failure in a row falls within the window; then open for as long as the window; then exactly
//! one probe decides. Calls that end without a verdict on the endpoint (cancelled, cut short by the caller's deadline)
//! count neither way.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::super::metrics::{self, Number};

#[derive(Debug)]
pub(crate) struct Breaker {
    endpoint: Number,
    state: Mutex<State>,
    failures: usize,
    window: Duration,
}

#[derive(Debug)]
enum State {
    /// Times of the last failures in a row, at most as many as open the breaker.
    Closed(VecDeque<Instant>),
    Open {
        until: Instant,
    },
    /// The one probe is under way.
    Probing,
}

/// Permission for one call. Dropping it without a verdict frees the place of a probe.
#[derive(Debug)]
#[must_use = "a call has to report its result"]
pub(crate) struct Admission<'a> {
    breaker: &'a Breaker,
    probe: bool,
    settled: bool,
}

impl Breaker {
    pub fn new(endpoint: Number, failures: u32, window: Duration) -> Self {
        let failures = usize::try_from(failures).unwrap_or(usize::MAX).max(1);
        metrics::breaker_open(endpoint, false);
        Self { endpoint, state: Mutex::new(State::Closed(VecDeque::new())), failures, window }
    }

    /// Whether a call would be refused now.
    pub fn refuses(&self) -> bool {
        match &*self.lock() {
            State::Closed(_) => false,
            State::Open { until } => Instant::now() < *until,
            State::Probing => true,
        }
    }

    /// `None` while the breaker is open or another call probes.
    pub fn admit(&self) -> Option<Admission<'_>> {
        let mut state = self.lock();
        let probe = match &*state {
            State::Closed(_) => false,
            State::Open { until } if Instant::now() >= *until => {
                *state = State::Probing;
                metrics::breaker(self.endpoint, "half_open", true);
                true
            }
            State::Open { .. } | State::Probing => return None,
        };
        Some(Admission { breaker: self, probe, settled: false })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change below is a single assignment, so a panic elsewhere leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self, state: &mut State) {
        *state = State::Open { until: Instant::now() + self.window };
        metrics::breaker(self.endpoint, "open", true);
        tracing::warn!(endpoint = %self.endpoint, open_for = ?self.window, "LLM breaker opened");
    }
}

impl Admission<'_> {
    pub fn succeeded(mut self) {
        self.settled = true;
        let mut state = self.breaker.lock();
        if self.probe {
            *state = State::Closed(VecDeque::new());
            metrics::breaker(self.breaker.endpoint, "closed", false);
            tracing::info!(endpoint = %self.breaker.endpoint, "LLM breaker closed");
        } else if let State::Closed(recent) = &mut *state {
            recent.clear();
        }
    }

    pub fn failed(mut self) {
        self.settled = true;
        let mut state = self.breaker.lock();
        if self.probe {
            self.breaker.open(&mut state);
            return;
        }
        // A late failure of a call admitted before the breaker opened changes nothing.
        let State::Closed(recent) = &mut *state else { return };
        let now = Instant::now();
        recent.push_back(now);
        if recent.len() > self.breaker.failures {
            recent.pop_front();
        }
        let within = recent.front().is_some_and(|first| now.duration_since(*first) <= self.breaker.window);
        if recent.len() == self.breaker.failures && within {
            self.breaker.open(&mut state);
        }
    }
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        if self.probe && !self.settled {
            *self.breaker.lock() = State::Open { until: Instant::now() };
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const WINDOW: Duration = Duration::from_secs(30);

    fn fail(breaker: &Breaker, times: u32) {
        for _ in 0..times {
            breaker.admit().expect("closed").failed();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_sixth_failure_in_a_row_opens_and_one_probe_closes() {
        let breaker = Breaker::new(Number::of(0), 6, WINDOW);
        fail(&breaker, 5);
        breaker.admit().unwrap().succeeded();
        fail(&breaker, 5);
        assert!(!breaker.refuses());
        fail(&breaker, 1);
        assert!(breaker.refuses() && breaker.admit().is_none());
        advance(WINDOW - Duration::from_millis(1)).await;
        assert!(breaker.admit().is_none());
        advance(Duration::from_millis(1)).await;
        let probe = breaker.admit().expect("half open");
        assert!(breaker.admit().is_none(), "exactly one probe");
        probe.succeeded();
        assert!(breaker.admit().is_some() && !breaker.refuses());
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_probe_opens_again_and_a_cancelled_one_makes_room() {
        let breaker = Breaker::new(Number::of(0), 2, WINDOW);
        fail(&breaker, 2);
        advance(WINDOW).await;
        breaker.admit().unwrap().failed();
        assert!(breaker.refuses());
        advance(WINDOW).await;
        drop(breaker.admit().unwrap());
        breaker.admit().expect("the next call may probe").succeeded();
        assert!(!breaker.refuses());
    }

    #[tokio::test(start_paused = true)]
    async fn failures_spread_over_more_than_the_window_do_not_open() {
        let breaker = Breaker::new(Number::of(0), 3, WINDOW);
        for _ in 0..10 {
            fail(&breaker, 1);
            advance(Duration::from_secs(16)).await;
        }
        assert!(!breaker.refuses());
        let (one, two) = (breaker.admit().unwrap(), breaker.admit().unwrap());
        one.failed();
        drop(two);
        assert!(!breaker.refuses(), "a call without a verdict counts neither way");
    }
}
