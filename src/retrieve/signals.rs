//! The single signals behind a ranking, each with one value per eligible tool.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::eligible::Eligible;
use crate::catalog::{Catalog, DenseRows};
use crate::index::IndexError;
use crate::text::{Query, terms};
use crate::types::{IndexKind, Signal, Turn, Vector};

/// One signal: a raw value per eligible tool, in catalog order.
#[derive(Debug, Clone, PartialEq)]
pub struct SignalValues {
    pub kind: Signal,
    pub values: Vec<f32>,
}

/// What earlier turns say about the next tool: tool name → strength in `(0, 1]`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Context {
    weights: BTreeMap<String, f32>,
}

/// How many turns, counted from the end, can still say something about the next tool.
const HISTORY_TURNS: usize = 8;

/// Tools used in the last turns, the latest counting most, and tools that require one of them: after a preview, its
/// second step is likely.
pub fn context(catalog: &Catalog, history: &[Turn]) -> Context {
    let mut weights: BTreeMap<String, f32> = BTreeMap::new();
    let mut strength = 1.0f32;
    for result in history.iter().rev().take(HISTORY_TURNS).filter_map(Turn::tool_result) {
        let Some(used) = result.get("tool").and_then(Value::as_str) else { continue };
        let is_used = |name: &str| name == used || name.rsplit_once('/').is_some_and(|(_, bare)| bare == used);
        for tool in &catalog.tools {
            let follows = tool.card.requires.iter().any(|required| is_used(required));
            if follows || tool.card.name == used || tool.id().as_str() == used {
                let weight = if follows { strength } else { strength / 2.0 };
                weights.entry(tool.id().to_string()).or_insert(weight);
            }
        }
        strength /= 2.0;
    }
    Context { weights }
}

/// How many rows a graph is asked for: enough that every tool worth a place on a shortlist is among their owners.
const GRAPH_ROWS: usize = 256;

/// Computes every signal that applies.
///
/// # Errors
/// [`IndexError`] when the vector does not belong to the index.
pub fn signals(
    catalog: &Catalog,
    query: &Query,
    vector: Option<(&str, &Vector)>,
    eligible: &Eligible,
    context: &Context,
) -> Result<Vec<SignalValues>, IndexError> {
    let mut signals = Vec::with_capacity(5);
    if let Some((encoder, vector)) = vector
        && let Some(rows) = catalog.dense.get(encoder)
    {
        let (centroid, best) = dense(rows, vector, eligible)?;
        signals.push(SignalValues { kind: Signal::DenseCentroid, values: centroid });
        signals.push(SignalValues { kind: Signal::DenseBest, values: best });
    }
    let words = catalog.lexical.scores(&terms(&query.retrieval_text()));
    signals.push(SignalValues { kind: Signal::Lexical, values: eligible.positions().map(|p| words[p]).collect() });
    // A name that is not open to the caller must leave no trace.
    let named: BTreeSet<usize> =
        catalog.names.named_in(&query.text).into_iter().filter(|p| eligible.contains(*p)).collect();
    if !named.is_empty() {
        let values = eligible.positions().map(|p| f32::from(u8::from(named.contains(&p)))).collect();
        signals.push(SignalValues { kind: Signal::Named, values });
    }
    if !context.weights.is_empty() {
        let weight = |p: usize| context.weights.get(catalog.tools[p].id().as_str()).copied().unwrap_or(0.0);
        signals.push(SignalValues { kind: Signal::History, values: eligible.positions().map(weight).collect() });
    }
    Ok(signals)
}

/// Similarity to the centroid and to the closest single text, per eligible tool.
fn dense(rows: &DenseRows, vector: &Vector, eligible: &Eligible) -> Result<(Vec<f32>, Vec<f32>), IndexError> {
    match rows.index.kind() {
        IndexKind::Exact => {
            let scores = rows.index.scores(vector)?;
            let centroid = eligible.positions().map(|p| scores[rows.centroid[p]]).collect();
            let best = eligible.positions().map(|p| maximum(&scores[rows.texts[p].clone()])).collect();
            Ok((centroid, best))
        }
        IndexKind::Hnsw => graph(rows, vector, eligible),
    }
}

/// With a graph only the nearest rows are known. Tools that own one get exact values for all their rows; every other
/// tool gets the lowest value found, since it is no nearer than that.
fn graph(rows: &DenseRows, vector: &Vector, eligible: &Eligible) -> Result<(Vec<f32>, Vec<f32>), IndexError> {
    let found = rows.index.search(vector, GRAPH_ROWS, &|row| eligible.contains(rows.owner[row]))?;
    let floor = found.iter().map(|(_, similarity)| similarity.get()).fold(1.0f32, f32::min);
    let owners: BTreeSet<usize> = found.iter().map(|(row, _)| rows.owner[*row]).collect();
    let of_row = |row: usize| crate::types::vector::dot(rows.index.row(row).as_slice(), vector.as_slice());
    let mut centroid = Vec::with_capacity(eligible.len());
    let mut best = Vec::with_capacity(eligible.len());
    for position in eligible.positions() {
        if owners.contains(&position) {
            let texts: Vec<f32> = rows.texts[position].clone().map(of_row).collect();
            centroid.push(of_row(rows.centroid[position]));
            best.push(maximum(&texts));
        } else {
            centroid.push(floor);
            best.push(floor);
        }
    }
    Ok((centroid, best))
}

fn maximum(values: &[f32]) -> f32 {
    values.iter().copied().fold(-1.0, f32::max)
}
