//! What is written, read again.

use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::{ImportOptions, Kind, Registry, import_text};
use super::*;

fn again(registry: &Registry, name: &str) -> (String, Registry) {
    let text = to_yaml(registry, name, "Imported from a\u{0}b\nfill in: `side_effect`");
    let read = import_text(Some(Kind::Native), Path::new("out.yaml"), &text, &ImportOptions::default());
    (text.clone(), read.unwrap_or_else(|error| panic!("{error}\n{text}")))
}

#[track_caller]
fn check(registry: &Registry, name: &str) {
    let (text, read) = again(registry, name);
    assert!(read.quarantined.is_empty(), "{:?}\n{text}", read.quarantined);
    assert_eq!(read.cards, registry.cards, "{text}");
    assert_eq!(read.scopes, registry.scopes);
}

#[test]
fn the_shop_survives_with_everything_it_states() {
    let shop = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/shop/registry.yaml");
    let registry = super::super::load(&[shop], &[]).unwrap();
    check(&registry, "shop");
    let bad = again(&registry, "shop").0.replace("imported: true\n", "");
    let native = import_text(None, Path::new("out.yaml"), &bad, &ImportOptions::default()).unwrap();
    // A card tells no longer whether it stated that nobody needs a scope.
    let scopeless = registry.cards.values().filter(|card| card.scopes.is_empty()).count();
    assert_eq!(native.quarantined.len(), scopeless, "with everything stated it is a native file as well");
    assert!(native.quarantined.iter().all(|card| card.problems[0].pointer == "/permissions"));
}

#[test]
fn what_nobody_stated_stays_open() {
    let source = json!({"tools": [{"name": "查询.订单", "description": "查询订单。\n\"引号\": # no comment\u{2028}\u{85}\u{feff}'",
        "inputSchema": {"type": "object", "properties": {"null": {"const": -0.0}, "- a": {"enum": [1e300, 18446744073709551615u64,
        "yes", "0x1f", "~", "", " a ", "a: b", "&x", "2026-01-01"]}, "k".repeat(2000): {"default": [[], {}, [[1]], [{"a": [{}]}]]}}},
        "annotations": {"readOnlyHint": true}}]});
    let options = ImportOptions { name: Some("服务 1".into()), ..ImportOptions::default() };
    let registry = import_text(None, Path::new("tools.json"), &source.to_string(), &options).unwrap();
    assert_eq!(registry.cards.len(), 1, "{:?}", registry.quarantined);
    assert!(registry.cards.values().all(|card| !card.side_effect_declared));
    check(&registry, "服务 1");
    let (text, read) = again(&registry, "服务 1");
    assert!(text.starts_with("# Imported from a b\n# fill in: `side_effect`\nregistry: \"服务 1\"\nimported: true\n"));
    assert!(text.contains("# side_effect: read, write or destructive?"), "{text}");
    assert!(read.notices.iter().any(|notice| notice.contains("1 state no side_effect")), "{:?}", read.notices);
    let believed = ImportOptions { trust_hints: true, target: Some("desk".into()), ..options };
    let registry = import_text(None, Path::new("tools.json"), &source.to_string(), &believed).unwrap();
    assert!(registry.cards.values().all(|card| card.is_known_to_read() && card.run.is_some()));
    check(&registry, "服务 1");
}

#[test]
fn descriptions_mean_the_same_without_the_quarantined_cards() {
    let flat = "{\"name\":\"get_a\",\"description\":\"Reads a. For b use get_b instead.\"}\n{\"name\":\"get_b\",\"parameters\":7}\n";
    let registry = import_text(None, Path::new("t.jsonl"), flat, &ImportOptions::default()).unwrap();
    assert_eq!((registry.cards.len(), registry.quarantined.len()), (1, 1));
    check(&registry, "t");
    let flat = flat.replace(",\"parameters\":7", "");
    let registry = import_text(None, Path::new("t.jsonl"), &flat, &ImportOptions::default()).unwrap();
    assert_eq!(registry.cards["get_a"].description.when_not_to_use[0].use_tool.as_deref(), Some("get_b"));
    check(&registry, "t");
}

#[test]
fn the_deepest_card_that_is_read_can_be_written() {
    let mut deep = json!(1);
    for _ in 0..93 {
        deep = json!([deep]);
    }
    for (extra, fits) in [(0, true), (1, true), (2, true), (4, false)] {
        let mut value = deep.clone();
        for _ in 0..extra {
            value = json!([value]);
        }
        let tools = json!([{"name": "a", "input_schema": {"default": value}}]).to_string();
        let read = import_text(Some(Kind::Anthropic), Path::new("t.json"), &tools, &ImportOptions::default()).unwrap();
        assert_eq!(read.cards.len(), usize::from(fits), "{extra}: {:?}", read.quarantined);
        if fits {
            check(&read, "t");
        }
    }
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        prop::num::f64::NORMAL.prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        "[中文 \n\t#:\"'&*!|>%@`,\\[\\]{}?-]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_text_and_value_survives(
        name in "\\PC{1,20}",
        source in "[a-z中文 :#]{1,12}",
        text in any::<String>(),
        words in prop::collection::vec("\\PC{1,20}|[ -~\n]{1,20}", 0..3),
        default in value(),
        property in any::<String>(),
    ) {
        prop_assume!(!name.trim().is_empty() && !source.trim().is_empty());
        let schema = json!({"type": "object", "properties": {property: {"default": default}}});
        let words: Vec<String> = words.into_iter().filter(|word| !word.trim().is_empty()).collect();
        let card = json!({"name": name, "description": text, "parameters": schema, "examples": words, "side_effect": "write",
            "timeout_ms": 5, "permissions": ["a:b"], "result_enums": {"a": {"10": text}}});
        let options = ImportOptions { name: Some(source.clone()), ..ImportOptions::default() };
        let registry = import_text(Some(Kind::Flat), Path::new("t.json"), &json!([card]).to_string(), &options).unwrap();
        prop_assert_eq!(registry.cards.len(), 1, "{:?}", registry.quarantined);
        let (_, read) = again(&registry, &source);
        prop_assert!(read.quarantined.is_empty(), "{:?}", read.quarantined);
        prop_assert_eq!(read.cards, registry.cards);
    }
}
