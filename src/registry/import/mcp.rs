//! Tools as MCP servers list them: the result of `tools/list`, the whole answer, or the bare list.
//!
//! Hints are claims of the server about itself. One that raises a class is taken; one that would lower it counts only
//! when the operator trusts the server, because whoever runs a server could else pass anything off as harmless.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::super::fields::kind;
use super::super::positions::Lines;
use super::draft::{Draft, Translated, file, tools};
use super::{Document, Reading, SourceFile, SyntaxError};
use crate::tool::SideEffect;

/// Tools named in one notice.
const MAX_NAMED: usize = 20;

pub(super) fn read(path: &Path, document: Document, reading: &Reading) -> Result<SourceFile, SyntaxError> {
    if document.value.get("result").is_none()
        && let Some(error) = document.value.get("error")
    {
        let told = error.get("message").and_then(Value::as_str).unwrap_or("it says no more");
        let message = format!("the answer of the server is an error: {}", super::super::fields::shorten(told));
        return Err(SyntaxError { line: document.lines.line("/error"), message });
    }
    let pages = ["/nextCursor", "/result/nextCursor"];
    let goes_on = pages.iter().any(|pointer| document.value.pointer(pointer).is_some_and(|next| !next.is_null()));
    let mut doubted = Vec::new();
    let translate = |entry: Map<String, Value>, lines: &mut Lines| translate(entry, lines, reading, &mut doubted);
    let mut file = tools(path, document, &["", "/tools", "/result/tools"], translate)?;
    file.notices.extend(doubts(&doubted));
    if goes_on {
        file.notices.push("the listing goes on after this page (`nextCursor`); ask the server for the rest".into());
    }
    Ok(file)
}

/// Tools as they came from a server, none of which has lines.
pub(super) fn listed(name: &str, entries: Vec<Value>, reading: &Reading) -> SourceFile {
    let document = Document { value: Value::Array(entries), lines: Lines::unknown(), flaws: Vec::new() };
    read(Path::new(name), document, reading).unwrap_or_else(|_| file(Path::new(name), Vec::new()))
}

fn translate(
    mut entry: Map<String, Value>,
    lines: &mut Lines,
    reading: &Reading,
    doubted: &mut Vec<String>,
) -> Translated {
    let mut draft = Draft::default();
    draft.take("name", &mut entry, lines, "name");
    draft.take("description", &mut entry, lines, "description");
    draft.take("parameters", &mut entry, lines, "inputSchema");
    let annotations = entry.remove("annotations");
    let at = lines.take("annotations");
    if let Some(Value::Object(annotations)) = &annotations {
        let is_doubted = hints(annotations, &at, reading.trust_hints, &mut draft);
        if is_doubted && let Some(name) = draft.get("name").and_then(Value::as_str) {
            doubted.push(super::super::fields::shorten(name));
        }
    }
    if draft.get("description").and_then(Value::as_str).is_none_or(|text| text.trim().is_empty()) {
        let title = annotations.as_ref().and_then(|annotations| annotations.get("title"));
        if let Some(title) = entry.get("title").or(title).filter(|title| title.is_string()) {
            draft.put("description", title.clone(), lines.take("title"));
        }
    }
    if let Some(domain) = &reading.domain {
        draft.put("domain", domain.as_str(), Lines::unknown());
    }
    if !reading.permissions.is_empty() {
        draft.put("permissions", reading.permissions.clone(), Lines::unknown());
    }
    if let (Some(target), Some(name)) = (&reading.target, draft.get("name").and_then(Value::as_str)) {
        let run = json!({"target": target, "tool": name});
        draft.put("run", run, Lines::unknown());
    }
    Ok(draft)
}

/// Puts the class into `draft`; whether a hint is left out because nobody vouches for it.
fn hints(annotations: &Map<String, Value>, at: &Lines, trusted: bool, draft: &mut Draft) -> bool {
    let mut hint = |key: &str| match annotations.get(key) {
        None | Some(Value::Null) => None,
        Some(Value::Bool(hint)) => Some(*hint),
        Some(other) => {
            draft.note(&format!("/annotations/{key}"), format!("expected true or false, found {}", kind(other)));
            None
        }
    };
    let (read_only, destructive) = (hint("readOnlyHint"), hint("destructiveHint"));
    let idempotent = hint("idempotentHint");
    let class = match (read_only, destructive) {
        // By the protocol `destructiveHint` means something only where `readOnlyHint` is not true.
        (Some(true), _) => trusted.then_some(SideEffect::Read),
        (_, Some(true)) => Some(SideEffect::Destructive),
        (_, Some(false)) => trusted.then_some(SideEffect::Write),
        // Destructive by default, which is what a card that states nothing counts as.
        (_, None) => None,
    };
    if read_only == Some(true) && destructive == Some(true) {
        draft.note("/annotations", "`readOnlyHint` and `destructiveHint` contradict each other");
    }
    if let Some(class) = class {
        draft.put("side_effect", class.as_str(), at.clone());
    }
    if trusted && let Some(idempotent) = idempotent {
        draft.put("idempotent", idempotent || class == Some(SideEffect::Read), at.clone());
    }
    let lowers = read_only == Some(true) || destructive == Some(false) || idempotent == Some(true);
    !trusted && lowers
}

fn doubts(names: &[String]) -> Option<String> {
    if names.is_empty() {
        return None;
    }
    let mut shown = names.iter().take(MAX_NAMED).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    if names.len() > MAX_NAMED {
        shown.push_str(&format!(" and {} more", names.len() - MAX_NAMED));
    }
    Some(format!(
        "hints that would lower the class of {} tools (readOnlyHint, destructiveHint: false, idempotentHint) are not \
         believed unless the operator trusts the source: {shown}",
        names.len()
    ))
}
