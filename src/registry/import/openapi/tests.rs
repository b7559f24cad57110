//! Whole descriptions, from text to cards.

use std::path::Path;

use serde_json::{Value, json};

use super::super::super::{ImportOptions, Kind, Registry, import_text};
use crate::tool::SideEffect;

#[track_caller]
fn imported(document: &Value) -> Registry {
    import_text(Some(Kind::OpenApi), Path::new("api.json"), &document.to_string(), &ImportOptions::default()).unwrap()
}

/// One operation `POST /x` with this body and these parameters.
fn post(parameters: Value, body: Value, schemas: Value) -> Registry {
    let mut operation = json!({"operationId": "x", "summary": "Does x", "parameters": parameters});
    if !body.is_null() {
        operation["requestBody"] = json!({"required": true, "content": {"application/json": {"schema": body}}});
    }
    imported(&json!({"openapi": "3.0.3", "paths": {"/x": {"post": operation}}, "components": {"schemas": schemas}}))
}

fn parameters(registry: &Registry, name: &str) -> Value {
    assert!(registry.quarantined.is_empty(), "{:?}", registry.quarantined);
    registry.cards[name].parameters.clone()
}

fn problems(registry: &Registry) -> Vec<String> {
    let problems = registry.quarantined.iter().flat_map(|card| &card.problems);
    problems.map(|problem| format!("{}: {}", problem.pointer, problem.message)).collect()
}

#[test]
fn methods_give_names_and_classes() {
    let text = "openapi: 3.1.0\npaths:\n  /orders/{id}:\n    get:\n      operationId: get_order\n      summary: Read one order\n      \
                description: All of it.\n      tags: [orders, 订单]\n    delete: {summary: 删除订单}\n    put: {}\n    options: {}\n  \
                /orders:\n    post: {deprecated: true, operationId: createOrder}\n    head: {}\n  x-internal: 1\n";
    let registry = import_text(None, Path::new("api.yaml"), text, &ImportOptions::default()).unwrap();
    let classes: Vec<_> =
        registry.cards.values().map(|card| (card.name.as_str(), card.side_effect, card.idempotent)).collect();
    assert_eq!(
        classes,
        [
            ("createOrder", SideEffect::Write, false),
            ("delete_orders_by_id", SideEffect::Destructive, false),
            ("get_order", SideEffect::Read, true),
            ("head_orders", SideEffect::Read, true),
            ("put_orders_by_id", SideEffect::Write, true),
        ]
    );
    let card = &registry.cards["get_order"];
    assert_eq!((card.domain.as_deref(), card.tags.as_slice()), (Some("orders"), ["订单".to_owned()].as_slice()));
    assert_eq!(card.description.as_given(), "Read one order.\nAll of it.");
    assert!(card.side_effect_declared && card.source == "api" && card.timeout.is_none());
    assert_eq!(registry.quarantined.len(), 1);
    assert_eq!(registry.quarantined[0].card, "OPTIONS /orders/{id}");
    assert_eq!(registry.quarantined[0].problems[0].line, Some(11));
    assert!(registry.notices.iter().any(|notice| notice.contains("deprecated operations: `createOrder`")));
}

#[test]
fn parameters_and_body_become_one_object() {
    let document = json!({"openapi": "3.0.1", "paths": {"/orders/{id}": {
    "parameters": [{"name": "id", "in": "path", "schema": {"type": "string"}},
                   {"name": "lang", "in": "query", "schema": {"type": "string"}}],
    "patch": {
        "operationId": "change",
        "parameters": [
            {"name": "lang", "in": "query", "required": true, "schema": {"enum": ["zh", "en"]}, "description": "语言"},
            {"name": "X-Trace", "in": "header", "schema": {"type": "string"}},
            {"name": "Authorization", "in": "header", "schema": {"type": "string"}},
            {"name": "key", "in": "query", "schema": {"type": "string"}},
            {"$ref": "#/components/parameters/Page"},
            {"name": "filter", "in": "query", "content": {"application/json": {"schema": {"type": "object"}}}},
        ],
        "requestBody": {"$ref": "#/components/requestBodies/Change"},
    }}},
    "components": {
        "securitySchemes": {"k": {"type": "apiKey", "in": "query", "name": "key"}},
        "parameters": {"Page": {"name": "page", "in": "cookie", "schema": {"type": "integer"}}},
        "requestBodies": {"Change": {"required": true, "content": {
            "text/plain": {}, "application/merge-patch+json; charset=utf-8": {"schema": {"$ref": "#/components/schemas/Order"}}}}},
        "schemas": {"Order": {"type": "object", "required": ["id", "note", "made"], "additionalProperties": false, "properties": {
            "id": {"type": "integer"}, "note": {"type": "string"}, "made": {"type": "string", "readOnly": true},
            "secret": {"type": "string", "writeOnly": true}}}},
    }});
    let registry = imported(&document);
    let schema = parameters(&registry, "change");
    let names: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["X-Trace", "body_id", "filter", "id", "lang", "note", "page", "secret"]);
    assert_eq!(schema["required"], json!(["id", "lang", "body_id", "note"]));
    assert_eq!(schema["properties"]["lang"], json!({"enum": ["zh", "en"], "description": "语言"}));
    assert_eq!(schema["additionalProperties"], false);
    let notices = registry.notices.join("\n");
    assert!(notices.contains("`id` of the body is called `body_id`"), "{notices}");
    assert!(notices.contains("the header parameter `Authorization` is left to whoever sends the request"), "{notices}");
    assert!(notices.contains("the query parameter `key` is left"), "{notices}");
}

#[test]
fn names_that_clash_get_their_place_in_front() {
    let both = |first: &str, second: &str| {
        let parameter = |place: &str| json!({"name": "q", "in": place, "required": true, "schema": {"type": "string"}});
        post(
            json!([parameter(first), parameter(second)]),
            json!({"type": "object", "properties": {"q": {}}}),
            json!({}),
        )
    };
    let forward = parameters(&both("header", "query"), "x");
    assert_eq!(forward, parameters(&both("query", "header"), "x"), "not the order but the place decides");
    let names: Vec<&String> = forward["properties"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["body_q", "header_q", "q"]);
}

#[test]
fn references_are_kept_and_recursion_ends() {
    let registry = post(
        json!([]),
        json!({"$ref": "#/components/schemas/Node"}),
        json!({
            "Node": {"type": "object", "properties": {
                "next": {"$ref": "#/components/schemas/Node"},
                "mode": {"$ref": "#/components/schemas/方式", "default": "all"},
                "list": {"type": "array", "items": {"$ref": "#/components/schemas/a~1b"}}}},
            "方式": {"type": "string", "enum": ["all", "new"]}, "a/b": {"type": "integer"},
        }),
    );
    let schema = parameters(&registry, "x");
    assert_eq!(schema["properties"]["mode"]["default"], "all", "siblings stay");
    let compiled = crate::args::ArgumentSchema::compile(&schema).unwrap();
    assert!(compiled.fits("next", &json!({"next": {"mode": "new", "list": [1]}})));
    assert!(!compiled.fits("next", &json!({"next": {"mode": "old"}})));
    assert_eq!(compiled.property("mode").unwrap().choices().len(), 2);

    let all_of_itself = json!({"A": {"allOf": vec![json!({"$ref": "#/components/schemas/A"}); 30]}});
    let registry = post(json!([]), json!({"$ref": "#/components/schemas/A"}), all_of_itself);
    assert_eq!(registry.cards.len() + registry.quarantined.len(), 1, "an object of itself comes to an end");
    let circle = json!({"A": {"$ref": "#/components/schemas/B"}, "B": {"$ref": "#/components/schemas/A"}});
    let registry = post(json!([]), json!({"$ref": "#/components/schemas/A"}), circle);
    assert!(problems(&registry)[0].contains("circle"), "{registry:?}");
}

#[test]
fn what_leads_out_of_the_document_is_refused_with_its_place() {
    for target in ["other.yaml#/Order", "https://evil.example/a.json", "file:///etc/passwd", "#/components/schemas/No"]
    {
        let inner = json!({"type": "object", "properties": {"a": {"$ref": target}}});
        let found = problems(&post(json!([]), inner, json!({})));
        assert!(
            found[0].starts_with("/paths/~1x/post/requestBody/content/application~1json/schema/properties/a: "),
            "{found:?}"
        );
        let found = problems(&post(json!([{ "$ref": target }]), Value::Null, json!({})));
        assert!(found[0].starts_with("/paths/~1x/post/parameters/0: "), "{found:?}");
    }
}

#[test]
fn spellings_of_3_0_become_those_of_json_schema() {
    let body = json!({"type": "object", "properties": {
        "n": {"type": "number", "minimum": 0, "exclusiveMinimum": true, "maximum": 9, "exclusiveMaximum": false},
        "s": {"type": "string", "nullable": true, "enum": ["a"]},
        "r": {"allOf": [{"$ref": "#/components/schemas/R"}], "nullable": true, "description": "one"},
        "x": {"type": "object", "xml": {"name": "x"}, "example": {"a": 1}, "x-order": 3}}});
    let registry = post(json!([]), body, json!({"R": {"type": "integer", "readOnly": false}}));
    let schema = parameters(&registry, "x");
    let property = |name: &str| schema["properties"][name].clone();
    assert_eq!(property("n"), json!({"type": "number", "exclusiveMinimum": 0, "maximum": 9}));
    assert_eq!(property("s"), json!({"type": ["string", "null"], "enum": ["a", null]}));
    assert_eq!(
        property("r"),
        json!({"description": "one", "anyOf": [{"allOf": [{"$ref": "#/$defs/R"}]}, {"type": "null"}]})
    );
    assert_eq!(property("x"), json!({"type": "object", "example": {"a": 1}}));
}

#[test]
fn bodies_that_are_no_plain_object_are_one_argument() {
    for body in [
        json!({"type": "array", "items": {"type": "string"}}),
        json!({"oneOf": [{"type": "object", "properties": {"a": {}}}, {"type": "string"}]}),
        json!({"type": "object", "properties": {"a": {}}, "anyOf": [{"required": ["a"]}]}),
    ] {
        let schema = parameters(&post(json!([]), body.clone(), json!({})), "x");
        assert_eq!((&schema["properties"]["body"], &schema["required"]), (&body, &json!(["body"])));
    }
    let merged = json!({"allOf": [{"$ref": "#/components/schemas/A"}, {"type": "object", "properties": {"b": {}}, "required": ["a"]}]});
    let schema = parameters(&post(json!([]), merged, json!({"A": {"type": "object", "properties": {"a": {}}}})), "x");
    assert_eq!(schema, json!({"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a"]}));
}

#[test]
fn what_cannot_be_filled_in_is_quarantined_with_all_its_reasons() {
    let operation = json!({"operationId": "upload", "requestBody": {"content": {"multipart/form-data": {"schema": {}}}},
        "parameters": [{"in": "query"}, {"name": "a", "in": "body"}, 3]});
    let registry = imported(&json!({"openapi": "3.0.0", "paths": {"/f": {"post": operation, "get": "x"}, "/g": []}}));
    assert!(registry.cards.is_empty());
    let of = |card: &str| registry.quarantined.iter().find(|q| q.card == card).unwrap().problems.len();
    assert_eq!((of("upload"), of("GET /f"), of("/g")), (4, 1, 1));
    let found = problems(&registry).join("\n");
    for part in [
        "a parameter without a name",
        "expected `in` to be one of path, query, header, cookie, found `body`",
        "expected a mapping, found a number",
        "only JSON bodies can be filled in, found multipart/form-data",
    ] {
        assert!(found.contains(part), "{found}");
    }
}

#[test]
fn an_optional_body_requires_nothing() {
    let body = json!({"content": {"application/json": {"schema": {"type": "object", "required": ["a"], "properties": {"a": {}}}}}});
    let operation = json!({"operationId": "x", "requestBody": body});
    let registry = imported(&json!({"openapi": "3.1.0", "paths": {"/x": {"post": operation}}}));
    assert_eq!(parameters(&registry, "x").get("required"), None);
    assert!(
        registry.notices.iter().any(|notice| notice.contains("the body may be left out")),
        "{:?}",
        registry.notices
    );
}

#[test]
fn hostile_descriptions_end_quickly_with_a_reason() {
    let member = |n: usize| (format!("p{n}"), json!({"type": "string", "description": "x"}));
    let wide: serde_json::Map<String, Value> = (0..30_000).map(member).collect();
    let registry = post(json!([]), json!({"type": "object", "properties": wide}), json!({}));
    assert!(problems(&registry).iter().any(|problem| problem.contains("more than 20000 parts")));
    let mut deep = json!({"type": "string"});
    for _ in 0..30 {
        deep = json!({"type": "object", "properties": {"a": deep}});
    }
    let chain: serde_json::Map<String, Value> = (0..2_000)
        .map(|n| {
            (
                format!("S{n}"),
                json!({"properties": {"next": {"$ref": format!("#/components/schemas/S{}", n + 1)}, "d": deep}}),
            )
        })
        .collect();
    let registry = post(
        json!([]),
        json!({"type": "object", "properties": {"a": {"$ref": "#/components/schemas/S0"}}}),
        chain.into(),
    );
    assert_eq!(registry.quarantined.len(), 1, "all of it would be half a million parts");
    let long = imported(&json!({"openapi": "3.0.0", "paths": {"/x": {"get": {"description": "长".repeat(400_000)}}}}));
    assert!(problems(&long)[0].contains("a text of 1200000 bytes"), "{long:?}");
}
