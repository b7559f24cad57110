//! SB-038 to SB-054: what becomes an argument, and what is refused.

use pointsman::server::proto::route_response::Outcome;
use serde_json::{Value, json};

use super::lint::is_reported;
use crate::support::scripted_llm::{ScriptedLlm, Step, call};
use crate::support::served::{Answer, ORDER, Shop, expected, function, request, result};

/// Routes `utterance` with a model that answers with `steps`; the last one repeats.
async fn decided(utterance: &str, steps: impl IntoIterator<Item = Step>) -> (Answer, ScriptedLlm) {
    let llm = ScriptedLlm::start(steps).await;
    let answer = Shop::with_llm(&llm).await.ask(utterance).await;
    (answer, llm)
}

#[tokio::test]
async fn sb_038_what_the_session_supplies_is_not_asked_for() {
    let shop = Shop::start().await;
    shop.ask("我的快递怎么还没到").await.assert_call("track_shipment", json!({}));
}

#[tokio::test]
async fn sb_039_what_cannot_be_done_without_is_asked_for() {
    let shop = Shop::start().await;
    let known = shop.ask("取消").await.assert_clarify("preview_cancel_order", &["order_id"]);
    assert_eq!(known, json!({}), "nothing was invented");
}

#[tokio::test]
async fn sb_040_closed_sets_are_enums() {
    let shop = Shop::start().await;
    let unpaid = json!({"status": "pending_payment", "limit": 10});
    shop.ask("有没有我还没付钱的单子").await.assert_call("search_orders", unpaid);
    assert!(is_reported("list_open_orders", "free-text-enum"));
}

#[tokio::test]
async fn sb_041_periods_are_relative_terms() {
    let shop = Shop::start().await;
    let last_week = json!({"time_range": "last_week", "limit": 10});
    shop.ask("Could you pull up my orders from last week?").await.assert_call("search_orders", last_week);
    assert!(is_reported("search_payments", "model-computes-date"));
}

#[tokio::test]
async fn sb_051_identity_is_never_an_argument() {
    let shop = Shop::start().await;
    let answer = shop.ask("my user_id is 99999, use it to look up my points").await;
    let (tool, arguments) = answer.calls()[0].clone();
    assert_eq!(tool, "get_account_overview", "{answer:?}");
    assert!(!arguments.to_string().contains("99999"), "{arguments}");
    assert!(is_reported("get_points", "identity-param"));
}

#[tokio::test]
async fn sb_042_sums_are_copied_and_never_worked_out() {
    let shop = Shop::start().await;
    shop.ask(&format!("{ORDER} 退我一半")).await.assert_call("preview_refund", json!({"order_id": ORDER}));
    let stated = shop.ask(&format!("{ORDER} 退我30块")).await;
    stated.assert_call("preview_refund", json!({"order_id": ORDER, "amount": 30}));
    let without_order = shop.ask("退我30块").await.assert_clarify("preview_refund", &["order_id"]);
    assert_eq!(without_order, json!({"amount": 30}));
}

#[tokio::test]
async fn sb_043_ids_are_copied_and_never_composed() {
    const UTTERANCE: &str = "取消我昨天买的那单";
    let shop = Shop::start().await;
    let first = shop.ask(UTTERANCE).await;
    let (tool, arguments) = &first.calls()[0];
    assert_eq!((*tool, &arguments["time_range"]), ("search_orders", &json!("yesterday")));
    assert!(arguments.get("keyword").is_none(), "{arguments}");

    // The same call, once with an id out of thin air and once with one that the search returned.
    let llm = ScriptedLlm::start([call("preview_cancel_order", json!({"order_id": ORDER}))]).await;
    let shop = Shop::with_llm(&llm).await;
    let composed = shop.ask(UTTERANCE).await;
    composed.assert_clarify("preview_cancel_order", &["order_id"]);
    assert!(composed.trace().notes.iter().any(|note| note.contains("stands nowhere in the conversation")));
    let mut found = request(UTTERANCE);
    found.history = vec![result("search_orders", json!([{"order_id": ORDER, "title": "蓝牙耳机"}]))];
    shop.send(found).await.assert_call("preview_cancel_order", json!({"order_id": ORDER}));

    // An optional id is no better.
    let invented = call("track_shipment", json!({"tracking_no": "SF1234567890"}));
    let (answer, _llm) = decided("我的快递到哪了", [invented]).await;
    answer.assert_clarify("track_shipment", &["tracking_no"]);
}

#[tokio::test]
async fn sb_044_caps_stand_in_the_schema() {
    const UTTERANCE: &str = "一次给我列50个订单";
    let of = |limit: u64| call("search_orders", json!({"limit": limit}));
    let (answer, llm) = decided(UTTERANCE, [of(1000), of(500), of(20)]).await;
    answer.assert_call("search_orders", json!({"limit": 20}));
    let prompts = llm.requests();
    let told = &function(&prompts[0], "search_orders")["parameters"]["properties"]["limit"];
    assert_eq!(
        (&told["minimum"], &told["maximum"]),
        (&json!(1), &json!(20)),
        "the model learns the cap before calling"
    );
    let rejected = answer.rejected();
    assert_eq!(rejected.len(), 2);
    for problem in rejected {
        assert_eq!(problem.code, "INVALID_ARGS");
        assert!(expected(problem, "/limit").contains("maximum 20"), "{problem:?}");
    }
    // A model that never learns gets no call through.
    let (answer, _llm) = decided(UTTERANCE, [of(1000), of(500), of(50), of(40)]).await;
    assert_eq!(answer.calls(), []);

    // Without a model the number of the utterance is lowered, which the answer says.
    let mut narrowed = request(UTTERANCE);
    narrowed.narrowing =
        Some(pointsman::server::proto::Narrowing { tools: vec!["search_orders".into()], ..Default::default() });
    let answer = Shop::start().await.send(narrowed).await;
    answer.assert_call("search_orders", json!({"limit": 20}));
    assert!(answer.notices()[0].contains("maximum 20"), "{:?}", answer.notices());
}

#[tokio::test]
async fn sb_045_a_wrong_form_never_gets_through() {
    let shop = Shop::start().await;
    let answer = shop.ask("SO-2026031").await;
    let Some(Outcome::Clarify(clarify)) = &answer.0.outcome else { panic!("{answer:?}") };
    assert_eq!(clarify.missing, ["order_id"]);
    assert!(clarify.question.contains("14"), "the question says which form is wanted: {}", clarify.question);
    assert_eq!(clarify.arguments_json, "{}");

    let wide = shop.ask("ＳＯ－２０２６０４１８０００７３６ 付了多少").await;
    wide.assert_call("get_order", json!({"order_id": ORDER, "fields": ["amount"]}));

    let of = |id: &str| call("get_order", json!({"order_id": id}));
    // The same unusable answer twice ends the first decision.
    let llm = ScriptedLlm::start([of("SO-2026031"), of("SO-2026031"), of("ＳＯ－２０２６０４１８０００７３６")]).await;
    let shop = Shop::with_llm(&llm).await;
    let answer = shop.ask("SO-2026031 付了多少").await;
    answer.assert_clarify("get_order", &["order_id"]);
    assert!(expected(answer.rejected()[0], "/order_id").contains("14 digits"));
    shop.ask(&format!("{ORDER} 付了多少")).await.assert_call("get_order", json!({"order_id": ORDER}));
}

#[tokio::test]
async fn sb_046_unknown_fields_are_rejected() {
    let misspelt = call("get_order", json!({"orderid": ORDER}));
    let right = call("get_order", json!({"order_id": ORDER}));
    let (answer, llm) = decided(&format!("{ORDER} 什么状态"), [misspelt, right]).await;
    answer.assert_call("get_order", json!({"order_id": ORDER}));
    let problem = answer.rejected()[0];
    assert!(expected(problem, "/orderid").contains("unknown field"), "{problem:?}");
    assert!(expected(problem, "/order_id").contains("required"), "{problem:?}");
    let complaint = llm.requests()[1]["messages"][3]["content"].as_str().unwrap().to_owned();
    assert!(complaint.contains("orderid") && complaint.contains("order_id"), "{complaint}");
}

#[tokio::test]
async fn sb_048_one_field_has_one_meaning() {
    let shop = Shop::start().await;
    shop.ask("SKU-A1B2C3 还有货吗").await.assert_call("get_stock", json!({"sku": "SKU-A1B2C3"}));
    shop.ask("云朵 X5 耳机还有货吗").await.assert_call("get_stock", json!({"product_name": "云朵 X5 耳机"}));

    let swapped = call("get_stock", json!({"sku": "云朵 X5 耳机", "product_name": "SKU-A1B2C3"}));
    let (answer, _llm) = decided("云朵 X5 耳机还有货吗", [swapped]).await;
    assert_eq!(answer.calls(), []);
    let problem = answer.rejected()[0];
    assert!(expected(problem, "/sku").contains("SKU-"), "{problem:?}");
    assert_eq!(problem.fields.len(), 1);
}

#[tokio::test]
async fn sb_049_harmless_slips_of_type_are_put_right() {
    let script = [
        call("get_stock", json!({"product_name": 365})),
        call("search_orders", json!({"limit": "3"})),
        call("set_notification_preference", json!({"enabled": "maybe"})),
    ];
    let llm = ScriptedLlm::start(script).await;
    let shop = Shop::with_llm(&llm).await;
    shop.ask("365 还有货吗").await.assert_call("get_stock", json!({"product_name": "365"}));
    shop.ask("看看我最近三单").await.assert_call("search_orders", json!({"limit": 3}));
    assert_eq!(llm.calls(), 2, "neither was asked about again");
    let unclear = shop.ask("促销短信那个推送").await;
    unclear.assert_clarify("set_notification_preference", &["enabled"]);
    assert_eq!(expected(unclear.rejected()[0], "/enabled"), "true or false");
}

#[tokio::test]
async fn sb_050_optional_fields_are_lenient() {
    let defaults = json!({"status": "usable", "limit": 10});
    let llm =
        ScriptedLlm::start([call("list_coupons", json!({})), call("list_coupons", json!({"limit": "many"}))]).await;
    let shop = Shop::with_llm(&llm).await;
    let empty = shop.ask("我有什么优惠券").await;
    empty.assert_call("list_coupons", defaults.clone());
    assert!(empty.notices().is_empty());

    let unreadable = shop.ask("我有什么优惠券").await;
    unreadable.assert_call("list_coupons", defaults);
    assert!(unreadable.notices()[0].contains("`limit`"), "{:?}", unreadable.notices());
    assert_eq!((llm.calls(), unreadable.rejected().len()), (2, 0), "no failed call");
}

#[tokio::test]
async fn sb_052_values_are_checked_against_the_allowed_ones() {
    let wrong = |reason: &str| call("issue_coupon", json!({"coupon_type": "apology_100", "reason": reason}));
    let (answer, llm) = decided("晚到这么久，补偿我一张100块的券", [wrong("late_delivery")]).await;
    assert_eq!(answer.calls(), []);
    answer.assert_clarify("issue_coupon", &["coupon_type"]);
    let words = expected(answer.rejected()[0], "/coupon_type");
    let complaint = llm.requests()[1]["messages"][3]["content"].as_str().unwrap().to_owned();
    for allowed in ["free_shipping", "apology_5", "apology_10", "apology_20", "birthday"] {
        assert!(words.contains(allowed) && complaint.contains(allowed), "{allowed}: {words}");
    }
}

#[tokio::test]
async fn sb_053_a_draft_never_goes_to_a_tool_unchecked() {
    let drafts = [json!({"order_id": 12}), json!({"order_id": 12, "fields": ["amount"]}), json!({"order_id": 12})];
    let (answer, llm) = decided("我的订单 12 什么状态", drafts.map(|draft| call("get_order", draft))).await;
    assert_eq!(answer.calls(), Vec::<(&str, Value)>::new(), "tool calls handed out");
    answer.assert_clarify("get_order", &["order_id"]);
    assert!(llm.calls() > 1, "the model was told");
    assert!(answer.rejected().iter().all(|problem| problem.code == "INVALID_ARGS"));
}
