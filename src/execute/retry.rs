//! When a call is tried again, and after which pause.
//!
//! Owns: the rules of repeating: only where it does no harm, only what may pass, within the deadline.
//! Does not know: how an attempt is made.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

use super::attempt::{Attempt, Loss, Unsent};
use crate::types::Deadline;

const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// A tool that is rate limiting and does not say for how long is left alone for this time.
const RATE_PAUSE: Duration = Duration::from_secs(3);

/// What one call may still do after an attempt went wrong.
#[derive(Debug)]
pub(super) struct Plan {
    left: u32,
    failures: u32,
    was_rate_limited: bool,
    deadline: Deadline,
}

impl Plan {
    /// `further`: attempts after the first, 0 where repeating could do harm.
    pub fn new(further: u32, deadline: Deadline) -> Self {
        Self { left: further, failures: 0, was_rate_limited: false, deadline }
    }

    /// How long to wait before the next attempt; `None` when there is none.
    pub fn pause(&mut self, attempt: &Attempt) -> Option<Duration> {
        self.left = self.left.checked_sub(1)?;
        self.failures += 1;
        let pause = match attempt {
            Attempt::Answered(answer) => {
                let wish = answer.answer.retry_after_ms.map(Duration::from_millis);
                match answer.answer.status {
                    Some(429) if !self.was_rate_limited => {
                        self.was_rate_limited = true;
                        wish.unwrap_or_else(|| RATE_PAUSE + FIRST_PAUSE.mul_f64(random_share()))
                    }
                    Some(502..=504) => wish.unwrap_or_default().max(backoff(self.failures, random_share())),
                    _ => return None,
                }
            }
            Attempt::Unsent(Unsent::Connect) | Attempt::Lost(Loss::Broken) => backoff(self.failures, random_share()),
            // Whoever waited as long as the tool may take has waited long enough.
            Attempt::Unsent(Unsent::Private | Unsent::NoTime)
            | Attempt::Lost(Loss::Timeout { .. } | Loss::Unreadable) => return None,
        };
        (pause < self.deadline.remaining()).then_some(pause)
    }
}

/// Doubles with each failure; the random part keeps callers that failed together from returning together.
fn backoff(failures: u32, share: f64) -> Duration {
    let doubled = FIRST_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(10));
    doubled.min(LONGEST_PAUSE).mul_f64(0.5 + share.clamp(0.0, 1.0) / 2.0)
}

/// In `[0, 1)`.
fn random_share() -> f64 {
    let bits = RandomState::new().build_hasher().finish() >> 11;
    bits as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::super::attempt::Answer;
    use super::*;
    use crate::types::{Body, ToolAnswer};

    fn status(status: u16, retry_after_ms: Option<u64>) -> Attempt {
        let answer = ToolAnswer { status: Some(status), body: Body::Empty, failed: false, cut: false, retry_after_ms };
        Attempt::Answered(Answer { answer, unwell: status >= 500 })
    }

    fn plan(further: u32) -> Plan {
        Plan::new(further, Deadline::after(Duration::from_secs(10)))
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_may_pass_is_tried_again() {
        for code in [200, 301, 400, 401, 403, 404, 409, 422, 500, 501] {
            assert_eq!(plan(3).pause(&status(code, None)), None, "{code}");
        }
        for code in [502, 503, 504] {
            let pause = plan(3).pause(&status(code, None)).unwrap();
            assert!((100..=200).contains(&pause.as_millis()), "{code}: {pause:?}");
        }
        assert!(plan(1).pause(&Attempt::Unsent(Unsent::Connect)).is_some());
        assert!(plan(1).pause(&Attempt::Lost(Loss::Broken)).is_some());
        let timeout = Loss::Timeout { after: Duration::from_secs(1), cut: false };
        assert_eq!(plan(1).pause(&Attempt::Lost(timeout)), None);
        assert_eq!(plan(0).pause(&status(503, None)), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_rate_limit_is_waited_for_once() {
        let mut plan = plan(3);
        let pause = plan.pause(&status(429, None)).unwrap();
        assert!((3_000..=3_200).contains(&pause.as_millis()), "{pause:?}");
        assert_eq!(plan.pause(&status(429, None)), None);
    }

    #[tokio::test(start_paused = true)]
    async fn wishes_are_kept_within_the_deadline() {
        assert_eq!(plan(1).pause(&status(429, Some(1_500))), Some(Duration::from_millis(1_500)));
        assert_eq!(plan(1).pause(&status(503, Some(4_000))), Some(Duration::from_secs(4)));
        assert_eq!(plan(1).pause(&status(429, Some(10_000))), None);
        assert_eq!(plan(1).pause(&status(503, Some(60_000))), None);
        let mut plan = plan(2);
        assert!(plan.pause(&status(503, None)).is_some() && plan.pause(&status(503, None)).is_some());
        assert_eq!(plan.pause(&status(503, None)), None, "attempts are used up");
    }

    #[test]
    fn pauses_grow_and_end() {
        assert_eq!(backoff(1, 0.0), Duration::from_millis(100));
        assert_eq!(backoff(2, 1.0), Duration::from_millis(400));
        assert_eq!(backoff(1_000, 1.0), LONGEST_PAUSE);
        assert!((0.0..1.0).contains(&random_share()));
    }
}
