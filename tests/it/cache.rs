//! The exact decision cache, seen from outside: when it answers, when it must not, one model call for many requests.

use std::time::Duration;

use pointsman::config::Settings;
use pointsman::server::proto::turn::Role;
use pointsman::server::proto::{Narrowing, ReloadRequest, RouteOptions, RouteRequest, Turn};
use pointsman::server::wire::to_struct;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::scripted_llm::{ScriptedLlm, Step, call, delay, hang, status};
use crate::support::server::{TestServer, ask, called, question_of, shop_settings, trace};
use crate::support::{RegistryFile, native};

const ORDER: &str = "SO-20260418000736";
const OTHER_ORDER: &str = "SO-20260418000737";

async fn start(steps: impl IntoIterator<Item = Step>, flags: &[(&str, &str)]) -> (ScriptedLlm, TestServer) {
    let llm = ScriptedLlm::start(steps).await;
    let server = TestServer::start(settings(&llm, flags)).await;
    (llm, server)
}

/// Words alone are a degraded mode, and degraded decisions are never stored: an encoder is part of these tests.
fn settings(llm: &ScriptedLlm, flags: &[(&str, &str)]) -> Settings {
    let flags: Vec<_> = [("llm.base_url", llm.url()), ("llm.model", "scripted")].iter().chain(flags).copied().collect();
    shop_settings(&flags)
}

fn track() -> Step {
    call("track_shipment", json!({}))
}

async fn cache_of(server: &TestServer, request: RouteRequest) -> (String, String) {
    let answer = server.ask(request).await.unwrap();
    (answer.decided_by.clone(), trace(&answer).cache.clone())
}

fn pair(decided_by: &str, cache: &str) -> (String, String) {
    (decided_by.to_owned(), cache.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_decided_is_answered_again_and_nothing_else() {
    let order = |id: &str| call("get_order", json!({"order_id": id}));
    let steps = [track(), order(ORDER), order(OTHER_ORDER), track()];
    let llm = ScriptedLlm::start(steps).await;
    let pets = RegistryFile::of(&["feed_cat"]);
    let mut settings = settings(&llm, &[]);
    settings.pipeline.registries.push(pets.path.clone());
    let server = TestServer::start(settings).await;
    let reload = async |names: &[&str]| {
        pets.write(&native(names));
        server.registry().reload(ReloadRequest {}).await.unwrap().into_inner()
    };
    let first = server.route("我的快递到哪了").await.unwrap();
    assert_eq!((first.decided_by.as_str(), trace(&first).cache.as_str(), trace(&first).stored), ("llm", "miss", true));
    assert!(first.tokens.unwrap().prompt > 0 && first.confidence >= 0.8);
    // Full-width forms, blanks and invisible characters do not make another utterance.
    for same in ["我的快递到哪了", " 我的快递到哪了\u{200b} "] {
        let hit = server.route(same).await.unwrap();
        assert_eq!((hit.decided_by.as_str(), trace(&hit).cache.as_str()), ("cache_exact", "hit"));
        let tokens = hit.tokens.unwrap();
        assert_eq!((tokens.prompt, tokens.completion, trace(&hit).llm_calls), (0, 0, 0));
        assert_eq!((called(&hit), hit.confidence), (called(&first), first.confidence));
        assert_eq!(hit.candidates, first.candidates);
        assert_ne!(hit.decision_id, first.decision_id);
        assert!(hit.timings_ms.contains_key("cache") && hit.timings_ms.contains_key("total"));
        assert!(!hit.timings_ms.contains_key("decide"), "{:?}", hit.timings_ms);
    }
    assert_eq!(llm.calls(), 1);

    // One digit apart is another request.
    for _ in 0..2 {
        for id in [ORDER, OTHER_ORDER] {
            let answer = server.route(&format!("订单 {id} 现在什么状态")).await.unwrap();
            assert_eq!(called(&answer).1["order_id"], id);
        }
    }
    assert_eq!(llm.calls(), 3);

    // History, other session values, another number of calls and the caller's wish: not the stored answer.
    let said = Turn { role: Role::User.into(), content: "你好".into() };
    let state = to_struct(json!({"user_id": "u-1"}).as_object().unwrap());
    let options = |no_cache, max_calls| Some(RouteOptions { no_cache, max_calls });
    let utterance = "我的快递到哪了";
    let history = RouteRequest { history: vec![said], ..ask(utterance) };
    assert_eq!(cache_of(&server, history).await, pair("llm", "bypass"));
    let pending = RouteRequest { pending: "pd_0".into(), ..ask(utterance) };
    assert_eq!(cache_of(&server, pending).await, pair("llm", "bypass"));
    let off = RouteRequest { options: options(true, 0), ..ask(utterance) };
    assert_eq!(cache_of(&server, off).await, pair("llm", "off"));
    let session = RouteRequest { session_state: Some(state), ..ask(utterance) };
    assert_eq!(cache_of(&server, session).await, pair("llm", "miss"));
    let two = RouteRequest { options: options(false, 2), ..ask(utterance) };
    assert_eq!(cache_of(&server, two).await, pair("llm", "miss"));
    let one = RouteRequest { options: options(false, 1), session_id: "another".into(), ..ask(utterance) };
    assert_eq!(cache_of(&server, one).await, pair("cache_exact", "hit"));

    // A changed set of tools: any of them may now be the one that should win.
    let change = reload(&["feed_cat", "water_plants"]).await;
    assert_eq!(change.added, ["water_plants"], "{change:?}");
    let again = server.route(utterance).await.unwrap();
    assert_eq!((trace(&again).cache.as_str(), &again.catalog_version), ("miss", &change.catalog_version));
    assert_eq!(cache_of(&server, ask(utterance)).await, pair("cache_exact", "hit"));

    // Where the changed tool is not eligible the stored answer stands, under the new version.
    let narrowed = || RouteRequest {
        narrowing: Some(Narrowing { domains: vec!["logistics".into()], ..Default::default() }),
        ..ask(utterance)
    };
    assert_eq!(cache_of(&server, narrowed()).await, pair("llm", "miss"));
    let change = reload(&["feed_cat"]).await;
    assert_eq!(change.removed, ["water_plants"], "{change:?}");
    let hit = server.ask(narrowed()).await.unwrap();
    assert_eq!((trace(&hit).cache.as_str(), &hit.catalog_version), ("hit", &change.catalog_version));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_unsure_asked_or_cannot_be_undone_is_not_stored() {
    // Not the prefilter's choice: less than 0.8.
    let (llm, server) = start([call("get_ticket", json!({}))], &[]).await;
    for _ in 0..2 {
        let answer = server.route("我的快递到哪了").await.unwrap();
        assert!(answer.confidence < 0.8, "{}", answer.confidence);
        assert_eq!((answer.decided_by.as_str(), trace(&answer).stored), ("llm", false));
    }
    assert_eq!(llm.calls(), 2);
    drop(server);

    let content = "gift-wrap it please";
    let message = || call("send_message", json!({"order_id": ORDER, "recipient": "seller", "content": content}));
    let utterance = format!("tell the seller of {ORDER}: \"{content}\"");
    for (destructive, stored) in [("false", false), ("true", true)] {
        let flags = [("cache.min_confidence", "0"), ("cache.destructive", destructive)];
        let (llm, server) = start([message()], &flags).await;
        let first = server.route(&utterance).await.unwrap();
        assert_eq!(called(&first).0, "send_message", "{first:?}");
        assert_eq!(trace(&first).stored, stored);
        assert_eq!(server.route(&utterance).await.unwrap().decided_by == "cache_exact", stored);
        assert_eq!(llm.calls(), if stored { 1 } else { 2 });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_requests_for_one_decision_make_one_model_call() {
    let (llm, server) = start([delay(500, track())], &[]).await;
    let mut waiting = JoinSet::new();
    for _ in 0..10 {
        let mut router = server.router();
        waiting.spawn(async move { router.route(ask("where is my parcel")).await.unwrap().into_inner() });
    }
    let answers = waiting.join_all().await;
    assert_eq!(llm.calls(), 1);
    let ids: std::collections::BTreeSet<_> = answers.iter().map(|answer| answer.decision_id.clone()).collect();
    assert_eq!(ids.len(), 10, "each request is a decision of its own");
    assert!(answers.iter().all(|answer| called(answer).0 == "track_shipment"));
    let tokens: u32 = answers.iter().map(|answer| answer.tokens.unwrap().prompt).sum();
    assert_eq!(tokens, 100, "the tokens of one call are counted once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_a_leader_that_leaves_nor_one_in_a_hurry_fails_the_others() {
    let (llm, server) = start([hang(), track(), status(401)], &[]).await;
    let mut router = server.router();
    let leader = tokio::spawn(async move { router.route(ask("where is my parcel")).await });
    until(|| llm.calls() == 1).await;
    let mut followers = JoinSet::new();
    for _ in 0..3 {
        let mut router = server.router();
        followers.spawn(async move { router.route(ask("where is my parcel")).await.unwrap().into_inner() });
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    leader.abort();
    for answer in followers.join_all().await {
        assert_eq!((called(&answer).0, answer.degraded.len()), ("track_shipment", 0), "{answer:?}");
    }
    assert_eq!((llm.calls(), llm.hung_up()), (2, 1));
    // The local decider's first run compiles its patterns, which takes a while in a build for tests.
    assert_eq!(server.route("催一下发货").await.unwrap().degraded, ["llm_unavailable"]);
    drop(server);

    let (llm, server) = start([hang(), track()], &[]).await;
    let hurried = server.ask_within(ask("where is my parcel"), Duration::from_secs(4));
    let patient = async {
        until(|| llm.calls() == 1).await;
        server.ask_within(ask("where is my parcel"), Duration::from_secs(60)).await
    };
    let (hurried, patient) = tokio::join!(hurried, patient);
    let (hurried, patient) = (hurried.unwrap(), patient.unwrap());
    assert_eq!((hurried.degraded[0].as_str(), trace(&hurried).stored), ("llm_unavailable", false));
    assert!(trace(&patient).stored, "a fallback is worth less than an answer and was not kept");
    assert_eq!((patient.decided_by.as_str(), patient.degraded.len()), ("llm", 0), "{patient:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shared_question_is_open_in_each_session() {
    let asked = call("ask_user", json!({"tool": "urge_shipment", "missing": ["order_id"], "question": "哪一单？"}));
    let (llm, server) = start([delay(500, asked), track()], &[]).await;
    let open = async |session: &str| {
        let answer = server.ask(RouteRequest { session_id: session.into(), ..ask("催一下发货") }).await.unwrap();
        question_of(&answer).pending.clone()
    };
    let (x, y) = tokio::join!(open("x"), open("y"));
    assert_eq!(llm.calls(), 1);
    assert_ne!(x, y);
    for (session, pending) in [("x", x), ("y", y)] {
        let request = RouteRequest { session_id: session.into(), pending, ..ask(ORDER) };
        let answer = server.ask(request).await.unwrap();
        let (tool, arguments): (&str, Value) = called(&answer);
        assert_eq!((tool, &arguments["order_id"]), ("urge_shipment", &json!(ORDER)), "{session}");
    }
}

pub async fn until(done: impl Fn() -> bool) {
    for _ in 0..2_000 {
        if done() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("did not happen within twenty seconds");
}
