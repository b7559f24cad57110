//! The effective configuration as text that is valid TOML, or as JSON.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::layers::DEFAULT;
use super::raw::SECRETS;

const MASK: &str = "***";

/// Replaces secrets that are set.
pub(super) fn masked(mut values: Map<String, Value>) -> Map<String, Value> {
    for (section, name) in SECRETS.iter().filter_map(|key| key.split_once('.')) {
        if let Some(secret) = values.get_mut(section).and_then(|keys| keys.get_mut(name)) {
            let is_set = secret.as_str().is_some_and(|text| !text.is_empty());
            if is_set {
                *secret = MASK.into();
            }
        }
    }
    values
}

pub(super) fn json(values: &Map<String, Value>, origins: &BTreeMap<String, String>) -> String {
    let section = |(name, keys): (&String, &Value)| (name.clone(), with_origins(name, keys, origins));
    format!("{:#}\n", Value::Object(values.iter().map(section).collect()))
}

fn with_origins(section: &str, keys: &Value, origins: &BTreeMap<String, String>) -> Value {
    let entry = |(key, value): (&String, &Value)| {
        (key.clone(), json!({"value": value, "origin": origin(section, key, origins)}))
    };
    Value::Object(keys.as_object().into_iter().flatten().map(entry).collect())
}

pub(super) fn text(values: &Map<String, Value>, origins: &BTreeMap<String, String>) -> String {
    let mut out = String::new();
    for (section, keys) in values {
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(&format!("[{section}]\n"));
        for (key, value) in keys.as_object().into_iter().flatten() {
            let origin = origin(section, key, origins);
            let setting = match value {
                Value::Null => format!("# {key} is not set"),
                value => format!("{key} = {}", toml(value)),
            };
            out.push_str(&format!("{setting:<48} # {origin}\n"));
        }
    }
    out
}

fn origin<'a>(section: &str, key: &str, origins: &'a BTreeMap<String, String>) -> &'a str {
    origins.get(&format!("{section}.{key}")).map_or(DEFAULT, String::as_str)
}

fn toml(value: &Value) -> String {
    match value {
        Value::String(text) => toml::Value::String(text.clone()).to_string(),
        Value::Array(items) => format!("[{}]", items.iter().map(toml).collect::<Vec<_>>().join(", ")),
        Value::Object(map) => {
            let entry =
                |(key, value): (&String, &Value)| format!("{} = {}", toml(&Value::from(key.as_str())), toml(value));
            format!("{{{}}}", map.iter().map(entry).collect::<Vec<_>>().join(", "))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}
