//! Weighs the candidates and takes the best one, asks, or abstains.

use serde_json::{Map, Value};

use super::borders::{Reading, shifts};
use super::concepts::{Concepts, bought};
use super::extract::{extract, words};
use super::verdict::{further_calls, verdict};
use super::weigh::{Parts, Weighed};
use super::{Settings, follow, known, signs};
use crate::args::{Origin, validate};
use crate::catalog::Tool;
use crate::decide::confidence::{self, Features};
use crate::decide::{Answer, Request, Verdict};
use crate::decision::NoToolReason;
use crate::text::{SlotKind, tokenise};
use crate::tool::ConfirmedBy;
use crate::types::{Candidate, Confidence, FieldProblem, Signal, ToolId, Turn};

/// How many candidates, from the top, are weighed.
const WEIGHED: usize = 8;
/// Confidence that nothing is to be called when a closed list says so.
const SIGN_CONFIDENCE: f32 = 0.95;

/// How far the source of an id leads before the tool that needs it.
const SOURCE_LEAD: f32 = 1.0;

const NOTE_CUT: &str = "the utterance asks for more calls than the request allows; the first ones were taken";

/// Decides without a model.
pub fn decide(request: &Request<'_>, settings: &Settings) -> Answer {
    if let Some(sign) = signs::sign(request) {
        let answer = Answer::local(Verdict::NoTool(NoToolReason::NothingFits), Confidence::new(SIGN_CONFIDENCE));
        return Answer { notes: vec![sign.note().to_owned()], ..answer };
    }
    let weighed = weigh_all(request);
    let Some(best) = weighed.first() else {
        return answer(Verdict::NoTool(NoToolReason::NothingFits), Confidence::ZERO);
    };
    let features = features(&weighed, request);
    let confidence = request.model.probability(&features);
    tracing::debug!(tool = %best.tool.id(), ?features, %confidence, "first candidate weighed");
    let mut verdict = verdict(best, confidence, settings);
    let mut notes = Vec::new();
    if let Verdict::Call(calls) = &mut verdict {
        let further = further_calls(best);
        if calls.len() + further.len() > request.max_calls {
            notes.push(NOTE_CUT.to_owned());
        }
        calls.extend(further);
        calls.truncate(request.max_calls);
    }
    let mut answer = Answer { notes, ..answer(verdict, confidence) };
    if features.unsupported && !features.named {
        // That nothing fits is no better known than that something does.
        answer.confidence = confidence::cap_unsupported(answer.confidence);
    }
    answer
}

/// The tool the decider would take, whatever it makes of it, and what its confidence is computed from. `None` where
/// nothing is weighed: without a candidate, or when a closed list says that nothing is to be called.
pub fn first_choice(request: &Request<'_>) -> Option<(ToolId, Features)> {
    if signs::sign(request).is_some() {
        return None;
    }
    let weighed = weigh_all(request);
    let tool = weighed.first()?.tool.id().clone();
    Some((tool, features(&weighed, request)))
}

/// What one candidate weighed, for explanations.
#[derive(Debug, Clone, PartialEq)]
pub struct Weight {
    pub tool: ToolId,
    /// The fused score.
    pub score: f32,
    /// At most 0: ids of the utterance that the tool cannot take.
    pub fit: f32,
    pub complete: f32,
    /// Values, concepts and borders that the utterance speaks of.
    pub meaning: f32,
    pub continued: f32,
    pub total: f32,
    /// It lives on another tool's token, and there is none for these arguments.
    pub lacks_token: bool,
}

/// What [`decide`] weighs, best first; those it does not consider come last.
pub fn weights(request: &Request<'_>) -> Vec<Weight> {
    let weight = |weighed: &Weighed<'_>, lacks_token| {
        let Parts { fit, complete, meaning, continued } = weighed.parts();
        let (tool, score) = (weighed.tool.id().clone(), weighed.candidate.score.get());
        Weight { tool, score, fit, complete, meaning, continued, total: weighed.total, lacks_token }
    };
    let weighed = weigh_all(request);
    let mut weights: Vec<Weight> = weighed.iter().map(|weighed| weight(weighed, false)).collect();
    for candidate in request.candidates.iter().take(WEIGHED) {
        let Some(tool) = request.tool(&candidate.tool) else { continue };
        let mut left_out = Weighed::new(tool, candidate, request);
        if left_out.lacks_token() {
            left_out.add_up();
            weights.push(weight(&left_out, true));
        }
    }
    weights
}

/// What `tool` could be called with: arguments read, required ones that are missing, and all that does not fit.
pub fn read_arguments(tool: &Tool, request: &Request<'_>) -> (Map<String, Value>, Vec<String>, Vec<FieldProblem>) {
    let known = extract(tool, request.query, request.history, request.session).arguments;
    let missing = tool.schema.required().into_iter().filter(|name| !known.contains_key(*name)).map(str::to_owned);
    let missing = missing.collect();
    let invalid = validate(&tool.schema, &Value::Object(known.clone())).err().map(|problem| problem.fields);
    (known, missing, invalid.unwrap_or_default())
}

/// The candidates that could be meant, best first, equal ones by tool id.
fn weigh_all<'a>(request: &'a Request<'_>) -> Vec<Weighed<'a>> {
    let mut weighed: Vec<Weighed<'_>> = request
        .candidates
        .iter()
        .take(WEIGHED)
        .filter_map(|candidate| Some(Weighed::new(request.tool(&candidate.tool)?, candidate, request)))
        .filter(|weighed| !weighed.lacks_token())
        .collect();
    let readings: Vec<Reading<'_>> =
        weighed.iter().map(|weighed| Reading::of(weighed.tool, weighed.candidate.score.get())).collect();
    let shifts = shifts(request.query, &readings);
    let subject = follow::subject(request);
    for (weighed, shift) in weighed.iter_mut().zip(shifts) {
        weighed.shift = shift;
        weighed.prepares = is_preview(weighed.tool, request);
        // A tool that can take nothing of what is pointed at is not meant again.
        weighed.continues = if weighed.takes_anything() { subject.fits(weighed.tool) } else { 0.0 };
        weighed.reads_pointed = subject.used.is_some() && weighed.reads_known_thing();
        weighed.add_up();
    }
    weighed.sort_by(|a, b| b.total.total_cmp(&a.total).then_with(|| a.tool.id().cmp(b.tool.id())));
    look_up_first(&mut weighed, request);
    weighed
}

/// A thing that is described by when it was bought, not named by its id, has to be looked up before anything is done
/// with it: by the tool that the id's own description names as its source, if that can take the description.
fn look_up_first(weighed: &mut [Weighed<'_>], request: &Request<'_>) {
    let has_id = request.query.slots.iter().any(|slot| slot.kind == SlotKind::Id);
    let Some(best) = weighed.first() else { return };
    if has_id || !Concepts::of(&request.query.read_text()).contains(bought()) {
        return;
    }
    let open: Vec<&str> = best.open_ids().collect();
    let descriptions: Vec<&str> = weighed
        .iter()
        .flat_map(|weighed| weighed.tool.schema.views())
        .filter(|property| open.contains(&property.name))
        .map(|property| property.description())
        .collect();
    let is_source =
        |other: &Weighed<'_>| {
            let name = other.tool.card.name.as_str();
            descriptions.iter().any(|description| words::find(description, name).is_some())
                && other.extraction.origins.iter().any(|(argument, origin)| {
                    *origin == Origin::EnumText && best.tool.schema.property(argument).is_none()
                })
        };
    if let Some(at) = weighed.iter().skip(1).position(is_source) {
        let lead = best.total + SOURCE_LEAD;
        weighed[at + 1].total = lead;
        weighed[..=at + 1].rotate_right(1);
    }
}

/// Whether another tool open to the caller lives on this one's result.
fn is_preview(tool: &Tool, request: &Request<'_>) -> bool {
    let of = |other: &&Tool| {
        other.card.confirmation.as_ref().is_some_and(|confirmation| {
            confirmation.by == ConfirmedBy::PreviewTool && confirmation.tool.as_deref() == Some(tool.card.name.as_str())
        })
    };
    request.tools.iter().any(of) || tool.card.result_fields.iter().any(|field| field.ends_with("token"))
}

/// `weighed` is not empty.
fn features(weighed: &[Weighed<'_>], request: &Request<'_>) -> Features {
    let (best, second) = (&weighed[0], weighed.get(1));
    let words = tokenise(&request.query.retrieval_text()).len();
    let mut features = Features::of_ranking(best.candidate, None, request.evidence, words);
    if let Some(second) = second {
        features.margin = (best.total - second.total).clamp(0.0, features.margin);
    }
    features.fit = best.fit;
    features.takes_id = best.fit > 0.0 && request.query.slots.iter().any(|slot| slot.kind == SlotKind::Id);
    features.complete = best.checked.is_ok();
    features.needs_nothing = best.tool.schema.required().is_empty();
    features.follows = !request.history.is_empty();
    features.pinned |= just_used(best.candidate, request.history) || best.continues >= 1.0;
    features.known = known::share(request.query, weighed.iter().map(|weighed| weighed.tool));
    features.agrees = best.shift.agrees;
    features.border = best.shift.border;
    features.unsupported = request.query.unsupported;
    features
}

/// The conversation has just led to this tool: its preview was the last result.
fn just_used(candidate: &Candidate, history: &[Turn]) -> bool {
    !history.is_empty() && candidate.signals.get(&Signal::History).is_some_and(|strength| *strength >= 1.0)
}

fn answer(verdict: Verdict, confidence: Confidence) -> Answer {
    // The probability that a tool is right says how wrong it is to name none.
    let confidence = match verdict {
        Verdict::NoTool(_) => Confidence::new(1.0 - confidence.get()),
        Verdict::Call(_) | Verdict::Clarify { .. } | Verdict::Handoff(_) => confidence,
    };
    Answer::local(verdict, confidence)
}
