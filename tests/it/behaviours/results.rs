//! Results and failures as the model sees them.

use std::path::Path;
use std::sync::Arc;

use pointsman::registry;
use pointsman::result::{Context, Settings, Shape, shape};
use pointsman::server::proto::turn::Role;
use pointsman::server::proto::{RouteRequest, Turn};
use pointsman::tool::ToolCard;
use pointsman::types::{Body, Problem, ToolAnswer, ToolId, UnixMs};
use serde_json::{Value, json};

use crate::support::served::{ORDER, Shop, request, result};

const SETTINGS: Settings = Settings { max_chars: 4_000, max_rows: 20 };

fn card(name: &str) -> Arc<ToolCard> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/shop/registry.yaml");
    let registry = registry::load(&[path], &[]).unwrap();
    registry.cards[&ToolId::new(name)].clone()
}

fn shaped_in(locale: &str, tool: &str, arguments: Value, answer: &ToolAnswer) -> Shape {
    let (card, arguments) = (card(tool), arguments.as_object().unwrap().clone());
    let context = Context { card: &card, arguments: &arguments, fetched_at: UnixMs(1_764_547_200_000), locale };
    shape(answer, &context, &SETTINGS)
}

fn shaped(tool: &str, arguments: Value, body: Value) -> Shape {
    shaped_in("en", tool, arguments, &ToolAnswer::json(body))
}

fn http(status: u16, body: Body) -> ToolAnswer {
    ToolAnswer { status: Some(status), body, failed: false, cut: false, retry_after_ms: None }
}

#[track_caller]
fn failure(tool: &str, answer: &ToolAnswer) -> Problem {
    let shaped = shaped_in("en", tool, json!({}), answer).shaped;
    assert!(!shaped.ok && shaped.data.is_none(), "{shaped:?}");
    shaped.error.unwrap()
}

#[tokio::test]
async fn sb_035_a_result_says_that_it_is_finished() {
    let cancelled = json!({"order_id": ORDER, "status": "60", "done": true});
    let done = shaped("cancel_order", json!({"order_id": ORDER}), cancelled.clone()).shaped;
    assert_eq!(done.data.unwrap()["done"], true);
    let page = json!({"orders": [{"order_id": ORDER, "status": "30"}], "next_cursor": "bmV4dF9wYWdl"});
    assert!(shaped("search_orders", json!({}), page).shaped.next_cursor.is_some());
    let last = json!({"orders": [{"order_id": ORDER, "status": "30"}]});
    assert_eq!(shaped("search_orders", json!({}), last).shaped.next_cursor, None);

    // The conversation up to the result, replayed with what people say when they are content.
    let shop = Shop::start().await;
    let user = |text: &str| Turn { role: Role::User.into(), content: text.to_owned() };
    for (wish, content) in [("取消订单", "好的，谢谢"), ("cancel my order", "great, thank you")] {
        let history = vec![user(&format!("{wish} {ORDER}")), result("cancel_order", cancelled.clone())];
        let answer = shop.send(RouteRequest { history, ..request(content) }).await;
        assert_eq!(answer.calls(), [], "{content}");
    }
}

#[test]
fn sb_036_the_backends_codes_stay_behind_the_tool() {
    let schema = card("get_order").parameters.to_string();
    for (code, words) in [("10", "awaiting payment"), ("30", "shipped"), ("70", "refunding")] {
        assert!(!schema.contains(&format!("\"{code}\"")), "{schema}");
        for status in [json!(code), json!(code.parse::<u32>().unwrap())] {
            let data =
                shaped("get_order", json!({}), json!({"order_id": ORDER, "status": status})).shaped.data.unwrap();
            let told = data["status"].as_str().unwrap();
            assert!(told.ends_with(words) && !told.contains(code), "{told}");
        }
    }
}

#[test]
fn sb_081_a_business_error_helps_to_correct() {
    let body = json!({"ok": false, "error": {"code": "ORDER_NOT_FOUND", "message": "SF1234567890 looks like a waybill",
        "next": {"tool": "track_shipment", "hint": "it takes the waybill"}}});
    let problem = failure("get_order", &http(404, Body::Json(body)));
    assert_eq!(problem.message, "SF1234567890 looks like a waybill");
    assert_eq!(problem.next.unwrap().tool.as_str(), "track_shipment");
    assert!(problem.repairable && !problem.retryable);
}

#[test]
fn sb_086_a_failure_names_the_next_step() {
    let body = json!({"error": {"code": "ORDER_NOT_FOUND", "next": {"tool": "search_orders", "hint": "find the order first"}}});
    let problem = failure("preview_refund", &http(404, Body::Json(body)));
    assert_eq!(problem.next.unwrap().tool.as_str(), "search_orders");
}

#[test]
fn sb_087_no_trace_reaches_the_model() {
    let trace =
        "java.sql.SQLException: SELECT * FROM t_order WHERE id='1'\n\tat com.shop.OrderDao.find(OrderDao.java:42)";
    for body in [
        Body::Text(trace.into()),
        Body::Json(json!({"message": trace})),
        Body::Json(json!({"ok": false, "error": {"code": "DB", "message": trace, "suggestion": trace}})),
    ] {
        let text = json!(failure("get_order", &http(500, body))).to_string();
        for inside in ["OrderDao", "java", "SELECT", "t_order"] {
            assert!(!text.contains(inside), "{inside}: {text}");
        }
    }
}

#[test]
fn sb_088_a_failure_is_status_message_and_suggestion() {
    let problem = failure("get_invoice", &http(422, Body::Json(json!({"errors": [1, 2]}))));
    assert_eq!(problem.status, "bad_params");
    assert!(!problem.message.is_empty() && !problem.suggestion.unwrap().is_empty());
    let zh = shaped_in("zh", "get_invoice", json!({}), &http(422, Body::Empty)).shaped.error.unwrap();
    assert_eq!(zh.message, "工具拒绝了这些参数");
}

#[test]
fn sb_098_an_empty_result_needs_a_reason() {
    let swallowed = shaped("search_orders", json!({}), json!([])).shaped;
    assert_eq!(swallowed.reason.as_deref(), Some("not_given"));
    assert!(swallowed.notices[0].contains("may not have been able to look"), "{:?}", swallowed.notices);
    let honest = shaped("search_orders", json!({}), json!({"orders": [], "reason": "no_match"})).shaped;
    assert_eq!((honest.reason.as_deref(), honest.notices.len()), (Some("no_match"), 0));
}

#[test]
fn sb_099_an_odd_code_is_no_success() {
    let result = shaped("get_order", json!({}), json!({"order_id": "SO-20260418000736", "status": "35"})).shaped;
    assert_eq!(result.data.unwrap()["status"], "unknown (35)");
    assert!(result.notices[0].contains("not known"), "{:?}", result.notices);
}

#[test]
fn sb_107_the_result_of_a_write_says_that_it_took_effect() {
    let tool = "update_order_address";
    let done = shaped(tool, json!({}), json!({"order_id": "SO-20260418000736", "address": "x", "done": true})).shaped;
    assert_eq!((&done.data.unwrap()["done"], done.notices.len()), (&json!(true), 0));
    let silent = shaped(tool, json!({}), json!({"order_id": "SO-20260418000736", "address": "x"})).shaped;
    assert!(silent.notices[0].contains("does not say that the change took effect"), "{:?}", silent.notices);
}

fn orders(count: usize) -> Vec<Value> {
    let order = |i: usize| {
        json!({"order_id": format!("SO-202604180{i:05}"), "status": "30", "amount": 12.5, "title": "云朵耳机",
            "created_at": "2026-04-18T10:00:00+08:00", "items": [1], "address": "上海市某路1号"})
    };
    (0..count).map(order).collect()
}

#[test]
fn sb_137_long_results_are_cut() {
    let result =
        shaped("search_faq", json!({"question": "退款"}), json!([{"title": "t", "excerpt": "长".repeat(9_000)}]));
    assert!(result.sizes.shaped_chars <= 4_000, "{:?}", result.sizes);
}

#[test]
fn sb_138_the_cut_is_announced() {
    let result =
        shaped("search_faq", json!({"question": "退款"}), json!([{"title": "t", "excerpt": "长".repeat(9_000)}]));
    let notice = &result.shaped.notices[0];
    assert!(notice.contains("9000") && notice.contains("narrower") && notice.contains("page"), "{notice}");
}

#[test]
fn lists_have_a_cap() {
    let result = shaped("search_orders", json!({}), json!({"orders": orders(35)}));
    assert_eq!(result.shaped.data.unwrap().as_array().unwrap().len(), 20);
    assert_eq!(result.rest.len(), 15, "kept for the pages that follow");
}

#[test]
fn sb_140_lists_give_summaries() {
    let result = shaped("search_orders", json!({}), json!({"orders": orders(2)}));
    let rows = result.shaped.data.unwrap();
    let fields: Vec<&str> = rows[0].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(fields.len(), 5, "{fields:?}");
    assert!(!fields.contains(&"items") && !fields.contains(&"address"));
}

#[test]
fn sb_141_only_listed_fields_pass() {
    let body = json!({"order_id": "SO-20260418000736", "status": "30", "internal_id": 9, "created_by": "root"});
    let result = shaped("get_order", json!({}), body);
    assert_eq!(result.shaped.data, Some(json!({"order_id": "SO-20260418000736", "status": "已发货 shipped"})));
    assert_eq!(result.sizes.dropped_fields, 2);
}

#[test]
fn sb_142_codes_become_words() {
    let result = shaped("get_order", json!({}), json!({"status": "30"})).shaped;
    assert_eq!(result.data.unwrap()["status"], "已发货 shipped");
}

#[test]
fn sb_143_nothing_found_is_no_error() {
    let result =
        shaped("search_orders", json!({"keyword": "茶壶"}), json!({"orders": [], "reason": "no_match"})).shaped;
    assert_eq!((result.ok, result.data, result.error), (true, Some(json!([])), None));
}

#[test]
fn sb_144_nothing_there_differs_from_could_not_look() {
    let nothing = shaped("search_orders", json!({}), json!({"orders": [], "reason": "no_match"})).shaped;
    assert_eq!(nothing.reason.as_deref(), Some("no_match"));
    let offline = json!({"ok": false, "data": [], "error": {"code": "UNAVAILABLE", "message": "the index is offline"}});
    let problem = failure("search_orders", &http(200, Body::Json(offline)));
    assert_eq!((problem.status.as_str(), problem.retryable), ("unavailable", true));
}

#[test]
fn sb_145_looser_conditions_are_suggested() {
    let arguments = json!({"status": "shipped", "time_range": "last_7_days"});
    let result = shaped("search_orders", arguments, json!({"orders": [], "reason": "no_match"})).shaped;
    let hint = result.hint.unwrap();
    assert!(hint.contains("without `status`") && hint.contains("wider `time_range`"), "{hint}");
}

#[test]
fn sb_146_an_empty_object_is_a_failure() {
    for body in [Body::Json(json!({})), Body::Json(json!(null)), Body::Empty] {
        assert_eq!(failure("get_order", &http(200, body)).code.as_str(), "NO_RESULT");
    }
}

#[test]
fn sb_147_several_hits_stay_several() {
    let result = shaped("search_orders", json!({"time_range": "last_week"}), json!({"orders": orders(3)})).shaped;
    assert_eq!(result.data.unwrap().as_array().unwrap().len(), 3);
}
