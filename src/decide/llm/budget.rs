//! Limits in number and time: attempts of one decision, places at the endpoint, pauses between attempts.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit, TryAcquireError};

use super::{LlmError, metrics};
use crate::types::Deadline;

const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What one decision may still spend.
#[derive(Debug)]
pub(super) struct Budget {
    pub deadline: Deadline,
    /// Limit of a single attempt, the deadline aside.
    timeout: Duration,
    left: u32,
    pub spent: u32,
}

impl Budget {
    pub fn new(deadline: Deadline, timeout: Duration, attempts: u32) -> Self {
        Self { deadline, timeout, left: attempts, spent: 0 }
    }

    pub fn has_attempt(&self) -> bool {
        self.left > 0
    }

    /// Time allowed for the next attempt, and whether that is all it would get anyway.
    pub fn take(&mut self) -> (Duration, bool) {
        self.left = self.left.saturating_sub(1);
        self.spent += 1;
        let remaining = self.deadline.remaining();
        (self.timeout.min(remaining), self.timeout <= remaining)
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

/// Places at the endpoint with a bounded queue before them.
#[derive(Debug)]
pub(super) struct Limit {
    places: Semaphore,
    waiting: AtomicUsize,
    queue: usize,
}

/// Takes its place in the count of waiting requests back, however the wait ends.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Limit {
    pub fn new(concurrency: usize, queue: usize) -> Self {
        let places = concurrency.clamp(1, Semaphore::MAX_PERMITS);
        Self { places: Semaphore::new(places), waiting: AtomicUsize::new(0), queue }
    }

    /// A place, held until the permit is dropped. Cancel safe.
    ///
    /// # Errors
    /// [`LlmError::Overloaded`] at once when the queue is full, [`LlmError::Deadline`] when no place came in time.
    pub async fn enter(&self, deadline: Deadline) -> Result<SemaphorePermit<'_>, LlmError> {
        match self.places.try_acquire() {
            Ok(permit) => return Ok(permit),
            Err(TryAcquireError::NoPermits) => {}
            Err(TryAcquireError::Closed) => return Err(LlmError::Unavailable("stopped".into())),
        }
        let queue_up = |waiting: usize| (waiting < self.queue).then_some(waiting + 1);
        if self.waiting.fetch_update(Ordering::AcqRel, Ordering::Acquire, queue_up).is_err() {
            metrics::overloaded();
            return Err(LlmError::Overloaded);
        }
        let _waiting = Waiting(&self.waiting);
        let permit = tokio::time::timeout_at(deadline.instant(), self.places.acquire()).await;
        permit.map_err(|_| LlmError::Deadline)?.map_err(|_| LlmError::Unavailable("stopped".into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soon() -> Deadline {
        Deadline::after(Duration::from_secs(1))
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_queue_is_an_answer_and_a_place_that_frees_is_taken() {
        let limit = Limit::new(1, 1);
        let held = limit.enter(soon()).await.unwrap();
        let waiting = limit.enter(soon());
        tokio::pin!(waiting);
        assert!(futures_pending(&mut waiting).await);
        assert!(matches!(limit.enter(soon()).await, Err(LlmError::Overloaded)));
        drop(held);
        assert!(waiting.await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_ends_with_the_deadline_and_frees_the_queue() {
        let limit = Limit::new(1, 1);
        let _held = limit.enter(soon()).await.unwrap();
        for _ in 0..3 {
            assert!(matches!(limit.enter(soon()).await, Err(LlmError::Deadline)));
        }
        drop(limit.enter(soon()));
        assert_eq!(limit.waiting.load(Ordering::Acquire), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_fits_the_attempts_and_the_deadline() {
        let mut budget = Budget::new(soon(), Duration::from_secs(20), 2);
        assert_eq!(budget.take(), (Duration::from_secs(1), false));
        assert_eq!(budget.pause(1, Some(Duration::from_millis(300))), Some(Duration::from_millis(300)));
        assert_eq!(budget.pause(1, Some(Duration::from_secs(2))), None, "does not fit the deadline");
        assert_eq!(budget.pause(1, Some(Duration::ZERO)), Some(Duration::ZERO));
        budget.take();
        assert_eq!((budget.pause(1, None), budget.spent), (None, 2));
    }

    #[test]
    fn pauses_double_up_to_a_limit() {
        let of = |failures| backoff(failures, 1.0).as_millis();
        assert_eq!([of(1), of(2), of(3), of(9), of(u32::MAX)], [200, 400, 800, 5000, 5000]);
        assert_eq!(backoff(1, 0.0).as_millis(), 100);
        assert!((0.0..=1.0).contains(&random_share()));
    }

    /// Polls once.
    async fn futures_pending<F: Future + Unpin>(future: &mut F) -> bool {
        std::future::poll_fn(|cx| std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(cx).is_pending())).await
    }
}
