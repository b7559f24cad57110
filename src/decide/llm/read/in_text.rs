//! Calls that a model wrote into its text because its server does not take them out.
//!
//! Forms: `<tool_call>…</tool_call>`, `<function=f><parameter=k>v</parameter></function>`, a fenced block, bare JSON;
//! each also after `<think>…</think>`. Text is untrusted: nothing here counts unless its name is on the shortlist.

use serde_json::{Map, Value};

use super::distinct::Distinct;
use super::{Arguments, MAX_CALLS, RawCall};

/// The calls in `text` whose names are `known`, in order; empty means the text is just text.
pub(crate) fn calls(text: &str, known: &dyn Fn(&str) -> bool) -> Vec<RawCall> {
    let text = after_thinking(text);
    let readers: [fn(&str) -> Vec<RawCall>; 4] = [tagged, function_tags, fenced, bare];
    for read in readers {
        let mut found = read(text);
        found.retain(|call| known(&call.name));
        if !found.is_empty() {
            found.truncate(MAX_CALLS);
            return found;
        }
    }
    Vec::new()
}

/// The first JSON object in an answer that should be one: fences and thinking around it do not matter.
pub(crate) fn object(text: &str) -> Option<Map<String, Value>> {
    let text = after_thinking(text);
    let start = text.find('{')?;
    match serde_json::Deserializer::from_str(&text[start..]).into_iter::<Distinct>().next()? {
        Ok(Distinct(Value::Object(object))) => Some(object),
        Ok(_) | Err(_) => None,
    }
}

/// What follows the model's thinking. Thinking that was cut off has nothing after it.
pub(crate) fn after_thinking(text: &str) -> &str {
    match (text.rfind("</think>"), text.find("<think>")) {
        (Some(end), _) => text[end + "</think>".len()..].trim(),
        (None, Some(start)) => text[..start].trim(),
        (None, None) => text.trim(),
    }
}

fn tagged(text: &str) -> Vec<RawCall> {
    let blocks = text.split("<tool_call>").skip(1).map(|rest| rest.split("</tool_call>").next().unwrap_or(rest));
    blocks.flat_map(|block| if block.contains("<function=") { function_tags(block) } else { bare(block) }).collect()
}

fn function_tags(text: &str) -> Vec<RawCall> {
    let blocks = text.split("<function=").skip(1);
    blocks
        .filter_map(|block| {
            let block = block.split("</function>").next().unwrap_or(block);
            let (name, body) = block.split_once('>')?;
            let arguments = if body.contains("<parameter=") { parameters(body) } else { Arguments::from_text(body) };
            Some(RawCall { name: unquote(name), arguments })
        })
        .collect()
}

fn parameters(body: &str) -> Arguments {
    let mut given = Map::new();
    for (name, value) in body.split("<parameter=").skip(1).filter_map(parameter) {
        if given.get(&name).is_some_and(|other| *other != value) {
            return Arguments::Unreadable(body.to_owned());
        }
        given.insert(name, value);
    }
    Arguments::Object(given)
}

fn parameter(text: &str) -> Option<(String, Value)> {
    let (name, rest) = text.split_once('>')?;
    let value = rest.split("</parameter>").next().unwrap_or(rest);
    // A value stands on lines of its own; only those line breaks are the form's, the rest is the value's.
    let value = value.strip_prefix('\n').unwrap_or(value);
    let value = value.strip_suffix('\n').unwrap_or(value);
    Some((unquote(name), Value::String(value.to_owned())))
}

fn fenced(text: &str) -> Vec<RawCall> {
    let blocks = text.split("```").skip(1).step_by(2);
    blocks.flat_map(|block| bare(block.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_'))).collect()
}

/// JSON from the first character on; what follows the last value is ignored.
fn bare(text: &str) -> Vec<RawCall> {
    let text = text.trim();
    if !text.starts_with(['{', '[']) {
        return Vec::new();
    }
    let values = serde_json::Deserializer::from_str(text).into_iter::<Distinct>();
    values
        .map_while(Result::ok)
        .flat_map(|Distinct(value)| match value {
            Value::Array(items) => items,
            one => vec![one],
        })
        .filter_map(|value| RawCall::from_json(&value))
        .take(MAX_CALLS)
        .collect()
}

fn unquote(name: &str) -> String {
    name.trim().trim_matches(['"', '\'']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: &str) {
        let found = calls(text, &|name| name == "f" || name == "g");
        let shown: Vec<String> = found
            .iter()
            .map(|call| match &call.arguments {
                Arguments::Object(map) => format!("{}{}", call.name, Value::Object(map.clone())),
                Arguments::Unreadable(_) => format!("{}!", call.name),
            })
            .collect();
        assert_eq!(shown.join(" "), expect, "{text}");
    }

    #[test]
    fn bare_json() {
        check(r#"{"name":"f","arguments":{"id":"SO-1"}}"#, r#"f{"id":"SO-1"}"#);
        check(r#" {"name":"f","arguments":"{\"id\":1}"} Done."#, r#"f{"id":1}"#);
        check(r#"[{"name":"f","parameters":{}},{"name":"g"}]"#, "f{} g{}");
        check("{\"name\":\"f\"}\n{\"name\":\"g\"}", "f{} g{}");
        check(r#"{"type":"function","function":{"name":"f","arguments":"{}"}}"#, "f{}");
        check(r#"{"name":"f","arguments":"{\"id\":"}"#, "f!");
    }

    #[test]
    fn fenced_json() {
        check("Sure:\n```json\n{\"name\": \"f\", \"arguments\": {\"a\": \"退款\"}}\n```\nok", r#"f{"a":"退款"}"#);
        check("```\n{\"name\":\"f\"}\n```", "f{}");
        check("```tool_call\n{\"name\":\"g\"}", "g{}");
    }

    #[test]
    fn tool_call_tags() {
        check("<tool_call>\n{\"name\":\"f\",\"arguments\":{}}\n</tool_call>", "f{}");
        check("<tool_call>{\"name\":\"f\"}</tool_call><tool_call>{\"name\":\"g\"}</tool_call>", "f{} g{}");
        check("<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1}}", r#"f{"a":1}"#);
    }

    #[test]
    fn function_tags_with_parameters() {
        check("<function=f><parameter=k>v</parameter></function>", r#"f{"k":"v"}"#);
        check(
            "<tool_call>\n<function=f>\n<parameter=k>\nline 1\nline 2\n</parameter>\n<parameter=n>3</parameter>\n</function>\n</tool_call>",
            r#"f{"k":"line 1\nline 2","n":"3"}"#,
        );
        check("<function=\"f\">{\"a\":true}</function>", r#"f{"a":true}"#);
        check("<function=f><parameter=k>1</parameter><parameter=k>2</parameter></function>", "f!");
        check(r#"<tool_call>{"name":"f","arguments":{"金额":82,"金额":820}}</tool_call>"#, "");
        check("<function=f></function>", "f{}");
        check("<function=f>{broken</function>", "f!");
    }

    #[test]
    fn after_thinking_only_what_follows_counts() {
        check("<think>{\"name\":\"g\"} maybe?</think>{\"name\":\"f\"}", "f{}");
        check("no {\"name\":\"g\"}</think>\n<tool_call>{\"name\":\"f\"}</tool_call>", "f{}");
        check("<think>I could call <tool_call>{\"name\":\"f\"}</tool_call>", "");
    }

    #[test]
    fn a_name_off_the_shortlist_is_just_text() {
        check(r#"{"name":"rm_rf","arguments":{}}"#, "");
        check("<tool_call>{\"name\":\"rm_rf\"}</tool_call>", "");
        check("Your order {\"name\":\"f\"} is on its way.", "");
        check("", "");
        check("``` ``` <function= <parameter=", "");
    }

    #[test]
    fn the_object_of_a_json_answer() {
        assert_eq!(object("```json\n{\"tool\":\"f\"}\n```").unwrap()["tool"], "f");
        assert_eq!(object("<think>{}</think>Answer: {\"tool\":\"f\"} ok").unwrap()["tool"], "f");
        assert_eq!(object("{\"tool\":"), None);
        assert_eq!(object("none"), None);
        assert_eq!(object(r#"{"tool":"f","arguments":{"amount":82,"amount":820}}"#), None);
    }
}
