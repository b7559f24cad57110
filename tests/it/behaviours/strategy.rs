//! SB-001 to SB-016: how many tools a prompt holds, and which are open in which state.

use std::path::Path;

use pointsman::config::Settings;
use pointsman::evaluate::{self, Stage};
use pointsman::retrieve::{Basis, Strategy};
use pointsman::rules::{Mode, Modes};
use pointsman::server::proto::route_response::Outcome;
use serde_json::json;

use crate::support::RegistryFile;
use crate::support::cli::Served;
use crate::support::scripted_llm::{ScriptedLlm, call};
use crate::support::served::{self, Answer, ORDER, Shop, decide_with, function, offered, request, result};

/// The rules that ship with the sample shop.
fn sample_rules() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/shop/rules.yaml")
}

fn with_rules(registry: &Path, rules: &Path, modes: Modes) -> Settings {
    let mut settings = served::settings(registry);
    settings.pipeline.rules.file = Some(rules.to_path_buf());
    settings.pipeline.rules.modes = modes;
    settings
}

fn modes<const N: usize>(default: Mode, domains: [(&str, Mode); N]) -> Modes {
    Modes { default, by_domain: domains.map(|(domain, mode)| (domain.to_owned(), mode)).into() }
}

fn is_none(answer: &Answer) -> bool {
    matches!(answer.0.outcome, Some(Outcome::NoTool(_)))
}

#[tokio::test]
async fn sb_001_rules_alone_are_a_valid_mode() {
    let names = ["search_orders", "get_order", "track_shipment", "search_faq"];
    let text = served::text_with(|card| names.iter().any(|name| card.starts_with(&format!("{name}\n"))));
    let registry = RegistryFile::new("registry.yaml", &text);
    let rules = RegistryFile::new(
        "rules.yaml",
        r"
rules:
  - {id: parcel, priority: 2, when: {any: [快递, 包裹, parcel, package]}, then: {pin: track_shipment}, utterances: [我的快递到了没, where is my package]}
  - {id: order, priority: 3, when: {patterns: '(?P<order_id>SO-[0-9]{14})'}, then: {pin: get_order}, utterances: [SO-20260418000736]}
  - {id: orders, priority: 1, when: {any: [我的订单, my orders]}, then: {pin: search_orders}, utterances: [看看我的订单]}
  - {id: policy, when: {all: [退货, 规则]}, then: {pin: search_faq}, utterances: [退货规则是什么]}
",
    );
    let llm = ScriptedLlm::start([call("search_faq", json!({"question": "x"}))]).await;
    let mut settings = with_rules(&registry.path, &rules.path, modes(Mode::Rules, []));
    decide_with(&mut settings, &llm);
    let shop = Shop::with(settings).await;
    for (utterance, rule, tool) in [
        ("我的快递到了没", "parcel", "track_shipment"),
        ("Where is my PACKAGE?", "parcel", "track_shipment"),
        ("ＳＯ－２０２６０４１８０００７３６现在什么状态", "order", "get_order"),
        ("list my orders", "orders", "search_orders"),
    ] {
        let answer = shop.ask(utterance).await;
        let calls = answer.calls();
        assert_eq!(calls.iter().map(|(tool, _)| *tool).collect::<Vec<_>>(), [tool], "{utterance}");
        assert_eq!((answer.0.decided_by.as_str(), answer.trace().rule.as_str()), ("rule", rule), "{utterance}");
        assert_eq!((answer.trace().llm_calls, answer.trace().strategy.as_str()), (0, "rule"));
        assert!(!answer.trace().rules_version.is_empty());
    }
    // What no rule knows is nobody's business either.
    for utterance in ["今天天气怎么样", "put the kettle on"] {
        let answer = shop.ask(utterance).await;
        assert!(is_none(&answer), "{answer:?}");
        assert_eq!((answer.0.decided_by.as_str(), answer.trace().rule.as_str()), ("rule", ""));
    }
    assert_eq!(llm.calls(), 0);
}

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

#[tokio::test]
async fn sb_005_the_domain_comes_first_where_there_are_many_tools() {
    let files: Vec<RegistryFile> = ["shop", "outlet", "abroad"]
        .iter()
        .map(|name| {
            RegistryFile::new("registry.yaml", &served::text().replace("registry: shop", &format!("registry: {name}")))
        })
        .collect();
    let mut settings = served::settings(&files[0].path);
    settings.pipeline.registries = files.iter().map(|file| file.path.clone()).collect();
    settings.pipeline.retrieve.strategy = Strategy::Layered;
    let shop = Shop::with(settings).await;
    for (utterance, domain) in
        [("发票下载一下", "invoices"), ("download the invoice please", "invoices"), ("有什么优惠券", "marketing")]
    {
        let answer = shop.ask(utterance).await;
        let trace = answer.trace();
        assert_eq!(trace.strategy, "layered", "{utterance}");
        assert_eq!((trace.domains[0].domain.as_str(), trace.domains[0].chosen), (domain, true), "{:?}", trace.domains);
        assert_eq!(trace.domains.len(), 9);
        assert!(trace.domains.windows(2).all(|pair| pair[0].score >= pair[1].score));
        // 78 cards, of which the second steps are not open.
        assert_eq!((trace.eligible, trace.widened.as_str()), (72, ""), "{utterance}");
        let (_, registry) = shop.server.app.router().unwrap().registry();
        let chosen = |tool: &str| {
            let domain = registry.cards[tool].domain.as_deref().unwrap();
            trace.domains.iter().any(|step| step.chosen && step.domain == domain)
        };
        assert!(answer.candidates().iter().all(|tool| chosen(tool)), "{:?}", answer.candidates());
    }
    // A tool that is named has a place whatever its domain.
    let answer = shop.ask("发票下载一下 shop/track_shipment").await;
    assert!(answer.candidates().contains(&"shop/track_shipment"), "{:?}", answer.candidates());
}

#[tokio::test]
async fn sb_006_a_rule_mounts_the_domain_without_a_model_call() {
    let llm = ScriptedLlm::start([call("get_invoice", json!({"order_id": ORDER}))]).await;
    let mut settings = with_rules(&crate::support::shop(), &sample_rules(), Modes::default());
    decide_with(&mut settings, &llm);
    let shop = Shop::with(settings).await;
    let invoices = ["change_invoice_title", "get_invoice", "request_invoice"];
    for utterance in [&format!("{ORDER} 抬头写错了，改发票"), &format!("the INVOICE of {ORDER}")] {
        let before = llm.calls();
        let answer = shop.ask(utterance).await;
        // The one call is the choice among the three.
        assert_eq!((llm.calls() - before, answer.trace().llm_calls), (1, 1));
        assert_eq!(offered(llm.requests().last().unwrap()), invoices, "{utterance}");
        assert_eq!(answer.trace().shown, invoices);
        assert_eq!((answer.trace().rule.as_str(), answer.0.decided_by.as_str()), ("invoices", "llm"));
        assert_eq!((answer.trace().strategy.as_str(), answer.trace().widened.as_str()), ("narrowed", ""));
    }
}

/// One rule that puts every refund into a domain.
fn forced(domain: &str, widen: bool) -> RegistryFile {
    let rule = format!(
        "rules:\n  - {{id: forced, when: {{any: [退款, refund, 取消]}}, then: {{domains: [{domain}], widen: {widen}}}, utterances: [退款]}}\n"
    );
    RegistryFile::new("rules.yaml", &rule)
}

#[tokio::test]
async fn sb_007_a_wrong_domain_loses_no_tool() {
    let rules = forced("products", true);
    let shop = Shop::with(with_rules(&crate::support::shop(), &rules.path, Modes::default())).await;
    for utterance in [format!("{ORDER} 退款"), format!("I want a refund for order {ORDER}")] {
        let answer = shop.ask(&utterance).await;
        answer.assert_call("preview_refund", json!({"order_id": ORDER}));
        assert_eq!(answer.trace().rule, "forced");
        assert!(["nothing_close", "nothing_fits"].contains(&answer.trace().widened.as_str()), "{:?}", answer.trace());
    }
    // Where the rule means it, there is no way out.
    let rules = forced("products", false);
    let shop = Shop::with(with_rules(&crate::support::shop(), &rules.path, Modes::default())).await;
    let answer = shop.ask(&format!("{ORDER} 退款")).await;
    let mut candidates = answer.candidates();
    candidates.sort_unstable();
    assert_eq!((candidates, answer.trace().widened.as_str()), (vec!["get_stock", "search_products"], ""));

    // A domain that is in the race is put to the model first; its no is not the last word.
    let cancel = call("preview_cancel_order", json!({"order_id": ORDER}));
    let llm = ScriptedLlm::start([call("no_tool", json!({"reason": "none of these"})), cancel]).await;
    let rules = forced("refunds", true);
    let mut settings = with_rules(&crate::support::shop(), &rules.path, Modes::default());
    decide_with(&mut settings, &llm);
    let shop = Shop::with(settings).await;
    let answer = shop.ask(&format!("{ORDER} 取消，钱退给我")).await;
    answer.assert_call("preview_cancel_order", json!({"order_id": ORDER}));
    assert_eq!((answer.trace().widened.as_str(), answer.trace().llm_calls, llm.calls()), ("nothing_fits", 2, 2));
    let requests = llm.requests();
    assert!(!offered(&requests[0]).contains(&"preview_cancel_order"), "{:?}", offered(&requests[0]));
    assert!(offered(&requests[1]).contains(&"preview_cancel_order"), "{:?}", offered(&requests[1]));
}

#[tokio::test]
async fn sb_008_the_narrowing_stage_is_exchangeable() {
    let mut recall = Vec::new();
    for basis in [Basis::Lexical, Basis::Dense, Basis::Fused] {
        let mut settings = served::settings(&crate::support::shop()).pipeline;
        settings.retrieve.basis = basis;
        let options = evaluate::Options {
            queries: Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/shop.dev.jsonl"),
            stage: Stage::Prefilter,
            candidates: false,
            examples: None,
            limit: None,
            seed: 0,
            confusions: false,
            baselines: false,
            hide_answers: false,
        };
        let report = evaluate::evaluate(&options, settings, &|_| {}).await.unwrap();
        let (_, figure) = report.figures.iter().find(|(path, _)| path == "recall.8").unwrap();
        assert_eq!(figure.rows, 214, "{basis:?}");
        println!("recall@8 {basis:?}: {:?}", figure.value);
        recall.push(figure.value.unwrap());
    }
    assert!(recall[0] != recall[1] && recall[1] != recall[2], "three stages, three rankings: {recall:?}");
    assert!(recall.iter().all(|recall| *recall > 0.7), "{recall:?}");
}

#[tokio::test]
async fn sb_009_a_yes_after_a_preview_means_that_preview_or_nothing() {
    let shop = Shop::with(with_rules(&crate::support::shop(), &sample_rules(), Modes::default())).await;
    let token = "ct_4f0c2a9be17d6358";
    let shown = |preview: &str| result(preview, json!({"order_id": ORDER, "confirm_token": token}));
    let say = async |utterance: &str, history: &[_]| {
        let mut request = request(utterance);
        request.history = history.to_vec();
        shop.send(request).await
    };
    let both = [shown("preview_cancel_order"), shown("preview_refund")];
    for (history, state, tool) in [
        (&both[..1], "cancel-shown", "cancel_order"),
        (&both[1..], "refund-shown", "execute_refund"),
        // The later preview is the one that is agreed to.
        (&both[..], "refund-shown", "execute_refund"),
    ] {
        for utterance in ["确认", "好的", "yes, go ahead", "ok", "可以吧"] {
            let answer = say(utterance, history).await;
            assert_eq!(answer.trace().states, [state], "{utterance}");
            assert!(answer.calls().iter().all(|(called, _)| *called == tool), "{utterance}: {answer:?}");
            assert!(answer.candidates().iter().all(|candidate| *candidate == tool), "{utterance}: {answer:?}");
        }
        let answer = say("确认", history).await;
        answer.assert_call(tool, json!({"order_id": ORDER, "confirm_token": token}));
        assert_eq!(answer.0.decided_by, "rule");
    }
    // A yes that answers nothing calls nothing that cannot be undone, and another subject is not held back.
    for (tool, _) in say("确认", &[]).await.calls() {
        assert!(!["cancel_order", "execute_refund"].contains(&tool));
    }
    let answer = say("我有多少积分", &both[..1]).await;
    answer.assert_call("get_account_overview", answer.calls()[0].1.clone());
    assert!(answer.trace().states.is_empty());
}

#[tokio::test]
async fn sb_011_what_is_always_alike_is_a_rule() {
    let shop = Shop::with(with_rules(&crate::support::shop(), &sample_rules(), Modes::default())).await;
    for utterance in
        ["快递单号SF1234567890走到哪了", "快递单号ＳＦ１２３４５６７８９０走到哪了", "tracking number sf1234567890"]
    {
        let answer = shop.ask(utterance).await;
        answer.assert_call("track_shipment", json!({"tracking_no": "SF1234567890"}));
        assert_eq!((answer.0.decided_by.as_str(), answer.trace().rule.as_str()), ("rule", "track-by-waybill"));
        let Some(Outcome::Call(call)) = &answer.0.outcome else { panic!("a call") };
        assert_eq!(call.calls[0].origins["tracking_no"], "utterance");
        // Nothing was searched.
        assert!(!answer.0.timings_ms.contains_key("embed") && answer.0.timings_ms.contains_key("rules"));
    }
}

#[tokio::test]
async fn sb_012_a_domain_moves_from_rules_to_the_model_and_back_by_a_setting() {
    let llm = ScriptedLlm::start([call("request_invoice", json!({"order_id": ORDER, "title_type": "personal"}))]).await;
    let start = async |modes: Modes| {
        let mut settings = with_rules(&crate::support::shop(), &sample_rules(), modes);
        decide_with(&mut settings, &llm);
        Shop::with(settings).await
    };
    let shop = start(modes(Mode::Rules, [("invoices", Mode::Dynamic)])).await;
    let invoice = shop.ask("开发票").await;
    assert_eq!((invoice.0.decided_by.as_str(), llm.calls()), ("llm", 1));
    assert_eq!(offered(&llm.requests()[0]), ["change_invoice_title", "get_invoice", "request_invoice"]);
    let cancel = shop.ask("取消").await;
    cancel.assert_clarify("preview_cancel_order", &["order_id"]);
    assert_eq!((cancel.0.decided_by.as_str(), cancel.trace().rule.as_str(), llm.calls()), ("rule", "cancel", 1));
    // The question that a rule asked is answered without the model, which does not see the tool.
    let Some(Outcome::Clarify(question)) = &cancel.0.outcome else { panic!("a question") };
    let reply = async |text: &str| {
        let mut reply = request(text);
        reply.pending = question.pending.clone();
        shop.send(reply).await
    };
    reply(&format!("订单号是{ORDER}")).await.assert_call("preview_cancel_order", json!({"order_id": ORDER}));
    assert_eq!(llm.calls(), 1);

    let shop = start(modes(Mode::Rules, [])).await;
    let invoice = shop.ask("开发票").await;
    assert_eq!(
        (invoice.0.decided_by.as_str(), invoice.trace().rule.as_str(), llm.calls()),
        ("rule", "open-invoice", 1)
    );
    shop.ask("取消").await.assert_clarify("preview_cancel_order", &["order_id"]);
    assert_eq!(llm.calls(), 1);
}
