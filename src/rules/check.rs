//! Every rule's utterances against all rules, before any of them serves.

use std::collections::BTreeSet;

use super::RuleProblem;
use super::apply::{Action, Circumstances};
use super::bind::{BoundRule, Rules};
use super::condition::Said;
use super::file::RuleFile;
use crate::text::normalise;

/// What the utterances brought to light.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub problems: Vec<RuleProblem>,
    pub notices: Vec<String>,
}

/// Reports rules that do not fire on their own utterances, and pairs that fire on one utterance at equal priority with
/// different results. A rule's utterance is tried where the rule applies: in its state, after its tool, with its session.
///
/// That another rule of higher priority takes an utterance may be meant, so it is only remarked on.
pub(super) fn check(rules: &Rules, file: &RuleFile) -> Findings {
    let mut findings = Findings::default();
    let mut reported = BTreeSet::new();
    for rule in &file.rules {
        // A rule whose tools are not served rests.
        let Some(bound) = rules.rules.iter().find(|bound| bound.id == rule.id) else { continue };
        for (index, utterance) in rule.tests.iter().enumerate() {
            let at = format!("{}/utterances/{index}", rule.at);
            let Ok(query) = normalise(utterance) else {
                findings
                    .problems
                    .push(file.problem(&at, format!("rule `{}`: an utterance without visible text", rule.id)));
                continue;
            };
            let said = Said::new(&query.text);
            let states: Vec<&str> = bound.state.as_deref().into_iter().collect();
            let last = bound.after.first().map(|named| named.id.as_str());
            let circumstances = Circumstances { said: &said, session: &bound.session, states: &states, last };
            let Some(own) = bound.fires(&circumstances) else {
                let message = format!("rule `{}` does not fire on its own utterance `{utterance}`", rule.id);
                findings.problems.push(file.problem(&at, message));
                continue;
            };
            for other in rules.rules.iter().filter(|other| other.id != bound.id && other.priority >= bound.priority) {
                let Some(ruling) = other.fires(&circumstances) else { continue };
                if same(&own.action, &ruling.action) || !reported.insert(pair(bound, other)) {
                    continue;
                }
                if other.priority == bound.priority {
                    let message = format!(
                        "rules `{}` and `{}` both fire on `{utterance}` at priority {} with different results; give one \
                         a higher priority, or narrow it",
                        rule.id, other.id, rule.priority
                    );
                    findings.problems.push(file.problem(&at, message));
                } else {
                    findings.notices.push(format!(
                        "rule `{}` takes `{utterance}` from rule `{}` by its higher priority",
                        other.id, rule.id
                    ));
                }
            }
        }
    }
    findings
}

/// One report for each pair, whichever of the two the utterance belongs to.
fn pair<'a>(a: &'a BoundRule, b: &'a BoundRule) -> (&'a str, &'a str) {
    if a.id < b.id { (&a.id, &b.id) } else { (&b.id, &a.id) }
}

fn same(a: &Action, b: &Action) -> bool {
    // Where a value stands does not matter.
    if let (Action::Pin { tool, arguments, .. }, Action::Pin { tool: other, arguments: others, .. }) = (a, b) {
        return tool == other && arguments == others;
    }
    a == b
}
