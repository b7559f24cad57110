//! What is asked of an endpoint. Short, so that probing costs little; three functions, so that there is a choice.

use serde_json::{Map, Value, json};

pub(super) type Body = Map<String, Value>;

pub(super) const TRACK: &str = "track_parcel";
pub(super) const CANCEL: &str = "cancel_order";
pub(super) const NONE: &str = "no_tool";
pub(super) const NAMES: [&str; 3] = [TRACK, CANCEL, NONE];

pub(super) const PARCEL: &str = "Where is my parcel SF1234567890?";
pub(super) const PARCEL_ZH: &str = "我的快递SF1234567890到哪了？";
pub(super) const TWO_PARCELS: &str = "Where are my parcels SF1234567890 and SF1234567891? Track both.";
pub(super) const GREETING: &str = "Hello, how are you today?";

/// Names nobody would think of: an answer that holds one obeys the schema.
pub(super) const PARCEL_CODE: &str = "parcel_q7";
pub(super) const ORDER_CODE: &str = "order_k3";
pub(super) const NOTE_LENGTH: usize = 20;

/// A question and nothing that an endpoint could dislike.
pub(super) fn plain(model: &str, text: &str) -> Body {
    body(json!({"model": model, "messages": [{"role": "user", "content": text}], "stream": false}))
}

pub(super) fn tools(model: &str, text: &str, choice: Option<&str>) -> Body {
    let system = "Choose the function that serves the user's request. When none does, call no_tool.";
    let mut body = plain(model, text);
    body.insert("messages".into(), json!([{"role": "system", "content": system}, {"role": "user", "content": text}]));
    let argument = |name: &str| json!({"type": "object", "properties": {name: {"type": "string"}}, "required": [name]});
    let functions = [
        function(TRACK, "Tell where a parcel is.", argument("tracking_no")),
        function(CANCEL, "Cancel an order that was not sent yet.", argument("order_id")),
        function(NONE, "Nothing fits: small talk or something else.", json!({"type": "object", "properties": {}})),
    ];
    body.insert("tools".into(), json!(functions));
    if let Some(choice) = choice {
        body.insert("tool_choice".into(), json!(choice));
    }
    body
}

/// As many functions as that, as small as they can be.
pub(super) fn many_tools(model: &str, count: usize) -> Body {
    // An answer cut short, or prose, makes some servers fail where functions are offered.
    let mut body = plain(model, "Call the function f0.");
    let empty = json!({"type": "object", "properties": {}});
    let functions: Vec<Value> = (0..count).map(|n| function(&format!("f{n}"), "-", empty.clone())).collect();
    body.insert("tools".into(), json!(functions));
    body
}

fn function(name: &str, description: &str, parameters: Value) -> Value {
    json!({"type": "function",
           "function": {"name": name, "description": description, "parameters": parameters}})
}

/// The question names neither the codes nor the length: only the schema does.
pub(super) fn json_schema(model: &str, text: &str) -> Body {
    let question = format!(
        "A user says: \"{text}\"\nAnswer with a JSON object: \"choice\" is the code of what the user is after, \"note\" is \
         one long sentence on why."
    );
    let schema = json!({
        "type": "object",
        "properties": {
            "choice": {"type": "string", "enum": [PARCEL_CODE, ORDER_CODE, NONE]},
            "note": {"type": "string", "maxLength": NOTE_LENGTH},
        },
        "required": ["choice", "note"],
    });
    let format = json!({"name": "choice", "strict": false, "schema": schema});
    let mut body = plain(model, &question);
    body.insert("response_format".into(), json!({"type": "json_schema", "json_schema": format}));
    body
}

pub(super) fn with(mut body: Body, key: &str, value: Value) -> Body {
    body.insert(key.into(), value);
    body
}

fn body(value: Value) -> Body {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
