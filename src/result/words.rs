//! Codes become the words of `result_enums`; a code nobody knows is said to be unknown.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Context, safe};

const MAX_CODE: usize = 40;

/// Replaces codes in one object or in each row.
pub(super) fn put(data: Value, context: &Context<'_>, notices: &mut Vec<String>) -> Value {
    if context.card.result_enums.is_empty() {
        return data;
    }
    let mut unknown = BTreeSet::new();
    let data = match data {
        Value::Array(rows) => rows.into_iter().map(|row| put_row(row, context, &mut unknown)).collect(),
        other => put_row(other, context, &mut unknown),
    };
    for (field, code) in unknown {
        notices.push(context.say(
            format!("`{field}` came as {code}, a code that is not known: do not read it as any state"),
            format!("`{field}` 的值 {code} 是未知代码：不要当作任何一种状态"),
        ));
    }
    data
}

fn put_row(row: Value, context: &Context<'_>, unknown: &mut BTreeSet<(String, String)>) -> Value {
    let Value::Object(mut map) = row else { return row };
    for (field, words) in &context.card.result_enums {
        if let Some(value) = map.get_mut(field)
            && let Some(code) = code(value)
        {
            *value = Value::String(in_words(&code, words).unwrap_or_else(|| {
                let code: String = code.chars().take(MAX_CODE).collect();
                let code = safe::sentence(&code).unwrap_or("?").to_owned();
                unknown.insert((field.clone(), code.clone()));
                context.say(format!("unknown ({code})"), format!("未知 unknown ({code})"))
            }));
        }
    }
    Value::Object(map)
}

fn code(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.trim().to_owned()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// The words of a code; words that already are some stay.
fn in_words(code: &str, words: &BTreeMap<String, String>) -> Option<String> {
    words.get(code).or_else(|| words.values().find(|words| *words == code)).cloned()
}
