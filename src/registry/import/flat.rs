//! One tool per line: name, description, parameters, domain.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::super::CardProblem;
use super::super::positions::Lines;
use super::draft::{self, Draft};
use super::{Document, Format, RawCard, SourceFile, SyntaxError};

/// A line that is no JSON costs that line, never the file.
pub(super) fn read(path: &Path, text: &str) -> SourceFile {
    let mut cards = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let number = index + 1;
        let (value, flaws) = match serde_json::from_str(line) {
            Ok(value) => (value, Vec::new()),
            Err(error) => {
                let message = format!("not valid JSON: {error}; write one JSON object per line");
                (serde_json::Value::Null, vec![CardProblem { pointer: String::new(), line: Some(number), message }])
            }
        };
        let position = format!("tools/{}", cards.len());
        cards.push(RawCard { flaws, ..RawCard::new(value, Lines::leaf(number), position) });
    }
    file(path, cards)
}

/// The same objects in a list, or below `tools`.
pub(super) fn read_list(path: &Path, document: Document) -> Result<SourceFile, SyntaxError> {
    let listed = draft::tools(path, document, &["", "/tools"], |entry, lines| {
        let mut draft = Draft::default();
        for (key, value) in entry {
            let lines = lines.take(&key);
            draft.put(&key, value, lines);
        }
        Ok(draft)
    })?;
    Ok(SourceFile { format: Format::Flat, ..listed })
}

fn file(path: &Path, cards: Vec<RawCard>) -> SourceFile {
    let notices = if cards.is_empty() { vec!["the file holds no tools".to_owned()] } else { Vec::new() };
    SourceFile {
        path: path.into(),
        format: Format::Flat,
        declared: None,
        domains: BTreeSet::new(),
        scopes: BTreeMap::new(),
        cards,
        notices,
    }
}
