//! Reading a chat completion leniently: providers differ in everything but the intention.
//!
//! Owns: which parts of a body matter and in which forms they come.
//! Does not know: whether a name is offered beyond what it is told, or whether arguments fit a schema.

mod distinct;
mod in_text;
mod logprobs;

use serde_json::{Map, Value};

use super::AnswerMode;
use crate::decision::TokenUse;

pub(crate) use in_text::object;
pub(crate) use logprobs::choice_probability;

/// Calls of one answer beyond which nothing is read.
pub(crate) const MAX_CALLS: usize = 32;
/// How deep JSON in a string in JSON is followed.
const MAX_ENCODINGS: usize = 3;

/// What a completion says.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Completion {
    pub calls: Vec<RawCall>,
    /// Text beside the calls, without the model's thinking.
    pub text: String,
    /// The endpoint's limit of tokens ended the answer: what is there may be half of it.
    pub cut: bool,
    pub usage: TokenUse,
    /// Probability of the chosen name among all on offer, where the endpoint tells; the least of several.
    pub choice: Option<f32>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RawCall {
    pub name: String,
    pub arguments: Arguments,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Arguments {
    Object(Map<String, Value>),
    /// Not a JSON object. Never taken for `{}`.
    Unreadable(String),
}

/// A body that answers nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unusable {
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
pub(crate) fn read(body: &Value, mode: AnswerMode, known: &dyn Fn(&str) -> bool) -> Result<Completion, Unusable> {
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
            AnswerMode::JsonSchema | AnswerMode::ChooseThenFill => json_answer(&text),
        };
    }
    let calls: Vec<RawCall> = calls.into_iter().flat_map(unwrap_parallel).take(MAX_CALLS).collect();
    let cut = choice.is_some_and(was_cut);
    let text = if text.trim().is_empty() { refusal_of(message) } else { in_text::after_thinking(&text).to_owned() };
    Ok(Completion { calls, text, cut, usage: usage_of(body), choice: None })
}

/// Of all reasons to finish the only one that matters; the others are named at every endpoint's liking.
fn was_cut(choice: &Value) -> bool {
    const LIMITS: [&str; 4] = ["length", "max_tokens", "max_output_tokens", "model_length"];
    let reason = choice.get("finish_reason").and_then(Value::as_str).unwrap_or_default();
    LIMITS.iter().any(|limit| reason.eq_ignore_ascii_case(limit))
}

fn error_in(holder: &Value) -> Option<Unusable> {
    let error = holder.get("error").filter(|error| !error.is_null())?;
    let number = |value: &Value| value.as_u64().or_else(|| value.as_str()?.parse().ok());
    let status = ["status", "code"].iter().filter_map(|key| number(error.get(*key)?)).find(|n| (400..600).contains(n));
    Some(Unusable::Error { status: status.and_then(|status| u16::try_from(status).ok()) })
}

/// A string, a list of parts, or nothing.
fn text_of(message: &Map<String, Value>) -> String {
    let part = |part: &Value| part.as_str().or_else(|| part.get("text")?.as_str()).map(str::to_owned);
    match message.get("content") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => parts.iter().filter_map(part).collect::<Vec<_>>().concat(),
        Some(other) => part(other).unwrap_or_default(),
        None => String::new(),
    }
}

/// A refusal is text, whatever it quotes.
fn refusal_of(message: &Map<String, Value>) -> String {
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
        let name = of(&["name", "action", "tool", "function", "recipient_name"])?.as_str()?.trim();
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
            match distinct::parse(&current) {
                Some(Value::Object(map)) => return Self::Object(map),
                Some(Value::Null) => return Self::Object(Map::new()),
                Some(Value::String(inner)) => current = inner,
                Some(_) | None => break,
            }
        }
        Self::Unreadable(text.to_owned())
    }
}

/// `multi_tool_use.parallel` is no tool but a wrapper some models make up around several calls.
fn unwrap_parallel(call: RawCall) -> Vec<RawCall> {
    const WRAPPERS: [&str; 3] =
        ["multi_tool_use.parallel", "multi_tool_use_parallel", "functions.multi_tool_use.parallel"];
    let uses = match &call.arguments {
        Arguments::Object(map) if WRAPPERS.contains(&call.name.as_str()) => map.get("tool_uses"),
        Arguments::Object(_) | Arguments::Unreadable(_) => None,
    };
    let read = |uses: &[Value]| uses.iter().filter_map(RawCall::from_json).take(MAX_CALLS).collect();
    match uses {
        Some(Value::Array(uses)) => read(uses),
        // The list as JSON text.
        Some(Value::String(text)) => match serde_json::from_str(text) {
            Ok(Value::Array(uses)) => read(&uses),
            Ok(_) | Err(_) => vec![call],
        },
        Some(one @ Value::Object(_)) => RawCall::from_json(one).into_iter().collect(),
        Some(_) | None => vec![call],
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
mod tests;
