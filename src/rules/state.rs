//! Where a conversation stands: the last result of a tool, and the states that results and the session lead to.
//!
//! Only turns of role `tool` count: an utterance can imitate anything.

use serde_json::{Map, Value};

use super::bind::{BoundState, Rules};
use crate::types::{Role, Turn};

/// Largest tool result that is read, in bytes.
const MAX_RESULT: usize = 64 * 1024;

/// What a tool's turn says about the course of things.
struct Outcome {
    tool: String,
    ok: bool,
}

fn outcome(turn: &Turn) -> Option<Outcome> {
    if turn.role != Role::Tool || turn.content.len() > MAX_RESULT {
        return None;
    }
    let result: Value = serde_json::from_str(&turn.content).ok()?;
    let ok = result.get("ok").and_then(Value::as_bool).unwrap_or(true);
    Some(Outcome { tool: result.get("tool")?.as_str()?.to_owned(), ok })
}

/// The tool whose successful result came last.
pub(super) fn last_result(history: &[Turn]) -> Option<String> {
    let last = history.iter().rev().find_map(outcome)?;
    last.ok.then_some(last.tool)
}

/// The states in force, in file order: at most one that the history led to, and those the session names.
pub(super) fn in_force<'a>(rules: &'a Rules, history: &[Turn], session: &Map<String, Value>) -> Vec<&'a BoundState> {
    let reached = reached(rules, history).map(|state| state.name.as_str());
    let holds = |state: &&BoundState| {
        reached == Some(state.name.as_str()) || (!state.session.is_empty() && equal(&state.session, session))
    };
    rules.states.iter().filter(holds).collect()
}

/// Walks the history: a result enters the state it leads to, one of the state's own tools leaves it, and so do turns.
fn reached<'a>(rules: &'a Rules, history: &[Turn]) -> Option<&'a BoundState> {
    let mut current: Option<(&BoundState, usize)> = None;
    for turn in history {
        if turn.role == Role::User {
            current = current.filter(|(_, left)| *left > 1).map(|(state, left)| (state, left - 1));
        } else if let Some(Outcome { tool, ok }) = outcome(turn) {
            let entered = rules.states.iter().find(|state| ok && state.after.iter().any(|named| named.is(&tool)));
            let left = current.is_some_and(|(state, _)| state.until.iter().any(|named| named.is(&tool)));
            match entered {
                Some(state) => current = Some((state, state.turns)),
                None if left => current = None,
                None => {}
            }
        }
    }
    current.map(|(state, _)| state)
}

/// Whether `session` holds every value of `wanted`. Callers' numbers may arrive as floating-point ones.
pub(super) fn equal(wanted: &Map<String, Value>, session: &Map<String, Value>) -> bool {
    let same = |a: &Value, b: &Value| match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => a == b,
        _ => a == b,
    };
    wanted.iter().all(|(key, value)| session.get(key).is_some_and(|given| same(value, given)))
}
