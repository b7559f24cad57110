//! What changed between two sets.

use super::Registry;
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
            Some(before) if before != card => diff.changed.push(id.clone()),
            Some(_) => {}
        }
    }
    diff.removed = old.cards.keys().filter(|id| !new.cards.contains_key(*id)).cloned().collect();
    diff
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
