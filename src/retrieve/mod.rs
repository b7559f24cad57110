//! Prefilter: from a query to a ranking of the eligible tools.
//!
//! Owns: who may be chosen at all, the signals, their fusion, the shortlist and its stable order.
//! Does not know: how a tool is finally chosen, what an embedding is made with, or the transport.

mod eligible;
mod evidence;
mod fusion;
mod shortlist;
mod signals;

use std::collections::BTreeMap;

pub use eligible::{Eligible, Narrowing, eligible};
pub use fusion::{Weights, fuse};
pub use shortlist::{shortlist_len, stable_order};
pub use signals::{Context, SignalValues, context, signals};

use crate::catalog::Catalog;
use crate::index::IndexError;
use crate::text::Query;
use crate::types::{Candidate, Evidence, Vector};

/// How the signals are fused and how many candidates are handed on.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Up to this many eligible tools, all are handed on.
    pub hand_on_all_up_to: usize,
    /// Fewest candidates above that.
    pub shortlist_min: usize,
    /// Most candidates above that.
    pub shortlist_max: usize,
}

/// Ranks the eligible tools: best first, equal scores by tool id, at most `top`. With the ranking comes what it shows.
///
/// `vector` is the utterance's embedding with the name of its encoder; without one, words alone decide.
///
/// # Errors
/// [`IndexError`] when the vector does not belong to the index.
pub fn rank(
    catalog: &Catalog,
    query: &Query,
    vector: Option<(&str, &Vector)>,
    eligible: &Eligible,
    context: &Context,
    top: usize,
) -> Result<(Vec<Candidate>, Evidence), IndexError> {
    let signals = signals(catalog, query, vector, eligible, context)?;
    let weights = match vector {
        Some((encoder, _)) => Weights::of_encoder(encoder, query),
        None => Weights::lexical_only(),
    };
    let positions: Vec<usize> = eligible.positions().collect();
    let fused = fuse(&signals, &weights, positions.len());
    let mut order: Vec<usize> = (0..positions.len()).collect();
    // Positions are in id order, so the index itself breaks ties by id.
    order.sort_by(|&a, &b| fused[a].descending(fused[b]).then(a.cmp(&b)));
    order.truncate(top);
    let candidates: Vec<Candidate> = order
        .into_iter()
        .map(|i| Candidate {
            tool: catalog.tools[positions[i]].id().clone(),
            score: fused[i],
            signals: signals.iter().map(|signal| (signal.kind, signal.values[i])).collect::<BTreeMap<_, _>>(),
        })
        .collect();
    let encoder = vector.map(|(encoder, _)| encoder);
    let evidence = evidence::evidence(catalog, query, encoder, eligible, &signals, &candidates);
    Ok((candidates, evidence))
}
