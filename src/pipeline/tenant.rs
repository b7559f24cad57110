//! Changes by an administrator of one tenant: own cards alone, checked against what that tenant may see.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use super::change::{How, Next, StoreChange, storable};
use super::history::Cause;
use super::{Change, Router, StartError};
use crate::registry::{self, Registry};
use crate::store::{Store, StoreError};
use crate::tool::ToolCard;

/// Fields of a card that reach beyond its tenant: what the server itself calls, with secrets of its own.
const OPERATORS_FIELDS: [&str; 1] = ["run"];

impl Router {
    /// As [`Router::put`], for cards that belong to `tenant` alone from then on.
    ///
    /// # Errors
    /// [`StartError::NotOwn`] when a name is taken by a card that is not the tenant's alone, and
    /// [`StartError::Operators`] for what a tenant may not say; else as [`Router::put`].
    pub async fn put_for(self: &Arc<Self>, tenant: String, cards: Vec<Value>) -> Result<Change, StartError> {
        let names: BTreeSet<String> = cards.iter().filter_map(name_of).map(str::to_owned).collect();
        let router = Arc::clone(self);
        let next = move |current| put_own(current, &tenant, cards, &router.store);
        let change = self.publish(How::called_by_others(Cause::Put), next).await?;
        Ok(of_tenant(change, &names, true))
    }

    /// As [`Router::delete`], for cards that belong to `tenant` alone. Names of cards that it may not see are no
    /// different from those that do not exist.
    ///
    /// # Errors
    /// [`StartError::NotOwn`] when the tenant sees a card and it is not its own; else as [`Router::delete`].
    pub async fn delete_for(self: &Arc<Self>, tenant: String, names: Vec<String>) -> Result<Change, StartError> {
        let set: BTreeSet<String> = names.into_iter().collect();
        let wanted = set.clone();
        let next = move |current| delete_own(current, &tenant, &wanted);
        let change = self.publish(How::called_by_others(Cause::Delete), next).await?;
        Ok(of_tenant(change, &set, false))
    }
}

fn put_own(current: Registry, tenant: &str, cards: Vec<Value>, store: &Store) -> Result<Next, StartError> {
    let cards = own_cards(tenant, cards)?;
    let taken = taken(&current, tenant, &cards, store)?;
    if !taken.is_empty() {
        return Err(StartError::NotOwn { names: taken });
    }
    // What a card points to is looked for among what the tenant may see: an answer must not tell what else there is.
    let seen = current.cards.iter().filter(|(_, card)| is_seen(card, tenant));
    let view =
        Registry { cards: seen.map(|(id, card)| (id.clone(), Arc::clone(card))).collect(), ..Registry::default() };
    let checked = registry::overlay(view, registry::from_values(&cards));
    let kept = storable(&cards, &checked);
    let mut next = current;
    for (name, _) in &kept {
        if let Some((id, card)) = checked.cards.get_key_value(name.as_str()) {
            next.cards.insert(id.clone(), Arc::clone(card));
        }
    }
    next.quarantined.retain(|card| card.source != registry::PUT);
    next.quarantined.extend(checked.quarantined);
    next.notices = checked.notices;
    Ok((next, StoreChange::Put(kept)))
}

fn delete_own(mut next: Registry, tenant: &str, names: &BTreeSet<String>) -> Result<Next, StartError> {
    let card = |name: &String| next.cards.get(name.as_str()).filter(|card| is_seen(card, tenant));
    let shared: Vec<String> =
        names.iter().filter(|name| card(name).is_some_and(|card| !is_own(card, tenant))).cloned().collect();
    if !shared.is_empty() {
        return Err(StartError::NotOwn { names: shared });
    }
    let own: Vec<String> = names.iter().filter(|name| card(name).is_some()).cloned().collect();
    next.notices.clear();
    if own.len() < names.len() {
        next.notices.push(format!("{} of the names given are not in the catalog", names.len() - own.len()));
    }
    next.cards.retain(|id, _| !own.iter().any(|name| name == id.as_str()));
    Ok((next, StoreChange::Delete(own)))
}

fn is_seen(card: &ToolCard, tenant: &str) -> bool {
    card.tenants.is_empty() || card.tenants.iter().any(|one| one == tenant)
}

fn is_own(card: &ToolCard, tenant: &str) -> bool {
    card.tenants.as_slice() == [tenant]
}

fn name_of(card: &Value) -> Option<&str> {
    card.get("name")?.as_str()
}

/// The cards with their tenant written into them.
fn own_cards(tenant: &str, mut cards: Vec<Value>) -> Result<Vec<Value>, StartError> {
    let own = json!([tenant]);
    for card in &mut cards {
        let name = name_of(card).unwrap_or_default().to_owned();
        // What is no object is quarantined with a better message.
        let Some(fields) = card.as_object_mut() else { continue };
        if let Some(field) = OPERATORS_FIELDS.into_iter().find(|field| fields.contains_key(*field)) {
            return Err(StartError::Operators { name, field });
        }
        if fields.get("tenants").is_some_and(|stated| *stated != own && *stated != json!([])) {
            return Err(StartError::Operators { name, field: "tenants" });
        }
        fields.insert("tenants".into(), own.clone());
    }
    Ok(cards)
}

/// Names of `cards` that something holds which is not the tenant's alone: a card that is served, one in a file that is
/// not, or one in the store.
fn taken(current: &Registry, tenant: &str, cards: &[Value], store: &Store) -> Result<Vec<String>, StoreError> {
    let others = current.cards.iter().filter(|(_, card)| !is_own(card, tenant));
    let mut held: BTreeSet<&str> = others.flat_map(|(id, card)| [id.as_str(), card.name.as_str()]).collect();
    let broken = current.quarantined.iter().filter(|card| card.source != registry::PUT);
    held.extend(broken.map(|card| card.card.as_str()));
    let stored: BTreeMap<String, String> = store.cards()?.into_iter().collect();
    let stored_elsewhere = |name: &str| {
        stored.get(name).is_some_and(|json| {
            let card: Value = serde_json::from_str(json).unwrap_or_default();
            card.get("tenants") != Some(&json!([tenant]))
        })
    };
    let names: BTreeSet<&str> = cards.iter().filter_map(name_of).collect();
    Ok(names.into_iter().filter(|name| held.contains(name) || stored_elsewhere(name)).map(str::to_owned).collect())
}

/// What of a change its tenant may read.
fn of_tenant(mut change: Change, names: &BTreeSet<String>, put: bool) -> Change {
    for list in [&mut change.added, &mut change.changed, &mut change.removed, &mut change.held] {
        list.retain(|id| names.contains(id.as_str()));
    }
    // After a put these are of this call alone; after a delete they are whoever's.
    change.quarantined.retain(|card| put && card.source == registry::PUT);
    change.findings.retain(|finding| names.contains(&finding.tool));
    let is_theirs = |notice: &String| {
        let about_the_call = [" of the names given ", "`Lint`"].iter().any(|words| notice.contains(words));
        about_the_call || names.iter().any(|name| notice.contains(&format!("`{name}`")))
    };
    change.notices.retain(is_theirs);
    change
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::CardsChange;
    use crate::types::ToolId;

    fn card(name: &str) -> Value {
        json!({
            "name": name, "version": 1,
            "description": {"what": "a report", "when_to_use": ["a report"], "when_not_to_use": [], "returns": "one object"},
            "parameters": {"type": "object", "properties": {}},
            "side_effect": "read", "idempotent": true, "permissions": [], "timeout_ms": 1000,
        })
    }

    fn put(current: Registry, tenant: &str, name: &str, store: &Store) -> Result<Registry, StartError> {
        put_own(current, tenant, vec![card(name)], store).map(|(next, _)| next)
    }

    #[test]
    fn a_name_in_the_store_is_taken_even_while_its_card_is_not_served() {
        let store = Store::in_memory().unwrap();
        let stored = |name: &str, card: Value| (name.to_owned(), card.to_string());
        let of = |tenant: &str| json!({"name": "x", "tenants": [tenant]});
        store
            .change_cards(&CardsChange {
                put: &[stored("报表", of("globex")), stored("shared", json!({})), stored("own", of("acme"))],
                ..CardsChange::default()
            })
            .unwrap();
        for name in ["报表", "shared"] {
            let refused = put(Registry::default(), "acme", name, &store);
            assert!(matches!(refused, Err(StartError::NotOwn { names }) if names == [name]));
        }
        let next = put(Registry::default(), "acme", "own", &store).unwrap();
        assert_eq!(next.cards["own"].tenants, ["acme"]);
    }

    #[test]
    fn what_is_deleted_from_the_store_was_seen_to_be_ones_own() {
        let store = Store::in_memory().unwrap();
        let current = put(Registry::default(), "acme", "a", &store).unwrap();
        let current = put(current, "globex", "g", &store).unwrap();
        let names = ["a", "g", "nobody"].map(str::to_owned).into();
        let (next, change) = delete_own(current, "acme", &names).unwrap();
        assert!(matches!(change, StoreChange::Delete(names) if names == ["a"]));
        assert_eq!(next.cards.keys().map(ToolId::as_str).collect::<Vec<_>>(), ["g"]);
        assert_eq!(next.notices, ["2 of the names given are not in the catalog"]);
    }
}
