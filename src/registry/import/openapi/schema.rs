//! Schemas of an OpenAPI document as JSON Schema of draft 2020-12.
//!
//! Owns: references (each target once, under `$defs`, so that recursion costs nothing), the spellings of OpenAPI 3.0,
//! what only answers hold.
//! Does not know: which schemas belong to an operation.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::refs;
use crate::args::keywords::{LIST, NAMED, ONE};

/// Deeper schemas are refused.
const MAX_DEPTH: usize = 64;
/// References followed to see whether a property is read-only.
const MAX_HOPS: usize = 8;
/// Schema parts of one operation.
const MAX_NODES: usize = 20_000;

/// Keywords that mean nothing to whoever fills in arguments, or that would change what references mean.
const LEFT_OUT: [&str; 11] = [
    "xml",
    "externalDocs",
    "discriminator",
    "readOnly",
    "writeOnly",
    "$schema",
    "$id",
    "$anchor",
    "$dynamicAnchor",
    "$dynamicRef",
    "$vocabulary",
];

/// Converts the schemas of one operation.
pub(super) struct Schemas<'d> {
    document: &'d Value,
    /// Parts that may still be written out, of this operation and of the document.
    left: usize,
    left_in_all: usize,
    /// Name under `$defs` by pointer into the document.
    names: BTreeMap<String, String>,
    taken: BTreeSet<String>,
    pending: Vec<String>,
}

impl<'d> Schemas<'d> {
    pub fn new(document: &'d Value, left_in_all: usize) -> Self {
        let (names, taken) = (BTreeMap::new(), BTreeSet::new());
        Self { document, left: MAX_NODES.min(left_in_all), left_in_all, names, taken, pending: Vec::new() }
    }

    /// What `schema` refers to, or itself.
    pub fn follow(&self, schema: &'d Value) -> Result<&'d Map<String, Value>, String> {
        refs::follow(self.document, schema)
    }

    /// Whether only answers hold it.
    pub fn is_read_only(&self, schema: &Value) -> bool {
        let mut current = schema;
        for _ in 0..MAX_HOPS {
            if current.get("readOnly") == Some(&Value::Bool(true)) {
                return true;
            }
            let Some(reference) = current.get("$ref").and_then(Value::as_str) else { return false };
            match refs::target(self.document, reference) {
                Ok((_, target)) => current = target,
                Err(_) => return false,
            }
        }
        false
    }

    /// # Errors
    /// Why it cannot be used, in words.
    pub fn convert(&mut self, schema: &Value) -> Result<Value, String> {
        self.schema(schema, 0)
    }

    /// The targets of all references met so far, and what is left of the document's allowance.
    ///
    /// # Errors
    /// As [`Self::convert`].
    pub fn finish(mut self) -> (Result<Map<String, Value>, String>, usize) {
        let mut defs = Map::new();
        while let Some(pointer) = self.pending.pop() {
            let name = self.names[&pointer].clone();
            let target = self.document.pointer(&pointer).unwrap_or(&Value::Null);
            match self.schema(target, 0) {
                Ok(schema) => drop(defs.insert(name, schema)),
                Err(message) => return (Err(message), self.left_in_all),
            }
        }
        (Ok(defs), self.left_in_all)
    }

    fn spend(&mut self, nodes: usize) -> Result<(), String> {
        match self.left.checked_sub(nodes) {
            Some(left) => {
                self.left = left;
                self.left_in_all -= nodes;
                Ok(())
            }
            None if self.left_in_all < MAX_NODES => Err("the schemas of the document are too large in all".into()),
            None => Err(format!("the schemas of the operation have more than {MAX_NODES} parts")),
        }
    }

    fn schema(&mut self, schema: &Value, depth: usize) -> Result<Value, String> {
        if depth > MAX_DEPTH {
            return Err("a schema is nested too deeply".into());
        }
        self.spend(1)?;
        // What is no schema is reported with its place when the card's schema is compiled.
        let Value::Object(map) = schema else { return Ok(schema.clone()) };
        let mut out = Map::new();
        let mut hidden: Vec<&String> = Vec::new();
        for (keyword, value) in map {
            let converted = match (keyword.as_str(), value) {
                (key, _) if LEFT_OUT.contains(&key) || key.starts_with("x-") => continue,
                ("$ref", Value::String(reference)) => Value::String(self.reference(reference)?),
                ("properties", Value::Object(members)) => {
                    hidden =
                        members.iter().filter(|(_, member)| self.is_read_only(member)).map(|(name, _)| name).collect();
                    let shown = members.iter().filter(|(name, _)| !hidden.contains(name));
                    self.named(shown, depth)?
                }
                (key, Value::Object(members)) if NAMED.contains(&key) => self.named(members.iter(), depth)?,
                (key, Value::Array(branches)) if LIST.contains(&key) || key == "items" => {
                    let branches = branches.iter().map(|branch| self.schema(branch, depth + 1));
                    Value::Array(branches.collect::<Result<_, _>>()?)
                }
                (key, value) if ONE.contains(&key) => self.schema(value, depth + 1)?,
                (_, value) => {
                    self.spend(size(value, MAX_NODES))?;
                    value.clone()
                }
            };
            out.insert(keyword.clone(), converted);
        }
        if let Some(Value::Array(required)) = out.get_mut("required") {
            required.retain(|name| !hidden.iter().any(|hidden| name == hidden.as_str()));
        }
        exclusive(&mut out);
        Ok(nullable(out))
    }

    fn named<'m>(
        &mut self,
        members: impl Iterator<Item = (&'m String, &'m Value)>,
        depth: usize,
    ) -> Result<Value, String> {
        let members = members.map(|(name, member)| Ok((name.clone(), self.schema(member, depth + 1)?)));
        Ok(Value::Object(members.collect::<Result<_, String>>()?))
    }

    /// The same target by the name it gets under `$defs`.
    fn reference(&mut self, reference: &str) -> Result<String, String> {
        let (pointer, _) = refs::target(self.document, reference)?;
        if let Some(name) = self.names.get(&pointer) {
            return Ok(format!("#/$defs/{name}"));
        }
        let last = pointer.rsplit('/').next().unwrap_or_default();
        // Some readers of schemas take no other characters in a reference.
        let clean: String = last
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' })
            .take(64)
            .collect();
        let numbered = (2..).map(|number| format!("{clean}_{number}"));
        let mut names = std::iter::once(clean.clone()).chain(numbered);
        let name = names.find(|name| !self.taken.contains(name)).expect("there are more numbers than references");
        self.taken.insert(name.clone());
        self.names.insert(pointer.clone(), name.clone());
        self.pending.push(pointer);
        Ok(format!("#/$defs/{name}"))
    }
}

/// Values inside `value`, counted up to `most`.
fn size(value: &Value, most: usize) -> usize {
    let inner = |count: usize, value: &Value| if count > most { count } else { count + size(value, most - count) };
    match value {
        Value::Array(items) => items.iter().fold(1, inner),
        Value::Object(map) => map.values().fold(1, inner),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
    }
}

/// OpenAPI 3.0 has `exclusiveMinimum: true` beside `minimum`.
fn exclusive(schema: &mut Map<String, Value>) {
    for (exclusive, bound) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
        let Some(Value::Bool(is_exclusive)) = schema.get(exclusive) else { continue };
        let is_exclusive = *is_exclusive;
        schema.remove(exclusive);
        if is_exclusive && let Some(limit) = schema.remove(bound) {
            schema.insert(exclusive.to_owned(), limit);
        }
    }
}

/// OpenAPI 3.0 has `nullable: true`.
fn nullable(mut schema: Map<String, Value>) -> Value {
    if schema.remove("nullable") != Some(Value::Bool(true)) {
        return Value::Object(schema);
    }
    match schema.get("type") {
        Some(Value::String(kind)) => {
            let kinds = json!([kind, "null"]);
            schema.insert("type".into(), kinds);
            if let Some(Value::Array(values)) = schema.get_mut("enum")
                && !values.contains(&Value::Null)
            {
                values.push(Value::Null);
            }
            Value::Object(schema)
        }
        Some(_) => Value::Object(schema),
        None if schema.is_empty() => Value::Object(schema),
        None => {
            let mut outer = Map::new();
            for key in ["description", "title", "default", "example"] {
                outer.extend(schema.remove(key).map(|value| (key.to_owned(), value)));
            }
            outer.insert("anyOf".into(), json!([schema, {"type": "null"}]));
            Value::Object(outer)
        }
    }
}
