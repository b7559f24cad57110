//! Schemas of answers that a grammar-constrained endpoint can be held to.
//!
//! Owns: the form of an answer in the modes without functions, bounds on everything in it.
//! Does not know: whether an answer is right; arguments are validated against the card's own schema afterwards.
//!
//! Small models write an unbounded string or list until the token limit ends it, so every string has a length and every
//! list a size, whatever the card says. Only keywords that constrained decoders share are used, all references are
//! written out, and names that no candidate has are refused. Members are decoded in the order of their names here, so
//! the key of the choice has to come before `arguments`: a model that fills in arguments first chooses by them.

use serde_json::{Map, Value, json};

use super::session::is_hidden;
use super::shortlist::Shortlist;
use crate::catalog::Tool;

/// Key of the choice where arguments follow.
pub(super) const ACTION: &str = "action";
/// Key of the choice that stands alone.
pub(super) const TOOL: &str = "tool";

/// Length of a string whose schema names none, and the most of one that does.
const USUAL_LENGTH: u64 = 200;
const MOST_LENGTH: u64 = 500;
const MOST_ITEMS: u64 = 20;
const MOST_DEPTH: usize = 5;
const MOST_BRANCHES: usize = 8;
/// Values written out in one schema; beyond, any scalar will do.
const MOST_NODES: usize = 4_000;

/// `{"tool": NAME}`.
pub(super) fn choice(list: &Shortlist<'_>) -> Value {
    json!({
        "type": "object",
        "properties": {TOOL: {"type": "string", "enum": list.names()}},
        "required": [TOOL],
        "additionalProperties": false,
    })
}

/// `{"action": NAME, "arguments": {…}}`, or a list of them. The arguments are those of all candidates: which belong to
/// which tool is left to validation.
pub(super) fn calls(list: &Shortlist<'_>, session: &Map<String, Value>, max_calls: usize) -> Value {
    let mut left = MOST_NODES;
    let (mut properties, open) = merged(list, session, &mut left);
    let known = properties.clone();
    let aliases: Vec<&str> = list.tools.iter().map(|tool| tool.alias.as_str()).collect();
    let own = [
        ("tool", json!({"type": "string", "enum": aliases})),
        ("missing", json!({"type": "array", "items": text(60), "maxItems": MOST_ITEMS})),
        ("arguments", object(known, Vec::new(), open)),
        ("question", text(300)),
        ("reason", text(300)),
    ];
    for (name, schema) in own {
        add(&mut properties, name, schema);
    }
    let call = json!({
        "type": "object",
        "properties": {
            ACTION: {"type": "string", "enum": list.names()},
            "arguments": object(properties, Vec::new(), open),
        },
        "required": [ACTION, "arguments"],
        "additionalProperties": false,
    });
    if max_calls <= 1 {
        return call;
    }
    json!({
        "type": "object",
        "properties": {"calls": {"type": "array", "items": call, "minItems": 1, "maxItems": max_calls}},
        "required": ["calls"],
        "additionalProperties": false,
    })
}

/// The arguments of one tool, without those the session supplies.
pub(super) fn arguments(tool: &Tool, session: &Map<String, Value>) -> Value {
    let mut left = MOST_NODES;
    let properties = properties(tool, session, &mut left).collect();
    let required = tool.schema.required().into_iter().filter(|name| !is_hidden(name, session));
    object(properties, required.map(str::to_owned).collect(), is_open(tool))
}

/// Whether the model has anything to fill in.
pub(crate) fn takes_arguments(tool: &Tool, session: &Map<String, Value>) -> bool {
    is_open(tool) || tool.schema.properties().iter().any(|(name, _)| !is_hidden(name, session))
}

/// Names that are not listed are welcome, and the card says so: silence about them is no invitation.
fn is_open(tool: &Tool) -> bool {
    matches!(tool.schema.raw().get("additionalProperties"), Some(Value::Bool(true) | Value::Object(_)))
}

fn properties<'t>(
    tool: &'t Tool,
    session: &'t Map<String, Value>,
    left: &'t mut usize,
) -> impl Iterator<Item = (String, Value)> + 't {
    let properties = tool.schema.properties().into_iter().filter(|(name, _)| !is_hidden(name, session));
    properties.map(|(name, schema)| (name.to_owned(), bounded(schema, 0, left)))
}

fn merged(list: &Shortlist<'_>, session: &Map<String, Value>, left: &mut usize) -> (Map<String, Value>, bool) {
    let mut all = Map::new();
    for tool in &list.tools {
        for (name, schema) in properties(tool, session, left) {
            add(&mut all, &name, schema);
        }
    }
    (all, list.tools.iter().any(|tool| is_open(tool)))
}

/// One more form of an argument beside those that other tools have for it.
fn add(properties: &mut Map<String, Value>, name: &str, schema: Value) {
    let Some(known) = properties.get_mut(name) else {
        properties.insert(name.to_owned(), schema);
        return;
    };
    if *known == schema {
        return;
    }
    let mut branches = match known.as_object().filter(|known| known.len() == 1).and_then(|known| known.get("anyOf")) {
        Some(Value::Array(branches)) => branches.clone(),
        Some(_) | None => vec![known.clone()],
    };
    if !branches.contains(&schema) {
        branches.push(schema);
    }
    // Rather any scalar than a form that some tool does not have.
    *known = if branches.len() > MOST_BRANCHES { scalar() } else { json!({"anyOf": branches}) };
}

fn object(properties: Map<String, Value>, required: Vec<String>, open: bool) -> Value {
    let others = if open || properties.is_empty() { scalar() } else { Value::Bool(false) };
    let mut schema = json!({"type": "object", "properties": properties, "additionalProperties": others});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    if open {
        schema["maxProperties"] = json!(MOST_ITEMS);
    }
    schema
}

fn text(length: u64) -> Value {
    json!({"type": "string", "maxLength": length})
}

fn scalar() -> Value {
    json!({"anyOf": [text(USUAL_LENGTH), {"type": "number"}, {"type": "boolean"}]})
}

/// `schema` in shared keywords with bounds. Descriptions are left out: they stand on the card.
fn bounded(schema: &Value, depth: usize, left: &mut usize) -> Value {
    let Some(rest) = left.checked_sub(1).filter(|_| depth <= MOST_DEPTH) else { return scalar() };
    *left = rest;
    let Some(map) = schema.as_object() else { return scalar() };
    if let Some(values) = map.get("enum").and_then(Value::as_array) {
        return json!({"enum": values});
    }
    if let Some(value) = map.get("const") {
        return json!({"enum": [value]});
    }
    let kinds: Vec<&str> = match map.get("type") {
        Some(Value::String(kind)) => vec![kind],
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
        Some(_) | None => Vec::new(),
    };
    let branches: Vec<Value> = if kinds.is_empty() {
        let listed = ["anyOf", "oneOf"].iter().find_map(|key| map.get(*key)?.as_array());
        let Some(listed) = listed else { return untyped(map, depth, left) };
        listed.iter().take(MOST_BRANCHES).map(|branch| bounded(branch, depth + 1, left)).collect()
    } else {
        kinds.into_iter().take(MOST_BRANCHES).map(|kind| of_kind(kind, map, depth, left)).collect()
    };
    match <[Value; 1]>::try_from(branches) {
        Ok([only]) => only,
        Err(branches) if branches.is_empty() => scalar(),
        Err(branches) => json!({"anyOf": branches}),
    }
}

/// Keywords tell the kind where `type` does not.
fn untyped(map: &Map<String, Value>, depth: usize, left: &mut usize) -> Value {
    let kind_of = |kind: &'static str, keys: &[&str]| keys.iter().any(|key| map.contains_key(*key)).then_some(kind);
    let kind = kind_of("object", &["properties", "required"])
        .or_else(|| kind_of("array", &["items", "prefixItems", "maxItems", "minItems"]))
        .or_else(|| kind_of("string", &["pattern", "maxLength", "minLength", "format"]))
        .or_else(|| kind_of("number", &["minimum", "maximum"]));
    kind.map_or_else(scalar, |kind| of_kind(kind, map, depth, left))
}

fn of_kind(kind: &str, map: &Map<String, Value>, depth: usize, left: &mut usize) -> Value {
    match kind {
        "string" => string(map),
        "integer" | "number" => {
            let limits = ["minimum", "maximum"].into_iter().filter_map(|key| Some((key, map.get(key)?)));
            let limits = limits.filter(|(_, limit)| limit.is_number()).map(|(key, limit)| (key.into(), limit.clone()));
            let mut schema: Map<String, Value> = limits.collect();
            schema.insert("type".into(), json!(kind));
            Value::Object(schema)
        }
        "boolean" | "null" => json!({"type": kind}),
        "array" => {
            let items = map.get("items").filter(|items| items.is_object());
            let items = items.map_or_else(scalar, |items| bounded(items, depth + 1, left));
            let most = size(map, "maxItems").unwrap_or(MOST_ITEMS).min(MOST_ITEMS);
            let least = size(map, "minItems").unwrap_or(0).min(most);
            json!({"type": "array", "items": items, "minItems": least, "maxItems": most})
        }
        "object" => nested(map, depth, left),
        _ => scalar(),
    }
}

fn string(map: &Map<String, Value>) -> Value {
    let least = size(map, "minLength").unwrap_or(0).min(MOST_LENGTH);
    let most = size(map, "maxLength").map_or(USUAL_LENGTH, |most| most.min(MOST_LENGTH)).max(least);
    let mut schema = text(most);
    if least > 0 {
        schema["minLength"] = json!(least);
    }
    if let Some(pattern) = map.get("pattern").and_then(Value::as_str).filter(|pattern| is_bounded_pattern(pattern)) {
        schema["pattern"] = json!(pattern);
    }
    if let Some(format @ ("date" | "time" | "date-time")) = map.get("format").and_then(Value::as_str) {
        schema["format"] = json!(format);
    }
    schema
}

fn nested(map: &Map<String, Value>, depth: usize, left: &mut usize) -> Value {
    let listed = map.get("properties").and_then(Value::as_object);
    let mut properties = Map::new();
    for (name, schema) in listed.into_iter().flatten() {
        properties.insert(name.clone(), bounded(schema, depth + 1, left));
    }
    let required = map.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let required = required.filter(|name| properties.contains_key(*name)).map(str::to_owned).collect();
    let open = match map.get("additionalProperties") {
        Some(Value::Bool(open)) => *open,
        Some(Value::Object(_)) => true,
        Some(_) | None => properties.is_empty(),
    };
    object(properties, required, open)
}

fn size(map: &Map<String, Value>, key: &str) -> Option<u64> {
    map.get(key).and_then(Value::as_u64)
}

/// Whether a decoder can be left to a pattern alone, as those do that know one or the other, length or pattern: it is
/// anchored on both sides, repeats nothing without end, and looks neither ahead nor back.
fn is_bounded_pattern(pattern: &str) -> bool {
    let Some(inner) = pattern.strip_prefix('^').and_then(|rest| rest.strip_suffix('$')) else { return false };
    let unbounded = ["(?", "*", "+", ",}", "|", ".", "\\p", "\\u", "\\b", "\\x", "\\w", "\\s", "\\S", "\\W", "\\D"];
    !unbounded.iter().any(|part| inner.contains(part))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::super::AnswerMode;
    use super::*;
    use crate::decide::llm::testing::{Shop, card, shop};

    fn all_strings_are_bounded(schema: &Value) -> bool {
        match schema {
            Value::Object(map) => {
                let bounded = match map.get("type").and_then(Value::as_str) {
                    Some("string") => map.contains_key("maxLength") || map.contains_key("enum"),
                    Some("array") => map.contains_key("maxItems") && map.contains_key("items"),
                    Some("object") => map.contains_key("additionalProperties"),
                    Some(_) | None => true,
                };
                bounded && !map.contains_key("$ref") && map.values().all(all_strings_are_bounded)
            }
            Value::Array(items) => items.iter().all(all_strings_are_bounded),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
        }
    }

    fn of(parameters: Value) -> Value {
        arguments(&Tool::new(card("f", parameters).into()).unwrap(), &Map::new())
    }

    #[test]
    fn everything_is_bounded_and_references_are_written_out() {
        let schema = of(json!({
            "type": "object", "required": ["id", "note"],
            "$defs": {"Id": {"type": "string", "pattern": "^SO-\\d{14}$"},
                "Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}, "label": {"type": "string"}}}},
            "properties": {"id": {"$ref": "#/$defs/Id"}, "note": {"type": "string", "maxLength": 9_000, "minLength": 2},
                "tags": {"type": "array"}, "node": {"$ref": "#/$defs/Node"}, "free": {}, "meta": {"type": "object"},
                "when": {"type": ["string", "null"], "format": "date"}, "n": {"type": "integer", "minimum": 1},
                "kind": {"type": "string", "enum": ["a", "b"]}, "word": {"type": "string", "pattern": "^[a-z]+$"}}
        }));
        assert!(all_strings_are_bounded(&schema), "{schema}");
        let property = |name: &str| schema["properties"][name].clone();
        assert_eq!(property("id"), json!({"type": "string", "pattern": "^SO-\\d{14}$", "maxLength": 200}));
        assert_eq!(property("note"), json!({"type": "string", "minLength": 2, "maxLength": 500}));
        assert_eq!(property("word"), json!({"type": "string", "maxLength": 200}), "the pattern alone would never end");
        assert_eq!(property("when")["anyOf"][1], json!({"type": "null"}));
        assert_eq!(
            (property("kind"), property("n")),
            (json!({"enum": ["a", "b"]}), json!({"type": "integer", "minimum": 1}))
        );
        assert_eq!((&schema["required"], &schema["additionalProperties"]), (&json!(["id", "note"]), &json!(false)));
    }

    #[test]
    fn the_choice_comes_first_and_arguments_are_those_of_the_candidates() {
        let by = |schema: Value| json!({"type": "object", "properties": {"by": schema}});
        let shop = Shop::of(vec![
            card("a", by(json!({"type": "string"}))),
            card("b", by(json!({"type": "integer"}))),
            card("c", by(json!({"type": "string", "description": "the same"}))),
        ]);
        let tools = shop.tools();
        let list = Shortlist::new(&shop.request("hi", &tools), 128, AnswerMode::JsonSchema);
        let schema = calls(&list, &Map::new(), 1);
        assert!(all_strings_are_bounded(&schema), "{schema}");
        let members: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
        assert_eq!(members, ["action", "arguments"]);
        assert_eq!(schema["properties"]["action"]["enum"], json!(["a", "b", "c", "no_tool", "ask_user"]));
        let arguments = &schema["properties"]["arguments"];
        assert_eq!(arguments["properties"]["by"]["anyOf"], json!([text(200), {"type": "integer"}]));
        assert_eq!(arguments["additionalProperties"], false);
        let several = calls(&list, &Map::new(), 3);
        assert_eq!(several["properties"]["calls"]["maxItems"], 3);
        assert_eq!(choice(&list)["properties"]["tool"]["enum"], json!(["a", "b", "c", "no_tool", "ask_user"]));
    }

    #[test]
    fn what_the_session_supplies_is_no_argument_and_a_tool_may_take_none() {
        let shop = shop();
        let tools = shop.tools();
        let get = tools.iter().find(|tool| tool.id().as_str() == "get_order").unwrap();
        let session = json!({"user_id": "u1"}).as_object().unwrap().clone();
        assert!(arguments(get, &Map::new())["properties"].get("user_id").is_some());
        assert!(arguments(get, &session)["properties"].get("user_id").is_none());
        let mine = Tool::new(card("mine", json!({"type": "object", "properties": {"user_id": {}}})).into()).unwrap();
        assert!(takes_arguments(&mine, &Map::new()) && !takes_arguments(&mine, &session));
        let open = json!({"type": "object", "additionalProperties": {"type": "string"}});
        assert!(takes_arguments(&Tool::new(card("open", open).into()).unwrap(), &Map::new()));
        assert!(!takes_arguments(&Tool::new(card("none", json!({})).into()).unwrap(), &Map::new()));
    }

    #[test]
    fn a_schema_of_any_size_gives_a_small_one() {
        let mut deep = json!({"type": "string"});
        for _ in 0..60 {
            deep = json!({"type": "object", "properties": {"x": deep, "y": {"type": "array", "items": {"type": "string"}}}});
        }
        let schema = of(json!({"type": "object", "properties": {"deep": deep}}));
        assert!(all_strings_are_bounded(&schema) && schema.to_string().len() < 5_000, "{schema}");
        let wide: Map<String, Value> = (0..5_000)
            .map(|n| (format!("p{n}"), json!({"type": "object", "properties": {"a": {"type": "string"}}})))
            .collect();
        let schema = of(json!({"type": "object", "properties": wide}));
        assert!(all_strings_are_bounded(&schema));
        let written_out = schema.to_string().matches("\"properties\"").count();
        assert!((1_000..=MOST_NODES / 2 + 10).contains(&written_out), "{written_out} of 5000 objects, two values each");
    }

    #[test]
    fn only_patterns_that_end_by_themselves_are_passed_on() {
        let kept = |pattern: &str| {
            bounded(&json!({"type": "string", "pattern": pattern}), 0, &mut 10).get("pattern").is_some()
        };
        for pattern in [r"^SO-\d{14}$", "^[A-Z]{2}$"] {
            assert!(kept(pattern), "{pattern}");
        }
        for pattern in ["^a|b$", r"^\d{2,}$", "[a-z]{3}", "^(?=x)a$", "^退款*$", "^a+$"] {
            assert!(!kept(pattern), "{pattern}");
        }
    }

    proptest! {
        #[test]
        fn any_pattern_is_kept_or_left_out(pattern in any::<String>()) {
            let map = json!({"type": "string", "pattern": pattern});
            prop_assert!(all_strings_are_bounded(&bounded(&map, 0, &mut 10)));
        }
    }
}
