//! Circuit breaker of whatever is called and may be down: an LLM endpoint, a tool.
//!
//! Owns: the three states and who may probe.
//! Does not know: what counts as a failure (callers judge) or who hears of changes (see [`Breaker::new`]).
//!
//! Closed until the n-th failure in a row falls within the window; then open for as long as the window; then exactly
//! one probe decides. Calls that end without a verdict (cancelled, cut short by the caller's deadline) count
//! neither way.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// What a breaker has changed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Open,
    HalfOpen,
    Closed,
}

impl Change {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::HalfOpen => "half_open",
            Self::Closed => "closed",
        }
    }
}

pub(crate) struct Breaker {
    state: Mutex<State>,
    failures: usize,
    window: Duration,
    on_change: Box<dyn Fn(Change) + Send + Sync>,
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
#[must_use = "a call has to report its result"]
pub(crate) struct Admission<'a> {
    breaker: &'a Breaker,
    probe: bool,
    settled: bool,
}

impl Breaker {
    /// `on_change` hears of every change as it happens; it must be quick and call nothing of this breaker.
    pub fn new(failures: u32, window: Duration, on_change: impl Fn(Change) + Send + Sync + 'static) -> Self {
        let failures = usize::try_from(failures).unwrap_or(usize::MAX).max(1);
        Self { state: Mutex::new(State::Closed(VecDeque::new())), failures, window, on_change: Box::new(on_change) }
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
                (self.on_change)(Change::HalfOpen);
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
        (self.on_change)(Change::Open);
    }
}

impl Admission<'_> {
    /// Whether this call decides if the breaker closes: it should send one request and no more.
    pub fn is_probe(&self) -> bool {
        self.probe
    }

    pub fn succeeded(mut self) {
        self.settled = true;
        let mut state = self.breaker.lock();
        if self.probe {
            *state = State::Closed(VecDeque::new());
            (self.breaker.on_change)(Change::Closed);
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

    fn breaker(failures: u32) -> Breaker {
        Breaker::new(failures, WINDOW, |_| {})
    }

    fn fail(breaker: &Breaker, times: u32) {
        for _ in 0..times {
            breaker.admit().expect("closed").failed();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_sixth_failure_in_a_row_opens_and_one_probe_closes() {
        let breaker = breaker(6);
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
        let breaker = breaker(2);
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
    async fn every_change_is_told_once() {
        let told = std::sync::Arc::new(Mutex::new(Vec::new()));
        let hears = told.clone();
        let breaker = Breaker::new(1, WINDOW, move |change| hears.lock().unwrap().push(change.as_str()));
        fail(&breaker, 1);
        advance(WINDOW).await;
        let probe = breaker.admit().unwrap();
        assert!(probe.is_probe());
        probe.failed();
        advance(WINDOW).await;
        breaker.admit().unwrap().succeeded();
        assert!(!breaker.admit().unwrap().is_probe());
        assert_eq!(*told.lock().unwrap(), ["open", "half_open", "open", "half_open", "closed"]);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_spread_over_more_than_the_window_do_not_open() {
        let breaker = breaker(3);
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
