//! Why a call is refused, in words its reader can act on.
//!
//! Owns: the wording of the gate's refusals and what they point to.
//! Does not know: when a call is refused.

use std::collections::BTreeSet;

use crate::registry::Registry;
use crate::store::CallRow;
use crate::tool::{ConfirmedBy, ToolCard};
use crate::types::{Caller, FieldProblem, NextStep, Problem, ProblemCode, Scope, ToolId};

pub(super) fn bad_request(field: &str, expected: &str) -> Problem {
    let problem = FieldProblem { path: format!("/{field}"), expected: expected.into(), example: None };
    Problem::invalid_request(format!("`{field}` cannot be used: {expected}"), vec![problem])
}

pub(super) fn conflict() -> Problem {
    let message = "the idempotency key was used in this conversation for another call";
    let problem = Problem::refused("conflict", ProblemCode::IdempotencyConflict, message);
    Problem { suggestion: Some("use a new key for a new call".into()), ..problem }
}

/// A token that does not count. `why` says no more than its holder may know.
pub(super) fn token(card: &ToolCard, registry: &Registry, why: &str) -> Problem {
    let problem = Problem::refused("token_refused", ProblemCode::TokenRefused, why);
    Problem { next: Some(preview_again(card, registry)), ..problem }
}

pub(super) fn token_missing(card: &ToolCard, registry: &Registry) -> Problem {
    let message = "this tool runs only with the token of its preview";
    let problem = Problem::repairable("precondition", ProblemCode::PreconditionMissing, message);
    Problem { next: Some(preview_again(card, registry)), ..problem }
}

fn preview_again(card: &ToolCard, registry: &Registry) -> NextStep {
    let by_tool = card.confirmation.as_ref().filter(|confirmation| confirmation.by == ConfirmedBy::PreviewTool);
    match by_tool.and_then(|confirmation| found(registry, card, confirmation.tool.as_deref()?)) {
        Some(preview) => {
            let hint = "run the preview, show it to the user, and use the token of its result".to_owned();
            NextStep { tool: preview.id.clone(), hint }
        }
        None => {
            let hint = "ask again without a token: a new preview is made, to be shown to the user".to_owned();
            NextStep { tool: card.id.clone(), hint }
        }
    }
}

pub(super) fn second_person(row: &CallRow, scope: &Scope) -> Problem {
    let message = format!("call {} waits for the consent of a second person who holds `{}`", row.id, scope.0);
    let problem = Problem::passing("consent_missing", ProblemCode::PolicyDenied, message);
    Problem { suggestion: Some("that person confirms the call under a name of their own".into()), ..problem }
}

/// A person runs it.
pub(super) fn proposed_only() -> Problem {
    let message = "this tool is only proposed here: a person runs it";
    Problem::refused("propose_only", ProblemCode::NotExecutable, message)
}

/// Another call with the same arguments, not to be taken for this one.
pub(super) fn in_flight(row: &CallRow) -> Problem {
    let message =
        format!("call {} of the same tool is running with the same arguments; ask again when it has ended", row.id);
    Problem::passing("in_flight", ProblemCode::InFlight, message)
}

pub(super) fn steps(limit: u32) -> Problem {
    Problem::refused("step_limit", ProblemCode::StepLimit, format!("this turn has used its {limit} steps"))
}

pub(super) fn turn_over() -> Problem {
    Problem::refused("timeout", ProblemCode::Timeout, "the time of this turn is used up")
}

pub(super) fn no_room() -> Problem {
    let message = "no more calls can be recorded at this moment, so none may run";
    Problem::passing("unavailable", ProblemCode::Unavailable, message)
}

pub(super) fn unknown_call() -> Problem {
    Problem::refused("not_found", ProblemCode::InvalidRequest, "there is no such call")
}

pub(super) fn not_yours() -> Problem {
    let message = "only the caller that was let go reports how a call ended";
    Problem::refused("forbidden", ProblemCode::PermissionDenied, message)
}

/// This server runs the call and knows its end better than anybody.
pub(super) fn run_here() -> Problem {
    let message = "this server runs the call and records its end itself";
    Problem::refused("conflict", ProblemCode::InvalidRequest, message)
}

/// Nothing is reported of a call that was never let go.
pub(super) fn not_let_go(row: &CallRow) -> Problem {
    let message = format!("call {} is {}: it was not let go, so nothing is reported of it", row.id, row.state.as_str());
    Problem::refused("conflict", ProblemCode::InvalidRequest, message)
}

/// It may have taken effect: not run again before somebody looked.
pub(super) fn effect_unknown(card: &ToolCard, registry: &Registry, caller: &Caller) -> Problem {
    let message =
        "this call was sent before and its end is not known: it may have taken effect, so it is not run again";
    let next = verifier(card, registry, caller);
    Problem { next, ..Problem::refused("unknown", ProblemCode::EffectUnknown, message) }
}

/// The read tool that can tell whether `card` took effect, for a caller who may use it: its fallback, what it requires, or the tool of its domain
/// that takes most of the same arguments. A preview says nothing about what happened.
pub fn verifier(card: &ToolCard, registry: &Registry, caller: &Caller) -> Option<NextStep> {
    let next = |tool: &ToolCard| {
        let hint = "look whether it took effect, and tell the user what you found".to_owned();
        NextStep { tool: tool.id.clone(), hint }
    };
    let previews: BTreeSet<&ToolId> =
        registry.cards.values().filter_map(|other| previewed_by(registry, other)).collect();
    let fits = |other: &&ToolCard| {
        let visible = other.tenants.is_empty() || other.tenants.contains(&caller.tenant);
        let allowed = visible && other.scopes.iter().all(|scope| caller.holds(scope));
        allowed && other.is_known_to_read() && !previews.contains(&other.id)
    };
    let named = card.fallback.iter().chain(&card.requires).filter_map(|name| found(registry, card, name));
    if let Some(named) = named.into_iter().find(|other| fits(other)) {
        return Some(next(named));
    }
    let domain = card.domain.as_ref()?;
    let neighbours = registry.cards.values().map(|other| &**other);
    let neighbours = neighbours.filter(|other| other.domain.as_ref() == Some(domain) && fits(other));
    let shared = |other: &ToolCard| names(other).into_iter().filter(|name| names(card).contains(name)).count();
    // Of equals the first by name: the cards are in that order.
    let best =
        neighbours.map(|other| (shared(other), other)).reduce(|best, next| if next.0 > best.0 { next } else { best });
    best.map(|(_, other)| next(other))
}

fn previewed_by<'a>(registry: &'a Registry, card: &ToolCard) -> Option<&'a ToolId> {
    found(registry, card, card.confirmation.as_ref()?.tool.as_deref()?).map(|preview| &preview.id)
}

fn names(card: &ToolCard) -> Vec<&str> {
    let members = card.parameters.get("properties").and_then(|properties| properties.as_object());
    members.into_iter().flatten().map(|(name, _)| name.as_str()).collect()
}

/// The tool that `card` means by `name`: its id, else the tool of this name in the same source.
pub(super) fn found<'a>(registry: &'a Registry, card: &ToolCard, name: &str) -> Option<&'a ToolCard> {
    let by_id = registry.cards.get(name).map(|found| &**found);
    let same_source = || {
        registry.cards.values().map(|other| &**other).find(|other| other.name == name && other.source == card.source)
    };
    by_id.or_else(same_source)
}
