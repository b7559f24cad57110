//! The frame of a native file: `registry`, `domains`, `tools` and the settings that concern all of them.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Map, Value};

use super::super::positions::Lines;
use super::super::{CardProblem, suggest};
use super::{Document, Format, RawCard, SourceFile, SyntaxError};

const KEYS: [&str; 13] = [
    "registry",
    "imported",
    "version",
    "locale",
    "timezone",
    "currency",
    "result_defaults",
    "domains",
    "scopes",
    "owner",
    "about",
    "tools",
    "$schema",
];

pub(super) fn read(path: &Path, document: Document) -> Result<SourceFile, SyntaxError> {
    let Document { value, mut lines, mut flaws } = document;
    let Value::Object(mut root) = value else {
        return Err(SyntaxError::at(1, "expected a mapping with a `tools` list at the top of the file"));
    };
    let top = lines.line("");
    let mut tool_lines = lines.take("tools");
    let tools = match root.remove("tools") {
        Some(Value::Array(tools)) => tools,
        Some(_) => return Err(SyntaxError { line: tool_lines.line(""), message: "`tools` must be a list".into() }),
        None => return Err(SyntaxError { line: top, message: missing_tools(&root) }),
    };
    let declared = declared_name(&root, &lines)?;
    let format = format(&root, &lines)?;
    let domains = domain_names(&root);
    let mut notices = unknown_keys(&root, &lines);
    let (scopes, remarks) = super::super::scopes::read(&root, &lines);
    notices.extend(remarks);
    if tools.is_empty() {
        notices.push("the file holds no tools".into());
    }
    let cards = tools
        .into_iter()
        .enumerate()
        .map(|(index, value)| {
            let flaws = take_flaws(&mut flaws, &format!("/tools/{index}"));
            RawCard { flaws, ..RawCard::new(value, tool_lines.take(&index.to_string()), format!("tools/{index}")) }
        })
        .collect();
    // What is left concerns the frame: nobody can say which `tools` was meant.
    if let Some(flaw) = flaws.into_iter().next() {
        return Err(SyntaxError { line: flaw.line, message: flaw.message });
    }
    Ok(SourceFile { path: path.into(), format, declared, domains, scopes, cards, notices })
}

fn missing_tools(root: &Map<String, Value>) -> String {
    let found: Vec<&str> = root.keys().take(10).map(String::as_str).collect();
    format!("expected a list `tools` with one mapping per tool; found {}", found.join(", "))
}

fn declared_name(root: &Map<String, Value>, lines: &Lines) -> Result<Option<String>, SyntaxError> {
    match root.get("registry") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(name)) if is_source_name(name) => Ok(Some(name.clone())),
        Some(_) => Err(SyntaxError {
            line: lines.line("/registry"),
            message: format!("`registry` must be a name of {SOURCE_NAME}"),
        }),
    }
}

/// `imported: true` marks a file that `pointsman import` wrote: nobody who knows the tools has stated everything yet.
fn format(root: &Map<String, Value>, lines: &Lines) -> Result<Format, SyntaxError> {
    match root.get("imported") {
        None | Some(Value::Null | Value::Bool(false)) => Ok(Format::Native),
        Some(Value::Bool(true)) => Ok(Format::Imported),
        Some(_) => {
            Err(SyntaxError { line: lines.line("/imported"), message: "`imported` must be true or false".into() })
        }
    }
}

pub(in crate::registry) const MAX_SOURCE_NAME_BYTES: usize = 128;
/// What [`is_source_name`] asks for.
pub(in crate::registry) const SOURCE_NAME: &str = "1 to 128 bytes without `/` and control characters";

/// `/` separates source and tool in ids.
pub(in crate::registry) fn is_source_name(name: &str) -> bool {
    !name.trim().is_empty()
        && name.len() <= MAX_SOURCE_NAME_BYTES
        && !name.contains('/')
        && !name.chars().any(char::is_control)
}

fn domain_names(root: &Map<String, Value>) -> BTreeSet<String> {
    let listed = root.get("domains").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    listed
        .iter()
        .filter_map(|domain| domain.as_str().or_else(|| domain.get("name").and_then(Value::as_str)))
        .map(str::to_owned)
        .collect()
}

fn unknown_keys(root: &Map<String, Value>, lines: &Lines) -> Vec<String> {
    root.keys()
        .filter(|key| !KEYS.contains(&key.as_str()))
        .map(|key| {
            let at = lines.line(&super::super::positions::join("", key)).map(|l| format!(" on line {l}"));
            format!("unknown key `{key}`{}{} is ignored", at.unwrap_or_default(), suggest(key, KEYS))
        })
        .collect()
}

/// Moves the flaws under `prefix` out, with pointers relative to it.
pub(super) fn take_flaws(flaws: &mut Vec<CardProblem>, prefix: &str) -> Vec<CardProblem> {
    if flaws.is_empty() {
        return Vec::new();
    }
    let inside = |flaw: &mut CardProblem| {
        flaw.pointer.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    flaws
        .extract_if(.., inside)
        .map(|flaw| CardProblem { pointer: flaw.pointer[prefix.len()..].to_owned(), ..flaw })
        .collect()
}
