//! Places at an endpoint with a bounded queue before them.
//!
//! Owns: who has a place, who waits for one, who is refused.
//! Does not know: the endpoint's own rate, or what is done with a place.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Semaphore, SemaphorePermit, TryAcquireError};

use super::super::LlmError;
use super::super::metrics::{self, Full, Number};
use crate::types::Deadline;

#[derive(Debug)]
pub(super) struct Limit {
    endpoint: Number,
    places: Semaphore,
    waiting: AtomicUsize,
    queue: usize,
}

/// Takes its place in the count of waiting requests back, however the wait ends.
pub(super) struct Waiting<'a>(pub &'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Limit {
    pub fn new(endpoint: Number, concurrency: usize, queue: usize) -> Self {
        let places = concurrency.clamp(1, Semaphore::MAX_PERMITS);
        Self { endpoint, places: Semaphore::new(places), waiting: AtomicUsize::new(0), queue }
    }

    /// A place if one is free and nobody waits for it.
    pub fn try_enter(&self) -> Option<SemaphorePermit<'_>> {
        self.places.try_acquire().ok()
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
            metrics::overloaded(self.endpoint, Full::Queue);
            return Err(LlmError::Overloaded);
        }
        let _waiting = Waiting(&self.waiting);
        let permit = tokio::time::timeout_at(deadline.instant(), self.places.acquire()).await;
        permit.map_err(|_| LlmError::Deadline)?.map_err(|_| LlmError::Unavailable("stopped".into()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn soon() -> Deadline {
        Deadline::after(Duration::from_secs(1))
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_queue_is_an_answer_and_a_place_that_frees_is_taken() {
        let limit = Limit::new(Number::of(0), 1, 1);
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
        let limit = Limit::new(Number::of(0), 1, 1);
        let _held = limit.enter(soon()).await.unwrap();
        for _ in 0..3 {
            assert!(matches!(limit.enter(soon()).await, Err(LlmError::Deadline)));
        }
        drop(limit.enter(soon()));
        assert_eq!(limit.waiting.load(Ordering::Acquire), 0);
    }

    /// Polls once.
    async fn futures_pending<F: Future + Unpin>(future: &mut F) -> bool {
        std::future::poll_fn(|cx| std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(cx).is_pending())).await
    }
}
