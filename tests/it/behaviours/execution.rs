//! Execution: errors that need no reading of results, timeouts, breakers.

use std::time::Duration;

use pointsman::args::{ArgumentSchema, validate};
use pointsman::execute::{End, proposed_timeout};
use pointsman::types::{ProblemCode, ToolAnswer};
use serde_json::{Value, json};
use tokio::time::{Instant, advance};

use super::lint::reported_without;
use crate::execute::{Desk, answer, lost, not_started};
use crate::support::backend::{Fault, SENT};

fn order() -> Value {
    json!({"order_id": SENT})
}

#[tokio::test]
async fn sb_080_what_fails_the_schema_causes_no_backend_work() {
    let desk = Desk::open().await;
    let schema = ArgumentSchema::compile(&desk.card("get_order").parameters).unwrap();
    // As every call goes: arguments that are not valid never become a job.
    let call = async |arguments: Value| match validate(&schema, &arguments) {
        Ok(checked) => Ok(desk.run("get_order", Value::Object(checked.args.as_map().clone())).await),
        Err(problem) => Err(problem),
    };
    let problem = call(json!({"order_id": "abc"})).await.unwrap_err();
    assert_eq!((problem.code, problem.fields[0].path.as_str()), (ProblemCode::InvalidArgs, "/order_id"));
    assert_eq!(desk.shop.count("get_order").requests, 0);
    assert_eq!(answer(call(order()).await.unwrap()).status, Some(200));
    assert_eq!(desk.shop.count("get_order").requests, 1);
}

#[tokio::test(start_paused = true)]
async fn sb_089_a_failed_sign_in_is_never_tried_again() {
    let desk = Desk::open().await;
    for (calls, status) in [(1, 401), (2, 403), (3, 400), (4, 404), (5, 422)] {
        desk.shop.fault("get_order", Fault::status(status), Some(1));
        assert_eq!(answer(desk.run("get_order", order()).await).status, Some(status));
        assert_eq!(desk.shop.count("get_order").requests, calls);
    }
}

#[tokio::test(start_paused = true)]
async fn sb_090_a_rate_limit_is_waited_for_about_three_seconds_and_once() {
    let desk = Desk::open().await;
    desk.shop.fault("get_order", Fault::status(429), None);
    let started = Instant::now();
    let ran = desk.run("get_order", order()).await;
    let waited = started.elapsed();
    assert!((3_000..4_000).contains(&waited.as_millis()), "{waited:?}");
    assert_eq!((ran.attempts, answer(ran).status), (2, Some(429)));
    assert_eq!(desk.shop.count("get_order").requests, 2);
}

#[tokio::test(start_paused = true)]
async fn sb_094_a_passing_fault_is_tried_again_a_limited_number_of_times() {
    let desk = Desk::open().await;
    let stock = || desk.run("get_stock", json!({"sku": "SKU-A1B2C3"}));
    desk.shop.fault("get_stock", Fault::status(503), Some(1));
    let started = Instant::now();
    assert_eq!(answer(stock().await).status, Some(200));
    assert!(started.elapsed() >= Duration::from_millis(100), "after a pause");
    assert_eq!(desk.shop.count("get_stock").requests, 2);
    desk.shop.fault("get_stock", Fault::status(503), None);
    assert_eq!(answer(stock().await).status, Some(503));
    assert_eq!(desk.shop.count("get_stock").requests, 4);
}

#[tokio::test(start_paused = true)]
async fn sb_100_a_timeout_is_a_failure_with_the_hint_not_to_guess() {
    let desk = Desk::open().await;
    desk.shop.fault("track_shipment", Fault::Hang, None);
    let problem = lost(desk.run("track_shipment", json!({})).await);
    assert_eq!((problem.status.as_str(), &problem.code), ("timeout", &ProblemCode::Timeout));
    assert!(problem.suggestion.is_some_and(|suggestion| suggestion.contains("do not guess")));
}

#[tokio::test(start_paused = true)]
async fn sb_129_what_may_not_be_repeated_is_not_tried_again() {
    let desk = Desk::open().await;
    for (tool, arguments) in [
        ("create_ticket", json!({"category": "complaint"})),
        ("send_message", json!({"order_id": SENT, "content": "放门口"})),
    ] {
        assert!(!desk.card(tool).idempotent);
        desk.shop.fault(tool, Fault::status(503), Some(1));
        let ran = desk.run(tool, arguments).await;
        assert_eq!((ran.attempts, desk.shop.count(tool).requests), (1, 1), "{tool}");
    }
    assert_eq!(reported_without("create_ticket", "    idempotency_ttl_s: 3600\n"), ["no-idempotency-key"]);
}

#[tokio::test(start_paused = true)]
async fn sb_130_each_tool_has_its_own_timeout() {
    let desk = Desk::open().await;
    let token = json!({"order_id": SENT, "confirm_token": "ct_0000000000000000"});
    for (tool, arguments, expected) in [("get_order", order(), 1_500), ("execute_refund", token, 5_000)] {
        desk.shop.fault(tool, Fault::Hang, None);
        let started = Instant::now();
        lost(desk.run(tool, arguments).await);
        let waited = started.elapsed().as_millis();
        // A paused clock moves in steps of a millisecond.
        assert!((expected..expected + 3).contains(&waited), "{tool}: {waited}");
        assert_eq!(desk.shop.count(tool).requests, 1);
    }
}

#[test]
fn sb_131_a_timeout_is_half_as_long_again_as_the_slowest_calls() {
    let proposed = |ms| proposed_timeout(Duration::from_millis(ms)).as_millis();
    assert!((1_200..=1_500).contains(&proposed(800)));
    assert_eq!(proposed(2_000), 3_000);
}

#[tokio::test]
async fn sb_133_a_call_nobody_waits_for_is_cancelled() {
    let desk = Desk::open().await;
    desk.shop.fault("get_order", Fault::Hang, None);
    let (executors, job) = (desk.executors.clone(), desk.job("get_order", order()));
    let call = tokio::spawn(async move { executors.run(job).await });
    while desk.shop.open() == 0 {
        tokio::task::yield_now().await;
    }
    call.abort();
    while desk.shop.open() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(desk.shop.count("get_order").requests, 1, "and not tried again");
}

/// So many calls that end with status 500, `apart` from each other.
async fn fail(desk: &Desk, tool: &str, times: usize, apart: Duration) {
    desk.shop.fault(tool, Fault::status(500), Some(times));
    for _ in 0..times {
        assert_eq!(answer(desk.run(tool, json!({})).await).status, Some(500));
        advance(apart).await;
    }
}

#[tokio::test(start_paused = true)]
async fn sb_134_six_failures_in_a_row_within_30_seconds_open_the_breaker() {
    let desk = Desk::open().await;
    fail(&desk, "track_shipment", 6, Duration::from_secs(10)).await;
    assert!(!desk.executors.is_open(&desk.card("track_shipment")), "spread over a minute they do not");
    assert_eq!(answer(desk.run("track_shipment", json!({})).await).status, Some(200));
    fail(&desk, "track_shipment", 6, Duration::from_secs(1)).await;
    let before = desk.shop.count("track_shipment").requests;
    not_started(desk.run("track_shipment", json!({})).await);
    assert_eq!(desk.shop.count("track_shipment").requests, before);
}

#[tokio::test(start_paused = true)]
async fn sb_135_while_open_a_fixed_answer_is_given_and_other_tools_are_unaffected() {
    let desk = Desk::open().await;
    fail(&desk, "get_stock", 6, Duration::from_secs(1)).await;
    let problem = not_started(desk.run("get_stock", json!({"sku": "SKU-A1B2C3"})).await);
    assert_eq!((problem.status.as_str(), problem.code), ("unavailable", ProblemCode::Unavailable));
    assert!(problem.message.contains("temporarily not available"));
    assert!(desk.executors.is_open(&desk.card("get_stock")));
    assert_eq!(desk.card("get_stock").fallback.as_deref(), Some("search_products"));
    let found: ToolAnswer = answer(desk.run("search_products", json!({"keyword": "耳机"})).await);
    assert_eq!(found.status, Some(200));
}

#[tokio::test(start_paused = true)]
async fn sb_136_after_30_seconds_one_probe_decides() {
    let desk = Desk::open().await;
    fail(&desk, "get_stock", 6, Duration::from_secs(1)).await;
    let ten_calls = async |expected: u16| {
        let before = desk.shop.count("get_stock").requests;
        let calls: Vec<_> = (0..10)
            .map(|_| {
                let (executors, job) = (desk.executors.clone(), desk.job("get_stock", json!({"sku": "SKU-A1B2C3"})));
                tokio::spawn(async move { executors.run(job).await })
            })
            .collect();
        let mut answered = Vec::new();
        for call in calls {
            if let End::Answered(answer) = call.await.unwrap().end {
                answered.push(answer.status.unwrap());
            }
        }
        assert_eq!((desk.shop.count("get_stock").requests - before, answered), (1, vec![expected]));
    };
    // A probe is one request, also where a read would be tried again.
    desk.shop.fault("get_stock", Fault::status(503), Some(1));
    advance(Duration::from_secs(30)).await;
    ten_calls(503).await;
    advance(Duration::from_secs(29)).await;
    not_started(desk.run("get_stock", json!({"sku": "SKU-A1B2C3"})).await);
    advance(Duration::from_secs(1)).await;
    ten_calls(200).await;
    assert_eq!(answer(desk.run("get_stock", json!({"sku": "SKU-A1B2C3"})).await).status, Some(200));
}
