//! How good one ranking is for one row.
//!
//! Owns: recall@k, reciprocal rank, tools of the same base name standing in for each other, the shortlist.
//! Does not know: how the ranking was made. Tools are named as the labels name them.

use std::collections::{BTreeMap, BTreeSet};

use super::rows::{Kind, Row};

/// The `k` of `recall@k`.
pub const CUTS: [usize; 5] = [1, 3, 5, 8, 10];

/// The full ranking of one row, best first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ranked {
    pub tools: Vec<String>,
    /// How many of them, from the top, form the shortlist.
    pub shortlist: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub struct PrefilterScore {
    /// One per [`CUTS`], in `[0, 1]`.
    pub recall: [f64; CUTS.len()],
    /// 1 / rank of the first right tool, 0 without one.
    pub reciprocal_rank: f64,
    pub shortlist_size: usize,
    /// Recall of the shortlist as a whole.
    pub shortlist_hit: f64,
    pub has_history: bool,
}

/// `None` for a row without gold: there is nothing to find.
pub fn score(row: &Row, ranked: &Ranked) -> Option<PrefilterScore> {
    if row.gold.is_empty() {
        return None;
    }
    let first = ranked.tools.iter().position(|tool| row.accepts(tool));
    let shortlist_size = ranked.shortlist.min(ranked.tools.len());
    Some(PrefilterScore {
        recall: CUTS.map(|k| recall(row, &ranked.tools, k)),
        reciprocal_rank: first.map_or(0.0, |rank| 1.0 / (rank + 1) as f64),
        shortlist_size,
        shortlist_hit: recall(row, &ranked.tools, shortlist_size),
        has_history: !row.history.is_empty(),
    })
}

fn recall(row: &Row, tools: &[String], k: usize) -> f64 {
    let top = tools.iter().take(k).map(String::as_str);
    match row.kind {
        Kind::Multi => found(row, top.collect()) as f64 / row.gold.len() as f64,
        Kind::Single | Kind::Ambiguous => f64::from(u8::from(top.into_iter().any(|tool| row.accepts(tool)))),
    }
}

/// Gold tools in `top`; for each one that is not, another tool of its base name from `also_ok` stands in, once.
fn found(row: &Row, top: BTreeSet<&str>) -> usize {
    let mut by_base: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for gold in &row.gold {
        let (wanted, there) = by_base.entry(base_name(gold)).or_default();
        *wanted += 1;
        *there += usize::from(top.contains(gold.as_str()));
    }
    for other in row.also_ok.iter().filter(|other| !row.gold.contains(other) && top.contains(other.as_str())) {
        if let Some((_, there)) = by_base.get_mut(base_name(other)) {
            *there += 1;
        }
    }
    by_base.values().map(|(wanted, there)| wanted.min(there)).sum()
}

/// `search__2` and `search__github` are two definitions of `search`.
fn base_name(tool: &str) -> &str {
    match tool.rsplit_once("__") {
        Some((base, suffix)) if !base.is_empty() && !suffix.is_empty() => base,
        Some(_) | None => tool,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::rows::row;
    use super::*;

    fn scored(label: Value, tools: &[&str], shortlist: usize) -> Option<PrefilterScore> {
        let mut full = json!({"query": "查快递 where is it"});
        full.as_object_mut().unwrap().extend(label.as_object().unwrap().clone());
        score(&row(full), &Ranked { tools: tools.iter().map(|t| (*t).to_owned()).collect(), shortlist })
    }

    #[track_caller]
    fn check(label: Value, tools: &[&str], recall: [f64; 5], reciprocal_rank: f64) {
        let score = scored(label, tools, 0).unwrap();
        assert_eq!((score.recall, score.reciprocal_rank), (recall, reciprocal_rank));
    }

    #[test]
    fn any_right_tool_counts_unless_all_are_wanted() {
        check(json!({"gold": ["b"]}), &["a", "b", "c"], [0.0, 1.0, 1.0, 1.0, 1.0], 0.5);
        check(json!({"gold": ["x", "c"], "kind": "ambiguous"}), &["a", "b", "c"], [0.0, 1.0, 1.0, 1.0, 1.0], 1.0 / 3.0);
        check(json!({"gold": ["x"], "also_ok": ["a"]}), &["a", "b"], [1.0; 5], 1.0);
        check(json!({"gold": ["x"], "kind": "clarify"}), &["a", "b"], [0.0; 5], 0.0);
        check(json!({"gold": ["x"]}), &[], [0.0; 5], 0.0);
        check(json!({"gold": ["b", "d"], "kind": "multi"}), &["a", "b", "c", "d"], [0.0, 0.5, 1.0, 1.0, 1.0], 0.5);
    }

    #[test]
    fn a_tool_of_the_same_base_name_stands_in_once() {
        let label = json!({"gold": ["s__2", "t"], "also_ok": ["s", "s__3", "u"], "kind": "multi"});
        check(label.clone(), &["s", "s__3", "s__2", "u"], [0.5, 0.5, 0.5, 0.5, 0.5], 1.0);
        check(label, &["u", "t", "s__3"], [0.0, 1.0, 1.0, 1.0, 1.0], 1.0);
        let twice = json!({"gold": ["s", "s__2"], "also_ok": ["s__3", "s__4"], "kind": "multi"});
        check(twice, &["s__3", "s", "s__4"], [0.5, 1.0, 1.0, 1.0, 1.0], 1.0);
    }

    #[test]
    fn base_names_need_both_sides() {
        assert_eq!(base_name("search__mcp-arxiv"), "search");
        assert_eq!(base_name("__book_room"), "__book_room");
        assert_eq!(base_name("查询__2"), "查询");
        assert_eq!(base_name("plain_name"), "plain_name");
    }

    #[test]
    fn rows_without_gold_do_not_count_and_the_shortlist_is_a_cut_of_its_own() {
        assert_eq!(scored(json!({"gold": []}), &["a"], 1), None);
        let score =
            scored(json!({"gold": ["b"], "history": [{"role": "user", "content": "早"}]}), &["a", "b"], 9).unwrap();
        assert_eq!((score.shortlist_size, score.shortlist_hit, score.has_history), (2, 1.0, true));
        assert_eq!(scored(json!({"gold": ["b"]}), &["a", "b"], 1).unwrap().shortlist_hit, 0.0);
    }
}
