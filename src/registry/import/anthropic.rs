//! Tools as Anthropic's Messages API takes them.

use std::path::Path;

use serde_json::{Map, Value};

use super::super::fields::{kind, shorten};
use super::super::positions::Lines;
use super::draft::{Draft, Translated, tools};
use super::{Document, SourceFile, SyntaxError};

pub(super) fn read(path: &Path, document: Document) -> Result<SourceFile, SyntaxError> {
    tools(path, document, &["", "/tools"], translate)
}

/// `cache_control` and `input_examples` are left out: the one is about the provider's cache, and the other holds
/// arguments, which are no wording that leads to a tool.
fn translate(mut entry: Map<String, Value>, lines: &mut Lines) -> Translated {
    match entry.get("type") {
        None | Some(Value::Null) => {}
        Some(Value::String(name)) if name == "custom" => {}
        Some(Value::String(name)) => {
            let name = shorten(name);
            return Err(format!(
                "`{name}` is defined by the provider; only tools with an `input_schema` can be routed to"
            ));
        }
        Some(other) => return Err(format!("`type` must be a text, found {}", kind(other))),
    }
    let mut draft = Draft::default();
    draft.take("name", &mut entry, lines, "name");
    draft.take("description", &mut entry, lines, "description");
    draft.take("parameters", &mut entry, lines, "input_schema");
    Ok(draft)
}
