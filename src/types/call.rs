//! One guarded call: its name, its states, and the clock its times are read from.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// Identifies one guarded call. UUID version 7: ordered by time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(uuid::Uuid);

impl CallId {
    pub fn generate() -> Self {
        Self(uuid::Uuid::now_v7())
    }

    /// The inverse of `Display`; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("c_").filter(|digits| digits.len() == 32)?;
        uuid::Uuid::try_parse(digits).ok().map(Self)
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c_{}", self.0.simple())
    }
}

/// Where a guarded call stands. `proposed → previewed → confirmed → dispatched → succeeded | failed | effect_unknown`;
/// before `dispatched` it may also become `expired` or `cancelled`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallState {
    Proposed,
    /// Its preview was shown; consent is waited for.
    Previewed,
    /// Consent was given; nothing has been sent.
    Confirmed,
    /// Leave to run was given: from here on the effect may have happened.
    Dispatched,
    Succeeded,
    Failed,
    /// It was sent and nobody knows how it ended.
    EffectUnknown,
    Expired,
    Cancelled,
}

impl CallState {
    pub const ALL: [Self; 9] = [
        Self::Proposed,
        Self::Previewed,
        Self::Confirmed,
        Self::Dispatched,
        Self::Succeeded,
        Self::Failed,
        Self::EffectUnknown,
        Self::Expired,
        Self::Cancelled,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Proposed => "proposed",
            Self::Previewed => "previewed",
            Self::Confirmed => "confirmed",
            Self::Dispatched => "dispatched",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::EffectUnknown => "effect_unknown",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }
}

/// Milliseconds since 1970, as records keep times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnixMs(pub i64);

impl UnixMs {
    #[must_use]
    pub fn plus(self, time: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(time.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl From<SystemTime> for UnixMs {
    fn from(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}

/// Where times of records come from.
#[derive(Debug, Clone, Copy)]
pub enum Clock {
    /// The wall clock: the same for every process that shares a store.
    System,
    /// Runs with tokio's clock from a fixed moment on, so that a test that pauses time also moves records.
    Tokio { from: UnixMs, since: Instant },
}

impl Clock {
    /// See [`Clock::Tokio`].
    pub fn tokio() -> Self {
        Self::Tokio { from: SystemTime::now().into(), since: Instant::now() }
    }

    pub fn now(&self) -> UnixMs {
        match self {
            Self::System => SystemTime::now().into(),
            Self::Tokio { from, since } => from.plus(since.elapsed()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        let id = CallId::generate();
        assert_eq!(CallId::parse(&id.to_string()), Some(id));
        for bad in ["", "c_", "d_0192f0c3", "c_zz", "c_退款", &id.to_string()[..30]] {
            assert_eq!(CallId::parse(bad), None, "{bad}");
        }
        for state in CallState::ALL {
            assert_eq!(CallState::parse(state.as_str()), Some(state));
        }
    }
}
