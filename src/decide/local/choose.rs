//! Weighs the candidates and takes the best one, asks, or abstains.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value};

use super::Settings;
use super::extract::{Extraction, extract};
use crate::args::{Checked, Origin, validate};
use crate::catalog::Tool;
use crate::decide::confidence::{self, Features};
use crate::decide::{Answer, Proposal, Request, Verdict};
use crate::decision::NoToolReason;
use crate::text::{Language, SlotKind, tokenise};
use crate::tool::{ConfirmedBy, SideEffect};
use crate::types::{Candidate, Confidence, FieldProblem, Role, Signal, Turn};

/// How many candidates, from the top, are weighed.
const WEIGHED: usize = 8;
/// What it is worth that a tool takes every id of the utterance, in fused score.
const FIT_WEIGHT: f32 = 0.8;
/// What it is worth that every required argument stands in the conversation.
const COMPLETE_WEIGHT: f32 = 0.3;

/// Highest confidence where no encoder declares the language: below the least one for a call, whatever was ranked first.
const UNSUPPORTED_LANGUAGE: f32 = 0.2;

const NOTE_CUT: &str = "the utterance asks for more calls than the request allows; the first ones were taken";
/// What it is worth to have been called last when the utterance does nothing but point at another thing.
const CONTINUE_WEIGHT: f32 = 4.0;

/// One candidate with what it could be called with.
struct Weighed<'a> {
    tool: &'a Tool,
    candidate: &'a Candidate,
    extraction: Extraction,
    checked: Result<Checked, Vec<FieldProblem>>,
    fit: f32,
    total: f32,
}

/// Decides without a model.
pub fn decide(request: &Request<'_>, settings: &Settings) -> Answer {
    let mut weighed: Vec<Weighed<'_>> = request
        .candidates
        .iter()
        .take(WEIGHED)
        .filter_map(|candidate| Some(weigh(request.tool(&candidate.tool)?, candidate, request)))
        .filter(|weighed| !lacks_token(weighed))
        .collect();
    weighed.sort_by(|a, b| b.total.total_cmp(&a.total).then_with(|| a.tool.id().cmp(b.tool.id())));
    let Some(best) = weighed.first() else {
        return answer(Verdict::NoTool(NoToolReason::NothingFits), Confidence::ZERO);
    };
    let confidence = confidence_of(best, weighed.get(1), request);
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
    Answer { notes, ..answer(verdict, confidence) }
}

fn weigh<'a>(tool: &'a Tool, candidate: &'a Candidate, request: &Request<'_>) -> Weighed<'a> {
    let extraction = extract(tool, request.query, request.history, request.session);
    let raw = Value::Object(extraction.arguments.clone());
    let mut checked = validate(&tool.schema, &raw).map_err(|problem| problem.fields);
    if let Ok(checked) = &mut checked {
        checked.notices.extend(extraction.notices.iter().cloned());
    }
    let fit = fit(&extraction, request);
    let complete = if checked.is_ok() { COMPLETE_WEIGHT } else { 0.0 };
    let continued = if continues(tool, request) { CONTINUE_WEIGHT } else { 0.0 };
    let total = candidate.score.get() + FIT_WEIGHT * (fit - 1.0) + complete + continued;
    Weighed { tool, candidate, extraction, checked, fit, total }
}

/// A tool that lives on another tool's token cannot be what is meant while there is no token for these arguments: its
/// preview is.
fn lacks_token(weighed: &Weighed<'_>) -> bool {
    let confirmation = weighed.tool.card.confirmation.as_ref();
    let token = confirmation.filter(|confirmation| confirmation.by == ConfirmedBy::PreviewTool);
    let name = token.and_then(|confirmation| confirmation.token_param.as_deref());
    name.is_some_and(|name| !weighed.extraction.arguments.contains_key(name))
}

/// "And the second one?": no word of a subject, so the last call is meant, with another thing.
fn continues(tool: &Tool, request: &Request<'_>) -> bool {
    static POINTS: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(
            r"(?i)^(那么?|还有|and|what about|how about|\s)*(第[一二两三四五六七八九十\d]+|最后一|上一|下一|另一|the (first|second|third|fourth|fifth|last|next|other))\s*[个单笔件条项份]?(one)?\s*(呢|怎么样|也)?[\s?？。.!！吧]*$",
        )
        .expect("the pattern is constant and valid")
    });
    POINTS.is_match(&request.query.text) && last_used(request.history).is_some_and(|last| last == tool.card.name)
}

/// The tool whose result came last.
fn last_used(history: &[Turn]) -> Option<String> {
    let last = history.iter().rev().find(|turn| turn.role == Role::Tool)?;
    let result: Value = serde_json::from_str(&last.content).ok()?;
    result.get("tool").and_then(Value::as_str).map(str::to_owned)
}

/// Share of the utterance's ids that became an argument; 1 when it holds none.
fn fit(extraction: &Extraction, request: &Request<'_>) -> f32 {
    let ids: Vec<_> = request.query.slots.iter().filter(|slot| slot.kind == SlotKind::Id).collect();
    if ids.is_empty() {
        return 1.0;
    }
    let further = extraction.more.iter().flat_map(|(_, values)| values.iter().map(|(_, origin)| origin));
    let origins: Vec<&Origin> = extraction.origins.values().chain(further).collect();
    let taken = ids.iter().filter(|slot| {
        origins.iter().any(|origin| match origin {
            Origin::Utterance { start, end } => *start < slot.span.end && slot.span.start < *end,
            Origin::History | Origin::Session | Origin::Default | Origin::EnumText | Origin::Inferred => false,
        })
    });
    taken.count() as f32 / ids.len() as f32
}

fn confidence_of(best: &Weighed<'_>, second: Option<&Weighed<'_>>, request: &Request<'_>) -> Confidence {
    let words = tokenise(&request.query.retrieval_text()).len();
    let mut features = Features::of_ranking(best.candidate, None, words);
    if let Some(second) = second {
        features.margin = (best.total - second.total).clamp(0.0, features.margin);
    }
    features.fit = best.fit;
    features.complete = best.checked.is_ok();
    features.pinned |= just_used(best.candidate, request.history) || continues(best.tool, request);
    let confidence = confidence::local(&features, request.query.language == Language::En && !request.query.across);
    tracing::debug!(tool = %best.tool.id(), ?features, %confidence, "first candidate weighed");
    // Whoever names the tool needs no encoder.
    let guessed = request.query.unsupported && !features.pinned;
    if guessed { Confidence::new(confidence.get().min(UNSUPPORTED_LANGUAGE)) } else { confidence }
}

/// The conversation has just led to this tool: its preview was the last result.
fn just_used(candidate: &Candidate, history: &[Turn]) -> bool {
    !history.is_empty() && candidate.signals.get(&Signal::History).is_some_and(|strength| *strength >= 1.0)
}

fn verdict(best: &Weighed<'_>, confidence: Confidence, settings: &Settings) -> Verdict {
    if confidence.get() < settings.no_tool_below {
        return Verdict::NoTool(NoToolReason::NothingFits);
    }
    let enough = match best.tool.card.side_effect {
        SideEffect::Read => settings.min_confidence,
        // An undeclared class is no reason not to choose the tool.
        SideEffect::Write | SideEffect::Destructive if !best.tool.card.side_effect_declared => settings.min_confidence,
        SideEffect::Write | SideEffect::Destructive => settings.min_confidence_write,
    };
    match &best.checked {
        Ok(checked) if confidence.get() >= enough => Verdict::Call(vec![Proposal {
            tool: best.tool.id().clone(),
            checked: checked.clone(),
            origins: with_defaults(&best.extraction, checked),
        }]),
        Ok(checked) => Verdict::Clarify {
            tool: Some(best.tool.id().clone()),
            arguments: checked.args.as_map().clone(),
            missing: Vec::new(),
            fields: Vec::new(),
            question: None,
        },
        Err(fields) => clarify(best.tool, best.extraction.arguments.clone(), fields.clone()),
    }
}

/// One call more for each further id of the kind the tool needs: two orders named are two calls, since the argument
/// takes one. What cannot be undone is planned one at a time.
fn further_calls(best: &Weighed<'_>) -> Vec<Proposal> {
    let Some((name, values)) = &best.extraction.more else { return Vec::new() };
    if best.tool.card.side_effect_declared && best.tool.card.side_effect == SideEffect::Destructive {
        return Vec::new();
    }
    let call = |(value, origin): &(Value, Origin)| {
        let mut extraction = best.extraction.clone();
        extraction.arguments.insert(name.clone(), value.clone());
        extraction.origins.insert(name.clone(), *origin);
        let checked = validate(&best.tool.schema, &Value::Object(extraction.arguments.clone())).ok()?;
        let origins = with_defaults(&extraction, &checked);
        Some(Proposal { tool: best.tool.id().clone(), checked, origins })
    };
    values.iter().filter_map(call).collect()
}

/// A question about everything that is missing or does not fit; what fits is kept.
pub(super) fn clarify(tool: &Tool, mut arguments: Map<String, Value>, fields: Vec<FieldProblem>) -> Verdict {
    let at_fault: BTreeSet<&str> =
        fields.iter().filter_map(|field| field.path.strip_prefix('/')?.split('/').next()).collect();
    arguments.retain(|name, _| !at_fault.contains(name.as_str()));
    let required = tool.schema.required();
    let missing = required.into_iter().filter(|name| !arguments.contains_key(*name)).map(str::to_owned).collect();
    Verdict::Clarify { tool: Some(tool.id().clone()), arguments, missing, fields, question: None }
}

fn with_defaults(extraction: &Extraction, checked: &Checked) -> crate::args::Origins {
    let mut origins = extraction.origins.clone();
    for name in &checked.defaulted {
        origins.insert(name.clone(), Origin::Default);
    }
    origins
}

fn answer(verdict: Verdict, confidence: Confidence) -> Answer {
    // The probability that a tool is right says how wrong it is to name none.
    let confidence = match verdict {
        Verdict::NoTool(_) => Confidence::new(1.0 - confidence.get()),
        Verdict::Call(_) | Verdict::Clarify { .. } | Verdict::Handoff(_) => confidence,
    };
    Answer::local(verdict, confidence)
}
