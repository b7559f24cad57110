//! Which changes of a card wait for approval, and the cards that keep serving meanwhile.
//!
//! Owns: the comparison of a card with the one served before it, the exchange of the two.
//! Does not know: where the card served before is kept, or who may approve.
//!
//! Held are: a schema that accepts more (`widened`), a lowered side effect, changed scopes or tenants, another
//! way of execution, a confirmation or precondition that went. Other words, a narrower schema and a raised side effect
//! pass, and so does a card that was never served before.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Registry;
use super::widened::is_widened;
use crate::tool::{SideEffect, ToolCard};
use crate::types::ToolId;

/// Whose changes are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pins {
    /// Changes in files and live sources, and those by administrators of tenants.
    #[default]
    All,
    /// Of these, cards that another system exported and cards of tenants alone: the operator's native files pass.
    Imported,
    /// Nobody's.
    Off,
}

/// Why a change waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PinReason {
    SchemaWidened,
    /// Or the card says that a call may be repeated, which it did not.
    SideEffectLowered,
    PermissionsChanged,
    TenantsChanged,
    ExecutionChanged,
    /// What this server runs.
    RunChanged,
    /// Or it comes from elsewhere.
    ConfirmationRemoved,
    /// A tool that has to be called first, or that excludes this one, is no longer named.
    PreconditionRemoved,
}

impl PinReason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SchemaWidened => "schema_widened",
            Self::SideEffectLowered => "side_effect_lowered",
            Self::PermissionsChanged => "permissions_changed",
            Self::TenantsChanged => "tenants_changed",
            Self::ExecutionChanged => "execution_changed",
            Self::RunChanged => "run_changed",
            Self::ConfirmationRemoved => "confirmation_removed",
            Self::PreconditionRemoved => "precondition_removed",
        }
    }
}

/// A card that waits; the one before it is in [`Registry::cards`].
#[derive(Debug, Clone, PartialEq)]
pub struct Held {
    pub card: Arc<ToolCard>,
    /// In order, never empty.
    pub reasons: Vec<PinReason>,
}

/// Why `after` has to be approved where `before` was served; empty when it need not.
pub fn reasons(before: &ToolCard, after: &ToolCard) -> Vec<PinReason> {
    let lowered =
        class(after) < class(before) || (after.idempotent && !before.idempotent && class(after) > SideEffect::Read);
    let lost = |before: &[String], after: &[String]| before.iter().any(|name| !after.contains(name));
    let found = [
        (PinReason::SchemaWidened, is_widened(&before.parameters, &after.parameters)),
        (PinReason::SideEffectLowered, lowered),
        (PinReason::PermissionsChanged, set(&before.scopes) != set(&after.scopes)),
        (PinReason::TenantsChanged, set(&before.tenants) != set(&after.tenants)),
        (PinReason::ExecutionChanged, before.execution != after.execution),
        (PinReason::RunChanged, before.run != after.run),
        (PinReason::ConfirmationRemoved, before.confirmation.is_some() && before.confirmation != after.confirmation),
        (
            PinReason::PreconditionRemoved,
            lost(&before.requires, &after.requires) || lost(&before.conflicts_with, &after.conflicts_with),
        ),
    ];
    found.into_iter().filter(|(_, holds)| *holds).map(|(reason, _)| reason).collect()
}

/// A class that is not stated counts as the worst.
fn class(card: &ToolCard) -> SideEffect {
    if card.side_effect_declared { card.side_effect } else { SideEffect::Destructive }
}

fn set<T: Ord>(items: &[T]) -> BTreeSet<&T> {
    items.iter().collect()
}

/// Puts the card that `known` gives for a card of `next` in its place where the change has to wait, and the change into
/// [`Registry::held`]. `known` is the card served before under the same name, which may be equal; `approved` says
/// whether a card is let through all the same.
pub fn hold(
    next: &mut Registry,
    pins: Pins,
    known: &dyn Fn(&ToolCard) -> Option<Arc<ToolCard>>,
    approved: &dyn Fn(&ToolCard) -> bool,
) {
    let mut held: Vec<(ToolId, Held, Arc<ToolCard>)> = Vec::new();
    for (id, card) in &next.cards {
        let pinned = match pins {
            Pins::All => true,
            Pins::Imported => card.source == super::PUT || next.imported.contains(&card.source),
            Pins::Off => false,
        };
        if !pinned {
            continue;
        }
        let Some(before) = known(card) else { continue };
        if Arc::ptr_eq(&before, card) || before == *card {
            continue;
        }
        let reasons = reasons(&before, card);
        if !reasons.is_empty() && !approved(card) {
            held.push((id.clone(), Held { card: Arc::clone(card), reasons }, before));
        }
    }
    for (id, waiting, mut before) in held {
        // Its name may have a source in front now that it did not have then.
        if before.id != id {
            Arc::make_mut(&mut before).id = id.clone();
        }
        next.cards.insert(id.clone(), before);
        next.held.insert(id, waiting);
    }
}

/// Notices about the cards that wait, the first few by name.
pub fn notices(registry: &Registry) -> Vec<String> {
    const NAMED: usize = 20;
    let line = |(id, held): (&ToolId, &Held)| {
        let reasons: Vec<&str> = held.reasons.iter().map(|reason| reason.as_str()).collect();
        format!("`{id}`: a change waits for approval ({}); the card before it keeps serving", reasons.join(", "))
    };
    let mut notices: Vec<String> = registry.held.iter().take(NAMED).map(line).collect();
    if registry.held.len() > NAMED {
        notices.push(format!("changes of {} further tools wait for approval", registry.held.len() - NAMED));
    }
    notices
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::tool::{Confirmation, ConfirmedBy, Execution};
    use crate::types::Scope;

    fn card() -> ToolCard {
        let parameters = json!({"type": "object", "additionalProperties": false, "properties": {
            "id": {"type": "string", "maxLength": 20}}});
        ToolCard {
            side_effect: SideEffect::Write,
            idempotent: false,
            scopes: vec![Scope("orders:write".into())],
            confirmation: Some(Confirmation { by: ConfirmedBy::Gate, tool: None, token_param: None }),
            requires: vec!["preview".into()],
            ..ToolCard::reading("退款", parameters)
        }
    }

    #[track_caller]
    fn check(change: impl Fn(&mut ToolCard), expected: &[PinReason]) {
        let (before, mut after) = (card(), card());
        change(&mut after);
        assert_eq!(reasons(&before, &after), expected);
    }

    #[test]
    fn what_reaches_further_waits_and_what_reaches_less_passes() {
        check(|card| card.description.what = "另一种说法".into(), &[]);
        check(|card| card.parameters["properties"]["id"]["maxLength"] = 10.into(), &[]);
        check(|card| card.side_effect = SideEffect::Destructive, &[]);
        check(|card| card.requires.push("another".into()), &[]);
        check(|card| card.side_effect_declared = false, &[]);
        check(|card| card.parameters["properties"]["id"]["maxLength"] = 30.into(), &[PinReason::SchemaWidened]);
        check(|card| card.parameters["properties"]["note"] = json!({}), &[PinReason::SchemaWidened]);
        check(|card| card.side_effect = SideEffect::Read, &[PinReason::SideEffectLowered]);
        check(|card| card.idempotent = true, &[PinReason::SideEffectLowered]);
        check(|card| card.scopes.clear(), &[PinReason::PermissionsChanged]);
        check(|card| card.scopes.push(Scope("x".into())), &[PinReason::PermissionsChanged]);
        check(|card| card.tenants.push("acme".into()), &[PinReason::TenantsChanged]);
        check(|card| card.execution = Execution::Gate, &[PinReason::ExecutionChanged]);
        check(|card| card.confirmation = None, &[PinReason::ConfirmationRemoved]);
        check(|card| card.requires.clear(), &[PinReason::PreconditionRemoved]);
    }

    #[test]
    fn the_card_before_serves_until_the_change_is_approved() {
        let (before, mut after) = (Arc::new(card()), card());
        after.scopes.clear();
        after.id = ToolId::new("shop/退款");
        after.source = "shop".into();
        let after = Arc::new(after);
        let next =
            || Registry { cards: BTreeMap::from([(after.id.clone(), Arc::clone(&after))]), ..Registry::default() };
        let known = |_: &ToolCard| Some(Arc::clone(&before));
        let hold_with = |pins, imported: &str, approved: bool| {
            let mut next = next();
            next.imported.insert(imported.into());
            hold(&mut next, pins, &known, &|_| approved);
            next
        };
        let held = hold_with(Pins::All, "", false);
        assert_eq!((held.cards["shop/退款"].scopes.len(), held.cards["shop/退款"].id.as_str()), (1, "shop/退款"));
        assert_eq!(held.held["shop/退款"].reasons, [PinReason::PermissionsChanged]);
        assert_eq!(
            notices(&held),
            ["`shop/退款`: a change waits for approval (permissions_changed); the card before it keeps serving"]
        );
        for passes in [
            hold_with(Pins::All, "", true),
            hold_with(Pins::Imported, "other", false),
            hold_with(Pins::Off, "shop", false),
        ] {
            assert!(passes.held.is_empty() && passes.cards["shop/退款"] == after);
        }
        assert_eq!(hold_with(Pins::Imported, "shop", false).held.len(), 1);
    }
}
