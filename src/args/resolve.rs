//! The properties of a schema with references inlined: for reading, not for validation.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// References within references that are followed; a recursive one stays as it is beyond.
const MAX_REFERENCES: usize = 8;
/// Values written out per property and per schema; the rest stays as it is. References multiply: a schema of a few
/// kilobytes can stand for one of any size.
const MAX_NODES: usize = 2_000;
const MAX_NODES_IN_ALL: usize = 200_000;

/// The value a reference's fragment (after `#`) points to.
pub(super) fn target<'a>(document: &'a Value, fragment: &str) -> Option<&'a Value> {
    document.pointer(&percent_decoded(fragment))
}

/// As the validator reads it: the spelled-out text is nobody's name.
fn percent_decoded(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return Cow::Borrowed(text);
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let digits =
            bytes.get(at + 1..at + 3).filter(|digits| *byte == b'%' && digits.iter().all(u8::is_ascii_hexdigit));
        let code = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        out.push(code.unwrap_or(*byte));
        at += if code.is_some() { 3 } else { 1 };
    }
    Cow::Owned(String::from_utf8_lossy(&out).into_owned())
}

/// The root schema; a reference at the root is followed, its siblings win.
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
    let mut properties = BTreeMap::new();
    let mut required = Vec::new();
    let mut budget = MAX_NODES_IN_ALL;
    collect(root, document, 0, &mut budget, &mut properties, &mut required);
    (properties, required)
}

fn collect(
    schema: &Map<String, Value>,
    document: &Value,
    depth: usize,
    budget: &mut usize,
    properties: &mut BTreeMap<String, Value>,
    required: &mut Vec<String>,
) {
    if let Some(Value::Object(own)) = schema.get("properties") {
        for (name, property) in own {
            if !properties.contains_key(name) {
                let share = MAX_NODES.min(*budget);
                let mut left = share;
                properties.insert(name.clone(), inline(property, document, 0, &mut left));
                *budget -= share - left;
            }
        }
    }
    for name in schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
        if !required.iter().any(|known| known == name) {
            required.push(name.to_owned());
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
        collect(&branch, document, depth + 1, budget, properties, required);
    }
}

/// The target of `schema`'s reference with the siblings of the reference laid over it; `None` without a reference or
/// when a copy of its target goes beyond `budget`.
fn follow(schema: &Map<String, Value>, document: &Value, budget: &mut usize) -> Option<Map<String, Value>> {
    let fragment = schema.get("$ref")?.as_str()?.strip_prefix('#')?;
    let target = target(document, fragment)?;
    let mut left = *budget;
    let affordable = spend(target, &mut left);
    *budget = left;
    let mut merged = target.as_object().filter(|_| affordable)?.clone();
    for (keyword, value) in schema.iter().filter(|(keyword, _)| *keyword != "$ref") {
        merged.insert(keyword.clone(), value.clone());
    }
    Some(merged)
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
        let value = match (keyword.as_str(), value) {
            ("properties", Value::Object(members)) => Value::Object(
                members
                    .iter()
                    .map(|(name, member)| (name.clone(), inline(member, document, references + 1, budget)))
                    .collect(),
            ),
            ("anyOf" | "oneOf" | "allOf" | "prefixItems", Value::Array(branches)) => {
                Value::Array(branches.iter().map(|branch| inline(branch, document, references, budget)).collect())
            }
            ("items" | "additionalProperties", Value::Object(_)) => inline(value, document, references + 1, budget),
            _ => value.clone(),
        };
        out.insert(keyword.clone(), value);
    }
    Value::Object(flatten_union(out))
}

/// `anyOf: [X, null]` (how many generators write an optional field) and a single-branch `allOf` read as X.
fn flatten_union(mut schema: Map<String, Value>) -> Map<String, Value> {
    for keyword in ["anyOf", "oneOf", "allOf"] {
        let Some(Value::Array(branches)) = schema.get(keyword) else { continue };
        let real: Vec<&Value> =
            branches.iter().filter(|branch| branch.get("type").is_none_or(|kind| kind != "null")).collect();
        if let [Value::Object(only)] = real.as_slice() {
            let mut merged = only.clone();
            schema.remove(keyword);
            merged.extend(schema);
            return merged;
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
        assert_eq!(properties["y"], json!({"type": "string", "pattern": "^a$"}));
        assert_eq!(required, ["y"]);
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
