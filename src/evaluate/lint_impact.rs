//! What findings of lint cost on a labelled set, and what a boundary between two cards would change.
//!
//! Owns: which wrong rankings are put down to which finding, the boundary that is tried, the bounds of both.
//! Does not know: the rules; how cards are ranked.
//!
//! A row is misrouted when the tool that the prefilter ranks first is not one of its right ones. It is put down to a
//! finding on a pair when one of the two was wanted and the other came first, and to a finding on one tool when that tool
//! was wanted or came first. One row may so count for several findings: the counts rank, they do not add up.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use super::rows::{self, Row};
use super::run::request;
use super::tools::Tools;
use super::{EvalError, Progress};
use crate::catalog::Catalog;
use crate::pipeline::{Linted, Reading, Router, StartError};
use crate::registry::Registry;
use crate::registry::lint::{Finding, Overlap};
use crate::retrieve;
use crate::tool::{Boundary, ToolCard};
use crate::types::{Caller, Deadline, ToolId};

/// Rules whose proposal is a boundary between two cards.
const BOUNDARY_RULES: [&str; 3] = ["missing-boundary", "one-sided-boundary", "duplicate-meaning"];
/// Most boundaries that are tried; each takes building the catalog and ranking every row again.
const MOST_TRIED: usize = 20;
/// Most queries shown with one finding or one trial.
const MOST_EXAMPLES: usize = 3;
/// Longest query that is shown, in characters.
const QUERY_CHARS: usize = 200;
/// Time for embedding one query.
const BUDGET: std::time::Duration = std::time::Duration::from_secs(30);

/// A query that went to the wrong tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misroute {
    pub id: String,
    pub query: String,
    /// The right tool that ranks highest.
    pub wanted: String,
    pub first: String,
}

/// What one boundary would change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trial {
    /// The card that gets it, and what it gets.
    pub tool: String,
    pub boundary: Boundary,
    /// Queries that come out right with it and did not before, and those the other way round.
    pub gained: usize,
    pub lost: usize,
    pub gained_examples: Vec<String>,
    pub lost_examples: Vec<String>,
}

/// One finding with its cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Impact {
    /// Index into the findings.
    pub finding: usize,
    pub misroutes: usize,
    /// At most three.
    pub examples: Vec<Misroute>,
    /// For findings whose proposal is a boundary.
    pub trial: Option<Trial>,
}

/// The costs of all findings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Impacts {
    /// Rows with a right tool, and how many of them are misrouted.
    pub rows: usize,
    pub misrouted: usize,
    /// Misrouted rows that no finding is about.
    pub unexplained: usize,
    /// Costliest first, equals by severity and then in the findings' order; those that cost nothing come last.
    pub findings: Vec<Impact>,
    /// Boundaries that were not tried because there are too many.
    pub untried: usize,
    /// Rows that could not be ranked.
    pub failed: usize,
}

/// Ranks every row of `queries` that has a right tool, puts what goes wrong down to `findings`, and tries the boundaries
/// they propose.
///
/// # Errors
/// [`EvalError`].
pub async fn lint_impact(
    router: &Arc<Router>,
    linted: &Linted,
    findings: &[Finding],
    queries: &Path,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Impacts, EvalError> {
    let rows: Vec<Row> = rows::read(queries)?.into_iter().filter(|row| !row.gold.is_empty()).collect();
    if rows.is_empty() {
        return Err(EvalError::NothingToScore { path: queries.to_owned(), left_out: BTreeMap::new() });
    }
    let tools = Tools::new(&linted.registry, &BTreeMap::new(), &rows);
    let mut asked = Vec::new();
    let mut failed = 0;
    for (at, row) in rows.iter().enumerate() {
        let deadline = Deadline::after(BUDGET);
        match router.read(&request(row, Vec::new()), &Caller::local(), deadline).await {
            Ok(reading) => asked.push(Asked { row: row.clone(), reading }),
            Err(_) => failed += 1,
        }
        progress(Progress::Scoring { done: at + 1, total: rows.len() });
    }
    let set = Arc::new(Set { router: Arc::clone(router), asked, tools });
    let before = ranked(&set, None).await?;
    let mut impacts = Impacts { failed, ..attribute(&before, findings) };
    let mut tried = 0;
    for impact in &mut impacts.findings {
        let Some(boundary) = boundary(&findings[impact.finding], &linted.registry, &linted.overlaps) else { continue };
        if tried == MOST_TRIED {
            impacts.untried += 1;
            continue;
        }
        tried += 1;
        let tool = findings[impact.finding].tool.clone();
        let registry = with_boundary(&linted.registry, &tool, &boundary);
        let catalog = Arc::new(router.catalog_of(registry).await.map_err(StartError::Build)?);
        let after = ranked(&set, Some(catalog)).await?;
        impact.trial = Some(compare(&before, &after, tool, boundary));
    }
    Ok(impacts)
}

struct Asked {
    row: Row,
    reading: Reading,
}

/// Rows as the router reads them, to be ranked in one catalog after another.
struct Set {
    router: Arc<Router>,
    asked: Vec<Asked>,
    tools: Tools,
}

/// Where one row went.
#[derive(Debug, Clone)]
struct Went {
    query: String,
    /// `None` when it went to a right tool.
    misroute: Option<Misroute>,
}

/// Where each row goes in the catalog, or in the one being served. It has to hold the same tools, so that a position means
/// the same one.
async fn ranked(set: &Arc<Set>, catalog: Option<Arc<Catalog>>) -> Result<Vec<Went>, EvalError> {
    let set = Arc::clone(set);
    let all = move || -> Result<Vec<Went>, EvalError> {
        let catalog = |asked: &Asked| Arc::clone(catalog.as_ref().unwrap_or(&asked.reading.catalog));
        set.asked.iter().map(|asked| set.went(asked, &catalog(asked))).collect()
    };
    tokio::task::spawn_blocking(all).await.map_err(StartError::Interrupted)?
}

impl Set {
    fn went(&self, Asked { row, reading }: &Asked, catalog: &Catalog) -> Result<Went, EvalError> {
        let settings = self.router.ranking();
        let (embedded, top) = (reading.embedded.as_ref(), usize::MAX);
        let ranked =
            retrieve::rank(catalog, &reading.query, embedded, &reading.eligible, &reading.context, settings, top)?;
        let label = |id: &ToolId| self.tools.label(id);
        let order: Vec<(String, &ToolId)> = ranked.candidates.iter().map(|c| (label(&c.tool), &c.tool)).collect();
        let query: String = row.query.chars().take(QUERY_CHARS).collect();
        let misroute = order.first().filter(|(first, _)| !row.accepts(first)).map(|(_, first)| {
            let wanted = order.iter().find(|(label, _)| row.accepts(label)).map(|(_, id)| id.as_str());
            let wanted = wanted.or(row.gold.first().map(String::as_str)).unwrap_or_default().to_owned();
            Misroute { id: row.id.clone(), query: query.clone(), wanted, first: first.to_string() }
        });
        Ok(Went { query, misroute })
    }
}

fn attribute(went: &[Went], findings: &[Finding]) -> Impacts {
    let misroutes: Vec<&Misroute> = went.iter().filter_map(|went| went.misroute.as_ref()).collect();
    let mut explained = BTreeSet::new();
    let mut impacts: Vec<Impact> = Vec::with_capacity(findings.len());
    for (finding, found) in findings.iter().enumerate() {
        let of_it: Vec<usize> = (0..misroutes.len()).filter(|nth| concerns(found, misroutes[*nth])).collect();
        explained.extend(of_it.iter().copied());
        impacts.push(Impact {
            finding,
            misroutes: of_it.len(),
            examples: of_it.iter().take(MOST_EXAMPLES).map(|nth| misroutes[*nth].clone()).collect(),
            trial: None,
        });
    }
    let order = |impact: &Impact| {
        let cost = std::cmp::Reverse(impact.misroutes);
        (cost, std::cmp::Reverse(findings[impact.finding].severity), impact.finding)
    };
    impacts.sort_by_key(order);
    Impacts {
        rows: went.len(),
        misrouted: misroutes.len(),
        unexplained: misroutes.len() - explained.len(),
        findings: impacts,
        ..Impacts::default()
    }
}

fn concerns(finding: &Finding, misroute: &Misroute) -> bool {
    let is = |tool: &str, other: &str| misroute.wanted == tool && misroute.first == other;
    match &finding.other {
        Some(other) => is(&finding.tool, other) || is(other, &finding.tool),
        None => misroute.wanted == finding.tool || misroute.first == finding.tool,
    }
}

/// The boundary that would send the reader of the finding's card to the other one, if that is what its rule proposes:
/// the case is the wording of the other card that comes closest, or what it does.
fn boundary(finding: &Finding, registry: &Registry, overlaps: &[Overlap]) -> Option<Boundary> {
    let other = finding.other.as_deref().filter(|_| BOUNDARY_RULES.contains(&finding.rule))?;
    let (card, other) = (registry.cards.get(finding.tool.as_str())?, registry.cards.get(other)?);
    let points = |boundary: &Boundary| boundary.use_tool.as_deref() == Some(other.id.as_str());
    if card.description.when_not_to_use.iter().any(points) {
        return None;
    }
    let phrase = overlaps.iter().find_map(|overlap| {
        let at = overlap.tools.iter().position(|id| *id == other.id)?;
        (overlap.tools[1 - at] == card.id).then(|| overlap.phrases[at].clone())
    });
    let what = Some(other.description.what.trim()).filter(|what| !what.is_empty()).map(str::to_owned);
    let case = phrase.or(what)?;
    Some(Boundary { case, use_tool: Some(other.id.to_string()) })
}

fn with_boundary(registry: &Registry, tool: &str, boundary: &Boundary) -> Registry {
    let mut registry = registry.clone();
    if let Some(card) = registry.cards.get_mut(tool) {
        let card: &mut ToolCard = Arc::make_mut(card);
        card.description.when_not_to_use.push(boundary.clone());
    }
    registry
}

fn compare(before: &[Went], after: &[Went], tool: String, boundary: Boundary) -> Trial {
    let changed = |was_right: bool| {
        let both = before.iter().zip(after);
        let rows = both.filter(move |(b, a)| b.misroute.is_none() == was_right && a.misroute.is_none() != was_right);
        rows.map(|(_, a)| a.query.clone()).collect::<Vec<_>>()
    };
    let (mut gained, mut lost) = (changed(false), changed(true));
    let counts = [gained.len(), lost.len()];
    gained.truncate(MOST_EXAMPLES);
    lost.truncate(MOST_EXAMPLES);
    Trial { tool, boundary, gained: counts[0], lost: counts[1], gained_examples: gained, lost_examples: lost }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::registry::lint::Severity;

    fn finding(rule: &'static str, tool: &str, other: Option<&str>, severity: Severity) -> Finding {
        Finding {
            rule,
            severity,
            tool: tool.into(),
            file: "r.yaml".into(),
            line: Some(3),
            reason: String::new(),
            proposal: String::new(),
            other: other.map(str::to_owned),
        }
    }

    fn went(wanted: &str, first: &str) -> Went {
        let query = format!("{wanted} 不是 {first}");
        let (wanted, first) = (wanted.to_owned(), first.to_owned());
        let misroute = (wanted != first).then(|| Misroute { id: "1".into(), query: query.clone(), wanted, first });
        Went { query, misroute }
    }

    #[test]
    fn a_misroute_counts_for_its_pair_and_for_either_tool() {
        let findings = [
            finding("few-wordings", "c", None, Severity::Error),
            finding("missing-boundary", "a", Some("b"), Severity::Warning),
            finding("missing-boundary", "a", Some("c"), Severity::Warning),
            finding("vague-description", "b", None, Severity::Error),
        ];
        let rows = [went("a", "b"), went("b", "a"), went("a", "a"), went("d", "b"), went("d", "e")];
        let impacts = attribute(&rows, &findings);
        let order: Vec<(usize, usize)> = impacts.findings.iter().map(|i| (i.finding, i.misroutes)).collect();
        assert_eq!(order, [(3, 3), (1, 2), (0, 0), (2, 0)]);
        assert_eq!((impacts.rows, impacts.misrouted, impacts.unexplained), (5, 4, 1));
        assert_eq!(impacts.findings[1].examples[1].query, "b 不是 a");
    }

    #[test]
    fn what_a_boundary_gains_and_loses_is_told_apart() {
        let before = [went("a", "b"), went("b", "b"), went("a", "a"), went("b", "a")];
        let after = [went("a", "a"), went("b", "a"), went("a", "a"), went("b", "a")];
        let trial = compare(&before, &after, "b".into(), Boundary::default());
        assert_eq!((trial.gained, trial.lost), (1, 1));
        assert_eq!((trial.gained_examples[0].as_str(), trial.lost_examples[0].as_str()), ("a 不是 a", "b 不是 a"));
    }

    #[test]
    fn a_boundary_is_proposed_where_there_is_none_yet() {
        let card = |name: &str, not: serde_json::Value| {
            json!({"name": name, "version": 1, "description": {"what": format!("查 {name}"), "when_to_use": [],
                "when_not_to_use": not, "returns": "x"}, "parameters": {"type": "object"}, "side_effect": "read",
                "idempotent": true, "timeout_ms": 9, "permissions": []})
        };
        let cards = [card("a", json!([{"case": "b", "use": "b"}])), card("b", json!([]))];
        let registry = crate::registry::merge(Registry::default(), crate::registry::from_values(&cards));
        let missing = |tool: &str, other: &str| {
            boundary(&finding("missing-boundary", tool, Some(other), Severity::Warning), &registry, &[])
        };
        assert_eq!(missing("a", "b"), None);
        let expected = Boundary { case: "查 a".into(), use_tool: Some("a".into()) };
        assert_eq!(missing("b", "a"), Some(expected.clone()));
        assert_eq!(with_boundary(&registry, "b", &expected).cards["b"].description.when_not_to_use, [expected]);
        let other_rule = finding("similar-name", "b", Some("a"), Severity::Warning);
        assert_eq!(boundary(&other_rule, &registry, &[]), None);
    }
}
