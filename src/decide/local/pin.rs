//! A tool that is settled already: only its arguments are left to be read.

use serde_json::{Map, Value};

use super::extract::extract;
use super::verdict::{clarify, with_defaults};
use super::weigh::lacks_token;
use crate::args::{Origins, validate};
use crate::catalog::Tool;
use crate::decide::{Answer, Proposal, Request, Verdict};
use crate::decision::DecidedBy;
use crate::types::Confidence;

/// Calls `tool` with what is `given`, the rest read off the conversation; asks for what is missing or does not fit.
/// `None` for a second step whose first did not happen: nobody can be asked for its token.
pub fn pin(tool: &Tool, given: &Map<String, Value>, origins: &Origins, request: &Request<'_>) -> Option<Answer> {
    let mut extraction = extract(tool, request.query, request.history, request.session);
    for (name, value) in given {
        extraction.arguments.insert(name.clone(), value.clone());
        extraction.origins.extend(origins.get(name).map(|origin| (name.clone(), *origin)));
    }
    if lacks_token(tool, &extraction) {
        return None;
    }
    let verdict = match validate(&tool.schema, &Value::Object(extraction.arguments.clone())) {
        Ok(mut checked) => {
            checked.notices.extend(extraction.notices.iter().cloned());
            let origins = with_defaults(&extraction, &checked);
            Verdict::Call(vec![Proposal { tool: tool.id().clone(), checked, origins }])
        }
        Err(problem) => clarify(tool, extraction.arguments, problem.fields),
    };
    Some(Answer { decided_by: DecidedBy::Rule, ..Answer::local(verdict, Confidence::ONE) })
}
