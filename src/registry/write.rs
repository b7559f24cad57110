//! Cards as a native YAML file.
//!
//! Owns: that the file, loaded again, holds the same cards.
//! Does not know: where the file goes.
//!
//! Every text is a JSON string, which is YAML too, so no content can be taken for something else.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::Registry;
use crate::tool::{Execution, SideEffect, ToolCard};

/// Keys that some readers of YAML take for something else than text.
const WORDS: [&str; 9] = ["null", "true", "false", "yes", "no", "on", "off", "y", "n"];
/// Longest key that stands in front of its value on one line.
const MAX_PLAIN_KEY: usize = 64;
/// The most that YAML allows for a key that does not stand alone.
const MAX_SIMPLE_KEY: usize = 512;

/// The cards as a file of one registry called `name`. `comment` goes to its top, one `#` a line.
///
/// What a card does not state stays open: the file says `imported: true`, with which missing fields have defaults.
pub fn to_yaml(registry: &Registry, name: &str, comment: &str) -> String {
    let mut out = String::new();
    for line in comment.lines() {
        let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        out.push_str(format!("# {line}").trim_end());
        out.push('\n');
    }
    out.push_str(&format!("registry: {}\nimported: true\n", text(name)));
    let scopes = scopes(registry);
    if !scopes.is_empty() {
        out.push_str("scopes:\n");
        items(&scopes, 1, &mut out);
    }
    if registry.cards.is_empty() {
        out.push_str("tools: []\n");
        return out;
    }
    out.push_str("tools:\n");
    for card in registry.cards.values() {
        let open = if card.side_effect_declared {
            ""
        } else {
            "    # side_effect: read, write or destructive? Not stated; counts as destructive until it is.\n"
        };
        let mut lines = String::new();
        for (key, value) in fields(card) {
            member(key, &value, 2, &mut lines);
        }
        out.push_str("\n  - ");
        out.push_str(lines.trim_start());
        out.push_str(open);
    }
    out
}

fn scopes(registry: &Registry) -> Vec<Value> {
    let entry = |(scope, info): (&crate::types::Scope, &super::ScopeInfo)| {
        let mut entry = Map::new();
        entry.insert("name".into(), json!(scope.0));
        entry.extend(info.about.as_ref().map(|about| ("about".to_owned(), json!(about))));
        entry.extend(info.granted_by.as_ref().map(|by| ("granted_by".to_owned(), json!(by))));
        Value::Object(entry)
    };
    registry.scopes.iter().map(entry).collect()
}

/// What a card states, in the order in which cards are usually written. What is missing has the value it had.
fn fields(card: &ToolCard) -> Vec<(&'static str, Value)> {
    let mut fields: Vec<(&'static str, Value)> = vec![("name", json!(card.name))];
    let mut put = |key: &'static str, value: Value| {
        let is_empty = match &value {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            Value::Array(items) => items.is_empty(),
            Value::Object(map) => map.is_empty(),
            Value::Bool(_) | Value::Number(_) => false,
        };
        if !is_empty {
            fields.push((key, value));
        }
    };
    put("version", json!(card.version));
    put("domain", json!(card.domain));
    put("tags", json!(card.tags));
    put("description", description(card));
    put("examples", json!(card.examples));
    put("parameters", card.parameters.clone());
    if card.side_effect_declared {
        put("side_effect", json!(card.side_effect.as_str()));
    }
    if card.idempotent != (card.side_effect == SideEffect::Read) {
        put("idempotent", json!(card.idempotent));
    }
    if card.execution != Execution::Caller {
        put("execution", json!(card.execution));
    }
    put("confirmation", json!(card.confirmation));
    put("permissions", card.scopes.iter().map(|scope| json!(scope.0)).collect());
    put("timeout_ms", json!(card.timeout.map(|timeout| timeout.as_millis() as u64)));
    put("requires", json!(card.requires));
    put("conflicts_with", json!(card.conflicts_with));
    put("fallback", json!(card.fallback));
    put("result_fields", json!(card.result_fields));
    put("result_enums", enums(&card.result_enums));
    put("idempotency_ttl_s", json!(card.idempotency_ttl.map(|ttl| ttl.as_secs())));
    put("owner", json!(card.owner));
    put("run", json!(card.run));
    put("tenants", json!(card.tenants));
    fields
}

fn enums(enums: &BTreeMap<String, BTreeMap<String, String>>) -> Value {
    json!(enums)
}

/// As one text where it came as one, else in its parts.
fn description(card: &ToolCard) -> Value {
    let description = &card.description;
    if let Some(plain) = &description.plain {
        return json!(plain);
    }
    let only_what =
        description.when_to_use.is_empty() && description.when_not_to_use.is_empty() && description.returns.is_none();
    if only_what && description.what.is_empty() {
        return Value::Null;
    }
    // As a part even when it is the only one: read as one text it might be split.
    let mut parts = Map::new();
    parts.insert("what".into(), json!(description.what));
    if !only_what {
        parts.insert("when_to_use".into(), json!(description.when_to_use));
        parts.insert("when_not_to_use".into(), json!(description.when_not_to_use));
    }
    parts.extend(description.returns.as_ref().map(|returns| ("returns".to_owned(), json!(returns))));
    Value::Object(parts)
}

/// `key: value` at a depth of two blanks a level.
fn member(key: &str, value: &Value, depth: usize, out: &mut String) {
    let indent = "  ".repeat(depth);
    let is_plain = !key.is_empty()
        && key.len() <= MAX_PLAIN_KEY
        && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && !key.starts_with(|c: char| c.is_ascii_digit())
        && !WORDS.contains(&key.to_ascii_lowercase().as_str());
    let shown = if is_plain { key.to_owned() } else { text(key) };
    if shown.len() > MAX_SIMPLE_KEY {
        out.push_str(&format!("{indent}? {shown}\n{indent}"));
    } else {
        out.push_str(&format!("{indent}{shown}"));
    }
    out.push(':');
    match value {
        Value::Array(list) if !list.is_empty() => {
            out.push('\n');
            items(list, depth + 1, out);
        }
        Value::Object(map) if !map.is_empty() => {
            out.push('\n');
            for (key, value) in map {
                member(key, value, depth + 1, out);
            }
        }
        leaf => out.push_str(&format!(" {}\n", scalar(leaf))),
    }
}

/// `- value` for each; mappings and lists within begin on the line of their dash.
fn items(list: &[Value], depth: usize, out: &mut String) {
    let indent = "  ".repeat(depth);
    for value in list {
        let mut inner = String::new();
        match value {
            Value::Array(list) if !list.is_empty() => items(list, depth + 1, &mut inner),
            Value::Object(map) if !map.is_empty() => {
                for (key, value) in map {
                    member(key, value, depth + 1, &mut inner);
                }
            }
            leaf => inner = format!("{}\n", scalar(leaf)),
        }
        out.push_str(&format!("{indent}- {}", inner.trim_start_matches(' ')));
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(value) => text(value),
        Value::Array(_) => "[]".into(),
        Value::Object(_) => "{}".into(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// A JSON string in which also those characters are escaped that YAML takes for line breaks or does not print.
fn text(value: &str) -> String {
    let quoted = Value::String(value.to_owned()).to_string();
    let mut out = String::with_capacity(quoted.len());
    for c in quoted.chars() {
        match c {
            '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests;
