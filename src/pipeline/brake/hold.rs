//! What the brake keeps from one request or one call, and the words of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::super::Router;
use super::Brake;
use super::state::State;
use crate::catalog::Catalog;
use crate::registry::Registry;
use crate::retrieve::{self, Eligible};
use crate::tool::{ConfirmedBy, ToolCard};
use crate::types::{Problem, ProblemCode, ToolId, Turn, UnixMs};

/// Why a tool rests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::pipeline) struct Hold {
    pub brake: Arc<Brake>,
    /// The disabled tool without which this one cannot be carried out; `None` when it is disabled itself.
    pub needs: Option<ToolId>,
}

/// The tools of one request that rest: those that would be open to it otherwise.
#[derive(Debug, Clone, Default)]
pub(in crate::pipeline) struct Held(BTreeMap<usize, Hold>);

impl Held {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// By position in the catalog.
    pub fn get(&self, position: usize) -> Option<&Hold> {
        self.0.get(&position)
    }
}

impl Router {
    /// Leaves out tools that are disabled, and those that cannot be carried out without one of them.
    pub(in crate::pipeline) fn in_service(
        &self,
        catalog: &Catalog,
        eligible: Eligible,
        history: &[Turn],
    ) -> (Eligible, Held) {
        let state = self.brakes.load();
        if state.is_empty() {
            return (eligible, Held::default());
        }
        let mut held = holds(&state, self.brakes.now(), catalog, history);
        held.retain(|position, _| eligible.contains(*position));
        let open = eligible.only(|position| !held.contains_key(&position));
        (open, Held(held))
    }

    /// Why a call of this tool may not begin now. What comes before it in a conversation is not known here, so only the
    /// preview that its token is from counts as needed.
    pub(in crate::pipeline) fn hold(&self, card: &ToolCard, registry: &Registry) -> Option<Hold> {
        let state = self.brakes.load();
        if state.is_empty() {
            return None;
        }
        let now = self.brakes.now();
        let direct = state.of(card, now).map(|brake| Hold { brake: Arc::clone(brake), needs: None });
        direct.or_else(|| {
            let name = preview(card)?;
            let by_id = registry.cards.get(name);
            let needed = by_id.or_else(|| registry.cards.get(format!("{}/{name}", card.source).as_str()))?;
            let brake = state.of(needed, now)?;
            Some(Hold { brake: Arc::clone(brake), needs: Some(needed.id.clone()) })
        })
    }

    /// Whether a problem may point its reader to this tool.
    pub(in crate::pipeline) fn is_in_service(&self, card: &ToolCard) -> bool {
        self.brakes.load().of(card, self.brakes.now()).is_none()
    }

    /// The refusal of a call of `tool`. `tell`: its reader may know why.
    pub(in crate::pipeline) fn refusal(&self, tool: &ToolId, hold: &Hold, tell: bool, chinese: bool) -> Problem {
        refusal(tool, hold, self.brakes.now(), tell, chinese)
    }
}

/// Every tool of the catalog that rests, with the reason.
fn holds(state: &State, now: UnixMs, catalog: &Catalog, history: &[Turn]) -> BTreeMap<usize, Hold> {
    let tools = catalog.tools.iter().enumerate();
    let direct = |(position, tool): (usize, &crate::catalog::Tool)| {
        state.of(&tool.card, now).map(|brake| (position, Hold { brake: Arc::clone(brake), needs: None }))
    };
    let mut held: BTreeMap<usize, Hold> = tools.filter_map(direct).collect();
    if held.is_empty() {
        return held;
    }
    let needs = needs(catalog, history);
    loop {
        // Each round adds one tool at least, so there are no more rounds than tools.
        let more: Vec<(usize, Hold)> = needs
            .iter()
            .filter(|(position, _)| !held.contains_key(position))
            .filter_map(|(position, needed)| {
                let first = needed.iter().find(|needed| held.contains_key(needed))?;
                let needs = Some(catalog.tools[*first].id().clone());
                Some((*position, Hold { brake: Arc::clone(&held[first].brake), needs }))
            })
            .collect();
        if more.is_empty() {
            return held;
        }
        held.extend(more);
    }
}

/// The tools each tool cannot be carried out without: the preview its token is from, and what its card requires unless
/// the conversation holds a result of it.
fn needs(catalog: &Catalog, history: &[Turn]) -> Vec<(usize, Vec<usize>)> {
    let results = retrieve::succeeded(history);
    let has_result = |position: &usize| {
        let card = &catalog.tools[*position].card;
        results.contains(card.id.as_str()) || results.contains(&card.name)
    };
    let named = |card: &ToolCard, name: &str| {
        let by_id = catalog.position(&ToolId::new(name));
        by_id.or_else(|| catalog.position(&ToolId::new(format!("{}/{name}", card.source))))
    };
    let of = |card: &ToolCard| -> Vec<usize> {
        let required = card.requires.iter().filter_map(|name| named(card, name)).filter(|needed| !has_result(needed));
        let preview = preview(card).and_then(|name| named(card, name));
        required.chain(preview).collect::<BTreeSet<_>>().into_iter().collect()
    };
    let tools = catalog.tools.iter().enumerate();
    let with_needs = tools.filter(|(_, tool)| !tool.card.requires.is_empty() || tool.card.confirmation.is_some());
    with_needs.map(|(position, tool)| (position, of(&tool.card))).filter(|(_, needed)| !needed.is_empty()).collect()
}

fn preview(card: &ToolCard) -> Option<&str> {
    let confirmation = card.confirmation.as_ref().filter(|confirmation| confirmation.by == ConfirmedBy::PreviewTool)?;
    confirmation.tool.as_deref()
}

/// See [`Router::refusal`].
pub(in crate::pipeline) fn refusal(tool: &ToolId, hold: &Hold, now: UnixMs, tell: bool, chinese: bool) -> Problem {
    let why = if tell { format!(": {}", hold.brake.reason) } else { String::new() };
    let message = match hold.needs.as_ref().filter(|_| tell) {
        None => format!("`{tool}` is disabled{why}"),
        Some(needed) => format!("`{tool}` needs `{needed}`, which is disabled{why}"),
    };
    let suggestion = if chinese {
        "请告知用户该操作暂时无法办理，不要换一种方式去做同样的事"
    } else {
        "tell the user that this cannot be done at the moment; do not try another way to the same effect"
    };
    let left = hold.brake.until.map(|until| u64::try_from(until.0.saturating_sub(now.0)).unwrap_or_default());
    Problem {
        retryable: left.is_some(),
        retry_after_ms: left,
        suggestion: Some(suggestion.to_owned()),
        ..Problem::refused("disabled", ProblemCode::Disabled, message)
    }
}
