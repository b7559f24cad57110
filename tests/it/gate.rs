//! The gate over the wire: a real server, a real SQLite file where it matters, a downstream that counts effects.

use pointsman::server::proto::authorize_response::Verdict as Authorized;
use pointsman::server::proto::complete_request::Outcome as Report;
use pointsman::server::proto::gate_client::GateClient;
use pointsman::server::proto::invoke_response::Verdict;
use pointsman::server::proto::{
    AuthorizeRequest, CallRecord, CompleteRequest, ConfirmRequest, InvokeRequest, LookupRequest, Outcome, Problem,
    Wish, complete_response, confirm_response,
};
use serde_json::{Value, json};
use tonic::Code;
use tonic::transport::Channel;

use crate::support::downstream::{Downstream, Fault, serve_at};

/// A wish in conversation `c1`.
pub fn wish(tool: &str, arguments: Value) -> Wish {
    Wish { tool: tool.into(), arguments_json: arguments.to_string(), session_id: "c1".into(), ..Wish::default() }
}

/// Invokes on a client of its own.
pub async fn invoke(gate: &GateClient<Channel>, wish: Wish) -> Verdict {
    let answer = gate.clone().invoke(InvokeRequest { wish: Some(wish) }).await.unwrap();
    answer.into_inner().verdict.unwrap()
}

#[track_caller]
pub fn ended(verdict: Verdict) -> (Outcome, Value) {
    match verdict {
        Verdict::Outcome(outcome) => {
            let result = serde_json::from_str(&outcome.result_json).unwrap();
            (outcome, result)
        }
        other => panic!("did not run: {other:?}"),
    }
}

#[track_caller]
pub fn refused(verdict: Verdict) -> Problem {
    match verdict {
        Verdict::Refused(problem) => problem,
        other => panic!("not refused: {other:?}"),
    }
}

pub fn state(outcome: &Outcome) -> &str {
    &outcome.call.as_ref().unwrap().state
}

async fn lookup(gate: &GateClient<Channel>, call_id: &str) -> CallRecord {
    let request = LookupRequest { call_id: call_id.into(), ..LookupRequest::default() };
    gate.clone().lookup(request).await.unwrap().into_inner().call.unwrap()
}

#[tokio::test]
async fn a_read_runs_straight_through_and_comes_back_shaped() {
    let downstream = Downstream::start().await;
    downstream.answer("/things/AB12", json!({"name": "茶壶", "internal_id": 7}));
    let (server, _cards) = serve_at(&downstream, None).await;
    let (outcome, result) = ended(invoke(&server.gate(), wish("read_thing", json!({"id": "AB12"}))).await);
    assert_eq!(state(&outcome), "succeeded");
    assert_eq!(result["ok"], true);
    assert_eq!(result["data"]["name"], "茶壶");
    assert!(result["data"].get("internal_id").is_none(), "{result}");
    assert_eq!(result["source"]["tool"], "read_thing");
    assert_eq!(downstream.seen()[0].key, None, "reads carry no key");
}

#[tokio::test]
async fn a_write_runs_once_and_is_replayed() {
    let downstream = Downstream::start().await;
    let (server, _cards) = serve_at(&downstream, None).await;
    let note = || wish("write_note", json!({"id": "AB12", "text": "放门口"}));
    let (first, result) = ended(invoke(&server.gate(), note()).await);
    assert!(!first.replayed && result["data"]["done"] == true, "{result}");
    let (again, same) = ended(invoke(&server.gate(), note()).await);
    assert!(again.replayed);
    assert_eq!(same, result);
    assert_eq!(downstream.effects("/notes"), 1);
    assert!(downstream.seen()[0].key.is_some(), "the tool gets a key of its own");
    // Another conversation may really want it once more.
    ended(invoke(&server.gate(), Wish { session_id: "c2".into(), ..note() }).await);
    assert_eq!(downstream.effects("/notes"), 2);
}

#[tokio::test]
async fn writes_need_a_conversation_and_a_key_belongs_to_its_arguments() {
    let downstream = Downstream::start().await;
    let (server, _cards) = serve_at(&downstream, None).await;
    let note = |text: &str| wish("write_note", json!({"id": "AB12", "text": text}));
    let problem = refused(invoke(&server.gate(), Wish { session_id: String::new(), ..note("x") }).await);
    assert_eq!(problem.code, "INVALID_REQUEST");
    let keyed = |text: &str| Wish { idempotency_key: "k-1".into(), ..note(text) };
    ended(invoke(&server.gate(), keyed("one")).await);
    let problem = refused(invoke(&server.gate(), keyed("two")).await);
    assert_eq!(problem.code, "IDEMPOTENCY_CONFLICT");
    assert_eq!(downstream.effects("/notes"), 1);
    let blank = Wish { idempotency_key: "k 1\r\nHost: x".into(), ..note("x") };
    let status = server.gate().invoke(InvokeRequest { wish: Some(blank) }).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn an_irreversible_call_waits_for_consent_to_exactly_itself() {
    let downstream = Downstream::start().await;
    let (server, _cards) = serve_at(&downstream, None).await;
    let gate = server.gate();
    let wipe = |id: &str, token: &str| Wish { confirm_token: token.into(), ..wish("wipe", json!({"id": id})) };
    let Verdict::Confirm(shown) = invoke(&gate, wipe("AB12", "")).await else { panic!("no preview") };
    assert_eq!((shown.tool.as_str(), shown.arguments_json.as_str()), ("wipe", r#"{"id":"AB12"}"#));
    assert!(!shown.reversible && shown.expires_at_ms > 0);
    assert_eq!(lookup(&gate, &shown.call_id).await.state, "previewed");

    let token = shown.confirm_token.as_str();
    for (wish, why) in [
        (wipe("AB13", token), "other arguments"),
        (Wish { session_id: "c2".into(), ..wipe("AB12", token) }, "another conversation"),
        (wipe("AB12", "pt1.x.y.z"), "no token of ours"),
        (wipe("AB12", &format!("{token}x")), "a changed token"),
    ] {
        let verdict = invoke(&gate, wish).await;
        assert!(matches!(&verdict, Verdict::Refused(problem) if problem.code == "TOKEN_REFUSED"), "{why}: {verdict:?}");
    }
    assert!(downstream.seen().is_empty());

    let (outcome, _) = ended(invoke(&gate, wipe("AB12", token)).await);
    assert!(!outcome.replayed && state(&outcome) == "succeeded");
    let (outcome, _) = ended(invoke(&gate, wipe("AB12", token)).await);
    assert!(outcome.replayed, "the same call with the same token is the same call");
    assert_eq!(downstream.effects("/things/AB12"), 1);
    let other_key = Wish { idempotency_key: "k-2".into(), ..wipe("AB12", token) };
    assert_eq!(refused(invoke(&gate, other_key).await).code, "TOKEN_REFUSED", "a spent token with another key");
}

#[tokio::test]
async fn consent_can_be_given_or_withheld_by_a_call_of_its_own() {
    let downstream = Downstream::start().await;
    let (server, _cards) = serve_at(&downstream, None).await;
    let gate = server.gate();
    let answer = async |call_id: &str, confirm_token: &str, agreed: bool| {
        let request = ConfirmRequest { call_id: call_id.into(), confirm_token: confirm_token.into(), agreed };
        gate.clone().confirm(request).await.unwrap().into_inner().answer.unwrap()
    };
    let wipe = |token: &str| Wish { confirm_token: token.into(), ..wish("wipe", json!({"id": "AB12"})) };
    let Verdict::Confirm(shown) = invoke(&gate, wipe("")).await else { panic!("no preview") };
    let confirm_response::Answer::Call(record) = answer(&shown.call_id, &shown.confirm_token, true).await else {
        panic!("not confirmed")
    };
    assert_eq!((record.state.as_str(), record.confirmed_by.as_str()), ("confirmed", "local"));
    ended(invoke(&gate, wipe(&shown.confirm_token)).await);

    let no = |token: &str| Wish { confirm_token: token.into(), ..wish("wipe", json!({"id": "CD34"})) };
    let Verdict::Confirm(shown) = invoke(&gate, no("")).await else { panic!("no preview") };
    let confirm_response::Answer::Call(record) = answer(&shown.call_id, &shown.confirm_token, false).await else {
        panic!("not called off")
    };
    assert_eq!(record.state, "cancelled");
    assert_eq!(refused(invoke(&gate, no(&shown.confirm_token)).await).code, "TOKEN_REFUSED");
    assert_eq!(downstream.effects("/things/CD34"), 0);
}

#[tokio::test]
async fn the_token_of_a_preview_tool_counts_for_what_it_showed() {
    let downstream = Downstream::start().await;
    let token = "ct_4f0c2a9be17d6358";
    downstream.answer("/previews", json!({"sum": 30, "confirm_token": token}));
    let (server, _cards) = serve_at(&downstream, None).await;
    let gate = server.gate();
    let pay =
        |id: &str, amount: f64, token: &str| wish("pay", json!({"id": id, "amount": amount, "confirm_token": token}));
    let problem = refused(invoke(&gate, wish("pay", json!({"id": "AB12"}))).await);
    assert_eq!(problem.code, "PRECONDITION_MISSING");
    assert_eq!(problem.next.unwrap().tool, "preview_pay");
    assert_eq!(refused(invoke(&gate, pay("AB12", 30.0, token)).await).code, "TOKEN_REFUSED", "nobody has seen it yet");

    let (_, result) = ended(invoke(&gate, wish("preview_pay", json!({"id": "AB12", "amount": 30}))).await);
    assert_eq!(result["data"]["confirm_token"], token, "the model may see it: {result}");
    for changed in [
        pay("AB13", 30.0, token),
        pay("AB12", 300.0, token),
        pay("AB12", 30.0, "ct_0000000000000000"),
        Wish { session_id: "c2".into(), ..pay("AB12", 30.0, token) },
    ] {
        assert_eq!(refused(invoke(&gate, changed).await).code, "TOKEN_REFUSED");
    }
    assert_eq!(downstream.effects("/payments"), 0);
    ended(invoke(&gate, pay("AB12", 30.0, token)).await);
    let (outcome, _) = ended(invoke(&gate, pay("AB12", 30.0, token)).await);
    assert!(outcome.replayed);
    assert_eq!(downstream.effects("/payments"), 1);
}

#[tokio::test]
async fn what_a_person_runs_is_only_proposed() {
    let downstream = Downstream::start().await;
    let (server, _cards) = serve_at(&downstream, None).await;
    let Verdict::Propose(shown) = invoke(&server.gate(), wish("fire", json!({"id": "AB12"}))).await else {
        panic!("not a proposal")
    };
    assert!(!shown.confirm_token.is_empty() && !shown.idempotency_key.is_empty());
    let again = Wish { confirm_token: shown.confirm_token, ..wish("fire", json!({"id": "AB12"})) };
    let verdict = invoke(&server.gate(), again).await;
    assert!(matches!(verdict, Verdict::Propose(_) | Verdict::Refused(_)), "{verdict:?}");
    assert_eq!(downstream.effects("/fire"), 0);
}

#[tokio::test]
async fn no_answer_after_the_effect_is_told_as_such_and_never_repeated() {
    let downstream = Downstream::start().await;
    let (server, _cards) = serve_at(&downstream, None).await;
    downstream.fault(Fault::Hang);
    let note = || wish("write_note", json!({"id": "AB12", "text": "x"}));
    let (outcome, result) = ended(invoke(&server.gate(), note()).await);
    assert_eq!(state(&outcome), "effect_unknown");
    assert_eq!(result["error"]["code"], "EFFECT_UNKNOWN");
    assert!(result.get("data").is_none());
    let again = invoke(&server.gate(), note()).await;
    let code = match &again {
        Verdict::Refused(problem) => problem.code.clone(),
        Verdict::Outcome(outcome) => outcome.call.as_ref().unwrap().error.as_ref().unwrap().code.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(code, "EFFECT_UNKNOWN");
    assert_eq!(downstream.effects("/notes"), 1);
}

#[tokio::test]
async fn answers_that_settle_nothing_leave_the_effect_unknown() {
    let downstream = Downstream::start().await;
    let (server, _cards) = serve_at(&downstream, None).await;
    let error = |code: &str| json!({"ok": false, "error": {"code": code, "message": "x"}});
    let faults = [
        (Fault::Status(503, json!({})), "effect_unknown"),
        (Fault::Status(500, json!({"status": 500, "error": "Internal Server Error"})), "effect_unknown"),
        (Fault::Status(303, json!({})), "effect_unknown"),
        (Fault::Status(408, json!({})), "effect_unknown"),
        (Fault::Status(200, error("TIMEOUT")), "effect_unknown"),
        (Fault::Status(200, error("EFFECT_UNKNOWN")), "effect_unknown"),
        (Fault::Text(200, "<html>ok</html>"), "effect_unknown"),
        (Fault::Status(500, error("NOTE_NOT_FOUND")), "failed"),
        (Fault::Status(200, error("NOTES_CLOSED")), "failed"),
        (Fault::Status(422, json!({})), "failed"),
    ];
    for (number, (fault, end)) in faults.into_iter().enumerate() {
        let told = format!("{fault:?}");
        downstream.fault(fault);
        let note = wish("write_note", json!({"id": "AB12", "text": format!("第 {number} 条")}));
        let (outcome, result) = ended(invoke(&server.gate(), note).await);
        assert_eq!((state(&outcome), outcome.replayed), (end, false), "{told}: {result}");
    }
}

#[tokio::test]
async fn nobody_else_reports_on_a_call_that_the_server_runs() {
    let downstream = Downstream::start().await;
    let (server, _cards) = serve_at(&downstream, None).await;
    downstream.fault(Fault::Late(std::time::Duration::from_millis(500)));
    let note = || Wish { idempotency_key: "k".into(), ..wish("write_note", json!({"id": "AB12", "text": "x"})) };
    let gate = server.gate();
    let running = tokio::spawn(async move { invoke(&gate, note()).await });
    while downstream.effects("/notes") == 0 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let Verdict::InFlight(call) = invoke(&server.gate(), Wish { no_wait: true, ..note() }).await else {
        panic!("not in flight")
    };
    for outcome in [Report::NotStarted(true), Report::ResultJson("{\"done\": true}".into()), Report::Lost(true)] {
        let report =
            CompleteRequest { call_id: call.call_id.clone(), outcome: Some(outcome), ..CompleteRequest::default() };
        let answer = server.gate().complete(report).await.unwrap().into_inner().answer;
        assert!(matches!(answer, Some(complete_response::Answer::Refused(_))), "{answer:?}");
    }
    assert_eq!(lookup(&server.gate(), &call.call_id).await.state, "dispatched");
    assert_eq!(state(&ended(running.await.unwrap()).0), "succeeded");
    ended(invoke(&server.gate(), note()).await);
    assert_eq!(downstream.effects("/notes"), 1);
}

#[tokio::test]
async fn a_report_that_is_sent_twice_counts_once() {
    let downstream = Downstream::start().await;
    let (server, _cards) = serve_at(&downstream, None).await;
    let mut gate = server.gate();
    let read = |id: &str| AuthorizeRequest {
        wish: Some(Wish { turn_id: "t1".into(), ..wish("read_thing", json!({"id": id})) }),
    };
    let Authorized::Go(go) = gate.authorize(read("AB12")).await.unwrap().into_inner().verdict.unwrap() else {
        panic!("not let go")
    };
    let report = CompleteRequest {
        call_id: go.call_id,
        outcome: Some(Report::ErrorJson("{}".into())),
        http_status: 404,
        ..CompleteRequest::default()
    };
    for _ in 0..3 {
        gate.complete(report.clone()).await.unwrap();
    }
    let next = gate.authorize(read("CD34")).await.unwrap().into_inner().verdict.unwrap();
    assert!(matches!(next, Authorized::Go(_)), "one failure is no fuse: {next:?}");
}

#[tokio::test]
async fn a_client_that_leaves_does_not_stop_an_effect_and_its_end_is_kept() {
    let downstream = Downstream::start().await;
    let (server, _cards) = serve_at(&downstream, None).await;
    downstream.fault(Fault::Late(std::time::Duration::from_millis(300)));
    let wish = Wish { idempotency_key: "k".into(), ..wish("write_note", json!({"id": "AB12", "text": "x"})) };
    let mut client = server.gate();
    let request = InvokeRequest { wish: Some(wish) };
    let left = tokio::time::timeout(std::time::Duration::from_millis(100), client.invoke(request)).await;
    assert!(left.is_err());
    let request = LookupRequest { session_id: "c1".into(), idempotency_key: "k".into(), ..LookupRequest::default() };
    let since = std::time::Instant::now();
    let record = loop {
        let found = server.gate().lookup(request.clone()).await.unwrap().into_inner();
        let record = found.call.unwrap();
        if record.state != "dispatched" || since.elapsed().as_secs() > 20 {
            break record;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    assert_eq!(record.state, "succeeded");
    assert_eq!(downstream.effects("/notes"), 1);
}

#[tokio::test]
async fn a_caller_that_runs_its_tools_authorizes_and_completes() {
    let downstream = Downstream::start().await;
    let (server, _cards) = serve_at(&downstream, None).await;
    let mut gate = server.gate();
    let note = || AuthorizeRequest { wish: Some(wish("write_note", json!({"id": "12AB", "text": "x"}))) };
    let problem = match gate.authorize(note()).await.unwrap().into_inner().verdict.unwrap() {
        Authorized::Refused(problem) => problem,
        other => panic!("{other:?}"),
    };
    assert_eq!((problem.code.as_str(), problem.fields[0].path.as_str()), ("INVALID_ARGS", "/id"));
    let note = |no_wait: bool| AuthorizeRequest {
        wish: Some(Wish { no_wait, ..wish("write_note", json!({"id": "AB12", "text": "x"})) }),
    };
    let Authorized::Go(go) = gate.authorize(note(false)).await.unwrap().into_inner().verdict.unwrap() else {
        panic!("not let go")
    };
    let in_flight = gate.authorize(note(true)).await.unwrap().into_inner().verdict.unwrap();
    assert!(matches!(in_flight, Authorized::InFlight(_)), "{in_flight:?}");

    let report = |result: &str| CompleteRequest {
        call_id: go.call_id.clone(),
        outcome: Some(Report::ResultJson(result.into())),
        ..CompleteRequest::default()
    };
    let done = gate.complete(report(r#"{"done": true, "secret_token": "x"}"#)).await.unwrap().into_inner();
    let Some(complete_response::Answer::Outcome(outcome)) = done.answer else { panic!("not completed") };
    assert_eq!(state(&outcome), "succeeded");
    let replay = gate.authorize(note(false)).await.unwrap().into_inner().verdict.unwrap();
    assert!(matches!(&replay, Authorized::Replay(outcome) if outcome.replayed), "{replay:?}");
    assert!(downstream.seen().is_empty(), "the caller ran it");
    let status = gate.complete(CompleteRequest { call_id: "c_1".into(), ..report("{}") }).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn calls_keep_over_a_restart() {
    let downstream = Downstream::start().await;
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store.db");
    let note = || wish("write_note", json!({"id": "AB12", "text": "x"}));
    let wipe = |token: &str| Wish { confirm_token: token.into(), ..wish("wipe", json!({"id": "AB12"})) };
    let token = {
        let (server, _cards) = serve_at(&downstream, Some(&store)).await;
        ended(invoke(&server.gate(), note()).await);
        let Verdict::Confirm(shown) = invoke(&server.gate(), wipe("")).await else { panic!("no preview") };
        server.stop();
        server.stopped().await.unwrap();
        shown.confirm_token
    };
    let (server, _cards) = serve_at(&downstream, Some(&store)).await;
    let (outcome, _) = ended(invoke(&server.gate(), note()).await);
    assert!(outcome.replayed);
    let (outcome, _) = ended(invoke(&server.gate(), wipe(&token)).await);
    assert!(!outcome.replayed);
    assert_eq!((downstream.effects("/notes"), downstream.effects("/things/AB12")), (1, 1));
}
