//! The rules every verdict has to pass, whoever made it.

use super::local::extract::is_id_name;
use super::made::{Made, made, unknown_token};
use super::{Answer, Proposal, Request, Verdict, ground, plan};
use crate::args::{Origin, Property};
use crate::catalog::Tool;
use crate::decision::{DecidedBy, Degraded, NoToolReason};
use crate::tool::{Execution, SideEffect};
use crate::types::ToolId;

const NOTE_DONE: &str = "the conversation holds the result of this very call; it is not made again";
const NOTE_FIRST: &str = "what finds a missing value is called first; the next turn continues with its result";
const NOTE_INVENTED: &str = "a value that must not be concluded stands nowhere in the conversation";

/// The request has been served: looking for other tools would serve it twice.
pub fn is_done(answer: &Answer) -> bool {
    answer.notes.iter().any(|note| note == NOTE_DONE)
}

/// Applies the grounding rule and the degraded mode's limits.
///
/// * A call that has taken effect since the user last spoke is not made again.
/// * An id of a fixed form that stands nowhere in the conversation turns the call into a question, whatever the tool
///   does: ids are copied, never concluded. Where a read call can find it, that call comes first, alone.
/// * On write and destructive tools so does any other required value: somebody concluded it, and what follows cannot
///   simply be taken back. A token counts only if the preview of the same thing has handed it out.
/// * For the same reason a question of the LLM about a tool that acts keeps only what stands in the conversation: the
///   answer would turn what it concluded into something known.
/// * While a configured LLM is unavailable, only tools that are known to read are decided.
pub fn settle(answer: &mut Answer, request: &Request<'_>) {
    if let Verdict::Call(calls) = &mut answer.verdict {
        let (verdict, notes) = carried_out(std::mem::take(calls), request);
        answer.verdict = verdict;
        answer.notes.extend(notes.into_iter().map(str::to_owned));
    }
    if answer.decided_by == DecidedBy::Llm {
        keep_grounded(&mut answer.verdict, request);
    }
    let degraded = answer.degraded.contains(&Degraded::LlmUnavailable);
    if degraded && answer.decided_by != DecidedBy::Llm && !reads_only(&answer.verdict, request) {
        answer.notes.push("without the LLM only read tools are decided".into());
        answer.verdict = Verdict::NoTool(NoToolReason::NotAllowedDegraded);
    }
}

/// What of a plan can be carried out now, and why the rest cannot.
fn carried_out(mut calls: Vec<Proposal>, request: &Request<'_>) -> (Verdict, Vec<&'static str>) {
    let mut notes = Vec::new();
    let planned = calls.len();
    calls.retain(|call| {
        let tool = request.tool(&call.tool);
        tool.and_then(|tool| made(tool, call.checked.args.as_map(), request.history)) != Some(Made::Done)
    });
    if calls.len() < planned {
        notes.push(NOTE_DONE);
    }
    if calls.is_empty() {
        return (Verdict::NoTool(NoToolReason::NothingFits), notes);
    }
    let (mut kept, mut put_off): (Vec<Proposal>, Vec<ToolId>) = (Vec::new(), Vec::new());
    for call in calls {
        let tool = request.tool(&call.tool);
        let waits =
            tool.is_some_and(|tool| put_off.iter().any(|first| plan::names(tool, &tool.card.requires, first, request)));
        if waits {
            put_off.push(call.tool);
            continue;
        }
        let Some(question) = tool.and_then(|tool| ungrounded(&call, tool, request)) else {
            kept.push(call);
            continue;
        };
        let found_by_kept = kept.iter().any(|other| {
            other.tool != call.tool && request.tool(&other.tool).is_some_and(|tool| tool.card.is_known_to_read())
        });
        match plan::finder(&call, request) {
            Some(first) if !kept.iter().any(|other| plan::same(other, &first)) => kept.push(first),
            Some(_) => {}
            None if found_by_kept => {}
            None => {
                notes.push(NOTE_INVENTED);
                return (question, notes);
            }
        }
        put_off.push(call.tool);
    }
    if !put_off.is_empty() {
        notes.push(NOTE_FIRST);
    }
    (Verdict::Call(kept), notes)
}

/// Whether nothing in the call is invented that must not be.
pub(super) fn is_grounded(call: &Proposal, tool: &Tool, request: &Request<'_>) -> bool {
    ungrounded(call, tool, request).is_none()
}

fn reads_only(verdict: &Verdict, request: &Request<'_>) -> bool {
    let reads = |id| request.tool(id).is_none_or(|tool| tool.card.side_effect == SideEffect::Read);
    match verdict {
        Verdict::Call(proposals) => proposals.iter().all(|proposal| reads(&proposal.tool)),
        // A question about a write leads to that write.
        Verdict::Clarify { tool: Some(tool), .. } => reads(tool),
        Verdict::Clarify { tool: None, .. } | Verdict::NoTool(_) | Verdict::Handoff(_) => true,
    }
}

/// The question that replaces a call with invented values.
fn ungrounded(proposal: &Proposal, tool: &Tool, request: &Request<'_>) -> Option<Verdict> {
    let reads = tool.card.is_known_to_read();
    if !reads && !tool.card.is_known_to_act() {
        return None;
    }
    let token = unknown_token(tool, proposal.checked.args.as_map(), request.history);
    let is_invented = |name: &str| token == Some(name) || matches!(proposal.origins.get(name), Some(Origin::Inferred));
    let mut properties: Vec<Property<'_>> = tool.schema.views().collect();
    let required = tool.schema.required();
    properties.sort_by_key(|property| required.iter().position(|name| *name == property.name).unwrap_or(usize::MAX));
    let missing: Vec<String> = properties
        .iter()
        .filter(|property| is_invented(property.name) && (!reads && property.required || is_patterned_id(property)))
        .map(|property| property.name.to_owned())
        .collect();
    if missing.is_empty() {
        return None;
    }
    let mut arguments = proposal.checked.args.as_map().clone();
    arguments.retain(|name, _| !missing.contains(name));
    Some(Verdict::Clarify { tool: Some(proposal.tool.clone()), arguments, missing, fields: Vec::new(), question: None })
}

pub(super) fn is_patterned_id(property: &Property<'_>) -> bool {
    property.pattern().is_some() && property.choices().is_empty() && is_id_name(property.name)
}

/// Takes invented values out of a question; required ones are asked for with the rest.
fn keep_grounded(verdict: &mut Verdict, request: &Request<'_>) {
    let Verdict::Clarify { tool: Some(id), arguments, missing, question, .. } = verdict else { return };
    let Some(tool) = request.tool(id).filter(|tool| tool.card.is_known_to_act()) else { return };
    let origins = ground::trace(arguments, &tool.schema, request.query, request.history, request.session, &[]);
    arguments.retain(|name, _| origins.get(name).is_some_and(|origin| *origin != Origin::Inferred));
    let required = tool.schema.required();
    let taken = required.iter().filter(|name| origins.get(**name) == Some(&Origin::Inferred));
    let taken: Vec<String> = taken.map(|name| (*name).to_owned()).filter(|name| !missing.contains(name)).collect();
    if !taken.is_empty() {
        // The model's words ask for less than what is missing now.
        *question = None;
        missing.extend(taken);
        missing.sort_by_key(|name| required.iter().position(|own| own == name).unwrap_or(usize::MAX));
    }
}

/// Whether a person must agree to exactly these arguments before the call runs.
pub fn needs_confirmation(tool: &Tool) -> bool {
    let card = &tool.card;
    card.confirmation.is_some()
        || card.execution == Execution::ProposeOnly
        || (card.side_effect == SideEffect::Destructive && card.side_effect_declared)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Map, Value, json};

    use super::*;
    use crate::decide::llm::testing::{Shop, card};
    use crate::decision::TokenUse;
    use crate::types::{Confidence, ToolId};

    fn asked(arguments: Value, side_effect: SideEffect, decided_by: DecidedBy) -> (Map<String, Value>, Vec<String>) {
        let parameters = json!({"type": "object", "required": ["amount", "order_id", "reason"],
            "properties": {"amount": {"type": "integer"}, "order_id": {"type": "string"}, "reason": {"type": "string"},
                "note": {"type": "string"}}});
        let shop = Shop::of(vec![crate::tool::ToolCard { side_effect, ..card("refund", parameters) }]);
        let tools = shop.tools();
        let request = shop.request("refund SO-20260418000736 please", &tools);
        let mut answer = Answer {
            verdict: Verdict::Clarify {
                tool: Some(ToolId::new("refund")),
                arguments: arguments.as_object().unwrap().clone(),
                missing: vec!["reason".into()],
                fields: Vec::new(),
                question: Some("Why?".into()),
            },
            decided_by,
            confidence: Confidence::ONE,
            degraded: BTreeSet::new(),
            tokens: TokenUse::default(),
            llm_calls: 1,
            repairs: Vec::new(),
            prompt_hash: String::new(),
            prompt_version: String::new(),
            model: String::new(),
            choice_probability: None,
            notes: Vec::new(),
            failed: None,
        };
        settle(&mut answer, &request);
        let Verdict::Clarify { arguments, missing, question, .. } = answer.verdict else { panic!("a question") };
        assert_eq!(question.is_none(), missing.len() > 1);
        (arguments, missing)
    }

    #[test]
    fn a_question_does_not_carry_what_the_model_made_up() {
        let given = json!({"order_id": "SO-20260418000736", "amount": 500, "note": "urgent"});
        let (arguments, missing) = asked(given.clone(), SideEffect::Write, DecidedBy::Llm);
        assert_eq!(Value::Object(arguments), json!({"order_id": "SO-20260418000736"}));
        assert_eq!(missing, ["amount", "reason"]);
        for (side_effect, decided_by) in [(SideEffect::Read, DecidedBy::Llm), (SideEffect::Write, DecidedBy::Local)] {
            assert_eq!(Value::Object(asked(given.clone(), side_effect, decided_by).0), given);
        }
    }
}
