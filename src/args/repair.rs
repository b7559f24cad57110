//! Slips that schemas of real tools hold, put right before compiling: type names of programming languages, boolean
//! `exclusiveMinimum`, `required` on a property, `nullable`. What cannot be put right is refused with its place.

use serde_json::{Map, Value, json};

use super::SchemaError;
use super::conjoin::unique;
use super::keywords::{LIST, NAMED, ONE};
use crate::types::encoding::escape_pointer;

/// Deeper schemas are refused.
const MAX_DEPTH: usize = 64;
/// Schemas with more subschemas are refused.
const MAX_NODES: usize = 20_000;
/// More notices say nothing new.
const MAX_NOTICES: usize = 50;

const KINDS: [&str; 7] = ["string", "integer", "number", "boolean", "array", "object", "null"];

/// The schema with its slips repaired, and what was done.
pub(super) fn repair(schema: &Value) -> Result<(Value, Vec<String>), SchemaError> {
    let draft4 = schema.get("$schema").and_then(Value::as_str).is_some_and(|uri| uri.contains("draft-04"));
    let mut walk = Walk { root: schema, draft4, nodes: 0, notices: Vec::new() };
    let repaired = walk.schema(schema, &mut String::new(), 0)?;
    Ok((repaired, walk.notices))
}

struct Walk<'a> {
    root: &'a Value,
    draft4: bool,
    nodes: usize,
    notices: Vec<String>,
}

impl Walk<'_> {
    fn note(&mut self, pointer: &str, what: &str) {
        if self.notices.len() < MAX_NOTICES {
            self.notices.push(format!("{what} (at `{pointer}`)"));
        }
    }

    fn schema(&mut self, schema: &Value, pointer: &mut String, depth: usize) -> Result<Value, SchemaError> {
        self.nodes += 1;
        if depth > MAX_DEPTH {
            return Err(SchemaError::new(pointer.as_str(), "the schema is nested too deeply"));
        }
        if self.nodes > MAX_NODES {
            return Err(SchemaError::new(pointer.as_str(), "the schema is too large"));
        }
        let map = match schema {
            Value::Object(map) => map,
            Value::Bool(_) => return Ok(schema.clone()),
            Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                return Err(SchemaError::new(pointer.as_str(), "a schema must be an object, true or false"));
            }
        };
        let mut out = Map::new();
        for (keyword, value) in map {
            let length = pointer.len();
            pointer.push('/');
            pointer.push_str(&escape_pointer(keyword));
            if let Some(value) = self.keyword(keyword, value, pointer, depth)? {
                out.insert(keyword.clone(), value);
            }
            pointer.truncate(length);
        }
        self.numbers(&mut out, pointer);
        self.nullable(&mut out, pointer);
        self.hoist_required(map, &mut out, pointer);
        let as_list = matches!(out.get("items"), Some(Value::Array(_))) && !out.contains_key("prefixItems");
        if as_list
            && self.is_modern()
            && let Some(items) = out.remove("items")
        {
            out.insert("prefixItems".into(), items);
            self.note(pointer, "a list under `items` is read as `prefixItems`");
        }
        Ok(Value::Object(out))
    }

    /// `None`: the keyword is left out.
    fn keyword(
        &mut self,
        keyword: &str,
        value: &Value,
        pointer: &mut String,
        depth: usize,
    ) -> Result<Option<Value>, SchemaError> {
        if keyword == "items" && value.is_array() || LIST.contains(&keyword) {
            return self.list(value, pointer, depth).map(Some);
        }
        if ONE.contains(&keyword) {
            return self.schema(value, pointer, depth + 1).map(Some);
        }
        if NAMED.contains(&keyword) {
            return self.named(value, pointer, depth);
        }
        match (keyword, value) {
            ("type", _) => self.kind(value, pointer),
            // References are followed from the root, by the validator as well as by those who read the schema.
            ("$id", Value::String(address)) if depth > 0 && !address.starts_with('#') => self.drop_address(pointer),
            ("id", Value::String(address)) if self.draft4 && depth > 0 && !address.starts_with('#') => {
                self.drop_address(pointer)
            }
            ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(target)) => {
                self.reference(target, pointer).map(|()| Some(value.clone()))
            }
            ("$schema", Value::String(uri)) if !uri.contains("json-schema.org") => {
                self.note(pointer, "an unknown `$schema` is left out; draft 2020-12 is used");
                Ok(None)
            }
            ("$schema", Value::String(_)) => Ok(Some(value.clone())),
            ("$schema", _) => Ok(None),
            ("required", Value::Bool(_) | Value::Null) => Ok(None),
            ("enum", Value::Null) => self.drop_empty(pointer),
            ("enum", Value::Array(values)) if values.is_empty() => self.drop_empty(pointer),
            ("title" | "description" | "format" | "pattern" | "$comment", value) if !value.is_string() => {
                self.note(pointer, "not a text, left out");
                Ok(None)
            }
            ("pattern", Value::String(pattern)) => {
                let spelled = escaped_dashes(pattern);
                if spelled != *pattern {
                    self.note(pointer, "a bare `-` after a class in a pattern is read as that character");
                }
                Ok(Some(Value::String(spelled)))
            }
            ("examples", value) if !value.is_array() => Ok(None),
            (_, Value::Null) if keyword != "default" && keyword != "const" && keyword != "example" => Ok(None),
            _ => Ok(Some(value.clone())),
        }
    }

    fn drop_empty(&mut self, pointer: &str) -> Result<Option<Value>, SchemaError> {
        self.note(pointer, "an empty `enum` is left out");
        Ok(None)
    }

    fn drop_address(&mut self, pointer: &str) -> Result<Option<Value>, SchemaError> {
        self.note(pointer, "an `$id` inside the schema is left out; references start at its root");
        Ok(None)
    }

    fn list(&mut self, value: &Value, pointer: &mut String, depth: usize) -> Result<Value, SchemaError> {
        let Value::Array(branches) = value else {
            return Err(SchemaError::new(pointer.as_str(), "must be a list of schemas"));
        };
        let mut out = Vec::with_capacity(branches.len());
        for (i, branch) in branches.iter().enumerate() {
            let length = pointer.len();
            pointer.push_str(&format!("/{i}"));
            out.push(self.schema(branch, pointer, depth + 1)?);
            pointer.truncate(length);
        }
        Ok(Value::Array(out))
    }

    fn named(&mut self, value: &Value, pointer: &mut String, depth: usize) -> Result<Option<Value>, SchemaError> {
        let members = match value {
            Value::Object(members) => members,
            Value::Null => return Ok(None),
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                return Err(SchemaError::new(pointer.as_str(), "must map names to schemas"));
            }
        };
        let mut out = Map::new();
        for (name, member) in members {
            let length = pointer.len();
            pointer.push('/');
            pointer.push_str(&escape_pointer(name));
            out.insert(name.clone(), self.schema(member, pointer, depth + 1)?);
            pointer.truncate(length);
        }
        Ok(Some(Value::Object(out)))
    }

    fn kind(&mut self, value: &Value, pointer: &str) -> Result<Option<Value>, SchemaError> {
        let names: Vec<&str> = match value {
            Value::String(name) => vec![name],
            Value::Array(names) if names.iter().all(Value::is_string) => {
                names.iter().filter_map(Value::as_str).collect()
            }
            _ => return Err(SchemaError::new(pointer, "must be a type name or a list of type names")),
        };
        let mut known = Vec::with_capacity(names.len());
        for name in names {
            if KINDS.contains(&name) {
                known.push(name);
                continue;
            }
            match alias(name) {
                Some(Some(kind)) => {
                    self.note(pointer, &format!("type `{name}` is read as `{kind}`"));
                    known.push(kind);
                }
                Some(None) => {
                    self.note(pointer, &format!("type `{name}` allows any value"));
                    return Ok(None);
                }
                None => return Err(SchemaError::new(pointer, format!("`{name}` is not a JSON type"))),
            }
        }
        known.dedup();
        Ok(match known.as_slice() {
            [] => None,
            [one] if value.is_string() => Some(json!(one)),
            many => Some(json!(many)),
        })
    }

    fn reference(&self, target: &str, pointer: &str) -> Result<(), SchemaError> {
        let Some(fragment) = target.strip_prefix('#') else {
            return Err(SchemaError::new(pointer, "references to other documents are not followed"));
        };
        let is_anchor = !fragment.is_empty() && !fragment.starts_with('/');
        if is_anchor || super::resolve::target(self.root, fragment).is_some() {
            return Ok(()); // Anchors are looked up when compiling.
        }
        Err(SchemaError::new(pointer, "the reference leads nowhere"))
    }

    fn is_modern(&self) -> bool {
        self.root
            .get("$schema")
            .and_then(Value::as_str)
            .is_none_or(|uri| !uri.contains("draft-0") && !uri.contains("2019-09"))
    }

    /// Draft 4 had `exclusiveMinimum: true` beside `minimum`.
    fn numbers(&mut self, out: &mut Map<String, Value>, pointer: &str) {
        if self.draft4 {
            return;
        }
        for (exclusive, bound) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
            let Some(Value::Bool(is_exclusive)) = out.get(exclusive) else { continue };
            if *is_exclusive && out.get(bound).is_some_and(Value::is_number) {
                let limit = out.remove(bound).unwrap_or_default();
                out.insert(exclusive.into(), limit);
            } else {
                out.remove(exclusive);
            }
            self.note(pointer, &format!("a boolean `{exclusive}` is read as in draft 4"));
        }
    }

    /// OpenAPI 3.0 writes `nullable: true`.
    fn nullable(&mut self, out: &mut Map<String, Value>, pointer: &str) {
        if out.get("nullable") != Some(&Value::Bool(true)) {
            return;
        }
        if let Some(Value::String(kind)) = out.get("type") {
            let kinds = json!([kind, "null"]);
            out.insert("type".into(), kinds);
            if let Some(Value::Array(values)) = out.get_mut("enum") {
                values.push(Value::Null);
                values.dedup();
            }
            self.note(pointer, "`nullable` is read as type `null`");
        }
    }

    /// Draft 3 wrote `required: true` on the property itself.
    fn hoist_required(&mut self, map: &Map<String, Value>, out: &mut Map<String, Value>, pointer: &str) {
        let Some(Value::Object(properties)) = map.get("properties") else { return };
        let marked = properties.iter().filter(|(_, schema)| schema.get("required") == Some(&Value::Bool(true)));
        let names: Vec<&String> = marked.map(|(name, _)| name).collect();
        if names.is_empty() {
            return;
        }
        let required = out.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
        // What is no name is for the compiler to refuse.
        let all = unique(required.into_iter().chain(names.into_iter().map(|name| json!(name))));
        out.insert("required".into(), Value::Array(all));
        self.note(pointer, "`required: true` on a property is read as a required property");
    }
}

/// Browsers take `[\w-.]` for a class with a dash; our engine wants the dash escaped.
fn escaped_dashes(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 2);
    let mut in_class = false;
    let mut after_shorthand = false;
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        let was_shorthand = std::mem::take(&mut after_shorthand);
        match c {
            '\\' => {
                out.push(c);
                if let Some(escaped) = chars.next() {
                    out.push(escaped);
                    after_shorthand = in_class && "wdsWDS".contains(escaped);
                }
                continue;
            }
            '[' if !in_class => in_class = true,
            ']' => in_class = false,
            '-' if was_shorthand && chars.peek().is_some_and(|next| *next != ']') => out.push('\\'),
            _ => {}
        }
        out.push(c);
    }
    out
}

/// Whether a `type` lets objects through once its slips are repaired: `None` if not, else whether it holds slips.
pub(crate) fn object_type(kind: &Value) -> Option<bool> {
    let names = match kind {
        Value::String(_) => std::slice::from_ref(kind),
        Value::Array(names) => names,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => return None,
    };
    let names = || names.iter().filter_map(Value::as_str);
    let is_object = |name: &str| name == "object" || matches!(alias(name), Some(Some("object") | None));
    names().any(is_object).then(|| names().any(|name| !KINDS.contains(&name)))
}

/// JSON type for the type name of a programming language: `Some(None)` allows anything, `None` is unknown.
fn alias(name: &str) -> Option<Option<&'static str>> {
    let bare = name.trim().to_lowercase();
    let bare = bare.split(['[', '<', '(']).next().unwrap_or_default().trim();
    Some(match bare {
        "string" | "str" | "char" | "text" | "varchar" | "date" | "datetime" | "timestamp" | "time" | "uuid"
        | "url" | "email" => Some("string"),
        "integer" | "int" | "int32" | "int64" | "long" | "short" | "byte" | "uint" | "bigint" => Some("integer"),
        "number" | "float" | "double" | "decimal" | "numeric" | "float32" | "float64" => Some("number"),
        "boolean" | "bool" => Some("boolean"),
        "array" | "list" | "tuple" | "set" | "arraylist" | "vector" => Some("array"),
        "object" | "dict" | "dictionary" | "map" | "hashmap" | "json" | "struct" => Some("object"),
        "null" | "none" => Some("null"),
        "any" | "mixed" | "unknown" => None,
        _ => return None,
    })
}
