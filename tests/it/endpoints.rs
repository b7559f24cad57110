//! Several endpoints in order, and what each of them is protected by: breaker, rate limit, hedges, budgets, quotas.
//!
//! Where time matters, the clock of the runtime is moved by hand between exchanges that run in real time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use pointsman::decide::Verdict;
use pointsman::decide::llm::{EndpointSettings, LlmError, MOST_ENDPOINTS, NO_TIME, Settings};
use pointsman::decision::{DecidedBy, Decision, HandoffReason, NoToolReason, Outcome};
use pointsman::pipeline::{RouteError, Router};
use pointsman::types::{Caller, Deadline};
use serde_json::json;
use tokio::net::TcpListener;

use crate::cache::until;
use crate::llm::{Fixture, declined, endpoint_at, good, settings};
use crate::support::scripted_llm::{
    ScriptedLlm, Step, body, call, delay, half_body, hang, raw, status, status_with, text,
};
use crate::support::server::llm_settings;
use crate::support::shop::request;

const LONG: Duration = Duration::from_secs(60);

fn both(first: &str, second: &str) -> Settings {
    Settings { endpoints: vec![endpoint_at(first), endpoint_at(second)], ..settings("") }
}

/// Lets the time of the runtime pass, and nothing else happen meanwhile.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

/// Counts what this thread measures from now on.
fn measured() -> (PrometheusHandle, impl Drop) {
    let recorder = Box::leak(Box::new(PrometheusBuilder::new().build_recorder()));
    (recorder.handle(), metrics::set_default_local_recorder(recorder))
}

#[track_caller]
fn shows(metrics: &PrometheusHandle, lines: &[&str]) {
    let text = metrics.render();
    for line in lines {
        assert!(text.lines().any(|found| found == *line), "{line}\nis not in\n{text}");
    }
}

async fn refused_url() -> String {
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}/v1", port.local_addr().unwrap())
}

// ---------------------------------------------------------------- moving on

/// Every fault, and whether another attempt at the same endpoint may help.
fn faults() -> Vec<(&'static str, Step, bool)> {
    let asked = |status: u16, header: (&str, &str)| status_with(status, &[header], "<html>slow down</html>");
    vec![
        ("408", status(408), true),
        ("429", status(429), true),
        ("429 with Retry-After", asked(429, ("retry-after-ms", "1")), true),
        ("500", status(500), true),
        ("502 with HTML", asked(502, ("content-type", "text/html")), true),
        ("503 with Retry-After", asked(503, ("Retry-After", "0")), true),
        ("529", status(529), true),
        ("timeout", hang(), true),
        ("half body", half_body(), true),
        ("HTML", raw("<html>502 Bad Gateway</html>"), true),
        ("broken JSON", raw("{\"choices\": ["), true),
        ("nothing", raw(""), true),
        ("null choices", body(json!({"choices": null})), true),
        ("no choices", body(json!({"choices": []})), true),
        ("error body", body(json!({"error": {"message": "overloaded", "code": 529}})), true),
        ("error body without status", body(json!({"error": "忙"})), true),
        ("error in a choice", body(json!({"choices": [{"error": {"message": "x", "code": "503"}}]})), true),
        ("error body 401", body(json!({"error": {"message": "bad key", "code": 401}})), false),
        ("400", status(400), false),
        ("401", status(401), false),
        ("404", status(404), false),
        ("redirect", status_with(307, &[("location", "http://127.0.0.1:9/v1/chat/completions")], ""), false),
    ]
}

#[tokio::test]
async fn each_fault_is_retried_at_the_only_endpoint_and_moves_on_where_there_is_another() {
    for (name, fault, passes) in faults() {
        let timeout = Duration::from_millis(if name == "timeout" { 300 } else { 5_000 });
        let only = ScriptedLlm::start([fault.clone(), declined()]).await;
        let fixture = Fixture::new(Settings { timeout, ..settings(only.url()) });
        match fixture.ask_within("hi", LONG).await {
            Ok(answer) => assert_eq!((answer.llm_calls, only.calls(), passes), (2, 2, true), "{name}"),
            Err(LlmError::Refused(_)) => assert_eq!((only.calls(), passes), (1, false), "{name}"),
            Err(other) => panic!("{name}: {other:?}"),
        }

        // An hour's pause would be beyond the deadline: moving on waits for nothing.
        let fault = match fault {
            Step::Respond { status: 429, headers: _, body } => {
                Step::Respond { status: 429, headers: vec![("retry-after".into(), "3600".into())], body }
            }
            fault => fault,
        };
        let (first, second) = (ScriptedLlm::start([fault]).await, ScriptedLlm::start([declined()]).await);
        let fixture = Fixture::new(Settings { timeout, ..both(first.url(), second.url()) });
        let answer = fixture.ask_within("hi", LONG).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(answer.verdict, Verdict::NoTool(NoToolReason::NothingFits), "{name}");
        assert_eq!((answer.llm_calls, first.calls(), second.calls()), (2, 1, 1), "{name}");
        assert!(answer.notes[0].starts_with("endpoint 1: ") && answer.notes[1] == "endpoint 2 answered", "{answer:?}");
        assert!(!answer.notes.concat().contains("127.0.0.1"), "{answer:?}");
    }
}

#[tokio::test]
async fn a_silent_endpoint_leaves_time_for_the_next_one() {
    let (first, second) = (ScriptedLlm::start([hang()]).await, ScriptedLlm::start([declined()]).await);
    let fixture = Fixture::new(Settings { timeout: LONG, ..both(first.url(), second.url()) });
    let answer = fixture.ask_within("你好", Duration::from_secs(2)).await.unwrap();
    assert_eq!((answer.verdict, first.calls(), second.calls()), (Verdict::NoTool(NoToolReason::NothingFits), 1, 1));
    until(|| first.hung_up() == 1).await;
}

#[tokio::test]
async fn an_error_after_an_unusable_answer_moves_on_as_well() {
    let unusable = call("get_order", json!({"order_id": "2026"}));
    let first = ScriptedLlm::start([unusable, status(500)]).await;
    let second = ScriptedLlm::start([declined()]).await;
    let fixture = Fixture::new(both(first.url(), second.url()));
    let answer = fixture.ask().await.unwrap();
    assert_eq!((&answer.verdict, answer.llm_calls), (&Verdict::NoTool(NoToolReason::NothingFits), 3));
    assert_eq!((answer.repairs.len(), first.calls(), second.calls()), (1, 2, 1));
    assert!(answer.notes.iter().any(|note| note.contains("HTTP status 500")), "{answer:?}");
}

#[tokio::test]
async fn a_refused_parameter_is_remembered_also_when_no_attempt_is_left() {
    let (metrics, _measured) = measured();
    let refuse = status_with(400, &[], r#"{"error":{"message":"unsupported","param":"seed"}}"#);
    let endpoint = ScriptedLlm::start([refuse, declined()]).await;
    let fixture = Fixture::new(Settings { max_attempts: 1, ..settings(endpoint.url()) });
    let failed = fixture.try_within("hi", LONG).await.unwrap_err();
    assert!(failed.notes.iter().any(|note| note.contains("left out")), "{failed:?}");
    assert!(fixture.ask().await.is_ok());
    let sent: Vec<bool> = endpoint.requests().iter().map(|request| request.get("seed").is_some()).collect();
    assert_eq!(sent, [true, false]);
    shows(&metrics, &[r#"pointsman_llm_withdrawn_parameters_total{endpoint="1",parameter="seed"} 1"#]);
}

#[tokio::test]
async fn a_refused_connection_moves_on_and_each_endpoint_has_its_own_model_and_key() {
    let second = ScriptedLlm::start([declined()]).await;
    let endpoints = vec![
        EndpointSettings {
            api_key: Some(pointsman::decide::llm::ApiKey::new("sk-first")),
            ..endpoint_at(&refused_url().await)
        },
        EndpointSettings { model: "other".into(), ..endpoint_at(second.url()) },
    ];
    let fixture = Fixture::new(Settings { endpoints, ..settings("") });
    let answer = fixture.ask().await.unwrap();
    assert_eq!((answer.model.as_str(), answer.llm_calls), ("other", 2));
    assert_eq!(answer.notes, ["endpoint 1: the LLM endpoint is unavailable: connection failed", "endpoint 2 answered"]);
    assert_eq!(second.requests()[0]["model"], "other");
    assert!(!second.heads()[0].to_lowercase().contains("authorization"));
}

#[tokio::test]
async fn where_the_other_endpoint_is_not_ready_the_first_one_is_tried_again() {
    let broken = Arc::new(AtomicBool::new(true));
    let first = {
        let broken = Arc::clone(&broken);
        ScriptedLlm::start_with(
            move |number, _| {
                if broken.load(Ordering::SeqCst) || number == 1 { status(500) } else { declined() }
            },
        )
    }
    .await;
    let second = ScriptedLlm::start([status(500)]).await;
    let fixture = Fixture::new(Settings { max_attempts: 4, breaker_failures: 3, ..both(first.url(), second.url()) });
    let failed = fixture.try_within("hi", LONG).await.unwrap_err();
    assert!(matches!(failed.error, LlmError::Unavailable(_)), "{failed:?}");
    assert_eq!((failed.llm_calls, first.calls(), second.calls()), (4, 1, 3));
    assert_eq!(failed.notes.len(), 2, "{failed:?}");

    broken.store(false, Ordering::SeqCst);
    let answer = fixture.ask_within("hi", LONG).await.unwrap();
    assert_eq!((first.calls(), second.calls()), (3, 3), "the second one's breaker is open");
    assert_eq!(answer.notes, ["endpoint 1 answered"]);
}

#[tokio::test]
async fn the_breaker_of_one_endpoint_skips_it_and_its_probe_leads_back() {
    let (metrics, _measured) = measured();
    let broken = Arc::new(AtomicBool::new(true));
    let first = {
        let broken = Arc::clone(&broken);
        ScriptedLlm::start_with(move |_, _| if broken.load(Ordering::SeqCst) { status(500) } else { declined() })
    }
    .await;
    let second = ScriptedLlm::start([declined()]).await;
    let fixture = Fixture::new(both(first.url(), second.url()));
    let ask = async || fixture.ask_within("hi", LONG).await.unwrap();
    for _ in 0..9 {
        assert_eq!(ask().await.notes[1], "endpoint 2 answered");
    }
    assert_eq!((first.calls(), second.calls()), (6, 9), "the sixth failure opens it");
    let skipped = ask().await;
    assert_eq!(
        (skipped.llm_calls, skipped.notes[0].as_str()),
        (1, "endpoint 1: the LLM endpoint is unavailable: the circuit breaker is open")
    );
    shows(
        &metrics,
        &[
            r#"pointsman_llm_breaker_open{endpoint="1"} 1"#,
            r#"pointsman_llm_breaker_open{endpoint="2"} 0"#,
            r#"pointsman_llm_breaker_changes_total{endpoint="1",to="open"} 1"#,
            r#"pointsman_llm_attempts_total{endpoint="1",result="server_error"} 6"#,
            r#"pointsman_llm_attempts_total{endpoint="2",result="ok"} 10"#,
        ],
    );

    // The failed probe moves on like any other failure and keeps it open.
    pass(Duration::from_secs(30)).await;
    assert_eq!((ask().await.llm_calls, ask().await.llm_calls, first.calls()), (2, 1, 7));
    broken.store(false, Ordering::SeqCst);
    pass(Duration::from_secs(29)).await;
    assert_eq!((ask().await.llm_calls, first.calls()), (1, 7), "not yet");
    pass(Duration::from_secs(1)).await;
    assert_eq!(ask().await.notes, ["endpoint 1 answered"]);
    assert_eq!(ask().await.notes, ["endpoint 1 answered"]);
    assert_eq!(first.calls(), 9);
    shows(
        &metrics,
        &[
            r#"pointsman_llm_breaker_open{endpoint="1"} 0"#,
            r#"pointsman_llm_breaker_changes_total{endpoint="1",to="closed"} 1"#,
            r#"pointsman_llm_breaker_changes_total{endpoint="1",to="half_open"} 2"#,
        ],
    );
}

#[test]
fn too_many_endpoints_and_unusable_ones_are_refused_by_number() {
    let error = |settings: Settings| pointsman::decide::llm::Llm::new(settings).err().unwrap();
    let many = vec![endpoint_at("http://h/v1"); MOST_ENDPOINTS + 1];
    assert!(error(Settings { endpoints: many, ..settings("") }).contains("at most 8"));
    let small = EndpointSettings { max_tools: 1, ..endpoint_at("http://h/v1") };
    let endpoints = vec![endpoint_at("http://h/v1"), small];
    assert!(error(Settings { endpoints, ..settings("") }).starts_with("endpoint 2: llm.max_tools"));
}

// ---------------------------------------------------------------- budgets

fn python() -> Step {
    call("python", json!({}))
}

#[tokio::test]
async fn attempts_are_budgeted_over_all_endpoints() {
    let (first, second) = (ScriptedLlm::start([status(500)]).await, ScriptedLlm::start([status(429)]).await);
    let fixture = Fixture::new(Settings { max_attempts: 3, ..both(first.url(), second.url()) });
    let failed = fixture.try_within("hi", LONG).await.unwrap_err();
    assert_eq!((failed.llm_calls, first.calls(), second.calls()), (3, 1, 2));

    // The last attempt went to the first endpoint: none is left for the second.
    let (first, second) = (ScriptedLlm::start([python(), status(500)]).await, ScriptedLlm::start([good()]).await);
    let fixture = Fixture::new(Settings { max_attempts: 2, ..both(first.url(), second.url()) });
    let failed = fixture.try_within("hi", LONG).await.unwrap_err();
    assert!(matches!(failed.error, LlmError::Unavailable(_)));
    assert_eq!((first.calls(), second.calls(), failed.tokens.prompt, failed.repairs.len()), (2, 0, 100, 1));

    // With one more, the second endpoint answers, and what the first one took and got wrong is told as well.
    let (first, second) = (ScriptedLlm::start([python(), status(500)]).await, ScriptedLlm::start([good()]).await);
    let fixture = Fixture::new(Settings { max_attempts: 3, ..both(first.url(), second.url()) });
    let answer = fixture.ask_within("hi", LONG).await.unwrap();
    assert!(matches!(answer.verdict, Verdict::Call(_)), "{answer:?}");
    assert_eq!((answer.llm_calls, answer.tokens.prompt, answer.repairs.len()), (3, 200, 1));
}

#[tokio::test]
async fn tokens_of_one_decision_are_budgeted() {
    let budget = Verdict::Handoff(HandoffReason::Budget);
    for (max_tokens, calls) in [(0, 2), (210, 2), (209, 1), (1, 1)] {
        let llm = ScriptedLlm::start([python(), good()]).await;
        let answer = Fixture::new(Settings { max_tokens, ..settings(llm.url()) }).ask().await.unwrap();
        assert_eq!((llm.calls(), answer.verdict == budget), (calls, calls == 1), "{max_tokens}: {answer:?}");
        let said = answer.notes.iter().any(|note| note.contains("budget of LLM tokens"));
        assert_eq!(said, calls == 1, "{answer:?}");
    }
    // Without a count of its own, an endpoint's tokens are estimated: the limit holds there too.
    let uncounted =
        body(json!({"choices": [{"message": {"content": "<tool_call>{\"name\":\"get_order\"}</tool_call>"}}]}));
    let llm = ScriptedLlm::start([uncounted, good()]).await;
    let answer = Fixture::new(Settings { max_tokens: 300, ..settings(llm.url()) }).ask().await.unwrap();
    assert!(answer.tokens.prompt > 150 && answer.tokens.completion > 0, "{answer:?}");
    assert!(answer.notes.iter().any(|note| note.contains("estimated")), "{answer:?}");
    assert_eq!(llm.calls(), 1);

    // A question to the user that the last answer allows is worth more than a handoff.
    let llm = ScriptedLlm::start([call("get_order", json!({}))]).await;
    let answer = Fixture::new(Settings { max_tokens: 1, ..settings(llm.url()) }).ask().await.unwrap();
    assert!(matches!(answer.verdict, Verdict::Clarify { .. }), "{answer:?}");
}

#[tokio::test]
async fn time_that_is_up_after_an_answer_hands_over_and_before_one_is_an_error() {
    let (first, second) = (ScriptedLlm::start([python(), status(500)]).await, ScriptedLlm::start([hang()]).await);
    let fixture = Fixture::new(Settings { timeout: LONG, ..both(first.url(), second.url()) });
    let answer = fixture.ask_within("hi", Duration::from_millis(700)).await.unwrap();
    assert_eq!(answer.verdict, Verdict::Handoff(HandoffReason::Budget));
    assert!(answer.notes.iter().any(|note| note == NO_TIME), "{answer:?}");
    until(|| second.hung_up() == 1).await;

    let (first, second) = (ScriptedLlm::start([status(500)]).await, ScriptedLlm::start([hang()]).await);
    let fixture = Fixture::new(Settings { timeout: LONG, ..both(first.url(), second.url()) });
    let failed = fixture.try_within("hi", Duration::from_millis(700)).await.unwrap_err();
    assert!(matches!(failed.error, LlmError::Deadline), "{failed:?}");
    assert_eq!((first.calls(), second.calls(), failed.llm_calls), (1, 1, 2));
}

// ---------------------------------------------------------------- rate and places

#[tokio::test]
async fn the_rate_limit_is_per_endpoint_and_what_does_not_fit_goes_to_the_next() {
    let (metrics, _measured) = measured();
    let (first, second) = (ScriptedLlm::start([declined()]).await, ScriptedLlm::start([declined()]).await);
    let fixture = Fixture::new(Settings { requests_per_minute: 6, ..both(first.url(), second.url()) });
    let soon = Duration::from_secs(8);
    assert_eq!(fixture.ask_within("hi", soon).await.unwrap().notes, ["endpoint 1 answered"]);
    let moved = fixture.ask_within("hi", soon).await.unwrap();
    assert_eq!(moved.notes, ["endpoint 1: too many requests are waiting for the LLM", "endpoint 2 answered"]);
    assert!(matches!(fixture.ask_within("hi", soon).await, Err(LlmError::Overloaded)));
    pass(Duration::from_secs(10)).await;
    assert_eq!(fixture.ask_within("hi", soon).await.unwrap().notes, ["endpoint 1 answered"]);
    assert_eq!((first.calls(), second.calls()), (2, 1));
    shows(&metrics, &[r#"pointsman_llm_overloaded_total{endpoint="1",reason="rate"} 2"#]);
}

#[tokio::test]
async fn who_leaves_while_waiting_for_the_rate_leaves_nothing_behind() {
    let llm = ScriptedLlm::start([declined()]).await;
    let one_place = Settings { requests_per_minute: 6, concurrency: 1, queue: 0, ..settings(llm.url()) };
    let fixture = Fixture::new(one_place);
    fixture.ask_within("hi", LONG).await.unwrap();
    for _ in 0..3 {
        let waiting = std::pin::pin!(fixture.ask_within("hi", LONG));
        tokio::select! {
            result = waiting => panic!("{result:?}"),
            () = tokio::time::sleep(Duration::from_millis(20)) => {}
        }
    }
    pass(Duration::from_secs(10)).await;
    fixture.ask_within("hi", Duration::from_secs(5)).await.expect("the place and the turn are free");
    assert_eq!(llm.calls(), 2);
}

#[tokio::test]
async fn a_full_queue_at_the_first_endpoint_spills_over_to_the_second() {
    let (first, second) = (ScriptedLlm::start([hang()]).await, ScriptedLlm::start([declined()]).await);
    let limits = Settings { concurrency: 1, queue: 0, timeout: LONG, ..both(first.url(), second.url()) };
    let fixture = Arc::new(Fixture::new(limits));
    let held = {
        let fixture = Arc::clone(&fixture);
        tokio::spawn(async move { fixture.ask_within("hi", LONG).await })
    };
    until(|| first.calls() == 1).await;
    let answer = fixture.ask_within("hi", LONG).await.unwrap();
    assert_eq!((answer.llm_calls, answer.notes[1].as_str()), (1, "endpoint 2 answered"));
    held.abort();
    until(|| first.hung_up() == 1).await;
}

// ---------------------------------------------------------------- hedges

/// An endpoint with twenty quick answers behind it; then `steps`.
async fn hedged(steps: Vec<Step>, limits: impl Fn(Settings) -> Settings) -> (ScriptedLlm, Fixture) {
    let llm =
        ScriptedLlm::start_with(move |number, _| number.checked_sub(20).map_or_else(declined, |at| steps[at].clone()))
            .await;
    let fixture =
        Fixture::new(limits(Settings { hedge: true, timeout: Duration::from_secs(20), ..settings(llm.url()) }));
    for _ in 0..20 {
        let answer = fixture.ask_within("hi", LONG).await.unwrap();
        assert_eq!((answer.llm_calls, answer.notes.len()), (1, 0));
    }
    (llm, fixture)
}

#[tokio::test]
async fn of_a_hedged_pair_the_first_good_answer_wins_and_the_other_is_dropped() {
    let (metrics, _measured) = measured();
    let (llm, fixture) = hedged(vec![hang(), declined(), delay(1_500, declined()), hang()], |s| s).await;
    let won = fixture.ask_within("hi", LONG).await.unwrap();
    assert_eq!((won.llm_calls, won.notes.len()), (2, 1));
    assert!(won.notes[0].ends_with("from the second"), "{won:?}");
    until(|| llm.hung_up() == 1).await;
    assert_eq!(llm.bodies()[20], llm.bodies()[21], "the same request");

    let lost = fixture.ask_within("hi", LONG).await.unwrap();
    assert_eq!(lost.llm_calls, 2);
    assert!(lost.notes[0].ends_with("from the first"), "{lost:?}");
    until(|| llm.hung_up() == 2).await;
    shows(
        &metrics,
        &[
            r#"pointsman_llm_hedges_total{endpoint="1",result="won"} 1"#,
            r#"pointsman_llm_hedges_total{endpoint="1",result="lost"} 1"#,
            r#"pointsman_llm_attempts_total{endpoint="1",result="cancelled"} 2"#,
            r#"pointsman_llm_attempts_total{endpoint="1",result="ok"} 22"#,
        ],
    );
}

#[tokio::test]
async fn a_question_is_hedged_once_and_a_pair_that_fails_is_one_failure_more() {
    let (metrics, _measured) = measured();
    let slow = |step| delay(1_500, step);
    // Two failures, then a slow good attempt that gets no companion again.
    let (llm, fixture) = hedged(vec![slow(status(500)), slow(half_body()), slow(declined())], |s| s).await;
    let answer = fixture.ask_within("hi", LONG).await.unwrap();
    assert_eq!((answer.llm_calls, llm.calls()), (3, 23));
    assert!(answer.notes[0].ends_with("neither gave an answer"), "{answer:?}");
    shows(&metrics, &[r#"pointsman_llm_hedges_total{endpoint="1",result="failed"} 1"#]);

    // One failure does not end the pair.
    let (llm, fixture) = hedged(vec![slow(status(500)), delay(3_000, declined())], |s| s).await;
    assert_eq!(fixture.ask_within("hi", LONG).await.unwrap().llm_calls, 2);
    assert_eq!(llm.calls(), 22);
}

#[tokio::test]
async fn nothing_is_hedged_without_a_free_place_an_attempt_or_room_in_the_rate() {
    let (metrics, _measured) = measured();
    let slow = || vec![delay(1_500, declined())];
    type Limits = fn(Settings) -> Settings;
    let limits: [Limits; 3] = [
        |settings| Settings { concurrency: 1, ..settings },
        |settings| Settings { max_attempts: 1, ..settings },
        // Twenty-one at once, then one in 285 ms: the slow one itself is the last of the burst.
        |settings| Settings { requests_per_minute: 3, ..settings },
    ];
    for (index, limits) in limits.into_iter().enumerate() {
        let (llm, fixture) = if index == 2 {
            let llm =
                ScriptedLlm::start_with(|number, _| if number < 20 { declined() } else { delay(1_500, declined()) });
            let llm = llm.await;
            let fixture = Fixture::new(limits(Settings { hedge: true, ..settings(llm.url()) }));
            for _ in 0..20 {
                fixture.ask_within("hi", LONG).await.unwrap();
                pass(Duration::from_secs(20)).await;
            }
            (llm, fixture)
        } else {
            hedged(slow(), limits).await
        };
        let answer = fixture.ask_within("hi", LONG).await.unwrap();
        assert_eq!((answer.llm_calls, llm.calls(), answer.notes.len()), (1, 21, 0));
    }
    shows(&metrics, &[r#"pointsman_llm_hedges_total{endpoint="1",result="skipped"} 3"#]);
}

#[tokio::test]
async fn who_leaves_a_hedged_pair_ends_both() {
    let (metrics, _measured) = measured();
    let steps = vec![hang(), hang(), declined()];
    let (llm, fixture) = hedged(steps, |settings| Settings { concurrency: 2, queue: 0, ..settings }).await;
    {
        let asking = std::pin::pin!(fixture.ask_within("hi", LONG));
        tokio::select! {
            result = asking => panic!("{result:?}"),
            () = until(|| llm.in_work() == 2) => {}
        }
    }
    until(|| llm.hung_up() == 2).await;
    fixture.ask_within("hi", LONG).await.expect("both places are free");
    shows(&metrics, &[r#"pointsman_llm_hedges_total{endpoint="1",result="cut"} 1"#]);
}

// ---------------------------------------------------------------- quotas

async fn route(router: &Arc<Router>, tenant: &str, utterance: &str) -> Result<Decision, RouteError> {
    let caller = Caller::with_scopes(tenant, Vec::new());
    router.route(request(utterance), &caller, Deadline::after(LONG)).await
}

fn budget_note(decision: &Decision) -> &str {
    assert!(matches!(decision.outcome, Outcome::Handoff { reason: HandoffReason::Budget, .. }), "{decision:?}");
    assert_eq!((decision.trace.llm_calls, decision.trace.stored, decision.decided_by), (0, false, DecidedBy::Llm));
    &decision.trace.notes[0]
}

#[tokio::test]
async fn a_tenant_has_its_calls_and_tokens_and_what_needs_no_llm_stays_free() {
    let (metrics, _measured) = measured();
    let llm = ScriptedLlm::start([call("no_tool", json!({}))]).await;
    let flags = [
        ("quota.calls_per_minute", "2"),
        ("quota.tokens_per_minute", "10000"),
        ("quota.tenants", "{\"大客户 Nr.1\" = {calls_per_minute = 0, tokens_per_minute = 150}}"),
        ("cache.min_confidence", "0"),
        ("prefilter.signals", "lexical"),
    ];
    let router = Router::start(llm_settings(llm.url(), &flags).pipeline, &|_, _| {}).await.unwrap();
    for utterance in ["tell me a joke", "讲个笑话"] {
        assert!(matches!(route(&router, "a", utterance).await.unwrap().outcome, Outcome::NoTool { .. }));
    }
    let refused = route(&router, "a", "what is the weather").await.unwrap();
    assert!(budget_note(&refused).contains("quota of LLM calls per minute"), "{refused:?}");
    assert!(budget_note(&refused).contains("free again in"), "{refused:?}");
    assert_eq!(llm.calls(), 2);
    let cached = route(&router, "a", "tell me a joke").await.unwrap();
    assert_eq!(cached.trace.cache, "hit");

    // Another tenant, and one with limits of its own: 110 tokens a decision.
    assert!(route(&router, "b", "what is the weather").await.unwrap().trace.llm_calls == 1);
    for utterance in ["one", "two"] {
        assert!(route(&router, "大客户 Nr.1", utterance).await.unwrap().trace.llm_calls == 1);
    }
    let refused = route(&router, "大客户 Nr.1", "three").await.unwrap();
    assert!(budget_note(&refused).contains("quota of LLM tokens per minute"), "{refused:?}");
    assert_eq!(llm.calls(), 5);
    shows(
        &metrics,
        &[
            r#"pointsman_llm_quota_refusals_total{kind="calls"} 1"#,
            r#"pointsman_llm_quota_refusals_total{kind="tokens"} 1"#,
        ],
    );

    pass(Duration::from_secs(60)).await;
    assert_eq!(route(&router, "a", "what is the weather").await.unwrap().trace.llm_calls, 1);
    assert_eq!(route(&router, "大客户 Nr.1", "three").await.unwrap().trace.llm_calls, 1);
}

#[tokio::test]
async fn tokens_count_also_when_the_caller_leaves() {
    let llm = ScriptedLlm::start([text("Let me see."), hang()]).await;
    let flags = [("quota.tokens_per_minute", "100")];
    let router = Router::start(llm_settings(llm.url(), &flags).pipeline, &|_, _| {}).await.unwrap();
    {
        let asking = std::pin::pin!(route(&router, "a", "tell me a joke"));
        tokio::select! {
            result = asking => panic!("{result:?}"),
            () = until(|| llm.calls() == 2) => {}
        }
    }
    let refused = route(&router, "a", "tell me another joke").await.unwrap();
    assert!(budget_note(&refused).contains("tokens"), "{refused:?}");
}

#[tokio::test]
async fn a_question_that_cannot_be_asked_costs_no_quota() {
    let llm = ScriptedLlm::start([status(500)]).await;
    let flags = [("quota.calls_per_minute", "1"), ("llm.breaker_failures", "1"), ("llm.max_attempts", "1")];
    let router = Router::start(llm_settings(llm.url(), &flags).pipeline, &|_, _| {}).await.unwrap();
    for utterance in ["tell me a joke", "讲个笑话", "another one"] {
        let decision = route(&router, "a", utterance).await.unwrap();
        assert_eq!((decision.decided_by, llm.calls()), (DecidedBy::Local, 1), "{decision:?}");
    }
}
