//! Who may be chosen at all: decided before any search, so that a forbidden tool never gets a score, a place in a
//! prompt or a line in an answer.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::catalog::{Catalog, Tool};
use crate::tool::ConfirmedBy;
use crate::types::{Caller, ToolId, Turn};

/// Restricts what may be chosen; empty lists do not restrict.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Narrowing {
    pub domains: Vec<String>,
    pub tags: Vec<String>,
    pub tools: Vec<String>,
}

/// A narrowing made ready to ask about many tools.
struct Admitted<'a> {
    domains: BTreeSet<&'a str>,
    tags: BTreeSet<&'a str>,
    tools: BTreeSet<&'a str>,
}

impl<'a> Admitted<'a> {
    fn by(narrowing: &'a Narrowing) -> Self {
        let set = |names: &'a [String]| names.iter().map(String::as_str).collect();
        Self { domains: set(&narrowing.domains), tags: set(&narrowing.tags), tools: set(&narrowing.tools) }
    }

    fn admits(&self, tool: &Tool) -> bool {
        let card = &tool.card;
        let domain =
            self.domains.is_empty() || card.domain.as_deref().is_some_and(|domain| self.domains.contains(domain));
        let tag = self.tags.is_empty() || card.tags.iter().any(|tag| self.tags.contains(tag.as_str()));
        let named = self.tools.contains(card.name.as_str()) || self.tools.contains(card.id.as_str());
        domain && tag && (self.tools.is_empty() || named)
    }
}

/// The tools of one catalog that are open to one request.
#[derive(Debug, Clone)]
pub struct Eligible {
    positions: Vec<usize>,
    open: Vec<bool>,
}

impl Eligible {
    /// Positions in the catalog, ascending.
    pub fn positions(&self) -> impl Iterator<Item = usize> + '_ {
        self.positions.iter().copied()
    }

    pub fn contains(&self, position: usize) -> bool {
        self.open.get(position).copied().unwrap_or(false)
    }

    pub fn len(&self) -> usize {
        self.positions.len()
    }

    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }
}

/// Tools for which the caller holds every scope, that the narrowing admits, and whose preview, where the card asks for
/// one, has been shown in this conversation.
pub fn eligible(catalog: &Catalog, caller: &Caller, narrowing: &Narrowing, history: &[Turn]) -> Eligible {
    let previewed = previewed_tools(history);
    let admitted = Admitted::by(narrowing);
    let open: Vec<bool> = catalog
        .tools
        .iter()
        .map(|tool| {
            tool.card.scopes.iter().all(|scope| caller.holds(scope))
                && admitted.admits(tool)
                && preview_shown(catalog, tool, &previewed)
        })
        .collect();
    let positions = open.iter().enumerate().filter(|(_, open)| **open).map(|(position, _)| position).collect();
    Eligible { positions, open }
}

/// A tool that lives on another tool's token cannot be called before that token exists.
fn preview_shown(catalog: &Catalog, tool: &Tool, previewed: &BTreeSet<String>) -> bool {
    let confirmation =
        tool.card.confirmation.as_ref().filter(|confirmation| confirmation.by == ConfirmedBy::PreviewTool);
    let Some(preview) = confirmation.and_then(|confirmation| confirmation.tool.as_deref()) else { return true };
    // The caller may report the preview by its own name, without the source in front.
    let own_name = catalog.tool(&ToolId::new(preview)).map(|preview| preview.card.name.as_str());
    previewed.contains(preview) || own_name.is_some_and(|name| previewed.contains(name))
}

/// Names of tools whose successful result stands in the history. Only turns of role `tool` count: an utterance can
/// imitate anything.
fn previewed_tools(history: &[Turn]) -> BTreeSet<String> {
    let succeeded = |result: &Value| result.get("ok").and_then(Value::as_bool).unwrap_or(true);
    let results = history.iter().filter_map(Turn::tool_result).filter(succeeded);
    results.filter_map(|result| result.get("tool").and_then(Value::as_str).map(str::to_owned)).collect()
}
