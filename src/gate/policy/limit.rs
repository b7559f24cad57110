//! What an argument may be.
//!
//! A value that cannot be read as what the limit speaks of breaks it: a limit that is not understood must not be passed.

use serde_json::{Map, Value};

use crate::text::to_nfkc;

/// A limit on one argument. One that is not given keeps every limit but `present`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Limit {
    /// Names from the arguments down.
    pub path: Vec<String>,
    pub bounds: Bounds,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Bounds {
    pub min: Option<f64>,
    pub max: Option<f64>,
    /// In characters.
    pub max_length: Option<usize>,
    pub allowed: Option<Vec<Value>>,
    pub forbidden: Option<Vec<Value>>,
    pub present: Option<bool>,
}

impl Limit {
    pub fn holds(&self, arguments: &Map<String, Value>) -> bool {
        let mut value = self.path.first().and_then(|name| arguments.get(name));
        for name in self.path.iter().skip(1) {
            value = value.and_then(|value| value.get(name));
        }
        let bounds = &self.bounds;
        let Some(value) = value.filter(|value| !value.is_null()) else { return bounds.present != Some(true) };
        let within = |bound: Option<f64>, keeps: fn(f64, f64) -> bool| {
            bound.is_none_or(|bound| number(value).is_some_and(|number| keeps(number, bound)))
        };
        bounds.present != Some(false)
            && within(bounds.min, |number, min| number >= min)
            && within(bounds.max, |number, max| number <= max)
            && bounds.max_length.is_none_or(|most| value.as_str().is_some_and(|text| text.chars().count() <= most))
            && bounds.allowed.as_ref().is_none_or(|allowed| allowed.iter().any(|listed| same(listed, value)))
            && bounds
                .forbidden
                .as_ref()
                .is_none_or(|forbidden| is_scalar(value) && !forbidden.iter().any(|listed| same(listed, value)))
    }

    /// JSON pointer into the arguments.
    pub fn pointer(&self) -> String {
        self.path.iter().map(|name| format!("/{}", name.replace('~', "~0").replace('/', "~1"))).collect()
    }

    pub fn words(&self) -> String {
        let list = |values: &[Value]| {
            let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            values.iter().map(shown).collect::<Vec<_>>().join(", ")
        };
        let bounds = &self.bounds;
        let mut words = Vec::new();
        words.extend(bounds.present.map(|present| if present { "given" } else { "left out" }.to_owned()));
        words.extend(bounds.min.map(|min| format!("at least {min}")));
        words.extend(bounds.max.map(|max| format!("at most {max}")));
        words.extend(bounds.max_length.map(|most| format!("at most {most} characters")));
        words.extend(bounds.allowed.as_ref().map(|allowed| format!("one of {}", list(allowed))));
        words.extend(bounds.forbidden.as_ref().map(|forbidden| format!("none of {}", list(forbidden))));
        words.join(", ")
    }
}

/// A finite number, also one written as text, full-width digits included.
fn number(value: &Value) -> Option<f64> {
    let number = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => to_nfkc(text).trim().parse().ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    number.filter(|number| number.is_finite())
}

fn is_scalar(value: &Value) -> bool {
    !value.is_array() && !value.is_object()
}

/// Texts after NFKC and without blanks around, numbers by value.
fn same(listed: &Value, value: &Value) -> bool {
    match (listed, value) {
        (Value::String(listed), Value::String(value)) => to_nfkc(listed).trim() == to_nfkc(value).trim(),
        (Value::Number(listed), value) => listed.as_f64().is_some() && listed.as_f64() == number(value),
        (listed, value) => listed == value,
    }
}
