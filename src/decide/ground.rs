//! Where the values of proposed arguments stand in the conversation.

use std::ops::Range;

use serde_json::{Map, Value};

use super::local::extract::{self, numbers, words};
use crate::args::{ArgumentSchema, Origin, Origins, Property};
use crate::text::{Query, to_nfkc};
use crate::types::Turn;

/// History looked back at, in bytes, newest turns first.
const MAX_HISTORY: usize = 256 * 1024;

/// The origin of each top-level argument: utterance span, history, session, default (in `defaulted`), enum text, or
/// inferred when it stands nowhere. A list is as well grounded as its weakest item; an object is inferred unless
/// history or session hold it.
pub fn trace(
    arguments: &Map<String, Value>,
    schema: &ArgumentSchema,
    query: &Query,
    history: &[Turn],
    session: &Map<String, Value>,
    defaulted: &[String],
) -> Origins {
    let said = Said::new(query, history);
    arguments
        .iter()
        .map(|(name, value)| {
            let origin = if defaulted.contains(name) {
                Origin::Default
            } else if session.get(name) == Some(value) {
                Origin::Session
            } else {
                said.origin(value, schema.property(name).as_ref())
            };
            (name.clone(), origin)
        })
        .collect()
}

/// The conversation in comparable form.
struct Said {
    /// The utterance in small letters, same byte positions.
    lower: String,
    compact: Compact,
    history: Compact,
}

impl Said {
    fn new(query: &Query, history: &[Turn]) -> Self {
        let mut left = MAX_HISTORY;
        let recent = history.iter().rev().take_while(|turn| {
            left = left.saturating_sub(turn.content.len());
            left > 0
        });
        let turns: Vec<String> = recent.map(|turn| to_nfkc(&turn.content)).collect();
        // A line end keeps a value from being put together from two turns.
        Self {
            lower: query.text.to_ascii_lowercase(),
            compact: Compact::new(&query.text),
            history: Compact::new(&turns.join("\n")),
        }
    }

    fn origin(&self, value: &Value, property: Option<&Property<'_>>) -> Origin {
        match value {
            Value::String(text) => self.text(text, property),
            Value::Number(_) => self.number(value, property),
            Value::Bool(flag) => match property.and_then(|property| extract::meant_boolean(&self.lower, property)) {
                Some(meant) if meant == *flag => Origin::EnumText,
                Some(_) | None => Origin::Inferred,
            },
            Value::Array(items) => items
                .iter()
                .map(|item| self.item(item, property))
                .max_by_key(|origin| weakness(*origin))
                .unwrap_or(Origin::Inferred),
            Value::Object(_) | Value::Null => Origin::Inferred,
        }
    }

    fn item(&self, item: &Value, property: Option<&Property<'_>>) -> Origin {
        let choices = property.map(Property::item_choices).unwrap_or_default();
        if choices.is_empty() { self.origin(item, None) } else { self.choice(item, property, &choices) }
    }

    fn text(&self, text: &str, property: Option<&Property<'_>>) -> Origin {
        let choices = property.map(Property::choices).unwrap_or_default();
        if !choices.is_empty() {
            return self.choice(&Value::String(text.to_owned()), property, &choices);
        }
        let wanted = Compact::new(&to_nfkc(text));
        if let Some(span) = self.compact.find(&wanted) {
            return Origin::Utterance { start: span.start, end: span.end };
        }
        if self.history.find(&wanted).is_some() { Origin::History } else { Origin::Inferred }
    }

    fn number(&self, value: &Value, property: Option<&Property<'_>>) -> Origin {
        let choices = property.map(Property::choices).unwrap_or_default();
        let Some(wanted) = value.as_f64() else { return Origin::Inferred };
        let said = numbers::mentions(&self.lower, &[]).into_iter().find(|said| said.value == wanted);
        if let Some(said) = said {
            return Origin::Utterance { start: said.span.start, end: said.span.end };
        }
        if !choices.is_empty() {
            return self.choice(value, property, &choices);
        }
        let history = self.history.text.as_str();
        if numbers::mentions(history, &[]).iter().any(|said| said.value == wanted) {
            Origin::History
        } else {
            Origin::Inferred
        }
    }

    /// A value of a closed set: its own name, or words tied to it.
    fn choice(&self, value: &Value, property: Option<&Property<'_>>, choices: &[&Value]) -> Origin {
        if let ([only], Some(Property { required: true, .. })) = (choices, property) {
            return if *only == value { Origin::Default } else { Origin::Inferred };
        }
        let description = property.map(Property::description).unwrap_or("");
        let spoken = extract::is_meant(&self.lower, description, choices, value);
        if spoken {
            return Origin::EnumText;
        }
        let name = value.as_str().map(|text| text.replace('_', " ").to_ascii_lowercase());
        let earlier = name.is_some_and(|name| {
            words::find(&self.history.text, &name).is_some()
                || words::find(&self.history.text, &name.replace(' ', "_")).is_some()
        });
        if earlier { Origin::History } else { Origin::Inferred }
    }
}

/// Higher is less well grounded.
fn weakness(origin: Origin) -> u8 {
    match origin {
        Origin::Utterance { .. } => 0,
        Origin::EnumText => 1,
        Origin::Session => 2,
        Origin::History => 3,
        Origin::Default => 4,
        Origin::Rule => 5,
        Origin::Inferred => 6,
    }
}

/// A text in small letters and the same without what separates: blanks, dashes, punctuation.
struct Compact {
    text: String,
    letters: Vec<char>,
    /// Byte range of each letter in the source.
    places: Vec<Range<usize>>,
}

impl Compact {
    fn new(source: &str) -> Self {
        let mut letters = Vec::with_capacity(source.len());
        let mut places = Vec::with_capacity(source.len());
        for (at, c) in source.char_indices() {
            let keeps = c.is_alphanumeric() || c == '\n';
            if keeps {
                for small in c.to_lowercase() {
                    letters.push(small);
                    places.push(at..at + c.len_utf8());
                }
            }
        }
        Self { text: source.to_ascii_lowercase(), letters, places }
    }

    /// Where `wanted` stands. A value that begins or ends in an ASCII letter or digit must not go on there, so that
    /// the id `12` is not found in `123`.
    fn find(&self, wanted: &Self) -> Option<Range<usize>> {
        let length = wanted.letters.len();
        if length == 0 || length > self.letters.len() {
            return None;
        }
        (0..=self.letters.len() - length).find_map(|from| {
            let until = from + length;
            if self.letters[from..until] != wanted.letters[..] {
                return None;
            }
            let joined = |left: usize, right: usize| {
                self.letters[left].is_ascii_alphanumeric()
                    && self.letters[right].is_ascii_alphanumeric()
                    && self.places[left].end == self.places[right].start
            };
            let cut = from > 0 && joined(from - 1, from) || until < self.letters.len() && joined(until - 1, until);
            (!cut).then(|| self.places[from].start..self.places[until - 1].end)
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::text::normalise;
    use crate::types::Role;

    #[track_caller]
    fn check(utterance: &str, name: &str, value: Value, expect: &str) {
        let schema = ArgumentSchema::compile(&json!({
            "type": "object",
            "properties": {
                "order_id": {"type": "string", "pattern": r"^SO-\d{8}$"},
                "status": {"enum": ["paid", "shipped"], "description": "待发货 is paid, 在路上 is shipped."},
                "fields": {"type": "array", "items": {"enum": ["amount", "items"]}, "description": "[amount] for 付了多少钱"},
                "enabled": {"type": "boolean", "description": "true to switch on (开), false to switch off (关)."},
                "limit": {"type": "integer"},
                "kind": {"enum": ["only"]}
            },
            "required": ["kind"]
        }))
        .unwrap();
        let query = normalise(utterance).unwrap();
        let history = [Turn { role: Role::User, content: "SO-11112222 退 45 元".into() }];
        let session = json!({"tenant": "t1"}).as_object().cloned().unwrap();
        let arguments = Map::from_iter([(name.to_owned(), value)]);
        let origins = trace(&arguments, &schema, &query, &history, &session, &["page".to_owned()]);
        assert_eq!(origins[name].as_str(), expect, "{utterance}");
        if let Origin::Utterance { start, end } = origins[name] {
            assert!(query.text.get(start..end).is_some());
        }
    }

    #[test]
    fn every_origin_is_told() {
        check("查so-2026 0418", "order_id", json!("SO-20260418"), "utterance");
        check("ＳＯ－２０２６０４１８", "order_id", json!("SO-20260418"), "utterance");
        check("查SO-202604189", "order_id", json!("SO-20260418"), "inferred");
        check("就那单", "order_id", json!("SO-11112222"), "history");
        check("就那单", "order_id", json!("SO-99999999"), "inferred");
        check("x", "tenant", json!("t1"), "session");
        check("x", "page", json!(1), "default");
        check("x", "kind", json!("only"), "default");
        check("待发货的", "status", json!("paid"), "enum_text");
        check("待发货的", "status", json!("shipped"), "inferred");
        check("which ones are shipped", "status", json!("shipped"), "enum_text");
        check("付了多少", "fields", json!(["amount"]), "enum_text");
        check("付了多少", "fields", json!(["amount", "items"]), "inferred");
        check("关掉", "enabled", json!(false), "enum_text");
        check("关掉", "enabled", json!(true), "inferred");
        check("最近三单", "limit", json!(3), "utterance");
        check("最近三单", "limit", json!(4), "inferred");
        check("同样的钱", "limit", json!(45), "history");
        check("留言放门口就行", "note", json!("放门口就行"), "utterance");
        check("留言放门口就行", "note", json!({"a": 1}), "inferred");
    }
}
