//! One point in time by which a request must be answered; every stage gets it or a share of it.

use std::time::Duration;

use tokio::time::Instant;

/// When the answer is due. Copied along the pipeline; a stage may shorten it, never extend it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Instant);

impl Deadline {
    pub fn after(budget: Duration) -> Self {
        Self(Instant::now() + budget)
    }

    /// The earlier of this deadline and `budget` from now.
    pub fn capped(self, budget: Duration) -> Self {
        Self(self.0.min(Instant::now() + budget))
    }

    pub fn instant(self) -> Instant {
        self.0
    }

    /// Time left, zero when it has passed.
    pub fn remaining(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    pub fn has_passed(self) -> bool {
        self.remaining().is_zero()
    }
}
