//! What one decision may spend: attempts, time, pauses between attempts.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

use crate::types::Deadline;

const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Silence of this length says something about an endpoint, however little time the caller has.
const PATIENT: Duration = Duration::from_secs(5);

/// Time for one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Allowed {
    pub time: Duration,
    /// With it the caller's time is up.
    pub ends_all: bool,
    /// Long enough to blame the endpoint for silence.
    pub patient: bool,
    /// Another endpoint can be asked after it.
    pub another: bool,
}

/// What one decision may still spend.
#[derive(Debug)]
pub(crate) struct Budget {
    pub deadline: Deadline,
    /// Limit of a single attempt, the deadline aside.
    timeout: Duration,
    left: u32,
    pub spent: u32,
    /// What happened meanwhile and should be told; constant texts, each once.
    pub notes: Vec<&'static str>,
}

impl Budget {
    pub fn new(deadline: Deadline, timeout: Duration, attempts: u32) -> Self {
        Self { deadline, timeout, left: attempts, spent: 0, notes: Vec::new() }
    }

    pub fn has_attempt(&self) -> bool {
        self.left > 0
    }

    pub fn note(&mut self, note: &'static str) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// What the next attempt may take: half of what is left where another endpoint can be asked instead.
    pub(super) fn take(&mut self, another: bool) -> Allowed {
        self.left = self.left.saturating_sub(1);
        self.spent += 1;
        let remaining = self.deadline.remaining();
        let share = if another { remaining / 2 } else { remaining };
        let time = self.timeout.min(share);
        Allowed {
            time,
            ends_all: !another && remaining < self.timeout,
            patient: time >= self.timeout.min(PATIENT),
            another,
        }
    }

    /// How long to wait before another attempt, or `None` when there is no attempt or no time left for one. The
    /// endpoint's own wish is kept, also when it is shorter than our pause.
    pub fn pause(&self, failures: u32, asked_for: Option<Duration>) -> Option<Duration> {
        let pause = asked_for.unwrap_or_else(|| backoff(failures, random_share()));
        (self.has_attempt() && pause < self.deadline.remaining()).then_some(pause)
    }
}

/// Doubles with each failure; the random part keeps callers that failed together from returning together.
fn backoff(failures: u32, share: f64) -> Duration {
    let doubled = FIRST_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(10));
    doubled.min(LONGEST_PAUSE).mul_f64(0.5 + share.clamp(0.0, 1.0) / 2.0)
}

fn random_share() -> f64 {
    f64::from(u32::try_from(RandomState::new().build_hasher().finish() >> 32).unwrap_or(0)) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soon() -> Deadline {
        Deadline::after(Duration::from_secs(1))
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_fits_the_attempts_and_the_deadline() {
        let mut budget = Budget::new(soon(), Duration::from_secs(20), 2);
        let all = Allowed { time: Duration::from_secs(1), ends_all: true, patient: false, another: false };
        assert_eq!(budget.take(false), all);
        assert_eq!(budget.pause(1, Some(Duration::from_millis(300))), Some(Duration::from_millis(300)));
        assert_eq!(budget.pause(1, Some(Duration::from_secs(2))), None, "does not fit the deadline");
        assert_eq!(budget.pause(1, Some(Duration::ZERO)), Some(Duration::ZERO));
        let half = Allowed { time: Duration::from_millis(500), ends_all: false, patient: false, another: true };
        assert_eq!(budget.take(true), half);
        assert_eq!((budget.pause(1, None), budget.spent), (None, 2));
    }

    #[test]
    fn pauses_double_up_to_a_limit() {
        let of = |failures| backoff(failures, 1.0).as_millis();
        assert_eq!([of(1), of(2), of(3), of(9), of(u32::MAX)], [200, 400, 800, 5000, 5000]);
        assert_eq!(backoff(1, 0.0).as_millis(), 100);
        assert!((0.0..=1.0).contains(&random_share()));
    }
}
