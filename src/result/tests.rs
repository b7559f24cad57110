use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::types::{Body, ToolAnswer};

const SETTINGS: Settings = Settings { max_chars: 4_000, max_rows: 20 };

fn card(fields: &[&str], class: SideEffect) -> ToolCard {
    let properties = json!({"status": {"type": "string"}, "time_range": {"type": "string"}, "limit": {"default": 10}});
    ToolCard {
        side_effect: class,
        result_fields: fields.iter().map(|field| (*field).to_owned()).collect(),
        ..ToolCard::reading("search", json!({"type": "object", "properties": properties}))
    }
}

fn shaped_in(locale: &str, card: &ToolCard, arguments: Value, answer: &ToolAnswer) -> Shape {
    let none = Map::new();
    let arguments = arguments.as_object().unwrap_or(&none);
    shape(answer, &Context { card, arguments, fetched_at: UnixMs(1_764_547_200_000), locale }, &SETTINGS)
}

fn shaped(card: &ToolCard, answer: &ToolAnswer) -> Shape {
    shaped_in("en", card, json!({}), answer)
}

fn http(status: u16, body: Body) -> ToolAnswer {
    ToolAnswer { status: Some(status), body, failed: false, cut: false, retry_after_ms: None }
}

/// `status code retryable repairable` of a failure.
#[track_caller]
fn fails(card: &ToolCard, answer: &ToolAnswer, expect: &str) -> Problem {
    let shaped = shaped(card, answer).shaped;
    assert!(!shaped.ok && shaped.data.is_none(), "{shaped:?}");
    let problem = shaped.error.unwrap();
    let told = format!("{} {} {} {}", problem.status, problem.code.as_str(), problem.retryable, problem.repairable);
    assert_eq!(told, expect, "{answer:?}");
    assert!(!problem.message.is_empty() && problem.suggestion.as_ref().is_some_and(|text| !text.is_empty()));
    problem
}

#[test]
fn lists_are_found_in_the_forms_services_use() {
    let card = card(&["id"], SideEffect::Read);
    let rows = json!([{"id": 1, "x": 2}, {"id": 2}]);
    for body in [
        rows.clone(),
        json!({"data": rows}),
        json!({"ok": true, "data": {"orders": rows, "total": 2}}),
        json!({"orders": rows, "next_cursor": null}),
    ] {
        let shape = shaped(&card, &ToolAnswer::json(body.clone()));
        assert_eq!(shape.shaped.data, Some(json!([{"id": 1}, {"id": 2}])), "{body}");
        assert_eq!((shape.sizes.rows, shape.sizes.dropped_fields), (2, 1), "{body}");
    }
    // A list inside one object is a field of it.
    let order = super::tests::card(&["id", "items"], SideEffect::Read);
    let shape =
        shaped(&order, &ToolAnswer::json(json!({"id": 1, "items": [{"sku": "a", "internal_id": 9}], "by": "x"})));
    assert_eq!(shape.shaped.data, Some(json!({"id": 1, "items": [{"sku": "a"}]})));
    assert_eq!(shape.sizes.dropped_fields, 2);
}

#[test]
fn nothing_is_no_success() {
    let (read, write) = (card(&["id"], SideEffect::Read), card(&["id", "done"], SideEffect::Write));
    for body in [Body::Empty, Body::Json(json!({})), Body::Json(json!(null)), Body::Json(json!({"data": null}))] {
        fails(&read, &http(200, body.clone()), "no_result NO_RESULT true false");
        fails(&write, &http(200, body), "no_result NO_RESULT false false");
    }
    let done = shaped(&write, &http(204, Body::Empty)).shaped;
    assert!(done.ok && done.notices[0].contains("does not say that the change took effect"), "{done:?}");
    fails(&read, &http(204, Body::Empty), "no_result NO_RESULT true false");
}

#[test]
fn failures_have_one_form_whatever_they_come_in() {
    let card = card(&["id"], SideEffect::Read);
    let fails = |answer: &ToolAnswer, expect: &str| fails(&card, answer, expect);
    let text = |text: &str| Body::Text(text.into());
    fails(&http(401, Body::Empty), "auth_failed AUTH_FAILED false false");
    fails(&http(403, text("<html>no</html>")), "permission_denied PERMISSION_DENIED false false");
    fails(&http(404, Body::Json(json!({"code": "ORDER_NOT_FOUND"}))), "not_found ORDER_NOT_FOUND false true");
    fails(&http(409, Body::Empty), "conflict CONFLICT false false");
    fails(&http(422, Body::Json(json!({"detail": "bad"}))), "bad_params INVALID_ARGS false true");
    let limited = fails(&http(429, Body::Empty), "rate_limited RATE_LIMITED true false");
    assert_eq!(limited.retry_after_ms, Some(3_000));
    fails(&http(302, Body::Empty), "unavailable UNAVAILABLE true false");
    fails(&http(503, text("upstream")), "unavailable UNAVAILABLE true false");
    fails(&http(422, Body::Json(json!({"ok": false, "error": {"code": "E77"}}))), "bad_params E77 false true");
    fails(&http(200, Body::Json(json!({"ok": false, "error": {"code": "TIMEOUT"}}))), "timeout TIMEOUT true false");
    fails(&http(200, text("<!DOCTYPE html><p>log in</p>")), "not_understood NOT_UNDERSTOOD false false");
    let mcp = ToolAnswer { failed: true, status: None, ..http(200, text("no such customer")) };
    assert_eq!(fails(&mcp, "failed FAILED false false").message, "no such customer");
    let cut = ToolAnswer { cut: true, ..http(200, Body::Json(json!([{"id": 1}]))) };
    fails(&cut, "too_long RESULT_TOO_LONG false true");
}

const TRACES: [&str; 9] = [
    "java.lang.IllegalStateException: no row\n\tat com.shop.Orders.find(Orders.java:17)",
    "Traceback (most recent call last):\n  File \"/srv/app.py\", line 3, in find\nKeyError: 'x'",
    "panic: boom\n\ngoroutine 1 [running]:\nmain.find(0x1)\n\t/srv/main.go:12 +0x1d",
    "TypeError: x is undefined\n    at find (/srv/app/orders.js:10:5)",
    "thread 'main' panicked at src/orders.rs:12:5",
    "SQLSTATE[42S02]: Base table or view not found",
    "You have an error near SELECT * FROM t_orders WHERE id = 1",
    "ORA-00942: table or view does not exist",
    "com.shop.internal.OrderException",
];

#[test]
fn no_inside_of_a_program_passes_in_a_message_or_in_data() {
    let card = card(&[], SideEffect::Read);
    for trace in TRACES {
        for body in
            [Body::Text(trace.into()), Body::Json(json!({"message": trace})), Body::Json(json!({"error": trace}))]
        {
            let problem = shaped(&card, &http(500, body)).shaped.error.unwrap();
            assert_eq!(problem.message, "the tool is temporarily not available", "{trace}");
        }
        let data = shaped(&card, &http(200, Body::Json(json!({"note": trace})))).shaped;
        assert_eq!(data.data, Some(json!({"note": "[removed]"})), "{trace}");
    }
}

const SECRETS: [&str; 9] = [
    "Bearer abcdef0123456789",
    "sk-proj-abcdefghijklmnop1234",
    "AKIAABCDEFGHIJKLMNOP",
    "ghp_abcdefghijklmnopqrstuvwxyz",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ4In0.c2ln",
    "password=hunter22",
    "密码：hunter22",
    "postgres://admin:hunter22@db/orders",
    "http://10.1.2.3:8080/admin",
];

#[test]
fn planted_secrets_and_internal_hosts_do_not_pass() {
    let card = card(&[], SideEffect::Read);
    for secret in SECRETS.into_iter().chain(["orders-db.internal:5432", "api.svc.cluster.local", "192.168.1.9"]) {
        let text = format!("see {secret} 请查收");
        let data = shaped(&card, &http(200, Body::Json(json!({"note": text, "rows": [{"深": text}]})))).shaped;
        let seen = json!(data).to_string();
        assert!(!seen.contains(secret) && seen.contains("[removed]") && seen.contains("请查收"), "{seen}");
        assert!(data.notices.iter().any(|notice| notice.starts_with("2 parts were removed")), "{data:?}");
        let problem = shaped(&card, &http(400, Body::Json(json!({"message": text})))).shaped.error.unwrap();
        assert!(!json!(problem).to_string().contains(secret), "{problem:?}");
    }
    let fine = json!({"url": "https://shop.example/i/1.pdf", "version": "1.10.2", "note": "订单 10.5 元，at 10:30"});
    assert_eq!(shaped(&card, &http(200, Body::Json(fine.clone()))).shaped.data, Some(fine));
}

#[test]
fn an_unknown_code_is_no_state() {
    let mut card = card(&["status"], SideEffect::Read);
    card.result_enums.entry("status".into()).or_default().insert("30".into(), "已发货 shipped".into());
    let status = |locale: &str, code: Value| {
        let shape = shaped_in(locale, &card, json!({}), &ToolAnswer::json(json!({"status": code}))).shaped;
        (shape.data.unwrap()["status"].as_str().unwrap().to_owned(), shape.notices.len())
    };
    assert_eq!(status("en", json!("30")), ("已发货 shipped".into(), 0));
    assert_eq!(status("en", json!(30)), ("已发货 shipped".into(), 0));
    assert_eq!(status("en", json!("35")), ("unknown (35)".into(), 1));
    assert_eq!(status("zh", json!("35")), ("未知 unknown (35)".into(), 1));
}

#[test]
fn an_empty_list_says_why_and_what_to_loosen() {
    let card = card(&["id"], SideEffect::Read);
    let arguments = json!({"status": "shipped", "time_range": "last_7_days", "limit": 3});
    let shape = shaped_in("en", &card, arguments.clone(), &ToolAnswer::json(json!([]))).shaped;
    assert_eq!((shape.ok, shape.data, shape.reason.as_deref()), (true, Some(json!([])), Some("no_match")));
    assert_eq!(shape.hint.as_deref(), Some("try without `status`, or a wider `time_range`"));
    let shape = shaped_in("zh", &card, arguments, &ToolAnswer::json(json!({"data": [], "reason": "no_order"}))).shaped;
    assert_eq!(shape.reason.as_deref(), Some("no_order"));
    assert_eq!(shape.hint.as_deref(), Some("可以去掉 `status`，或放宽 `time_range` 再查"));
}

#[test]
fn long_results_are_cut_with_a_notice() {
    let card = card(&[], SideEffect::Read);
    let rows: Vec<Value> = (0..35).map(|id| json!({"id": id})).collect();
    let shape = shaped(&card, &ToolAnswer::json(json!({"data": rows, "next_cursor": "abcdefgh"})));
    assert_eq!((shape.shaped.data.as_ref().unwrap().as_array().unwrap().len(), shape.rest.len()), (20, 15));
    assert!(shape.shaped.notices[0].starts_with("35 rows, the first 20 are shown"));
    assert_eq!(shape.shaped.next_cursor.as_deref(), Some("abcdefgh"));

    let shape = shaped_in("zh", &card, json!({}), &ToolAnswer::json(json!([{"excerpt": "退款规则".repeat(2_250)}])));
    assert!(shape.sizes.shaped_chars <= 4_000, "{:?}", shape.sizes);
    assert!(shape.shaped.notices[0].contains("`excerpt` 共 9000 个字符"), "{:?}", shape.shaped.notices);
    // Nothing in it can be shortened.
    let shape = shaped(&card, &ToolAnswer::json(json!({"label": "x", "n": (0..3_000).collect::<Vec<_>>()})));
    assert!(shape.shaped.data.is_none() && shape.shaped.notices[0].contains("all of it was left out"));
}

#[test]
fn many_texts_are_cut_at_once_and_told_in_a_few_words() {
    let card = card(&[], SideEffect::Read);
    let many: Map<String, Value> = (0..20_000).map(|n| (format!("f{n}"), json!("x".repeat(45)))).collect();
    let shape = shaped(&card, &ToolAnswer::json(Value::Object(many)));
    assert!(shape.shaped.data.is_none() && shape.shaped.notices.len() == 1);
    let some: Map<String, Value> = (0..30).map(|n| (format!("f{n}"), json!("长".repeat(400)))).collect();
    let shape = shaped(&card, &ToolAnswer::json(Value::Object(some)));
    assert!(shape.sizes.shaped_chars <= 4_000 && shape.sizes.shaped_chars > 3_900, "{:?}", shape.sizes);
    assert_eq!(shape.shaped.notices.len(), 6, "{:?}", shape.shaped.notices);
}

#[test]
fn what_hides_in_names_codes_and_hints_does_not_pass_either() {
    let mut card = card(&[], SideEffect::Read);
    card.result_enums.entry("status".into()).or_default().insert("1".into(), "fine".into());
    let body = json!({"hosts": {"db1.internal": 1}, "status": "Bearer abcdefgh1234", "v6": "[fd00::1]:80",
        "url": "https://shop.example/x?token=abcdefgh1234"});
    let seen = json!(shaped(&card, &ToolAnswer::json(body)).shaped).to_string();
    for planted in ["db1.internal", "abcdefgh1234", "fd00::1"] {
        assert!(!seen.contains(planted), "{planted}: {seen}");
    }
    let error =
        json!({"error": {"code": "BAD", "fields": ["http://10.0.0.5:8080/x", "status"], "next": "db1.internal"}});
    let problem = shaped(&card, &http(422, Body::Json(error))).shaped.error.unwrap();
    assert!(problem.next.is_none());
    assert_eq!(problem.fields.len(), 1, "an argument of the tool: {problem:?}");
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,60}".prop_map(Value::from),
        prop::sample::select(SECRETS.to_vec()).prop_map(Value::from),
        prop::sample::select(TRACES.to_vec()).prop_map(Value::from),
        "[退款a ]{500,3000}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 64, 8, |inner| {
        let name =
            prop_oneof!["[a-z_]{1,8}", Just("data".to_owned()), Just("error".to_owned()), Just("token".to_owned())];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::btree_map(name, inner, 0..8).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_answer_is_shaped_within_its_bounds(
        body in any_json(), status in prop::option::of(100u16..600), failed: bool, chinese: bool, listed: bool,
    ) {
        let fields: &[&str] = if listed { &["data", "id", "a"] } else { &[] };
        let answer = ToolAnswer { status, failed, ..http(200, Body::Json(body)) };
        let locale = if chinese { "zh" } else { "en" };
        let shape = shaped_in(locale, &card(fields, SideEffect::Read), json!({}), &answer);
        prop_assert!(shape.sizes.shaped_chars <= SETTINGS.max_chars, "{:?}", shape.sizes);
        prop_assert_eq!(shape.shaped.ok, shape.shaped.error.is_none());
        let seen = json!(shape.shaped).to_string();
        for planted in SECRETS.iter().chain(&TRACES) {
            prop_assert!(!seen.contains(&json!(planted).to_string().trim_matches('"').to_owned()), "{} in {}", planted, seen);
        }
    }
}
