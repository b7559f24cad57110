//! One tool per line: name, description, parameters, domain.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::super::CardProblem;
use super::super::positions::Lines;
use super::{Format, RawCard, SourceFile};

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
        cards.push(RawCard { value, lines: Lines::leaf(number), position: format!("tools/{}", cards.len()), flaws });
    }
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
