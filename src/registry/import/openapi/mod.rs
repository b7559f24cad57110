//! OpenAPI 3.0 and 3.1: one card an operation.
//!
//! Owns: which operations are tools, their names, classes and texts.
//! Does not know: how parameters and bodies become one schema ([`arguments`]) or how references are followed
//! ([`refs`]).

mod arguments;
mod refs;
mod schema;

use std::path::Path;

use serde_json::{Map, Value};

use super::super::CardProblem;
use super::super::fields::shorten;
use super::super::positions::{Lines, join};
use super::draft::{Draft, file};
use super::native::take_flaws;
use super::{Document, RawCard, SourceFile, SyntaxError};
use arguments::{Arguments, Secrets};

/// Schema parts written out for all operations of a document together.
const MAX_NODES_IN_ALL: usize = 2_000_000;
/// Tools named in one notice.
const MAX_NAMED: usize = 20;

/// Method, class, whether a repetition changes nothing more.
const METHODS: [(&str, &str, bool); 6] = [
    ("get", "read", true),
    ("head", "read", true),
    ("put", "write", true),
    ("post", "write", false),
    ("patch", "write", false),
    ("delete", "destructive", false),
];
/// Methods that are about the connection, not about the service.
const NO_TOOLS: [&str; 2] = ["options", "trace"];

pub(super) fn read(path: &Path, document: Document) -> Result<SourceFile, SyntaxError> {
    let Document { value, lines, mut flaws } = document;
    let Some(paths) = value.get("paths").and_then(Value::as_object) else {
        let message = "expected a mapping `paths` with the operations".to_owned();
        return Err(SyntaxError { line: lines.line("/paths").or(lines.line("")), message });
    };
    let secrets = arguments::secrets(&value);
    let mut reader =
        Reader { document: &value, lines: &lines, secrets: &secrets, left: MAX_NODES_IN_ALL, deprecated: Vec::new() };
    let mut cards = Vec::new();
    for (template, item) in paths.iter().filter(|(template, _)| !template.starts_with("x-")) {
        let at = join("/paths", template);
        match refs::follow(&value, item) {
            Ok(item) => reader.item(template, item, &at, &mut flaws, &mut cards),
            Err(message) => cards.push(unreadable(&lines, &at, template, message)),
        }
    }
    let deprecated = reader.deprecated;
    let mut file = file(path, cards);
    // What several operations share is read as far as it can be; which of two equal keys was meant nobody can say.
    file.notices.extend(flaws.into_iter().map(|flaw| {
        let line = flaw.line.map(|line| format!(" on line {line}")).unwrap_or_default();
        format!("{}{line}: {}", flaw.pointer, flaw.message)
    }));
    if !deprecated.is_empty() {
        let shown: Vec<String> = deprecated.iter().take(MAX_NAMED).map(|name| format!("`{name}`")).collect();
        let more = deprecated.len().saturating_sub(MAX_NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        file.notices.push(format!("deprecated operations: {}{more}", shown.join(", ")));
    }
    if value.get("webhooks").and_then(Value::as_object).is_some_and(|hooks| !hooks.is_empty()) {
        file.notices.push("webhooks are calls to the client, not tools: left out".into());
    }
    Ok(file)
}

struct Reader<'d> {
    document: &'d Value,
    lines: &'d Lines,
    secrets: &'d Secrets,
    /// Schema parts that may still be written out.
    left: usize,
    deprecated: Vec<String>,
}

impl<'d> Reader<'d> {
    /// Every operation of one path.
    fn item(
        &mut self,
        template: &str,
        item: &'d Map<String, Value>,
        at: &str,
        flaws: &mut Vec<CardProblem>,
        cards: &mut Vec<RawCard>,
    ) {
        for (method, class, idempotent) in METHODS {
            let Some(operation) = item.get(method).filter(|operation| !operation.is_null()) else { continue };
            let at = join(at, method);
            let position = format!("{} {}", method.to_uppercase(), shorten(template));
            let Some(operation) = operation.as_object() else {
                let message = "expected a mapping with the parts of an operation".to_owned();
                cards.push(unreadable(self.lines, &at, &position, message));
                continue;
            };
            let mut found = take_flaws(flaws, &at);
            for flaw in &mut found {
                flaw.pointer.insert_str(0, &at);
            }
            let mut draft = self.texts(template, method, operation, &at);
            draft.put("side_effect", class, Lines::unknown());
            draft.put("idempotent", idempotent, Lines::unknown());
            let mut arguments = Arguments::new(self.document, self.secrets, self.left);
            arguments.gather(item, operation, &at);
            let (schema, problems, notes, left) = arguments.finish();
            self.left = left;
            draft.put("parameters", schema, Lines::leaf(self.line(&join(&at, "parameters")).unwrap_or_default()));
            for (pointer, message) in notes {
                draft.note(&pointer, message);
            }
            found.extend(problems.into_iter().map(|(pointer, message)| {
                let line = self.lines.line(&pointer);
                CardProblem { pointer, line, message }
            }));
            cards.push(draft.finish(self.line(&at), position, found));
        }
        for method in NO_TOOLS.into_iter().filter(|method| item.contains_key(*method)) {
            let position = format!("{} {}", method.to_uppercase(), shorten(template));
            let message = format!("{} asks about the connection; it is no tool", method.to_uppercase());
            cards.push(unreadable(self.lines, &join(at, method), &position, message));
        }
    }

    fn line(&self, pointer: &str) -> Option<usize> {
        self.lines.line(pointer)
    }

    fn texts(&mut self, template: &str, method: &str, operation: &Map<String, Value>, at: &str) -> Draft {
        let mut draft = Draft::default();
        let leaf = |key: &str| Lines::leaf(self.lines.line(&join(at, key)).unwrap_or_default());
        let text =
            |key: &str| operation.get(key).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty());
        let name = text("operationId").map_or_else(|| name_of(method, template), str::to_owned);
        draft.put("name", name.clone(), leaf("operationId"));
        if let Some(description) = joined(text("summary"), text("description")) {
            draft.put("description", description, leaf("summary"));
        }
        let tags = operation.get("tags").and_then(Value::as_array).into_iter().flatten();
        let mut tags = tags.filter_map(Value::as_str).filter(|tag| !tag.trim().is_empty());
        if let Some(domain) = tags.next() {
            draft.put("domain", domain, leaf("tags"));
        }
        let tags: Vec<Value> = tags.map(Value::from).collect();
        if !tags.is_empty() {
            draft.put("tags", tags, leaf("tags"));
        }
        if operation.get("deprecated") == Some(&Value::Bool(true)) {
            self.deprecated.push(shorten(&name));
        }
        draft
    }
}

/// Something in the place of an operation that is none.
fn unreadable(lines: &Lines, at: &str, position: &str, message: String) -> RawCard {
    let problem = CardProblem { pointer: String::new(), line: lines.line(at), message };
    RawCard { flaws: vec![problem], ..RawCard::new(Value::Null, Lines::unknown(), position.to_owned()) }
}

/// `get_orders_by_id` for `GET /orders/{id}`.
fn name_of(method: &str, template: &str) -> String {
    let mut name = method.to_owned();
    for segment in template.split('/').filter(|segment| !segment.is_empty()) {
        let inner = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
        name.push_str(if inner.is_some() { "_by_" } else { "_" });
        let words = inner.unwrap_or(segment).chars().filter(|c| !matches!(c, '{' | '}'));
        name.extend(words.map(|c| if c.is_alphanumeric() || c == '-' { c } else { '_' }));
    }
    name
}

/// The summary first: it says in a few words what the description may say in many.
fn joined(summary: Option<&str>, description: Option<&str>) -> Option<String> {
    match (summary, description) {
        (Some(summary), Some(description)) if description.starts_with(summary) => Some(description.to_owned()),
        (Some(summary), Some(description)) => {
            let stop = if summary.ends_with(['.', '。', '!', '?', '！', '？', ':', '：']) { "" } else { "." };
            Some(format!("{summary}{stop}\n{description}"))
        }
        (Some(one), None) | (None, Some(one)) => Some(one.to_owned()),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests;
