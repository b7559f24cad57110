//! What stands in an answer: rows, one object, a text, or a failure.

use serde_json::{Map, Value};

use super::{Context, failure, safe};
use crate::types::{Body, Problem, ToolAnswer};

/// Names beside the rows of a list that are about the list.
const ABOUT: [&str; 15] = [
    "ok",
    "success",
    "status",
    "code",
    "message",
    "next_cursor",
    "cursor",
    "total",
    "count",
    "page",
    "page_size",
    "has_more",
    "reason",
    "hint",
    "request_id",
];
const MAX_REASON: usize = 64;
const MAX_CURSOR: usize = 512;

/// The part of an answer that is the result.
#[derive(Debug)]
pub(super) struct Found {
    pub data: Value,
    pub is_list: bool,
    /// The tool's own.
    pub next_cursor: Option<String>,
    /// A word for why a list is empty.
    pub reason: Option<String>,
}

pub(super) fn chars(body: &Body) -> usize {
    match body {
        Body::Empty => 0,
        Body::Json(value) => value.to_string().chars().count(),
        Body::Text(text) => text.chars().count(),
    }
}

/// # Errors
/// The failure the answer tells of, or that it is.
pub(super) fn read(answer: &ToolAnswer, context: &Context<'_>) -> Result<Found, Box<Problem>> {
    if let Some(problem) = failure::told(answer, context) {
        return Err(Box::new(problem));
    }
    match &answer.body {
        Body::Json(value) => found(value, context).ok_or_else(|| Box::new(failure::nothing(context))),
        Body::Text(text) if context.card.result_fields.is_empty() && !safe::is_page_or_trace(text) => {
            Ok(plain(Value::String(text.clone())))
        }
        Body::Text(_) => Err(Box::new(failure::not_understood(context))),
        // The standard way to say that a change was made and there is nothing more to say.
        Body::Empty if answer.status == Some(204) && context.acts() => Ok(plain(Value::Null)),
        Body::Empty => Err(Box::new(failure::nothing(context))),
    }
}

fn plain(data: Value) -> Found {
    Found { data, is_list: false, next_cursor: None, reason: None }
}

/// `None` for a body that holds nothing.
fn found(value: &Value, context: &Context<'_>) -> Option<Found> {
    match value {
        Value::Null => None,
        Value::Array(_) => Some(Found { is_list: true, ..plain(value.clone()) }),
        Value::Object(map) if map.is_empty() => None,
        Value::Object(map) => in_object(map, context),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => Some(plain(value.clone())),
    }
}

fn in_object(map: &Map<String, Value>, context: &Context<'_>) -> Option<Found> {
    let text = |name: &str, longest: usize| {
        let text = map.get(name).and_then(Value::as_str)?.trim();
        (!text.is_empty() && text.len() <= longest).then(|| text.to_owned())
    };
    let wrapped = |inner: Found| Found {
        next_cursor: inner.next_cursor.or_else(|| text("next_cursor", MAX_CURSOR)),
        reason: inner.reason.or_else(|| text("reason", MAX_REASON).filter(|reason| is_word(reason))),
        ..inner
    };
    let listed = |name: &str| context.card.result_fields.iter().any(|field| field == name);
    // An envelope: {"ok": true, "data": …}.
    if let Some(inner) = map.get("data").filter(|_| !listed("data")) {
        return found(inner, context).map(wrapped);
    }
    let mut lists = map.iter().filter(|(name, value)| value.is_array() && !listed(name));
    let (Some((name, rows)), None) = (lists.next(), lists.next()) else {
        return Some(plain(Value::Object(map.clone())));
    };
    // Beside the rows stands what is about the list, or what would not pass anyway.
    let passes = |key: &str| context.card.result_fields.is_empty() || listed(key);
    if map.keys().any(|key| key != name && !ABOUT.contains(&key.as_str()) && passes(key)) {
        return Some(plain(Value::Object(map.clone())));
    }
    Some(wrapped(Found { is_list: true, ..plain(rows.clone()) }))
}

/// A reason is a word such as `no_match`, not a text.
fn is_word(reason: &str) -> bool {
    reason.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}
