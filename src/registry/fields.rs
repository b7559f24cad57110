//! Typed access to the fields of one raw card; every mismatch becomes a problem and reading goes on.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value};

use super::CardProblem;
use super::positions::{Lines, join};

/// Entries in one list of texts.
const MAX_LIST: usize = 1_000;
/// Longer reports help nobody.
const MAX_PROBLEMS: usize = 50;

/// What is wrong with one card, gathered while it is read.
pub(crate) struct Report<'a> {
    lines: &'a Lines,
    problems: Vec<CardProblem>,
    left_out: usize,
}

impl<'a> Report<'a> {
    pub fn new(lines: &'a Lines, problems: Vec<CardProblem>) -> Self {
        Self { lines, problems, left_out: 0 }
    }

    pub fn add(&mut self, pointer: &str, message: impl Into<String>) {
        if self.problems.len() >= MAX_PROBLEMS {
            self.left_out += 1;
            return;
        }
        let line = self.lines.line(pointer);
        self.problems.push(CardProblem { pointer: pointer.into(), line, message: message.into() });
    }

    pub fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }

    pub fn into_problems(mut self) -> Vec<CardProblem> {
        if self.left_out > 0 {
            let message = format!("{} further problems are left out", self.left_out);
            self.problems.push(CardProblem { pointer: String::new(), line: None, message });
        }
        self.problems
    }
}

/// One mapping inside the card. `null` counts as absent everywhere.
pub(crate) struct Fields<'a> {
    map: &'a Map<String, Value>,
    /// Pointer of the mapping.
    at: String,
}

impl<'a> Fields<'a> {
    pub fn new(map: &'a Map<String, Value>, at: impl Into<String>) -> Self {
        Self { map, at: at.into() }
    }

    pub fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    /// Pointer of the mapping itself.
    pub fn at(&self) -> &str {
        &self.at
    }

    pub fn pointer(&self, key: &str) -> String {
        join(&self.at, key)
    }

    pub fn unknown<'k>(&self, known: &'k [&'k str]) -> impl Iterator<Item = &'a String> + use<'a, 'k> {
        self.map.keys().filter(move |key| !known.contains(&key.as_str()))
    }

    pub fn wrong(&self, report: &mut Report<'_>, key: &str, expected: &str) {
        let found = self.get(key).map_or("nothing", kind);
        report.add(&self.pointer(key), format!("expected {expected}, found {found}"));
    }

    pub fn missing(&self, report: &mut Report<'_>, key: &str, expected: &str) {
        report.add(&self.pointer(key), format!("`{key}` is missing; state {expected}"));
    }

    pub fn text(&self, report: &mut Report<'_>, key: &str) -> Option<String> {
        match self.get(key)? {
            Value::String(text) => Some(text.clone()),
            _ => {
                self.wrong(report, key, "a text");
                None
            }
        }
    }

    /// A text or a number, as text: versions are often written bare.
    pub fn text_or_number(&self, report: &mut Report<'_>, key: &str) -> Option<String> {
        match self.get(key)? {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => {
                self.wrong(report, key, "a text or a number");
                None
            }
        }
    }

    pub fn flag(&self, report: &mut Report<'_>, key: &str) -> Option<bool> {
        let value = self.get(key)?;
        if !value.is_boolean() {
            self.wrong(report, key, "true or false");
        }
        value.as_bool()
    }

    /// One of a closed set of names.
    pub fn choice<T>(
        &self,
        report: &mut Report<'_>,
        key: &str,
        names: &[&str],
        parse: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        let value = self.get(key)?;
        let chosen = value.as_str().and_then(parse);
        if chosen.is_none() {
            let found = value.as_str().map_or_else(|| kind(value).to_owned(), |name| format!("`{}`", shorten(name)));
            report.add(&self.pointer(key), format!("expected one of {}, found {found}", names.join(", ")));
        }
        chosen
    }

    /// A whole number of `unit_ms` milliseconds each, at least 1 and at most a day.
    pub fn duration(&self, report: &mut Report<'_>, key: &str, unit_ms: u64) -> Option<Duration> {
        const DAY_MS: u64 = 24 * 60 * 60 * 1000;
        let value = self.get(key)?;
        let limit = DAY_MS / unit_ms;
        let number = whole_number(value).filter(|number| (1..=limit).contains(number));
        if number.is_none() {
            let found = if value.is_number() { format!("`{value}`") } else { kind(value).to_owned() };
            report.add(&self.pointer(key), format!("expected a whole number from 1 to {limit}, found {found}"));
        }
        number.map(|number| Duration::from_millis(number * unit_ms))
    }

    pub fn texts(&self, report: &mut Report<'_>, key: &str) -> Option<Vec<String>> {
        let Some(items) = self.list(report, key, "a list of texts")? else { return Some(Vec::new()) };
        let mut texts = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            match item.as_str() {
                Some(text) if text.trim().is_empty() => report.add(&join(&self.pointer(key), index), "an empty text"),
                Some(text) => texts.push(text.to_owned()),
                None => report.add(&join(&self.pointer(key), index), format!("expected a text, found {}", kind(item))),
            }
        }
        Some(texts)
    }

    /// `None` if the key is absent, `Some(None)` if it holds something else than a list of bearable length.
    pub fn list(&self, report: &mut Report<'_>, key: &str, expected: &str) -> Option<Option<&'a Vec<Value>>> {
        match self.get(key)? {
            Value::Array(items) if items.len() <= MAX_LIST => Some(Some(items)),
            Value::Array(items) => {
                let message = format!("{} entries; at most {MAX_LIST} are allowed", items.len());
                report.add(&self.pointer(key), message);
                Some(None)
            }
            _ => {
                self.wrong(report, key, expected);
                Some(None)
            }
        }
    }

    /// Field → code → words.
    pub fn enum_texts(&self, report: &mut Report<'_>, key: &str) -> BTreeMap<String, BTreeMap<String, String>> {
        let mut texts = BTreeMap::new();
        let Some(value) = self.get(key) else { return texts };
        let Value::Object(fields) = value else {
            self.wrong(report, key, "a mapping from field to a mapping from code to words");
            return texts;
        };
        for (field, codes) in fields {
            let at = join(&self.pointer(key), field);
            let Value::Object(codes) = codes else {
                report.add(&at, format!("expected a mapping from code to words, found {}", kind(codes)));
                continue;
            };
            let words: &mut BTreeMap<String, String> = texts.entry(field.clone()).or_default();
            for (code, text) in codes {
                match text.as_str() {
                    Some(text) => drop(words.insert(code.clone(), text.to_owned())),
                    None => report.add(&join(&at, code), format!("expected words, found {}", kind(text))),
                }
            }
        }
        texts
    }
}

/// Calls that carry cards know only floating-point numbers, so `2000.0` counts as 2000.
fn whole_number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| {
        let float = value.as_f64()?;
        (float.fract() == 0.0 && (0.0..9_007_199_254_740_992.0).contains(&float)).then_some(float as u64)
    })
}

pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}

pub(crate) fn shorten(text: &str) -> String {
    const MAX: usize = 60;
    if text.chars().count() <= MAX { text.to_owned() } else { text.chars().take(MAX).chain(['…']).collect() }
}
