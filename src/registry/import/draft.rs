//! A card on its way from somebody else's form: its fields under our names, each with the lines it came from.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Map, Value};

use super::super::CardProblem;
use super::super::fields::shorten;
use super::super::positions::{Lines, join};
use super::native::take_flaws;
use super::{Document, Format, RawCard, SourceFile, SyntaxError};

/// The fields of one card so far.
#[derive(Debug, Default)]
pub(super) struct Draft {
    value: Map<String, Value>,
    lines: BTreeMap<String, Lines>,
    notes: Vec<(String, String)>,
}

impl Draft {
    /// Takes `from` out of `entry` as the field `key`; what is absent or null stays absent.
    pub fn take(&mut self, key: &str, entry: &mut Map<String, Value>, lines: &mut Lines, from: &str) {
        if let Some(value) = entry.remove(from).filter(|value| !value.is_null()) {
            self.put(key, value, lines.take(from));
        }
    }

    pub fn put(&mut self, key: &str, value: impl Into<Value>, lines: Lines) {
        self.value.insert(key.to_owned(), value.into());
        self.lines.insert(key.to_owned(), lines);
    }

    pub fn get(&self, key: &str) -> Option<&Value> {
        self.value.get(key)
    }

    /// Something worth knowing that does not keep the card from being served.
    pub fn note(&mut self, pointer: &str, message: impl Into<String>) {
        self.notes.push((pointer.to_owned(), message.into()));
    }

    /// The card; `line` is where the entry begins.
    pub fn finish(self, line: Option<usize>, position: String, flaws: Vec<CardProblem>) -> RawCard {
        let lines = Lines::keys(line.unwrap_or_default(), self.lines);
        RawCard { value: Value::Object(self.value), lines, position, flaws, notes: self.notes }
    }
}

/// What becomes of one entry: a card, or the reason why it is none.
pub(super) type Translated = Result<Draft, String>;

/// The tools of a document, each put through `translate`. They stand in a list at the root or under `path`, the first
/// that is there.
pub(super) fn tools(
    path: &Path,
    document: Document,
    at: &[&str],
    mut translate: impl FnMut(Map<String, Value>, &mut Lines) -> Translated,
) -> Result<SourceFile, SyntaxError> {
    let Document { mut value, mut lines, mut flaws } = document;
    let top = lines.line("");
    let found = at.iter().find(|pointer| value.pointer(pointer).is_some_and(Value::is_array)).copied();
    let Some(pointer) = found else {
        let expected = at.iter().map(|pointer| if pointer.is_empty() { "the root" } else { pointer });
        let expected = expected.collect::<Vec<_>>().join(", ");
        return Err(SyntaxError { line: top, message: format!("expected a list of tools at {expected}") });
    };
    let Some(Value::Array(entries)) = value.pointer_mut(pointer).map(Value::take) else { unreachable!("found above") };
    for token in pointer.split('/').skip(1) {
        lines = lines.take(token);
    }
    let mut cards = Vec::with_capacity(entries.len());
    for (index, entry) in entries.into_iter().enumerate() {
        let mut lines = lines.take(&index.to_string());
        let flaws = take_flaws(&mut flaws, &join(pointer, index));
        cards.push(one(entry, &mut lines, format!("tools/{index}"), flaws, &mut translate));
    }
    // What is left concerns the frame: nobody can say which list was meant.
    if let Some(flaw) = flaws.into_iter().next() {
        return Err(SyntaxError { line: flaw.line, message: flaw.message });
    }
    Ok(file(path, cards))
}

/// A file of imported cards that names neither itself nor its domains.
pub(super) fn file(path: &Path, cards: Vec<RawCard>) -> SourceFile {
    let notices = if cards.is_empty() { vec!["the file holds no tools".to_owned()] } else { Vec::new() };
    SourceFile {
        path: path.into(),
        format: Format::Imported,
        declared: None,
        domains: BTreeSet::new(),
        scopes: BTreeMap::new(),
        cards,
        notices,
    }
}

fn one(
    entry: Value,
    lines: &mut Lines,
    position: String,
    flaws: Vec<CardProblem>,
    translate: &mut impl FnMut(Map<String, Value>, &mut Lines) -> Translated,
) -> RawCard {
    let line = lines.line("");
    let entry = match entry {
        Value::Object(entry) => entry,
        // Reported with the fields of a tool that are expected.
        other => return RawCard { flaws, ..RawCard::new(other, std::mem::take(lines), position) },
    };
    let label = ["name", "type"].iter().find_map(|key| entry.get(*key)?.as_str().map(shorten));
    match translate(entry, lines) {
        Ok(draft) => draft.finish(line, position, flaws),
        Err(message) => {
            let position = label.map_or_else(|| position.clone(), |label| format!("{position} ({label})"));
            let problem = CardProblem { pointer: String::new(), line, message };
            RawCard { flaws: vec![problem], ..RawCard::new(Value::Null, Lines::unknown(), position) }
        }
    }
}
