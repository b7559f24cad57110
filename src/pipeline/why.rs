//! Why one tool was chosen for an utterance, or at which stage it dropped out and by how much.
//!
//! Owns: running the stages once more with everything they leave behind, and naming the stage.
//! Does not know: how the answer is printed.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::make::request;
use super::route::Work;
use super::{RouteError, RouteRequest, Router};
use crate::catalog::Catalog;
use crate::decide::{Request, local};
use crate::decision::{DecidedBy, Decision, Outcome};
use crate::retrieve::{self, Obstacle, Part, Scored};
use crate::types::{Caller, Confidence, Deadline, FieldProblem, Score, ToolId};

/// Most names a message about an unknown tool offers.
const NEAREST: usize = 3;
/// Longer names are no misspelt ones, and comparing them costs.
const MAX_NAME_CHARS: usize = 128;

#[derive(Debug, Clone, thiserror::Error)]
pub enum WhyError {
    #[error("there is no tool `{name}`")]
    UnknownTool {
        name: String,
        /// The names most like it, best first.
        nearest: Vec<String>,
    },
    #[error(transparent)]
    Route(#[from] RouteError),
}

/// Where a tool dropped out, in the order of the stages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dropped {
    /// Not open to this caller under these conditions.
    Eligibility,
    /// A rule decided for something else.
    Rule,
    /// Ranked behind the longest shortlist there can be.
    Rank,
    /// Ranked well enough for a long shortlist, but this one was cut before it.
    Order,
    /// On the shortlist, and the decider took something else.
    Decider,
    /// The right tool, but its arguments are missing or do not fit.
    Arguments,
}

impl Dropped {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Eligibility => "eligibility",
            Self::Rule => "rule",
            Self::Rank => "rank",
            Self::Order => "order",
            Self::Decider => "decider",
            Self::Arguments => "arguments",
        }
    }
}

/// The whole explanation. What a stage left behind is `None` where the tool never came to it.
#[derive(Debug, Clone)]
pub struct Why {
    pub tool: ToolId,
    /// `None`: the tool was chosen.
    pub dropped: Option<Dropped>,
    /// Everything that keeps the tool from being open; empty when it is.
    pub obstacles: Vec<Barrier>,
    pub rank: Option<Ranked>,
    pub decider: Option<Decided>,
    pub arguments: Option<Arguments>,
}

/// An obstacle in words a reader can act on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Barrier {
    /// `tenant`, `scope`, `domain`, `tag`, `only`, `preview` or `disabled`.
    pub kind: &'static str,
    /// The tenants the tool is for, the scope that is missing, the domain or tags the tool has, the preview that has not
    /// run, why it is disabled.
    pub value: String,
}

/// The tool in the ranking of the eligible tools.
#[derive(Debug, Clone)]
pub struct Ranked {
    pub own: Place,
    pub first: Place,
    /// The last tool on the shortlist.
    pub last: Place,
    pub eligible: usize,
    /// Length of the shortlist.
    pub shortlist: usize,
    /// Longest shortlist the settings allow for so many tools.
    pub longest: usize,
    /// Fused score between the tool and the last one on the shortlist; 0 when it is on it.
    pub missed_by: f32,
}

/// One tool's place, counted from 1, and the parts of its fused score.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    pub tool: ToolId,
    pub place: usize,
    pub score: Score,
    pub parts: Vec<Part>,
}

/// What the decider made of the shortlist.
#[derive(Debug, Clone)]
pub struct Decided {
    pub by: DecidedBy,
    /// `call`, `clarify`, `no_tool` or `handoff`.
    pub outcome: &'static str,
    /// The tool called or asked about.
    pub tool: Option<ToolId>,
    /// Reason of an outcome without a tool.
    pub reason: Option<&'static str>,
    pub confidence: Confidence,
    /// What the local decider weighed: this tool and the one it preferred. `None` for an LLM's choice.
    pub own: Option<local::Weight>,
    pub chosen: Option<local::Weight>,
}

/// What the tool could be called with.
#[derive(Debug, Clone, PartialEq)]
pub struct Arguments {
    pub known: Map<String, Value>,
    /// Required arguments nobody gave, in schema order.
    pub missing: Vec<String>,
    /// What does not fit the schema, missing ones included.
    pub invalid: Vec<FieldProblem>,
}

impl Router {
    /// Routes `request` and explains what became of `tool`, given by id or name. The cache has no part in it.
    ///
    /// # Errors
    /// [`WhyError`] when no such tool is served, or as [`Router::route`].
    pub async fn why(
        self: &Arc<Self>,
        tool: &str,
        request: RouteRequest,
        caller: &Caller,
        deadline: Deadline,
    ) -> Result<Why, WhyError> {
        let request = RouteRequest { no_cache: true, pending: None, ..request };
        let serving = self.catalogs.load();
        let catalog = Arc::clone(&serving.catalog);
        let id = find(&catalog, tool)?;
        let mut work = self.begin(serving, &request, caller, deadline)?;
        let position = catalog.position(&id).filter(|position| work.eligible.contains(*position));
        let Some(position) = position else {
            let mut obstacles = barriers(&catalog, &id, caller, &work);
            obstacles.extend(self.brake_of(&catalog, &id, &work));
            let dropped = Some(Dropped::Eligibility);
            return Ok(Why { tool: id, dropped, obstacles, rank: None, decider: None, arguments: None });
        };
        let scored = self.scored(&mut work).await?;
        let decision = self.route(request.clone(), caller, deadline).await?;
        let rank = self.ranked(&work, &scored, position, &decision);
        let on_list = decision.candidates.iter().any(|candidate| candidate.tool == id);
        let shortlisted = if on_list { Some(self.weighed(&work, &decision, &id)) } else { None };
        let (decider, arguments) = shortlisted.unzip();
        let dropped = dropped(&id, &decision, &rank, on_list);
        Ok(Why { tool: id, dropped, obstacles: Vec::new(), rank: Some(rank), decider, arguments })
    }

    /// What an operator has put in the way.
    fn brake_of(&self, catalog: &Catalog, id: &ToolId, work: &Work<'_>) -> Option<Barrier> {
        let position = catalog.position(id)?;
        let of_card = || self.hold(&catalog.tools[position].card, &catalog.registry);
        let hold = work.held.get(position).cloned().or_else(of_card)?;
        let reason = hold.brake.reason.clone();
        let value = hold.needs.map_or_else(|| reason.clone(), |needed| format!("needs {needed}: {reason}"));
        Some(Barrier { kind: "disabled", value })
    }

    /// The ranking of every eligible tool with its parts.
    async fn scored(&self, work: &mut Work<'_>) -> Result<Scored, RouteError> {
        let embedded = self.embed(work).await?;
        let context = retrieve::context(work.catalog(), &work.query, work.history, &work.eligible);
        let settings = &self.settings.retrieve;
        let scored =
            retrieve::score(work.catalog(), &work.query, embedded.as_ref(), &work.eligible, &context, settings);
        scored.map_err(|error| RouteError::Internal(error.to_string()))
    }

    fn ranked(&self, work: &Work<'_>, scored: &Scored, position: usize, decision: &Decision) -> Ranked {
        let positions: Vec<usize> = work.eligible.positions().collect();
        let at_place = |place: usize| {
            let nth = scored.order[place];
            Place {
                tool: work.catalog().tools[positions[nth]].id().clone(),
                place: place + 1,
                score: scored.fused[nth],
                parts: retrieve::explain(&scored.signals, &scored.weights, nth),
            }
        };
        let own = scored.order.iter().position(|nth| positions[*nth] == position).unwrap_or_default();
        // A decision that never ranked, such as a rule's, has no shortlist.
        let shortlist = decision.candidates.len().clamp(1, scored.order.len());
        let settings = &self.settings.retrieve;
        let longest =
            if positions.len() <= settings.hand_on_all_up_to { positions.len() } else { settings.shortlist_max };
        let (own, last) = (at_place(own), at_place(shortlist - 1));
        let missed_by = if own.place > shortlist { last.score.get() - own.score.get() } else { 0.0 };
        Ranked { first: at_place(0), own, last, eligible: positions.len(), shortlist, longest, missed_by }
    }

    /// What the decider saw of the tool and what it took instead.
    fn weighed(&self, work: &Work<'_>, decision: &Decision, id: &ToolId) -> (Decided, Arguments) {
        let tools = retrieve::stable_order(work.catalog(), &decision.candidates);
        let request = Request { max_calls: 1, ..request(work, &tools, &decision.candidates) };
        let weights = if decision.decided_by == DecidedBy::Local { local::weights(&request) } else { Vec::new() };
        let of = |tool: &ToolId| weights.iter().find(|weight| weight.tool == *tool).cloned();
        let chosen = decision.outcome.tool().cloned();
        let decided = Decided {
            by: decision.decided_by,
            outcome: decision.outcome.kind(),
            reason: match &decision.outcome {
                Outcome::NoTool { reason } => Some(reason.as_str()),
                Outcome::Handoff { reason, .. } => Some(reason.as_str()),
                Outcome::Call { .. } | Outcome::Clarify(_) => None,
            },
            confidence: decision.confidence,
            own: of(id),
            chosen: chosen.as_ref().and_then(of),
            tool: chosen,
        };
        let (known, missing, invalid) =
            request.tool(id).map(|tool| local::read_arguments(tool, &request)).unwrap_or_default();
        (decided, Arguments { known, missing, invalid })
    }
}

fn dropped(id: &ToolId, decision: &Decision, rank: &Ranked, on_list: bool) -> Option<Dropped> {
    let own = match &decision.outcome {
        Outcome::Call { calls } if calls.iter().any(|call| call.tool == *id) => return None,
        Outcome::Clarify(question) => question.tool.as_ref() == Some(id) && !question.missing.is_empty(),
        Outcome::Call { .. } | Outcome::NoTool { .. } | Outcome::Handoff { .. } => false,
    };
    Some(if decision.decided_by == DecidedBy::Rule {
        Dropped::Rule
    } else if own {
        Dropped::Arguments
    } else if on_list {
        Dropped::Decider
    } else if rank.own.place > rank.longest {
        Dropped::Rank
    } else {
        Dropped::Order
    })
}

fn barriers(catalog: &Catalog, id: &ToolId, caller: &Caller, work: &Work<'_>) -> Vec<Barrier> {
    let Some(tool) = catalog.tool(id) else { return Vec::new() };
    let barrier = |obstacle: Obstacle<'_>| {
        let (kind, value) = match obstacle {
            Obstacle::Tenant(tenants) => ("tenant", tenants.join(", ")),
            Obstacle::Scope(scope) => ("scope", scope.0.clone()),
            Obstacle::Domain(domain) => ("domain", domain.unwrap_or_default().to_owned()),
            Obstacle::Tags(tags) => ("tag", tags.join(", ")),
            Obstacle::NotNamed => ("only", String::new()),
            Obstacle::Preview(preview) => ("preview", preview.to_owned()),
        };
        Barrier { kind, value }
    };
    let found = retrieve::obstacles(catalog, tool, caller, &work.request.narrowing, work.history);
    found.into_iter().map(barrier).collect()
}

/// The tool of that id, or the only one of that name.
fn find(catalog: &Catalog, name: &str) -> Result<ToolId, WhyError> {
    let id = ToolId::new(name);
    if catalog.position(&id).is_some() {
        return Ok(id);
    }
    let mut namesakes = catalog.tools.iter().filter(|tool| tool.card.name == name).map(|tool| tool.id().clone());
    match (namesakes.next(), namesakes.next()) {
        (Some(only), None) => Ok(only),
        (first, second) => {
            let all: Vec<String> = first.into_iter().chain(second).chain(namesakes).map(|id| id.to_string()).collect();
            let nearest = if all.is_empty() { nearest(catalog, name) } else { all };
            Err(WhyError::UnknownTool { name: name.to_owned(), nearest })
        }
    }
}

/// Names by edit distance, then alphabetically.
fn nearest(catalog: &Catalog, name: &str) -> Vec<String> {
    if name.chars().count() > MAX_NAME_CHARS {
        return Vec::new();
    }
    let wanted = name.to_lowercase();
    let known = catalog.tools.iter().map(|tool| tool.id().as_str()).filter(|id| id.chars().count() <= MAX_NAME_CHARS);
    let mut by_distance: Vec<(usize, &str)> =
        known.map(|id| (strsim::damerau_levenshtein(&wanted, &id.to_lowercase()), id)).collect();
    by_distance.sort_unstable();
    by_distance.into_iter().take(NEAREST).map(|(_, id)| id.to_owned()).collect()
}
