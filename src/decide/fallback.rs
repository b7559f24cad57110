//! What follows when the model's answers could not be repaired: another tool, or the fuse.
//!
//! Owns: the order of the steps (the card's fallback tool, the runner-up, the fuse), what each one demands, and the
//! count of how repairs end.
//! Does not know: how a model is asked again.
//!
//! Both steps only ever read. A model that named no tool we offer is not followed by another tool: nothing says that
//! its choice was near to any of them.

use metrics::counter;
use serde_json::Map;

use super::made::made;
use super::{Answer, Proposal, Request, Verdict, local, plan};
use crate::catalog::Tool;
use crate::decision::{DecidedBy, HandoffReason};
use crate::telemetry::names;
use crate::types::{Candidate, Confidence, ToolId};

/// Confidence in a tool that stands in for the one that was chosen: below what is cached.
const INSTEAD: f32 = 0.5;

const NOTE_FALLBACK: &str = "the call could not be repaired; the tool its card names for that case answers";
const NOTE_RUNNER_UP: &str = "the call could not be repaired; the runner-up answers";
const NOTE_FUSE: &str = "the call could not be repaired and no other tool can answer";

/// How a decision ended whose answers had to be repaired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// A later answer could be used.
    Repaired,
    /// No tool is called, by a later answer or because the model only talked.
    NoTool,
    /// The user was asked for what is missing.
    AskedUser,
    Fallback,
    RunnerUp,
    Fuse,
    /// Attempts or time ran out before.
    Budget,
}

impl End {
    fn as_str(self) -> &'static str {
        match self {
            Self::Repaired => "repaired",
            Self::NoTool => "no_tool",
            Self::AskedUser => "asked_user",
            Self::Fallback => "fallback",
            Self::RunnerUp => "runner_up",
            Self::Fuse => "fuse",
            Self::Budget => "budget",
        }
    }
}

/// The answer of the LLM, or what stands in for it where its repairs came to nothing. `open` finds a tool by id among
/// all that are open to the caller: a fallback tool need not have been on the shortlist.
pub fn follow<'a>(
    mut answer: Answer,
    request: &Request<'a>,
    settings: &local::Settings,
    open: &dyn Fn(&str) -> Option<&'a Tool>,
) -> Answer {
    if answer.repairs.is_empty() {
        return answer;
    }
    let end = match answer.verdict {
        Verdict::Call(_) => End::Repaired,
        Verdict::NoTool(_) => End::NoTool,
        Verdict::Clarify { .. } => End::AskedUser,
        Verdict::Handoff(HandoffReason::Budget | HandoffReason::Policy) => End::Budget,
        Verdict::Handoff(HandoffReason::FuseBlown) => stand_in(&mut answer, request, settings, open),
    };
    counter!(names::LLM_REPAIR_ENDS, "end" => end.as_str()).increment(1);
    answer
}

fn stand_in<'a>(
    answer: &mut Answer,
    request: &Request<'a>,
    settings: &local::Settings,
    open: &dyn Fn(&str) -> Option<&'a Tool>,
) -> End {
    let failed = answer.failed.as_ref().and_then(|id| request.tool(id));
    let step = failed.and_then(|failed| {
        let fallback = named_fallback(failed, request, open).map(|call| (vec![call], End::Fallback, NOTE_FALLBACK));
        fallback.or_else(|| Some((runner_up(failed.id(), request, settings)?, End::RunnerUp, NOTE_RUNNER_UP)))
    });
    let Some((calls, end, note)) = step else {
        answer.notes.push(NOTE_FUSE.into());
        tracing::warn!(repairs = answer.repairs.len(), "answers of the LLM could not be repaired; handed over");
        return End::Fuse;
    };
    answer.verdict = Verdict::Call(calls);
    answer.decided_by = DecidedBy::Fallback;
    answer.confidence = Confidence::new(INSTEAD);
    answer.notes.push(note.into());
    end
}

/// A call of the card's fallback tool, if it is open, only reads and needs nothing that is not known.
fn named_fallback<'a>(
    failed: &Tool,
    request: &Request<'a>,
    open: &dyn Fn(&str) -> Option<&'a Tool>,
) -> Option<Proposal> {
    let name = failed.card.fallback.as_deref()?;
    let other = request.related(failed, name).or_else(|| open(name))?;
    let takes = other.card.is_known_to_read() && other.id() != failed.id();
    let call = takes.then(|| plan::filled(other, &Map::new(), request)).flatten()?;
    made(other, call.checked.args.as_map(), request.history).is_none().then_some(call)
}

/// What the local decider makes of the other candidates, by its own thresholds: taken only if it calls, and only reads.
fn runner_up(failed: &ToolId, request: &Request<'_>, settings: &local::Settings) -> Option<Vec<Proposal>> {
    let other = |candidate: &&Candidate| candidate.tool != *failed;
    let candidates: Vec<Candidate> = request.candidates.iter().filter(other).cloned().collect();
    if candidates.is_empty() {
        return None;
    }
    let tools: Vec<&Tool> = request.tools.iter().copied().filter(|tool| tool.id() != failed).collect();
    let rest = Request { tools: &tools, candidates: &candidates, ..*request };
    let Verdict::Call(calls) = local::decide(&rest, settings).verdict else { return None };
    let serves = |call: &Proposal| {
        let is_new = |tool: &Tool| made(tool, call.checked.args.as_map(), request.history).is_none();
        rest.tool(&call.tool).is_some_and(|tool| tool.card.is_known_to_read() && is_new(tool))
    };
    calls.iter().all(serves).then_some(calls)
}
