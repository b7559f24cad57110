//! Snapshots and cache.

use pointsman::cache::{DecisionCache, Key, KeyParts, Lookup};
use pointsman::decision::{Decision, Outcome};
use pointsman::pipeline::RouteRequest;
use pointsman::text::normalise;
use pointsman::types::{Caller, Confidence, Scope};
use serde_json::{Value, json};

use crate::support::RegistryFile;
use crate::support::scripted_llm::{ScriptedLlm, call};
use crate::support::shop::{Shop, called, dev_rows, request, settings, the_call};

const ORDER: &str = "SO-20260418000736";

#[tokio::test]
async fn sb_070_every_choice_leaves_a_record() {
    let llm = ScriptedLlm::start([call("get_order", json!({"order_id": ORDER, "fields": ["amount"]}))]).await;
    let shop = Shop::with_llm(&llm, &[]).await;
    let decision = shop.route("SO-20260418000736 付了多少").await;
    assert_eq!(the_call(&decision).tool.as_str(), "get_order");

    let records = shop.records().await;
    let [record] = records.as_slice() else { panic!("{records:?}") };
    assert_eq!(record["decision_id"], decision.id.to_string());
    assert_eq!(record["utterance"], "<id> 付了多少");
    let candidates = record["candidates"].as_array().unwrap();
    assert_eq!(candidates.len(), decision.candidates.len());
    assert!(candidates.iter().all(|candidate| candidate["tool"].is_string() && candidate["score"].is_f64()));
    assert_eq!(record["calls"][0]["tool"], "get_order");
    let draft: Vec<&String> = record["calls"][0]["arguments"].as_object().unwrap().keys().collect();
    assert_eq!(draft, ["fields", "order_id"]);
    assert_eq!(record["model"], "scripted");
    assert!(record["timings_ms"]["total"].as_f64().unwrap() > 0.0);
}

#[tokio::test]
async fn sb_073_a_repeated_intent_needs_no_model() {
    let llm = ScriptedLlm::start([call("track_shipment", json!({}))]).await;
    let shop = Shop::with_llm(&llm, &[]).await;
    let (first, second) = (shop.route("我的快递到哪了呀").await, shop.route("我的快递到哪了呀").await);
    assert_eq!(called(&first), "track_shipment{}");
    assert_eq!(called(&second), called(&first));
    assert_eq!(llm.calls(), 1);
}

/// The confidence of a real decision is set by hand: no script can make the router arrive at 0.79.
#[tokio::test]
async fn sb_074_only_confident_decisions_are_stored() {
    let shop = Shop::start(&[]).await;
    let sample = shop.route("我的快递到哪了呀").await;
    let cache = DecisionCache::new(settings(&[]).pipeline.cache);
    for (confidence, stored) in [(0.79, false), (0.80, true), (0.95, true)] {
        let query = normalise(&format!("confidence {confidence}")).unwrap();
        let parts = KeyParts {
            tenant: "t",
            eligible: [1, 2],
            rules: "",
            rule: "",
            decider: "llm",
            session: "{}",
            query: &query,
            max_calls: 1,
        };
        let make = || {
            let decision = Decision { confidence: Confidence::new(confidence), ..sample.clone() };
            async move { Ok::<_, ()>(decision) }
        };
        let (_, first) = cache.get_or_make(Key::of(&parts), make(), |_| true).await.unwrap();
        assert_eq!(first, Lookup::Made { stored }, "{confidence}");
        let (_, second) = cache.get_or_make(Key::of(&parts), make(), |_| true).await.unwrap();
        assert_eq!(second == Lookup::Hit, stored, "{confidence}");
    }

    // The same bound in the router: just below what it arrives at, and between that and certainty.
    let reached = sample.confidence.get();
    assert!(reached < 1.0);
    for (bound, stored) in [(reached - 0.001, true), ((reached + 1.0) / 2.0, false)] {
        let shop = Shop::start(&[("cache.min_confidence", &bound.to_string())]).await;
        assert_eq!(shop.route("我的快递到哪了呀").await.trace.stored, stored, "{bound}");
        let second = shop.route("我的快递到哪了呀").await;
        assert_eq!(second.trace.cache == "hit", stored, "{bound}");
    }
}

#[tokio::test]
async fn sb_075_values_come_from_the_new_utterance() {
    let rows: Vec<_> = dev_rows().into_iter().filter(|row| row.label["template"] == "t03").collect();
    assert_eq!(rows.len(), 3);
    // Everything is stored, whatever its confidence.
    let shop = Shop::start(&[("cache.min_confidence", "0")]).await;
    let mut hits = 0;
    for row in rows.iter().chain(rows.iter().rev()).chain(&rows) {
        let decision = shop.route(&row.utterance).await;
        let call = the_call(&decision);
        assert_eq!(call.tool.as_str(), "preview_cancel_order", "{}", row.utterance);
        assert_eq!(Value::Object(call.arguments.clone()), row.label["args"], "{}", row.utterance);
        hits += usize::from(decision.trace.cache == "hit");
    }
    assert_eq!(hits, 6, "the cache was at work");
}

#[tokio::test]
async fn sb_076_opposites_never_share_an_entry() {
    let shop = Shop::start(&[("cache.min_confidence", "0")]).await;
    for round in ["miss", "hit"] {
        for (utterance, enabled) in [("打开促销推送", true), ("关闭促销推送", false)] {
            let decision = shop.route(utterance).await;
            let call = the_call(&decision);
            assert_eq!(call.tool.as_str(), "set_notification_preference");
            assert_eq!(call.arguments["enabled"], enabled, "{utterance}");
            assert_eq!(decision.trace.cache, round, "{utterance}");
        }
    }
}

#[tokio::test]
async fn sb_077_what_changes_the_choice_makes_entries_invalid() {
    let text = std::fs::read_to_string(crate::support::shop()).unwrap();
    let registry = RegistryFile::new("registry.yaml", &text);
    let shop = Shop::of(&registry.path, &[("cache.min_confidence", "0")]).await;
    let session = json!({"order_id": ORDER}).as_object().unwrap().clone();
    let ask = || RouteRequest { session_state: session.clone(), ..request("发票发我一份") };
    let first = shop.ask(ask()).await;
    assert_eq!((the_call(&first).tool.as_str(), the_call(&first).tool_version.as_str()), ("get_invoice", "1"));
    assert_eq!((first.trace.cache.as_str(), first.trace.stored), ("miss", true));
    assert_eq!(shop.ask(ask()).await.trace.cache, "hit");

    // Other rights are another question.
    let limited = Caller::with_scopes("local", ["invoices:read", "orders:read"].map(|scope| Scope(scope.into())));
    assert_eq!(shop.try_ask(ask(), &limited).await.unwrap().trace.cache, "miss");
    assert_eq!(shop.ask(ask()).await.trace.cache, "hit");

    registry.write(&text.replace("- name: get_invoice\n    version: 1", "- name: get_invoice\n    version: 2"));
    let change = shop.router.reload().await.unwrap();
    assert_eq!(change.changed.len(), 1, "{change:?}");
    let bumped = shop.ask(ask()).await;
    assert_eq!((bumped.trace.cache.as_str(), the_call(&bumped).tool_version.as_str()), ("miss", "2"));
}

#[tokio::test]
async fn sb_078_numbers_stand_in_records_as_linking_hashes() {
    let shop = Shop::start(&[]).await;
    for utterance in [
        "SO-20260418000736 退款",
        "SO-20260418000736 付了多少",
        "SO-20260418000736 退款，电话13800138000",
        "SO-20260418000737 付了多少",
    ] {
        let decision = shop.route(utterance).await;
        assert!(matches!(decision.outcome, Outcome::Call { .. }), "{utterance}: {:?}", decision.outcome);
    }
    let text = shop.log_text().await;
    for number in ["20260418000736", "20260418000737", "13800138000"] {
        assert!(!text.contains(number), "{number}: {text}");
    }
    let hashes: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["calls"][0]["arguments"]["order_id"].clone())
        .collect();
    assert!(hashes[0].as_str().unwrap().starts_with("hash:"), "{hashes:?}");
    assert!(hashes[0] == hashes[1] && hashes[1] == hashes[2] && hashes[2] != hashes[3], "{hashes:?}");
}
