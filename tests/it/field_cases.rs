//! What users of comparable systems reported about names, schemas and arguments: one test a report.
//!
//! Cases that other tests cover already:
//!
//! | case | test |
//! |--|--|
//! | trailing comma, half a call, arguments as a text in a text | `args::validate`, `decide::llm::read::tests` |
//! | a call inside the text, after thinking, in tags | `decide::llm::read::in_text`, `llm` |
//! | `parallel_tool_calls` refused, several calls returned | `endpoints`, `llm`, `sb_034_two_objects_are_two_calls` |
//! | odd `finish_reason`, `usage`, `service_tier` | `decide::llm::read::tests` |
//! | harmless slips put right, others refused | `sb_049_…`, `args::validate::tests` |
//! | aliases fit and never collide, for any two names | `tool::alias::tests::aliases_fit_and_never_collide` |

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use pointsman::args::{ArgumentSchema, validate};
use pointsman::registry::{ImportOptions, Kind, Listed, Registry, import_text, load};
use pointsman::tool::{alias, is_valid_alias};
use pointsman::types::ToolId;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::RegistryFile;
use crate::support::scripted_llm::{ScriptedLlm, call};
use crate::support::served::{Shop, decide_with, offered};
use crate::support::server;

fn mcp(tools: &Value) -> Registry {
    import_text(Some(Kind::Mcp), Path::new("tools.json"), &tools.to_string(), &ImportOptions::default()).unwrap()
}

fn quarantined(registry: &Registry) -> Vec<(&str, &str, &str)> {
    let problem = |card: &'_ pointsman::registry::Quarantined| card.problems[0].clone();
    let told = registry.quarantined.iter().map(|card| (card.card.as_str(), problem(card)));
    told.map(|(card, problem)| (card, &*problem.pointer.leak(), &*problem.message.leak())).collect()
}

/// `calendar.respondToEvent`, `user-profile/update`, `Github.Get File`, names beyond 64 characters.
#[tokio::test]
async fn odd_names_get_an_alias_that_providers_accept_and_answers_hold_the_original() {
    let long = format!("{}.{}", "very_long_name".repeat(6), "end");
    let odd = ["calendar.respondToEvent", "user-profile/update", "Github.Get File", "a.b", "a_b", "查询订单", &long];
    let tools: Vec<Value> = odd
        .iter()
        .map(|name| {
            json!({"name": name, "description": format!("Respond to the calendar event {name}"),
            "inputSchema": {"type": "object", "properties": {"事件": {"type": "string"}}}})
        })
        .collect();
    let file = RegistryFile::new("tools.json", &json!({ "tools": tools }).to_string());
    let meant = alias(&ToolId::new("calendar.respondToEvent"));
    let argument = pointsman::tool::argument_alias("事件");
    let llm = ScriptedLlm::start([call(&meant, json!({argument: "standup"}))]).await;
    let mut settings = server::settings(&[&file.path]);
    decide_with(&mut settings, &llm);
    let shop = Shop::with(settings).await;
    let answer = shop.ask("respond to the calendar event standup, please").await;
    let prompts = llm.requests();
    let names = offered(&prompts[0]);
    assert!(names.contains(&meant.as_str()) && names.iter().all(|name| is_valid_alias(name)), "{names:?}");
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    answer.assert_call("calendar.respondToEvent", json!({"事件": "standup"}));
}

/// Two servers with `query` or `search`.
#[test]
fn two_servers_with_one_name_are_both_kept_in_any_order() {
    let server = |source: &str, description: &str| Listed {
        source: source.into(),
        tools: vec![json!({"name": "search", "description": description}), json!({"name": source})],
        ..Listed::default()
    };
    let file = RegistryFile::new("docs.jsonl", "{\"name\":\"search\",\"description\":\"third\"}\n");
    let all = [server("github", "first"), server("jira", "second")];
    let forward = load(std::slice::from_ref(&file.path), &all).unwrap();
    let ids: Vec<&str> = forward.cards.keys().map(|id| id.as_str()).collect();
    assert_eq!(ids, ["docs/search", "github", "github/search", "jira", "jira/search"]);
    let backward = load(std::slice::from_ref(&file.path), &[all[1].clone(), all[0].clone()]).unwrap();
    assert_eq!(forward.cards, backward.cards);
}

/// A property called `properties` or `type`, and a schema that forgot the level between.
#[test]
fn a_property_called_properties_or_type_is_a_property_and_a_wrong_one_is_named_by_its_pointer() {
    let sound = json!({"type": "object", "properties": {"type": {"type": "string"}, "properties": {"type": "object"}}});
    let registry = mcp(&json!([
        {"name": "sound", "inputSchema": sound},
        {"name": "none", "inputSchema": {"type": "object"}},
        {"name": "null", "inputSchema": {"type": "object", "properties": null}},
        {"name": "absent"},
    ]));
    assert_eq!(registry.cards.len(), 4, "{:?}", registry.quarantined);
    let schema = ArgumentSchema::compile(&registry.cards["sound"].parameters).unwrap();
    assert_eq!(schema.properties().into_iter().map(|(name, _)| name).collect::<Vec<_>>(), ["properties", "type"]);
    for name in ["none", "null", "absent"] {
        let schema = ArgumentSchema::compile(&registry.cards[name].parameters).unwrap();
        assert!(schema.properties().is_empty() && validate(&schema, &json!({})).is_ok(), "{name}");
    }
    // A native card is its owner's to mend; of somebody else's the part is left out, with the pointer.
    let forgotten = json!({"properties": {"type": "object"}});
    let native = json!({"name": "n", "description": "x", "side_effect": "read", "timeout_ms": 1, "permissions": [],
        "parameters": forgotten});
    let registry = pointsman::registry::from_values(&[native]);
    assert_eq!(
        quarantined(&registry),
        [("n", "/parameters/properties/type", "a schema must be an object, true or false")]
    );
    let registry = mcp(&json!([{"name": "m", "inputSchema": forgotten}]));
    let told = registry.notices.join("\n");
    assert!(
        registry.cards.len() == 1 && told.contains("/parameters/properties/type of `m` cannot be applied"),
        "{told}"
    );
}

/// `{"$ref": "#/$defs/X", "default": "all"}`, references in a circle, references to elsewhere.
#[test]
fn references_keep_their_siblings_come_to_an_end_and_never_leave() {
    let schema = |target: &str| {
        json!({"type": "object", "$defs": {"X": {"enum": ["all", "new"]},
        "A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}, "properties": {"x": {"$ref": target, "default": "all"}}})
    };
    let registry = mcp(&json!([
        {"name": "sibling", "inputSchema": schema("#/$defs/X")},
        {"name": "circle", "inputSchema": schema("#/$defs/A")},
        {"name": "elsewhere", "inputSchema": schema("https://evil.example/x.json")},
        {"name": "file", "inputSchema": schema("file:///etc/hostname")},
    ]));
    let compiled = ArgumentSchema::compile(&registry.cards["sibling"].parameters).unwrap();
    let checked = validate(&compiled, &json!({})).unwrap();
    assert_eq!(checked.args.as_map()["x"], "all");
    assert!(validate(&compiled, &json!({"x": "old"})).is_err());
    assert!(registry.cards.contains_key("circle") || registry.quarantined.iter().any(|card| card.card == "circle"));
    let told = registry.notices.join("\n");
    for name in ["elsewhere", "file"] {
        assert!(told.contains(&format!("/parameters/properties/x/$ref of `{name}` cannot be applied")), "{told}");
        assert_eq!(registry.cards[name].parameters["properties"]["x"], json!({"default": "all"}));
    }
}

/// A schema without `additionalProperties` stays open.
#[test]
fn no_schema_is_closed_that_its_author_left_open() {
    let open = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let mut closed = open.clone();
    closed["additionalProperties"] = false.into();
    let registry = mcp(&json!([{"name": "open", "inputSchema": open}, {"name": "closed", "inputSchema": closed}]));
    let takes_more = |name: &str| {
        let schema = ArgumentSchema::compile(&registry.cards[name].parameters).unwrap();
        validate(&schema, &json!({"a": "x", "b": 1})).is_ok()
    };
    assert_eq!(registry.cards["open"].parameters, open);
    assert!(takes_more("open") && !takes_more("closed"));
}

/// A root that is no object.
#[test]
fn a_root_that_is_no_object_is_rejected_at_import_with_a_message() {
    let roots =
        [json!({"type": "string"}), json!({"type": ["array", "null"]}), json!([]), json!("object"), json!(true)];
    let tools: Vec<Value> =
        roots.iter().enumerate().map(|(n, root)| json!({"name": format!("t{n}"), "inputSchema": root})).collect();
    let registry = mcp(&json!(tools));
    assert!(registry.cards.is_empty());
    for (card, pointer, message) in quarantined(&registry) {
        let of_root =
            pointer == "/parameters/type" && message.contains("the root of the schema must have `type: object`");
        let of_kind = pointer == "/parameters" && message.contains("expected a JSON Schema object");
        assert!(of_root || of_kind, "{card}: {pointer}: {message}");
    }
}

/// Arguments `""`, null or missing for a tool without any.
#[test]
fn arguments_that_are_empty_null_or_missing_are_none() {
    let registry = mcp(&json!([{"name": "ping"}]));
    let schema = ArgumentSchema::compile(&registry.cards["ping"].parameters).unwrap();
    for nothing in [json!(""), json!("  \n"), Value::Null, json!({}), json!("{}"), json!("null")] {
        let checked = validate(&schema, &nothing).unwrap_or_else(|problem| panic!("{nothing}: {problem:?}"));
        assert!(checked.args.as_map().is_empty(), "{nothing}");
    }
    for broken in [json!("{\"a\":"), json!("{]"), json!(3), json!([]), json!("text")] {
        assert!(validate(&schema, &broken).is_err(), "{broken} must not become an empty call");
    }
}

/// `{"depth":"3"}`, `"false"`, `"tags":"[\"a\"]"`; a text keeps "007" and "1e3".
#[test]
fn values_are_converted_only_where_the_schema_says_so_and_nothing_is_lost() {
    let schema = ArgumentSchema::compile(&json!({"type": "object", "properties": {"depth": {"type": "integer"},
        "flag": {"type": "boolean"}, "tags": {"type": "array", "items": {"type": "string"}}, "code": {"type": "string"},
        "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]}}}))
    .unwrap();
    for (given, expected) in [
        (json!({"depth": "3"}), json!({"depth": 3})),
        (json!({"depth": "3.0"}), json!({"depth": 3})),
        (json!({"flag": "false"}), json!({"flag": false})),
        (json!({"tags": "[\"a\"]"}), json!({"tags": ["a"]})),
        (json!({"code": "007"}), json!({"code": "007"})),
        (json!({"code": "1e3"}), json!({"code": "1e3"})),
        (json!({"either": "12"}), json!({"either": "12"})),
        (json!("{\"depth\": \"3\"}"), json!({"depth": 3})),
    ] {
        let checked = validate(&schema, &given).unwrap_or_else(|problem| panic!("{given}: {problem:?}"));
        let whole = |value: &Value| serde_json::from_str::<Value>(&value.to_string().replace("3.0", "3")).unwrap();
        assert_eq!(whole(&Value::Object(checked.args.as_map().clone())), expected, "{given}");
    }
    for refused in [json!({"depth": "3.5"}), json!({"flag": "maybe"}), json!({"tags": {"0": "a"}})] {
        assert!(validate(&schema, &refused).is_err(), "{refused}");
    }
}

fn aliases(registry: &Registry) -> BTreeMap<String, String> {
    registry.cards.keys().map(|id| (id.as_str().to_owned(), alias(id))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn aliases_of_a_catalog_are_distinct_and_do_not_depend_on_order(
        names in prop::collection::vec("[a-c./_ -]{1,4}|[订单退款]{1,3}", 1..8),
        others in prop::collection::vec("[a-c./_ -]{1,4}", 0..5),
    ) {
        let usable = |names: &[String]| -> Vec<Value> {
            let distinct: BTreeSet<&String> = names.iter().filter(|name| !name.trim().is_empty()).collect();
            distinct.into_iter().map(|name| json!({"name": name, "inputSchema": {}})).collect()
        };
        let of = |source: &str, tools: Vec<Value>| Listed { source: source.into(), tools, ..Listed::default() };
        let (one, two) = (usable(&names), usable(&others));
        let files: [PathBuf; 0] = [];
        let forward = aliases(&load(&files, &[of("one", one.clone()), of("二", two.clone())]).unwrap());
        let reversed = |tools: &[Value]| tools.iter().rev().cloned().collect::<Vec<_>>();
        let backward = aliases(&load(&files, &[of("二", reversed(&two)), of("one", reversed(&one))]).unwrap());
        prop_assert_eq!(forward.len(), one.len() + two.len(), "every tool is kept");
        prop_assert_eq!(&forward, &backward);
        prop_assert!(forward.values().all(|alias| is_valid_alias(alias)));
        prop_assert_eq!(forward.values().collect::<BTreeSet<_>>().len(), forward.len());
    }
}
