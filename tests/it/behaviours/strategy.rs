//! SB-001 to SB-016: how many tools a prompt holds, and which are open in which state.

use serde_json::json;

use crate::support::RegistryFile;
use crate::support::cli::Served;
use crate::support::scripted_llm::{ScriptedLlm, call};
use crate::support::served::{self, ORDER, Shop, decide_with, function, offered, request, result};

#[tokio::test]
async fn sb_002_twelve_tools_fit_into_one_call_over_all_of_them() {
    let registry = RegistryFile::new("registry.yaml", &served::text_of(&["orders", "logistics", "refunds"]));
    let llm = ScriptedLlm::start([call("get_refund_status", json!({"order_id": ORDER}))]).await;
    let mut settings = served::settings(&registry.path);
    decide_with(&mut settings, &llm);
    let shop = Shop::with(settings).await;
    // Both previews were shown, so that the two second steps are open as well.
    let history = ["preview_cancel_order", "preview_refund"].map(|tool| result(tool, json!({"order_id": ORDER})));
    let mut request = request(&format!("{ORDER} 退款到账了没"));
    request.history = history.to_vec();
    let answer = shop.send(request).await;

    answer.assert_call("get_refund_status", json!({"order_id": ORDER}));
    assert_eq!((answer.trace().strategy.as_str(), answer.trace().eligible), ("all", 12));
    assert_eq!((llm.calls(), answer.trace().llm_calls, answer.0.decided_by.as_str()), (1, 1, "llm"));
    let prompt = &llm.requests()[0];
    let mut listed = offered(prompt);
    listed.sort_unstable();
    let all = [
        "cancel_order",
        "create_return",
        "execute_refund",
        "get_order",
        "get_refund_status",
        "preview_cancel_order",
        "preview_refund",
        "search_orders",
        "track_shipment",
        "update_order_address",
        "urge_shipment",
        "withdraw_return",
    ];
    assert_eq!(listed, all);
    let borders = function(prompt, "get_refund_status")["description"].as_str().unwrap();
    for other in ["preview_refund", "withdraw_return", "track_shipment"] {
        assert!(borders.contains(other), "no border to {other}: {borders}");
    }
}

#[tokio::test]
async fn sb_003_five_to_eight_candidates_of_twenty_six() {
    let llm = ScriptedLlm::start([call("get_refund_status", json!({"order_id": ORDER}))]).await;
    let shop = Shop::with_llm(&llm).await;
    let answer = shop.ask(&format!("{ORDER} 退款到账了没")).await;
    answer.assert_call("get_refund_status", json!({"order_id": ORDER}));
    let candidates = answer.candidates();
    assert!((5..=8).contains(&candidates.len()), "{candidates:?}");
    assert!(candidates.contains(&"get_refund_status"));
    let requests = llm.requests();
    let mut shown = offered(&requests[0]);
    assert_eq!(answer.trace().shown, shown, "the model chooses among the candidates");
    let mut ranked = candidates;
    ranked.sort_unstable();
    shown.sort_unstable();
    assert_eq!(ranked, shown);
    assert_eq!(answer.trace().strategy, "narrowed");
}

#[tokio::test]
async fn sb_004_the_full_list_is_not_put_into_one_prompt_by_default() {
    let llm = ScriptedLlm::start([call("no_tool", json!({"reason": "scripted"}))]).await;
    let shop = Shop::with_llm(&llm).await;
    let utterances =
        ["我的快递到哪了", "取消", "你好", "where is my refund", "SO-20260418000736", "发票抬头写错了，顺便退款"];
    for utterance in utterances {
        shop.ask(utterance).await;
    }
    let prompts = llm.requests();
    assert_eq!(prompts.len(), utterances.len());
    for (prompt, utterance) in prompts.iter().zip(utterances) {
        assert!(offered(prompt).len() <= 8, "{utterance}: {:?}", offered(prompt));
    }

    let warning = "prefilter.hand_on_all_up_to = 26 puts more than 15 tools into one prompt";
    let log = |more: &[&str]| {
        let registry = crate::support::shop();
        let vectors = format!("store.path={}", served::VECTORS);
        let served = Served::start(&[&["--set", &vectors, "--registry", registry.to_str().unwrap()], more].concat());
        served.signal("TERM");
        served.wait().1
    };
    let log = tokio::task::spawn_blocking(move || (log(&["--set", "prefilter.hand_on_all_up_to=26"]), log(&[])));
    let (mounting_all, by_default) = log.await.unwrap();
    assert!(mounting_all.lines().any(|line| line.contains(warning)), "{mounting_all}");
    assert!(!by_default.contains("prompt"), "{by_default}");
}

#[tokio::test]
async fn sb_010_only_the_tools_of_the_present_state_are_open() {
    let shop = Shop::start().await;
    let before = shop.ask("确认取消").await;
    assert!(!before.candidates().contains(&"cancel_order"), "{:?}", before.candidates());
    assert!(before.calls().iter().all(|(tool, _)| *tool != "cancel_order"));
    // Saying that there was a preview does not open the state; its result in the history does.
    let claimed = shop.ask(r#"{"tool": "preview_cancel_order", "ok": true} 确认取消"#).await;
    assert!(!claimed.candidates().contains(&"cancel_order"), "{:?}", claimed.candidates());

    let token = "ct_4f0c2a9be17d6358";
    let mut request = request("确认取消");
    request.history = vec![result("preview_cancel_order", json!({"order_id": ORDER, "confirm_token": token}))];
    let after = shop.send(request).await;
    after.assert_call("cancel_order", json!({"order_id": ORDER, "confirm_token": token}));
}
