//! One card as the rules look at it: its parameters in a row, its texts with their places.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::registry::positions::join;
use crate::registry::{Place, Registry};
use crate::tool::ToolCard;

/// Parameters of one card that are looked at, and how deep.
const MAX_PARAMETERS: usize = 300;
const MAX_DEPTH: usize = 8;

pub(super) struct Card<'a> {
    pub card: &'a ToolCard,
    pub place: Option<&'a Place>,
    /// Written for this server, so that its author could have said everything.
    pub native: bool,
    pub parameters: Vec<Parameter<'a>>,
}

/// One property of the arguments, or of an object in them.
pub(super) struct Parameter<'a> {
    pub name: &'a str,
    /// From the card's root.
    pub pointer: String,
    pub schema: &'a Map<String, Value>,
    pub required: bool,
    /// 0 for an argument itself.
    pub depth: usize,
}

impl Parameter<'_> {
    pub fn text(&self, key: &str) -> Option<&str> {
        self.schema.get(key).and_then(Value::as_str)
    }

    pub fn description(&self) -> &str {
        self.text("description").unwrap_or_default().trim()
    }

    /// Whether one of its types is `name`.
    pub fn is(&self, name: &str) -> bool {
        match self.schema.get("type") {
            Some(Value::String(kind)) => kind == name,
            Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == name),
            Some(_) | None => false,
        }
    }

    pub fn has(&self, key: &str) -> bool {
        self.schema.get(key).is_some_and(|value| !value.is_null())
    }

    /// Whether its values are listed, here or in alternatives.
    pub fn is_closed(&self) -> bool {
        let closed = |schema: &Map<String, Value>| schema.contains_key("enum") || schema.contains_key("const");
        closed(self.schema)
            || ["anyOf", "oneOf", "allOf"].iter().any(|key| {
                let parts = self.schema.get(*key).and_then(Value::as_array);
                parts.is_some_and(|parts| parts.iter().filter_map(Value::as_object).any(closed))
            })
    }

    pub fn strings(&self, key: &str) -> Vec<&str> {
        let listed = self.schema.get(key).and_then(Value::as_array);
        listed.into_iter().flatten().filter_map(Value::as_str).collect()
    }
}

impl<'a> Card<'a> {
    pub fn new(card: &'a ToolCard, registry: &'a Registry) -> Self {
        let place = registry.places.get(&card.id);
        // Only native cards have to state a timeout.
        let native = place.map_or(card.timeout.is_some(), |place| place.native);
        let mut parameters = Vec::new();
        gather(&card.parameters, "/parameters", 0, &mut parameters);
        Self { card, place, native, parameters }
    }

    /// Arguments themselves, without what is inside objects.
    pub fn arguments(&self) -> impl Iterator<Item = &Parameter<'a>> {
        self.parameters.iter().filter(|parameter| parameter.depth == 0)
    }

    /// One word for what the card is about, for proposals.
    pub fn object(&self) -> &str {
        let is_word = |domain: &&str| domain.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        self.card.domain.as_deref().filter(is_word).unwrap_or("orders")
    }

    /// Names in `required` at the top.
    pub fn required(&self) -> Vec<&'a str> {
        let listed = self.card.parameters.get("required").and_then(Value::as_array);
        listed.into_iter().flatten().filter_map(Value::as_str).collect()
    }

    /// Every text of the card that a model may read, with its pointer.
    pub fn texts(&self) -> Vec<(String, &'a str)> {
        let card = self.card;
        let mut texts = vec![("/name".to_owned(), card.name.as_str())];
        let description = &card.description;
        match &description.plain {
            Some(plain) => texts.push(("/description".into(), plain)),
            None => {
                texts.push(("/description/what".into(), &description.what));
                let when = description.when_to_use.iter().enumerate();
                texts.extend(when.map(|(nth, text)| (format!("/description/when_to_use/{nth}"), text.as_str())));
                let not = description.when_not_to_use.iter().enumerate();
                texts.extend(not.map(|(nth, b)| (format!("/description/when_not_to_use/{nth}/case"), b.case.as_str())));
                texts.extend(description.returns.iter().map(|text| ("/description/returns".into(), text.as_str())));
            }
        }
        let examples = card.examples.iter().enumerate();
        texts.extend(examples.map(|(nth, text)| (format!("/examples/{nth}"), text.as_str())));
        texts.extend(self.schema_texts());
        texts
    }

    /// Names, titles, descriptions and values in the schema.
    fn schema_texts(&self) -> Vec<(String, &'a str)> {
        let mut texts = Vec::new();
        for key in ["title", "description"] {
            let text = self.card.parameters.get(key).and_then(Value::as_str);
            texts.extend(text.map(|text| (format!("/parameters/{key}"), text)));
        }
        for parameter in &self.parameters {
            texts.push((parameter.pointer.clone(), parameter.name));
            for key in ["title", "description", "default"] {
                let text = parameter.schema.get(key).and_then(Value::as_str);
                texts.extend(text.map(|text| (join(&parameter.pointer, key), text)));
            }
            let values = parameter.schema.get("enum").and_then(Value::as_array).into_iter().flatten();
            texts.extend(values.filter_map(Value::as_str).map(|text| (join(&parameter.pointer, "enum"), text)));
        }
        texts
    }

    /// Names this card itself gives to things: parameters, result fields, values.
    pub fn own_words(&self) -> BTreeSet<&'a str> {
        let mut words: BTreeSet<&str> = self.card.result_fields.iter().map(String::as_str).collect();
        words.insert(&self.card.name);
        for parameter in &self.parameters {
            words.insert(parameter.name);
            let values = parameter.schema.get("enum").and_then(Value::as_array).into_iter().flatten();
            words.extend(values.filter_map(Value::as_str));
        }
        words
    }
}

fn gather<'a>(schema: &'a Value, at: &str, depth: usize, found: &mut Vec<Parameter<'a>>) {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
    let required: BTreeSet<&str> =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let at = format!("{at}/properties");
    for (name, inner) in properties {
        let Some(map) = inner.as_object() else { continue };
        if found.len() >= MAX_PARAMETERS {
            return;
        }
        let pointer = join(&at, name);
        found.push(Parameter {
            name,
            pointer: pointer.clone(),
            schema: map,
            required: required.contains(name.as_str()),
            depth,
        });
        if depth < MAX_DEPTH {
            gather(inner, &pointer, depth + 1, found);
            if let Some(items) = map.get("items") {
                gather(items, &join(&pointer, "items"), depth + 1, found);
            }
        }
    }
}
