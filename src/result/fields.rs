//! Which fields pass: those the card lists, and never what is known to be internal.

use serde_json::{Map, Value};

use crate::tool::ToolCard;

/// Deeper values are dropped.
const MAX_DEPTH: usize = 32;

/// Keeps of one object, or of each row, the fields on the card's list; without a list all that are not internal. Counts
/// what was left out.
pub(super) fn keep(data: Value, card: &ToolCard, dropped: &mut usize) -> Value {
    match data {
        Value::Array(rows) => rows.into_iter().map(|row| keep_row(row, card, dropped)).collect(),
        other => keep_row(other, card, dropped),
    }
}

fn keep_row(row: Value, card: &ToolCard, dropped: &mut usize) -> Value {
    let Value::Object(map) = row else { return clean(row, 1, dropped) };
    let listed = &card.result_fields;
    let mut kept = Map::new();
    for (name, value) in map {
        let passes = if listed.is_empty() { !is_internal(&name) } else { listed.contains(&name) };
        if passes {
            kept.insert(name, clean(value, 2, dropped));
        } else {
            *dropped += 1;
        }
    }
    Value::Object(kept)
}

/// Drops internal fields at every depth below.
fn clean(value: Value, depth: usize, dropped: &mut usize) -> Value {
    if depth > MAX_DEPTH {
        *dropped += 1;
        return Value::Null;
    }
    match value {
        Value::Array(items) => items.into_iter().map(|item| clean(item, depth + 1, dropped)).collect(),
        Value::Object(map) => {
            let mut kept = Map::new();
            for (name, value) in map {
                if is_internal(&name) {
                    *dropped += 1;
                } else {
                    kept.insert(name, clean(value, depth + 1, dropped));
                }
            }
            Value::Object(kept)
        }
        leaf => leaf,
    }
}

/// Names under which services keep what is not for others.
fn is_internal(name: &str) -> bool {
    const WHOLE: [&str; 14] = [
        "token",
        "stack",
        "stacktrace",
        "stack_trace",
        "trace",
        "traceback",
        "exception",
        "sql",
        "debug",
        "passwd",
        "credentials",
        "authorization",
        "cookie",
        "created_by",
    ];
    const PARTS: [&str; 7] =
        ["password", "secret", "api_key", "apikey", "private_key", "access_token", "session_token"];
    let name = name.to_lowercase();
    name.starts_with("internal_")
        || name.starts_with('_')
        || WHOLE.contains(&name.as_str())
        || PARTS.iter().any(|part| name.contains(part))
}
