//! Tools that are really run: every card of the sample shop at its backend, and an MCP server in all its moods.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pointsman::execute::{End, Executors, HttpTarget, Job, McpTarget, Ran, Secret, Settings, Target};
use pointsman::registry::{self, Registry};
use pointsman::tool::{McpRun, Run, SideEffect, ToolCard};
use pointsman::types::{Body, Deadline, Problem, ProblemCode, ToolAnswer, ToolId};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::backend::{self, Count, Fault, Options, Shop};
use crate::support::mcp_server::McpServer;

fn settings(targets: impl IntoIterator<Item = (&'static str, Target)>) -> Settings {
    Settings {
        targets: targets.into_iter().map(|(name, target)| (name.to_owned(), target)).collect(),
        default_timeout: Duration::from_secs(10),
        max_answer_bytes: 20_000,
        retries: 1,
        breaker_failures: 6,
        breaker_window: Duration::from_secs(30),
    }
}

fn http(url: &str) -> HttpTarget {
    HttpTarget { base_url: url.into(), headers: Vec::new(), allow_private: true }
}

#[track_caller]
pub fn answer(ran: Ran) -> ToolAnswer {
    match ran.end {
        End::Answered(answer) => answer,
        other => panic!("no answer: {other:?}"),
    }
}

#[track_caller]
pub fn lost(ran: Ran) -> Problem {
    match ran.end {
        End::Lost(problem) => problem,
        other => panic!("not lost: {other:?}"),
    }
}

#[track_caller]
pub fn not_started(ran: Ran) -> Problem {
    match ran.end {
        End::NotStarted(problem) => problem,
        other => panic!("started: {other:?}"),
    }
}

/// The sample cards, their backend, and what runs them.
pub struct Desk {
    pub shop: Shop,
    pub executors: Arc<Executors>,
    pub registry: Registry,
}

impl Desk {
    pub async fn open() -> Self {
        let shop = Shop::start("127.0.0.1:0", Options::default()).await.unwrap();
        let executors = Executors::new(settings([("shop", Target::Http(http(&shop.url())))])).unwrap();
        let registry = registry::load(&[crate::support::shop()], &[]).unwrap();
        Self { shop, executors: Arc::new(executors), registry }
    }

    pub fn card(&self, tool: &str) -> Arc<ToolCard> {
        self.registry.cards[&ToolId::new(tool)].clone()
    }

    pub fn job(&self, tool: &str, arguments: Value) -> Job {
        let arguments = arguments.as_object().unwrap().clone();
        Job { card: self.card(tool), arguments, key: None, deadline: Deadline::after(Duration::from_secs(60)) }
    }

    pub async fn run(&self, tool: &str, arguments: Value) -> Ran {
        self.executors.run(self.job(tool, arguments)).await
    }

    /// Body of a call that succeeds.
    async fn body(&self, tool: &str, arguments: Value) -> Value {
        let answer = answer(self.run(tool, arguments).await);
        match (answer.status, answer.body) {
            (Some(200), Body::Json(body)) => body,
            other => panic!("{tool}: {other:?}"),
        }
    }
}

/// Names of all mappings' keys, at any depth.
fn keys(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| {
            found.push(key.clone());
            keys(value, found);
        }),
        Value::Array(items) => items.iter().for_each(|item| keys(item, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[tokio::test]
async fn every_card_of_the_shop_runs_at_its_backend() {
    let desk = Desk::open().await;
    let order = |order: &str| json!({"order_id": order});
    let with = |order: &str, more: Value| {
        let mut arguments = json!({"order_id": order});
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        arguments
    };
    let cancel = desk.body("preview_cancel_order", order(backend::UNSENT)).await["confirm_token"].clone();
    let refund = desk.body("preview_refund", with(backend::DELIVERED, json!({"amount": 30}))).await;
    assert_eq!(refund["refundable_amount"], 30.0);
    let address = json!({"address": "苏州市姑苏区人民路8号"});
    let all_fields = json!({"fields": ["status", "amount", "items", "created_at", "payment", "address"]});
    let calls = [
        ("search_orders", json!({"limit": 20})),
        ("get_order", with(backend::SENT, all_fields)),
        ("update_order_address", with("SO-20260419000233", address.clone())),
        ("cancel_order", with(backend::UNSENT, json!({"confirm_token": cancel}))),
        ("track_shipment", json!({"tracking_no": "SF1234567890"})),
        ("urge_shipment", order("SO-20260419000233")),
        ("get_refund_status", json!({})),
        ("execute_refund", with(backend::DELIVERED, json!({"confirm_token": refund["confirm_token"]}))),
        ("create_return", with("SO-20260101915331", json!({"type": "exchange"}))),
        ("withdraw_return", order("SO-20260101915331")),
        ("search_products", json!({"keyword": "耳机", "sort": "price_asc", "max_price": 1000})),
        ("get_stock", json!({"sku": "SKU-FG9EKA", "variant": "黑色"})),
        ("create_ticket", json!({"category": "complaint"})),
        ("get_ticket", json!({})),
        ("send_message", with(backend::SENT, json!({"content": "放门口就行"}))),
        ("get_account_overview", json!({})),
        ("update_default_address", address),
        ("set_notification_preference", json!({"enabled": false, "topic": "promotion"})),
        ("list_coupons", json!({})),
        ("issue_coupon", json!({"coupon_type": "apology_10", "reason": "late_delivery"})),
        ("request_invoice", with(backend::SENT, json!({"title_type": "company", "title": "星河贸易有限公司"}))),
        ("get_invoice", order(backend::DELIVERED)),
        ("change_invoice_title", with(backend::DELIVERED, json!({"title": "星河贸易有限公司"}))),
        ("search_faq", json!({"question": "退款一般多久到账"})),
    ];
    for (tool, arguments) in &calls {
        let body = desk.body(tool, arguments.clone()).await;
        let card = desk.card(tool);
        let mut found = Vec::new();
        keys(&body, &mut found);
        // A cursor and a reason are there when there is something to say.
        let expected = card.result_fields.iter().filter(|field| !["next_cursor", "reason"].contains(&field.as_str()));
        for field in expected {
            assert!(found.contains(field), "{tool} gives no {field}: {body}");
        }
        assert!(found.len() > card.result_fields.len() - 2, "{tool} tells more than a model should see: {body}");
        let effects = usize::from(card.side_effect != SideEffect::Read);
        assert_eq!(desk.shop.count(tool), Count { requests: 1, effects }, "{tool}");
    }
    assert_eq!(calls.len() + 2, desk.registry.cards.len());
    assert_eq!(desk.shop.open(), 0);
}

#[tokio::test]
async fn the_backend_keeps_its_own_rules() {
    let desk = Desk::open().await;
    let code = async |tool: &str, arguments: Value| {
        let answer = answer(desk.run(tool, arguments).await);
        let Body::Json(body) = answer.body else { panic!("{tool}") };
        (answer.status.unwrap(), body["code"].as_str().unwrap_or_default().to_owned())
    };
    for (tool, arguments, status, expected) in [
        ("get_order", json!({"order_id": backend::FOREIGN}), 404, "ORDER_NOT_FOUND"),
        ("get_order", json!({"order_id": "SO-1/../x"}), 404, "ORDER_NOT_FOUND"),
        ("preview_cancel_order", json!({"order_id": backend::SENT}), 409, "ORDER_ALREADY_SHIPPED"),
        ("withdraw_return", json!({"order_id": backend::SENT}), 404, "RETURN_NOT_FOUND"),
        ("preview_refund", json!({"order_id": backend::DELIVERED, "amount": 460}), 422, "AMOUNT_TOO_HIGH"),
        (
            "execute_refund",
            json!({"order_id": backend::DELIVERED, "confirm_token": "ct_0000000000000000"}),
            403,
            "TOKEN_REFUSED",
        ),
    ] {
        assert_eq!(code(tool, arguments).await, (status, expected.to_owned()), "{tool}");
    }
    // A token counts once, and for its order alone.
    let token = desk.body("preview_refund", json!({"order_id": backend::DELIVERED})).await["confirm_token"].clone();
    assert!(token.as_str().unwrap().len() == 19 && token.as_str().unwrap().starts_with("ct_"));
    let refund = |order: &str| json!({"order_id": order, "confirm_token": token});
    assert_eq!(code("execute_refund", refund(backend::SENT)).await.0, 403);
    assert_eq!(desk.body("execute_refund", refund(backend::DELIVERED)).await["amount"], 459.0);
    assert_eq!(code("execute_refund", refund(backend::DELIVERED)).await.0, 403);
    assert_eq!(desk.shop.count("execute_refund").effects, 1);
    // Pages follow each other without gap or overlap.
    let mut seen = Vec::new();
    let mut arguments = json!({"limit": 20});
    loop {
        let page = desk.body("search_orders", arguments.clone()).await;
        seen.extend(page["items"].as_array().unwrap().iter().map(|row| row["order_id"].to_string()));
        match page.get("next_cursor") {
            Some(cursor) => arguments["cursor"] = cursor.clone(),
            None => break,
        }
    }
    let unique: std::collections::BTreeSet<_> = seen.iter().collect();
    assert!(seen.len() > 40 && unique.len() == seen.len());
    assert_eq!(desk.body("search_orders", json!({"keyword": "飞船"})).await["reason"], "no_match");
}

#[tokio::test(start_paused = true)]
async fn the_backend_fails_as_it_is_told() {
    let desk = Desk::open().await;
    let ticket = json!({"category": "other"});
    let run = || desk.run("create_ticket", ticket.clone());
    desk.shop.fault("create_ticket", Fault::Hang, Some(1));
    desk.shop.fault("create_ticket", Fault::Die, Some(1));
    desk.shop.fault("create_ticket", Fault::Late(Duration::from_secs(60)), Some(1));
    desk.shop.fault("create_ticket", Fault::status(503), Some(1));
    assert_eq!(lost(run().await).code, ProblemCode::Timeout);
    assert_eq!(desk.shop.count("create_ticket").effects, 0);
    assert_eq!(lost(run().await).code, ProblemCode::Unavailable);
    assert_eq!(desk.shop.count("create_ticket").effects, 1, "it was done before the connection ended");
    assert_eq!(lost(run().await).code, ProblemCode::Timeout);
    assert_eq!(desk.shop.count("create_ticket").effects, 2, "it was done, and the answer came too late");
    assert_eq!(answer(run().await).status, Some(503));
    assert_eq!(answer(run().await).status, Some(200));
    assert_eq!(desk.shop.count("create_ticket"), Count { requests: 5, effects: 3 });
    desk.shop.reset();
    assert_eq!(desk.shop.count("create_ticket"), Count::default());
}

#[tokio::test]
async fn the_backend_is_steered_over_http_and_may_honour_keys() {
    let shop = Shop::start("127.0.0.1:0", Options { honour_keys: true }).await.unwrap();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let send = async |method: &str, path: &str, body: Value| {
        let url = format!("{}/{path}", shop.url());
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = client.request(method.parse().unwrap(), url).body(body);
        let response = request.header("idempotency-key", "k-1").send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    };
    let first = send("POST", "tickets", json!({"category": "other"})).await;
    assert_eq!(send("POST", "tickets", json!({"category": "other"})).await, first);
    assert_eq!(shop.count("create_ticket"), Count { requests: 2, effects: 1 });
    for (odd, expected) in [("empty", ""), ("object", "{}"), ("html", "<html>"), ("trace", "hunter2-s3cr3t")] {
        let fault = json!({"tool": "get_order", "fault": "odd", "as": odd, "times": 1});
        assert_eq!(send("POST", "_faults", fault).await.0, 200);
        let (status, body) = send("GET", &format!("orders/{}", backend::SENT), Value::Null).await;
        assert!(status == 200 && body.contains(expected), "{odd}: {body}");
    }
    assert_eq!(send("POST", "_faults", json!({"tool": "get_order", "fault": "explode"})).await.0, 400);
    send("POST", "_faults", json!({"tool": "get_account_overview", "fault": "fail", "status": 418})).await;
    assert_eq!(send("GET", "account", Value::Null).await.0, 418);
    send("DELETE", "_faults", Value::Null).await;
    assert_eq!(send("GET", "account", Value::Null).await.0, 200);
    let effects: Value = serde_json::from_str(&send("GET", "_effects", Value::Null).await.1).unwrap();
    assert_eq!(effects["tools"]["create_ticket"], json!({"requests": 2, "effects": 1}));
    send("POST", "_reset", Value::Null).await;
    assert_eq!(shop.effects(), json!({"tools": {}, "open": 0}));
}

// ---------------------------------------------------------------------- MCP

fn mcp(target: McpTarget) -> Executors {
    Executors::new(settings([("desk", Target::Mcp(target))])).unwrap()
}

fn mcp_job(tool: &str, side_effect: SideEffect) -> Job {
    let mut card = ToolCard::reading(tool, json!({"type": "object"}));
    card.side_effect = side_effect;
    card.idempotent = false;
    card.timeout = Some(Duration::from_secs(3));
    card.run = Some(Run::Mcp(McpRun { target: "desk".into(), tool: tool.into() }));
    let arguments = json!({"order_id": "SO-1"}).as_object().unwrap().clone();
    let deadline = Deadline::after(Duration::from_secs(60));
    Job { card: Arc::new(card), arguments, key: Some("k-1".into()), deadline }
}

#[tokio::test]
async fn mcp_results_and_failures_are_told_apart() {
    let server = McpServer::start().await;
    let headers = vec![("X-Api-Key".to_owned(), Secret("s3cret".into()))];
    let executors = mcp(McpTarget::Url(HttpTarget { headers, ..http(server.url()) }));
    let run = async |tool: &str| executors.run(mcp_job(tool, SideEffect::Destructive)).await;
    let structured = answer(run("structured").await);
    assert_eq!(structured.body, Body::Json(json!({"order_id": "SO-1", "状态": "已发货"})));
    assert!(!structured.failed && structured.status.is_none());
    assert_eq!(answer(run("text").await).body, Body::Json(json!({"status": "30"})));
    assert_eq!(answer(run("words").await).body, Body::Text("没有找到".into()));
    let fails = answer(run("fails").await);
    assert!(fails.failed && fails.body == Body::Text("Traceback: orders.py line 7".into()));
    let long = answer(run("long").await);
    assert!(long.cut && matches!(long.body, Body::Text(text) if text.len() <= 20_000));
    let unwell = answer(run("unwell").await);
    assert!(unwell.failed && unwell.body == Body::Json(json!({"code": -32603, "message": "internal"})));
    assert_eq!(answer(run("nobody_knows").await).body, Body::Json(json!({"code": -32602, "message": "unknown tool"})));
    assert_eq!(server.sessions(), 1, "one session serves them all");
    let call = &server.calls()[0];
    assert_eq!((&call["name"], &call["arguments"]), (&json!("structured"), &json!({"order_id": "SO-1"})));
    assert_eq!(call["_meta"]["idempotency-key"], "k-1");
    assert!(server.keys().iter().all(|key| key == "s3cret") && server.keys().len() == server.requests());
}

#[tokio::test]
async fn what_the_transport_of_mcp_says_is_kept() {
    let server = McpServer::start().await;
    let executors = mcp(McpTarget::Url(http(server.url())));
    let run = async |tool: &str| executors.run(mcp_job(tool, SideEffect::Destructive)).await;
    let limited = answer(run("limited").await);
    assert_eq!((limited.status, limited.retry_after_ms, limited.failed), (Some(429), Some(9_000), true));
    assert_eq!(answer(run("down").await).status, Some(503));
    assert_eq!(answer(run("locked").await).status, Some(401));
    for tool in ["garbage", "half", "dies", "endless"] {
        assert_eq!(lost(run(tool).await).code, ProblemCode::Unavailable, "{tool}");
    }
    assert_eq!(server.calls().len(), 7, "nothing was sent twice");
    assert!(answer(run("text").await).status.is_none());
}

#[tokio::test]
async fn a_session_that_ended_is_made_anew() {
    let server = McpServer::start().await;
    let executors = mcp(McpTarget::Url(http(server.url())));
    let run = async |tool: &str, class| executors.run(mcp_job(tool, class)).await;
    answer(run("text", SideEffect::Destructive).await);
    server.forget();
    // The server knew nothing of the session, so nothing was run; a tool that only reads gets its second attempt.
    assert_eq!(not_started(run("text", SideEffect::Destructive).await).code, ProblemCode::Unavailable);
    answer(run("text", SideEffect::Destructive).await);
    server.forget();
    answer(run("text", SideEffect::Read).await);
    assert_eq!((server.sessions(), server.calls().len()), (3, 3));
}

#[tokio::test]
async fn a_server_that_is_not_there_means_not_started() {
    let gone = McpServer::start().await.url().to_owned();
    tokio::task::yield_now().await;
    let executors = mcp(McpTarget::Url(http(&gone)));
    let problem = not_started(executors.run(mcp_job("text", SideEffect::Destructive)).await);
    assert_eq!(problem.code, ProblemCode::Unavailable);
    let server = McpServer::start().await;
    let named = HttpTarget { allow_private: false, ..http(&server.url().replace("127.0.0.1", "localhost")) };
    let executors = mcp(McpTarget::Url(named));
    let problem = not_started(executors.run(mcp_job("text", SideEffect::Read)).await);
    assert_eq!((problem.code, server.requests()), (ProblemCode::NotExecutable, 0));
    let absent = McpTarget::Command { program: "/nowhere/mcp".into(), args: Vec::new(), env: Vec::new() };
    let problem = not_started(mcp(absent).run(mcp_job("text", SideEffect::Read)).await);
    assert_eq!(problem.code, ProblemCode::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn an_mcp_tool_that_hangs_is_lost_and_the_server_is_told() {
    let server = McpServer::start().await;
    let executors = mcp(McpTarget::Url(http(server.url())));
    let started = Instant::now();
    let problem = lost(executors.run(mcp_job("hangs", SideEffect::Destructive)).await);
    assert_eq!(problem.code, ProblemCode::Timeout);
    assert_eq!(started.elapsed().as_secs(), 3);
    while server.cancelled() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn an_mcp_call_that_is_dropped_is_cancelled_at_the_server() {
    let server = McpServer::start().await;
    let executors = Arc::new(mcp(McpTarget::Url(http(server.url()))));
    let call = tokio::spawn({
        let executors = executors.clone();
        async move { executors.run(mcp_job("hangs", SideEffect::Read)).await }
    });
    while server.calls().is_empty() {
        tokio::task::yield_now().await;
    }
    call.abort();
    while server.cancelled() == 0 {
        tokio::task::yield_now().await;
    }
    answer(executors.run(mcp_job("text", SideEffect::Read)).await);
    assert_eq!(server.sessions(), 1);
}

/// Speaks MCP over its standard streams: `echo` tells the number of its variables, `exit` ends it, `flood` never ends a
/// line, everything else is silence.
const PROGRAM: &str = r#"
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *'"initialize"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"sh","version":"1"}}}' ;;
    *'"name":"echo"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"content":[{"type":"text","text":"{\"own\":\"'$POINTSMAN_SECRET$HOME$POINTSMAN_GIVEN'\",\"pid\":'$$'}"}]}}' ;;
    *'"name":"exit"'*) exit 3 ;;
    *'"name":"flood"'*) while :; do printf '%01000d' 0; done ;;
  esac
done
"#;

#[tokio::test]
async fn a_program_is_started_once_without_our_variables_and_again_after_its_end() {
    if !Path::new("/bin/sh").exists() {
        return;
    }
    let command = McpTarget::Command {
        program: "sh".into(),
        args: vec!["-c".into(), PROGRAM.into()],
        env: vec![("POINTSMAN_GIVEN".into(), Secret("given".into()))],
    };
    let executors = mcp(command);
    let run = async |tool: &str| executors.run(mcp_job(tool, SideEffect::Destructive)).await;
    let echo = async || match answer(run("echo").await).body {
        Body::Json(body) => body,
        other => panic!("{other:?}"),
    };
    let first = echo().await;
    assert_eq!((first["own"].as_str(), &first), (Some("given"), &echo().await));
    assert_eq!(lost(run("exit").await).code, ProblemCode::Unavailable);
    let second = echo().await;
    assert_ne!(first["pid"], second["pid"]);
    assert_eq!(lost(run("flood").await).code, ProblemCode::Unavailable);
    assert_ne!(second["pid"], echo().await["pid"]);
}
