//! What happened before in one turn and ends it: failures in a row, searches that found nothing.
//!
//! Does not know: how many steps a turn may have and how long it may take; the gate counts those.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use moka::sync::Cache;

use crate::telemetry::names;
use crate::types::{Problem, ProblemCode, ToolId};

/// Failed calls in a row after which a person takes over.
const FUSE: u32 = 2;
/// Searches of one tool that found nothing after which it is not asked again.
const EMPTY_SEARCHES: usize = 2;
const MOST_TURNS: u64 = 100_000;
/// A turn that nobody continues is forgotten after this time.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60 * 60);

/// Names one turn of one conversation of one tenant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::pipeline) struct TurnKey {
    tenant: String,
    conversation: String,
    turn: String,
}

impl TurnKey {
    pub fn new(tenant: &str, conversation: &str, turn: &str) -> Self {
        Self { tenant: tenant.into(), conversation: conversation.into(), turn: turn.into() }
    }
}

#[derive(Debug, Default)]
struct Turn {
    failed_in_a_row: u32,
    /// Tools whose search found nothing, once for each time.
    empty: Vec<ToolId>,
}

/// How one step of a turn went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Succeeded,
    /// Fine, but nothing was found.
    Empty,
    Failed,
}

/// Why a turn runs nothing more.
pub(super) enum Over {
    Problem(Box<Problem>),
    Fuse,
}

/// Turns in work. They live in this process.
pub(in crate::pipeline) struct Turns(Cache<TurnKey, Arc<Mutex<Turn>>>);

impl Turns {
    pub fn new() -> Self {
        Self(Cache::builder().max_capacity(MOST_TURNS).time_to_idle(FORGOTTEN_AFTER).build())
    }

    fn with<T>(&self, key: &TurnKey, work: impl FnOnce(&mut Turn) -> T) -> T {
        let turn = self.0.get_with_by_ref(key, Arc::default);
        // Counters alone: a panic elsewhere leaves them usable.
        work(&mut turn.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Why a call of `tool` may not run in this turn; `None` without a turn.
    pub(super) fn check(&self, key: &Option<TurnKey>, tool: &ToolId) -> Option<Over> {
        let over = |reason: &'static str| metrics::counter!(names::GATE_TURNS_OVER, "reason" => reason).increment(1);
        self.with(key.as_ref()?, |turn| {
            if turn.failed_in_a_row >= FUSE {
                over("fuse");
                return Some(Over::Fuse);
            }
            if turn.empty.iter().filter(|empty| *empty == tool).count() >= EMPTY_SEARCHES {
                over("empty_searches");
                let message = format!("`{tool}` found nothing twice in this turn; ask the user for other words");
                return Some(Over::Problem(Box::new(Problem::refused("step_limit", ProblemCode::StepLimit, message))));
            }
            None
        })
    }

    pub(super) fn ended(&self, key: &Option<TurnKey>, tool: &ToolId, step: Step) {
        let Some(key) = key else { return };
        self.with(key, |turn| match step {
            Step::Succeeded => turn.failed_in_a_row = 0,
            Step::Failed => turn.failed_in_a_row = turn.failed_in_a_row.saturating_add(1),
            Step::Empty => {
                turn.failed_in_a_row = 0;
                turn.empty.push(tool.clone());
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_in_a_row_and_empty_searches_end_a_turn() {
        let (turns, tool, other) = (Turns::new(), ToolId::new("搜索"), ToolId::new("get_order"));
        let key = |turn: &str| Some(TurnKey::new("acme", "c1", turn));
        let check = |turn: &str, tool: &ToolId| match turns.check(&key(turn), tool) {
            None => "-".to_owned(),
            Some(Over::Fuse) => "fuse".into(),
            Some(Over::Problem(problem)) => problem.code.as_str().into(),
        };
        turns.ended(&key("fuse"), &tool, Step::Failed);
        turns.ended(&key("fuse"), &tool, Step::Succeeded);
        turns.ended(&key("fuse"), &tool, Step::Failed);
        assert_eq!(check("fuse", &tool), "-");
        turns.ended(&key("fuse"), &other, Step::Failed);
        assert_eq!((check("fuse", &tool), check("next", &tool)), ("fuse".into(), "-".into()));

        turns.ended(&key("empty"), &tool, Step::Empty);
        assert_eq!(check("empty", &tool), "-", "one more try");
        turns.ended(&key("empty"), &tool, Step::Empty);
        assert_eq!((check("empty", &tool), check("empty", &other)), ("STEP_LIMIT".into(), "-".into()));
        assert!(turns.check(&None, &tool).is_none());
    }
}
