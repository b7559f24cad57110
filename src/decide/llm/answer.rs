//! Reading a chat completion leniently: providers differ in everything but the intention.
//!
//! Owns: which parts of a body matter and in which forms they come.
//! Does not know: whether a name is offered beyond what it is told, or whether arguments fit a schema.

use serde_json::{Map, Value};

use super::{AnswerMode, in_text};
use crate::decision::TokenUse;

/// Calls of one answer beyond which nothing is read.
pub(super) const MAX_CALLS: usize = 32;
/// How deep JSON in a string in JSON is followed.
const MAX_ENCODINGS: usize = 3;

/// What a completion says.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Completion {
    pub calls: Vec<RawCall>,
    /// Text beside the calls, without the model's thinking.
    pub text: String,
    pub usage: TokenUse,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct RawCall {
    pub name: String,
    pub arguments: Arguments,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Arguments {
    Object(Map<String, Value>),
    /// Not a JSON object. Never taken for `{}`.
    Unreadable(String),
}

/// A body that answers nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unusable {
    /// An error in a body with status 200, with the status it names.
    Error {
        status: Option<u16>,
    },
    NoMessage,
}

/// Reads a response body. Calls inside text count only if `known` accepts their name.
///
/// # Errors
/// [`Unusable`] if the body is an error or holds no message.
pub(super) fn read(body: &Value, mode: AnswerMode, known: &dyn Fn(&str) -> bool) -> Result<Completion, Unusable> {
    let choice = body.get("choices").and_then(Value::as_array).and_then(|choices| choices.first());
    if let Some(error) = [Some(body), choice].into_iter().flatten().find_map(error_in) {
        return Err(error);
    }
    let message = choice.and_then(|choice| choice.get("message")).and_then(Value::as_object);
    let message = message.ok_or(Unusable::NoMessage)?;
    let text = text_of(message);
    let mut calls = message_calls(message);
    if calls.is_empty() {
        calls = match mode {
            AnswerMode::Functions => in_text::calls(&text, known),
            AnswerMode::JsonSchema => json_answer(&text),
        };
    }
    let calls: Vec<RawCall> = calls.into_iter().flat_map(unwrap_parallel).take(MAX_CALLS).collect();
    Ok(Completion { calls, text: in_text::after_thinking(&text).to_owned(), usage: usage_of(body) })
}

fn error_in(holder: &Value) -> Option<Unusable> {
    let error = holder.get("error").filter(|error| !error.is_null())?;
    let number = |value: &Value| value.as_u64().or_else(|| value.as_str()?.parse().ok());
    let status = ["status", "code"].iter().filter_map(|key| number(error.get(*key)?)).find(|n| (400..600).contains(n));
    Some(Unusable::Error { status: status.and_then(|status| u16::try_from(status).ok()) })
}

/// A string, a list of parts, or nothing. A refusal is text too.
fn text_of(message: &Map<String, Value>) -> String {
    let part = |part: &Value| part.as_str().or_else(|| part.get("text")?.as_str()).map(str::to_owned);
    let text = match message.get("content") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => parts.iter().filter_map(part).collect::<Vec<_>>().concat(),
        Some(other) => part(other).unwrap_or_default(),
        None => String::new(),
    };
    if !text.trim().is_empty() {
        return text;
    }
    message.get("refusal").and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn message_calls(message: &Map<String, Value>) -> Vec<RawCall> {
    let listed = match message.get("tool_calls") {
        Some(Value::Array(calls)) => calls.iter().filter_map(RawCall::from_json).take(MAX_CALLS).collect(),
        Some(one) => RawCall::from_json(one).into_iter().collect(),
        None => Vec::new(),
    };
    if !listed.is_empty() {
        return listed;
    }
    // The form that came before `tool_calls`.
    message.get("function_call").and_then(RawCall::from_json).into_iter().collect()
}

fn json_answer(text: &str) -> Vec<RawCall> {
    let Some(object) = in_text::object(text) else { return Vec::new() };
    match object.get("calls") {
        Some(Value::Array(calls)) => calls.iter().filter_map(RawCall::from_json).take(MAX_CALLS).collect(),
        Some(_) | None => RawCall::from_json(&Value::Object(object)).into_iter().collect(),
    }
}

impl RawCall {
    /// A call as providers and models write it: `{"function": {"name", "arguments"}}` or flat, under several names.
    pub fn from_json(value: &Value) -> Option<Self> {
        let object = value.as_object()?;
        let object = object.get("function").and_then(Value::as_object).unwrap_or(object);
        let of = |keys: &[&str]| keys.iter().find_map(|key| object.get(*key));
        let name = of(&["name", "tool", "function", "recipient_name"])?.as_str()?.trim();
        let arguments = of(&["arguments", "parameters", "args"]);
        (!name.is_empty()).then(|| Self { name: name.to_owned(), arguments: Arguments::from_value(arguments) })
    }
}

impl Arguments {
    fn from_value(value: Option<&Value>) -> Self {
        match value {
            None | Some(Value::Null) => Self::Object(Map::new()),
            Some(Value::Object(map)) => Self::Object(map.clone()),
            Some(Value::String(text)) => Self::from_text(text),
            Some(other) => Self::Unreadable(other.to_string()),
        }
    }

    /// JSON text, perhaps encoded as a JSON string once more. Nothing at all means no arguments; anything else that is
    /// no object is unreadable.
    pub fn from_text(text: &str) -> Self {
        let mut current = text.to_owned();
        for _ in 0..MAX_ENCODINGS {
            if current.trim().is_empty() {
                return Self::Object(Map::new());
            }
            match serde_json::from_str(&current) {
                Ok(Value::Object(map)) => return Self::Object(map),
                Ok(Value::Null) => return Self::Object(Map::new()),
                Ok(Value::String(inner)) => current = inner,
                Ok(_) | Err(_) => break,
            }
        }
        Self::Unreadable(text.to_owned())
    }
}

/// `multi_tool_use.parallel` is no tool but a wrapper some models make up around several calls.
fn unwrap_parallel(call: RawCall) -> Vec<RawCall> {
    let wrapper = matches!(call.name.as_str(), "multi_tool_use.parallel" | "multi_tool_use_parallel");
    let uses = match &call.arguments {
        Arguments::Object(map) if wrapper => map.get("tool_uses").and_then(Value::as_array),
        Arguments::Object(_) | Arguments::Unreadable(_) => None,
    };
    match uses {
        Some(uses) => uses.iter().filter_map(RawCall::from_json).collect(),
        None => vec![call],
    }
}

/// Counts that are missing, negative or no numbers are 0.
fn usage_of(body: &Value) -> TokenUse {
    let count = |key: &str| {
        let number = body.get("usage").and_then(|usage| usage.get(key)).and_then(Value::as_f64).unwrap_or(0.0);
        number.round().clamp(0.0, f64::from(u32::MAX)) as u32
    };
    TokenUse { prompt: count("prompt_tokens"), completion: count("completion_tokens") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read_as(body: &Value, mode: AnswerMode) -> Result<Completion, Unusable> {
        read(body, mode, &|name| name == "f")
    }

    /// A usual body, changed at a JSON pointer; `None` removes.
    fn body(pointer: &str, value: Option<Value>) -> Value {
        let mut body = json!({
            "id": "chatcmpl-1", "object": "chat.completion", "created": 1_700_000_000, "model": "m",
            "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", "content": null,
                "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}}]}}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
        });
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        let parent = body.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        match value {
            Some(value) => parent.insert(key.into(), value),
            None => parent.remove(key),
        };
        body
    }

    const CHOICE: &str = "/choices/0";
    const MESSAGE: &str = "/choices/0/message";
    const CALL: &str = "/choices/0/message/tool_calls/0";

    /// Reads the call whatever `value` stands at `pointer`.
    #[track_caller]
    fn accepts(pointer: &str, value: impl Into<Option<Value>>) {
        let body = body(pointer, value.into());
        let completion = read_as(&body, AnswerMode::Functions).unwrap_or_else(|error| panic!("{body}: {error:?}"));
        assert_eq!(completion.calls.len(), 1, "{body}");
        assert_eq!(completion.calls[0].name, "f");
    }

    #[track_caller]
    fn arguments(value: impl Into<Option<Value>>, expect: Option<Value>) {
        let body = body(&format!("{CALL}/function/arguments"), value.into());
        let calls = read_as(&body, AnswerMode::Functions).unwrap().calls;
        match (&calls[0].arguments, expect) {
            (Arguments::Object(map), Some(expect)) => assert_eq!(Value::Object(map.clone()), expect),
            (Arguments::Unreadable(_), None) => {}
            (found, expect) => panic!("{body}: {found:?} instead of {expect:?}"),
        }
    }

    #[test]
    fn finish_reason_eos() {
        accepts(&format!("{CHOICE}/finish_reason"), json!("eos"));
    }
    #[test]
    fn finish_reason_eos_token() {
        accepts(&format!("{CHOICE}/finish_reason"), json!("eos_token"));
    }
    #[test]
    fn finish_reason_empty() {
        accepts(&format!("{CHOICE}/finish_reason"), json!(""));
    }
    #[test]
    fn finish_reason_end_turn() {
        accepts(&format!("{CHOICE}/finish_reason"), json!("end_turn"));
    }
    #[test]
    fn finish_reason_tool_use() {
        accepts(&format!("{CHOICE}/finish_reason"), json!("tool_use"));
    }
    #[test]
    fn finish_reason_upper_case() {
        accepts(&format!("{CHOICE}/finish_reason"), json!("STOP"));
    }
    #[test]
    fn finish_reason_error() {
        accepts(&format!("{CHOICE}/finish_reason"), json!("error"));
    }
    #[test]
    fn finish_reason_null() {
        accepts(&format!("{CHOICE}/finish_reason"), json!(null));
    }
    #[test]
    fn service_tier_on_demand() {
        accepts("/service_tier", json!("on_demand"));
    }
    #[test]
    fn service_tier_standard() {
        accepts("/service_tier", json!("standard"));
    }
    #[test]
    fn usage_empty() {
        accepts("/usage", json!({}));
    }
    #[test]
    fn usage_null() {
        accepts("/usage", json!(null));
    }
    #[test]
    fn usage_floats() {
        let body = body("/usage", Some(json!({"prompt_tokens": 10.0, "completion_tokens": 4.6})));
        let usage = read_as(&body, AnswerMode::Functions).unwrap().usage;
        assert_eq!(usage, TokenUse { prompt: 10, completion: 5 });
    }
    #[test]
    fn usage_nonsense() {
        let body = body("/usage", Some(json!({"prompt_tokens": -3, "completion_tokens": "many"})));
        assert_eq!(read_as(&body, AnswerMode::Functions).unwrap().usage, TokenUse::default());
    }
    #[test]
    fn arguments_as_json_text() {
        arguments(json!("{\"a\": 1}"), Some(json!({"a": 1})));
    }
    #[test]
    fn arguments_as_object() {
        arguments(json!({"a": 1}), Some(json!({"a": 1})));
    }
    #[test]
    fn arguments_null() {
        arguments(json!(null), Some(json!({})));
        arguments(json!("null"), Some(json!({})));
    }
    #[test]
    fn arguments_missing() {
        arguments(None, Some(json!({})));
    }
    #[test]
    fn arguments_empty_text() {
        arguments(json!(""), Some(json!({})));
        arguments(json!("  \n"), Some(json!({})));
    }
    #[test]
    fn arguments_encoded_twice() {
        arguments(json!("\"{\\\"a\\\": 1}\""), Some(json!({"a": 1})));
    }
    #[test]
    fn broken_arguments_never_become_empty() {
        for text in ["{\"a\": 1", "{\"a\": 1,}", "{a: 1}", "[1]", "7", "退款", "{}}"] {
            arguments(json!(text), None);
        }
        arguments(json!([1]), None);
        arguments(json!(7), None);
        arguments(json!(false), None);
    }
    #[test]
    fn tool_call_without_type() {
        accepts(&format!("{CALL}/type"), None);
    }
    #[test]
    fn tool_call_without_id() {
        accepts(&format!("{CALL}/id"), None);
    }
    #[test]
    fn tool_call_with_null_id() {
        accepts(&format!("{CALL}/id"), json!(null));
    }
    #[test]
    fn tool_calls_as_one_object() {
        accepts(&format!("{MESSAGE}/tool_calls"), json!({"function": {"name": "f"}}));
    }
    #[test]
    fn message_without_role() {
        accepts(&format!("{MESSAGE}/role"), None);
    }
    #[test]
    fn message_with_null_role() {
        accepts(&format!("{MESSAGE}/role"), json!(null));
    }
    #[test]
    fn content_as_parts() {
        let parts =
            json!([{"type": "text", "text": "{\"name\":"}, {"type": "text", "text": "\"f\"}"}, {"type": "image"}]);
        let mut body = body(&format!("{MESSAGE}/tool_calls"), None);
        body["choices"][0]["message"]["content"] = parts;
        let calls = read_as(&body, AnswerMode::Functions).unwrap().calls;
        assert_eq!(calls, [RawCall { name: "f".into(), arguments: Arguments::Object(Map::new()) }]);
    }
    #[test]
    fn choice_without_index() {
        accepts(&format!("{CHOICE}/index"), None);
    }
    #[test]
    fn body_without_id() {
        accepts("/id", None);
    }
    #[test]
    fn body_without_object() {
        accepts("/object", None);
    }
    #[test]
    fn body_without_created() {
        accepts("/created", None);
    }
    #[test]
    fn created_as_float() {
        accepts("/created", json!(1_700_000_000.25));
    }
    #[test]
    fn created_in_milliseconds() {
        accepts("/created", json!(1_700_000_000_000_u64));
    }
    #[test]
    fn model_null() {
        accepts("/model", json!(null));
    }
    #[test]
    fn extra_fields() {
        accepts("/x_groq", json!({"id": "req"}));
    }
    #[test]
    fn error_null_beside_choices() {
        accepts("/error", json!(null));
    }
    #[test]
    fn choices_null() {
        let body = body("/choices", Some(json!(null)));
        assert_eq!(read_as(&body, AnswerMode::Functions), Err(Unusable::NoMessage));
    }
    #[test]
    fn choices_missing_empty_or_without_message() {
        for choices in [json!([]), json!([{}]), json!([{"message": null}]), json!("x"), json!([null])] {
            let body = body("/choices", Some(choices));
            assert_eq!(read_as(&body, AnswerMode::Functions), Err(Unusable::NoMessage));
        }
        for other in [json!(null), json!([]), json!("<html>"), json!({})] {
            assert_eq!(read_as(&other, AnswerMode::Functions), Err(Unusable::NoMessage));
        }
    }
    #[test]
    fn error_body_with_status_200() {
        let of = |error: Value| read_as(&json!({"error": error}), AnswerMode::Functions);
        assert_eq!(of(json!({"message": "overloaded", "code": 503})), Err(Unusable::Error { status: Some(503) }));
        assert_eq!(of(json!({"message": "x", "code": "429"})), Err(Unusable::Error { status: Some(429) }));
        assert_eq!(of(json!({"code": "rate_limit_exceeded"})), Err(Unusable::Error { status: None }));
        assert_eq!(of(json!("no such model")), Err(Unusable::Error { status: None }));
    }
    #[test]
    fn error_inside_a_choice() {
        let body = body(&format!("{CHOICE}/error"), Some(json!({"code": 502, "message": "upstream"})));
        assert_eq!(read_as(&body, AnswerMode::Functions), Err(Unusable::Error { status: Some(502) }));
    }
    #[test]
    fn tool_calls_empty_means_text() {
        let mut body = body(&format!("{MESSAGE}/tool_calls"), Some(json!([])));
        body["choices"][0]["message"]["content"] = json!("<think>hm</think> Hello");
        let completion = read_as(&body, AnswerMode::Functions).unwrap();
        assert_eq!((completion.calls.len(), completion.text.as_str()), (0, "Hello"));
    }
    #[test]
    fn refusal_is_text() {
        let mut body = body(&format!("{MESSAGE}/tool_calls"), None);
        body["choices"][0]["message"]["refusal"] = json!("I cannot");
        assert_eq!(read_as(&body, AnswerMode::Functions).unwrap().text, "I cannot");
    }
    #[test]
    fn legacy_function_call() {
        let mut body = body(&format!("{MESSAGE}/tool_calls"), None);
        body["choices"][0]["message"]["function_call"] = json!({"name": "f", "arguments": "{}"});
        assert_eq!(read_as(&body, AnswerMode::Functions).unwrap().calls.len(), 1);
    }
    #[test]
    fn parallel_wrapper_is_unwrapped() {
        let uses = json!({"tool_uses": [{"recipient_name": "functions.f", "parameters": {"a": 1}}, {"recipient_name": "functions.g"}]});
        let function = json!({"name": "multi_tool_use.parallel", "arguments": uses.to_string()});
        let body = body(&format!("{CALL}/function"), Some(function));
        let names: Vec<String> =
            read_as(&body, AnswerMode::Functions).unwrap().calls.into_iter().map(|call| call.name).collect();
        assert_eq!(names, ["functions.f", "functions.g"]);
    }
    #[test]
    fn answers_in_json_mode() {
        let of = |text: &str| {
            let mut body = body(&format!("{MESSAGE}/tool_calls"), None);
            body["choices"][0]["message"]["content"] = json!(text);
            let calls = read_as(&body, AnswerMode::JsonSchema).unwrap().calls;
            calls.into_iter().map(|call| call.name).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of(r#"{"tool":"f","arguments":{"a":1}}"#), "f");
        assert_eq!(of(r#"{"calls":[{"tool":"f","arguments":{}},{"tool":"g","arguments":{}}]}"#), "f g");
        assert_eq!(of("```json\n{\"tool\":\"made_up\"}\n```"), "made_up", "unknown names are asked about, not ignored");
        assert_eq!(of("I would use f"), "");
        assert_eq!(of(r#"{"answer": 42}"#), "");
    }
}
