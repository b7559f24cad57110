//! Which texts of a card stand for it.
//!
//! Only positive parts are used: "not for refunds" would attract refunds. The negative parts are for the decider.

use serde_json::Value;

use crate::text::language::is_han;
use crate::text::{simplify_text, terms, tokenise};
use crate::tool::{Boundary, ToolCard};

/// Texts to embed: the name in words with `what`, then each wording and example. Never empty.
///
/// Parameter descriptions stay out: they gain on the lexical side and blur the vector (measured on the development
/// sets). Traditional characters are embedded as simplified ones, as those of utterances are.
pub(super) fn dense_texts(card: &ToolCard) -> Vec<String> {
    own_texts(card).iter().map(|text| simplify_text(text)).collect()
}

/// The texts that [`dense_texts`] embeds, in its order, as the card's author wrote them; the first without the name where
/// the card says what it is for.
pub(super) fn written_texts(card: &ToolCard) -> Vec<String> {
    let mut texts = own_texts(card);
    let what = purpose(card);
    if let Some(first) = texts.first_mut().filter(|_| !what.is_empty()) {
        *first = what;
    }
    texts
}

fn own_texts(card: &ToolCard) -> Vec<String> {
    let name = name_words(&card.name);
    let what = purpose(card);
    let head = if what.is_empty() { name } else { format!("{name}: {what}") };
    let mut texts = vec![head];
    for text in card.description.when_to_use.iter().chain(&card.examples) {
        let text = text.trim();
        if !text.is_empty() && !texts.iter().any(|known| known == text) {
            texts.push(text.to_owned());
        }
    }
    texts
}

/// Whether a card says what it is for in Chinese: most of the letters outside its name are Han.
pub(super) fn is_chinese(card: &ToolCard) -> bool {
    let description = &card.description;
    let texts = std::iter::once(&description.what).chain(&description.when_to_use).chain(&card.examples);
    let letters = texts.flat_map(|text| text.chars()).filter(|c| c.is_alphabetic());
    // One character says as much as two letters at least.
    letters.fold(0i64, |lead, c| if is_han(c) { lead + 2 } else { lead - 1 }) > 0
}

/// Whether any text that stands for the card has Chinese in it: then an encoder for English alone misreads it.
pub(super) fn has_han(card: &ToolCard) -> bool {
    let description = &card.description;
    let texts = [&card.name, &description.what].into_iter().chain(&description.when_to_use).chain(&card.examples);
    texts.flat_map(|text| text.chars()).any(is_han)
}

/// The same for the first of these texts: name and purpose.
pub(super) fn has_han_purpose(card: &ToolCard) -> bool {
    card.name.chars().chain(purpose(card).chars()).any(is_han)
}

/// What the tool does. Of a description that came as one text, what it returns as well: its author wrote it for the
/// reader who looks for a tool, not as an interface.
fn purpose(card: &ToolCard) -> String {
    let description = &card.description;
    let returns = description.returns.as_deref().filter(|_| description.plain.is_some());
    let mut purpose = description.what.clone();
    if let Some(returns) = returns {
        purpose.push(' ');
        purpose.push_str(returns.trim());
    }
    purpose.trim().to_owned()
}

/// Other tools this card sends the reader to, with the case in words: "for refunds use `preview_refund`". What one card
/// is not for says what the other is for; it is never a text of this card.
pub(super) fn border_texts(card: &ToolCard) -> impl Iterator<Item = (&str, &str)> {
    let with_target = |border: &'_ Boundary| border.use_tool.is_some() && !border.case.trim().is_empty();
    let cases = card.description.when_not_to_use.iter().filter(move |border| with_target(border));
    cases.filter_map(|border| Some((border.use_tool.as_deref()?, border.case.trim())))
}

/// Words to index: name and `what` (twice: they are what the tool is about), domain, wordings, examples, parameter names
/// with their descriptions, allowed values and default texts.
pub(super) fn lexical_terms(card: &ToolCard) -> Vec<String> {
    let description = &card.description;
    let mut all = purpose_terms(card);
    all.extend(all.clone());
    let texts = description.when_to_use.iter().chain(&card.examples).chain(&card.tags).chain(&card.domain);
    for text in texts {
        all.extend(terms(text));
    }
    each_parameter(&card.parameters, &mut |name, property| {
        let description = property.get("description").and_then(Value::as_str);
        [name].into_iter().chain(description).chain(values(property)).for_each(|text| all.extend(terms(text)));
    });
    all
}

/// Words of the name.
pub(super) fn name_terms(card: &ToolCard) -> Vec<String> {
    terms(&card.name)
}

/// Words of name and `what`.
pub(super) fn purpose_terms(card: &ToolCard) -> Vec<String> {
    let mut all = terms(&card.name);
    all.extend(terms(&purpose(card)));
    all
}

/// Deepest level of nested parameters that is read.
const MAX_DEPTH: usize = 4;

/// Calls `visit` with the name and the schema of every parameter, nested ones after the one they belong to, names in
/// order.
pub(super) fn each_parameter<'a>(schema: &'a Value, visit: &mut dyn FnMut(&'a str, &'a Value)) {
    walk(schema, 0, visit);
}

fn walk<'a>(schema: &'a Value, depth: usize, visit: &mut dyn FnMut(&'a str, &'a Value)) {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
    let mut properties: Vec<(&String, &Value)> = properties.iter().collect();
    properties.sort_unstable_by_key(|(name, _)| *name);
    for (name, property) in properties {
        visit(name, property);
        if depth < MAX_DEPTH {
            walk(property, depth + 1, visit);
            if let Some(items) = property.get("items") {
                walk(items, depth + 1, visit);
            }
        }
    }
}

/// Most allowed values of one parameter that are indexed.
const MAX_VALUES: usize = 64;

/// The texts a parameter may hold, and its default: what people say when they mean the tool.
fn values(property: &Value) -> impl Iterator<Item = &str> {
    let schemas = std::iter::once(property).chain(property.get("items"));
    schemas.flat_map(own_values).filter_map(Value::as_str)
}

fn own_values(schema: &Value) -> impl Iterator<Item = &Value> {
    let listed = schema.get("enum").and_then(Value::as_array).into_iter().flatten();
    listed.take(MAX_VALUES).chain(schema.get("default")).chain(schema.get("const"))
}

/// `trackShipment`, `track_shipment` and `mcp__x__track.shipment` in words.
fn name_words(name: &str) -> String {
    tokenise_keeping_han(name)
}

/// Like [`tokenise`] for Latin parts, but Han runs stay whole: bigrams are no text for an encoder.
fn tokenise_keeping_han(name: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut latin = String::new();
    let mut other = String::new();
    let flush = |latin: &mut String, other: &mut String, words: &mut Vec<String>| {
        words.extend(tokenise(latin));
        if !other.is_empty() {
            words.push(std::mem::take(other));
        }
        latin.clear();
    };
    for c in name.chars() {
        if c.is_ascii() {
            if !other.is_empty() {
                flush(&mut latin, &mut other, &mut words);
            }
            latin.push(c);
        } else {
            if !latin.is_empty() {
                flush(&mut latin, &mut other, &mut words);
            }
            other.push(c);
        }
    }
    flush(&mut latin, &mut other, &mut words);
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_words_in_both_scripts() {
        assert_eq!(name_words("mcp__plugin_x__askCodex"), "mcp plugin x ask codex");
        assert_eq!(name_words("查询订单_v2"), "查询订单 v2");
    }
}
