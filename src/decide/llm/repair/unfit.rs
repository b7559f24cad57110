//! Answers that cannot be used: what is wrong with each, and where it leaves us if nobody can be asked again.
//!
//! Owns: the problem as the model is told it, the end that an unusable answer allows.
//! Does not know: whether there is another question.

use serde_json::Map;

use super::super::ask::{Shortlist, Wording, clip};
use super::super::metrics::Fault;
use super::super::read::Arguments;
use super::question;
use crate::catalog::Tool;
use crate::decide::Verdict;
use crate::decide::plan::Refusal;
use crate::decision::{HandoffReason, NoToolReason};
use crate::types::{FieldProblem, Problem, ProblemCode, ToolId};

const MAX_NAME: usize = 64;

/// One unusable answer.
pub(super) struct Unfit {
    pub fault: Fault,
    pub problem: Box<Problem>,
    pub end: Box<Verdict>,
    /// The tool that was meant, if there is one.
    pub tool: Option<ToolId>,
}

impl Unfit {
    /// Nothing follows but the fuse.
    fn fuse(fault: Fault, problem: Problem) -> Self {
        Self { fault, problem: problem.into(), end: Verdict::Handoff(HandoffReason::FuseBlown).into(), tool: None }
    }

    pub fn unknown_tool(name: &str, list: &Shortlist<'_>) -> Self {
        Self::fuse(Fault::UnknownTool, Problem::unknown_tool(&clip(name, MAX_NAME), &list.names()))
    }

    /// Text is never passed on: at most it tells that the model wanted to know something.
    pub fn text(text: &str, list: &Shortlist<'_>, wording: &Wording) -> Self {
        let end = match text.trim_end().chars().next_back() {
            Some('?' | '？') => Verdict::Clarify {
                tool: None,
                arguments: Map::new(),
                missing: Vec::new(),
                fields: Vec::new(),
                question: Some(wording.unclear.clone()),
            },
            Some(_) | None => Verdict::NoTool(NoToolReason::NothingFits),
        };
        let allowed = format!("choose one of: {}", list.names().join(", "));
        let problem = malformed("text_answer", ProblemCode::UnknownTool, "the answer calls no function", &allowed);
        Self { end: end.into(), ..Self::fuse(Fault::TextAnswer, problem) }
    }

    /// What there is of the answer may be half of it.
    pub fn cut_off(tool: Option<&Tool>) -> Self {
        let message = "the answer was cut off at the limit of its length";
        let problem =
            malformed("cut_off", ProblemCode::InvalidArgs, message, "write the call alone, with short values");
        Self { tool: tool.map(|tool| tool.id().clone()), ..Self::fuse(Fault::CutOff, problem) }
    }

    pub fn several_calls() -> Self {
        let message = "exactly one call was asked for";
        let suggestion = "keep the one that comes first";
        Self::fuse(Fault::SeveralCalls, malformed("several_calls", ProblemCode::InvalidArgs, message, suggestion))
    }

    /// Arguments that do not fit, or a call that has failed before.
    pub fn arguments(tool: &Tool, given: &Arguments, problem: Box<Problem>) -> Self {
        let fuse = Verdict::Handoff(HandoffReason::FuseBlown);
        let end = question::ask_for_fields(tool, given, &problem).unwrap_or(fuse);
        let fault = match problem.code {
            ProblemCode::InvalidArgs => Fault::InvalidArguments,
            ProblemCode::UnknownTool
            | ProblemCode::InvalidRequest
            | ProblemCode::PermissionDenied
            | ProblemCode::Timeout
            | ProblemCode::Unavailable
            | ProblemCode::PreconditionMissing
            | ProblemCode::TokenRefused
            | ProblemCode::PolicyDenied
            | ProblemCode::IdempotencyConflict
            | ProblemCode::InFlight
            | ProblemCode::EffectUnknown
            | ProblemCode::StepLimit
            | ProblemCode::NotExecutable
            | ProblemCode::Disabled
            | ProblemCode::Tool(_) => Fault::FailedBefore,
        };
        Self { fault, problem, end: end.into(), tool: Some(tool.id().clone()) }
    }

    pub fn plan(refusal: Refusal, list: &Shortlist<'_>) -> Self {
        let name = |id: &ToolId| {
            let offered = list.tools.iter().find(|tool| tool.id() == id);
            offered.map_or_else(|| id.to_string(), |tool| tool.alias.clone())
        };
        let problem = match &refusal {
            Refusal::Conflict { first, second } => {
                let message = format!("`{}` and `{}` exclude each other in one answer", name(first), name(second));
                malformed("conflict", ProblemCode::InvalidArgs, &message, "keep the one that the request asks for")
            }
            Refusal::Cycle => {
                let problem = malformed("conflict", ProblemCode::InvalidArgs, "the calls need each other first", "");
                Problem { repairable: false, suggestion: None, ..problem }
            }
        };
        Self::fuse(Fault::Conflict, problem)
    }
}

pub(super) fn unreadable() -> Problem {
    let expected = "a JSON object, each argument once".into();
    let field = FieldProblem { path: String::new(), expected, example: None };
    Problem::invalid_args("the arguments are not a JSON object", vec![field])
}

fn malformed(status: &str, code: ProblemCode, message: &str, suggestion: &str) -> Problem {
    Problem { suggestion: Some(suggestion.into()), ..Problem::repairable(status, code, message) }
}
