//! The program killed at each state of a call: after a restart `Lookup` tells the truth and nothing runs twice.

use std::time::Duration;

use pointsman::server::proto::invoke_response::Verdict;
use pointsman::server::proto::{CallRecord, ConfirmRequest, InvokeRequest, LookupRequest, Wish};
use serde_json::json;

use crate::gate::{ended, invoke, wish};
use crate::support::cli::{Served, WORDS_ALONE};
use crate::support::downstream::{Downstream, Fault, registry};

struct World {
    downstream: Downstream,
    cards: crate::support::RegistryFile,
    store: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        Self { downstream: Downstream::start().await, cards: registry(), store: tempfile::tempdir().unwrap() }
    }

    fn serve(&self) -> Served {
        let store = format!("store.path={}", self.store.path().join("store.db").display());
        let targets = format!("execute.targets={}", self.downstream.target());
        let fixed = ["--registry", self.cards.as_str(), "--set", &store, "--set", &targets, "--set", "gate.grace_ms=1"];
        Served::start(&[&fixed[..], &WORDS_ALONE].concat())
    }
}

/// `kill -9`: no destructor, no signal handler.
fn kill(served: Served) {
    served.signal("KILL");
    served.wait();
}

async fn lookup(served: &Served, key: &str) -> CallRecord {
    let request = LookupRequest { session_id: "c1".into(), idempotency_key: key.into(), ..LookupRequest::default() };
    served.gate().lookup(request).await.unwrap().into_inner().call.unwrap()
}

fn wipe(token: &str) -> Wish {
    Wish { confirm_token: token.into(), idempotency_key: "k".into(), ..wish("wipe", json!({"id": "AB12"})) }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_while_consent_is_waited_for() {
    let world = World::new().await;
    let served = world.serve();
    let Verdict::Confirm(shown) = invoke(&served.gate(), wipe("")).await else { panic!("no preview") };
    kill(served);
    let served = world.serve();
    assert_eq!(lookup(&served, "k").await.state, "previewed");
    let (outcome, _) = ended(invoke(&served.gate(), wipe(&shown.confirm_token)).await);
    assert!(!outcome.replayed);
    assert_eq!(world.downstream.effects("/things/AB12"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_after_consent_was_given() {
    let world = World::new().await;
    let served = world.serve();
    let Verdict::Confirm(shown) = invoke(&served.gate(), wipe("")).await else { panic!("no preview") };
    let confirm = ConfirmRequest { call_id: shown.call_id, confirm_token: shown.confirm_token.clone(), agreed: true };
    served.gate().confirm(confirm).await.unwrap();
    kill(served);
    let served = world.serve();
    assert_eq!(lookup(&served, "k").await.state, "confirmed");
    assert_eq!(world.downstream.effects("/things/AB12"), 0);
    ended(invoke(&served.gate(), wipe(&shown.confirm_token)).await);
    assert_eq!(world.downstream.effects("/things/AB12"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_after_the_effect_and_before_the_answer() {
    let world = World::new().await;
    let served = world.serve();
    let Verdict::Confirm(shown) = invoke(&served.gate(), wipe("")).await else { panic!("no preview") };
    world.downstream.fault(Fault::Hang);
    let mut gate = served.gate();
    let request = InvokeRequest { wish: Some(wipe(&shown.confirm_token)) };
    let running = tokio::spawn(async move { gate.invoke(request).await });
    while world.downstream.effects("/things/AB12") == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    kill(served);
    assert!(running.await.unwrap().is_err());

    let served = world.serve();
    // Its timeout of a second may not have passed yet: until then it may still be running elsewhere.
    let state = lookup(&served, "k").await.state;
    assert!(matches!(state.as_str(), "dispatched" | "effect_unknown"), "{state}");
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    assert_eq!(lookup(&served, "k").await.state, "effect_unknown");
    let again = invoke(&served.gate(), wipe(&shown.confirm_token)).await;
    let unknown = match &again {
        Verdict::Refused(problem) => problem.code == "EFFECT_UNKNOWN",
        Verdict::Outcome(outcome) => outcome.replayed,
        _ => false,
    };
    assert!(unknown, "{again:?}");
    assert_eq!(world.downstream.effects("/things/AB12"), 1, "never twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_after_the_end() {
    let world = World::new().await;
    let served = world.serve();
    let note =
        || Wish { idempotency_key: "n".into(), ..wish("write_note", json!({"id": "AB12", "text": "晚点送"})) };
    let (_, first) = ended(invoke(&served.gate(), note()).await);
    kill(served);
    let served = world.serve();
    assert_eq!(lookup(&served, "n").await.state, "succeeded");
    let (outcome, again) = ended(invoke(&served.gate(), note()).await);
    assert!(outcome.replayed);
    assert_eq!(again, first);
    assert_eq!(world.downstream.effects("/notes"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_again_and_again_a_call_has_one_effect() {
    let world = World::new().await;
    let note = || Wish { idempotency_key: "n".into(), ..wish("write_note", json!({"id": "AB12", "text": "x"})) };
    for pause_ms in [0, 1, 3, 8] {
        let served = world.serve();
        let mut gate = served.gate();
        let running = tokio::spawn(async move { gate.invoke(InvokeRequest { wish: Some(note()) }).await });
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        kill(served);
        let _ = running.await;
    }
    let served = world.serve();
    // Longer than timeout and grace: nothing is running any more.
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    let verdict = invoke(&served.gate(), note()).await;
    let effects = world.downstream.effects("/notes");
    let state = lookup(&served, "n").await.state;
    match state.as_str() {
        "succeeded" => assert_eq!(effects, 1, "{verdict:?}"),
        "effect_unknown" => assert!(effects <= 1, "{effects} effects: {verdict:?}"),
        other => panic!("{other} with {effects} effects: {verdict:?}"),
    }
}
