//! An answer as text or JSON: the one place that knows the shape, for answers made here and answers from a server.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use pointsman::server::proto::route_response::Outcome;
use pointsman::server::proto::{Candidate, PlannedCall, RouteResponse};
use serde::Serialize;
use serde_json::Value;

/// Keys are always present, `null` when unused. Scripts rely on it: keys are added, never renamed or removed.
#[derive(Serialize)]
struct Answer {
    decision_id: String,
    catalog_version: String,
    index: String,
    outcome: OutcomeView,
    decided_by: String,
    confidence: f64,
    degraded: Vec<String>,
    candidates: Vec<CandidateView>,
    timings_ms: BTreeMap<String, f64>,
    tokens: TokensView,
    /// For people: the rule that fired.
    #[serde(skip)]
    rule: String,
}

#[derive(Serialize, Default)]
struct OutcomeView {
    kind: &'static str,
    tool: Option<String>,
    arguments: Option<Value>,
    calls: Vec<CallView>,
    missing: Vec<String>,
    question: Option<String>,
    pending: Option<String>,
    reason: Option<String>,
    message: Option<String>,
}

#[derive(Serialize)]
struct CallView {
    tool: String,
    arguments: Value,
    side_effect: String,
    needs_confirmation: bool,
    origins: BTreeMap<String, String>,
    notices: Vec<String>,
}

#[derive(Serialize)]
struct CandidateView {
    tool: String,
    score: f64,
    signals: BTreeMap<String, f64>,
}

#[derive(Serialize, Default)]
struct TokensView {
    prompt: u32,
    completion: u32,
}

/// One line of JSON.
pub fn json(response: RouteResponse) -> String {
    serde_json::to_string(&Answer::from(response)).expect("strings, numbers and JSON values are JSON") + "\n"
}

/// For people.
pub fn text(response: RouteResponse) -> String {
    let answer = Answer::from(response);
    let mut text = String::new();
    let outcome = &answer.outcome;
    let mut line = |label: &str, value: &str| {
        if !value.is_empty() {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{label:<12} {value}");
        }
    };
    line("outcome", outcome.kind);
    for call in &outcome.calls {
        line("tool", &call.tool);
        line("arguments", &call.arguments.to_string());
        let origins: Vec<_> = call.origins.iter().map(|(name, origin)| format!("{name} from {origin}")).collect();
        line("origins", &origins.join(", "));
        let confirmation = if call.needs_confirmation { ", needs confirmation" } else { "" };
        line("side effect", &format!("{}{confirmation}", call.side_effect));
        line("notices", &call.notices.join("; "));
    }
    if outcome.calls.is_empty() {
        line("tool", outcome.tool.as_deref().unwrap_or_default());
        line("arguments", &outcome.arguments.as_ref().map(Value::to_string).unwrap_or_default());
    }
    line("missing", &outcome.missing.join(", "));
    line("question", outcome.question.as_deref().unwrap_or_default());
    line("pending", outcome.pending.as_deref().unwrap_or_default());
    line("reason", outcome.reason.as_deref().unwrap_or_default());
    line("message", outcome.message.as_deref().unwrap_or_default());
    line("confidence", &format!("{:.2}, decided by {}", answer.confidence, answer.decided_by));
    line("rule", &answer.rule);
    line("degraded", &answer.degraded.join(", "));
    let candidates: Vec<_> =
        answer.candidates.iter().map(|candidate| format!("{} {:.2}", candidate.tool, candidate.score)).collect();
    line("candidates", &candidates.join(", "));
    let total = answer.timings_ms.get("total").copied().unwrap_or_default();
    line("time", &format!("{total:.1} ms, {} index, catalog {}", answer.index, answer.catalog_version));
    text
}

impl From<RouteResponse> for Answer {
    fn from(response: RouteResponse) -> Self {
        let tokens = response.tokens.unwrap_or_default();
        Self {
            decision_id: response.decision_id,
            catalog_version: response.catalog_version,
            index: response.index,
            outcome: response.outcome.map(OutcomeView::from).unwrap_or_default(),
            decided_by: response.decided_by,
            confidence: response.confidence,
            degraded: response.degraded,
            candidates: response.candidates.into_iter().map(CandidateView::from).collect(),
            timings_ms: response.timings_ms,
            tokens: TokensView { prompt: tokens.prompt, completion: tokens.completion },
            rule: response.trace.map(|trace| trace.rule).unwrap_or_default(),
        }
    }
}

impl From<Outcome> for OutcomeView {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Call(call) => {
                let calls: Vec<_> = call.calls.into_iter().map(CallView::from).collect();
                let first = calls.first().map(|call| (call.tool.clone(), call.arguments.clone()));
                let (tool, arguments) = first.unzip();
                Self { kind: "call", tool, arguments, calls, ..Self::default() }
            }
            Outcome::Clarify(clarify) => {
                let tool = given(clarify.tool);
                Self {
                    kind: "clarify",
                    // What is known already belongs to a tool; without one there is nothing to fill.
                    arguments: tool.is_some().then(|| arguments(&clarify.arguments_json)),
                    tool,
                    missing: clarify.missing,
                    question: given(clarify.question),
                    pending: given(clarify.pending),
                    ..Self::default()
                }
            }
            Outcome::NoTool(none) => Self { kind: "no_tool", reason: given(none.reason), ..Self::default() },
            Outcome::Handoff(handoff) => Self {
                kind: "handoff",
                reason: given(handoff.reason),
                message: given(handoff.message),
                ..Self::default()
            },
        }
    }
}

impl From<PlannedCall> for CallView {
    fn from(call: PlannedCall) -> Self {
        Self {
            arguments: arguments(&call.arguments_json),
            tool: call.tool,
            side_effect: call.side_effect,
            needs_confirmation: call.needs_confirmation,
            origins: call.origins,
            notices: call.notices,
        }
    }
}

impl From<Candidate> for CandidateView {
    fn from(candidate: Candidate) -> Self {
        Self { tool: candidate.tool, score: candidate.score, signals: candidate.signals }
    }
}

/// Protobuf has no absent strings.
fn given(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

/// From the text rather than the struct, whose numbers are doubles.
fn arguments(json: &str) -> Value {
    serde_json::from_str(json).unwrap_or(Value::Null)
}

#[cfg(test)]
mod tests {
    use pointsman::server::proto;
    use serde_json::json;

    use super::*;

    fn response(outcome: Outcome) -> RouteResponse {
        RouteResponse { outcome: Some(outcome), decided_by: "local".into(), ..RouteResponse::default() }
    }

    fn parsed(outcome: Outcome) -> Value {
        serde_json::from_str(&json(response(outcome))).unwrap()
    }

    fn outcomes() -> [Outcome; 4] {
        let call = PlannedCall {
            tool: "get_order".into(),
            arguments_json: r#"{"order_id":"SO-1","n":9007199254740993}"#.into(),
            side_effect: "read".into(),
            ..PlannedCall::default()
        };
        [
            Outcome::Call(proto::Call { calls: vec![call] }),
            Outcome::Clarify(proto::Clarify { question: "哪一个订单？".into(), ..proto::Clarify::default() }),
            Outcome::NoTool(proto::NoTool { reason: "nothing_fits".into() }),
            Outcome::Handoff(proto::Handoff { reason: "fuse_blown".into(), message: "已转人工。".into() }),
        ]
    }

    #[test]
    fn keys_are_always_present() {
        for outcome in outcomes() {
            let answer = parsed(outcome);
            let keys =
                |value: &Value| value.as_object().unwrap().keys().cloned().collect::<std::collections::BTreeSet<_>>();
            let expect = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect();
            assert_eq!(
                keys(&answer),
                expect(&[
                    "decision_id",
                    "catalog_version",
                    "index",
                    "outcome",
                    "decided_by",
                    "confidence",
                    "degraded",
                    "candidates",
                    "timings_ms",
                    "tokens",
                ])
            );
            let outcome = ["kind", "tool", "arguments", "calls", "missing", "question", "pending", "reason", "message"];
            assert_eq!(keys(&answer["outcome"]), expect(&outcome));
            assert_eq!(answer["tokens"], json!({"prompt": 0, "completion": 0}));
        }
    }

    #[test]
    fn what_is_unused_is_null_and_integers_are_exact() {
        let [call, clarify, no_tool, handoff] = outcomes().map(|outcome| parsed(outcome)["outcome"].take());
        assert_eq!(call["tool"], "get_order");
        assert_eq!(call["arguments"]["n"], 9_007_199_254_740_993_u64);
        assert_eq!(call["calls"][0]["origins"], json!({}));
        assert_eq!((&call["question"], &call["reason"]), (&Value::Null, &Value::Null));
        assert_eq!(
            (&clarify["tool"], &clarify["arguments"], &clarify["pending"]),
            (&Value::Null, &Value::Null, &Value::Null)
        );
        assert_eq!(no_tool["reason"], "nothing_fits");
        assert_eq!((&handoff["kind"], &handoff["message"]), (&json!("handoff"), &json!("已转人工。")));
    }

    #[test]
    fn text_shows_what_matters() {
        let [call, clarify, _, handoff] = outcomes();
        assert!(text(response(handoff)).contains("message      已转人工。\n"));
        let shown = text(response(call));
        assert!(shown.contains("tool         get_order\n") && !shown.contains("question"), "{shown}");
        assert!(text(response(clarify)).contains("question     哪一个订单？\n"));
    }
}
