//! What is told of a decision: to the metrics, and about the ways on which none had to be made.

use std::time::Instant;

use super::route::Work;
use super::{RouteRequest, RunMode};
use crate::cache::Lookup;
use crate::decision::{DecidedBy, Decision, Degraded, NoToolReason, Outcome, Stage, Timings, TokenUse, Trace};
use crate::telemetry::names;
use crate::types::{Confidence, DecisionId};

/// From the caller's trace context; without one, the decision's own id serves.
pub(super) fn trace_id(request: &RouteRequest, id: DecisionId) -> String {
    request.trace_id.clone().unwrap_or_else(|| id.to_string().trim_start_matches("d_").to_owned())
}

pub(super) fn nothing_eligible(work: &Work<'_>) -> Decision {
    Decision {
        id: work.id,
        catalog_version: work.catalog().version.to_string(),
        index: work.catalog().index_kind(),
        language: work.query.language,
        outcome: Outcome::NoTool { reason: NoToolReason::NothingEligible },
        decided_by: DecidedBy::Local,
        confidence: Confidence::ONE,
        degraded: work.degraded.clone(),
        candidates: Vec::new(),
        timings: Timings::new(),
        tokens: TokenUse::default(),
        trace: Trace {
            strategy: "all".into(),
            cache: "bypass".into(),
            rules_version: work.rules().version().to_owned(),
            states: work.states.clone(),
            ..Trace::default()
        },
        trace_id: String::new(),
    }
}

/// A stored or shared decision keeps its result; who decided, the time and the tokens are this request's own.
pub(super) fn answered_from_cache(decision: &mut Decision, lookup: Lookup, look_up: Instant) {
    match lookup {
        Lookup::Made { stored } => {
            decision.trace.cache = "miss".into();
            decision.trace.stored = stored;
        }
        Lookup::Hit => {
            decision.trace.cache = "hit".into();
            decision.decided_by = DecidedBy::CacheExact;
            decision.timings = Timings::from([(Stage::Cache, look_up.elapsed())]);
            decision.tokens = TokenUse::default();
            decision.trace.llm_calls = 0;
        }
        Lookup::Joined => {
            decision.trace.cache = "joined".into();
            decision.timings = Timings::from([(Stage::Cache, look_up.elapsed())]);
            decision.tokens = TokenUse::default();
            decision.trace.llm_calls = 0;
        }
    }
}

const NOTE_DISABLED: &str = "tools are left out: an operator has disabled them, or one that they need";

/// Says in a decision what an operator has in force. `holds`: it left out tools that this caller could have had.
pub(super) fn tell_brake(decision: &mut Decision, holds: bool, mode: RunMode) {
    if holds {
        decision.degraded.insert(Degraded::DisabledTools);
        decision.trace.notes.push(NOTE_DISABLED.into());
    }
    match mode {
        RunMode::Normal => {}
        RunMode::LocalOnly => drop(decision.degraded.insert(Degraded::LocalOnly)),
        RunMode::RulesOnly => drop(decision.degraded.insert(Degraded::RulesOnly)),
    }
}

pub(super) fn observe(decision: &Decision, rules_on: bool) {
    for (stage, time) in &decision.timings {
        metrics::histogram!(names::STAGE_DURATION, "stage" => stage.as_str()).record(time.as_secs_f64());
    }
    let (outcome, decided_by) = (decision.outcome.kind(), decision.decided_by.as_str());
    metrics::counter!(names::DECISIONS, "outcome" => outcome, "decided_by" => decided_by).increment(1);
    for mode in &decision.degraded {
        metrics::counter!(names::DEGRADED, "mode" => mode.as_str()).increment(1);
    }
    metrics::counter!(names::CACHE_LOOKUPS, "result" => decision.trace.cache.clone()).increment(1);
    if rules_on {
        let rule = if decision.trace.rule.is_empty() { "none".to_owned() } else { decision.trace.rule.clone() };
        metrics::counter!(names::RULE_DECISIONS, "rule" => rule).increment(1);
    }
}
