//! A card's schema in a form that providers accept as the parameters of a function.
//!
//! Owns: what is written otherwise for the prompt, and the way back from argument names.
//! Does not know: whether arguments fit. They are validated against the schema as its author wrote it, so whatever is
//! left out here still holds.
//!
//! Providers refuse a whole request for one schema with references they do not follow, alternatives at its root, a
//! pattern that looks ahead, an unknown format or type, or an argument whose name is not `^[a-zA-Z0-9_.-]{1,64}$`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::card::MAX_SCHEMA_DEPTH;
use super::shortlist::{Named, Shortlist};
use crate::args::local;
use crate::catalog::Tool;
use crate::decide::llm::read::{Arguments, Completion};
use crate::tool::argument_alias;

/// Formats that every provider knows.
const FORMATS: [&str; 9] = ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"];
/// Keywords that providers refuse beside `type: object` at the root.
const ROOT: [&str; 11] =
    ["$ref", "allOf", "anyOf", "oneOf", "not", "enum", "const", "if", "then", "else", "dependentSchemas"];
const MAX_DEPTH: usize = 64;

/// The schema of `tool`; as its author wrote it where that is accepted.
pub(super) fn schema(tool: &Tool) -> Cow<'_, Value> {
    let raw = tool.schema.raw();
    let rewritten = !tool.schema.notices().is_empty() || has_reference(raw, 0);
    if rewritten || ROOT.iter().any(|keyword| raw.get(*keyword).is_some()) {
        return Cow::Owned(rebuilt(tool));
    }
    let cleaned = clean(raw, 0);
    if cleaned == *raw { Cow::Borrowed(raw) } else { Cow::Owned(cleaned) }
}

/// One object of the arguments there are, references written out and slips repaired.
fn rebuilt(tool: &Tool) -> Value {
    let raw = tool.schema.raw();
    let own = tool.schema.properties().into_iter();
    let mut properties: Map<String, Value> = own.map(|(name, schema)| (name.to_owned(), clean(schema, 1))).collect();
    // Of alternatives all arguments are shown and none is required.
    for (name, forms) in of_alternatives(raw) {
        let form = || match forms.as_slice() {
            [only] => only.clone(),
            many => json!({ "anyOf": many }),
        };
        properties.entry(name).or_insert_with(form);
    }
    let mut schema = json!({"type": "object", "properties": properties});
    let required = tool.schema.required();
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    let any_named = raw.get("patternProperties").is_some();
    if let Some(open @ Value::Bool(_)) = raw.get("additionalProperties")
        && !(any_named && *open == Value::Bool(false))
    {
        schema["additionalProperties"] = open.clone();
    }
    schema
}

/// The arguments that alternatives at the root name, each in all its forms.
fn of_alternatives(raw: &Value) -> BTreeMap<String, Vec<Value>> {
    /// More than that say nothing of what is right.
    const MOST_FORMS: usize = 16;
    let mut found: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for branch in ["anyOf", "oneOf"].iter().filter_map(|key| raw.get(*key)?.as_array()).flatten() {
        let target = branch.get("$ref").and_then(Value::as_str).and_then(|reference| local(raw, reference));
        let members = target.unwrap_or(branch).get("properties").and_then(Value::as_object);
        for (name, member) in members.into_iter().flatten().filter(|(_, member)| **member != Value::Bool(false)) {
            let form = if member.is_object() { clean(member, 3) } else { json!({}) };
            let forms = found.entry(name.clone()).or_default();
            if !forms.contains(&form) {
                forms.push(form);
            }
            if forms.len() > MOST_FORMS {
                *forms = vec![json!({})];
            }
        }
    }
    found
}

/// Whether a reference stands anywhere but among data.
fn has_reference(schema: &Value, depth: usize) -> bool {
    match schema {
        _ if depth > MAX_DEPTH => true,
        Value::Object(map) => map.iter().any(|(key, value)| match key.as_str() {
            "$ref" | "$dynamicRef" | "$recursiveRef" => value.is_string(),
            "properties" | "patternProperties" | "dependentSchemas" | "$defs" | "definitions" => {
                value.as_object().is_some_and(|named| named.values().any(|member| has_reference(member, depth + 1)))
            }
            key if is_data(key) => false,
            _ => has_reference(value, depth + 1),
        }),
        Value::Array(items) => items.iter().any(|item| has_reference(item, depth + 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// `schema` without what providers refuse at any depth. No value that it lets through is refused by what is left.
fn clean(schema: &Value, depth: usize) -> Value {
    cleaned(schema, depth).0
}

/// See [`clean`]; and whether what is left says all that `schema` said. What stands under `properties` and the like are
/// names.
fn cleaned(schema: &Value, depth: usize) -> (Value, bool) {
    let map = match schema {
        Value::Object(_) | Value::Array(_) if depth > MAX_SCHEMA_DEPTH => return (json!({}), false),
        Value::Object(map) => map,
        Value::Array(items) => {
            let items: Vec<(Value, bool)> = items.iter().map(|item| cleaned(item, depth + 1)).collect();
            let whole = items.iter().all(|(_, whole)| *whole);
            return (items.into_iter().map(|(item, _)| item).collect(), whole);
        }
        leaf => return (leaf.clone(), true),
    };
    let mut out = Map::new();
    let mut all = true;
    for (key, value) in map {
        let (value, whole) = match (key.as_str(), value) {
            // Targets of those that were written out.
            ("$defs" | "definitions" | "$id" | "$anchor" | "$dynamicAnchor", _) => continue,
            // A recursive reference that was not written out to its end.
            ("$ref" | "$dynamicRef" | "$recursiveRef", _) => (None, false),
            ("pattern", Value::String(pattern)) if !is_portable(pattern) => (None, false),
            ("format", Value::String(format)) if !FORMATS.contains(&format.as_str()) => (None, false),
            (key, data) if is_data(key) => (Some(data.clone()), true),
            ("properties" | "patternProperties" | "dependentSchemas", Value::Object(named)) => {
                let members = named.iter().map(|(name, member)| (name.clone(), cleaned(member, depth + 1)));
                let members: Vec<(String, (Value, bool))> = members.collect();
                let whole = members.iter().all(|(_, (_, whole))| *whole);
                (Some(members.into_iter().map(|(name, (member, _))| (name, member)).collect()), whole)
            }
            (_, Value::Object(_) | Value::Array(_)) if depth == MAX_SCHEMA_DEPTH => (None, false),
            (_, other) => {
                let (value, whole) = cleaned(other, depth + 1);
                (Some(value), whole)
            }
        };
        all &= whole;
        match (key.as_str(), value) {
            (_, None) => {}
            // With less said inside, more is meant: all that `not` refuses, all to which `then` applies.
            ("not" | "if", Some(_)) if !whole => {}
            // Of branches that say less, several may fit.
            ("oneOf", Some(branches)) if !whole => add_any_of(&mut out, branches),
            ("anyOf", Some(branches)) => add_any_of(&mut out, branches),
            (_, Some(value)) => drop(out.insert(key.clone(), value)),
        }
    }
    if !all {
        // These restrict what is left over by the others, and there the others say less.
        out.retain(|key, _| !matches!(key.as_str(), "unevaluatedProperties" | "unevaluatedItems"));
        if map.contains_key("maxContains") {
            out.retain(|key, _| !matches!(key.as_str(), "contains" | "minContains" | "maxContains"));
        }
        if !out.contains_key("if") {
            out.retain(|key, _| !matches!(key.as_str(), "then" | "else"));
        }
    }
    (Value::Object(out), all)
}

fn add_any_of(schema: &mut Map<String, Value>, branches: Value) {
    if !schema.contains_key("anyOf") {
        schema.insert("anyOf".into(), branches);
    } else if let Value::Array(all) = schema.entry("allOf").or_insert_with(|| json!([])) {
        all.push(json!({"anyOf": branches}));
    }
}

/// Keywords that hold values, not schemas.
fn is_data(keyword: &str) -> bool {
    matches!(keyword, "type" | "enum" | "const" | "default" | "example" | "examples" | "required" | "dependentRequired")
}

/// Whether a pattern is a regular language, as most decoders demand.
fn is_portable(pattern: &str) -> bool {
    let looks = ["(?=", "(?!", "(?<", "(?>", "\\p{", "\\P{", "\\k<"];
    let refers_back = pattern.as_bytes().windows(2).any(|pair| pair[0] == b'\\' && (b'1'..=b'9').contains(&pair[1]));
    !refers_back && !looks.iter().any(|part| pattern.contains(part))
}

/// Gives the arguments of a function names that providers accept; the author's name stays in the description.
pub(super) fn rename(schema: &mut Map<String, Value>) {
    let Some(Value::Object(properties)) = schema.get_mut("properties") else { return };
    if properties.keys().all(|name| argument_alias(name) == *name) {
        return;
    }
    let named = std::mem::take(properties).into_iter().map(|(name, mut property)| {
        let alias = argument_alias(&name);
        if alias != name
            && let Value::Object(property) = &mut property
        {
            let text = property.get("description").and_then(Value::as_str).unwrap_or_default();
            let text = if text.is_empty() { name } else { format!("{name}: {text}") };
            property.insert("description".into(), json!(text));
        }
        (alias, property)
    });
    *properties = named.collect();
    if let Some(Value::Array(required)) = schema.get_mut("required") {
        for name in required {
            if let Some(alias) = name.as_str().map(argument_alias) {
                *name = json!(alias);
            }
        }
    }
}

/// Arguments of one tool under the names they have in a prompt of functions.
pub(super) fn renamed(arguments: &Map<String, Value>) -> Map<String, Value> {
    arguments.iter().map(|(name, value)| (argument_alias(name), value.clone())).collect()
}

/// The answer with the author's names of all arguments. A model may also have used them in the first place.
pub(crate) fn restored(mut completion: Completion, list: &Shortlist<'_>) -> Completion {
    for call in &mut completion.calls {
        let Arguments::Object(arguments) = &mut call.arguments else { continue };
        match list.resolve(&call.name) {
            Some(Named::Tool(tool)) => restore(arguments, tool),
            Some(Named::Ask) => restore_question(arguments, list),
            Some(Named::None) | None => {}
        }
    }
    completion
}

fn restore_question(question: &mut Map<String, Value>, list: &Shortlist<'_>) {
    let named = question.get("tool").and_then(Value::as_str).and_then(|name| list.resolve(name));
    let Some(Named::Tool(tool)) = named else { return };
    if let Some(Value::Object(arguments)) = question.get_mut("arguments") {
        restore(arguments, tool);
    }
    for missing in question.get_mut("missing").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(name) = missing.as_str().and_then(|name| original(name, tool)) {
            *missing = json!(name);
        }
    }
}

fn restore(arguments: &mut Map<String, Value>, tool: &Tool) {
    let found: Vec<(String, String)> = arguments
        .keys()
        .filter_map(|alias| Some((alias.clone(), original(alias, tool)?.to_owned())))
        .filter(|(_, name)| !arguments.contains_key(name))
        .collect();
    for (alias, name) in found {
        if let Some(value) = arguments.remove(&alias) {
            arguments.insert(name, value);
        }
    }
}

/// The argument that `alias` stands for; `None` when it is a name itself, or nobody's.
fn original<'t>(alias: &str, tool: &'t Tool) -> Option<&'t str> {
    if tool.schema.property(alias).is_some() {
        return None;
    }
    tool.schema.properties().into_iter().map(|(name, _)| name).find(|name| argument_alias(name) == alias)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::super::AnswerMode;
    use super::super::super::read::RawCall;
    use super::super::card;
    use super::super::card::Cut;
    use super::*;
    use crate::decide::llm::testing::{Shop, card as with};

    fn tool(parameters: Value) -> Tool {
        Tool::new(with("f", parameters).into()).unwrap()
    }

    #[track_caller]
    fn check(parameters: Value, expected: Value) {
        assert_eq!(*schema(&tool(parameters)), expected);
    }

    #[test]
    fn what_is_accepted_stays_to_the_byte() {
        let schema = json!({"type": "object", "required": ["a"], "properties": {
            "a": {"type": "string", "pattern": r"^SO-\d{14}$", "format": "date"},
            "format": {"type": "string", "enum": ["uri"]}, "pattern": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "$ref": {"type": "string", "default": {"$ref": "x"}}}});
        check(schema.clone(), schema);
    }

    #[test]
    fn references_are_written_out_and_end() {
        check(
            json!({"type": "object", "required": ["mode"], "$defs": {"M": {"enum": ["all"]}},
                "properties": {"mode": {"$ref": "#/$defs/M", "description": "which"}}, "additionalProperties": false}),
            json!({"type": "object", "required": ["mode"], "additionalProperties": false,
                "properties": {"mode": {"enum": ["all"], "description": "which"}}}),
        );
        let node = json!({"type": "object", "properties": {"next": {"$ref": "#/$defs/N"}}});
        let recursive = json!({"type": "object", "$defs": {"N": node}, "properties": {"n": {"$ref": "#/$defs/N"}}});
        let text = schema(&tool(recursive)).to_string();
        assert!(!text.contains("$ref") && !text.contains("$defs") && text.len() < 2_000, "{text}");
    }

    #[test]
    fn alternatives_at_the_root_become_one_object_and_still_hold() {
        let parameters = json!({"type": "object", "properties": {"lang": {"type": "string"}},
            "oneOf": [{"properties": {"order_id": {"type": "string"}}, "required": ["order_id"]}, {"$ref": "#/$defs/By"}],
            "$defs": {"By": {"properties": {"phone": {"type": "string", "pattern": "^(?=1)\\d+$"}}, "required": ["phone"]}}});
        check(
            parameters.clone(),
            json!({"type": "object", "properties": {"lang": {"type": "string"}, "order_id": {"type": "string"}, "phone": {"type": "string"}}}),
        );
        let tool = tool(parameters);
        assert!(crate::args::validate(&tool.schema, &json!({"lang": "zh"})).is_err(), "the author's schema validates");
        assert!(crate::args::validate(&tool.schema, &json!({"phone": "138"})).is_ok());
        assert!(crate::args::validate(&tool.schema, &json!({"phone": "238"})).is_err());
        let kind = |of: &str| json!({"properties": {"kind": {"const": of}}, "required": ["kind"]});
        check(
            json!({"type": "object", "oneOf": [kind("a"), kind("b"), {"properties": {"n": {}}}]}),
            json!({"type": "object", "properties": {"kind": {"anyOf": [{"const": "a"}, {"const": "b"}]}, "n": {}}}),
        );
        let all_of = json!({"allOf": [{"properties": {"a": {"type": "string"}}, "required": ["a"]}]});
        check(all_of, json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}}));
    }

    #[test]
    fn what_cannot_be_shown_never_forbids_a_value() {
        let ends = json!({"$ref": "#/$defs/Endless"});
        let endless = json!({"type": "object", "properties": {"next": {"$ref": "#/$defs/Endless"}}});
        let given = json!({"type": "object", "required": ["note"], "$defs": {"Endless": endless}, "properties": {
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "never": {"type": "string", "not": {"pattern": "^(?=x)"}},
            "when": {"type": "string", "if": {"format": "uri"}, "then": {"maxLength": 3}, "else": {"maxLength": 9}},
            "one": {"oneOf": [{"type": "string", "pattern": "(?!x)a"}, {"type": "string", "minLength": 2}]},
            "kinds": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
            "few": {"type": "array", "contains": {"pattern": "(?=a)"}, "maxContains": 1},
            "endless": {"type": "object", "properties": {"a": ends}, "not": {"properties": {"b": {"required": ["c"], "properties": {"c": ends}}}}},
        }});
        let shown = schema(&tool(given)).into_owned();
        let property = |name: &str| shown["properties"][name].clone();
        assert_eq!((property("note"), &shown["required"]), (json!({"type": ["string", "null"]}), &json!(["note"])));
        assert_eq!((property("never"), property("when")), (json!({"type": "string"}), json!({"type": "string"})));
        assert_eq!(property("one"), json!({"anyOf": [{"type": "string"}, {"type": "string", "minLength": 2}]}));
        assert_eq!(property("kinds"), json!({"oneOf": [{"type": "string"}, {"type": "integer"}]}));
        assert_eq!(property("few"), json!({"type": "array"}));
        assert_eq!(property("endless").get("not"), None);
        assert_eq!(property("endless")["properties"]["a"]["type"], "object");
    }

    /// Schemas of arguments with references in all places, also such as have no end.
    fn parameters() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(json!({"type": "string"})),
            Just(json!({"type": "null"})),
            Just(json!({"type": ["integer", "null"], "minimum": 1})),
            Just(json!({"pattern": "(?=a)"})),
            Just(json!({"format": "uri"})),
            Just(json!({"enum": ["a", 1]})),
            Just(json!({"required": ["p"]})),
            Just(json!({"$ref": "#/$defs/A"})),
            Just(json!({"$ref": "#/$defs/B"})),
        ];
        let part = leaf.prop_recursive(4, 16, 3, |inner| {
            let keyword = prop::sample::select(vec!["items", "contains", "not", "if", "then", "additionalProperties"]);
            let list = prop::sample::select(vec!["anyOf", "oneOf", "allOf", "prefixItems"]);
            let one = prop_oneof![
                (keyword, inner.clone()).prop_map(|(keyword, schema)| json!({ keyword: schema })),
                (list, prop::collection::vec(inner.clone(), 1..3)).prop_map(|(list, all)| json!({ list: all })),
                prop::collection::btree_map("[pq]", inner.clone(), 1..3).prop_map(|map| json!({ "properties": map })),
                Just(json!({"unevaluatedProperties": false})),
                Just(json!({"maxContains": 1})),
                inner,
            ];
            prop::collection::vec(one, 1..4).prop_map(|parts| {
                let maps = parts.into_iter().filter_map(|part| part.as_object().cloned());
                Value::Object(maps.flatten().collect())
            })
        });
        (part.clone(), part.clone(), part).prop_map(|(mut root, a, b)| {
            root["$defs"] = json!({"A": a, "B": b});
            // Arguments of alternatives are shown as the alternative has them that names them.
            root.as_object_mut().unwrap().retain(|key, _| !matches!(key.as_str(), "anyOf" | "oneOf"));
            root["type"] = json!("object");
            root
        })
    }

    fn arguments() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![Just(Value::Null), Just(json!("a")), Just(json!(1)), Just(json!("bc"))];
        let value = leaf.prop_recursive(3, 10, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::Array),
                prop::collection::btree_map("[pq]", inner, 0..3).prop_map(|map| map.into_iter().collect()),
            ]
        });
        prop::collection::btree_map("[pqr]", value, 0..4).prop_map(|map| map.into_iter().collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]

        #[test]
        fn valid_arguments_fit_what_is_shown(parameters in parameters(), arguments in arguments()) {
            let Ok(tool) = Tool::new(with("f", parameters.clone()).into()) else { return Ok(()) };
            let shown = schema(&tool);
            prop_assert!(!shown.to_string().contains("$ref"), "{shown}");
            let fits = |schema: &Value| jsonschema::validator_for(schema).unwrap().is_valid(&arguments);
            prop_assert!(!fits(&parameters) || fits(&shown), "{parameters} is shown as {shown}, which refuses {arguments}");
        }
    }

    #[test]
    fn what_is_too_deep_is_left_out_with_all_that_turns_on_it() {
        let deep = (0..30).fold(json!({"const": 1}), |inner, _| json!({"type": "object", "properties": {"a": inner}}));
        let parameters = json!({"type": "object", "properties": {"x": {"not": deep}, "y": {"items": {"oneOf": [deep, {}]}}, "z": deep}});
        let tool = tool(parameters);
        let session = Map::new();
        let shown = card::parameters(&tool, &session, Cut::Nothing, AnswerMode::Functions);
        assert!(jsonschema::validator_for(&shown).is_ok(), "{shown}");
        assert_eq!(shown["properties"]["x"], json!({}));
        assert!(shown["properties"]["y"]["items"]["anyOf"].is_array(), "{shown}");
        assert_eq!(shown["properties"]["z"]["properties"]["a"]["type"], "object");
    }

    #[test]
    fn patterns_formats_and_types_that_no_provider_knows_are_left_out_or_mended() {
        let property = |property: Value| {
            let parameters = json!({"type": "object", "properties": {"a": property}});
            schema(&tool(parameters))["properties"]["a"].clone()
        };
        for pattern in ["^(?=a).*$", "^(?!a)", "(?<=x)y", r"^(a)\1$", r"\p{Han}+"] {
            assert_eq!(property(json!({"type": "string", "pattern": pattern})), json!({"type": "string"}), "{pattern}");
        }
        for format in ["uri", "int64", "password", "binary"] {
            let nested = json!({"type": "array", "items": {"type": "string", "format": format}});
            assert_eq!(property(nested), json!({"type": "array", "items": {"type": "string"}}), "{format}");
        }
        assert_eq!(
            property(json!({"type": "dict", "properties": {"n": {"type": "float"}}})),
            json!({"type": "object", "properties": {"n": {"type": "number"}}})
        );
    }

    #[test]
    fn names_of_arguments_fit_and_lead_back() {
        let parameters = json!({"type": "object", "required": ["订单号", "a b"], "properties": {
            "订单号": {"type": "string", "description": "如 SO-1"}, "a b": {"type": "integer"}, "a_b": {"type": "integer"},
            "x".repeat(80): {"type": "string"}, "$filter": {}, "ok.name-1": {"type": "string"}}});
        let shop = Shop::of(vec![with("f", parameters)]);
        let tools = shop.tools();
        let request = shop.request("hi", &tools);
        let list = Shortlist::new(&request, 128, AnswerMode::Functions);
        let schema = card::parameters(tools[0], request.session, Cut::Nothing, AnswerMode::Functions);
        let names: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
        let fits = |name: &str| {
            (1..=64).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
        };
        assert!(names.len() == 6 && names.iter().all(|name| fits(name)), "{names:?}");
        assert!(names.iter().any(|name| *name == "a_b") && names.iter().any(|name| *name == "ok.name-1"));
        let alias = argument_alias("订单号");
        assert_eq!(schema["properties"][&alias]["description"], "订单号: 如 SO-1");
        assert_eq!(schema["required"], json!([alias, argument_alias("a b")]));

        let call = |name: &str, arguments: Value| {
            let arguments = Arguments::Object(arguments.as_object().unwrap().clone());
            let call = RawCall { name: name.into(), arguments };
            let restored = restored(Completion { calls: vec![call], ..Completion::default() }, &list);
            let Arguments::Object(map) = &restored.calls[0].arguments else { panic!() };
            Value::Object(map.clone())
        };
        let given = json!({alias.clone(): "SO-1", argument_alias("a b"): 3, "a_b": 4, "odd": 5});
        let meant = json!({"订单号": "SO-1", "a b": 3, "a_b": 4, "odd": 5});
        assert_eq!(call("f", given.clone()), meant);
        assert_eq!(call("f", meant.clone()), meant, "the author's own names are understood as well");
        assert_eq!(renamed(meant.as_object().unwrap())[&alias], "SO-1");
        let question =
            json!({"tool": "f", "missing": [alias], "arguments": {argument_alias("a b"): 3}, "question": "?"});
        assert_eq!(call("ask_user", question)["missing"], json!(["订单号"]));
        let plain = card::parameters(tools[0], request.session, Cut::Nothing, AnswerMode::JsonSchema);
        assert!(plain["properties"].get("订单号").is_some(), "only functions are checked by their provider");
    }
}
