//! Which rows are scored, and why the others are not.
//!
//! Owns: scope rules, example utterances, the draw of `--limit`.
//! Does not know: the router. Nothing is left out silently: every row is in the plan or counted under a reason.

use std::collections::{BTreeMap, BTreeSet};

use super::Stage;
use super::rows::{Row, Scope};
use super::sample::draw;
use crate::text::to_nfkc;

/// Why a row is not scored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeftOut {
    /// Its label holds only against its own candidates, and the whole registry was asked for.
    CandidatesScope,
    /// The source takes any call as right.
    AnyCall,
    /// The prefilter has nothing to find.
    NoGold,
    /// It became an example utterance.
    UsedAsExample,
    /// A definition it needs is not served.
    VariantNotServed,
    /// Not drawn by `--limit`.
    NotDrawn,
}

impl LeftOut {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CandidatesScope => "candidates_scope",
            Self::AnyCall => "any_call",
            Self::NoGold => "no_gold",
            Self::UsedAsExample => "used_as_example",
            Self::VariantNotServed => "variant_not_served",
            Self::NotDrawn => "not_drawn",
        }
    }
}

/// Rows left out, by reason.
pub type LeftOutCounts = BTreeMap<LeftOut, usize>;

/// What decides about rows.
#[derive(Debug, Clone)]
pub struct Selection<'a> {
    pub stage: Stage,
    pub candidates: bool,
    pub limit: Option<usize>,
    pub seed: u64,
    pub examples: &'a Examples,
}

/// Rows to score, in file order.
#[derive(Debug, Default)]
pub struct Plan {
    pub rows: Vec<Row>,
    pub left_out: LeftOutCounts,
}

/// Utterances of a labelled set that become example utterances of its tools.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Examples {
    /// Tool name → utterances, in file order.
    pub by_tool: BTreeMap<String, Vec<String>>,
    texts: BTreeSet<String>,
}

impl Examples {
    /// The first `count` rows per tool that have that tool as their only gold one.
    pub fn from_rows(rows: &[Row], count: usize, candidates: bool) -> Self {
        let mut examples = Self::default();
        for row in rows.iter().filter(|row| out_of_scope(row, candidates).is_none()) {
            let [tool] = row.gold.as_slice() else { continue };
            let of_tool = examples.by_tool.entry(tool.clone()).or_default();
            if of_tool.len() < count {
                of_tool.push(row.query.clone());
                examples.texts.insert(to_nfkc(&row.query));
            }
        }
        examples
    }

    /// By wording, so that a copy of an example in another file is not scored either.
    fn holds(&self, row: &Row) -> bool {
        !self.texts.is_empty() && self.texts.contains(&to_nfkc(&row.query))
    }
}

pub fn plan(rows: Vec<Row>, selection: &Selection<'_>) -> Plan {
    let mut plan = Plan::default();
    let mut scorable = Vec::new();
    for row in rows {
        match reason(&row, selection) {
            Some(reason) => *plan.left_out.entry(reason).or_default() += 1,
            None => scorable.push(row),
        }
    }
    let drawn = drawn(&scorable, selection);
    if drawn.len() < scorable.len() {
        plan.left_out.insert(LeftOut::NotDrawn, scorable.len() - drawn.len());
    }
    plan.rows = scorable.into_iter().enumerate().filter(|(at, _)| drawn.contains(at)).map(|(_, row)| row).collect();
    plan
}

fn reason(row: &Row, selection: &Selection<'_>) -> Option<LeftOut> {
    out_of_scope(row, selection.candidates)
        .or_else(|| (selection.stage == Stage::Prefilter && row.gold.is_empty()).then_some(LeftOut::NoGold))
        .or_else(|| selection.examples.holds(row).then_some(LeftOut::UsedAsExample))
}

fn out_of_scope(row: &Row, candidates: bool) -> Option<LeftOut> {
    if row.any_call {
        return Some(LeftOut::AnyCall);
    }
    match row.scope {
        Scope::Candidates if candidates && row.candidates.is_some() => None,
        Scope::Candidates => Some(LeftOut::CandidatesScope),
        Scope::Registry => None,
    }
}

/// Positions to keep. Rows are drawn in order of their ids, so a shuffled file gives the same sample.
fn drawn(rows: &[Row], selection: &Selection<'_>) -> BTreeSet<usize> {
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|at| (&rows[*at].id, &rows[*at].query));
    let count = selection.limit.unwrap_or(rows.len());
    draw(rows.len(), count, selection.seed).into_iter().map(|at| order[at]).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::rows::row;
    use super::*;

    fn rows() -> Vec<Row> {
        vec![
            row(json!({"id": "1", "query": "退款", "gold": ["refund"]})),
            row(
                json!({"id": "2", "query": "refund me", "gold": ["refund"], "scope": "candidates", "candidates": ["refund"]}),
            ),
            row(json!({"id": "3", "query": "hello", "gold": [], "scope": "no_tool_needed"})),
            row(json!({"id": "4", "query": "anything", "gold": ["a"], "any_call": true})),
            row(json!({"id": "5", "query": "没有工具", "gold": [], "scope": "candidates", "candidates": []})),
            row(json!({"id": "6", "query": "both", "gold": ["refund", "track"], "kind": "multi"})),
            row(json!({"id": "7", "query": "no list", "gold": [], "scope": "candidates"})),
        ]
    }

    fn selection(examples: &Examples) -> Selection<'_> {
        Selection { stage: Stage::Route, candidates: false, limit: None, seed: 0, examples }
    }

    fn ids(plan: &Plan) -> String {
        plan.rows.iter().map(|row| row.id.as_str()).collect()
    }

    #[test]
    fn scope_decides_and_every_row_is_accounted_for() {
        let none = Examples::default();
        let registry_wide = plan(rows(), &selection(&none));
        assert_eq!(ids(&registry_wide), "136");
        assert_eq!(registry_wide.left_out, [(LeftOut::CandidatesScope, 3), (LeftOut::AnyCall, 1)].into());
        let candidates = plan(rows(), &Selection { candidates: true, ..selection(&none) });
        assert_eq!(ids(&candidates), "12356");
        let prefilter = plan(rows(), &Selection { stage: Stage::Prefilter, ..selection(&none) });
        assert_eq!(ids(&prefilter), "16");
        assert_eq!(prefilter.left_out[&LeftOut::NoGold], 1);
    }

    #[test]
    fn examples_are_the_first_rows_of_a_tool_and_are_not_scored() {
        let mut set = rows();
        set.push(row(json!({"id": "8", "query": "钱退给我", "gold": ["refund"]})));
        set.push(row(json!({"id": "9", "query": "退 款", "gold": ["refund"]})));
        set.push(row(json!({"id": "0", "query": "退款\u{200b}", "gold": ["refund"]})));
        let examples = Examples::from_rows(&set, 2, false);
        assert_eq!(examples.by_tool, [("refund".to_owned(), vec!["退款".to_owned(), "钱退给我".to_owned()])].into());
        let plan = plan(set, &selection(&examples));
        assert_eq!(ids(&plan), "369");
        assert_eq!(plan.left_out[&LeftOut::UsedAsExample], 3);
    }

    #[test]
    fn a_draw_depends_on_the_seed_and_not_on_the_order_of_the_file() {
        let set: Vec<Row> =
            (0..50).map(|i| row(json!({"id": format!("{i:02}"), "query": "q", "gold": ["t"]}))).collect();
        let none = Examples::default();
        let draw = |rows: Vec<Row>, seed| {
            let plan = plan(rows, &Selection { limit: Some(7), seed, ..selection(&none) });
            assert_eq!(plan.left_out[&LeftOut::NotDrawn], 43);
            let mut ids: Vec<String> = plan.rows.into_iter().map(|row| row.id).collect();
            ids.sort();
            ids
        };
        let reversed: Vec<Row> = set.iter().rev().cloned().collect();
        assert_eq!(draw(set.clone(), 5), draw(reversed, 5));
        assert_ne!(draw(set.clone(), 5), draw(set, 6));
    }
}
