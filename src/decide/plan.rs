//! Several calls of one answer as a plan that can be carried out in order.
//!
//! Owns: the order of calls, what has to run first, which calls exclude each other, which one stands for a call whose
//! id nobody knows yet.
//! Does not know: how the calls were proposed, or what their tools do.
//!
//! Bounds: a plan never holds more than `max_calls`; a tool that needs itself, however indirectly, is refused.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::made::{Made, has_result, made};
use super::{Proposal, Request, finish, local};
use crate::args::Origin;
use crate::catalog::Tool;
use crate::types::ToolId;

pub(super) const NOTE_CUT: &str = "the model proposed more calls than asked for; the first ones were taken";
pub(super) const NOTE_CLOSED: &str = "a call whose result another one needs was put before it";
pub(super) const NOTE_CONFLICT: &str = "of calls that exclude each other the better ranked was taken";
/// Longest plan that is put in order before it is cut.
const LONGEST: usize = 32;

/// Calls in running order.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plan<V> {
    /// Never empty, at most `max_calls`.
    pub calls: Vec<V>,
    pub notes: Vec<&'static str>,
}

/// Why calls make no plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The cards of these tools exclude each other.
    Conflict { first: ToolId, second: ToolId },
    /// The cards of the tools need each other's result first.
    Cycle,
}

/// What becomes of calls that exclude each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Conflicts {
    Refuse,
    /// The better ranked stays if it only reads: a rank is no reason to change anything.
    KeepBetter,
}

/// Puts `calls` in running order: what a card requires comes first, the rest stays in the order given. Equal calls are
/// one. What is required and missing is added where it only reads and its arguments are known, if there is room.
///
/// # Errors
/// [`Refusal`] if they exclude or need each other.
pub(crate) fn arrange(
    calls: Vec<Proposal>,
    request: &Request<'_>,
    conflicts: Conflicts,
) -> Result<Plan<Proposal>, Refusal> {
    let mut notes = Vec::new();
    let mut calls = merged(calls);
    while let Some((first, second)) = conflict(&calls, request) {
        let worse = if rank(&calls[second], request) < rank(&calls[first], request) { first } else { second };
        let better = first + second - worse;
        let reads = request.tool(&calls[better].tool).is_some_and(|tool| tool.card.is_known_to_read());
        if conflicts == Conflicts::Refuse || !reads {
            let id = |at: usize| calls[at].tool.clone();
            return Err(Refusal::Conflict { first: id(first), second: id(second) });
        }
        calls.remove(worse);
        notes.push(NOTE_CONFLICT);
    }
    let closed = closed(&calls, request).and_then(|closed| ordered(closed, request).ok());
    let mut calls = match closed {
        Some(closed) => {
            notes.push(NOTE_CLOSED);
            closed
        }
        None => ordered(calls, request)?,
    };
    if calls.len() > request.max_calls {
        calls.truncate(request.max_calls);
        notes.push(NOTE_CUT);
    }
    notes.dedup();
    Ok(Plan { calls, notes })
}

/// The read call that finds what `call` lacks: one its card requires, with arguments that are known, not made already.
pub(super) fn finder(call: &Proposal, request: &Request<'_>) -> Option<Proposal> {
    let tool = request.tool(&call.tool)?;
    let known = |name: &String| !matches!(call.origins.get(name), Some(Origin::Inferred) | None);
    let given: Map<String, Value> = call
        .checked
        .args
        .as_map()
        .iter()
        .filter(|(name, _)| known(name))
        .map(|(n, v)| (n.clone(), v.clone()))
        .collect();
    tool.card.requires.iter().find_map(|name| {
        let first =
            request.related(tool, name).filter(|first| first.card.is_known_to_read() && first.id() != tool.id())?;
        let found = filled(first, &given, request)?;
        let again = made(first, found.checked.args.as_map(), request.history);
        (!matches!(again, Some(Made::Held | Made::Done))).then_some(found)
    })
}

/// A call of `tool` with what the conversation says and `given` besides, if that is all it needs.
pub(super) fn filled(tool: &Tool, given: &Map<String, Value>, request: &Request<'_>) -> Option<Proposal> {
    let (mut arguments, ..) = local::read_arguments(tool, request);
    let takes = |name: &str, value: &Value| tool.schema.property(name).is_some() && tool.schema.fits(name, value);
    for (name, value) in given.iter().filter(|(name, value)| takes(name, value)) {
        arguments.insert(name.clone(), value.clone());
    }
    let call = Proposal::of(tool, arguments, request).ok()?;
    finish::is_grounded(&call, tool, request).then_some(call)
}

pub(super) fn same(a: &Proposal, b: &Proposal) -> bool {
    a.tool == b.tool && a.checked.args == b.checked.args
}

fn merged(calls: Vec<Proposal>) -> Vec<Proposal> {
    let mut distinct: Vec<Proposal> = Vec::new();
    for call in calls.into_iter().take(LONGEST) {
        if !distinct.iter().any(|other| same(other, &call)) {
            distinct.push(call);
        }
    }
    distinct
}

/// The first two calls whose cards exclude each other, unless they are about different things.
fn conflict(calls: &[Proposal], request: &Request<'_>) -> Option<(usize, usize)> {
    let excludes = |a: &Proposal, b: &Proposal| {
        let tool = request.tool(&a.tool);
        tool.is_some_and(|tool| names(tool, &tool.card.conflicts_with, &b.tool, request))
    };
    let pairs = (0..calls.len()).flat_map(|second| (0..second).map(move |first| (first, second)));
    pairs.into_iter().find(|(first, second)| {
        let (a, b) = (&calls[*first], &calls[*second]);
        (excludes(a, b) || excludes(b, a)) && !differ(a, b, request)
    })
}

/// Both name a thing by an id of fixed form, and no thing is the same.
fn differ(a: &Proposal, b: &Proposal, request: &Request<'_>) -> bool {
    let ids = |call: &Proposal| -> BTreeSet<String> {
        let Some(tool) = request.tool(&call.tool) else { return BTreeSet::new() };
        let arguments = call.checked.args.as_map();
        let own = tool.schema.views().filter(finish::is_patterned_id);
        own.filter_map(|property| arguments.get(property.name)?.as_str().map(str::to_owned)).collect()
    };
    let (a, b) = (ids(a), ids(b));
    !a.is_empty() && !b.is_empty() && a.is_disjoint(&b)
}

/// With what the cards require and nobody has, as far as it can be called and there is room; `None` if that is nothing.
fn closed(calls: &[Proposal], request: &Request<'_>) -> Option<Vec<Proposal>> {
    let mut all = calls.to_vec();
    let mut at = 0;
    while at < all.len() && all.len() < request.max_calls {
        let call = all[at].clone();
        at += 1;
        let Some(tool) = request.tool(&call.tool) else { continue };
        for first in tool.card.requires.iter().filter_map(|name| request.related(tool, name)) {
            let is_there = all.iter().any(|other| other.tool == *first.id());
            if is_there
                || !first.card.is_known_to_read()
                || has_result(first, request.history)
                || all.len() >= request.max_calls
            {
                continue;
            }
            all.extend(filled(first, call.checked.args.as_map(), request));
        }
    }
    (all.len() > calls.len()).then_some(all)
}

/// Repeatedly takes the first call that waits for no other.
fn ordered(mut waiting: Vec<Proposal>, request: &Request<'_>) -> Result<Vec<Proposal>, Refusal> {
    let mut ready = Vec::with_capacity(waiting.len());
    while !waiting.is_empty() {
        let waits = |call: &Proposal| {
            let Some(tool) = request.tool(&call.tool) else { return false };
            waiting
                .iter()
                .any(|other| other.tool != call.tool && names(tool, &tool.card.requires, &other.tool, request))
        };
        let next = waiting.iter().position(|call| !waits(call)).ok_or(Refusal::Cycle)?;
        ready.push(waiting.remove(next));
    }
    Ok(ready)
}

/// Whether one of the card's references means the tool `id`.
pub(super) fn names(tool: &Tool, listed: &[String], id: &ToolId, request: &Request<'_>) -> bool {
    listed.iter().any(|name| request.related(tool, name).is_some_and(|other| other.id() == id))
}

fn rank(call: &Proposal, request: &Request<'_>) -> usize {
    request.candidates.iter().position(|candidate| candidate.tool == call.tool).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::decide::llm::testing::{Shop, card};
    use crate::tool::{SideEffect, ToolCard};

    fn order_card(name: &str, side_effect: SideEffect, requires: &[&str], conflicts: &[&str]) -> ToolCard {
        let parameters = json!({"type": "object", "required": ["order_id"], "properties": {
            "order_id": {"type": "string", "pattern": "^SO-\\d{4}$"}, "note": {"type": "string"}}});
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        ToolCard { side_effect, requires: list(requires), conflicts_with: list(conflicts), ..card(name, parameters) }
    }

    /// `a` needs `look`, `b` needs `a`, `c` excludes `look`, `x` and `y` need each other.
    fn shop() -> Shop {
        Shop::of(vec![
            order_card("look", SideEffect::Read, &[], &[]),
            order_card("a", SideEffect::Write, &["look"], &["b2"]),
            order_card("b", SideEffect::Destructive, &["a"], &[]),
            order_card("b2", SideEffect::Destructive, &[], &["a"]),
            order_card("c", SideEffect::Read, &[], &["look"]),
            order_card("x", SideEffect::Read, &["y"], &[]),
            order_card("y", SideEffect::Read, &["x"], &[]),
        ])
    }

    /// Calls as `tool` or `tool:order`, arranged, with the notes counted.
    fn arranged(utterance: &str, max_calls: usize, conflicts: Conflicts, calls: &[&str]) -> String {
        let mut shop = shop();
        shop.max_calls = max_calls;
        let tools = shop.tools();
        let request = shop.request(utterance, &tools);
        let call = |text: &&str| {
            let (name, order) = text.split_once(':').unwrap_or((text, "SO-1111"));
            let tool = request.tool(&ToolId::new(name)).unwrap();
            let arguments = Map::from_iter([("order_id".to_owned(), order.into())]);
            Proposal::of(tool, arguments, &request).unwrap()
        };
        match arrange(calls.iter().map(call).collect(), &request, conflicts) {
            Ok(plan) => {
                let call = |call: &Proposal| {
                    let order = call.checked.args.as_map()["order_id"].as_str().unwrap();
                    if order == "SO-1111" { call.tool.to_string() } else { format!("{}:{order}", call.tool) }
                };
                format!("{} ({})", plan.calls.iter().map(call).collect::<Vec<_>>().join(" "), plan.notes.len())
            }
            Err(Refusal::Conflict { first, second }) => format!("{first} against {second}"),
            Err(Refusal::Cycle) => "cycle".into(),
        }
    }

    #[track_caller]
    fn check(max_calls: usize, calls: &[&str], expect: &str) {
        for utterance in ["for SO-1111 please", "处理一下SO-1111"] {
            assert_eq!(arranged(utterance, max_calls, Conflicts::Refuse, calls), expect, "{utterance}");
        }
    }

    #[test]
    fn what_is_required_comes_first_and_the_rest_stays() {
        check(4, &["b", "a", "look"], "look a b (0)");
        check(4, &["y", "look", "a"], "y look a (0)");
        check(4, &["a:SO-1111", "look:SO-2222", "look"], "look:SO-2222 look a (0)");
        check(4, &["b2", "y"], "b2 y (0)");
    }

    #[test]
    fn equal_calls_are_one() {
        check(4, &["look", "look", "look:SO-2222"], "look look:SO-2222 (0)");
    }

    #[test]
    fn what_is_missing_is_added_where_it_only_reads_and_there_is_room() {
        check(2, &["a"], "look a (1)");
        check(1, &["a"], "a (0)");
        check(2, &["a", "y"], "a y (0)");
        // `b` needs a write that nobody proposed.
        check(3, &["b"], "b (0)");
        let unknown = arranged("do it", 2, Conflicts::Refuse, &["a"]);
        assert_eq!(unknown, "a (0)", "an order that stands nowhere is not looked at");
    }

    #[test]
    fn a_plan_is_cut_from_its_end() {
        check(2, &["b", "a", "look"], "look a (1)");
    }

    #[test]
    fn a_cycle_is_refused() {
        check(4, &["x", "look", "y"], "cycle");
        // Alone it is not held up by what could never come first.
        check(4, &["x"], "x (0)");
    }

    #[test]
    fn what_excludes_each_other_is_refused_unless_it_is_about_different_things() {
        check(4, &["look", "c"], "look against c");
        check(4, &["look", "c:SO-2222"], "look c:SO-2222 (0)");
        let keep = |calls: &[&str]| arranged("SO-1111", 4, Conflicts::KeepBetter, calls);
        assert_eq!(keep(&["c", "look"]), "look (1)");
        assert_eq!(keep(&["b2", "a"]), "b2 against a", "neither only reads");
    }

    #[test]
    fn the_call_that_finds_is_one_that_can_be_made() {
        let shop = shop();
        let tools = shop.tools();
        let found = |utterance: &str| {
            let request = shop.request(utterance, &tools);
            let tool = request.tool(&ToolId::new("a")).unwrap();
            let checked = crate::args::validate(&tool.schema, &json!({"order_id": "SO-9999"})).unwrap();
            let origins = [("order_id".to_owned(), Origin::Inferred)].into();
            finder(&Proposal { tool: tool.id().clone(), checked, origins }, &request).map(|call| call.tool.to_string())
        };
        assert_eq!(found("change SO-1111"), Some("look".into()));
        assert_eq!(found("改一下"), None);
    }
}
