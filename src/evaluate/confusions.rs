//! Wrong choices, grouped by the tool that was wanted and what was chosen instead.
//!
//! Owns: which rows count as a wrong choice, grouping, the bounds of the list.
//! Does not know: why a choice was wrong; arguments are scored elsewhere.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use super::rows::{Kind, Row};
use super::score_route::Answer;

/// Sentences kept for one pair.
const MAX_SENTENCES: usize = 20;
/// Pairs listed; the total still counts all.
const MAX_PAIRS: usize = 200;
/// Characters of a sentence that are shown.
const SENTENCE_CHARS: usize = 200;

/// What the router did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Did {
    /// Called a tool or asked about one.
    Tool,
    /// Asked without naming a tool.
    Question,
    NoTool,
    Handoff,
    Failed,
}

impl Did {
    fn as_str(self) -> &'static str {
        match self {
            Self::Tool => "a tool",
            Self::Question => "a question without a tool",
            Self::NoTool => "no tool",
            Self::Handoff => "handoff",
            Self::Failed => "failed request",
        }
    }
}

/// One row whose choice was wrong.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Wrong {
    gold: Option<String>,
    chosen: Option<String>,
    did: Did,
    id: String,
    query: String,
}

/// A sentence behind a pair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Sentence {
    pub id: String,
    pub query: String,
}

/// What was wanted, what was chosen, how often, and by which sentences.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pair {
    /// `None`: no tool was wanted. Of several right tools the first of the label.
    pub gold: Option<String>,
    /// `None` where `did` names no tool.
    pub chosen: Option<String>,
    pub did: Did,
    pub count: usize,
    /// In the order of their ids, at most 20.
    pub sentences: Vec<Sentence>,
}

/// Wrong choices of one run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Confusions {
    /// Rows whose choice was wrong.
    pub wrong: usize,
    /// Rows whose choice was judged.
    pub judged: usize,
    /// Most frequent first, then by name; at most 200.
    pub pairs: Vec<Pair>,
}

/// Judges the choice of one row: `None` when it is right.
pub(super) fn wrong(row: &Row, answer: &Answer) -> Option<Wrong> {
    let chosen = answer.tool();
    let did = match answer {
        Answer::Calls(_) => Did::Tool,
        Answer::Clarify { tool: Some(_) } => Did::Tool,
        Answer::Clarify { tool: None } => Did::Question,
        Answer::NoTool => Did::NoTool,
        Answer::Handoff => Did::Handoff,
        Answer::Failed => Did::Failed,
    };
    let right = match chosen {
        Some(tool) => row.accepts(tool),
        None if row.gold.is_empty() => did == Did::NoTool,
        None => row.kind == Kind::Ambiguous && did == Did::Question,
    };
    (!right).then(|| Wrong {
        gold: row.gold.first().cloned(),
        chosen: chosen.map(str::to_owned),
        did,
        id: row.id.clone(),
        query: row.query.chars().take(SENTENCE_CHARS).collect(),
    })
}

impl Confusions {
    /// Groups the wrong rows of `judged` ones; their order does not matter.
    pub(super) fn of(mut wrong: Vec<Wrong>, judged: usize) -> Self {
        wrong.sort();
        let total = wrong.len();
        let mut groups: BTreeMap<_, Pair> = BTreeMap::new();
        for Wrong { gold, chosen, did, id, query } in wrong {
            let pair = groups.entry((gold.clone(), chosen.clone(), did)).or_insert_with(|| Pair {
                gold,
                chosen,
                did,
                count: 0,
                sentences: Vec::new(),
            });
            pair.count += 1;
            if pair.sentences.len() < MAX_SENTENCES {
                pair.sentences.push(Sentence { id, query });
            }
        }
        let mut pairs: Vec<Pair> = groups.into_values().collect();
        // Groups come by name, and the sort is stable.
        pairs.sort_by_key(|pair| std::cmp::Reverse(pair.count));
        pairs.truncate(MAX_PAIRS);
        Self { wrong: total, judged, pairs }
    }

    pub(super) fn write_text(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "\nwrong choices: {} of {} rows", self.wrong, self.judged)?;
        for pair in &self.pairs {
            let gold = pair.gold.as_deref().unwrap_or("(no tool)");
            let chosen = pair.chosen.clone().unwrap_or_else(|| format!("({})", pair.did.as_str()));
            writeln!(out, "{:>5}  {gold} -> {chosen}", pair.count)?;
            for Sentence { id, query } in &pair.sentences {
                writeln!(out, "{:>7}{id}  {}", "", query.split_whitespace().collect::<Vec<_>>().join(" "))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::rows::row;
    use super::super::score_route::Call;
    use super::*;

    fn label(id: usize, gold: &[&str], kind: &str) -> Row {
        row(json!({"id": id.to_string(), "query": format!("第{id}句 said"), "gold": gold, "kind": kind}))
    }

    fn calls(tool: &str) -> Answer {
        Answer::Calls(vec![Call { tool: tool.into(), arguments: Default::default(), schema: Value::Null }])
    }

    #[test]
    fn right_choices_are_no_confusion() {
        assert_eq!(wrong(&label(1, &["a"], "single"), &calls("a")), None);
        assert_eq!(wrong(&label(1, &["a"], "single"), &Answer::Clarify { tool: Some("a".into()) }), None);
        assert_eq!(wrong(&label(1, &[], "no_tool"), &Answer::NoTool), None);
        assert_eq!(wrong(&label(1, &["a", "b"], "ambiguous"), &Answer::Clarify { tool: None }), None);
        assert!(wrong(&label(1, &["a"], "single"), &Answer::Clarify { tool: None }).is_some());
        assert!(wrong(&label(1, &[], "no_tool"), &Answer::Handoff).is_some());
        assert!(wrong(&label(1, &["a", "b"], "multi"), &calls("c")).is_some());
    }

    #[test]
    fn pairs_are_counted_and_bounded_whatever_the_order() {
        let mut found: Vec<Wrong> =
            (0..30).filter_map(|id| wrong(&label(id, &["get_order"], "single"), &calls("track_shipment"))).collect();
        found.extend(wrong(&label(40, &[], "no_tool"), &calls("get_order")));
        found.extend(wrong(&label(41, &["get_order"], "single"), &Answer::NoTool));
        let report = Confusions::of(found.clone(), 99);
        found.reverse();
        assert_eq!(Confusions::of(found, 99), report);
        assert_eq!((report.wrong, report.judged, report.pairs.len()), (32, 99, 3));
        let first = &report.pairs[0];
        assert_eq!(
            (first.gold.as_deref(), first.chosen.as_deref(), first.count),
            (Some("get_order"), Some("track_shipment"), 30)
        );
        assert_eq!(first.sentences.len(), MAX_SENTENCES);
        let mut text = String::new();
        report.write_text(&mut text).unwrap();
        assert!(
            text.starts_with(
                "\nwrong choices: 32 of 99 rows\n   30  get_order -> track_shipment\n       0  第0句 said\n"
            ),
            "{text}"
        );
        assert!(text.contains("    1  (no tool) -> get_order\n       40  第40句 said\n"), "{text}");
        assert!(text.contains("    1  get_order -> (no tool)\n"), "{text}");
        assert_eq!(json!(report)["pairs"][1]["did"], "tool");
    }
}
