//! Validation and errors.

use pointsman::decision::{DecidedBy, Degraded, Outcome};
use pointsman::pipeline::RouteRequest;
use pointsman::types::{FieldProblem, ProblemCode, Role, Turn};
use serde_json::json;

use crate::support::scripted_llm::{ScriptedLlm, call, status};
use crate::support::shop::{Shop, called, request, the_question, uncached};

const ORDER: &str = "SO-20260418000736";

fn user(content: &str) -> Turn {
    Turn { role: Role::User, content: content.into() }
}

/// The turns after which a tool has failed with `error`, reported in one of the usual shapes.
fn failed(tool: &str, error: &serde_json::Value) -> Vec<Turn> {
    let body = json!({"tool": tool, "ok": false, "args": {"order_id": ORDER}, "error": error});
    vec![user("SO-20260418000736"), Turn { role: Role::Tool, content: body.to_string() }]
}

/// What the second question to the model, or the trace, says about calling `tool` again after it failed with `code`:
/// code, status, retryable, repairable, questions asked, and whether the very call went out again.
async fn again_after(tool: &str, code: &str) -> (String, String, bool, bool, usize, bool) {
    let llm = ScriptedLlm::start([call(tool, json!({"order_id": ORDER}))]).await;
    let shop = Shop::with_llm(&llm, WORDS_ALONE).await;
    let error = json!({"code": code, "message": "Traceback: no\nat orders.rs:12", "stack": "at orders.rs:12"});
    let history = failed(tool, &error);
    let decision = shop.ask(RouteRequest { history, ..uncached("SO-20260418000736 再看一下") }).await;
    let prompt = llm.requests()[0].to_string();
    assert!(prompt.contains(code) && !prompt.contains("orders.rs"), "the model reads the one error body: {prompt}");
    let repeated = match &decision.outcome {
        Outcome::Call { calls } => calls.iter().any(|call| call.tool.as_str() == tool),
        Outcome::Clarify(_) | Outcome::NoTool { .. } | Outcome::Handoff { .. } => false,
    };
    let problem = decision.trace.repairs.first().map(|repair| repair.problem.clone());
    let problem = problem.unwrap_or_else(|| pointsman::types::Problem::reported(&json!({"error": error})).unwrap());
    (problem.code.as_str().into(), problem.status, problem.retryable, problem.repairable, llm.calls(), repeated)
}

const WORDS_ALONE: &[(&str, &str)] = &[("prefilter.signals", "lexical")];

#[tokio::test]
async fn sb_082_an_error_has_a_stable_code() {
    // A missing field and an unknown tool are found here.
    let code = async |step, utterance: &str| {
        let llm = ScriptedLlm::start([step]).await;
        let decision = Shop::with_llm(&llm, WORDS_ALONE).await.route(utterance).await;
        serde_json::to_value(&decision.trace.repairs[0].problem.code).unwrap()
    };
    let untitled = call("change_invoice_title", json!({"order_id": ORDER}));
    assert_eq!(code(untitled, "SO-20260418000736的发票抬头写错了").await, "INVALID_ARGS");
    assert_eq!(code(call("launch_rocket", json!({})), "my parcel").await, "UNKNOWN_TOOL");
    // An unknown order and one that is too late are the tool's findings, and keep its codes.
    let (found, status, ..) = again_after("get_order", "ORDER_NOT_FOUND").await;
    assert_eq!((found.as_str(), status.as_str()), ("ORDER_NOT_FOUND", "not_found"));
    let (found, status, ..) = again_after("preview_cancel_order", "ORDER_ALREADY_SHIPPED").await;
    assert_eq!((found.as_str(), status.as_str()), ("ORDER_ALREADY_SHIPPED", "too_late"));
}

#[tokio::test]
async fn sb_085_an_error_says_whether_a_retry_makes_sense() {
    let rows = [
        // Not the same call, but other arguments: the model is told, and stops when it repeats itself.
        ("INVALID_ARGS", "bad_params", false, true, 2, false),
        ("ORDER_NOT_FOUND", "not_found", false, true, 2, false),
        // The same call may succeed now.
        ("TIMEOUT", "timeout", true, false, 1, true),
        // Neither: nobody is asked again.
        ("PERMISSION_DENIED", "permission_denied", false, false, 1, false),
        ("ORDER_ALREADY_SHIPPED", "too_late", false, false, 1, false),
    ];
    for (code, status, retryable, repairable, questions, repeated) in rows {
        let found = again_after("get_order", code).await;
        assert_eq!(found, (code.into(), status.into(), retryable, repairable, questions, repeated));
    }
}

#[tokio::test]
async fn sb_083_an_error_names_the_fields_at_fault() {
    let llm = ScriptedLlm::start([call("change_invoice_title", json!({"order_id": ORDER}))]).await;
    let shop = Shop::with_llm(&llm, &[]).await;
    let decision = shop.route("SO-20260418000736的发票抬头写错了").await;
    let problem = &decision.trace.repairs[0].problem;
    assert_eq!(problem.code, ProblemCode::InvalidArgs);
    let fields: Vec<&str> = problem.fields.iter().map(|field| field.path.as_str()).collect();
    assert_eq!(fields, ["/title"]);
    // What the model reads says the same.
    let messages = llm.requests()[1]["messages"].clone();
    let complaint = messages.as_array().unwrap().last().unwrap()["content"].as_str().unwrap();
    assert!(complaint.contains("title") && !complaint.contains("order_id"), "{complaint}");
    assert_eq!(the_question(&decision).missing, ["title"]);
}

#[tokio::test]
async fn sb_084_an_error_shows_the_form_and_an_example() {
    let llm = ScriptedLlm::start([call("get_order", json!({"order_id": "2026031"}))]).await;
    let shop = Shop::with_llm(&llm, &[]).await;
    let decision = shop.route("订单2026031付了多少").await;
    let field = &decision.trace.repairs[0].problem.fields[0];
    let expected = FieldProblem {
        path: "/order_id".into(),
        expected: "SO- and 14 digits".into(),
        example: Some("SO-20260418000736".into()),
    };
    assert_eq!(*field, expected);
    let messages = llm.requests()[1]["messages"].clone();
    let complaint = messages.as_array().unwrap().last().unwrap()["content"].as_str().unwrap();
    assert!(complaint.contains("SO- and 14 digits") && complaint.contains("SO-20260418000736"), "{complaint}");
}

#[tokio::test]
async fn sb_091_a_bad_format_ends_as_a_question_that_says_the_form() {
    let shop = Shop::start(&[]).await;
    let decision = shop.route("SO-20260418").await;
    let question = the_question(&decision);
    assert_eq!(question.missing, ["order_id"]);
    assert!(question.question.contains("SO- and 14 digits"), "{}", question.question);
    assert!(question.arguments.get("order_id").is_none(), "{question:?}");
}

#[tokio::test]
async fn sb_095_the_model_may_repair_twice() {
    let bad = |id: &str| call("get_order", json!({"order_id": id}));
    let script = [bad("SO-1"), bad("SO-2"), bad("SO-3"), bad("SO-4"), bad("SO-5")];
    let llm = ScriptedLlm::start(script).await;
    let shop = Shop::with_llm(&llm, &[("llm.max_attempts", "10")]).await;
    let decision = shop.route("我那个订单付了多少").await;
    assert_eq!((llm.calls(), decision.trace.llm_calls, decision.trace.repairs.len()), (3, 3, 3));
    let question = the_question(&decision);
    assert_eq!(question.tool.as_ref().unwrap().as_str(), "get_order");
    assert_eq!(question.missing, ["order_id"]);
}

#[tokio::test]
async fn sb_096_the_same_fault_again_and_what_cannot_be_cured_end_the_loop() {
    let llm = ScriptedLlm::start([call("get_order", json!({"order_id": "SO-1"}))]).await;
    let shop = Shop::with_llm(&llm, &[]).await;
    let decision = shop.route("SO-1 付了多少").await;
    assert_eq!((llm.calls(), decision.trace.repairs.len()), (2, 2), "the second answer is the first one again");
    assert_eq!(the_question(&decision).missing, ["order_id"]);

    let refusing = ScriptedLlm::start([status(401)]).await;
    let shop = Shop::with_llm(&refusing, &[("llm.max_attempts", "10")]).await;
    let decision = shop.route("SO-20260418000736 付了多少").await;
    assert_eq!(refusing.calls(), 1, "a refused key is not tried again");
    assert_eq!(called(&decision), format!(r#"get_order{{"fields":["amount"],"order_id":"{ORDER}"}}"#));
    assert_eq!(decision.decided_by, DecidedBy::Local);
    assert!(decision.degraded.contains(&Degraded::LlmUnavailable));
}

#[tokio::test]
async fn sb_097_a_missing_value_is_filled_from_the_conversation_or_asked_for() {
    let history = vec![user("SO-20260418000736 付了多少")];
    let filled = format!(r#"preview_cancel_order{{"order_id":"{ORDER}"}}"#);

    // The model leaves the field out first and names it after the complaint.
    let llm = ScriptedLlm::start([
        call("preview_cancel_order", json!({})),
        call("preview_cancel_order", json!({"order_id": ORDER})),
    ])
    .await;
    let shop = Shop::with_llm(&llm, &[]).await;
    let decision = shop.ask(RouteRequest { history: history.clone(), ..uncached("那就取消吧") }).await;
    assert_eq!(called(&decision), filled);
    assert_eq!(decision.trace.repairs[0].problem.fields[0].path, "/order_id");

    // Nothing to fill it from: the model repeats itself and the user is asked.
    let llm = ScriptedLlm::start([call("preview_cancel_order", json!({}))]).await;
    let shop = Shop::with_llm(&llm, &[]).await;
    let decision = shop.ask(uncached("那就取消吧")).await;
    assert_eq!(the_question(&decision).missing, ["order_id"]);
    assert!(the_question(&decision).question.contains("SO-20260418000736"), "{:?}", the_question(&decision));

    // The same without a model.
    let shop = Shop::start(&[]).await;
    let decision = shop.ask(RouteRequest { history, ..request("取消这个订单") }).await;
    assert_eq!(called(&decision), filled);
    let decision = shop.route("取消").await;
    assert!(matches!(decision.outcome, Outcome::Clarify(_)));
    assert_eq!(the_question(&decision).missing, ["order_id"]);
}
