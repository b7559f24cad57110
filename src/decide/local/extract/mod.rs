//! Arguments read off the utterance by the schema.
//!
//! Owns: which words, numbers, ids and names of an utterance become which argument. Everything follows from the schema
//! and the wording of its descriptions; nothing here knows a particular tool. A value that stands in neither the
//! utterance, the history nor the session is never made up, and schema defaults are left to validation.

mod booleans;
mod enums;
mod formats;
mod free_text;
pub(in crate::decide) mod hints;
mod history;
mod ids;
mod lexicon;
pub(in crate::decide) mod numbers;
mod phrases;
mod places;
mod things;
pub(in crate::decide) mod words;

use std::ops::Range;

pub(in crate::decide) use ids::is_id_name;
use serde_json::{Map, Value};

use crate::args::{ArgumentSchema, Notice, Origin, Origins, Property};
use crate::catalog::Tool;
use crate::text::Query;
use crate::types::Turn;

/// Values that stand in the utterance, the history or the session, not yet validated.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Extraction {
    pub arguments: Map<String, Value>,
    pub origins: Origins,
    /// Spans that look like a value for an argument but do not fit it: argument name, the text. `SO-2026031` for a
    /// pattern of 14 digits.
    pub misfits: Vec<(String, String)>,
    /// What was changed on the way, such as a count lowered to the schema's maximum.
    pub notices: Vec<Notice>,
    /// An argument of fixed form for which the utterance gives further values, and those, in order.
    pub more: Option<(String, Vec<(Value, Origin)>)>,
}

impl Extraction {
    fn put(&mut self, name: &str, found: Found) {
        if !self.arguments.contains_key(name) {
            self.arguments.insert(name.to_owned(), found.value);
            self.origins.insert(name.to_owned(), found.origin);
        }
    }
}

/// One value and where it comes from.
#[derive(Debug, Clone, PartialEq)]
struct Found {
    value: Value,
    origin: Origin,
}

impl Found {
    fn spoken(value: Value, span: &Range<usize>) -> Self {
        Self { value, origin: Origin::Utterance { start: span.start, end: span.end } }
    }
}

/// What every reader gets to see.
#[derive(Debug, Clone, Copy)]
struct Context<'a> {
    tool: &'a Tool,
    schema: &'a ArgumentSchema,
    query: &'a Query,
    /// The text in ASCII small letters, same byte positions.
    lower: &'a str,
    history: &'a [Turn],
}

/// Reads every argument of `tool` that the query grounds. Never invents.
pub fn extract(tool: &Tool, query: &Query, history: &[Turn], session: &Map<String, Value>) -> Extraction {
    let query = &own_words(query);
    let lower = query.text.to_ascii_lowercase();
    let context = Context { tool, schema: &tool.schema, query, lower: &lower, history };
    let mut out = Extraction::default();
    for property in tool.schema.views() {
        if let Some(value) = session.get(property.name).filter(|value| tool.schema.fits(property.name, value)) {
            out.put(property.name, Found { value: value.clone(), origin: Origin::Session });
        }
    }
    let spoken = ids::read(&context, &mut out);
    history::fill_ids(&context, &mut out);
    history::fill_token(&context, &mut out);
    enums::read(&context, &mut out);
    booleans::read(&context, &mut out);
    numbers::read(&context, &spoken, &mut out);
    formats::read(&context, &mut out);
    free_text::read(&context, &spoken, &mut out);
    history::continue_last_call(&context, &mut out);
    out
}

/// A dialogue handed over as one text (`user: … assistant: … user: …`) without what the assistant said: its choices
/// and examples are not the speaker's. Positions stay.
fn own_words(query: &Query) -> Query {
    const OTHERS: [&str; 3] = [" assistant: ", " system: ", " tool: "];
    const OWN: &str = " user: ";
    if !query.text.starts_with("user: ") {
        return query.clone();
    }
    let mut own = query.clone();
    let mut from = 0;
    while let Some(start) = OTHERS.iter().filter_map(|mark| query.text[from..].find(mark)).min().map(|at| from + at) {
        let end = query.text[start..].find(OWN).map_or(query.text.len(), |at| start + at);
        own.text.replace_range(start..end, &" ".repeat(end - start));
        own.slots.retain(|slot| slot.span.end <= start || end <= slot.span.start);
        from = end;
    }
    own
}

/// Whether the text (small letters) speaks of `value` among `choices`.
pub(in crate::decide) fn is_meant(lower: &str, description: &str, choices: &[&Value], value: &Value) -> bool {
    enums::mentions(lower, description, choices).iter().any(|mention| mention.is(choices, value))
}

/// What the text (small letters) says about a yes-or-no argument.
pub(in crate::decide) fn meant_boolean(lower: &str, property: &Property<'_>) -> Option<bool> {
    booleans::meant(lower, property).map(|(value, _)| value)
}

#[cfg(test)]
mod tests;
