//! Time of whole requests, one at a time.

use std::time::Duration;

use serde::Serialize;

use super::interval::percentile;

/// Nearest-rank percentiles in milliseconds; `None` where nothing was measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Latency {
    pub p50: Option<f64>,
    pub p95: Option<f64>,
    pub p99: Option<f64>,
}

impl Latency {
    pub fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let at = |percent| percentile(&times, percent).map(|time| (time.as_secs_f64() * 1e6).round() / 1e3);
        Self { p50: at(50.0), p95: at(95.0), p99: at(99.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_were_measured() {
        let times = (1..=200u64).rev().map(Duration::from_millis).collect();
        assert_eq!(Latency::of(times), Latency { p50: Some(100.0), p95: Some(190.0), p99: Some(198.0) });
        assert_eq!(Latency::of(Vec::new()), Latency::default());
    }
}
