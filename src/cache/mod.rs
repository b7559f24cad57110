//! Decisions made before, by exact key.
//!
//! Owns: the key, what may enter, single flight, expiry.
//! Does not know: how a decision is made; it is handed in as a future.

mod key;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use moka::future::Cache;
use moka::policy::EvictionPolicy;

pub use key::{Key, KeyParts};

use crate::decision::{DecidedBy, Decision, Outcome};
use crate::tool::SideEffect;

#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub enabled: bool,
    /// Entries.
    pub capacity: u64,
    pub ttl: Duration,
    /// Least confidence of a decision that is stored.
    pub min_confidence: f32,
    /// Whether decisions for destructive tools are stored.
    pub destructive: bool,
}

/// How a decision was obtained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup {
    /// Stored before.
    Hit,
    /// Made now by this request; `stored` tells whether it entered.
    Made { stored: bool },
    /// Made now by another request with the same key, whose answer was shared.
    Joined,
}

/// Exact decision cache.
pub struct DecisionCache {
    entries: Cache<Key, Arc<Decision>>,
    settings: Settings,
}

/// What travels through moka's error channel: a decision that must not be stored, or the reason there is none.
enum NotStored<E> {
    Decision(Arc<Decision>),
    Failed(E),
}

impl DecisionCache {
    pub fn new(settings: Settings) -> Self {
        let entries = Cache::builder()
            .max_capacity(settings.capacity)
            .time_to_live(settings.ttl)
            // The default policy may refuse a new key at capacity; a decision just made should be found again.
            .eviction_policy(EvictionPolicy::lru())
            .build();
        Self { entries, settings }
    }

    pub fn enabled(&self) -> bool {
        self.settings.enabled
    }

    /// Returns the stored decision, or makes one with `make`. Requests with the same key that come meanwhile wait for
    /// the same run; if its caller leaves, one of them takes over. So it does when the result `is_own`: when it tells
    /// of the one request that made it, such as of its deadline, and not of those that waited.
    ///
    /// # Errors
    /// What `make` returns, shared by all who waited unless it `is_own`.
    pub async fn get_or_make<E: Clone + Send + Sync + 'static>(
        &self,
        key: Key,
        make: impl Future<Output = Result<Decision, E>>,
        is_own: impl Fn(Result<&Decision, &E>) -> bool,
    ) -> Result<(Arc<Decision>, Lookup), E> {
        let made = AtomicBool::new(false);
        // Pinned here, because one that was not needed at first may be needed after all.
        let mut run = pin!(async {
            made.store(true, Ordering::Relaxed);
            let decision = Arc::new(make.await.map_err(NotStored::Failed)?);
            if self.may_store(&decision) { Ok(decision) } else { Err(NotStored::Decision(decision)) }
        });
        loop {
            let result = self.entries.try_get_with(key, run.as_mut()).await;
            let made = made.load(Ordering::Relaxed);
            let not_stored = match result {
                Ok(decision) if made => return Ok((decision, Lookup::Made { stored: true })),
                Ok(decision) => return Ok((decision, Lookup::Hit)),
                Err(not_stored) => not_stored,
            };
            match &*not_stored {
                NotStored::Decision(decision) if made => {
                    return Ok((Arc::clone(decision), Lookup::Made { stored: false }));
                }
                NotStored::Decision(decision) if is_own(Ok(decision)) => {}
                NotStored::Decision(decision) => return Ok((Arc::clone(decision), Lookup::Joined)),
                NotStored::Failed(error) if !made && is_own(Err(error)) => {}
                NotStored::Failed(error) => return Err(error.clone()),
            }
        }
    }

    /// Confident, undegraded, and nothing that cannot be undone unless that is configured. A question is about this
    /// one conversation and a handoff about this one moment: neither is kept.
    fn may_store(&self, decision: &Decision) -> bool {
        // What stands in for a choice that failed is not worth keeping: the next time it may succeed.
        let confident =
            decision.decided_by != DecidedBy::Fallback && decision.confidence.get() >= self.settings.min_confidence;
        let lasting = match &decision.outcome {
            Outcome::Call { calls } => {
                self.settings.destructive || calls.iter().all(|call| call.side_effect != SideEffect::Destructive)
            }
            Outcome::NoTool { .. } => true,
            Outcome::Clarify(_) | Outcome::Handoff { .. } => false,
        };
        confident && lasting && decision.degraded.is_empty()
    }

    /// Forgets everything: what an operator wants after a bad answer.
    pub fn clear(&self) {
        self.entries.invalidate_all();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::decision::{DecidedBy, NoToolReason, Timings, TokenUse, Trace};
    use crate::text::{Language, normalise};
    use crate::types::{Confidence, DecisionId, IndexKind};

    fn cache() -> DecisionCache {
        let (ttl, min_confidence) = (Duration::from_secs(60), 0.8);
        DecisionCache::new(Settings { enabled: true, capacity: 10, ttl, min_confidence, destructive: false })
    }

    fn key(utterance: &str) -> Key {
        let query = &normalise(utterance).unwrap();
        Key::of(&KeyParts {
            tenant: "t",
            eligible: [1, 2],
            rules: "",
            rule: "",
            decider: "local",
            session: "{}",
            query,
            max_calls: 1,
        })
    }

    fn decision(confidence: f32) -> Decision {
        Decision {
            id: DecisionId::generate(),
            catalog_version: "1-a".into(),
            index: IndexKind::Exact,
            language: Language::En,
            outcome: Outcome::NoTool { reason: NoToolReason::NothingFits },
            decided_by: DecidedBy::Local,
            confidence: Confidence::new(confidence),
            degraded: BTreeSet::new(),
            candidates: Vec::new(),
            timings: Timings::new(),
            tokens: TokenUse::default(),
            trace: Trace::default(),
            trace_id: String::new(),
        }
    }

    async fn after(millis: u64, result: Result<Decision, &'static str>) -> Result<Decision, &'static str> {
        tokio::time::sleep(Duration::from_millis(millis)).await;
        result
    }

    /// The leader's and the follower's lookup.
    async fn two(
        first: Result<Decision, &'static str>,
        is_own: fn(Result<&Decision, &&'static str>) -> bool,
    ) -> [Result<Lookup, &'static str>; 2] {
        let cache = cache();
        let leader = cache.get_or_make(key("x"), after(20, first), is_own);
        let follower = cache.get_or_make(key("x"), after(20, Ok(decision(0.9))), is_own);
        let (leader, follower) = tokio::join!(leader, follower);
        [leader, follower].map(|result| result.map(|(_, lookup)| lookup))
    }

    #[tokio::test]
    async fn who_waited_is_not_told_of_another_ones_deadline() {
        let made = Lookup::Made { stored: true };
        assert_eq!(two(Err("late"), |result| result.is_err()).await, [Err("late"), Ok(made)]);
        let own = two(Ok(decision(0.1)), |result| result.is_ok_and(|made| made.confidence.get() < 0.5)).await;
        assert_eq!(own, [Ok(Lookup::Made { stored: false }), Ok(made)]);
    }

    #[tokio::test]
    async fn everything_else_is_shared() {
        assert_eq!(two(Err("down"), |_| false).await, [Err("down"), Err("down")]);
        assert_eq!(two(Ok(decision(0.1)), |_| false).await, [Ok(Lookup::Made { stored: false }), Ok(Lookup::Joined)]);
        assert_eq!(two(Ok(decision(0.9)), |_| false).await, [Ok(Lookup::Made { stored: true }), Ok(Lookup::Hit)]);
    }

    #[test]
    fn a_cut_utterance_is_not_its_beginning() {
        let whole = "x".repeat(crate::text::normalise::MAX_CHARS);
        assert_ne!(key(&whole), key(&format!("{whole}y")));
        assert_eq!(key("refund"), key(" refund\u{200b}"));
    }
}
