//! The brake from outside: tools and sources out of service, the mode in which choices are made, over restarts.

use std::path::Path;
use std::time::Duration;

use pointsman::config::{AuditTarget, Loaded, Settings, Sources};
use pointsman::server::proto::authorize_response::Verdict as Authorized;
use pointsman::server::proto::complete_request::Outcome as Report;
use pointsman::server::proto::invoke_response::Verdict;
use pointsman::server::proto::registry_client::RegistryClient;
use pointsman::server::proto::{
    AuthorizeRequest, BrakesRequest, BrakesResponse, CompleteRequest, ConfirmRequest, DeleteRequest, DisableRequest,
    EnableRequest, Problem, ReloadRequest, RouteRequest, RouteResponse, SetModeRequest, Wish, complete_response,
    confirm_response, disable_request, enable_request,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tonic::Code;
use tonic::transport::Channel;

use crate::gate::{ended, invoke, refused, wish};
use crate::support::cli::{self, Served, WORDS_ALONE};
use crate::support::downstream::{Downstream, Fault, serve_at};
use crate::support::scripted_llm::{ScriptedLlm, call};
use crate::support::server::{
    TestServer, ask, called, candidates, declined, llm_settings, question_of, settings, shop_settings, trace,
};
use crate::support::{RegistryFile, native, shop};

const ORDER: &str = "SO-20260418000736";

fn tool(name: &str) -> DisableRequest {
    let what = Some(disable_request::What::Tool(name.into()));
    DisableRequest { what, reason: "金额算错，正在修复".into(), until_ms: 0 }
}

fn source(name: &str) -> DisableRequest {
    DisableRequest { what: Some(disable_request::What::Source(name.into())), reason: "maintenance".into(), until_ms: 0 }
}

async fn disable(server: &TestServer, request: DisableRequest) -> BrakesResponse {
    server.registry().disable(request).await.unwrap().into_inner()
}

async fn enable(server: &TestServer, name: &str) -> BrakesResponse {
    let request = EnableRequest { what: Some(enable_request::What::Tool(name.into())) };
    server.registry().enable(request).await.unwrap().into_inner()
}

async fn set_mode(server: &TestServer, mode: &str, until_ms: i64) -> BrakesResponse {
    let request = SetModeRequest { mode: mode.into(), reason: "the model answers nonsense".into(), until_ms };
    server.registry().set_mode(request).await.unwrap().into_inner()
}

async fn brakes(registry: &RegistryClient<Channel>) -> BrakesResponse {
    registry.clone().brakes(BrakesRequest {}).await.unwrap().into_inner()
}

fn names(response: &BrakesResponse) -> Vec<(&str, &str)> {
    response.brakes.iter().map(|brake| (brake.kind.as_str(), brake.name.as_str())).collect()
}

fn now_ms() -> i64 {
    i64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap()
}

/// Asks until the answer is as wanted; what is wanted comes with time alone.
async fn until(mut wanted: impl AsyncFnMut() -> bool) {
    for _ in 0..500 {
        if wanted().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it never came");
}

#[track_caller]
fn assert_left_out(answer: &RouteResponse, name: &str) {
    assert!(!format!("{answer:?}").contains(name), "{name} stands in {answer:?}");
    assert!(answer.degraded.iter().any(|mode| mode == "disabled_tools"), "{:?}", answer.degraded);
    assert!(trace(answer).notes.iter().any(|note| note.starts_with("tools are left out")), "{answer:?}");
}

#[tokio::test]
async fn what_is_disabled_is_in_no_answer_from_the_next_request_on() {
    let server = TestServer::start(settings(&[shop()])).await;
    for (utterance, name) in [("催一下发货", "urge_shipment"), ("get_order SO-20260418000736", "get_order")] {
        let before = server.route(utterance).await.unwrap();
        assert_eq!(candidates(&before)[0], name, "{utterance}");
        assert!(!before.degraded.iter().any(|mode| mode == "disabled_tools"));
        let answer = disable(&server, tool(name)).await;
        assert_eq!(names(&answer), [("tool", name)]);
        assert_eq!((answer.brakes[0].caller.as_str(), answer.brakes[0].until_ms), ("local", 0));
        assert_left_out(&server.route(utterance).await.unwrap(), name);
        // Named outright it stays out, and nobody is told that it exists.
        let named = RouteRequest {
            narrowing: Some(pointsman::server::proto::Narrowing { tools: vec![name.into()], ..Default::default() }),
            ..ask(utterance)
        };
        assert_eq!(declined(&server.ask(named).await.unwrap()), "nothing_eligible");
        assert_eq!(names(&enable(&server, name).await), []);
        let after = server.route(utterance).await.unwrap();
        assert_eq!((candidates(&after), &after.degraded), (candidates(&before), &before.degraded));
    }
    // Where the tool could not have been chosen anyway, nothing is said of it.
    disable(&server, tool("urge_shipment")).await;
    let narrowed = RouteRequest {
        narrowing: Some(pointsman::server::proto::Narrowing { domains: vec!["orders".into()], ..Default::default() }),
        ..ask("get_order SO-20260418000736")
    };
    assert_eq!(server.ask(narrowed).await.unwrap().degraded, ["lexical_only"]);
}

#[tokio::test]
async fn a_source_and_what_needs_a_disabled_tool_rest_too() {
    let server = TestServer::start(settings(&[shop()])).await;
    let previewed = |tool: &str| {
        let content = json!({"tool": tool, "ok": true,
            "data": {"order_id": ORDER, "confirm_token": "ct_4f0c2a9be17d6358"}});
        let turn = |role: pointsman::server::proto::turn::Role, content: String| pointsman::server::proto::Turn {
            role: role.into(),
            content,
        };
        vec![
            turn(pointsman::server::proto::turn::Role::User, format!("取消订单 {ORDER}")),
            turn(pointsman::server::proto::turn::Role::Tool, content.to_string()),
        ]
    };
    let yes = || RouteRequest { history: previewed("preview_cancel_order"), ..ask("确认取消") };
    assert_eq!(called(&server.ask(yes()).await.unwrap()).0, "cancel_order");
    disable(&server, tool("preview_cancel_order")).await;
    let answer = server.ask(yes()).await.unwrap();
    assert!(!candidates(&answer).contains(&"cancel_order"), "what was shown may be what is wrong: {answer:?}");
    assert!(answer.degraded.iter().any(|mode| mode == "disabled_tools"));
    enable(&server, "preview_cancel_order").await;
    assert_eq!(called(&server.ask(yes()).await.unwrap()).0, "cancel_order");

    disable(&server, source("shop")).await;
    for utterance in ["催一下发货", "where is my parcel"] {
        let answer = server.route(utterance).await.unwrap();
        assert_eq!(declined(&answer), "nothing_eligible");
        assert!(answer.degraded.iter().any(|mode| mode == "disabled_tools"), "{:?}", answer.degraded);
    }
}

#[tokio::test]
async fn names_nobody_knows_are_refused_with_a_suggestion() {
    let server = TestServer::start(settings(&[shop()])).await;
    let refused = async |request: DisableRequest| server.registry().disable(request).await.unwrap_err();
    let status = refused(tool("isue_coupon")).await;
    assert_eq!(status.code(), Code::NotFound);
    assert!(status.message().contains("did you mean `issue_coupon`?"), "{status:?}");
    let status = refused(source("shopp")).await;
    assert!(status.code() == Code::NotFound && status.message().contains("`shop`"), "{status:?}");
    for bad in [
        DisableRequest { reason: String::new(), ..tool("issue_coupon") },
        DisableRequest { until_ms: now_ms() - 1, ..tool("issue_coupon") },
        DisableRequest { until_ms: -5, ..tool("issue_coupon") },
        DisableRequest { what: None, ..tool("x") },
    ] {
        assert_eq!(refused(bad).await.code(), Code::InvalidArgument);
    }
    let unknown = SetModeRequest { mode: "turbo".into(), reason: "x".into(), until_ms: 0 };
    assert_eq!(server.registry().set_mode(unknown).await.unwrap_err().code(), Code::InvalidArgument);

    disable(&server, tool("issue_coupon")).await;
    let request = |name: &str| EnableRequest { what: Some(enable_request::What::Tool(name.into())) };
    let status = server.registry().enable(request("issue_cupon")).await.unwrap_err();
    assert!(status.code() == Code::NotFound && status.message().contains("`issue_coupon`"), "{status:?}");
    assert_eq!(server.registry().enable(request("get_order")).await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn an_open_question_about_a_disabled_tool_is_refused_with_the_reason() {
    let server = TestServer::start(settings(&[shop()])).await;
    let answer = server.route("催一下发货").await.unwrap();
    let (about, pending) = (question_of(&answer).tool.clone(), question_of(&answer).pending.clone());
    assert_eq!(about, "urge_shipment");
    disable(&server, tool("urge_shipment")).await;
    let reply = |text: &str| RouteRequest { pending: pending.clone(), ..ask(text) };
    let answer = server.ask(reply(&format!("订单号 {ORDER}"))).await.unwrap();
    assert_eq!(declined(&answer), "disabled");
    let problem = trace(&answer).refused.clone().unwrap();
    assert_eq!((problem.code.as_str(), problem.status.as_str()), ("TOOL_DISABLED", "disabled"));
    assert_eq!(problem.message, "`urge_shipment` is disabled: 金额算错，正在修复");
    assert!(problem.suggestion.starts_with("请告知用户") && !problem.retryable, "{problem:?}");

    // Another subject is a request of its own.
    let answer = server.ask(reply("where is my parcel")).await.unwrap();
    assert_ne!(candidates(&answer), Vec::<&str>::new());
    assert!(trace(&answer).refused.is_none());
    enable(&server, "urge_shipment").await;
    assert_eq!(called(&server.ask(reply(ORDER)).await.unwrap()).0, "urge_shipment");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cached_decision_that_names_it_is_not_served() {
    let llm = ScriptedLlm::start([call("track_parcel", json!({})), call("find_parcel", json!({}))]).await;
    let registry = RegistryFile::of(&["track_parcel", "find_parcel"]);
    let model = [("llm.base_url", llm.url()), ("llm.model", "scripted")];
    let mut settings =
        shop_settings(&[&model[..], &[("store.path", ":memory:"), ("cache.min_confidence", "0")]].concat());
    settings.pipeline.registries = vec![registry.path.clone()];
    let server = TestServer::start(settings).await;
    const ASKED: &str = "track the parcel 包裹";
    let first = server.route(ASKED).await.unwrap();
    assert!(trace(&first).stored, "{first:?}");
    assert_eq!(trace(&server.route(ASKED).await.unwrap()).cache, "hit");
    disable(&server, tool("track_parcel")).await;
    let other = server.route(ASKED).await.unwrap();
    assert_eq!((called(&other).0, llm.calls()), ("find_parcel", 2), "{other:?}");
    assert_left_out(&other, "track_parcel");
    assert!(!llm.requests()[1].to_string().contains("track_parcel"), "nor in a prompt");
    // A brake that stays for days must not switch the cache off, and what it stored does not outlive it.
    assert!(trace(&other).stored);
    assert_left_out(&server.route(ASKED).await.unwrap(), "track_parcel");
    assert_eq!(llm.calls(), 2);
    enable(&server, "track_parcel").await;
    let again = server.route(ASKED).await.unwrap();
    assert_eq!((called(&again).0, trace(&again).cache.as_str()), ("track_parcel", "hit"));
    assert_eq!(again.degraded, Vec::<String>::new());
}

fn kept(store: &Path) -> Settings {
    let mut settings = settings(&[shop()]);
    settings.pipeline.store = Some(store.to_owned());
    settings
}

#[tokio::test]
async fn brakes_and_mode_outlive_a_restart_and_end_by_themselves() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store.db");
    let server = TestServer::start(kept(&store)).await;
    disable(&server, tool("urge_shipment")).await;
    let late = now_ms() + 3_600_000;
    let answer = set_mode(&server, "rules_only", late).await;
    assert_eq!((answer.mode.as_str(), answer.mode_until_ms), ("rules_only", late));
    server.stop();
    server.stopped().await.unwrap();

    let server = TestServer::start(kept(&store)).await;
    let answer = brakes(&server.registry()).await;
    assert_eq!((names(&answer), answer.mode.as_str()), (vec![("tool", "urge_shipment")], "rules_only"));
    assert_eq!(answer.mode_reason, "the model answers nonsense");
    let answer = server.route("催一下发货").await.unwrap();
    assert_eq!(declined(&answer), "not_allowed_degraded");
    assert_eq!(answer.degraded, ["disabled_tools", "rules_only"]);
    set_mode(&server, "normal", 0).await;
    assert_left_out(&server.route("催一下发货").await.unwrap(), "urge_shipment");

    // Both end with the clock: nobody has to come back for it.
    let soon = now_ms() + 1_000;
    let answer = disable(&server, DisableRequest { until_ms: soon, ..tool("urge_shipment") }).await;
    assert!(answer.brakes[0].until_ms == soon && answer.brakes.len() == 1, "{answer:?}");
    set_mode(&server, "local_only", soon).await;
    until(async || {
        let answer = server.route("催一下发货").await.unwrap();
        candidates(&answer)[0] == "urge_shipment" && answer.degraded == ["lexical_only"]
    })
    .await;
    let answer = brakes(&server.registry()).await;
    assert_eq!((names(&answer), answer.mode.as_str()), (vec![], "normal"));
}

#[tokio::test]
async fn a_brake_waits_for_a_tool_that_comes_back() {
    let registry = RegistryFile::of(&["track_parcel", "cancel_parcel"]);
    let server = TestServer::start(settings(&[&registry.path])).await;
    disable(&server, tool("track_parcel")).await;
    registry.write(&native(&["cancel_parcel"]));
    server.registry().reload(ReloadRequest {}).await.unwrap();
    assert_eq!(server.route("cancel_parcel").await.unwrap().degraded, ["lexical_only"]);
    assert_eq!(names(&brakes(&server.registry()).await), [("tool", "track_parcel")]);
    registry.write(&native(&["cancel_parcel", "track_parcel"]));
    server.registry().reload(ReloadRequest {}).await.unwrap();
    assert_left_out(&server.route("track_parcel").await.unwrap(), "track_parcel");
    // Without the card it can still be enabled.
    server.registry().delete(DeleteRequest { names: vec!["track_parcel".into()] }).await.unwrap();
    assert_eq!(names(&enable(&server, "track_parcel").await), []);
}

#[track_caller]
fn disabled(problem: &Problem, message: &str) {
    assert_eq!((problem.code.as_str(), problem.message.as_str()), ("TOOL_DISABLED", message), "{problem:?}");
    assert!(!problem.repairable && problem.next.is_none(), "{problem:?}");
}

#[tokio::test]
async fn guarded_calls_of_a_disabled_tool_are_refused_and_those_under_way_run_to_their_end() {
    let downstream = Downstream::start().await;
    let (server, _cards) = serve_at(&downstream, None).await;
    let gate = server.gate();
    let authorize = async |wish: Wish| {
        let answer = gate.clone().authorize(AuthorizeRequest { wish: Some(wish) }).await.unwrap();
        answer.into_inner().verdict.unwrap()
    };
    let note = |locale: &str| Wish { locale: locale.into(), ..wish("write_note", json!({"id": "AB12", "text": "x"})) };
    let Authorized::Go(leave) = authorize(note("en")).await else { panic!("not let go") };
    let Verdict::Confirm(shown) = invoke(&gate, wish("wipe", json!({"id": "AB12"}))).await else {
        panic!("no preview")
    };

    disable(&server, tool("write_note")).await;
    let until_ms = now_ms() + 3_600_000;
    disable(&server, DisableRequest { until_ms, ..tool("wipe") }).await;
    const NOTE: &str = "`write_note` is disabled: 金额算错，正在修复";
    let Authorized::Refused(problem) = authorize(note("zh")).await else { panic!("not refused") };
    disabled(&problem, NOTE);
    assert!(problem.suggestion.starts_with("请告知用户"), "{problem:?}");
    let problem = refused(invoke(&gate, note("en")).await);
    disabled(&problem, NOTE);
    assert!(problem.suggestion.starts_with("tell the user") && !problem.retryable, "{problem:?}");
    // One that ends by itself may be tried again then.
    let token = shown.confirm_token.clone();
    let problem =
        refused(invoke(&gate, Wish { confirm_token: token.clone(), ..wish("wipe", json!({"id": "AB12"})) }).await);
    assert!(problem.retryable && problem.retry_after_ms.is_some_and(|left| left <= 3_600_000), "{problem:?}");
    assert_eq!(downstream.seen().len(), 0);

    let complete = CompleteRequest {
        call_id: leave.call_id,
        outcome: Some(Report::ResultJson(r#"{"done": true}"#.into())),
        ..CompleteRequest::default()
    };
    let answer = gate.clone().complete(complete).await.unwrap().into_inner().answer.unwrap();
    let complete_response::Answer::Outcome(outcome) = answer else { panic!("{answer:?}") };
    assert_eq!(outcome.call.unwrap().state, "succeeded", "what was let go is reported as ever");

    let confirm = async |agreed: bool| {
        let (call_id, confirm_token) = (shown.call_id.clone(), token.clone());
        let answer = gate.clone().confirm(ConfirmRequest { call_id, confirm_token, agreed }).await.unwrap();
        answer.into_inner().answer.unwrap()
    };
    let confirm_response::Answer::Refused(problem) = confirm(true).await else { panic!("agreed") };
    assert_eq!(problem.code, "TOOL_DISABLED");
    let confirm_response::Answer::Call(record) = confirm(false).await else { panic!("not called off") };
    assert_eq!(record.state, "cancelled");

    // A token of a preview that is disabled counts for nothing.
    disable(&server, tool("preview_pay")).await;
    let pay = wish("pay", json!({"id": "AB12", "amount": 5, "confirm_token": "ct_4f0c2a9be17d6358"}));
    let problem = refused(invoke(&gate, pay).await);
    disabled(&problem, "`pay` needs `preview_pay`, which is disabled: 金额算错，正在修复");
    ended(invoke(&gate, wish("read_thing", json!({"id": "AB12"}))).await);
    enable(&server, "write_note").await;
    ended(invoke(&gate, Wish { session_id: "c2".into(), ..note("en") }).await);
}

#[tokio::test]
async fn a_disabled_tool_stands_in_for_nobody() {
    let downstream = Downstream::start().await;
    let registry = native(&["first", "second"]);
    let (first, second) = registry.split_once("  - name: second").unwrap();
    let run = |path: &str| format!("    run: {{target: here, method: GET, path: {path}}}\n");
    let text = format!("{first}{}    fallback: second\n  - name: second{second}{}", run("/first"), run("/second"));
    let file = RegistryFile::new("registry.yaml", &text);
    let mut settings = settings(&[&file.path]);
    let flags = vec![("execute.targets".to_owned(), downstream.target()), ("execute.retries".into(), "0".into())];
    settings.pipeline.execute =
        Loaded::load(&Sources { flags, ..Default::default() }).unwrap().settings.pipeline.execute;
    let server = TestServer::start(settings).await;
    let gone = || Fault::Status(503, json!({"error": "gone"}));
    let asked = async |answered_by: &str| {
        downstream.fault(gone());
        let (outcome, _) = ended(invoke(&server.gate(), wish("first", json!({}))).await);
        assert_eq!(outcome.answered_by, answered_by);
    };
    asked("second").await;
    disable(&server, tool("second")).await;
    asked("").await;
    enable(&server, "second").await;
    asked("second").await;
}

#[tokio::test]
async fn a_mode_decides_who_chooses() {
    let llm = ScriptedLlm::start_with(|_, _| call("get_order", json!({"order_id": ORDER}))).await;
    let rules = format!("{}/examples/shop/rules.yaml", env!("CARGO_MANIFEST_DIR"));
    let server = TestServer::start(llm_settings(llm.url(), &[("rules.file", &rules)])).await;
    let route = async |text: &str| {
        let options = pointsman::server::proto::RouteOptions { no_cache: true, max_calls: 1 };
        server.ask(RouteRequest { options: Some(options), ..ask(text) }).await.unwrap()
    };
    let query = format!("看看 {ORDER} 的情况 get_order");
    assert_eq!(route(&query).await.decided_by, "llm");
    assert_eq!(llm.calls(), 1);

    set_mode(&server, "local_only", 0).await;
    let answer = route(&query).await;
    assert_eq!((answer.decided_by.as_str(), called(&answer).0), ("local", "get_order"));
    assert_eq!(answer.degraded, ["lexical_only", "local_only"]);
    assert_eq!(llm.calls(), 1, "the LLM is not asked");

    set_mode(&server, "rules_only", 0).await;
    for silent in [query.as_str(), "xyzzy", "where is my parcel"] {
        let answer = route(silent).await;
        assert_eq!((declined(&answer), answer.decided_by.as_str()), ("not_allowed_degraded", "rule"), "{silent}");
        assert_eq!(answer.degraded, ["rules_only"]);
        assert_eq!(candidates(&answer), Vec::<&str>::new());
    }
    let person = route("转人工").await;
    assert_eq!((person.decided_by.as_str(), trace(&person).rule.as_str()), ("rule", "person"), "rules go on deciding");
    let (code, ready) = server.http_get("/readyz").await;
    assert!(code == 200 && ready.contains("rules_only"), "{ready}");
    assert_eq!(llm.calls(), 1);

    let answer = set_mode(&server, "normal", 0).await;
    assert_eq!((answer.mode.as_str(), answer.mode_reason.as_str()), ("normal", ""));
    assert_eq!(route(&query).await.decided_by, "llm");
}

#[tokio::test]
async fn only_an_operator_pulls_it_and_the_record_says_so_first() {
    let folder = tempfile::tempdir().unwrap();
    let digest = |token: &str| Sha256::digest(token).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let caller = |name: &str, rest: &str| {
        format!("[[callers]]\nname = \"{name}\"\ntoken_sha256 = \"{}\"\ntenant = \"acme\"\n{rest}\n", digest(name))
    };
    let callers = caller("operator", "scopes = [\"*\"]\noperator = true")
        + &caller("admin", "scopes = [\"*\"]\nadmin = true")
        + &caller("reader", "scopes = [\"orders:read\"]");
    std::fs::write(folder.path().join("callers.toml"), callers).unwrap();
    let mut settings = settings(&[shop()]);
    settings.server.identity.callers = Some(folder.path().join("callers.toml"));
    settings.server.audit = AuditTarget::File(folder.path().join("audit.jsonl"));
    let server = TestServer::start(settings).await;
    let signed = |name: &str, request| {
        let mut request = tonic::Request::new(request);
        request.metadata_mut().insert("authorization", format!("Bearer {name}").parse().unwrap());
        request
    };
    for name in ["admin", "reader"] {
        let status = server.registry().disable(signed(name, tool("issue_coupon"))).await.unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied, "{name}");
    }
    server.registry().disable(signed("operator", tool("issue_coupon"))).await.unwrap();
    server.registry().disable(signed("operator", tool("get_order"))).await.unwrap();
    let status = server.registry().disable(signed("operator", tool("no_such"))).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);

    // Whoever may see the tool may see that it rests, and why; who did it is the operator's.
    let mut ask = tonic::Request::new(BrakesRequest {});
    ask.metadata_mut().insert("authorization", "Bearer reader".parse().unwrap());
    let seen = server.registry().brakes(ask).await.unwrap().into_inner();
    assert_eq!((names(&seen), seen.brakes[0].caller.as_str()), (vec![("tool", "get_order")], ""));

    let text = std::fs::read_to_string(folder.path().join("audit.jsonl")).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told: Vec<_> =
        lines.iter().map(|line| (line["caller"].as_str().unwrap(), line["outcome"].as_str().unwrap())).collect();
    assert_eq!(
        told,
        [
            ("admin", "refused"),
            ("reader", "refused"),
            ("operator", "begun"),
            ("operator", "done"),
            ("operator", "begun"),
            ("operator", "done"),
            ("operator", "begun"),
            ("operator", "refused"),
        ]
    );
    assert_eq!((&lines[2]["method"], &lines[2]["what"]["tools"]), (&json!("Disable"), &json!(["issue_coupon"])));
    assert_eq!(lines[2]["what"]["reason"], "金额算错，正在修复");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_pulls_the_brake_of_a_running_server() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("store.path={}", folder.path().join("store.db").display());
    let file = shop().display().to_string();
    let flags = [&["--registry", file.as_str(), "--set", store.as_str()], &WORDS_ALONE[..]].concat();
    let served = Served::start(&flags);
    let address = format!("http://{}", served.grpc);
    let brake = async |args: &[&str]| {
        let args: Vec<String> =
            ["brake"].iter().chain(args).chain(&["--addr", &address]).map(|arg| (*arg).to_owned()).collect();
        let run = move || cli::run(&args.iter().map(String::as_str).collect::<Vec<_>>());
        tokio::task::spawn_blocking(run).await.unwrap()
    };
    let (code, out, err) = brake(&["status"]).await;
    assert_eq!((code, out.as_str()), (0, "mode    normal\nnothing is disabled\n"), "{err}");
    let disable = ["disable", "--tool", "issue_coupon", "--reason", "amounts are wrong", "--for", "2h"];
    let (code, out, err) = brake(&disable).await;
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("tool    issue_coupon disabled since 2") && out.contains(": amounts are wrong\n"), "{out}");
    let (code, out, err) = brake(&["mode", "rules_only", "--reason", "incident", "--format", "json"]).await;
    assert_eq!(code, 0, "{err}");
    let json: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&json["mode"], &json["brakes"][0]["name"]), (&json!("rules_only"), &json!("issue_coupon")));
    assert!(json["mode_until_ms"].is_null() && json["brakes"][0]["until_ms"].is_i64(), "{json}");

    let metrics = served.http_get("/metrics").await;
    for line in [
        "pointsman_brakes{kind=\"tool\"} 1\n",
        "pointsman_brakes{kind=\"source\"} 0\n",
        "pointsman_mode{mode=\"rules_only\"} 1\n",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    // Unknown names, and what the server does not know, are the caller's to mend.
    let (code, _, err) = brake(&["disable", "--tool", "isue_coupon", "--reason", "x"]).await;
    assert!(code == 2 && err.contains("did you mean `issue_coupon`?"), "{code} {err}");
    assert_eq!(brake(&["enable", "--tool", "get_order"]).await.0, 2);
    assert_eq!(brake(&["disable", "--tool", "a"]).await.0, 2);
    served.signal("TERM");
    let (_, log) = served.wait();
    assert!(log.contains("mode in force") && log.contains("disabled"), "{log}");

    // The store keeps it: `why` explains it without the server, and the next start says so.
    let why = [&["why", "issue_coupon", "发一张优惠券"], &flags[..]].concat();
    let (code, out, err) = cli::run(&why);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("disabled: amounts are wrong"), "{out}");
    let served = Served::start(&flags);
    let kept = brakes(&served.registry()).await;
    assert_eq!((names(&kept), kept.mode.as_str()), (vec![("tool", "issue_coupon")], "rules_only"));
    served.signal("TERM");
    let (_, log) = served.wait();
    assert!(log.contains("disabled by an operator") && log.contains("rules_only"), "{log}");
    let (code, _, err) = cli::run(&["brake", "status", "--addr", "http://127.0.0.1:1"]);
    assert!(code == 1 && err.contains("cannot reach a server"), "{code} {err}");
}
