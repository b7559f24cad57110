//! The rules skeleton in the way of a request: states close tools, a rule decides or narrows, modes keep the rest of a
//! domain from the dynamic choice.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Router;
use super::make::{Shown, decision, request};
use super::observe::nothing_eligible;
use super::pending::Pending;
use super::route::Work;
use super::{RunMode, brake};
use crate::decide::handoff::Sentences;
use crate::decide::{self, Answer, Verdict, local};
use crate::decision::{DecidedBy, Decision, HandoffReason, NoToolReason, Outcome, Timings};
use crate::retrieve::{Eligible, Within};
use crate::rules::{Action, Mode, RULES_ALONE, Ruling, Situation};
use crate::types::{Candidate, Confidence, Score, ToolId};

/// Longest answer, in characters beside its ids, that can only be one to the question that is open.
const BARE_CHARS: usize = 8;
/// Of a decision that no tool is called because no rule says so: right as far as rules go, and they were silent.
const SILENT: f32 = 0.5;

/// What the skeleton makes of a request.
pub(super) struct Ruled {
    /// `None`: the choice is dynamic, among what is left in the [`Work`].
    pub decision: Option<Box<Decision>>,
    /// The tools among which the choice that is compared and not served is made.
    pub shadow: Option<Open>,
}

/// What a shadowed choice may take, and the domain it is counted under.
pub(super) struct Open {
    pub eligible: Eligible,
    pub domain: String,
}

/// What following a rule leads to.
enum Followed {
    Answer(Box<Answer>, Option<ToolId>),
    Narrow(Within),
}

impl Router {
    /// Applies states, rules and modes to `work`.
    pub(super) fn apply_rules(&self, work: &mut Work<'_>) -> Ruled {
        let serving = Arc::clone(&work.serving);
        let (catalog, rules) = (&serving.catalog, &serving.beside);
        let sentences = &self.settings.handoff;
        let modes = if work.mode == RunMode::RulesOnly { &RULES_ALONE } else { &rules.modes };
        if !rules.is_on() && !modes.withhold() {
            return Ruled { decision: None, shadow: None };
        }
        let session = &work.request.session_state;
        let situation = Situation { query: &work.query, history: work.history, session };
        let states = rules.states(&situation);
        let mode_of = |position: usize| modes.of(catalog.tools[position].card.domain.as_deref());
        if let Some(open) = &states.open {
            work.eligible = work.eligible.only(|position| open.contains(catalog.tools[position].id()));
        }
        let dynamic = work.eligible.only(|position| match mode_of(position) {
            Mode::Dynamic | Mode::RulesFirst => true,
            Mode::Rules | Mode::Shadow => false,
        });
        let shadowed = work.eligible.only(|position| mode_of(position) != Mode::Rules);
        let resumed = self.resumed(work);
        // An id that answers our own question is no request for something else.
        let answers = resumed.is_some() && !work.query.slots.is_empty();
        let mut fired = rules.rulings(&situation, modes).filter_map(|ruling| {
            if answers && matches!(ruling.action, Action::Pin { .. } | Action::Narrow { .. }) {
                return None;
            }
            let followed = follow(&ruling, work, &dynamic)?;
            Some((ruling.rule.to_owned(), ruling.domain.map(str::to_owned), followed))
        });
        let fired = fired.next();
        work.states = states.names;
        let had_any = !work.eligible.is_empty();
        match fired {
            Some((rule, domain, Followed::Answer(answer, tool))) => {
                let shadow = (modes.of(domain.as_deref()) == Mode::Shadow)
                    .then(|| Open { eligible: shadowed, domain: domain.unwrap_or_else(|| NO_DOMAIN.into()) });
                work.rule = rule;
                Ruled { decision: Some(Box::new(by_rule(work, *answer, tool, sentences))), shadow }
            }
            Some((rule, _, Followed::Narrow(within))) => {
                work.rule = rule;
                work.within = Some(within);
                let shadow = open_beside(&dynamic, shadowed);
                work.eligible = dynamic;
                Ruled { decision: None, shadow }
            }
            None => {
                // Finishing what a rule began is the rule's choice as well: the dynamic one does not see the tool.
                if let Some((tool, answer)) = resumed
                    && catalog.position(&tool).is_some_and(|position| !dynamic.contains(position))
                {
                    return Ruled {
                        decision: Some(Box::new(by_rule(work, answer, Some(tool), sentences))),
                        shadow: None,
                    };
                }
                let shadow = open_beside(&dynamic, shadowed);
                work.eligible = dynamic;
                // Without rules nothing would be eligible here; with them it is they who say nothing.
                let silent = (had_any && work.eligible.is_empty()).then(|| Box::new(silent(work, sentences)));
                Ruled { decision: silent, shadow }
            }
        }
    }

    /// The refusal of a turn that answers an open question about a tool that is out of service by now. A turn that fills
    /// nothing of it is a request like any other.
    pub(super) fn refused_question(&self, work: &Work<'_>) -> Option<Decision> {
        let pending: Pending = self.pending_of(work)?.ok()?;
        let position = work.catalog().position(&pending.tool)?;
        let hold = work.held.get(position)?;
        let tool = &work.catalog().tools[position];
        let (tools, candidates) = ([tool], [candidate(tool.id())]);
        let request = request(work, &tools, &candidates);
        if local::resume(tool, &pending.arguments, &pending.missing, &request, true).filled == 0 {
            return None;
        }
        let chinese = work.query.language.prefers_chinese();
        let problem = brake::refusal(tool.id(), hold, self.brakes.now(), true, chinese);
        let mut decision = nothing_eligible(work);
        decision.outcome = Outcome::NoTool { reason: NoToolReason::Disabled };
        decision.trace.refused = Some(problem);
        Some(decision)
    }

    /// The open call with what this turn adds to it, if the turn can only be an answer to its question.
    fn resumed(&self, work: &Work<'_>) -> Option<(ToolId, Answer)> {
        let pending: Pending = self.pending_of(work)?.ok()?;
        let position = work.catalog().position(&pending.tool).filter(|position| work.eligible.contains(*position))?;
        let left = work.query.retrieval_text();
        let only_ids = left == work.query.text && work.query.slots.iter().any(|slot| slot.kind.is_opaque());
        if left.chars().count() > BARE_CHARS && !only_ids {
            return None;
        }
        let tool = &work.catalog().tools[position];
        let (tools, candidates) = ([tool], [candidate(tool.id())]);
        let request = request(work, &tools, &candidates);
        let resumed = local::resume(tool, &pending.arguments, &pending.missing, &request, true);
        if resumed.filled == 0 {
            return None;
        }
        let mut answer = Answer { decided_by: DecidedBy::Rule, ..Answer::local(resumed.verdict, Confidence::ONE) };
        answer.notes.push("the turn answers an open question".into());
        decide::settle(&mut answer, &request);
        Some((pending.tool, answer))
    }
}

fn by_rule(work: &Work<'_>, answer: Answer, tool: Option<ToolId>, sentences: &Sentences) -> Decision {
    let shown = Shown {
        strategy: "rule",
        candidates: tool.iter().map(candidate).collect(),
        tools: tool.into_iter().collect(),
        ..Shown::default()
    };
    let mut decision = decision(work, answer, Timings::new(), shown, sentences);
    decision.trace.cache = "bypass".into();
    decision
}

/// No rule says anything, and nobody else may choose.
fn silent(work: &Work<'_>, sentences: &Sentences) -> Decision {
    let verdict = Verdict::NoTool(match work.mode {
        RunMode::Normal | RunMode::LocalOnly => NoToolReason::NothingFits,
        // Nothing was looked at: what a caller says to its user should not be that nothing fits.
        RunMode::RulesOnly => NoToolReason::NotAllowedDegraded,
    });
    let mut answer = Answer { decided_by: DecidedBy::Rule, ..Answer::local(verdict, Confidence::new(SILENT)) };
    answer.notes.push("no rule fires, and only rules may choose here".into());
    by_rule(work, answer, None, sentences)
}

/// Label of what belongs to no domain.
const NO_DOMAIN: &str = "none";

/// `None` when the rule cannot be followed for this caller and conversation: the next one is tried.
fn follow(ruling: &Ruling<'_>, work: &Work<'_>, dynamic: &Eligible) -> Option<Followed> {
    let catalog = work.catalog();
    let settled = |verdict| {
        let answer = Answer { decided_by: DecidedBy::Rule, ..Answer::local(verdict, Confidence::ONE) };
        Some(Followed::Answer(Box::new(answer), None))
    };
    match &ruling.action {
        Action::Pin { tool, arguments, origins } => {
            let position = catalog.position(tool).filter(|position| work.eligible.contains(*position))?;
            let (tools, candidates) = ([&catalog.tools[position]], [candidate(tool)]);
            let request = request(work, &tools, &candidates);
            let mut answer = local::pin(tools[0], arguments, origins, &request)?;
            decide::settle(&mut answer, &request);
            Some(Followed::Answer(Box::new(answer), Some(tool.clone())))
        }
        Action::Narrow { tools, widen } => {
            let tools = dynamic.only(|position| tools.contains(catalog.tools[position].id()));
            (!tools.is_empty()).then_some(Followed::Narrow(Within { tools, widen: *widen }))
        }
        Action::Refuse => settled(Verdict::NoTool(NoToolReason::Refused)),
        Action::HandOver => settled(Verdict::Handoff(HandoffReason::Policy)),
    }
}

/// Tools that only a shadowed domain keeps from the choice: what would be chosen with them is worth knowing.
fn open_beside(dynamic: &Eligible, shadowed: Eligible) -> Option<Open> {
    (shadowed.len() > dynamic.len()).then(|| Open { eligible: shadowed, domain: NO_DOMAIN.into() })
}

/// A rule ranks nothing, so there is no score.
fn candidate(tool: &ToolId) -> Candidate {
    Candidate { tool: tool.clone(), score: Score::new(0.0), signals: BTreeMap::new() }
}
