//! Whether one answer is right for one row.
//!
//! Owns: the right tool, exact arguments, and whether asking or declining was called for.
//! Does not know: the router; tools are named as the labels name them.

use serde_json::Value;

use super::rows::{Arguments, Kind, Row};
use super::score_args::{arguments_equal, arguments_right};

/// One call of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    pub tool: String,
    pub arguments: Arguments,
    /// Schema of the called tool.
    pub schema: Value,
}

/// What the router answered, reduced to what is scored.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    Calls(Vec<Call>),
    Clarify {
        tool: Option<String>,
    },
    NoTool,
    Handoff,
    /// No decision: refused, late or broken.
    Failed,
}

impl Answer {
    /// The tool of the first call, or the one a question names.
    pub fn tool(&self) -> Option<&str> {
        match self {
            Self::Calls(calls) => calls.first().map(|call| call.tool.as_str()),
            Self::Clarify { tool } => tool.as_deref(),
            Self::NoTool | Self::Handoff | Self::Failed => None,
        }
    }
}

/// One yes-or-no question: what the label says and what the router did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    pub wanted: bool,
    pub done: bool,
}

/// Calls of a row that wants several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallsFound {
    pub wanted: usize,
    /// Wanted calls that were made with right arguments.
    pub right: usize,
    /// All wanted calls and no other.
    pub complete: bool,
}

/// `None` where the row does not count for a figure.
#[derive(Debug, Clone, PartialEq)]
pub struct RouteScore {
    pub top1: Option<bool>,
    pub arguments: Option<bool>,
    pub by_tool: Option<CallsFound>,
    pub clarify: Option<Verdict>,
    pub no_tool: Verdict,
    /// As the router states it, in `[0, 1]`; 0 without a decision.
    pub confidence: f64,
}

pub fn score(row: &Row, answer: &Answer, confidence: f64) -> RouteScore {
    RouteScore {
        top1: top1(row, answer),
        arguments: arguments(row, answer),
        by_tool: by_tool(row, answer),
        clarify: match row.kind {
            Kind::Ambiguous => None,
            Kind::Single | Kind::Multi => {
                Some(Verdict { wanted: !row.missing.is_empty(), done: matches!(answer, Answer::Clarify { .. }) })
            }
        },
        no_tool: Verdict { wanted: row.gold.is_empty(), done: *answer == Answer::NoTool },
        confidence,
    }
}

fn top1(row: &Row, answer: &Answer) -> Option<bool> {
    if row.gold.is_empty() || row.kind == Kind::Multi {
        return None;
    }
    let open_question = row.kind == Kind::Ambiguous && matches!(answer, Answer::Clarify { tool: None });
    Some(open_question || answer.tool().is_some_and(|tool| row.accepts(tool)))
}

fn arguments(row: &Row, answer: &Answer) -> Option<bool> {
    if row.gold.len() != 1 || row.args.is_none() || !row.missing.is_empty() {
        return None;
    }
    Some(match answer {
        Answer::Calls(calls) => match calls.as_slice() {
            [call] => row.accepts(&call.tool) && arguments_right(row, &call.arguments, &call.schema),
            // One call was wanted; a second one does something nobody asked for.
            _ => false,
        },
        Answer::Clarify { .. } | Answer::NoTool | Answer::Handoff | Answer::Failed => false,
    })
}

fn by_tool(row: &Row, answer: &Answer) -> Option<CallsFound> {
    let wanted = row.args_by_tool.as_ref().filter(|_| row.kind == Kind::Multi)?;
    let mut open: Vec<&Call> = match answer {
        Answer::Calls(calls) => calls.iter().collect(),
        Answer::Clarify { .. } | Answer::NoTool | Answer::Handoff | Answer::Failed => Vec::new(),
    };
    let made = open.len();
    let mut found = CallsFound { wanted: 0, right: 0, complete: false };
    for (tool, gold) in wanted.iter().flat_map(|(tool, calls)| calls.iter().map(move |gold| (tool, gold))) {
        found.wanted += 1;
        let fits = |call: &&Call| call.tool == *tool && arguments_equal(row, gold, &call.arguments, &call.schema);
        if let Some(at) = open.iter().position(fits) {
            open.remove(at);
            found.right += 1;
        }
    }
    found.complete = found.right == found.wanted && made == found.wanted;
    Some(found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::rows::row;
    use super::*;

    fn label(label: Value) -> Row {
        let mut full = json!({"query": "查一下 SO-1 and SO-2"});
        full.as_object_mut().unwrap().extend(label.as_object().unwrap().clone());
        row(full)
    }

    fn call(tool: &str, arguments: Value) -> Call {
        Call { tool: tool.into(), arguments: arguments.as_object().unwrap().clone(), schema: json!({}) }
    }

    fn calls(tool: &str) -> Answer {
        Answer::Calls(vec![call(tool, json!({}))])
    }

    fn asks(tool: Option<&str>) -> Answer {
        Answer::Clarify { tool: tool.map(Into::into) }
    }

    #[track_caller]
    fn check_top1(row: Value, answer: &Answer, expect: Option<bool>) {
        assert_eq!(score(&label(row), answer, 0.5).top1, expect);
    }

    #[test]
    fn the_right_tool_may_be_called_or_asked_about() {
        let single = json!({"gold": ["a"], "also_ok": ["a__2"]});
        check_top1(single.clone(), &calls("a"), Some(true));
        check_top1(single.clone(), &calls("a__2"), Some(true));
        check_top1(single.clone(), &asks(Some("a")), Some(true));
        check_top1(single.clone(), &calls("b"), Some(false));
        for answer in [asks(None), Answer::NoTool, Answer::Handoff, Answer::Failed] {
            check_top1(single.clone(), &answer, Some(false));
        }
        check_top1(json!({"gold": ["a"], "kind": "multi"}), &calls("a"), None);
        check_top1(json!({"gold": []}), &Answer::NoTool, None);
    }

    #[test]
    fn an_ambiguous_row_takes_any_of_its_tools_or_an_open_question() {
        let row = json!({"gold": ["a", "b"], "kind": "ambiguous"});
        check_top1(row.clone(), &calls("b"), Some(true));
        check_top1(row.clone(), &asks(None), Some(true));
        check_top1(row.clone(), &asks(Some("c")), Some(false));
        check_top1(row.clone(), &Answer::NoTool, Some(false));
        assert_eq!(score(&label(row), &asks(None), 0.5).clarify, None);
    }

    #[track_caller]
    fn check_arguments(row: Value, answer: &Answer, expect: Option<bool>) {
        assert_eq!(score(&label(row), answer, 0.5).arguments, expect);
    }

    #[test]
    fn arguments_count_for_one_tool_with_nothing_missing() {
        let row = json!({"gold": ["a"], "also_ok": ["b"], "args": {"order_id": "SO-1"}});
        let right = call("a", json!({"order_id": "SO-1"}));
        check_arguments(row.clone(), &Answer::Calls(vec![right.clone()]), Some(true));
        check_arguments(row.clone(), &Answer::Calls(vec![call("b", json!({"order_id": "SO-1"}))]), Some(true));
        check_arguments(row.clone(), &Answer::Calls(vec![call("c", json!({"order_id": "SO-1"}))]), Some(false));
        check_arguments(row.clone(), &Answer::Calls(vec![call("a", json!({"order_id": "SO-2"}))]), Some(false));
        check_arguments(row.clone(), &Answer::Calls(vec![right.clone(), right]), Some(false));
        check_arguments(row, &asks(Some("a")), Some(false));
        check_arguments(json!({"gold": ["a"], "args": {}}), &calls("a"), Some(true));
        check_arguments(json!({"gold": ["a"], "args": null}), &calls("a"), None);
        check_arguments(json!({"gold": ["a", "b"], "args": {}, "kind": "ambiguous"}), &calls("a"), None);
        check_arguments(json!({"gold": ["a"], "args": {}, "missing": ["order_id"]}), &asks(Some("a")), None);
    }

    #[test]
    fn asking_and_declining_are_judged_apart() {
        let verdicts = |row: Value, answer: &Answer| {
            let score = score(&label(row), answer, 0.5);
            (score.clarify.unwrap(), score.no_tool)
        };
        let verdict = |wanted, done| Verdict { wanted, done };
        let missing = json!({"gold": ["a"], "missing_args": ["order_id "]});
        assert_eq!(verdicts(missing.clone(), &asks(Some("a"))), (verdict(true, true), verdict(false, false)));
        assert_eq!(verdicts(missing, &Answer::NoTool), (verdict(true, false), verdict(false, true)));
        let none = json!({"gold": []});
        assert_eq!(verdicts(none.clone(), &Answer::NoTool), (verdict(false, false), verdict(true, true)));
        assert_eq!(verdicts(none.clone(), &asks(None)), (verdict(false, true), verdict(true, false)));
        assert_eq!(verdicts(none, &Answer::Handoff), (verdict(false, false), verdict(true, false)));
    }

    #[test]
    fn several_wanted_calls_are_matched_one_by_one() {
        let row =
            label(json!({"gold": ["a"], "kind": "multi", "args_by_tool": {"a": [{"id": "SO-1"}, {"id": "SO-2"}]}}));
        let found = |ids: &[&str]| {
            let made = ids.iter().map(|id| call("a", json!({"id": id}))).collect();
            let found = score(&row, &Answer::Calls(made), 0.5).by_tool.unwrap();
            (found.wanted, found.right, found.complete)
        };
        assert_eq!(found(&["SO-2", "SO-1"]), (2, 2, true));
        assert_eq!(found(&["SO-1"]), (2, 1, false));
        assert_eq!(found(&["SO-1", "SO-1"]), (2, 1, false));
        assert_eq!(found(&["SO-1", "SO-2", "SO-3"]), (2, 2, false));
        assert_eq!(score(&row, &Answer::NoTool, 0.5).by_tool.unwrap().right, 0);
    }
}
