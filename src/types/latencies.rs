//! How long the last good attempts took, and what their slow end is.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Good attempts looked back at.
const MOST: usize = 100;
/// With fewer of them the slow end is not known.
const LEAST: usize = 20;

/// Times of the last good attempts.
#[derive(Debug, Default)]
pub(crate) struct Latencies(Mutex<VecDeque<Duration>>);

impl Latencies {
    pub fn add(&self, took: Duration) {
        let mut times = self.lock();
        if times.len() == MOST {
            times.pop_front();
        }
        times.push_back(took);
    }

    /// The time within which `percent` of 100 good attempts ended, `percent` from 1 to 100; `None` before enough of
    /// them were seen.
    pub fn percentile(&self, percent: usize) -> Option<Duration> {
        let mut times: Vec<Duration> = self.lock().iter().copied().collect();
        let rank = (times.len() * percent.clamp(1, 100)).div_ceil(100);
        (times.len() >= LEAST).then(|| *times.select_nth_unstable(rank - 1).1)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Duration>> {
        // Only a statistic: times that a panic elsewhere left half written do no harm.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slow_end_is_known_after_twenty_and_forgets_what_is_long_ago() {
        let latencies = Latencies::default();
        let add = |times: std::ops::RangeInclusive<u64>| times.for_each(|ms| latencies.add(Duration::from_millis(ms)));
        let of = |percent| latencies.percentile(percent).map(|time| time.as_millis());
        add(1..=19);
        assert_eq!(of(95), None);
        add(20..=20);
        assert_eq!([of(95), of(99), of(0)], [Some(19), Some(20), Some(1)]);
        add(21..=100);
        assert_eq!([of(95), of(99), of(1_000)], [Some(95), Some(99), Some(100)]);
        add(1_001..=1_100);
        assert_eq!(of(95), Some(1_095));
    }
}
