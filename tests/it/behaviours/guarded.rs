//! Calls through the whole gate: the sample cards, their backend, a server in between.

use pointsman::config::{Loaded, Sources};
use pointsman::decision::log::Target;
use pointsman::server::proto::authorize_response::Verdict as Authorized;
use pointsman::server::proto::invoke_response::Verdict;
use pointsman::server::proto::{AuthorizeRequest, NextPageRequest, Wish, next_page_response};
use pointsman::types::Scope;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::lint::is_reported;
use crate::gate::{ended, invoke, refused, state, wish};
use crate::support::backend::{DELIVERED, Fault, Options, SENT, Shop, UNSENT};
use crate::support::server::{TestServer, settings};

/// A shop that is open, and the server that guards it.
struct Counter {
    shop: Shop,
    server: TestServer,
    log: TempDir,
}

impl Counter {
    async fn open() -> Self {
        Self::with(&[]).await
    }

    async fn with(flags: &[(&str, &str)]) -> Self {
        let shop = Shop::start("127.0.0.1:0", Options::default()).await.unwrap();
        let target = format!("{{shop = {{base_url = \"{}\", allow_private = true}}}}", shop.url());
        let log = tempfile::tempdir().unwrap();
        let mut all = vec![("execute.targets".to_owned(), target)];
        all.extend(flags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
        let loaded = Loaded::load(&Sources { flags: all, ..Sources::default() }).unwrap().settings;
        let mut settings = settings(&[crate::support::shop()]);
        settings.pipeline.execute = loaded.pipeline.execute;
        settings.pipeline.gate = loaded.pipeline.gate;
        settings.pipeline.result = loaded.pipeline.result;
        settings.pipeline.log_bodies = loaded.pipeline.log_bodies;
        settings.pipeline.log.target = Target::File(log.path().join("decisions.jsonl"));
        Self { server: TestServer::start(settings).await, shop, log }
    }

    async fn ask(&self, wish: Wish) -> Verdict {
        invoke(&self.server.gate(), wish).await
    }

    /// The result of a call that ran.
    async fn run(&self, tool: &str, arguments: Value) -> Value {
        ended(self.ask(wish(tool, arguments)).await).1
    }

    fn effects(&self, tool: &str) -> usize {
        self.shop.count(tool).effects
    }

    fn requests(&self, tool: &str) -> usize {
        self.shop.count(tool).requests
    }

    /// The token of a preview that was shown in conversation `c1`.
    async fn previewed(&self, tool: &str, arguments: Value) -> String {
        let result = self.run(tool, arguments).await;
        result["data"]["confirm_token"].as_str().unwrap_or_else(|| panic!("no token: {result}")).to_owned()
    }
}

#[tokio::test]
async fn sb_079_the_schema_comes_first_then_the_tool() {
    let counter = Counter::open().await;
    let malformed = refused(counter.ask(wish("get_order", json!({"order_id": "SO-1"}))).await);
    assert_eq!((malformed.code.as_str(), counter.requests("get_order")), ("INVALID_ARGS", 0));
    let result = counter.run("get_order", json!({"order_id": "SO-20990418000736"})).await;
    assert_eq!((&result["ok"], &result["error"]["code"]), (&json!(false), &json!("ORDER_NOT_FOUND")));
    assert_eq!(counter.requests("get_order"), 1);
}

/// What a caller with these scopes alone is told about paying a refund out.
async fn denied(scopes: &[&str]) -> pointsman::server::proto::Problem {
    let mut settings = settings(&[crate::support::shop()]);
    settings.server.identity.scopes = Some(scopes.iter().map(|scope| Scope((*scope).into())).collect());
    let server = TestServer::start(settings).await;
    let arguments = json!({"order_id": DELIVERED, "confirm_token": "ct_4f0c2a9be17d6358"});
    let request = AuthorizeRequest { wish: Some(wish("execute_refund", arguments)) };
    match server.gate().authorize(request).await.unwrap().into_inner().verdict.unwrap() {
        Authorized::Refused(problem) => problem,
        other => panic!("not denied: {other:?}"),
    }
}

#[tokio::test]
async fn sb_092_a_denial_names_the_right_and_who_grants_it() {
    let problem = denied(&["refunds:read"]).await;
    assert_eq!((problem.code.as_str(), problem.retryable, problem.repairable), ("PERMISSION_DENIED", false, false));
    assert!(problem.message.contains("`refunds:write`"), "{}", problem.message);
    assert!(problem.suggestion.contains("the lead of the refund desk can grant"), "{}", problem.suggestion);
}

#[tokio::test]
async fn sb_170_every_scope_of_a_tool_is_needed() {
    for (held, lacking) in [("refunds:read", "refunds:write"), ("refunds:write", "refunds:read")] {
        let problem = denied(&[held]).await;
        assert_eq!(problem.code, "PERMISSION_DENIED");
        let named = |scope: &str| problem.message.contains(&format!("`{scope}`"));
        assert!(named(lacking) && !named(held), "{}", problem.message);
    }
}

#[tokio::test]
async fn sb_093_an_unmet_precondition_names_the_tool_that_meets_it() {
    let counter = Counter::open().await;
    let problem = refused(counter.ask(wish("execute_refund", json!({"order_id": DELIVERED}))).await);
    assert_eq!(problem.code, "PRECONDITION_MISSING");
    assert_eq!(problem.next.unwrap().tool, "preview_refund");
    assert_eq!(counter.requests("execute_refund"), 0);
}

#[tokio::test]
async fn sb_101_a_tool_of_like_meaning_steps_in_once() {
    let counter = Counter::open().await;
    counter.shop.fault("track_shipment", Fault::status(503), None);
    let (outcome, result) = ended(counter.ask(wish("track_shipment", json!({"order_id": SENT}))).await);
    assert_eq!((outcome.answered_by.as_str(), &result["ok"]), ("get_order", &json!(true)), "{result}");
    assert_eq!(result["source"]["instead_of"], "track_shipment");
    assert_eq!(result["source"]["args"], json!({"order_id": SENT}));
    // Without an order number nothing can be asked of the other tool.
    let (outcome, result) = ended(counter.ask(wish("track_shipment", json!({"tracking_no": "SF1234567890"}))).await);
    assert_eq!((outcome.answered_by.as_str(), &result["ok"]), ("", &json!(false)), "{result}");
    assert_eq!(counter.requests("get_order"), 1);
}

#[tokio::test]
async fn sb_102_a_search_that_finds_nothing_may_be_tried_once_more() {
    let counter = Counter::open().await;
    let search = async |keyword: &str| {
        let wish = Wish { turn_id: "t1".into(), ..wish("search_products", json!({"keyword": keyword})) };
        counter.ask(wish).await
    };
    let (_, result) = ended(search("兰牙耳机").await);
    assert_eq!((&result["ok"], &result["data"], &result["reason"]), (&json!(true), &json!([]), &json!("no_match")));
    ended(search("兰芽耳机").await);
    assert_eq!(refused(search("蓝呀耳机").await).code, "STEP_LIMIT");
    assert_eq!(counter.requests("search_products"), 2);
}

#[tokio::test]
async fn sb_103_after_two_failures_in_a_row_a_person_takes_over() {
    let counter = Counter::open().await;
    counter.shop.fault("get_invoice", Fault::status(422), None);
    let call = async |format: &str| {
        let arguments = json!({"order_id": DELIVERED, "format": format});
        let wish = Wish { turn_id: "t1".into(), locale: "zh".into(), ..wish("get_invoice", arguments) };
        counter.ask(wish).await
    };
    ended(call("pdf").await);
    ended(call("ofd").await);
    let Verdict::Handoff(handoff) = call("xml").await else { panic!("not handed over") };
    assert_eq!(handoff.reason, "fuse_blown");
    assert!(handoff.message.contains("人工"), "{}", handoff.message);
    assert_eq!(counter.requests("get_invoice"), 2);
}

#[tokio::test]
async fn sb_106_an_idempotent_write_runs_silently_and_can_be_undone() {
    let counter = Counter::open().await;
    let set = async |enabled: bool| {
        let arguments = json!({"topic": "promotion", "channel": "app_push", "enabled": enabled});
        ended(counter.ask(wish("set_notification_preference", arguments)).await)
    };
    let (outcome, result) = set(false).await;
    assert_eq!((state(&outcome), &result["data"]["enabled"]), ("succeeded", &json!(false)), "{result}");
    assert!(!outcome.call.unwrap().idempotency_key.is_empty());
    let (_, result) = set(true).await;
    assert_eq!(result["data"]["enabled"], true);
    assert_eq!(counter.effects("set_notification_preference"), 2);
}

#[tokio::test]
async fn sb_108_what_cannot_be_undone_needs_preview_consent_and_key() {
    let counter = Counter::open().await;
    let token = counter.previewed("preview_cancel_order", json!({"order_id": UNSENT})).await;
    assert_eq!(counter.effects("cancel_order"), 0);
    let (outcome, result) =
        ended(counter.ask(wish("cancel_order", json!({"order_id": UNSENT, "confirm_token": token}))).await);
    assert_eq!((state(&outcome), &result["data"]["done"]), ("succeeded", &json!(true)), "{result}");
    assert!(!outcome.call.unwrap().idempotency_key.is_empty());
    assert_eq!(counter.effects("cancel_order"), 1);
    assert!(is_reported("delete_account", "destructive-no-preview"));
}

#[tokio::test]
async fn sb_109_a_preview_only_computes() {
    let counter = Counter::open().await;
    let before = counter.run("get_order", json!({"order_id": DELIVERED})).await;
    let preview = counter.run("preview_refund", json!({"order_id": DELIVERED})).await;
    for field in ["refundable_amount", "state_after", "reversible"] {
        assert!(preview["data"].get(field).is_some(), "{field}: {preview}");
    }
    let after = counter.run("get_order", json!({"order_id": DELIVERED})).await;
    assert_eq!(before["data"], after["data"]);
    assert_eq!((counter.effects("preview_refund"), counter.effects("execute_refund")), (0, 0));
}

#[tokio::test]
async fn sb_110_a_token_from_the_preview_enforces_the_order_of_steps() {
    let counter = Counter::open().await;
    let problem = refused(counter.ask(wish("cancel_order", json!({"order_id": UNSENT}))).await);
    assert_eq!(problem.fields[0].path, "/confirm_token");
    let token = counter.previewed("preview_cancel_order", json!({"order_id": UNSENT})).await;
    let cancel = || wish("cancel_order", json!({"order_id": UNSENT, "confirm_token": token}));
    ended(counter.ask(cancel()).await);
    let (again, _) = ended(counter.ask(cancel()).await);
    assert!(again.replayed);
    let other = Wish { idempotency_key: "another".into(), ..cancel() };
    assert_eq!(refused(counter.ask(other).await).code, "TOKEN_REFUSED", "it counts once");
    assert_eq!(counter.effects("cancel_order"), 1);
}

#[tokio::test]
async fn sb_111_an_invented_token_is_refused_although_its_form_is_right() {
    let counter = Counter::open().await;
    let arguments = json!({"order_id": UNSENT, "confirm_token": "ct_0000000000000000"});
    let problem = refused(counter.ask(wish("cancel_order", arguments)).await);
    assert_eq!(problem.code, "TOKEN_REFUSED");
    assert_eq!(problem.next.unwrap().tool, "preview_cancel_order");
    assert_eq!(counter.requests("cancel_order"), 0);
}

#[tokio::test]
async fn sb_112_a_token_counts_for_its_tool_order_and_conversation() {
    let counter = Counter::open().await;
    let refund = counter.previewed("preview_refund", json!({"order_id": DELIVERED})).await;
    let cancel = counter.previewed("preview_cancel_order", json!({"order_id": UNSENT})).await;
    for wish in [
        wish("cancel_order", json!({"order_id": "SO-20260419000233", "confirm_token": cancel})),
        wish("cancel_order", json!({"order_id": UNSENT, "confirm_token": refund})),
        wish("execute_refund", json!({"order_id": DELIVERED, "confirm_token": cancel})),
        Wish {
            session_id: "c2".into(),
            ..wish("execute_refund", json!({"order_id": DELIVERED, "confirm_token": refund}))
        },
    ] {
        let problem = refused(counter.ask(wish.clone()).await);
        assert_eq!(problem.code, "TOKEN_REFUSED", "{wish:?}");
        assert!(problem.next.unwrap().tool.starts_with("preview_"));
    }
    assert_eq!((counter.requests("cancel_order"), counter.requests("execute_refund")), (0, 0));
}

#[tokio::test]
async fn sb_113_the_confirmation_shows_the_real_arguments() {
    let counter = Counter::open().await;
    let content = "请放在门口的蓝色柜子里，密码找我要。".repeat(3);
    let arguments = json!({"order_id": SENT, "recipient": "courier", "content": content});
    let Verdict::Confirm(shown) = counter.ask(wish("send_message", arguments.clone())).await else {
        panic!("not shown")
    };
    let seen: Value = serde_json::from_str(&shown.arguments_json).unwrap();
    assert_eq!(seen, arguments, "word by word");
    assert!(!shown.reversible && !shown.what.is_empty());
    assert_eq!(counter.requests("send_message"), 0);
}

#[tokio::test]
async fn sb_119_consent_holds_for_its_conversation() {
    let counter = Counter::open().await;
    let coupon = |session: &str, token: &str| Wish {
        session_id: session.into(),
        confirm_token: token.into(),
        ..wish("issue_coupon", json!({"coupon_type": "free_shipping", "reason": "late_delivery"}))
    };
    let Verdict::Confirm(shown) = counter.ask(coupon("c1", "")).await else { panic!("not shown") };
    ended(counter.ask(coupon("c1", &shown.confirm_token)).await);
    assert!(matches!(counter.ask(coupon("c2", "")).await, Verdict::Confirm(_)), "it asks again");
    assert_eq!(refused(counter.ask(coupon("c3", &shown.confirm_token)).await).code, "TOKEN_REFUSED");
    assert_eq!(counter.effects("issue_coupon"), 1);
}

#[tokio::test]
async fn sb_122_the_scope_is_the_conversation() {
    let counter = Counter::open().await;
    for session in ["c1", "c1", "c2"] {
        let coupon = |token: &str| Wish {
            session_id: session.into(),
            confirm_token: token.into(),
            ..wish("issue_coupon", json!({"coupon_type": "free_shipping", "reason": "late_delivery"}))
        };
        if let Verdict::Confirm(shown) = counter.ask(coupon("")).await {
            ended(counter.ask(coupon(&shown.confirm_token)).await);
        }
    }
    assert_eq!(counter.effects("issue_coupon"), 2);
}

#[tokio::test]
async fn sb_124_a_repetition_returns_the_first_result() {
    let counter = Counter::open().await;
    let first = counter.run("urge_shipment", json!({"order_id": SENT})).await;
    let again = counter.run("urge_shipment", json!({"order_id": SENT})).await;
    assert_eq!((&first["ok"], &first), (&json!(true), &again));
    assert_eq!(counter.requests("urge_shipment"), 1);
}

#[tokio::test]
async fn sb_125_two_different_changes_in_one_conversation_both_happen() {
    let counter = Counter::open().await;
    for address in ["杭州市滨江区江南大道100号", "苏州市姑苏区人民路8号"] {
        counter.run("update_order_address", json!({"order_id": UNSENT, "address": address})).await;
    }
    assert_eq!(counter.effects("update_order_address"), 2);
    let order = counter.run("get_order", json!({"order_id": UNSENT, "fields": ["address"]})).await;
    assert_eq!(order["data"]["address"], "苏州市姑苏区人民路8号", "{order}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sb_126_equal_calls_in_flight_are_merged() {
    let counter = Counter::open().await;
    counter.shop.fault("get_order", Fault::Late(std::time::Duration::from_millis(200)), None);
    let call = || Wish { turn_id: "t1".into(), ..wish("get_order", json!({"order_id": SENT})) };
    let (one, two) = tokio::join!(counter.ask(call()), counter.ask(call()));
    assert_eq!(ended(one).1, ended(two).1);
    assert_eq!(counter.requests("get_order"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn sb_127_of_many_parallel_writes_one_runs() {
    let counter = Counter::open().await;
    let token = counter.previewed("preview_refund", json!({"order_id": DELIVERED})).await;
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let (gate, token) = (counter.server.gate(), token.clone());
        let wish = wish("execute_refund", json!({"order_id": DELIVERED, "confirm_token": token}));
        calls.spawn(async move { ended(invoke(&gate, wish).await).1 });
    }
    let results = calls.join_all().await;
    assert!(results.iter().all(|result| *result == results[0] && result["ok"] == true), "{:?}", results[0]);
    assert_eq!(counter.effects("execute_refund"), 1);
}

#[tokio::test]
async fn sb_128_a_write_that_timed_out_is_not_done_twice() {
    let counter = Counter::open().await;
    counter.shop.fault("create_ticket", Fault::Die, Some(1));
    let ticket = || wish("create_ticket", json!({"category": "complaint", "order_id": SENT}));
    let (outcome, _) = ended(counter.ask(ticket()).await);
    assert_eq!(state(&outcome), "effect_unknown");
    counter.ask(ticket()).await;
    assert_eq!(counter.effects("create_ticket"), 1);
}

#[tokio::test]
async fn sb_132_a_turn_has_a_limit_of_steps_and_of_time() {
    let counter = Counter::with(&[("gate.turn_budget_ms", "700")]).await;
    let call = async |turn: &str, n: usize| {
        let wish =
            Wish { turn_id: turn.into(), ..wish("search_faq", json!({"question": format!("退款多久到账 {n}")})) };
        counter.ask(wish).await
    };
    for n in 0..8 {
        ended(call("steps", n).await);
    }
    assert_eq!(refused(call("steps", 8).await).code, "STEP_LIMIT");

    counter.shop.fault("search_faq", Fault::Late(std::time::Duration::from_millis(300)), None);
    let mut ends = Vec::new();
    for n in 0..5 {
        ends.push(match call("time", 100 + n).await {
            Verdict::Refused(problem) => problem.code,
            verdict => ended(verdict).1["error"]["code"].as_str().unwrap_or("ok").to_owned(),
        });
    }
    assert_eq!(ends[0], "ok");
    assert_eq!(ends[4], "TIMEOUT", "{ends:?}");
}

#[tokio::test]
async fn sb_139_the_rest_of_a_list_comes_by_cursor() {
    let counter = Counter::with(&[("result.max_rows", "5")]).await;
    let first = counter.run("search_orders", json!({"limit": 12})).await;
    let mut seen = first["data"].as_array().unwrap().len();
    let mut cursor = first["next_cursor"].as_str().unwrap().to_owned();
    while cursor.starts_with("pg_") {
        let page = counter.server.gate().next_page(NextPageRequest { cursor }).await.unwrap().into_inner();
        let Some(next_page_response::Answer::ResultJson(page)) = page.answer else { panic!("no page: {page:?}") };
        let page: Value = serde_json::from_str(&page).unwrap();
        seen += page["data"].as_array().unwrap().len();
        cursor = page["next_cursor"].as_str().unwrap_or_default().to_owned();
    }
    assert_eq!(seen, 12);
    // The tool's own cursor follows the last of our pages, and goes to the tool.
    let next = counter.run("search_orders", json!({"limit": 12, "cursor": cursor})).await;
    assert_eq!(next["ok"], true, "{next}");
    let ours =
        refused(counter.ask(wish("search_orders", json!({"cursor": "pg_0123456789abcdef0123456789abcdef"}))).await);
    assert_eq!(ours.code, "INVALID_ARGS");
}

#[tokio::test]
async fn sb_148_each_result_names_its_source_and_the_log_hides_its_arguments() {
    let counter = Counter::with(&[("log.bodies", "true")]).await;
    let result = counter.run("get_order", json!({"order_id": SENT, "fields": ["address"]})).await;
    assert_eq!(result["source"]["tool"], "get_order");
    assert_eq!(result["source"]["args"]["order_id"], SENT);
    assert!(result["source"]["fetched_at"].as_str().unwrap().ends_with('Z'), "{result}");
    let address = result["data"]["address"].as_str().unwrap();
    let Counter { server, log, .. } = &counter;
    server.app.router().unwrap().shutdown().await;
    let text = std::fs::read_to_string(log.path().join("decisions.jsonl")).unwrap();
    let line: Value = serde_json::from_str(text.lines().find(|line| line.contains("\"end\"")).unwrap()).unwrap();
    assert_eq!((&line["tool"], &line["end"]), (&json!("get_order"), &json!("succeeded")));
    assert!(line["arguments"]["order_id"].as_str().unwrap().starts_with("hash:"), "{line}");
    assert!(line["dropped_fields"].as_u64().unwrap() > 0, "{line}");
    assert!(text.contains("bodies_of") && !text.contains(SENT) && !text.contains(address), "{text}");
}

#[tokio::test]
async fn sb_117_what_a_person_executes_is_only_proposed() {
    let text = std::fs::read_to_string(crate::support::shop()).unwrap();
    let text = text.replacen("    idempotent: false\n", "    idempotent: false\n    execution: propose_only\n", 1);
    let file = crate::support::RegistryFile::new("registry.yaml", &text);
    let server = TestServer::start(settings(&[&file.path])).await;
    let preview = wish("preview_cancel_order", json!({"order_id": UNSENT}));
    let request = AuthorizeRequest { wish: Some(preview) };
    let Authorized::Go(go) = server.gate().authorize(request).await.unwrap().into_inner().verdict.unwrap() else {
        panic!("not let go")
    };
    let report = pointsman::server::proto::CompleteRequest {
        call_id: go.call_id,
        outcome: Some(pointsman::server::proto::complete_request::Outcome::ResultJson(
            json!({"order_id": UNSENT, "confirm_token": "ct_4f0c2a9be17d6358"}).to_string(),
        )),
        ..Default::default()
    };
    server.gate().complete(report).await.unwrap();
    let cancel = wish("cancel_order", json!({"order_id": UNSENT, "confirm_token": "ct_4f0c2a9be17d6358"}));
    let Verdict::Propose(shown) = invoke(&server.gate(), cancel).await else { panic!("not a proposal") };
    assert!(!shown.confirm_token.is_empty() && !shown.idempotency_key.is_empty());
}
