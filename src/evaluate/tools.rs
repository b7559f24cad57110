//! The served tools under the names the labels use, and which of them a row may choose from.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::rows::Row;
use crate::registry::Registry;
use crate::tool::ToolCard;
use crate::types::ToolId;

/// Served tools by id. A label names a tool by its id or, where several sources share a name, by that name.
#[derive(Debug, Default)]
pub struct Tools {
    served: BTreeMap<ToolId, Served>,
    by_label: BTreeMap<String, Vec<ToolId>>,
    variants: BTreeMap<String, ToolId>,
}

#[derive(Debug)]
struct Served {
    label: String,
    card: Arc<ToolCard>,
}

/// What one row may choose from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Eligible {
    Everything,
    Only(Vec<String>),
    /// No tool at all.
    Nothing,
    /// A definition the row needs is not served.
    VariantMissing,
}

impl Tools {
    /// `variants`: variant name → name of the tool it defines.
    pub fn new(registry: &Registry, variants: &BTreeMap<String, String>, rows: &[Row]) -> Self {
        let named: BTreeSet<&str> = rows.iter().flat_map(names_in).map(String::as_str).collect();
        let mut tools = Self::default();
        for (id, card) in &registry.cards {
            let label = if let Some(base) = variants.get(&card.name) {
                tools.variants.insert(card.name.clone(), id.clone());
                base.clone()
            } else {
                let label = if named.contains(id.as_str()) { id.as_str() } else { card.name.as_str() };
                tools.by_label.entry(label.to_owned()).or_default().push(id.clone());
                label.to_owned()
            };
            tools.served.insert(id.clone(), Served { label, card: Arc::clone(card) });
        }
        tools
    }

    /// How many tools the registry itself serves.
    pub fn count(&self) -> usize {
        self.served.len() - self.variants.len()
    }

    pub fn holds(&self, label: &str) -> bool {
        self.by_label.contains_key(label)
    }

    pub fn label(&self, id: &ToolId) -> String {
        self.served.get(id).map_or_else(|| id.as_str().to_owned(), |served| served.label.clone())
    }

    pub fn schema(&self, id: &ToolId) -> Value {
        self.served.get(id).map_or(Value::Null, |served| served.card.parameters.clone())
    }

    /// With `candidates`, a row without a list is asked against the whole registry.
    pub fn eligible(&self, row: &Row, candidates: bool) -> Eligible {
        let eligible = self.all_eligible(row, candidates);
        if row.hidden.is_empty() {
            return eligible;
        }
        let stays = |id: &ToolId| !row.hidden.contains(&self.label(id));
        match eligible {
            Eligible::Everything => Eligible::only(self.by_label.values().flatten().filter(|id| stays(id))),
            Eligible::Only(names) => {
                let ids: Vec<ToolId> = names.into_iter().map(ToolId::new).collect();
                Eligible::only(ids.iter().filter(|id| stays(id)))
            }
            Eligible::Nothing | Eligible::VariantMissing => eligible,
        }
    }

    fn all_eligible(&self, row: &Row, candidates: bool) -> Eligible {
        match row.candidates.as_ref().filter(|_| candidates) {
            None if self.variants.is_empty() => Eligible::Everything,
            None => Eligible::only(self.by_label.values().flatten()),
            Some(list) => self.listed(row, list),
        }
    }

    fn listed(&self, row: &Row, list: &[String]) -> Eligible {
        let mut ids: Vec<&ToolId> = Vec::new();
        for name in list {
            match row.candidate_defs.get(name) {
                Some(variant) => match self.variants.get(variant) {
                    Some(id) => ids.push(id),
                    None => return Eligible::VariantMissing,
                },
                None => ids.extend(self.by_label.get(name).into_iter().flatten()),
            }
        }
        Eligible::only(ids)
    }
}

impl Eligible {
    fn only<'a>(ids: impl IntoIterator<Item = &'a ToolId>) -> Self {
        let names: Vec<String> = ids.into_iter().map(|id| id.as_str().to_owned()).collect();
        if names.is_empty() { Self::Nothing } else { Self::Only(names) }
    }
}

fn names_in(row: &Row) -> impl Iterator<Item = &String> {
    row.gold.iter().chain(&row.also_ok).chain(row.candidates.iter().flatten())
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::super::rows::row;
    use super::*;

    pub fn card(id: &str, name: &str) -> Arc<ToolCard> {
        Arc::new(ToolCard {
            id: ToolId::new(id),
            source: "test".into(),
            ..ToolCard::reading(name, json!({"type": "object"}))
        })
    }

    pub fn registry(tools: &[(&str, &str)]) -> Registry {
        let cards = tools.iter().map(|(id, name)| (ToolId::new(*id), card(id, name))).collect();
        Registry { cards, ..Registry::default() }
    }

    fn only(names: &[&str]) -> Eligible {
        Eligible::Only(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn candidates_narrow_and_an_empty_list_means_none() {
        let tools = Tools::new(&registry(&[("a", "a"), ("退款", "退款")]), &BTreeMap::new(), &[]);
        let check = |label: Value, expect: Eligible| {
            let row = row(label);
            assert_eq!(tools.eligible(&row, true), expect);
            assert_eq!(tools.eligible(&row, false), Eligible::Everything);
        };
        check(json!({"query": "q", "gold": [], "candidates": ["退款", "unknown"]}), only(&["退款"]));
        check(json!({"query": "q", "gold": [], "candidates": []}), Eligible::Nothing);
        check(json!({"query": "q", "gold": ["a"]}), Eligible::Everything);
    }

    #[test]
    fn a_hidden_answer_is_not_eligible_under_any_id() {
        let tools =
            Tools::new(&registry(&[("x/退款", "退款"), ("y/退款", "退款"), ("faq", "faq")]), &BTreeMap::new(), &[]);
        let twin = |label: Value| row(label).with_answer_hidden();
        assert_eq!(tools.eligible(&twin(json!({"query": "q", "gold": ["退款"]})), false), only(&["faq"]));
        let both = json!({"query": "q", "gold": ["退款"], "also_ok": ["faq"], "candidates": ["faq", "退款"]});
        assert_eq!(tools.eligible(&twin(both.clone()), true), Eligible::Nothing);
        assert_eq!((twin(both.clone()).id, twin(both).gold), ("line-1~hidden".to_owned(), Vec::new()));
    }

    #[test]
    fn a_variant_stands_in_for_its_tool() {
        let names = [("a#2".to_owned(), "a".to_owned())].into();
        let tools = Tools::new(&registry(&[("a", "a"), ("b", "b"), ("a#2", "a#2")]), &names, &[]);
        let row =
            |defs: Value| row(json!({"query": "q", "gold": ["a"], "candidates": ["a", "b"], "candidate_defs": defs}));
        assert_eq!(tools.eligible(&row(json!({"a": "a#2"})), true), only(&["a#2", "b"]));
        assert_eq!(tools.eligible(&row(json!({"a": "a#3"})), true), Eligible::VariantMissing);
        assert_eq!(tools.eligible(&row(json!({"a": "a#2"})), false), only(&["a", "b"]));
        assert_eq!((tools.label(&ToolId::new("a#2")).as_str(), tools.count()), ("a", 2));
    }

    #[test]
    fn a_name_shared_by_two_sources_means_both_unless_the_id_is_given() {
        let registry = registry(&[("x/search", "search"), ("y/search", "search")]);
        let label = |gold: &str| {
            let rows = [row(json!({"query": "q", "gold": [gold]}))];
            let tools = Tools::new(&registry, &BTreeMap::new(), &rows);
            (tools.label(&ToolId::new("x/search")), tools.label(&ToolId::new("y/search")))
        };
        assert_eq!(label("search"), ("search".into(), "search".into()));
        assert_eq!(label("x/search"), ("x/search".into(), "search".into()));
    }
}
