//! The whole run against a scripted router: which requests it gets and what comes out.

use std::collections::BTreeMap;
use std::sync::Mutex;

use serde_json::{Value, json};

use super::run::{RowScore, Scored, Subject};
use super::tools::tests::registry;
use super::*;
use crate::decision::{
    ClarifyOutcome, DecidedBy, Decision, Degraded, NoToolReason, Outcome, PlannedCall, TokenUse, Trace,
};
use crate::pipeline::{Ranking, RouteError, RouteRequest};
use crate::text::Language;
use crate::tool::SideEffect;
use crate::types::{Candidate, Confidence, DecisionId, IndexKind, Score, Signal, ToolId};

const TOOLS: [(&str, &str); 3] = [("refund", "refund"), ("track", "track"), ("faq", "faq")];

/// Ranks in the order of its tools and follows one wish per utterance: a tool to call, `ask`, `none` or `fail`.
#[derive(Default)]
struct Scripted {
    wishes: BTreeMap<&'static str, &'static str>,
    requests: Mutex<Vec<RouteRequest>>,
}

impl Subject for Scripted {
    async fn rank(&self, request: &RouteRequest) -> Result<Ranking, RouteError> {
        let allowed = |id: &str| request.narrowing.tools.is_empty() || request.narrowing.tools.iter().any(|t| t == id);
        let candidate = |id: &str| Candidate {
            tool: ToolId::new(id),
            score: Score::new(1.0),
            signals: [(Signal::Lexical, 1.0)].into(),
        };
        let candidates: Vec<Candidate> =
            TOOLS.iter().filter(|(id, _)| allowed(id)).map(|(id, _)| candidate(id)).collect();
        Ok(Ranking { shortlist: candidates.len().min(2), candidates })
    }

    async fn route(&self, request: RouteRequest) -> Result<Decision, RouteError> {
        let wish = self.wishes.get(request.utterance.as_str()).copied().unwrap_or("none");
        self.requests.lock().unwrap().push(request);
        let outcome = match wish {
            "fail" => return Err(RouteError::Overloaded),
            "none" => Outcome::NoTool { reason: NoToolReason::NothingFits },
            "ask" => Outcome::Clarify(ClarifyOutcome {
                tool: None,
                arguments: serde_json::Map::new(),
                missing: Vec::new(),
                question: "?".into(),
                pending: None,
            }),
            tool => Outcome::Call { calls: vec![planned(tool)] },
        };
        Ok(decision(outcome))
    }
}

fn planned(tool: &str) -> PlannedCall {
    PlannedCall {
        tool: ToolId::new(tool),
        tool_version: String::new(),
        arguments: serde_json::Map::new(),
        origins: Default::default(),
        side_effect: SideEffect::Read,
        needs_confirmation: false,
        notices: Vec::new(),
    }
}

fn decision(outcome: Outcome) -> Decision {
    Decision {
        id: DecisionId::generate(),
        catalog_version: String::new(),
        index: IndexKind::Exact,
        language: Language::En,
        outcome,
        decided_by: DecidedBy::Local,
        confidence: Confidence::new(0.75),
        degraded: [Degraded::LexicalOnly].into(),
        candidates: Vec::new(),
        timings: BTreeMap::new(),
        tokens: TokenUse::default(),
        trace: Trace::default(),
        trace_id: String::new(),
    }
}

fn set() -> Vec<Row> {
    [
        json!({"id": "1", "query": "退款", "gold": ["refund"], "args": {}}),
        json!({"id": "2", "query": "where is my parcel", "gold": ["track"], "args": {"id": "SF-1"}}),
        json!({"id": "3", "query": "你好", "gold": []}),
        json!({"id": "4", "query": "钱和快递", "gold": ["refund", "track"], "kind": "multi",
               "args_by_tool": {"refund": [{}], "track": [{}]}}),
        json!({"id": "5", "query": "track it", "gold": ["track"], "missing": ["id"],
               "history": [{"role": "user", "content": "hello"}], "candidates": ["faq", "track"]}),
        json!({"id": "6", "query": "问一下", "gold": ["faq", "track"], "kind": "ambiguous"}),
        json!({"id": "7", "query": "nothing here", "gold": [], "candidates": []}),
    ]
    .map(rows::row)
    .to_vec()
}

fn scripted() -> Scripted {
    let wishes = [
        ("退款", "refund"),
        ("where is my parcel", "faq"),
        ("钱和快递", "refund"),
        ("track it", "ask"),
        ("问一下", "ask"),
        ("nothing here", "fail"),
    ];
    Scripted { wishes: wishes.into(), ..Scripted::default() }
}

async fn score(subject: &Scripted, rows: &[Row], stage: Stage, candidates: bool) -> Report {
    let tools = Tools::new(&registry(&TOOLS), &BTreeMap::new(), rows);
    let scored = Runner { subject, tools: &tools, stage, candidates, baselines: None }.run(rows, &|_| ()).await;
    Report::new(stage, tools.count(), LeftOutCounts::new(), scored, Vec::new())
}

#[tokio::test]
async fn route_figures_follow_the_rules() {
    let report = score(&scripted(), &set(), Stage::Route, false).await.to_json();
    assert_eq!((&report["queries"], &report["tools"], &report["failed_requests"]), (&json!(7), &json!(3), &json!(1)));
    // Rows 1, 2, 5 and 6 count; 1 is right and so is the open question on 6.
    assert_eq!((&report["top1"], &report["rows"]["top1"]), (&json!(0.5), &json!(4)));
    assert_eq!((&report["arguments_exact"], &report["rows"]["arguments_exact"]), (&json!(0.5), &json!(2)));
    assert_eq!(report["no_tool"], json!({"precision": 1.0, "recall": 0.5}));
    assert_eq!(report["clarify"], json!({"precision": 1.0, "recall": 1.0}));
    assert_eq!(report["args_by_tool"], json!({"calls": 0.5, "complete": 0.0}));
    assert!((report["calibration"]["ece"].as_f64().unwrap() - 0.25).abs() < 1e-9);
    assert_eq!((&report["decided_by"], &report["degraded"]), (&json!({"local": 6}), &json!({"lexical_only": 6})));
    assert!(report["notices"][0].as_str().unwrap().contains("the first: 7: too many requests"), "{report}");
    assert!(report["latency_ms"]["p99"].is_number());
}

#[tokio::test]
async fn recall_counts_rows_with_gold_and_leaves_out_history_where_asked() {
    let report = score(&Scripted::default(), &set(), Stage::Prefilter, false).await.to_json();
    // Ranking: refund, track, faq. Gold at rank 1, 2, (1 and 2 of two), 2, 2.
    assert_eq!(report["recall"], json!({"1": 0.3, "3": 1.0, "5": 1.0, "8": 1.0, "10": 1.0}));
    assert_eq!(report["recall_without_history"]["1"], json!(0.375));
    assert_eq!(report["mrr"], json!(0.7));
    assert_eq!(report["shortlist"], json!({"mean_size": 2.0, "hit_rate": 1.0}));
    assert_eq!(report.get("top1"), None);
    assert_eq!(report["intervals"]["recall"]["3"], json!([1.0, 1.0]));
    assert_eq!(report["rows"]["mrr"], json!(5));
}

#[tokio::test]
async fn candidates_narrow_the_request_and_none_means_no_request() {
    let subject = scripted();
    let report = score(&subject, &set(), Stage::Route, true).await;
    let requests = subject.requests.lock().unwrap();
    let narrowed: Vec<&[String]> = requests.iter().map(|request| request.narrowing.tools.as_slice()).collect();
    assert_eq!(narrowed.len(), 6);
    assert_eq!(narrowed.iter().filter(|tools| !tools.is_empty()).copied().collect::<Vec<_>>(), [["faq", "track"]]);
    assert!(requests.iter().all(|request| request.no_cache && request.max_calls == 0));
    assert_eq!(report.failed_requests, 0);
    assert_eq!(report.to_json()["no_tool"]["recall"], json!(1.0));
    assert!(
        report.notices.iter().any(|notice| notice.contains("1 rows have no eligible tool")),
        "{:?}",
        report.notices
    );
}

/// Everything but the measured times.
fn figures(report: &Report) -> (Value, String) {
    let timeless = Report { latency: Latency::default(), ..report.clone() };
    (timeless.to_json(), timeless.to_text())
}

#[tokio::test]
async fn with_the_answer_hidden_only_no_tool_is_right() {
    let both: Vec<Row> = set().into_iter().chain(twins(&set())).collect();
    let subject = scripted();
    let report = score(&subject, &both, Stage::Route, false).await.to_json();
    let requests = subject.requests.into_inner().unwrap();
    let narrowed: Vec<&[String]> =
        requests.iter().map(|request| request.narrowing.tools.as_slice()).filter(|tools| !tools.is_empty()).collect();
    // In the order of the rows: 退款, parcel, both, track it, 问一下; an open question is no abstaining.
    assert_eq!(narrowed, [&["faq", "track"][..], &["faq", "refund"], &["faq"], &["faq", "refund"], &["refund"]]);
    assert_eq!(report["abstain"], json!({"precision": 1.0, "recall": 1.0 / 7.0, "hidden_answer_recall": 0.0}));
    assert_eq!((&report["rows"]["abstain"]["recall"], &report["queries"]), (&json!(7), &json!(12)));
    assert_eq!(report["no_tool"]["recall"], report["abstain"]["recall"]);
    // What asks for a right tool does not change.
    let plain = score(&scripted(), &set(), Stage::Route, false).await.to_json();
    assert_eq!((&report["top1"], &report["arguments_exact"]), (&plain["top1"], &plain["arguments_exact"]));
    assert_eq!(plain.get("abstain"), None);

    let silent = score(&Scripted::default(), &both, Stage::Route, false).await.to_json();
    assert_eq!(silent["abstain"], json!({"precision": 7.0 / 12.0, "recall": 1.0, "hidden_answer_recall": 1.0}));
    let narrowed = score(&Scripted::default(), &both, Stage::Route, true).await.to_json();
    assert_eq!(narrowed["abstain"]["recall"], json!(1.0), "row 5 has one tool left");
}

#[tokio::test]
async fn row_order_changes_no_figure() {
    for stage in [Stage::Prefilter, Stage::Route] {
        let expect = figures(&score(&scripted(), &set(), stage, false).await);
        for turn in 1..7 {
            let mut rows = set();
            rows.rotate_left(turn);
            rows.swap(0, 3);
            assert_eq!(figures(&score(&scripted(), &rows, stage, false).await), expect);
        }
    }
}

#[tokio::test]
async fn the_table_shows_value_interval_and_rows() {
    let text = score(&scripted(), &set(), Stage::Route, false).await.to_text();
    let line = text.lines().find(|line| line.starts_with("recall 3 ")).unwrap();
    assert_eq!(line.split_whitespace().collect::<Vec<_>>(), ["recall", "3", "100.0", "100.0", "to", "100.0", "5"]);
    assert!(text.starts_with("stage route   queries 7   tools 3\n"), "{text}");
    assert!(text.contains("decided by: local 6\n") && text.contains("latency ms   p50 "), "{text}");
}

#[test]
fn a_run_without_a_single_answer_is_a_failure() {
    let failed = Scored { failed_requests: 2, ..Scored::default() };
    assert!(failed.all_failed());
    assert!(!Scored { answered: 1, ..failed }.all_failed());
    assert!(!Scored { rows: vec![RowScore::default()], ..Scored::default() }.all_failed());
}

#[test]
fn bad_input_is_told_from_a_failed_run() {
    let nothing = EvalError::NothingToScore { path: "q.jsonl".into(), left_out: [(plan::LeftOut::AnyCall, 2)].into() };
    assert_eq!(nothing.to_string(), "q.jsonl: no row can be scored (left out: any_call 2)");
    assert!(nothing.is_input());
    assert!(!EvalError::AllFailed { first: "1: late".into() }.is_input());
    assert!(EvalError::Start(StartError::Llm("x".into())).is_input());
}
