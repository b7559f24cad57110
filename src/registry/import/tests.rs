//! Documents of each form, from text to cards.

use std::path::Path;

use serde_json::{Value, json};

use super::super::{ImportOptions, Registry, import_text};
use super::Kind;
use crate::tool::{Run, SideEffect};

fn read_with(document: &Value, options: &ImportOptions) -> Registry {
    import_text(None, Path::new("tools.json"), &document.to_string(), options).unwrap()
}

fn read(document: &Value) -> Registry {
    read_with(document, &ImportOptions::default())
}

fn names(registry: &Registry) -> Vec<&str> {
    registry.cards.keys().map(|id| id.as_str()).collect()
}

fn report(registry: &Registry) -> Vec<(&str, &str)> {
    let first = |card: &'_ super::super::Quarantined| card.problems[0].message.clone().leak() as &str;
    registry.quarantined.iter().map(|card| (card.card.as_str(), first(card))).collect()
}

const SCHEMA: &str = r#"{"type": "object", "properties": {"order_id": {"type": "string"}}, "required": ["order_id"]}"#;

fn schema() -> Value {
    serde_json::from_str(SCHEMA).unwrap()
}

#[test]
fn functions_of_openai_are_read_in_all_three_forms() {
    let inner = json!({"name": "查订单", "description": "查询订单", "parameters": schema(), "strict": true});
    let mut flat = inner.clone();
    flat["type"] = "function".into();
    let chat = json!({"type": "function", "function": inner});
    let registries = [
        read(&json!({"model": "m", "messages": [], "tools": [chat]})),
        read(&json!([chat])),
        read(&json!({"tools": [flat]})),
        read(&json!({"functions": [inner]})),
    ];
    for registry in &registries {
        let card = &registry.cards["查订单"];
        assert_eq!((card.description.what.as_str(), &card.parameters), ("查询订单", &schema()));
        assert_eq!((card.side_effect, card.side_effect_declared), (SideEffect::Destructive, false));
        assert_eq!(registry.cards, registries[0].cards);
        assert!(
            registry.notices[0]
                .contains("of 1 imported cards 1 state no permissions, 1 state no side_effect, 1 state no timeout_ms"),
            "{:?}",
            registry.notices
        );
    }
}

#[test]
fn what_a_provider_runs_itself_is_quarantined_with_the_reason() {
    let registry = read(&json!({"tools": [
        {"type": "function", "name": "a", "parameters": schema()},
        {"type": "web_search"},
        {"type": "custom", "custom": {"name": "code"}},
        {"type": "mcp", "server_label": "x", "name": "remote"},
        {"type": "function", "function": "b"},
        {"type": 3, "function": {"name": "c"}},
        "text",
        {"type": "function", "function": {"description": "no name"}},
    ]}));
    assert_eq!(names(&registry), ["a"]);
    let told = report(&registry);
    let cards: Vec<&str> = told.iter().map(|(card, _)| *card).collect();
    assert_eq!(
        cards,
        [
            "tools/1 (web_search)",
            "tools/2 (custom)",
            "tools/3 (remote)",
            "tools/4 (function)",
            "tools/5",
            "tools/6",
            "tools/7"
        ]
    );
    for (nth, part) in [
        "run by the provider",
        "free text",
        "run by the provider",
        "must be a mapping",
        "must be a text",
        "found a text",
        "`name` is missing",
    ]
    .into_iter()
    .enumerate()
    {
        assert!(told[nth].1.contains(part), "{:?}", told[nth]);
    }
    let registry = read(&json!([
        {"name": "get_order", "input_schema": schema(), "cache_control": {"type": "ephemeral"}, "input_examples": [{}]},
        {"type": "custom", "name": "put_order", "input_schema": schema()},
        {"type": "computer_20250124", "name": "computer", "display_width_px": 1},
        {"type": "web_search_20250305", "name": "web_search"},
    ]));
    assert_eq!(names(&registry), ["get_order", "put_order"]);
    assert_eq!(registry.cards["get_order"].parameters, schema());
    assert!(report(&registry).iter().all(|(_, message)| message.contains("is defined by the provider")));
}

#[test]
fn a_built_in_tool_takes_no_name_from_a_function() {
    let registry =
        read(&json!([{"type": "web_search", "name": "web_search"}, {"type": "function", "name": "web_search"}]));
    assert_eq!(names(&registry), ["web_search"]);
}

#[test]
fn listings_of_mcp_are_read_in_all_three_forms() {
    let tool = json!({"name": "repo/search", "title": "Search", "inputSchema": schema(), "outputSchema": {"type": "object"}, "_meta": {"a": 1}});
    let whole = json!({"jsonrpc": "2.0", "id": 3, "result": {"tools": [tool], "nextCursor": "p2"}});
    let registries = [read(&whole), read(&whole["result"]), read(&json!([tool]))];
    for registry in &registries {
        assert_eq!(registry.cards["repo/search"].description.what, "Search", "a title is better than nothing");
        assert_eq!(registry.cards, registries[0].cards);
    }
    assert!(registries[0].notices.iter().any(|notice| notice.contains("nextCursor")));
    let error = json!({"jsonrpc": "2.0", "id": 3, "error": {"code": -32601, "message": "no such method"}}).to_string();
    let error = import_text(None, Path::new("t.json"), &error, &ImportOptions::default()).unwrap_err();
    assert!(error.to_string().contains("an error: no such method"));
}

/// Class, whether it is declared, idempotence.
fn class(annotations: Value, trust_hints: bool) -> (SideEffect, bool, bool) {
    let options = ImportOptions { trust_hints, ..ImportOptions::default() };
    let registry = read_with(&json!([{"name": "a", "inputSchema": {}, "annotations": annotations}]), &options);
    let card = &registry.cards["a"];
    (card.side_effect, card.side_effect_declared, card.idempotent)
}

#[test]
fn a_hint_raises_a_class_and_lowers_none_without_the_operators_word() {
    use SideEffect::{Destructive, Read, Write};
    for (annotations, untrusted, trusted) in [
        (json!({}), (Destructive, false, false), (Destructive, false, false)),
        (json!({"readOnlyHint": true}), (Destructive, false, false), (Read, true, true)),
        (json!({"readOnlyHint": false}), (Destructive, false, false), (Destructive, false, false)),
        (json!({"destructiveHint": false}), (Destructive, false, false), (Write, true, false)),
        (json!({"destructiveHint": true}), (Destructive, true, false), (Destructive, true, false)),
        (json!({"destructiveHint": false, "idempotentHint": true}), (Destructive, false, false), (Write, true, true)),
        (
            json!({"readOnlyHint": "yes", "destructiveHint": null}),
            (Destructive, false, false),
            (Destructive, false, false),
        ),
    ] {
        assert_eq!(class(annotations.clone(), false), untrusted, "{annotations}");
        assert_eq!(class(annotations.clone(), true), trusted, "{annotations}");
    }
    let registry = read(
        &json!([{"name": "a", "annotations": {"readOnlyHint": true, "destructiveHint": true}}, {"name": "b", "annotations": {"readOnlyHint": 1}}]),
    );
    let notices = registry.notices.join("\n");
    for part in ["contradict each other", "are not believed", ": `a`", "expected true or false, found a number"] {
        assert!(notices.contains(part), "{notices}");
    }
}

#[test]
fn a_target_is_the_operators_and_no_document_can_name_one() {
    let tool = json!({"name": "查", "inputSchema": {}, "run": {"target": "evil", "tool": "x"}, "permissions": []});
    let options = ImportOptions { target: Some("desk".into()), ..ImportOptions::default() };
    let import = |kind| import_text(Some(kind), Path::new("t.json"), &json!([tool]).to_string(), &options).unwrap();
    let Some(Run::Mcp(run)) = &import(Kind::Mcp).cards["查"].run else { panic!() };
    assert_eq!((run.target.as_str(), run.tool.as_str()), ("desk", "查"));
    for kind in [Kind::OpenAi, Kind::Anthropic, Kind::Flat] {
        assert_eq!(import(kind).cards["查"].run, None);
    }
}

#[test]
fn lines_lead_to_the_entry() {
    let text = "tools:\n- type: function\n  function:\n    name: a\n    parameters:\n      type: array\n- type: function\n  function:\n    name: b\n    name: c\n";
    let registry = import_text(None, Path::new("t.yaml"), text, &ImportOptions::default()).unwrap();
    let places: Vec<_> =
        registry.quarantined.iter().map(|card| (card.problems[0].pointer.as_str(), card.problems[0].line)).collect();
    assert_eq!(places, [("/parameters/type", Some(6)), ("/function/name", Some(10))]);
}

#[test]
fn files_of_any_kind_are_registry_files() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let files = [
        file("openai.json", &json!([{"type": "function", "name": "search", "parameters": schema()}]).to_string()),
        file("server.yml", &json!({"tools": [{"name": "search", "inputSchema": schema()}]}).to_string()),
        file("shop.yaml", "openapi: 3.1.0\npaths: {/search: {get: {operationId: search}}}\n"),
        file("flat.json", &json!([{"name": "only", "description": "x"}]).to_string()),
    ];
    let registry = super::super::load(&files, &[]).unwrap();
    assert_eq!(names(&registry), ["only", "openai/search", "server/search", "shop/search"]);
    assert!(registry.cards["shop/search"].is_known_to_read());
    let error = super::super::load(&[file("old.json", "{\"swagger\": \"2.0\"}")], &[]).unwrap_err().to_string();
    assert!(error.contains("old.json:1: Swagger 2.0 is not read; convert it"), "{error}");
}

#[test]
fn the_syntax_of_a_nameless_text_is_told_by_its_content() {
    for text in [
        "{\"name\":\"a\"}\n{\"name\":\"b\"}\n",
        "\u{feff}[{\"name\":\"a\"},\n{\"name\":\"b\"}]",
        "- name: a\n- name: b\n",
        "imported: true\ntools:\n- name: a\n- name: b\n",
    ] {
        let registry = import_text(None, Path::new("stdin"), text, &ImportOptions::default()).unwrap();
        assert_eq!(names(&registry), ["a", "b"], "{text}");
    }
    for text in ["", "   ", "{", "[1", "a: [", "7"] {
        assert!(import_text(None, Path::new("stdin"), text, &ImportOptions::default()).is_err(), "{text:?}");
    }
    let broken =
        import_text(None, Path::new("n.yaml"), "imported: 3\ntools: []\n", &ImportOptions::default()).unwrap_err();
    assert!(broken.to_string().contains("n.yaml:1: `imported` must be true or false"));
}

#[test]
fn hostile_documents_cost_what_is_hostile_in_them() {
    let tool = |parameters: Value| json!({"name": "big", "inputSchema": parameters});
    let million: Vec<u32> = (0..1_000_000).collect();
    let mut deep = json!("x");
    for _ in 0..110 {
        deep = json!([deep]);
    }
    let nodes = json!({"$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}, "properties": {"a": {"$ref": "#/$defs/A"}}});
    for (entry, part) in [
        (tool(json!({"enum": million})), "more than 100000 values"),
        (tool(json!({"default": deep})), "nested deeper than 100 levels"),
        (json!({"name": "big", "description": "长".repeat(350_000), "inputSchema": {}}), "a text of 1050000 bytes"),
        (json!({"name": "n".repeat(100_000), "inputSchema": {}}), "a text of 100000 bytes"),
        (tool(json!({"properties": {"k".repeat(40_000): {}}})), "a key of 40000 bytes"),
    ] {
        let registry = read(&json!([entry, {"name": "fine", "inputSchema": {}}]));
        assert_eq!(names(&registry), ["fine"]);
        let message = registry.quarantined[0].to_string();
        assert!(message.contains(part) && message.len() < 2_000, "{message}");
    }
    let registry = read(&json!([tool(nodes)]));
    assert_eq!(registry.cards.len() + registry.quarantined.len(), 1, "references in a circle come to an end");
    let many = json!(vec![json!({"name": "a", "inputSchema": {}}); 100_001]).to_string();
    let error = import_text(None, Path::new("t.json"), &many, &ImportOptions::default()).unwrap_err();
    assert!(error.to_string().contains("hold 100001 tools"), "{error}");
    let brackets = import_text(None, Path::new("t.json"), &"[".repeat(1_000_000), &ImportOptions::default());
    assert!(brackets.unwrap_err().to_string().contains("recursion limit"));
    let wide = "[1,".repeat(2_000_001);
    let wide = super::super::read_source(wide.as_bytes(), Path::new("stdin")).unwrap_err();
    assert!(wide.to_string().contains("more values than"), "{wide}");
    let endless = super::super::read_source(std::io::repeat(b' '), Path::new("stdin")).unwrap_err();
    assert!(endless.to_string().contains("larger than 32 MiB"), "{endless}");
}

proptest::proptest! {
    #[test]
    fn no_document_makes_a_reader_panic(document in "\\PC{0,80}", kind in 0_usize..6, shape in 0_usize..6, key in "name|type|function|inputSchema|input_schema|annotations|parameters|requestBody|\\$ref|description") {
        let value: Value = serde_json::from_str(&document).unwrap_or(Value::String(document.clone()));
        let entry = json!({ key: value });
        let document = match shape {
            0 => json!([entry]),
            1 => json!({"tools": [entry, 1]}),
            2 => json!({"openapi": "3.0.0", "paths": {"/{a}/b": {"get": entry, "post": {"parameters": [entry]}}}}),
            3 => json!({"openapi": "3.1.0", "paths": {"/x": {"post": {"requestBody": {"content": {"application/json": {"schema": entry}}}}}}}),
            4 => json!({"result": {"tools": [{"name": "a", "annotations": entry, "inputSchema": entry}]}}),
            _ => entry,
        };
        let _ = import_text(Some(Kind::ALL[kind]), Path::new("x"), &document.to_string(), &ImportOptions::default());
        let _ = import_text(None, Path::new("x"), &document.to_string(), &ImportOptions::default());
    }
}
