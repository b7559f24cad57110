//! What follows from the best candidate: calls, a question, or nothing.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::Settings;
use super::extract::Extraction;
use super::weigh::Weighed;
use crate::args::{Checked, Origin, Origins, validate};
use crate::catalog::Tool;
use crate::decide::{Proposal, Verdict};
use crate::decision::NoToolReason;
use crate::tool::SideEffect;
use crate::types::{Confidence, FieldProblem};

pub(super) fn verdict(best: &Weighed<'_>, confidence: Confidence, settings: &Settings) -> Verdict {
    // An id of the tool's own form is about the tool's things, whatever is wanted of them: worth a question.
    if confidence.get() < settings.no_tool_below && !best.takes_own_id() {
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
pub(super) fn further_calls(best: &Weighed<'_>) -> Vec<Proposal> {
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
pub(in crate::decide) fn clarify(tool: &Tool, mut arguments: Map<String, Value>, fields: Vec<FieldProblem>) -> Verdict {
    let at_fault: BTreeSet<&str> =
        fields.iter().filter_map(|field| field.path.strip_prefix('/')?.split('/').next()).collect();
    arguments.retain(|name, _| !at_fault.contains(name.as_str()));
    let required = tool.schema.required();
    let missing = required.into_iter().filter(|name| !arguments.contains_key(*name)).map(str::to_owned).collect();
    Verdict::Clarify { tool: Some(tool.id().clone()), arguments, missing, fields, question: None }
}

pub(super) fn with_defaults(extraction: &Extraction, checked: &Checked) -> Origins {
    let mut origins = extraction.origins.clone();
    for name in &checked.defaulted {
        origins.insert(name.clone(), Origin::Default);
    }
    origins
}
