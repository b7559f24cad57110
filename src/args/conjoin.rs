//! Two schemas that both hold, written as one: for reading, not for validation.
//!
//! What the one lets through, the two do or more: what one keyword cannot say of both stays in an `allOf`.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

/// Keywords that mean something only together.
const GROUPS: [&[&str]; 3] = [
    &["if", "then", "else"],
    &["contains", "minContains", "maxContains"],
    &["prefixItems", "items", "additionalItems", "unevaluatedItems"],
];

/// `base` and `over`; of words and other keywords that restrict nothing, those of `over`.
pub(super) fn conjoin(mut base: Map<String, Value>, over: Map<String, Value>) -> Map<String, Value> {
    let mut out = over;
    let mut rest: Vec<Value> = Vec::new();
    for group in GROUPS {
        if !clashes(group, &base, &out) {
            continue;
        }
        let apart: Map<String, Value> = group.iter().filter_map(|keyword| base.remove_entry(*keyword)).collect();
        rest.push(Value::Object(apart));
    }
    let mut single = Map::new();
    for (keyword, value) in base {
        let Some(own) = out.remove(&keyword) else {
            out.insert(keyword, value);
            continue;
        };
        let (one, left) = if own == value { (own, None) } else { one(&keyword, value, own) };
        out.insert(keyword.clone(), one);
        single.extend(left.map(|left| (keyword, left)));
    }
    if !single.is_empty() {
        rest.push(Value::Object(single));
    }
    if !rest.is_empty()
        && let Value::Array(all) = out.entry("allOf").or_insert_with(|| json!([]))
    {
        all.extend(rest);
    }
    out
}

fn clashes(group: &[&str], base: &Map<String, Value>, over: &Map<String, Value>) -> bool {
    let own = |schema: &Map<String, Value>| group.iter().any(|keyword| schema.contains_key(*keyword));
    let same = group.iter().all(|keyword| base.get(*keyword) == over.get(*keyword));
    // `items` alone is one schema for all, and two of those are one.
    let plain = |schema: &Map<String, Value>| {
        group
            .iter()
            .all(|keyword| !schema.contains_key(*keyword) || *keyword == "items" && schema[*keyword].is_object())
    };
    own(base) && own(over) && !same && !(plain(base) && plain(over))
}

/// The keyword as it stands for both, and what it cannot say of `base`.
fn one(keyword: &str, base: Value, over: Value) -> (Value, Option<Value>) {
    match (keyword, base, over) {
        (
            "properties" | "patternProperties" | "dependentSchemas" | "$defs" | "definitions",
            Value::Object(base),
            Value::Object(mut over),
        ) => {
            for (name, schema) in base {
                let both = match over.remove(&name) {
                    Some(own) => schemas(schema, own),
                    None => schema,
                };
                over.insert(name, both);
            }
            (Value::Object(over), None)
        }
        ("additionalProperties" | "unevaluatedProperties" | "propertyNames" | "items", base, over) => {
            (schemas(base, over), None)
        }
        ("required", Value::Array(base), Value::Array(over)) => {
            (Value::Array(unique(base.into_iter().chain(over))), None)
        }
        ("allOf", Value::Array(mut base), Value::Array(over)) => {
            base.extend(over);
            (Value::Array(base), None)
        }
        ("type", base, over) => common_types(base, over),
        ("enum", Value::Array(base), Value::Array(over)) => {
            // Lists that are long and differ are not compared value by value.
            const MOST: usize = 10_000;
            let small = base.len().saturating_mul(over.len()) <= MOST;
            let common: Vec<Value> = over.iter().filter(|value| small && base.contains(value)).cloned().collect();
            if common.is_empty() {
                (Value::Array(over), Some(Value::Array(base)))
            } else {
                (Value::Array(common), None)
            }
        }
        ("minimum" | "exclusiveMinimum" | "minLength" | "minItems" | "minProperties", base, over) => {
            if base.as_f64() > over.as_f64() { (base, None) } else { (over, None) }
        }
        ("maximum" | "exclusiveMaximum" | "maxLength" | "maxItems" | "maxProperties", base, over) => {
            if base.as_f64() < over.as_f64() { (base, None) } else { (over, None) }
        }
        ("uniqueItems", _, _) => (Value::Bool(true), None),
        (
            "const" | "enum" | "pattern" | "format" | "multipleOf" | "not" | "anyOf" | "oneOf" | "$ref" | "$dynamicRef"
            | "$recursiveRef" | "dependentRequired" | "dependencies",
            base,
            over,
        ) => (over, Some(base)),
        (_, _, over) => (over, None),
    }
}

/// Names without those that were there before; what is no name stays.
pub(super) fn unique(names: impl Iterator<Item = Value>) -> Vec<Value> {
    let mut known = BTreeSet::new();
    names.filter(|name| name.as_str().is_none_or(|name| known.insert(name.to_owned()))).collect()
}

fn schemas(base: Value, over: Value) -> Value {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => Value::Object(conjoin(base, over)),
        (Value::Bool(true), other) | (other, Value::Bool(true)) => other,
        (Value::Bool(false), _) | (_, Value::Bool(false)) => Value::Bool(false),
        (_, over) => over,
    }
}

fn common_types(base: Value, over: Value) -> (Value, Option<Value>) {
    let (of_base, of_over) = (names(&base), names(&over));
    let holds = |name: &str, list: &[&str]| list.contains(&name) || name == "integer" && list.contains(&"number");
    let mut common: Vec<&str> = of_over.iter().copied().filter(|name| holds(name, &of_base)).collect();
    let narrower = of_base.iter().copied().filter(|name| holds(name, &of_over));
    common.extend(narrower.filter(|name| !of_over.contains(name)).collect::<Vec<_>>());
    let is_list = base.is_array() && over.is_array();
    match common.as_slice() {
        [] => (over, Some(base)),
        [only] if !is_list => (json!(only), None),
        many => (json!(many), None),
    }
}

fn names(kinds: &Value) -> Vec<&str> {
    match kinds {
        Value::String(name) => vec![name],
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
    }
}

/// The schema that lets `null` through besides what `schema` does; `None` if its keywords cannot say that.
pub(super) fn nullable(schema: &Map<String, Value>) -> Option<Map<String, Value>> {
    const SAYING_MORE: [&str; 11] = [
        "$ref",
        "$dynamicRef",
        "$recursiveRef",
        "allOf",
        "anyOf",
        "oneOf",
        "not",
        "if",
        "then",
        "else",
        "unevaluatedProperties",
    ];
    if SAYING_MORE.iter().any(|keyword| schema.contains_key(*keyword)) {
        return None;
    }
    let mut out = schema.clone();
    if let Some(kinds) = schema.get("type") {
        let mut kinds = names(kinds);
        if !kinds.contains(&"null") {
            kinds.push("null");
            out.insert("type".into(), json!(kinds));
        }
    }
    if let Some(only) = out.remove("const") {
        out.entry("enum").or_insert_with(|| json!([only]));
    }
    if let Some(Value::Array(values)) = out.get_mut("enum")
        && !values.contains(&Value::Null)
    {
        values.push(Value::Null);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(base: Value, over: Value, expected: Value) {
        assert_eq!(schemas(base, over), expected);
    }

    #[test]
    fn both_are_kept_and_the_narrower_bound_holds() {
        check(
            json!({"type": "object", "description": "base", "required": ["id"], "properties": {"id": {"type": "string"}}}),
            json!({"description": "own", "required": ["age", "id"], "properties": {"age": {"type": "integer"}}}),
            json!({"type": "object", "description": "own", "required": ["id", "age"],
                "properties": {"id": {"type": "string"}, "age": {"type": "integer"}}}),
        );
        check(
            json!({"properties": {"n": {"type": "number", "minimum": 1, "maximum": 9}, "k": {"enum": ["a", "b"]}}}),
            json!({"properties": {"n": {"type": ["integer", "null"], "minimum": 0, "maximum": 5}, "k": {"enum": ["b", "c"]}}}),
            json!({"properties": {"n": {"type": "integer", "minimum": 1, "maximum": 5}, "k": {"enum": ["b"]}}}),
        );
        check(json!(true), json!({"type": "string"}), json!({"type": "string"}));
    }

    #[test]
    fn what_one_keyword_cannot_say_of_both_stays_beside_it() {
        check(
            json!({"pattern": "^a", "type": "string", "if": {"const": 1}, "then": false}),
            json!({"pattern": "b$", "type": "integer", "if": {"const": 2}, "then": true}),
            json!({"pattern": "b$", "type": "integer", "if": {"const": 2}, "then": true,
                "allOf": [{"if": {"const": 1}, "then": false}, {"pattern": "^a", "type": "string"}]}),
        );
        check(
            json!({"prefixItems": [{}, {"const": 1}], "items": {"const": 2}}),
            json!({"prefixItems": [{}], "items": {"minimum": 1}}),
            json!({"prefixItems": [{}], "items": {"minimum": 1},
                "allOf": [{"prefixItems": [{}, {"const": 1}], "items": {"const": 2}}]}),
        );
    }

    fn schema() -> impl Strategy<Value = Value> {
        let number = prop::sample::select(vec![0, 1, 2, 3]);
        let kind = prop::sample::select(vec!["string", "integer", "number", "null", "array", "object"]);
        let leaf = prop_oneof![
            kind.clone().prop_map(|kind| json!({ "type": kind })),
            prop::collection::vec(kind, 1..3).prop_map(|kinds| {
                let kinds: BTreeSet<&str> = kinds.into_iter().collect();
                json!({ "type": kinds })
            }),
            (number.clone(), number.clone()).prop_map(|(low, high)| json!({"minimum": low, "maximum": high})),
            number.clone().prop_map(|least| json!({"minLength": least, "maxItems": least})),
            Just(json!({"enum": [1, "a", null]})),
            Just(json!({"enum": [1, 2, "b"]})),
            Just(json!({"const": "a"})),
            Just(json!({"pattern": "^a"})),
            Just(json!({"required": ["p"]})),
            Just(json!({"uniqueItems": false})),
            Just(json!(true)),
        ];
        leaf.prop_recursive(3, 12, 3, |inner| {
            let keyword = prop::sample::select(vec![
                "items",
                "contains",
                "not",
                "if",
                "then",
                "else",
                "additionalProperties",
                "propertyNames",
            ]);
            let list = prop::sample::select(vec!["prefixItems", "anyOf", "oneOf", "allOf"]);
            let part = prop_oneof![
                (keyword, inner.clone()).prop_map(|(keyword, schema)| json!({ keyword: schema })),
                (list, prop::collection::vec(inner.clone(), 1..3)).prop_map(|(list, all)| json!({ list: all })),
                ("[pq]", inner.clone()).prop_map(|(name, schema)| json!({"properties": {name: schema}})),
                inner,
            ];
            prop::collection::vec(part, 1..4).prop_map(|parts| {
                let maps = parts.into_iter().filter_map(|part| part.as_object().cloned());
                Value::Object(maps.flatten().collect())
            })
        })
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            (0..4).prop_map(|n| json!(n)),
            Just(json!(1.5)),
            prop::sample::select(vec!["a", "b", "ab", ""]).prop_map(|text| json!(text)),
        ];
        leaf.prop_recursive(2, 8, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::Array),
                prop::collection::btree_map("[pqr]", inner, 0..3).prop_map(|map| map.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn no_value_that_both_let_through_is_forbidden(base in schema(), over in schema(), value in value()) {
            let valid = |schema: &Value| jsonschema::validator_for(schema).unwrap().is_valid(&value);
            let both = schemas(base.clone(), over.clone());
            prop_assert!(!valid(&base) || !valid(&over) || valid(&both), "{base} and {over} are {both}");
        }

        #[test]
        fn null_is_all_that_a_nullable_schema_adds(schema in schema(), value in value()) {
            let Some(map) = schema.as_object() else { return Ok(()) };
            let Some(wider) = nullable(map) else { return Ok(()) };
            let valid = |schema: &Value| jsonschema::validator_for(schema).unwrap().is_valid(&value);
            prop_assert_eq!(valid(&Value::Object(wider)), value.is_null() || valid(&schema));
        }
    }
}
