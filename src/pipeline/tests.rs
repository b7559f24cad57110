use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::*;

/// Words alone, everything in memory.
fn settings() -> Settings {
    Settings {
        live: Vec::new(),
        registries: Vec::new(),
        strict: false,
        store: None,
        stored_cards: true,
        history: 20,
        pins: crate::registry::pin::Pins::All,
        embed: crate::embed::Settings {
            models_dir: "models".into(),
            encoders: Vec::new(),
            onnxruntime: None,
            threads: 1,
            max_batch: 1,
            queue: 8,
        },
        allow_lexical_only: true,
        index: crate::index::Settings { mode: crate::index::Mode::Auto, exact_up_to: 1_000, recall_sample: 0.0 },
        retrieve: crate::retrieve::Settings {
            hand_on_all_up_to: 15,
            shortlist_min: 5,
            shortlist_max: 8,
            coverage: Default::default(),
            basis: Default::default(),
            without: Default::default(),
            strategy: Default::default(),
        },
        rules: crate::rules::Settings::default(),
        local: crate::decide::local::Settings { min_confidence: 0.45, min_confidence_write: 0.55, no_tool_below: 0.25 },
        llm: None,
        handoff: crate::decide::handoff::Sentences::default(),
        cache: crate::cache::Settings {
            enabled: true,
            capacity: 10,
            ttl: Duration::from_secs(60),
            min_confidence: 0.8,
            destructive: false,
        },
        log: crate::decision::log::Settings { target: crate::decision::log::Target::Off, queue: 1 },
        deadline: Duration::from_secs(5),
        max_in_flight: 8,
        gate: crate::gate::Settings {
            token_ttl: Duration::from_secs(600),
            idempotency_ttl: Duration::from_secs(600),
            grace: Duration::from_secs(5),
            key_rotation: Duration::from_secs(600),
            max_calls: 100,
            max_steps: 8,
            turn_budget: Duration::from_secs(60),
        },
        policy: None,
        execute: crate::execute::Settings {
            targets: BTreeMap::new(),
            default_timeout: Duration::from_secs(5),
            max_answer_bytes: 1024 * 1024,
            retries: 1,
            breaker_failures: 6,
            breaker_window: Duration::from_secs(30),
        },
        result: crate::result::Settings { max_chars: 4_000, max_rows: 20 },
        log_bodies: false,
        extra_examples: BTreeMap::new(),
    }
}

fn card(name: &str, version: u32, more: Value) -> Value {
    let mut card = json!({"name": name, "version": version, "description": "x", "side_effect": "read",
        "timeout_ms": 10, "permissions": []});
    card.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    card
}

fn stored(router: &Router) -> Vec<(String, u64)> {
    let version = |json: &str| serde_json::from_str::<Value>(json).unwrap()["version"].as_u64().unwrap();
    router.store.cards().unwrap().into_iter().map(|(name, json)| (name, version(&json))).collect()
}

#[tokio::test]
async fn what_is_kept_is_what_is_served() {
    let router = Router::start(settings(), &|_, _| ()).await.unwrap();
    let added = router.put(vec![card("a", 1, json!({})), card("b", 1, json!({"fallback": "a"}))]).await.unwrap();
    assert_eq!(added.added.len(), 2);
    // The new `a` points nowhere: neither the catalog nor the store gives up the old one.
    let change = router.put(vec![card("a", 2, json!({"fallback": "no"})), card("c", 1, json!({}))]).await.unwrap();
    assert_eq!((change.quarantined.len(), change.removed.len(), change.added.len()), (1, 0, 1));
    assert_eq!(stored(&router), [("a".to_owned(), 1), ("b".to_owned(), 1), ("c".to_owned(), 1)]);
    let change = router.delete(vec!["b".into(), "b".into(), "nobody".into()]).await.unwrap();
    assert_eq!((change.removed.len(), change.notices.len()), (1, 1));
    router.replace(vec![card("d", 3, json!({}))]).await.unwrap();
    assert_eq!(stored(&router), [("d".to_owned(), 3)]);
    assert_eq!(router.registry().1.cards.len(), 1);
    assert_eq!(router.reload().await.unwrap().removed.len(), 0);
}

async fn open_tools(router: &Arc<Router>, history: &[Value]) -> Vec<String> {
    let turn = |content: &Value| Turn { role: crate::types::Role::Tool, content: content.to_string() };
    let history = history.iter().map(turn).collect();
    let request = RouteRequest { utterance: "a b c d".into(), history, ..RouteRequest::default() };
    let deadline = crate::types::Deadline::after(Duration::from_secs(5));
    let ranking = router.rank(&request, &crate::types::Caller::local(), deadline).await.unwrap();
    let mut names: Vec<String> = ranking.candidates.iter().map(|candidate| candidate.tool.to_string()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn what_needs_a_disabled_tool_rests_with_it_however_indirectly() {
    let router = Router::start(settings(), &|_, _| ()).await.unwrap();
    let cards = [
        card("a", 1, json!({"requires": ["b"]})),
        card("b", 1, json!({"requires": ["c"]})),
        card("c", 1, json!({})),
        card("d", 1, json!({})),
    ];
    router.put(cards.into()).await.unwrap();
    assert_eq!(open_tools(&router, &[]).await, ["a", "b", "c", "d"]);
    let disable = async |name: &str, until| {
        let target = Target::Tool(name.into());
        router.disable(target, "坏了".into(), until, "op".into()).await
    };
    disable("c", None).await.unwrap();
    assert_eq!(open_tools(&router, &[]).await, ["d"]);
    // What the conversation holds already is needed no more; what failed is no result.
    assert_eq!(open_tools(&router, &[json!({"tool": "c", "ok": true, "data": {}})]).await, ["a", "b", "d"]);
    assert_eq!(open_tools(&router, &[json!({"tool": "c", "ok": false, "error": "x"})]).await, ["d"]);
    assert_eq!(open_tools(&router, &[json!({"tool": "b", "ok": true, "data": {}})]).await, ["a", "d"]);
    router.enable(Target::Tool("c".into())).await.unwrap();
    assert_eq!(open_tools(&router, &[]).await, ["a", "b", "c", "d"]);

    // A new end replaces the old one, and one that is past does not count.
    disable("c", Some(crate::types::UnixMs(1))).await.unwrap();
    assert_eq!(open_tools(&router, &[]).await, ["a", "b", "c", "d"]);
    assert!(matches!(disable("x", None).await, Err(BrakeError::Unknown { .. })));
    assert!(matches!(router.enable(Target::Source("c".into())).await, Err(BrakeError::NotDisabled { .. })));
}

#[tokio::test]
async fn what_is_measured_knows_no_brake() {
    let folder = tempfile::tempdir().unwrap();
    let store = Some(folder.path().join("store.db"));
    let router = Router::start(Settings { store: store.clone(), ..settings() }, &|_, _| ()).await.unwrap();
    router.put(vec![card("a", 1, json!({}))]).await.unwrap();
    router.disable(Target::Tool("a".into()), "x".into(), None, "op".into()).await.unwrap();
    router.set_mode(ModeSet { mode: RunMode::RulesOnly, ..ModeSet::default() }).await.unwrap();
    for (stored_cards, brakes, mode) in [(true, 1, RunMode::RulesOnly), (false, 0, RunMode::Normal)] {
        let settings = Settings { store: store.clone(), stored_cards, ..settings() };
        let router = Router::start(settings, &|_, _| ()).await.unwrap();
        assert_eq!((router.standing().brakes.len(), router.mode()), (brakes, mode));
    }
}
