//! The forms in which arguments arrive.

use serde_json::{Map, Value};

use crate::types::{FieldProblem, Problem};

/// Longest arguments that are read, as JSON text.
pub(super) const MAX_BYTES: usize = 64 * 1024;
/// Deepest nesting that is read.
pub(super) const MAX_DEPTH: usize = 32;

/// The arguments as an object. Nothing (`null`, `""`) means no arguments; a text is parsed once. Broken JSON is never
/// "no arguments": the call would run without what was meant.
#[allow(clippy::result_large_err)] // See `validate`.
pub(super) fn read(raw: &Value) -> Result<Map<String, Value>, Problem> {
    let object = match raw {
        Value::Null => Map::new(),
        Value::Object(map) => map.clone(),
        Value::String(text) if text.trim().is_empty() => Map::new(),
        Value::String(text) if text.len() > MAX_BYTES => return Err(too_large()),
        Value::String(text) => match serde_json::from_str(text) {
            Ok(Value::Object(map)) => map,
            Ok(Value::Null) => Map::new(),
            Ok(Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => return Err(no_object()),
            Err(_) => return Err(whole("the arguments are not valid JSON", "a complete JSON object")),
        },
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => return Err(no_object()),
    };
    if !is_bounded(&object) {
        return Err(too_large());
    }
    Ok(object)
}

fn whole(message: &str, expected: &str) -> Problem {
    Problem::invalid_args(message, vec![FieldProblem { path: String::new(), expected: expected.into(), example: None }])
}

fn no_object() -> Problem {
    whole("the arguments are not a JSON object", "a JSON object with the arguments by name")
}

fn too_large() -> Problem {
    whole("the arguments are too large", "at most 64 KiB of JSON, nested at most 32 deep")
}

/// See [`super::ArgumentSchema::affords`].
pub(super) fn too_costly() -> Problem {
    whole("the arguments are nested too deeply for the schema of this tool", "fewer levels, or fewer members in them")
}

/// Counts what the JSON text would need at least, without writing it.
fn is_bounded(map: &Map<String, Value>) -> bool {
    fn walk(value: &Value, depth: usize, left: &mut usize) -> bool {
        let cost = match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => 2,
            Value::String(text) => text.len() + 3,
            Value::Array(_) | Value::Object(_) => 2,
        };
        let Some(rest) = left.checked_sub(cost).filter(|_| depth <= MAX_DEPTH) else { return false };
        *left = rest;
        match value {
            Value::Array(items) => items.iter().all(|item| walk(item, depth + 1, left)),
            Value::Object(map) => members(map, depth, left),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
        }
    }
    fn members(map: &Map<String, Value>, depth: usize, left: &mut usize) -> bool {
        map.iter().all(|(name, value)| match left.checked_sub(name.len() + 4) {
            Some(rest) => {
                *left = rest;
                walk(value, depth + 1, left)
            }
            None => false,
        })
    }
    members(map, 0, &mut { MAX_BYTES })
}
