//! The question to the user that an answer of the model allows.
//!
//! Owns: which arguments are asked for and in which order, what of the model's words is kept.
//! Does not know: whether the model is asked again first.

use serde_json::{Map, Value};

use super::super::ask::{Named, Shortlist, Wording, clip};
use super::super::read::Arguments;
use crate::catalog::Tool;
use crate::decide::Verdict;
use crate::types::encoding::unescape_pointer;
use crate::types::{FieldProblem, Problem};

const MAX_QUESTION: usize = 300;

/// What the model asks for, reduced to arguments that its tool has.
pub(super) fn question(list: &Shortlist<'_>, wording: &Wording, arguments: &Arguments) -> Verdict {
    let empty = Map::new();
    let given = match arguments {
        Arguments::Object(map) => map,
        Arguments::Unreadable(_) => &empty,
    };
    let tool = given.get("tool").and_then(Value::as_str).and_then(|name| match list.resolve(name)? {
        Named::Tool(tool) => Some(tool),
        Named::None | Named::Ask => None,
    });
    let mut missing: Vec<String> = match given.get("missing") {
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        Some(Value::String(name)) => vec![name.clone()],
        Some(_) | None => Vec::new(),
    };
    let mut known = given.get("arguments").and_then(Value::as_object).cloned().unwrap_or_default();
    if let Some(tool) = tool {
        let fields = Fields::of(tool);
        known.retain(|name, _| fields.has(name) && !missing.contains(name));
        missing.retain(|name| fields.has(name));
        if missing.is_empty() {
            missing = fields.required.iter().filter(|name| !known.contains_key(**name)).map(|n| (*n).into()).collect();
        }
        fields.sort(&mut missing);
    } else {
        // Without a tool there is nothing these could belong to.
        known.clear();
        missing.clear();
    }
    let words = given.get("question").and_then(Value::as_str).unwrap_or_default();
    let words = clip(&words.split_whitespace().collect::<Vec<_>>().join(" "), MAX_QUESTION);
    let unclear = missing.is_empty().then(|| wording.unclear.clone());
    Verdict::Clarify {
        tool: tool.map(|tool| tool.id().clone()),
        arguments: known,
        missing,
        fields: Vec::new(),
        question: if words.is_empty() { unclear } else { Some(words) },
    }
}

/// The tool is clear, some of its arguments are not: the user may know. `None` if no argument is at fault by name.
pub(super) fn ask_for_fields(tool: &Tool, given: &Arguments, problem: &Problem) -> Option<Verdict> {
    let fields = Fields::of(tool);
    let mut missing: Vec<String> = Vec::new();
    for name in problem.fields.iter().map(|field| top_level(&field.path)) {
        if fields.has(&name) && !missing.contains(&name) {
            missing.push(name);
        }
    }
    if missing.is_empty() {
        return None;
    }
    fields.sort(&mut missing);
    let mut arguments = match given {
        Arguments::Object(map) => map.clone(),
        Arguments::Unreadable(_) => Map::new(),
    };
    // What the user gave in a form that does not fit, as opposed to what nobody gave.
    let misfits: Vec<FieldProblem> =
        problem.fields.iter().filter(|field| arguments.contains_key(&top_level(&field.path))).cloned().collect();
    arguments.retain(|name, _| fields.has(name) && !missing.contains(name));
    Some(Verdict::Clarify { tool: Some(tool.id().clone()), arguments, missing, fields: misfits, question: None })
}

/// Names of a tool's arguments.
struct Fields<'t> {
    /// `None` when the schema does not list them.
    known: Option<&'t Map<String, Value>>,
    required: Vec<&'t str>,
}

impl<'t> Fields<'t> {
    fn of(tool: &'t Tool) -> Self {
        let schema = tool.schema.raw();
        let required = schema.get("required").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        Self {
            known: schema.get("properties").and_then(Value::as_object),
            required: required.iter().filter_map(Value::as_str).collect(),
        }
    }

    fn has(&self, name: &str) -> bool {
        self.known.is_none_or(|known| known.contains_key(name))
    }

    /// Required ones first, in schema order.
    fn sort(&self, names: &mut [String]) {
        names.sort_by_key(|name| self.required.iter().position(|r| r == name).unwrap_or(usize::MAX));
    }
}

/// The argument that a JSON pointer leads into.
fn top_level(pointer: &str) -> String {
    let first = pointer.trim_start_matches('/').split('/').next().unwrap_or_default();
    unescape_pointer(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_lead_to_arguments() {
        let of = |pointer: &str| top_level(pointer);
        assert_eq!([of("/a/b/0"), of("/x~1y"), of("a"), of("")], ["a", "x/y", "a", ""]);
    }
}
