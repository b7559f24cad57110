//! Lines of the log about guarded calls: how each one ended and, where that is asked for, what was answered.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::redact::{self, Salt};
use crate::tool::canonical_json;
use crate::types::{Body, CallId, ToolAnswer};

/// One call that ended. Sizes are characters and rows.
#[derive(Debug)]
pub struct EndedCall<'a> {
    pub call: CallId,
    pub tenant: &'a str,
    pub conversation: &'a str,
    pub tool: &'a str,
    pub tool_version: &'a str,
    /// `succeeded`, `failed`, `effect_unknown` or `not_started`.
    pub end: &'a str,
    /// Code of the error body, if it did not succeed.
    pub code: Option<&'a str>,
    pub attempts: u32,
    /// `None` where the process that let the call go is gone.
    pub arguments: Option<&'a Map<String, Value>>,
    pub raw_chars: usize,
    pub shaped_chars: usize,
    pub rows: usize,
    pub dropped_rows: usize,
    pub dropped_fields: usize,
}

#[derive(Debug, Serialize)]
struct Record<'a> {
    time: String,
    call_id: String,
    tenant: &'a str,
    session: String,
    tool: &'a str,
    tool_version: &'a str,
    end: &'a str,
    code: Option<&'a str>,
    attempts: u32,
    arguments: Option<Map<String, Value>>,
    arguments_hash: Option<String>,
    raw_chars: usize,
    shaped_chars: usize,
    rows: usize,
    dropped_rows: usize,
    dropped_fields: usize,
}

/// Renders the line of one call: names of arguments, no value that a person gave.
pub fn call_line(call: &EndedCall<'_>, salt: &Salt) -> String {
    let hash = |arguments: &Map<String, Value>| salt.hash(&canonical_json(&Value::Object(arguments.clone())));
    let record = Record {
        time: now(),
        call_id: call.call.to_string(),
        tenant: call.tenant,
        session: if call.conversation.is_empty() { String::new() } else { salt.hash(call.conversation) },
        tool: call.tool,
        tool_version: call.tool_version,
        end: call.end,
        code: call.code,
        attempts: call.attempts,
        arguments: call.arguments.map(|arguments| redact::arguments(arguments, salt)),
        arguments_hash: call.arguments.map(hash),
        raw_chars: call.raw_chars,
        shaped_chars: call.shaped_chars,
        rows: call.rows,
        dropped_rows: call.dropped_rows,
        dropped_fields: call.dropped_fields,
    };
    serde_json::to_string(&record).expect("a record holds only strings, numbers and maps with string keys")
}

/// Renders the line with both bodies of one call, their values hashed: which fields came and which were passed on.
pub fn body_line(call: CallId, answer: &ToolAnswer, shaped: &Value, salt: &Salt) -> String {
    let raw = match &answer.body {
        Body::Empty => Value::Null,
        Body::Json(value) => redact::body(value, salt),
        Body::Text(text) => redact::body(&Value::String(text.clone()), salt),
    };
    let line = json!({"time": now(), "bodies_of": call.to_string(), "status": answer.status, "raw": raw,
        "shaped": redact::body(shaped, salt)});
    line.to_string()
}

fn now() -> String {
    humantime::format_rfc3339_millis(std::time::SystemTime::now()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_hold_names_and_no_values() {
        let salt = Salt::new([7; 16]);
        let order = "SO-20260418000736";
        let arguments = json!({"order_id": order, "gift": true});
        let call = EndedCall {
            call: CallId::generate(),
            tenant: "acme",
            conversation: "c-13800138000",
            tool: "get_order",
            tool_version: "1",
            end: "succeeded",
            code: None,
            attempts: 1,
            arguments: arguments.as_object(),
            raw_chars: 10,
            shaped_chars: 8,
            rows: 0,
            dropped_rows: 0,
            dropped_fields: 2,
        };
        let line = call_line(&call, &salt);
        assert!(!line.contains(order) && !line.contains("13800138000"), "{line}");
        let line: Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&line["end"], &line["arguments"]["gift"]), (&json!("succeeded"), &json!(true)));

        let answer =
            ToolAnswer::json(json!({"order": {"address": "上海市某路1号", "rows": [1, "ct_0123456789abcdef"]}}));
        let line = body_line(call.call, &answer, &json!({"ok": true, "data": {"address": "上海市某路1号"}}), &salt);
        assert!(!line.contains("某路") && !line.contains("ct_") && line.contains("address"), "{line}");
    }
}
