//! Tools as OpenAI's APIs take them: functions of chat completions and of responses, and the older `functions`.

use std::path::Path;

use serde_json::{Map, Value};

use super::super::fields::{kind, shorten};
use super::super::positions::Lines;
use super::draft::{Draft, Translated, tools};
use super::{Document, SourceFile, SyntaxError};

pub(super) fn read(path: &Path, document: Document) -> Result<SourceFile, SyntaxError> {
    tools(path, document, &["", "/tools", "/functions"], translate)
}

fn translate(mut entry: Map<String, Value>, lines: &mut Lines) -> Translated {
    match entry.get("type") {
        None | Some(Value::Null) => {}
        Some(Value::String(name)) if name == "function" => {}
        Some(Value::String(name)) if name == "custom" => {
            return Err(
                "a custom tool takes a free text instead of arguments, so there is no schema to check them by".into()
            );
        }
        Some(Value::String(name)) => {
            let name = shorten(name);
            return Err(format!("`{name}` is run by the provider; only tools of type `function` can be routed to"));
        }
        Some(other) => return Err(format!("`type` must be a text, found {}", kind(other))),
    }
    match entry.remove("function") {
        // The form of responses, and of `functions`: all fields stand beside `type`.
        None | Some(Value::Null) => Ok(function(entry, lines)),
        Some(Value::Object(inner)) => Ok(function(inner, &mut lines.take("function"))),
        Some(other) => {
            Err(format!("`function` must be a mapping with name, description and parameters, found {}", kind(&other)))
        }
    }
}

/// `strict` is left out: it concerns how the provider decodes, and the schema is checked here either way.
fn function(mut entry: Map<String, Value>, lines: &mut Lines) -> Draft {
    let mut draft = Draft::default();
    for key in ["name", "description", "parameters"] {
        draft.take(key, &mut entry, lines, key);
    }
    draft
}
