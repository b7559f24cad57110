//! Requests per minute to one endpoint: a token bucket.
//!
//! Owns: the bucket, who waits for it and in which order.
//! Does not know: places and their queue; who waits here holds a place, so at most as many wait as there are places.
//!
//! The bucket holds the requests of six seconds, at least one: what an idle minute saved is not spent in one burst, and
//! no minute sees more than a tenth beyond the limit. It is kept as the time at which it will be full again (the
//! "virtual scheduling" form of the generic cell rate algorithm, ITU-T I.371).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::super::LlmError;
use super::super::metrics::{self, Full, Number};
use super::limit::Waiting;
use crate::types::Deadline;

const MINUTE: Duration = Duration::from_secs(60);
/// Part of a minute's requests that may come at once.
const BURST: u32 = 10;

#[derive(Debug)]
pub(crate) struct Rate {
    endpoint: Number,
    /// Time between two requests in the long run.
    interval: Duration,
    /// How far ahead of its time a request may come.
    slack: Duration,
    full_at: Mutex<Instant>,
    /// Held by the one who is next. Fair: who came first goes first.
    turn: tokio::sync::Mutex<()>,
    waiting: AtomicUsize,
}

impl Rate {
    /// `None` without a limit.
    pub fn new(endpoint: Number, per_minute: u32) -> Option<Self> {
        let interval = MINUTE.checked_div(per_minute)?;
        let slack = interval * ((per_minute / BURST).max(1) - 1);
        let (full_at, turn) = (Mutex::new(Instant::now()), tokio::sync::Mutex::new(()));
        Some(Self { endpoint, interval, slack, full_at, turn, waiting: AtomicUsize::new(0) })
    }

    /// Takes one request out of the bucket without waiting, unless others wait for it.
    pub fn try_take(&self) -> bool {
        self.turn.try_lock().is_ok() && self.take().is_ok()
    }

    /// Waits until one more request may be sent. Cancel safe: who leaves has taken nothing.
    ///
    /// # Errors
    /// [`LlmError::Overloaded`] at once when the turn of this request would come after `deadline`.
    pub async fn wait(&self, deadline: Deadline) -> Result<(), LlmError> {
        if self.try_take() {
            return Ok(());
        }
        let ahead = self.waiting.fetch_add(1, Ordering::AcqRel);
        let ahead = u32::try_from(ahead).unwrap_or(u32::MAX);
        let _waiting = Waiting(&self.waiting);
        let overloaded = || {
            metrics::overloaded(self.endpoint, Full::Rate);
            LlmError::Overloaded
        };
        let next = self.lock().checked_duration_since(Instant::now() + self.slack).unwrap_or_default();
        if next.saturating_add(self.interval.saturating_mul(ahead)) >= deadline.remaining() {
            return Err(overloaded());
        }
        metrics::rate_wait(self.endpoint);
        let turn = async {
            let _turn = self.turn.lock().await;
            while let Err(wait) = self.take() {
                sleep(wait).await;
            }
        };
        timeout_at(deadline.instant(), turn).await.map_err(|_| overloaded())
    }

    /// # Errors
    /// How long until the bucket holds a request again.
    fn take(&self) -> Result<(), Duration> {
        let mut full_at = self.lock();
        let now = Instant::now();
        let early = full_at.saturating_duration_since(now);
        if early > self.slack {
            return Err(early - self.slack);
        }
        *full_at = now + early + self.interval;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Instant> {
        // Changed by a single assignment, so a panic elsewhere leaves nothing half done.
        self.full_at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::task::JoinSet;

    use super::*;

    fn rate(per_minute: u32) -> Arc<Rate> {
        Arc::new(Rate::new(Number::of(0), per_minute).unwrap())
    }

    fn within(seconds: u64) -> Deadline {
        Deadline::after(Duration::from_secs(seconds))
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_passes_and_then_one_each_interval() {
        assert!(Rate::new(Number::of(0), 0).is_none());
        let rate = rate(60);
        let started = Instant::now();
        let mut passed = Vec::new();
        for _ in 0..9 {
            rate.wait(within(60)).await.unwrap();
            passed.push(started.elapsed().as_secs());
        }
        assert_eq!(passed, [0, 0, 0, 0, 0, 0, 1, 2, 3]);
        // An idle hour saves no more than the burst.
        tokio::time::advance(Duration::from_secs(3_600)).await;
        assert_eq!((0..10).filter(|_| rate.try_take()).count(), 6);
    }

    #[tokio::test(start_paused = true)]
    async fn who_would_be_too_late_is_told_at_once_and_the_others_go_in_order() {
        let rate = rate(6);
        let started = Instant::now();
        let mut waiting = JoinSet::new();
        for number in 0..6 {
            let rate = Arc::clone(&rate);
            waiting.spawn(async move { (number, rate.wait(within(35)).await.is_ok(), started.elapsed().as_secs()) });
        }
        let mut ended = waiting.join_all().await;
        ended.sort_unstable();
        let expected = [(0, true, 0), (1, true, 10), (2, true, 20), (3, true, 30), (4, false, 0), (5, false, 0)];
        assert_eq!(ended, expected);
        assert_eq!(rate.waiting.load(Ordering::Acquire), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn who_leaves_has_taken_nothing() {
        let rate = rate(6);
        let started = Instant::now();
        rate.wait(within(60)).await.unwrap();
        let mut left = JoinSet::new();
        for _ in 0..3 {
            let rate = Arc::clone(&rate);
            left.spawn(async move { rate.wait(within(60)).await });
        }
        tokio::task::yield_now().await;
        left.shutdown().await;
        assert_eq!(rate.waiting.load(Ordering::Acquire), 0);
        rate.wait(within(60)).await.unwrap();
        assert_eq!(started.elapsed().as_secs(), 10, "nobody is ahead any more");
    }
}
