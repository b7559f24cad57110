//! What one tenant may take of the LLM per minute.
//!
//! Owns: the windows, their bounded memory, what a refusal says.
//! Does not know: who a tenant is, or what rules, cache and local decider answer without the LLM.
//!
//! A window is fixed: it begins with a tenant's first call after the last window, and a minute later everything is free
//! again. A decision that asks the LLM is one call, whatever it re-asks; its tokens count when it ends, so decisions under
//! way at the same time may go beyond that limit together.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::metrics::{self, QuotaKind};
use crate::decision::TokenUse;

const WINDOW: Duration = Duration::from_secs(60);
/// Tenants remembered at a time. Whoever can be more tenants than this in a minute has as many quotas anyway; the one
/// whose window is the oldest is forgotten, never counted against another.
const MOST_TENANTS: usize = 10_000;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// Of a tenant that is not named below.
    pub default: Limits,
    pub tenants: BTreeMap<String, Limits>,
}

/// Per minute; 0: no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Decisions that ask the LLM.
    pub calls: u32,
    /// Prompt and answer tokens.
    pub tokens: u32,
}

impl Limits {
    fn is_off(self) -> bool {
        self == Self::default()
    }
}

/// Tenants are whatever callers are called: a digest has a fixed size.
type Tenant = [u8; 32];

#[derive(Debug)]
pub(super) struct Quota {
    settings: Settings,
    windows: Mutex<Windows>,
}

#[derive(Debug, Default)]
struct Windows {
    used: HashMap<Tenant, Window>,
    /// The same tenants, oldest window first.
    order: VecDeque<(Instant, Tenant)>,
}

#[derive(Debug)]
struct Window {
    began: Instant,
    calls: u32,
    tokens: u32,
}

/// Leave to ask, and the account its tokens go to when it is dropped.
#[derive(Debug)]
#[must_use = "tokens are counted through it"]
pub(super) struct Charge<'a> {
    /// `None` when nothing is limited.
    account: Option<(&'a Quota, Tenant)>,
    tokens: u32,
}

/// A quota that is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refusal {
    kind: QuotaKind,
    free_in: Duration,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.free_in.as_secs() + u64::from(self.free_in.subsec_nanos() > 0);
        write!(
            f,
            "the tenant's quota of LLM {} per minute is used up; it is free again in {seconds} s",
            self.kind.as_str()
        )
    }
}

impl Quota {
    pub fn new(settings: Settings) -> Self {
        Self { settings, windows: Mutex::default() }
    }

    /// Counts one call of `tenant`.
    ///
    /// # Errors
    /// [`Refusal`] when a limit is reached; it counts nothing.
    pub fn admit(&self, tenant: &str) -> Result<Charge<'_>, Refusal> {
        let limits = self.settings.tenants.get(tenant).copied().unwrap_or(self.settings.default);
        if limits.is_off() {
            return Ok(Charge { account: None, tokens: 0 });
        }
        let tenant: Tenant = Sha256::digest(tenant.as_bytes()).into();
        let now = Instant::now();
        let mut windows = self.lock();
        let window = windows.of(tenant, now);
        let reached = |used: u32, limit: u32| limit > 0 && used >= limit;
        let kind = match (reached(window.calls, limits.calls), reached(window.tokens, limits.tokens)) {
            (true, _) => Some(QuotaKind::Calls),
            (false, true) => Some(QuotaKind::Tokens),
            (false, false) => None,
        };
        if let Some(kind) = kind {
            metrics::quota_refusal(kind);
            return Err(Refusal { kind, free_in: WINDOW.saturating_sub(now.duration_since(window.began)) });
        }
        window.calls = window.calls.saturating_add(1);
        Ok(Charge { account: Some((self, tenant)), tokens: 0 })
    }

    fn lock(&self) -> MutexGuard<'_, Windows> {
        // Numbers only; one that a panic elsewhere left out is one call too few.
        self.windows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Windows {
    /// The tenant's window at `now`, begun if there is none.
    fn of(&mut self, tenant: Tenant, now: Instant) -> &mut Window {
        while self.order.front().is_some_and(|(began, _)| now.duration_since(*began) >= WINDOW) {
            self.forget_oldest();
        }
        if !self.used.contains_key(&tenant) {
            if self.used.len() >= MOST_TENANTS {
                self.forget_oldest();
            }
            self.order.push_back((now, tenant));
        }
        self.used.entry(tenant).or_insert(Window { began: now, calls: 0, tokens: 0 })
    }

    fn forget_oldest(&mut self) {
        if let Some((_, tenant)) = self.order.pop_front() {
            self.used.remove(&tenant);
        }
    }
}

impl Charge<'_> {
    pub fn tokens(&mut self, usage: TokenUse) {
        self.tokens = self.tokens.saturating_add(usage.prompt).saturating_add(usage.completion);
    }
}

impl Drop for Charge<'_> {
    fn drop(&mut self) {
        let Some((quota, tenant)) = self.account.filter(|_| self.tokens > 0) else { return };
        let mut windows = quota.lock();
        let window = windows.of(tenant, Instant::now());
        window.tokens = window.tokens.saturating_add(self.tokens);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn quota(calls: u32, tokens: u32) -> Quota {
        let tenants = [("vip".to_owned(), Limits { calls: 3, tokens: 0 }), ("大客户".to_owned(), Limits::default())];
        Quota::new(Settings { default: Limits { calls, tokens }, tenants: tenants.into() })
    }

    /// Calls until the first refusal, at most ten.
    fn admitted(quota: &Quota, tenant: &str) -> usize {
        (0..10).take_while(|_| quota.admit(tenant).is_ok()).count()
    }

    #[tokio::test(start_paused = true)]
    async fn calls_are_limited_per_tenant_and_free_after_the_window() {
        let quota = quota(2, 0);
        assert_eq!([admitted(&quota, "a"), admitted(&quota, "b")], [2, 2]);
        assert_eq!([admitted(&quota, "vip"), admitted(&quota, "大客户")], [3, 10], "the map overrides");
        advance(Duration::from_millis(17_500)).await;
        let refusal = quota.admit("a").unwrap_err();
        assert_eq!(
            refusal.to_string(),
            "the tenant's quota of LLM calls per minute is used up; it is free again in 43 s"
        );
        advance(refusal.free_in - Duration::from_millis(1)).await;
        assert!(quota.admit("a").is_err(), "a refusal begins no window");
        advance(Duration::from_millis(1)).await;
        assert_eq!(admitted(&quota, "a"), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_count_when_the_decision_ends_however_it_ends() {
        let quota = quota(0, 100);
        let mut first = quota.admit("a").unwrap();
        first.tokens(TokenUse { prompt: 90, completion: 9 });
        drop(first);
        let mut second = quota.admit("a").expect("99 of 100 are used");
        second.tokens(TokenUse { prompt: u32::MAX, completion: u32::MAX });
        drop(second);
        assert_eq!(quota.admit("a").unwrap_err().kind, QuotaKind::Tokens);
        assert!(quota.admit("b").is_ok());
        advance(WINDOW).await;
        assert!(quota.admit("a").is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_bounded_and_idle_tenants_are_forgotten() {
        let quota = quota(1, 0);
        let admit = |number: usize| quota.admit(&format!("tenant {number} {}", "x".repeat(1_000))).is_ok();
        assert!((0..=MOST_TENANTS).all(admit));
        let sizes = || {
            let windows = quota.lock();
            (windows.used.len(), windows.order.len())
        };
        assert_eq!(sizes(), (MOST_TENANTS, MOST_TENANTS));
        assert!(admit(0) && !admit(MOST_TENANTS), "the oldest is forgotten, the others are not");
        advance(WINDOW).await;
        assert!(admit(0));
        assert_eq!(sizes(), (1, 1));
    }
}
