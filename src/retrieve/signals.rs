//! The single signals behind a ranking, each with one value per eligible tool.

use std::collections::BTreeSet;

use super::Embedded;
use super::eligible::Eligible;
use super::history::Context;
use crate::catalog::{Catalog, DenseRows};
use crate::index::IndexError;
use crate::text::{Query, terms};
use crate::types::vector::dot;
use crate::types::{IndexKind, Signal, Vector};

/// One signal: a raw value per eligible tool, in catalog order.
#[derive(Debug, Clone, PartialEq)]
pub struct SignalValues {
    pub kind: Signal,
    pub values: Vec<f32>,
}

/// How many rows a graph is asked for: enough that every tool worth a place on a shortlist is among their owners.
const GRAPH_ROWS: usize = 256;

/// Borders are weighed where at least one tool in so many has one.
const MIN_BORDERED: usize = 4;

/// Whether borders are weighed in a ranking. Their signal is standardised over all tools: where few have a border, one
/// that is no match would stand far above all others. Which tools belong beside each other does not depend on it.
pub(super) fn borders_weigh(rows: &DenseRows, eligible: &Eligible) -> bool {
    let bordered = eligible.positions().filter(|position| !rows.borders[*position].is_empty()).count();
    bordered * MIN_BORDERED >= eligible.len()
}

/// What one text says about each tool: meaning, then words.
///
/// # Errors
/// [`IndexError`] when the vector does not belong to the index.
pub(super) fn of_text(
    catalog: &Catalog,
    text: &str,
    vector: Option<(&str, &Vector)>,
    eligible: &Eligible,
) -> Result<Vec<SignalValues>, IndexError> {
    let mut signals = Vec::with_capacity(8);
    if let Some((encoder, vector)) = vector
        && let Some(rows) = catalog.dense.get(encoder)
    {
        signals.extend(dense(rows, vector, eligible)?);
    }
    let words = terms(text);
    let mut add = |kind, scores: Vec<f32>| {
        signals.push(SignalValues { kind, values: eligible.positions().map(|position| scores[position]).collect() });
    };
    add(Signal::Lexical, catalog.lexical.scores(&words));
    add(Signal::NameCover, catalog.name_words.shares(&words));
    add(Signal::PurposeCover, catalog.purpose_words.shares(&words));
    Ok(signals)
}

/// What the utterance as a whole says besides its words: names of tools, and what came before it.
pub(super) fn beside(catalog: &Catalog, query: &Query, eligible: &Eligible, context: &Context) -> Vec<SignalValues> {
    let mut signals = Vec::new();
    // A name that is not open to the caller must leave no trace.
    let named: BTreeSet<usize> =
        catalog.names.named_in(&query.text).into_iter().filter(|p| eligible.contains(*p)).collect();
    if !named.is_empty() {
        let values = eligible.positions().map(|p| f32::from(u8::from(named.contains(&p)))).collect();
        signals.push(SignalValues { kind: Signal::Named, values });
    }
    if !context.is_empty() {
        let weight = |p: usize| context.weight(catalog.tools[p].id());
        signals.push(SignalValues { kind: Signal::History, values: eligible.positions().map(weight).collect() });
    }
    signals
}

/// Similarity to the centroid, to the closest single text and to the closest border text of each eligible tool.
fn dense(rows: &DenseRows, vector: &Vector, eligible: &Eligible) -> Result<Vec<SignalValues>, IndexError> {
    let along = rows.centre.query_along(vector);
    let (similarities, known) = match rows.index.kind() {
        IndexKind::Exact => (rows.index.scores(vector)?, None),
        IndexKind::Hnsw => {
            let (dots, owners) = near(rows, vector, eligible)?;
            (dots, Some(owners))
        }
    };
    let similarity = |row: usize| rows.centre.similarity(row, similarities[row], along);
    let is_known = |position: usize| known.as_ref().is_none_or(|owners| owners.contains(&position));
    let best = |span: std::ops::Range<usize>| span.map(similarity).fold(f32::MIN, f32::max);
    let positions: Vec<usize> = eligible.positions().collect();
    let signal = |kind, of: &dyn Fn(usize) -> f32| {
        let mut values: Vec<f32> =
            positions.iter().map(|position| if is_known(*position) { of(*position) } else { f32::MIN }).collect();
        // A tool without a value (not found near, or without a border) is no nearer than the farthest that has one.
        let floor = values.iter().copied().filter(|value| *value > f32::MIN).fold(f32::MAX, f32::min);
        let floor = if floor == f32::MAX { 0.0 } else { floor };
        values.iter_mut().filter(|value| **value == f32::MIN).for_each(|value| *value = floor);
        SignalValues { kind, values }
    };
    Ok(vec![
        signal(Signal::DenseCentroid, &|position| similarity(rows.centroid[position])),
        signal(Signal::DenseBest, &|position| best(rows.texts[position].clone())),
        signal(Signal::Boundary, &|position| best(rows.borders[position].clone())),
    ])
}

/// With a graph only the nearest rows are known: the tools that own one, and exact dot products for all their rows.
fn near(rows: &DenseRows, vector: &Vector, eligible: &Eligible) -> Result<(Vec<f32>, BTreeSet<usize>), IndexError> {
    let found = rows.index.search(vector, GRAPH_ROWS, &|row| eligible.contains(rows.owner[row]))?;
    let owners: BTreeSet<usize> = found.iter().map(|(row, _)| rows.owner[*row]).collect();
    let mut dots = vec![0.0; rows.owner.len()];
    for owner in &owners {
        let own = rows.texts[*owner].clone().chain(rows.borders[*owner].clone()).chain([rows.centroid[*owner]]);
        for row in own {
            dots[row] = dot(rows.index.row(row).as_slice(), vector.as_slice());
        }
    }
    Ok((dots, owners))
}

/// Tools at the head of a ranking that are compared with each other.
const COMPARED: usize = 30;
/// From this cosine of their centroids on, seen from the middle of the catalog, two cards say nearly the same.
const NEARLY_SAME: f32 = 0.85;

/// Nearly equal cards share one good place instead of filling the shortlist: each counts those before it.
///
/// Source: maximal marginal relevance, Carbonell and Goldstein, SIGIR 1998, with a count instead of a similarity.
pub(super) fn crowding(
    catalog: &Catalog,
    embedded: &Embedded,
    positions: &[usize],
    scores: &[f32],
    weight: f32,
) -> Option<SignalValues> {
    let rows = catalog.dense.get(&embedded.encoder)?;
    let values = crowd(scores, weight, |a, b| rows_nearly_same(rows, positions[a], positions[b]));
    values.iter().any(|value| *value > 0.0).then_some(SignalValues { kind: Signal::Crowding, values })
}

/// How many better tools at the head of the ranking by `scores` say nearly the same as each one. `weight` (0 or less)
/// is what each of them costs.
pub fn crowd(scores: &[f32], weight: f32, nearly_same: impl Fn(usize, usize) -> bool) -> Vec<f32> {
    let mut head: Vec<usize> = (0..scores.len()).collect();
    let order = |a: &usize, b: &usize| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b));
    head.sort_by(order);
    head.truncate(COMPARED);
    let mut values = vec![0.0f32; scores.len()];
    // The best of the rest, with what it has lost so far.
    while let Some(next) = (0..head.len()).max_by(|a, b| {
        let score = |at: usize| scores[head[at]] + weight * values[head[at]];
        score(*a).total_cmp(&score(*b)).then(head[*b].cmp(&head[*a]))
    }) {
        let taken = head.remove(next);
        for rest in &head {
            if nearly_same(taken, *rest) {
                values[*rest] += 1.0;
            }
        }
    }
    values
}

/// Whether the cards at two positions of the catalog say nearly the same to this encoder.
pub fn nearly_same(catalog: &Catalog, encoder: &str, a: usize, b: usize) -> bool {
    catalog.dense.get(encoder).is_some_and(|rows| rows_nearly_same(rows, a, b))
}

fn rows_nearly_same(rows: &DenseRows, a: usize, b: usize) -> bool {
    let (a, b) = (rows.centroid[a], rows.centroid[b]);
    let product = dot(rows.index.row(a).as_slice(), rows.index.row(b).as_slice());
    rows.centre.between(a, b, product) > NEARLY_SAME
}
