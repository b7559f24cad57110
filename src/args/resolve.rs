//! The properties of a schema with references inlined: for reading, not for validation.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::conjoin::{conjoin, nullable, unique};
use super::keywords::{LIST, NAMED, ONE};
use crate::types::encoding::percent_decoded;

/// References within references that are followed; a recursive one stays as it is beyond.
const MAX_REFERENCES: usize = 8;
/// Values written out per property and per schema; the rest stays as it is. References multiply: a schema of a few
/// kilobytes can stand for one of any size.
const MAX_NODES: usize = 2_000;
const MAX_NODES_IN_ALL: usize = 200_000;

/// The value a reference's fragment (after `#`) points to. A member whose name spells out an escape is not what it means.
pub(super) fn target<'a>(document: &'a Value, fragment: &str) -> Option<&'a Value> {
    document.pointer(&percent_decoded(fragment))
}

/// The value a reference points to that stays in `document` and is no name; as the validator follows it.
pub(crate) fn local<'a>(document: &'a Value, reference: &str) -> Option<&'a Value> {
    target(document, reference.strip_prefix('#')?)
}

/// The root schema; a reference at the root is followed, what stands beside it holds as well.
pub(super) fn root(document: &Value) -> Map<String, Value> {
    let mut current = document.as_object().cloned().unwrap_or_default();
    let mut budget = MAX_NODES_IN_ALL;
    for _ in 0..MAX_REFERENCES {
        match follow(&current, document, &mut budget) {
            Some(next) => current = next,
            None => break,
        }
    }
    current
}

/// Every property by name, inlined, and the required names in order. Branches of `allOf` count.
pub(super) fn properties(root: &Map<String, Value>, document: &Value) -> (BTreeMap<String, Value>, Vec<String>) {
    let mut found = Found::default();
    let mut budget = MAX_NODES_IN_ALL;
    collect(root, document, 0, &mut budget, &mut found);
    let one = |forms: Vec<Value>| match <[Value; 1]>::try_from(forms) {
        Ok([only]) => only,
        Err(forms) => Value::Object(flat(Map::from_iter([("allOf".to_owned(), Value::Array(forms))]))),
    };
    (found.forms.into_iter().map(|(name, forms)| (name, one(forms))).collect(), found.required)
}

#[derive(Default)]
struct Found {
    /// Each property as the branches have it that name it.
    forms: BTreeMap<String, Vec<Value>>,
    required: Vec<String>,
    /// Names in `required`, to find them by.
    known: BTreeSet<String>,
}

fn collect(schema: &Map<String, Value>, document: &Value, depth: usize, budget: &mut usize, found: &mut Found) {
    if let Some(Value::Object(own)) = schema.get("properties") {
        for (name, property) in own {
            let share = MAX_NODES.min(*budget);
            let mut left = share;
            found.forms.entry(name.clone()).or_default().push(inline(property, document, 0, &mut left));
            *budget -= share - left;
        }
    }
    for name in schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
        if found.known.insert(name.to_owned()) {
            found.required.push(name.to_owned());
        }
    }
    if depth >= MAX_REFERENCES {
        return;
    }
    for branch in schema.get("allOf").and_then(Value::as_array).into_iter().flatten() {
        if *budget == 0 {
            return;
        }
        *budget -= 1;
        let branch = branch.as_object().cloned().unwrap_or_default();
        let branch = follow(&branch, document, budget).unwrap_or(branch);
        collect(&branch, document, depth + 1, budget, found);
    }
}

/// The target of `schema`'s reference together with the siblings of the reference; `None` without a reference or
/// when a copy of its target goes beyond `budget`.
fn follow(schema: &Map<String, Value>, document: &Value, budget: &mut usize) -> Option<Map<String, Value>> {
    let target = local(document, schema.get("$ref")?.as_str()?)?;
    let mut left = *budget;
    let affordable = spend(target, &mut left);
    *budget = left;
    let target = target.as_object().filter(|_| affordable)?.clone();
    let mut beside = schema.clone();
    beside.remove("$ref");
    Some(conjoin(target, beside))
}

/// Takes one from `budget` for each value inside `value`; false when it does not suffice.
fn spend(value: &Value, budget: &mut usize) -> bool {
    let Some(left) = budget.checked_sub(1) else { return false };
    *budget = left;
    match value {
        Value::Array(items) => items.iter().all(|item| spend(item, budget)),
        Value::Object(members) => members.values().all(|member| spend(member, budget)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

fn inline(schema: &Value, document: &Value, references: usize, budget: &mut usize) -> Value {
    let Value::Object(map) = schema else { return schema.clone() };
    if *budget == 0 {
        return schema.clone();
    }
    *budget -= 1;
    if references < MAX_REFERENCES
        && let Some(merged) = follow(map, document, budget)
    {
        return inline(&Value::Object(merged), document, references + 1, budget);
    }
    let mut out = Map::new();
    for (keyword, value) in map {
        // A part of the same value is as deep in references as the whole, a part of its members one deeper.
        let inner = references + usize::from(!SAME_VALUE.contains(&keyword.as_str()));
        let value = match value {
            Value::Object(members) if NAMED.contains(&keyword.as_str()) && !is_definitions(keyword) => Value::Object(
                members.iter().map(|(name, member)| (name.clone(), inline(member, document, inner, budget))).collect(),
            ),
            Value::Array(branches) if LIST.contains(&keyword.as_str()) || keyword == "items" => {
                Value::Array(branches.iter().map(|branch| inline(branch, document, inner, budget)).collect())
            }
            Value::Object(_) if ONE.contains(&keyword.as_str()) => inline(value, document, inner, budget),
            _ => value.clone(),
        };
        out.insert(keyword.clone(), value);
    }
    Value::Object(flat(out))
}

const SAME_VALUE: [&str; 8] = ["anyOf", "oneOf", "allOf", "not", "if", "then", "else", "dependentSchemas"];

fn is_definitions(keyword: &str) -> bool {
    matches!(keyword, "$defs" | "definitions")
}

/// The branches of `allOf` as keywords of the whole, as far as they can be written so, and `anyOf: [X, null]`, how many
/// generators write an optional field, as an X that may be null.
fn flat(mut schema: Map<String, Value>) -> Map<String, Value> {
    if let Some(Value::Array(branches)) = schema.remove("allOf") {
        let mut kept = Vec::new();
        // Once for all branches: each of many may add few to a list that is long.
        let mut required = Vec::new();
        let own = schema.remove("required");
        for branch in branches {
            match branch {
                Value::Bool(true) => {}
                // What is not written out has a name at least.
                Value::Object(mut branch) if !branch.contains_key("$ref") => {
                    required.extend(branch.remove("required"));
                    schema = conjoin(branch, schema);
                }
                other => kept.push(other),
            }
        }
        let names = required.into_iter().chain(own).filter_map(|names| match names {
            Value::Array(names) => Some(names),
            _ => None,
        });
        let names = unique(names.flatten());
        if !names.is_empty() {
            schema.insert("required".into(), Value::Array(names));
        }
        if !kept.is_empty()
            && let Value::Array(all) = schema.entry("allOf").or_insert_with(|| json!([]))
        {
            all.extend(kept);
        }
    }
    for keyword in ["anyOf", "oneOf"] {
        let Some(Value::Array(branches)) = schema.get(keyword) else { continue };
        let is_null = |branch: &&Value| branch.get("type").is_some_and(|kind| kind == "null");
        let real: Vec<&Value> = branches.iter().filter(|branch| !is_null(branch)).collect();
        let [Value::Object(only)] = real.as_slice() else { continue };
        let one = if branches.len() > 1 { nullable(only) } else { Some(only.clone()) };
        if let Some(one) = one {
            schema.remove(keyword);
            schema = conjoin(one, schema);
        }
    }
    schema
}

#[cfg(test)]
mod tests {

    use serde_json::json;

    use super::*;

    fn read(document: &Value) -> (BTreeMap<String, Value>, Vec<String>) {
        properties(&root(document), document)
    }

    #[test]
    fn schemas_that_multiply_themselves_end() {
        let branches = vec![json!({"$ref": "#"}); 30];
        let doubling = json!({"type": "object", "properties": {"a": {"type": "string"}}, "allOf": branches});
        let members: Map<String, Value> = (0..2_000).map(|i| (format!("p{i}"), json!({"$ref": "#"}))).collect();
        let wide = json!({"type": "object", "properties": members});
        assert_eq!(read(&doubling).0["a"], json!({"type": "string"}));
        assert_eq!(read(&wide).0.len(), 2_000);
    }

    #[test]
    fn usual_references_are_written_out() {
        let document = json!({
            "$defs": {"id": {"type": "string", "pattern": "^a$"}},
            "properties": {"x": {"$ref": "#/$defs/id", "default": "a"}},
            "allOf": [{"properties": {"y": {"anyOf": [{"$ref": "#/$defs/id"}, {"type": "null"}]}}, "required": ["y"]}],
        });
        let (properties, required) = read(&document);
        assert_eq!(properties["x"], json!({"type": "string", "pattern": "^a$", "default": "a"}));
        assert_eq!(properties["y"], json!({"type": ["string", "null"], "pattern": "^a$"}));
        assert_eq!(required, ["y"]);
    }

    #[test]
    fn nothing_beside_a_reference_or_an_alternative_is_lost() {
        let base = json!({"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}, "k": {"type": "string"}}});
        let own = json!({"required": ["age"], "properties": {"age": {"type": "integer"}, "k": {"enum": ["a"]}}});
        let with = |keyword: &str, value: Value| {
            let mut schema = own.clone();
            schema[keyword] = value;
            schema
        };
        let reference = json!({"$ref": "#/$defs/Base"});
        let all_of = with("allOf", json!([reference, {"properties": {"b": {"$ref": "#/$defs/Base/properties/id"}}}]));
        let beside = with("$ref", reference["$ref"].clone());
        let document = json!({"$defs": {"Base": base}, "properties": {"nested": all_of, "beside": beside}});
        let properties = read(&document).0;
        let both = json!({"type": "object", "required": ["id", "age"], "properties":
            {"id": {"type": "string"}, "k": {"type": "string", "enum": ["a"]}, "age": {"type": "integer"}}});
        assert_eq!(properties["beside"], both);
        let mut with_b = both.clone();
        with_b["properties"]["b"] = json!({"type": "string"});
        assert_eq!(properties["nested"], with_b);
        for mut at_root in [beside, with("allOf", json!([reference]))] {
            at_root["$defs"] = json!({"Base": base});
            let (properties, required) = read(&at_root);
            assert_eq!(Value::Object(properties.into_iter().collect()), both["properties"]);
            assert_eq!(required.iter().collect::<BTreeSet<_>>(), BTreeSet::from([&"id".to_owned(), &"age".to_owned()]));
        }
    }

    #[test]
    fn references_are_read_as_the_validator_reads_them() {
        let document = json!({"a$b": 1, "é": 2, "%": 3, "x/y": 4, "%61": 5});
        let found = |fragment| target(&document, fragment).cloned();
        assert_eq!(found("/a%24b"), Some(json!(1)));
        assert_eq!(found("/%C3%A9"), Some(json!(2)));
        assert_eq!((found("/%"), found("/%25")), (Some(json!(3)), Some(json!(3))));
        assert_eq!((found("/x~1y"), found("/%61"), found("")), (Some(json!(4)), None, Some(document.clone())));
    }
}
