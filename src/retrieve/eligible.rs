//! Who may be chosen at all: decided before any search, so that a forbidden tool never gets a score, a place in a
//! prompt or a line in an answer.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::catalog::{Catalog, Tool};
use crate::tool::ConfirmedBy;
use crate::types::{Caller, Problem, Scope, ToolId, Turn};

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

    /// What of the narrowing leaves `tool` out.
    fn refuses<'t>(&self, tool: &'t Tool) -> impl Iterator<Item = Obstacle<'t>> + use<'t> {
        let card = &tool.card;
        let domain =
            self.domains.is_empty() || card.domain.as_deref().is_some_and(|domain| self.domains.contains(domain));
        let tag = self.tags.is_empty() || card.tags.iter().any(|tag| self.tags.contains(tag.as_str()));
        let named = self.tools.contains(card.name.as_str()) || self.tools.contains(card.id.as_str());
        let only = self.tools.is_empty() || named;
        let outside = (!domain).then_some(Obstacle::Domain(card.domain.as_deref()));
        outside
            .into_iter()
            .chain((!tag).then_some(Obstacle::Tags(&card.tags)))
            .chain((!only).then_some(Obstacle::NotNamed))
    }
}

/// Why a tool is not open to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle<'a> {
    /// The tool is open to these tenants, and the caller's is not among them.
    Tenant(&'a [String]),
    /// The caller lacks this scope.
    Scope(&'a Scope),
    /// The narrowing names domains, and the tool's is not among them.
    Domain(Option<&'a str>),
    /// The narrowing names tags, and the tool has none of them.
    Tags(&'a [String]),
    /// The narrowing names tools, and this is not one of them.
    NotNamed,
    /// The tool lives on the result of this preview, which the conversation does not hold.
    Preview(&'a str),
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

    /// Those among them that `keep` admits.
    #[must_use]
    pub fn only(&self, keep: impl Fn(usize) -> bool) -> Self {
        let positions: Vec<usize> = self.positions().filter(|position| keep(*position)).collect();
        let mut open = vec![false; self.open.len()];
        for position in &positions {
            open[*position] = true;
        }
        Self { positions, open }
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

/// Tools of the caller's tenant or of none, for which the caller holds every scope, that the narrowing admits, and whose preview, where the card asks for
/// one, has been shown in this conversation.
pub fn eligible(catalog: &Catalog, caller: &Caller, narrowing: &Narrowing, history: &[Turn]) -> Eligible {
    let previewed = succeeded(history);
    let admitted = Admitted::by(narrowing);
    let open: Vec<bool> = catalog
        .tools
        .iter()
        .map(|tool| in_the_way(catalog, tool, caller, &admitted, &previewed).next().is_none())
        .collect();
    let positions = open.iter().enumerate().filter(|(_, open)| **open).map(|(position, _)| position).collect();
    Eligible { positions, open }
}

/// Everything that keeps `tool` from being open; nothing for a tool in [`eligible`].
pub fn obstacles<'t>(
    catalog: &Catalog,
    tool: &'t Tool,
    caller: &Caller,
    narrowing: &Narrowing,
    history: &[Turn],
) -> Vec<Obstacle<'t>> {
    in_the_way(catalog, tool, caller, &Admitted::by(narrowing), &succeeded(history)).collect()
}

fn in_the_way<'t>(
    catalog: &Catalog,
    tool: &'t Tool,
    caller: &Caller,
    admitted: &Admitted<'_>,
    previewed: &BTreeSet<String>,
) -> impl Iterator<Item = Obstacle<'t>> {
    let tenants = &tool.card.tenants;
    let tenant = (!caller.belongs_to(tenants)).then_some(Obstacle::Tenant(tenants));
    let scopes = tool.card.scopes.iter().filter(|scope| !caller.holds(scope)).map(Obstacle::Scope);
    tenant.into_iter().chain(scopes).chain(admitted.refuses(tool)).chain(preview_missing(catalog, tool, previewed))
}

/// A tool that lives on another tool's token cannot be called before that token exists.
fn preview_missing<'t>(catalog: &Catalog, tool: &'t Tool, previewed: &BTreeSet<String>) -> Option<Obstacle<'t>> {
    let confirmation =
        tool.card.confirmation.as_ref().filter(|confirmation| confirmation.by == ConfirmedBy::PreviewTool);
    let preview = confirmation.and_then(|confirmation| confirmation.tool.as_deref())?;
    // The caller may report the preview by its own name, without the source in front.
    let own_name = catalog.tool(&ToolId::new(preview)).map(|preview| preview.card.name.as_str());
    let shown = previewed.contains(preview) || own_name.is_some_and(|name| previewed.contains(name));
    (!shown).then_some(Obstacle::Preview(preview))
}

/// Names of tools whose successful result stands in the history. Only turns of role `tool` count: an utterance can
/// imitate anything.
pub fn succeeded(history: &[Turn]) -> BTreeSet<String> {
    let succeeded = |result: &Value| Problem::reported(result).is_none();
    let results = history.iter().filter_map(Turn::tool_result).filter(succeeded);
    results.filter_map(|result| result.get("tool").and_then(Value::as_str).map(str::to_owned)).collect()
}
