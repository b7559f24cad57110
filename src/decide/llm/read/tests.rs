use proptest::prelude::*;
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
    let parts = json!([{"type": "text", "text": "{\"name\":"}, {"type": "text", "text": "\"f\"}"}, {"type": "image"}]);
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

fn names(body: &Value) -> Vec<String> {
    read_as(body, AnswerMode::Functions).unwrap().calls.into_iter().map(|call| call.name).collect()
}

#[test]
fn an_answer_ended_by_the_limit_says_so() {
    for (reason, cut) in [
        ("length", true),
        ("LENGTH", true),
        ("max_tokens", true),
        ("MAX_TOKENS", true),
        ("model_length", true),
        ("stop", false),
        ("tool_calls", false),
        ("content_filter", false),
    ] {
        let body = body(&format!("{CHOICE}/finish_reason"), Some(json!(reason)));
        assert_eq!(read_as(&body, AnswerMode::Functions).unwrap().cut, cut, "{reason}");
    }
}
#[test]
fn tool_calls_null_means_text() {
    let mut body = body(&format!("{MESSAGE}/tool_calls"), Some(json!(null)));
    body["choices"][0]["message"]["content"] = json!("Hello");
    assert_eq!(read_as(&body, AnswerMode::Functions).unwrap().text, "Hello");
}
#[test]
fn name_with_white_space() {
    accepts(&format!("{CALL}/function/name"), json!(" f\n"));
}
#[test]
fn calls_without_a_name_are_none() {
    for name in [json!(""), json!("  "), json!(null), json!(7)] {
        let body = body(&format!("{CALL}/function/name"), Some(name));
        assert_eq!(names(&body), Vec::<String>::new());
    }
}
#[test]
fn arguments_with_a_trailing_comma_are_unreadable() {
    arguments(json!("{\"a\": 1,}"), None);
}
#[test]
fn arguments_that_give_two_values_are_unreadable() {
    arguments(json!("{\"amount\": 82, \"amount\": 820}"), None);
    arguments(json!("{\"a\": 1, \"a\": 1}"), Some(json!({"a": 1})));
    arguments(json!("\"{\\\"a\\\": 1, \\\"a\\\": 2}\""), None);
}
#[test]
fn arguments_nested_without_end_are_unreadable() {
    let deep = |depth: usize| format!("{{\"a\": {}{}}}", "[".repeat(depth), "]".repeat(depth));
    arguments(json!(deep(100_000)), None);
    arguments(json!(deep(10)), Some(serde_json::from_str(&deep(10)).unwrap()));
    let mut encoded = json!({"a": 1}).to_string();
    for _ in 0..MAX_ENCODINGS {
        encoded = json!(encoded).to_string();
    }
    arguments(json!(encoded), None);
}
#[test]
fn a_text_of_a_megabyte_is_read() {
    let long = "退".repeat(350_000);
    arguments(json!(json!({"note": long}).to_string()), Some(json!({"note": long})));
    for text in
        ["<tool_call>".repeat(100_000), "<function=".repeat(100_000), "```{".repeat(250_000), "[".repeat(1_000_000)]
    {
        let mut body = body(&format!("{MESSAGE}/tool_calls"), None);
        body["choices"][0]["message"]["content"] = json!(text);
        for mode in [AnswerMode::Functions, AnswerMode::JsonSchema] {
            assert_eq!(read_as(&body, mode).unwrap().calls, []);
        }
    }
}
#[test]
fn calls_beyond_the_limit_are_not_read() {
    let call = json!({"function": {"name": "f", "arguments": "{}"}});
    let body = body(&format!("{MESSAGE}/tool_calls"), Some(json!(vec![call; 1_000])));
    assert_eq!(names(&body).len(), MAX_CALLS);
}
#[test]
fn parallel_wrapper_with_its_calls_as_text() {
    let of = |uses: Value| {
        let function = json!({"name": "multi_tool_use.parallel", "arguments": {"tool_uses": uses}});
        names(&body(&format!("{CALL}/function"), Some(function)))
    };
    let uses = json!([{"recipient_name": "functions.f", "parameters": {"a": 1}}, {"recipient_name": "functions.g"}]);
    assert_eq!(of(json!(uses.to_string())), ["functions.f", "functions.g"]);
    assert_eq!(of(uses[0].clone()), ["functions.f"]);
    // What cannot be unwrapped is asked about under its own name.
    assert_eq!(of(json!("[broken")), ["multi_tool_use.parallel"]);
    assert_eq!(of(json!(7)), ["multi_tool_use.parallel"]);
}

/// Any JSON of some depth.
fn any_json() -> impl Strategy<Value = Value> {
    let words = prop::sample::select(vec![
        "f",
        "g",
        "{\"a\":",
        "<tool_call>",
        "<function=f>",
        "```json",
        "<think>",
        "</think>",
        "{\"name\":\"f\"}",
        "退款",
        "",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,20}".prop_map(Value::from),
        prop::collection::vec(words, 0..4).prop_map(|words| Value::from(words.concat())),
    ];
    let keys = prop::sample::select(vec![
        "choices",
        "message",
        "content",
        "tool_calls",
        "function",
        "function_call",
        "name",
        "arguments",
        "tool_uses",
        "finish_reason",
        "usage",
        "prompt_tokens",
        "error",
        "code",
        "status",
        "text",
        "type",
        "calls",
        "tool",
        "refusal",
    ]);
    leaf.prop_recursive(5, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(keys.clone().prop_map(str::to_owned), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn pointers(value: &Value, at: String, all: &mut Vec<String>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| pointers(value, format!("{at}/{key}"), all)),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(i, value)| pointers(value, format!("{at}/{i}"), all));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    all.push(at);
}

fn stays_bounded(body: &Value) -> Result<(), TestCaseError> {
    for mode in [AnswerMode::Functions, AnswerMode::JsonSchema] {
        if let Ok(completion) = read_as(body, mode) {
            prop_assert!(completion.calls.len() <= MAX_CALLS);
            prop_assert!(completion.calls.iter().all(|call| !call.name.trim().is_empty()));
            prop_assert_eq!(read_as(body, mode).unwrap(), completion);
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_body_is_read_or_refused(body in any_json()) {
        stays_bounded(&body)?;
    }

    #[test]
    fn a_good_body_with_one_part_changed_is_read_or_refused(part in any::<prop::sample::Index>(), value in any_json()) {
        let mut body = body("/id", Some(json!("x")));
        let mut all = Vec::new();
        pointers(&body, String::new(), &mut all);
        *body.pointer_mut(&all[part.index(all.len())]).unwrap() = value;
        stays_bounded(&body)?;
    }
}
