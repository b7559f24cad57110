//! What is remembered of each tool: its failures and its times.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::attempt::Attempt;
use super::{Settings, metrics};
use crate::types::ToolId;
use crate::types::breaker::{Admission, Breaker, Change};
use crate::types::latencies::Latencies;

/// Tools that are remembered. Beyond it those are forgotten that nobody calls and that are not closed off.
const MAX_TOOLS: usize = 20_000;
/// Of 100 good calls, the one that takes the longest.
const SLOWEST: usize = 99;
/// Timeouts are stated in steps of this.
const STEP_MS: u128 = 100;

pub(super) struct Line {
    pub breaker: Breaker,
    latencies: Latencies,
}

impl Line {
    fn new(tool: &ToolId, settings: &Settings) -> Self {
        let tool = tool.clone();
        let breaker = Breaker::new(settings.breaker_failures, settings.breaker_window, move |change| {
            metrics::breaker(change);
            match change {
                Change::Open => tracing::warn!(%tool, "tool breaker opened"),
                Change::HalfOpen => {}
                Change::Closed => tracing::info!(%tool, "tool breaker closed"),
            }
        });
        Self { breaker, latencies: Latencies::default() }
    }

    /// Tells the breaker how a call ended.
    pub fn settle(admission: Admission<'_>, attempt: &Attempt) {
        match attempt.shows_down() {
            Some(true) => admission.failed(),
            Some(false) => admission.succeeded(),
            None => drop(admission),
        }
    }

    /// Keeps the time of an attempt that was answered, or that got all the time there is: with many of those the tool
    /// is given longer.
    pub fn took(&self, attempt: &Attempt, took: Duration) {
        match attempt.label() {
            "ok" | "refused" | "tool_error" | "timeout" => self.latencies.add(took),
            _ => {}
        }
    }

    /// A timeout made of the tool's own times; `None` before they are known.
    pub fn timeout(&self) -> Option<Duration> {
        self.latencies.percentile(SLOWEST).map(proposed_timeout)
    }
}

/// How long a tool may take of which 99 of 100 calls end within `p99`: half as long again, rounded up to 100 ms.
pub fn proposed_timeout(p99: Duration) -> Duration {
    let ms = (p99.as_micros() * 3).div_ceil(2 * 1000 * STEP_MS).max(1) * STEP_MS;
    Duration::from_millis(u64::try_from(ms).unwrap_or(u64::MAX))
}

#[derive(Default)]
pub(super) struct Lines(Mutex<BTreeMap<ToolId, Arc<Line>>>);

impl Lines {
    pub fn of(&self, tool: &ToolId, settings: &Settings) -> Arc<Line> {
        // Nothing is left half done by a panic: lines are made before they are inserted.
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = lines.get(tool) {
            return line.clone();
        }
        if lines.len() >= MAX_TOOLS {
            lines.retain(|_, line| Arc::strong_count(line) > 1 || line.breaker.refuses());
        }
        let line = Arc::new(Line::new(tool, settings));
        lines.insert(tool.clone(), line.clone());
        line
    }

    /// `None` for a tool that was never called.
    pub fn get(&self, tool: &ToolId) -> Option<Arc<Line>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(tool).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_half_as_long_again_in_steps_of_100_ms() {
        let of = |ms| proposed_timeout(Duration::from_millis(ms)).as_millis();
        assert_eq!([of(800), of(2_000), of(0), of(1), of(67), of(867)], [1_200, 3_000, 100, 100, 200, 1_400]);
        assert_eq!(proposed_timeout(Duration::from_micros(800_001)).as_millis(), 1_300);
    }
}
