//! What of a tool's card reaches the model.
//!
//! Owns: which parts decide, their wording around them, their bounds, the steps by which they are shortened.
//! Does not know: the conversation, or how many tools stand beside this one.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::shortlist::Shortlist;
use super::wording::Wording;
use super::{clip, portable, session};
use crate::catalog::Tool;
use crate::decide::llm::AnswerMode;
use crate::tool::SideEffect;

/// Deeper parts are left out.
pub(super) const MAX_SCHEMA_DEPTH: usize = 12;
/// Borders written out with their case; of further ones only the tools they lead to.
const MAX_BORDERS: usize = 6;

/// How far cards are shortened, the same for all cards of a prompt. Whatever the step, no tool, required argument,
/// enum or target of a border is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cut {
    Nothing,
    FewerPhrases,
    /// And borders in fewer words.
    NoPhrases,
    NoOptionalTexts,
    /// Of the tools and of what is left of their arguments.
    ShortTexts,
    /// Use in brief, targets of borders without the case, of optional arguments only what they may be.
    Bare,
}

/// Most characters of each part.
struct Limits {
    what: usize,
    phrases: usize,
    phrase: usize,
    case: usize,
    field: usize,
    optional_texts: bool,
    /// Of optional arguments and borders only the skeleton.
    bare: bool,
}

impl Cut {
    pub const ALL: [Self; 6] =
        [Self::Nothing, Self::FewerPhrases, Self::NoPhrases, Self::NoOptionalTexts, Self::ShortTexts, Self::Bare];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::FewerPhrases => "fewer_phrases",
            Self::NoPhrases => "no_phrases",
            Self::NoOptionalTexts => "no_optional_texts",
            Self::ShortTexts => "short_texts",
            Self::Bare => "bare",
        }
    }

    /// What the decision says of it.
    pub fn note(self) -> Option<&'static str> {
        match self {
            Self::Nothing => None,
            Self::FewerPhrases => Some("cards shortened to fit llm.card_tokens: fewer phrases"),
            Self::NoPhrases => Some("cards shortened to fit llm.card_tokens: no phrases, shorter borders"),
            Self::NoOptionalTexts => {
                Some("cards shortened to fit llm.card_tokens: no phrases, no texts of optional arguments")
            }
            Self::ShortTexts => Some("cards shortened to fit llm.card_tokens: only the beginning of each text"),
            Self::Bare => Some("cards shortened to fit llm.card_tokens: only the use in brief and the arguments"),
        }
    }

    fn limits(self) -> Limits {
        let full =
            Limits { what: 1_000, phrases: 6, phrase: 120, case: 160, field: 240, optional_texts: true, bare: false };
        let short = Limits { phrases: 0, case: 40, optional_texts: false, what: 120, field: 60, ..full };
        match self {
            Self::Nothing => full,
            Self::FewerPhrases => Limits { phrases: 3, ..full },
            Self::NoPhrases => Limits { phrases: 0, case: 60, ..full },
            Self::NoOptionalTexts => Limits { phrases: 0, case: 60, optional_texts: false, ..full },
            Self::ShortTexts => short,
            Self::Bare => Limits { case: 0, what: 100, field: 40, bare: true, ..short },
        }
    }
}

/// Whether a text that decides is too long for a prompt even with nothing else cut.
pub(super) fn is_clipped(tool: &Tool) -> bool {
    let Limits { what, case, .. } = Cut::Nothing.limits();
    let longer = |text: &str, limit: usize| text.chars().nth(limit).is_some();
    let description = &tool.card.description;
    longer(&description.what, what) || description.when_not_to_use.iter().any(|border| longer(&border.case, case))
}

/// What decides: what the tool is for, when to use it, when another one is right, what it needs first.
pub(super) fn description(tool: &Tool, list: &Shortlist<'_>, wording: &Wording, cut: Cut) -> String {
    join(sentences(tool, list, wording, cut), wording)
}

/// The whole card on one line for a prompt that asks for no arguments: `- name: description`, with the names of those
/// that are required, since what a tool needs says what it is for.
pub(super) fn line(
    tool: &Tool,
    list: &Shortlist<'_>,
    session: &Map<String, Value>,
    wording: &Wording,
    cut: Cut,
) -> String {
    let mut sentences = sentences(tool, list, wording, cut);
    let required: Vec<&str> =
        tool.schema.required().into_iter().filter(|name| !session::is_hidden(name, session)).collect();
    if !required.is_empty() {
        sentences.push(format!("{}{}", wording.needs, required.join(", ")));
    }
    one_line(&tool.alias, &join(sentences, wording))
}

/// `- name: description`.
pub(super) fn one_line(name: &str, description: &str) -> String {
    format!("- {name}: {}", description.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn sentences(tool: &Tool, list: &Shortlist<'_>, wording: &Wording, cut: Cut) -> Vec<String> {
    let card = &tool.card;
    let limits = cut.limits();
    let mut sentences: Vec<String> = vec![clip(&card.description.what, limits.what)];
    let phrases = |items: Vec<String>| items.join(&wording.separator);
    let uses = card.description.when_to_use.iter().take(limits.phrases);
    let uses: Vec<String> = uses.map(|phrase| clip(phrase, limits.phrase)).collect();
    if !uses.is_empty() {
        sentences.push(format!("{}{}", wording.use_for, phrases(uses)));
    }
    let borders = borders(tool, list, wording, limits.case);
    if !borders.is_empty() {
        sentences.push(format!("{}{}", wording.not_for, phrases(borders)));
    }
    let first = card.requires.iter().filter_map(|name| list.neighbour(tool, name));
    let first: Vec<String> = first.map(|other| other.alias.clone()).collect();
    if !first.is_empty() {
        sentences.push(format!("{}{}", wording.needs_first, phrases(first)));
    }
    if card.side_effect == SideEffect::Destructive && card.side_effect_declared {
        sentences.push(wording.irreversible.clone());
    }
    sentences
}

/// `case -> tool`, or the tool alone where `case`, the characters of a case, is 0. Only an offered tool may be named: the others are none of the model's, nor perhaps of the caller's,
/// business.
fn borders(tool: &Tool, list: &Shortlist<'_>, wording: &Wording, case: usize) -> Vec<String> {
    let card = &tool.card;
    let mut named = BTreeSet::new();
    let mut lines = Vec::new();
    for (position, border) in card.description.when_not_to_use.iter().enumerate() {
        let other = border.use_tool.as_deref().and_then(|name| list.neighbour(tool, name));
        let is_news = other.is_some_and(|other| named.insert(other.alias.as_str()));
        match other {
            Some(other) if case == 0 && is_news => {
                lines.push(format!("{}{}", wording.instead.trim_start(), other.alias))
            }
            _ if case == 0 => {}
            Some(other) if position < MAX_BORDERS || is_news => {
                lines.push(format!("{}{}{}", clip(&border.case, case), wording.instead, other.alias));
            }
            None if position < MAX_BORDERS => lines.push(clip(&border.case, case)),
            Some(_) | None => {}
        }
    }
    lines
}

fn join(sentences: Vec<String>, wording: &Wording) -> String {
    let mut text = String::new();
    for sentence in sentences.iter().map(|sentence| sentence.trim()).filter(|sentence| !sentence.is_empty()) {
        text.push_str(sentence);
        if sentence.ends_with(['.', '。', '!', '?', '！', '？']) {
            if sentence.ends_with(['.', '!', '?']) {
                text.push(' ');
            }
        } else {
            text.push_str(&wording.full_stop);
        }
    }
    text.trim_end().to_owned()
}

/// The card's schema without what does not help to fill it: titles, examples, long texts, and the arguments that the
/// session supplies, which are not the model's to know.
pub(super) fn parameters(tool: &Tool, session: &Map<String, Value>, cut: Cut, mode: AnswerMode) -> Value {
    let limits = cut.limits();
    let mut schema = match compact(&portable::schema(tool), limits.field, 0) {
        Value::Object(schema) => schema,
        _ => Map::new(),
    };
    schema.insert("type".into(), json!("object"));
    let properties = schema.entry("properties").or_insert_with(|| json!({}));
    if let Value::Object(properties) = properties {
        properties.retain(|name, _| !session::is_hidden(name, session));
        for (_, property) in properties.iter_mut().filter(|(name, _)| !tool.schema.is_required(name)) {
            let Value::Object(property) = property else { continue };
            if !limits.optional_texts {
                property.remove("description");
            }
            if limits.bare {
                property.retain(|keyword, _| SKELETON.contains(&keyword.as_str()));
            }
        }
    }
    if let Some(Value::Array(required)) = schema.get_mut("required") {
        required.retain(|name| !name.as_str().is_some_and(|name| session::is_hidden(name, session)));
    }
    if mode == AnswerMode::Functions {
        portable::rename(&mut schema);
    }
    Value::Object(schema)
}

/// What says which values an argument may have at all; the rest is checked when it is there.
const SKELETON: [&str; 9] = ["type", "enum", "const", "items", "properties", "required", "anyOf", "oneOf", "$ref"];

/// A schema at any depth. Names under `properties` and the like are the author's words, not keywords.
fn compact(schema: &Value, text: usize, depth: usize) -> Value {
    if depth > MAX_SCHEMA_DEPTH && (schema.is_object() || schema.is_array()) {
        return json!({});
    }
    let nested = |value: &Value| compact(value, text, depth + 1);
    match schema {
        Value::Object(map) => {
            let kept = map.iter().filter(|(key, _)| {
                !matches!(key.as_str(), "$schema" | "$id" | "$comment" | "title" | "examples" | "default")
            });
            let kept = kept.map(|(key, value)| {
                let value = match (key.as_str(), value) {
                    ("description", Value::String(description)) => json!(clip(description, text)),
                    (
                        "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas",
                        Value::Object(named),
                    ) => Value::Object(named.iter().map(|(name, sub)| (name.clone(), nested(sub))).collect()),
                    ("type" | "enum" | "const" | "required" | "dependentRequired", data) => data.clone(),
                    (_, other) => nested(other),
                };
                (key.clone(), value)
            });
            Value::Object(kept.collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(nested).collect()),
        leaf => leaf.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::llm::testing::{Shop, card, tool};
    use crate::text::Language;
    use crate::tool::Boundary;

    #[test]
    fn only_keywords_are_dropped_from_a_schema_never_an_argument_of_that_name() {
        let compact = |schema: &Value| compact(schema, 240, 0);
        let schema = json!({"$schema": "x", "title": "T", "type": "object", "required": ["title"],
            "properties": {"title": {"type": "string", "title": "t", "examples": ["a"]}, "default": {"type": "integer", "default": 3}}});
        let kept = json!({"type": "object", "required": ["title"],
            "properties": {"title": {"type": "string"}, "default": {"type": "integer"}}});
        assert_eq!(compact(&schema), kept);
        let mut deep = json!({"type": "string"});
        for _ in 0..100 {
            deep = json!({"type": "object", "properties": {"x": deep}});
        }
        assert!(compact(&deep).to_string().len() < 2_000);
    }

    #[test]
    fn no_step_leaves_out_a_required_argument_an_enum_or_the_target_of_a_border() {
        let text = "words ".repeat(100);
        let mut long = card(
            "long",
            json!({"type": "object", "required": ["id"], "properties": {
                "id": {"type": "string", "description": text}, "kind": {"enum": ["a", "b"], "description": text}}}),
        );
        long.description.what = "退款".repeat(400);
        long.description.when_to_use = vec!["phrase".into(); 9];
        let border = |n: usize| Boundary { case: text.clone(), use_tool: (n >= 8).then(|| format!("t{n}")) };
        long.description.when_not_to_use = (0..10).map(border).collect();
        let shop = Shop::of(vec![long, tool("t8"), tool("t9")]);
        let tools = shop.tools();
        let request = shop.request("hi", &tools);
        let list = Shortlist::new(&request, 128, AnswerMode::Functions);
        let wording = Wording::of(Language::En);
        let mut lengths = Vec::new();
        for cut in Cut::ALL {
            let text = description(tools[0], &list, wording, cut);
            let parameters = parameters(tools[0], request.session, cut, AnswerMode::Functions);
            assert!(text.contains("-> t8") && text.contains("-> t9"), "{cut:?}: {text}");
            assert_eq!(
                (&parameters["required"], &parameters["properties"]["kind"]["enum"]),
                (&json!(["id"]), &json!(["a", "b"]))
            );
            assert!(parameters["properties"]["id"]["description"].is_string());
            lengths.push(text.len() + parameters.to_string().len());
        }
        assert!(lengths.windows(2).all(|pair| pair[1] < pair[0]), "{lengths:?}");
        assert!(is_clipped(tools[0]) && !is_clipped(tools[1]));
    }
}
