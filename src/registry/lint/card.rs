//! One card as the rules look at it: its parameters in a row, its texts with their places.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::seen::Seen;
use crate::registry::positions::join;
use crate::registry::{Place, Registry};
use crate::tool::ToolCard;

/// Parameters of one card that are looked at, and how deep.
const MAX_PARAMETERS: usize = 300;
const MAX_DEPTH: usize = 8;
/// What stands deeper or has a longer name is looked at no further.
const MAX_POINTER_BYTES: usize = 4 * 1024;

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
    pub schema: Seen<'a>,
    pub required: bool,
    /// 0 for an argument itself.
    pub depth: usize,
}

impl<'a> Parameter<'a> {
    pub fn text(&self, key: &str) -> Option<&'a str> {
        self.schema.get(key).and_then(Value::as_str)
    }

    pub fn description(&self) -> &'a str {
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
        self.schema.has("enum")
            || self.schema.has("const")
            || ["anyOf", "oneOf", "allOf"].iter().any(|key| {
                let parts = self.schema.get(key).and_then(Value::as_array);
                parts.is_some_and(|parts| parts.iter().filter_map(Value::as_object).any(closed))
            })
    }

    pub fn strings(&self, key: &str) -> Vec<&'a str> {
        let listed = self.schema.get(key).and_then(Value::as_array);
        listed.into_iter().flatten().filter_map(Value::as_str).collect()
    }
}

/// A text and where it stands; the pointer is put together when somebody wants it.
pub(super) struct Text<'t> {
    base: &'t str,
    at: At,
    pub text: &'t str,
}

/// Where a text stands below its base.
enum At {
    Itself,
    Key(&'static str),
    Index(usize),
    Nth(&'static str, usize),
    Case(usize),
}

impl<'t> Text<'t> {
    fn new(base: &'t str, at: At, text: &'t str) -> Self {
        Self { base, at, text }
    }

    /// From the card's root.
    pub fn pointer(&self) -> String {
        let base = self.base;
        match self.at {
            At::Itself => base.to_owned(),
            At::Key(key) => format!("{base}/{key}"),
            At::Index(nth) => format!("{base}/{nth}"),
            At::Nth(key, nth) => format!("{base}/{key}/{nth}"),
            At::Case(nth) => format!("{base}/when_not_to_use/{nth}/case"),
        }
    }

    /// Whether it describes the tool or one of its parameters.
    pub fn describes(&self) -> bool {
        match self.at {
            At::Key("returns") => false,
            At::Key("description") => true,
            At::Itself | At::Key(_) | At::Index(_) | At::Nth(..) | At::Case(_) => self.base == "/description",
        }
    }
}

impl<'a> Card<'a> {
    pub fn new(card: &'a ToolCard, registry: &'a Registry) -> Self {
        let place = registry.places.get(&card.id);
        // Only native cards have to state a timeout.
        let native = place.map_or(card.timeout.is_some(), |place| place.native);
        let mut parameters = Vec::new();
        let root = &card.parameters;
        if let Some(seen) = Seen::new(root, root) {
            gather(root, &seen, "/parameters", 0, &mut parameters);
        }
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

    /// Every text of the card that a model may read. Of the values of an enum the first few hundred: further ones are of
    /// the same kind.
    pub fn texts(&self) -> impl Iterator<Item = Text<'_>> {
        let card = self.card;
        let description = &card.description;
        let plain = description.plain.as_deref();
        let parts = plain.is_none().then(|| {
            let nth = |key, items: &'a [String]| {
                items.iter().enumerate().map(move |(nth, text)| Text::new("/description", At::Nth(key, nth), text))
            };
            let what = Text::new("/description", At::Key("what"), &description.what);
            let not = description.when_not_to_use.iter().enumerate();
            let not = not.map(|(nth, border)| Text::new("/description", At::Case(nth), &border.case));
            let returns = description.returns.as_deref();
            std::iter::once(what)
                .chain(nth("when_to_use", &description.when_to_use))
                .chain(not)
                .chain(returns.map(|text| Text::new("/description", At::Key("returns"), text)))
        });
        let examples = card.examples.iter().enumerate();
        std::iter::once(Text::new("/name", At::Itself, &card.name))
            .chain(plain.map(|text| Text::new("/description", At::Itself, text)))
            .chain(parts.into_iter().flatten())
            .chain(examples.map(|(nth, text)| Text::new("/examples", At::Index(nth), text)))
            .chain(self.schema_texts())
    }

    /// Names, titles, descriptions and values in the schema.
    fn schema_texts(&self) -> impl Iterator<Item = Text<'_>> {
        const MAX_VALUES: usize = 500;
        let top = ["title", "description"].into_iter().filter_map(|key| {
            let text = self.card.parameters.get(key).and_then(Value::as_str)?;
            Some(Text::new("/parameters", At::Key(key), text))
        });
        top.chain(self.parameters.iter().flat_map(|parameter| {
            let at = parameter.pointer.as_str();
            let words = ["title", "description", "default"].into_iter().filter_map(move |key| {
                Some(Text::new(at, At::Key(key), parameter.schema.get(key).and_then(Value::as_str)?))
            });
            let values = parameter.schema.get("enum").and_then(Value::as_array).into_iter().flatten();
            let values = values.filter_map(Value::as_str).take(MAX_VALUES);
            std::iter::once(Text::new(at, At::Itself, parameter.name))
                .chain(words)
                .chain(values.map(move |text| Text::new(at, At::Key("enum"), text)))
        }))
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

fn gather<'a>(root: &'a Value, schema: &Seen<'a>, at: &str, depth: usize, found: &mut Vec<Parameter<'a>>) {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
    let listed = schema.get("required").and_then(Value::as_array);
    let required: BTreeSet<&str> = listed.into_iter().flatten().filter_map(Value::as_str).collect();
    let at = format!("{at}/properties");
    for (name, inner) in properties {
        let Some(seen) = Seen::new(root, inner) else { continue };
        let pointer = join(&at, name);
        if pointer.len() > MAX_POINTER_BYTES {
            continue;
        }
        if found.len() >= MAX_PARAMETERS {
            return;
        }
        let required = required.contains(name.as_str());
        found.push(Parameter { name, pointer: pointer.clone(), schema: seen.clone(), required, depth });
        if depth < MAX_DEPTH {
            gather(root, &seen, &pointer, depth + 1, found);
            if let Some(items) = seen.get("items").and_then(|items| Seen::new(root, items)) {
                gather(root, &items, &join(&pointer, "items"), depth + 1, found);
            }
        }
    }
}
