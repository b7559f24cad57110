//! What changed between two sets, and between two states of one card.

use std::sync::Arc;

use serde_json::Value;

use super::{Registry, join};
use crate::tool::ToolCard;
use crate::types::ToolId;

/// Ids by which two sets differ, each in id order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Diff {
    pub added: Vec<ToolId>,
    pub changed: Vec<ToolId>,
    pub removed: Vec<ToolId>,
}

impl Diff {
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.changed.is_empty() && self.removed.is_empty()
    }
}

/// Compares the served cards: what `new` adds to `old`, holds differently and no longer holds.
pub fn diff(old: &Registry, new: &Registry) -> Diff {
    let mut diff = Diff::default();
    for (id, card) in &new.cards {
        match old.cards.get(id) {
            None => diff.added.push(id.clone()),
            // The very same card is the rule, and comparing thousands of cards in full takes long.
            Some(before) if !Arc::ptr_eq(before, card) && before != card => diff.changed.push(id.clone()),
            Some(_) => {}
        }
    }
    diff.removed = old.cards.keys().filter(|id| !new.cards.contains_key(*id)).cloned().collect();
    diff
}

/// One place at which two states of a card differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldChange {
    /// JSON pointer into the card.
    pub pointer: String,
    /// JSON; `None`: it was not there.
    pub before: Option<String>,
    pub after: Option<String>,
}

/// More places are told as one: the whole card.
const MOST_PLACES: usize = 500;

/// Where two cards differ, in the order of pointers. Lists of plain values are compared as a whole, others item by item.
pub fn fields_that_differ(before: &ToolCard, after: &ToolCard) -> Vec<FieldChange> {
    let json = |card: &ToolCard| serde_json::to_value(card).unwrap_or_default();
    let (before, after) = (json(before), json(after));
    let mut changes = Vec::new();
    compare(Some(&before), Some(&after), String::new(), &mut changes);
    if changes.len() > MOST_PLACES {
        changes = vec![change(Some(&before), Some(&after), String::new())];
    }
    changes.sort_by(|a, b| a.pointer.cmp(&b.pointer));
    changes
}

fn compare(before: Option<&Value>, after: Option<&Value>, pointer: String, changes: &mut Vec<FieldChange>) {
    if before == after || changes.len() > MOST_PLACES {
        return;
    }
    match (before, after) {
        (Some(Value::Object(was)), Some(Value::Object(now))) => {
            let gone = was.keys().filter(|key| !now.contains_key(*key));
            for key in now.keys().chain(gone) {
                compare(was.get(key), now.get(key), join(&pointer, key), changes);
            }
        }
        (Some(Value::Array(was)), Some(Value::Array(now))) if !(are_plain(was) && are_plain(now)) => {
            for index in 0..was.len().max(now.len()) {
                compare(was.get(index), now.get(index), join(&pointer, index), changes);
            }
        }
        _ => changes.push(change(before, after, pointer)),
    }
}

fn change(before: Option<&Value>, after: Option<&Value>, pointer: String) -> FieldChange {
    FieldChange { pointer, before: before.map(Value::to_string), after: after.map(Value::to_string) }
}

fn are_plain(items: &[Value]) -> bool {
    !items.iter().any(|item| item.is_object() || item.is_array())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::registry::from_values;

    fn cards() -> impl Strategy<Value = Vec<Value>> {
        prop::collection::btree_map("[a-c]|退款|查询", (0u32..3, "[xy退]{0,2}"), 0..6).prop_map(|tools| {
            let card = |(name, (version, what)): (String, (u32, String))| {
                json!({"name": name, "version": version, "description": format!("does {what}"), "side_effect": "read",
                    "timeout_ms": 10, "permissions": []})
            };
            tools.into_iter().map(card).collect()
        })
    }

    /// What a holder of `old` gets when it applies `diff`, reading cards from `new`.
    fn apply(old: &Registry, diff: &Diff, new: &Registry) -> Registry {
        let mut result = old.clone();
        for id in &diff.removed {
            assert!(result.cards.remove(id).is_some());
        }
        for id in &diff.added {
            assert!(result.cards.insert(id.clone(), new.cards[id].clone()).is_none());
        }
        for id in &diff.changed {
            assert!(result.cards.insert(id.clone(), new.cards[id].clone()).is_some());
        }
        result
    }

    #[test]
    fn a_change_is_told_by_its_place() {
        let card = |schema: Value| ToolCard { version: "1".into(), ..ToolCard::reading("查询", schema) };
        let before =
            card(json!({"type": "object", "properties": {"a/b": {"enum": ["x", "y"], "maximum": 5}, "c": {}}}));
        let mut after = card(
            json!({"type": "object", "properties": {"a/b": {"enum": ["x"], "maximum": 6}, "d": {"type": "string"}}}),
        );
        after.version = "2".into();
        let told: Vec<String> = fields_that_differ(&before, &after)
            .into_iter()
            .map(|change| {
                let side = |json: Option<String>| json.unwrap_or_else(|| "-".into());
                format!("{} {} {}", change.pointer, side(change.before), side(change.after))
            })
            .collect();
        let expected = [
            "/parameters/properties/a~1b/enum [\"x\",\"y\"] [\"x\"]",
            "/parameters/properties/a~1b/maximum 5 6",
            "/parameters/properties/c {} -",
            "/parameters/properties/d - {\"type\":\"string\"}",
            "/version \"1\" \"2\"",
        ];
        assert_eq!(told, expected);
        assert!(fields_that_differ(&before, &before).is_empty());
    }

    proptest! {
        #[test]
        fn diff_then_apply_equals_the_new_registry(old in cards(), new in cards()) {
            let (old, new) = (from_values(&old), from_values(&new));
            let difference = diff(&old, &new);
            prop_assert_eq!(&apply(&old, &difference, &new).cards, &new.cards);
            prop_assert_eq!(diff(&new, &new), Diff::default());
            let back = diff(&new, &old);
            prop_assert_eq!(back.added, difference.removed);
            prop_assert_eq!(back.changed, difference.changed);
        }
    }
}
