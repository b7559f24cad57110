//! The answer to a question: fills the call that was asked about.

use serde_json::{Map, Value};

use super::extract::extract;
use crate::args::{Checked, Origin, Origins, validate};
use crate::catalog::Tool;
use crate::decide::{Proposal, Request, Verdict};
use crate::text::Query;

/// Longest answer, in characters, that is taken whole as the value of a free-text argument.
const MAX_FREE_ANSWER: usize = 400;

/// What the utterance, read as an answer, makes of the open call.
#[derive(Debug, Clone, PartialEq)]
pub struct Resumed {
    pub verdict: Verdict,
    /// How many of the asked arguments the utterance filled.
    pub filled: usize,
}

/// Reads `request.query` as the answer to a question about `missing` arguments of `tool`, of which `known` are settled.
/// The one argument asked for, if it is free text, takes an utterance without any other meaning whole: `whole` tells
/// whether the caller found no other subject in it.
pub fn resume(
    tool: &Tool,
    known: &Map<String, Value>,
    missing: &[String],
    request: &Request<'_>,
    whole: bool,
) -> Resumed {
    let extraction = extract(tool, request.query, request.history, request.session);
    let mut arguments = known.clone();
    let mut origins: Origins = known.keys().map(|name| (name.clone(), Origin::History)).collect();
    let mut filled = 0;
    for (name, value) in extraction.arguments {
        let asked = missing.contains(&name);
        // What was settled stays, unless the user corrects it with a value of this utterance.
        let corrects = matches!(extraction.origins.get(&name), Some(Origin::Utterance { .. }));
        if asked || corrects || !arguments.contains_key(&name) {
            filled += usize::from(asked);
            if let Some(origin) = extraction.origins.get(&name) {
                origins.insert(name.clone(), *origin);
            }
            arguments.insert(name, value);
        }
    }
    if let ([only], 0, true) = (missing, filled, whole)
        && let Some(text) = free_answer(tool, only, request.query)
    {
        arguments.insert(only.clone(), Value::String(text.to_owned()));
        origins.insert(only.clone(), Origin::Utterance { start: 0, end: text.len() });
        filled = 1;
    }
    Resumed { verdict: verdict(tool, arguments, origins), filled }
}

/// The whole utterance, if the argument is a string without a fixed form.
fn free_answer<'a>(tool: &Tool, name: &str, query: &'a Query) -> Option<&'a str> {
    let property = tool.schema.property(name)?;
    let free = property.is_kind("string") && property.pattern().is_none() && property.choices().is_empty();
    let fits = query.text.chars().count() <= property.max_length().unwrap_or(MAX_FREE_ANSWER).min(MAX_FREE_ANSWER);
    (free && fits).then_some(query.text.as_str())
}

fn verdict(tool: &Tool, arguments: Map<String, Value>, mut origins: Origins) -> Verdict {
    match validate(&tool.schema, &Value::Object(arguments.clone())) {
        Ok(checked) => {
            let Checked { defaulted, .. } = &checked;
            for name in defaulted {
                origins.insert(name.clone(), Origin::Default);
            }
            Verdict::Call(vec![Proposal { tool: tool.id().clone(), checked, origins }])
        }
        Err(problem) => super::clarify(tool, arguments, problem.fields),
    }
}
