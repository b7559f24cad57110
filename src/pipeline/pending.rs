//! Questions that wait for an answer.

use std::time::Duration;

use moka::sync::Cache;
use serde_json::{Map, Value};

use crate::types::{DecisionId, ToolId};

/// How long a question may stay open, and what all open ones may take.
const OPEN_FOR: Duration = Duration::from_secs(30 * 60);
const MOST_BYTES: u64 = 64 * 1024 * 1024;
/// What a question takes besides its arguments.
const OWN_BYTES: usize = 512;

/// A call that lacks values.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Pending {
    /// Only the same caller may bring the handle back.
    pub tenant: String,
    pub session_id: String,
    pub tool: ToolId,
    pub arguments: Map<String, Value>,
    pub missing: Vec<String>,
}

/// Open questions by handle. They live in this process: after a restart a handle is unknown and the turn is routed as a
/// new request, which the decision's trace says.
pub(super) struct PendingCalls(Cache<String, Pending>);

impl PendingCalls {
    pub fn new() -> Self {
        let open = Cache::builder().max_capacity(MOST_BYTES).weigher(|_, pending| weight(pending));
        Self(open.time_to_live(OPEN_FOR).build())
    }

    /// Keeps `pending` and returns its handle.
    pub fn open(&self, decision: DecisionId, pending: Pending) -> String {
        let handle = format!("p{decision}");
        self.0.insert(handle.clone(), pending);
        handle
    }

    /// The question of `handle`, if it is known and was put to this caller in this session.
    pub fn get(&self, handle: &str, tenant: &str, session_id: &str) -> Option<Pending> {
        self.0.get(handle).filter(|pending| pending.tenant == tenant && pending.session_id == session_id)
    }
}

fn weight(pending: &Pending) -> u32 {
    let arguments = pending.arguments.iter().map(|(name, value)| name.len() + value.to_string().len());
    let missing = pending.missing.iter().map(String::len);
    u32::try_from(OWN_BYTES + arguments.chain(missing).sum::<usize>()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_questions_are_bounded_by_what_they_take() {
        let calls = PendingCalls::new();
        let big = "x".repeat(1024 * 1024);
        for _ in 0..100 {
            let arguments = Map::from_iter([("text".to_owned(), Value::String(big.clone()))]);
            let (tenant, session_id) = ("local".to_owned(), "s".to_owned());
            let pending = Pending { tenant, session_id, tool: ToolId::new("t"), arguments, missing: Vec::new() };
            calls.open(DecisionId::generate(), pending);
        }
        calls.0.run_pending_tasks();
        assert!(calls.0.entry_count() < 65, "{}", calls.0.entry_count());
    }
}
