use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::*;

/// Words alone, everything in memory.
fn settings() -> Settings {
    Settings {
        registries: Vec::new(),
        strict: false,
        store: None,
        stored_cards: true,
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
