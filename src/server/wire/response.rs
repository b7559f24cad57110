//! A decision on its way to the caller.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::json::to_struct;
use crate::decision::{ClarifyOutcome, DecidedBy, Decision, Outcome, PlannedCall, Repair, Shadow, Trace, Widened};
use crate::server::proto;
use crate::server::proto::route_response::Outcome as ProtoOutcome;
use crate::types::{Candidate, Problem, ToolId};

pub fn route_response(decision: &Decision) -> proto::RouteResponse {
    proto::RouteResponse {
        decision_id: decision.id.to_string(),
        catalog_version: decision.catalog_version.clone(),
        index: decision.index.as_str().into(),
        outcome: Some(outcome(&decision.outcome)),
        decided_by: decision.decided_by.as_str().into(),
        confidence: widen(decision.confidence.get()),
        degraded: decision.degraded.iter().map(|mode| mode.as_str().into()).collect(),
        candidates: decision.candidates.iter().map(candidate).collect(),
        timings_ms: decision.timings.iter().map(|(stage, time)| (stage.as_str().into(), millis(*time))).collect(),
        tokens: Some(proto::Tokens { prompt: decision.tokens.prompt, completion: decision.tokens.completion }),
        trace_id: decision.trace_id.clone(),
        trace: Some(trace(&decision.trace)),
        language: decision.language.as_str().into(),
    }
}

fn outcome(outcome: &Outcome) -> ProtoOutcome {
    match outcome {
        Outcome::Call { calls } => ProtoOutcome::Call(proto::Call { calls: calls.iter().map(planned_call).collect() }),
        Outcome::Clarify(question) => ProtoOutcome::Clarify(clarify(question)),
        Outcome::NoTool { reason } => ProtoOutcome::NoTool(proto::NoTool { reason: reason.as_str().into() }),
        Outcome::Handoff { reason, message } => {
            ProtoOutcome::Handoff(proto::Handoff { reason: reason.as_str().into(), message: message.clone() })
        }
    }
}

fn planned_call(call: &PlannedCall) -> proto::PlannedCall {
    let origins: BTreeMap<_, _> =
        call.origins.iter().map(|(name, origin)| (name.clone(), origin.as_str().to_owned())).collect();
    proto::PlannedCall {
        tool: call.tool.to_string(),
        arguments: Some(to_struct(&call.arguments)),
        arguments_json: json_text(&call.arguments),
        origins,
        side_effect: call.side_effect.as_str().into(),
        needs_confirmation: call.needs_confirmation,
        notices: call.notices.clone(),
        tool_version: call.tool_version.clone(),
    }
}

fn clarify(question: &ClarifyOutcome) -> proto::Clarify {
    proto::Clarify {
        tool: question.tool.as_ref().map(ToolId::to_string).unwrap_or_default(),
        arguments: Some(to_struct(&question.arguments)),
        arguments_json: json_text(&question.arguments),
        missing: question.missing.clone(),
        question: question.question.clone(),
        pending: question.pending.clone().unwrap_or_default(),
    }
}

fn candidate(candidate: &Candidate) -> proto::Candidate {
    proto::Candidate {
        tool: candidate.tool.to_string(),
        score: widen(candidate.score.get()),
        signals: candidate.signals.iter().map(|(signal, value)| (signal.as_str().into(), widen(*value))).collect(),
    }
}

fn trace(trace: &Trace) -> proto::Trace {
    proto::Trace {
        strategy: trace.strategy.clone(),
        eligible: count(trace.eligible),
        shown: trace.shown.iter().map(ToolId::to_string).collect(),
        prompt_hash: trace.prompt_hash.clone(),
        prompt_version: trace.prompt_version.clone(),
        model: trace.model.clone(),
        llm_calls: trace.llm_calls,
        choice_probability: trace.choice_probability.map(widen),
        repairs: trace.repairs.iter().map(repair).collect(),
        cache: trace.cache.clone(),
        stored: trace.stored,
        notes: trace.notes.clone(),
        rule: trace.rule.clone(),
        rules_version: trace.rules_version.clone(),
        states: trace.states.clone(),
        domains: trace
            .domains
            .iter()
            .map(|domain| proto::DomainScore {
                domain: domain.domain.clone(),
                score: widen(domain.score.get()),
                chosen: domain.chosen,
            })
            .collect(),
        widened: trace.widened.map(Widened::as_str).unwrap_or_default().into(),
        shadow: trace.shadow.as_ref().map(shadow),
        refused: trace.refused.as_ref().map(problem),
    }
}

fn shadow(shadow: &Shadow) -> proto::Shadow {
    proto::Shadow {
        agreement: shadow.agreement.as_str().into(),
        outcome: shadow.outcome.clone(),
        tools: shadow.tools.iter().map(ToolId::to_string).collect(),
        decided_by: shadow.decided_by.map(DecidedBy::as_str).unwrap_or_default().into(),
    }
}

fn repair(repair: &Repair) -> proto::Repair {
    proto::Repair { attempt: repair.attempt, problem: Some(problem(&repair.problem)) }
}

pub(in crate::server) fn problem(problem: &Problem) -> proto::Problem {
    proto::Problem {
        status: problem.status.clone(),
        code: problem.code.as_str().into(),
        message: problem.message.clone(),
        fields: problem
            .fields
            .iter()
            .map(|field| proto::FieldProblem {
                path: field.path.clone(),
                expected: field.expected.clone(),
                example: field.example.clone().unwrap_or_default(),
            })
            .collect(),
        retryable: problem.retryable,
        repairable: problem.repairable,
        retry_after_ms: problem.retry_after_ms,
        next: problem
            .next
            .as_ref()
            .map(|next| proto::NextStep { tool: next.tool.to_string(), hint: next.hint.clone() }),
        suggestion: problem.suggestion.clone().unwrap_or_default(),
    }
}

fn json_text(map: &Map<String, Value>) -> String {
    serde_json::to_string(map).expect("a JSON map is JSON")
}

fn millis(time: std::time::Duration) -> f64 {
    // Whole microseconds: finer digits are noise.
    time.as_micros() as f64 / 1000.0
}

pub(in crate::server) fn count(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// The double whose shortest decimal is that of `value`: 0.8 stays 0.8 and does not become 0.800000011920929.
fn widen(value: f32) -> f64 {
    value.to_string().parse().unwrap_or_else(|_| f64::from(value))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use prost::Message;
    use serde_json::json;

    use super::*;
    use crate::decision::{Degraded, NoToolReason, Stage, TokenUse};
    use crate::text::Language;
    use crate::tool::SideEffect;
    use crate::types::{Confidence, DecisionId, IndexKind};

    fn decision(outcome: Outcome) -> Decision {
        Decision {
            id: DecisionId::generate(),
            catalog_version: "1-abc".into(),
            index: IndexKind::Exact,
            language: Language::Zh,
            outcome,
            decided_by: DecidedBy::Local,
            confidence: Confidence::new(0.8),
            degraded: BTreeSet::from([Degraded::LexicalOnly]),
            candidates: Vec::new(),
            timings: [(Stage::Total, Duration::from_micros(1234))].into(),
            tokens: TokenUse::default(),
            trace: Trace::default(),
            trace_id: String::new(),
        }
    }

    #[test]
    fn arguments_are_exact_as_text() {
        let arguments = json!({"id": 9_007_199_254_740_993_u64, "原因": "质量问题"});
        let call = PlannedCall {
            tool: ToolId::new("refund"),
            tool_version: "1".into(),
            arguments: arguments.as_object().unwrap().clone(),
            origins: BTreeMap::new(),
            side_effect: SideEffect::Write,
            needs_confirmation: true,
            notices: Vec::new(),
        };
        let response = route_response(&decision(Outcome::Call { calls: vec![call] }));
        let Some(ProtoOutcome::Call(call)) = response.outcome else { panic!("a call") };
        assert_eq!(serde_json::from_str::<Value>(&call.calls[0].arguments_json).unwrap(), arguments);
        assert_eq!(call.calls[0].side_effect, "write");
    }

    #[test]
    fn numbers_keep_their_shortest_form_and_bytes_repeat() {
        let decision = decision(Outcome::NoTool { reason: NoToolReason::NothingFits });
        let response = route_response(&decision);
        assert_eq!(response.confidence, 0.8);
        assert_eq!(response.timings_ms["total"], 1.234);
        assert_eq!(response.degraded, ["lexical_only"]);
        assert_eq!(response.encode_to_vec(), route_response(&decision).encode_to_vec());
    }
}
