//! Prefilter: from a query to a ranking of the eligible tools.
//!
//! Owns: who may be chosen at all, the signals, their fusion, the shortlist and its stable order.
//! Does not know: how a tool is finally chosen, what an embedding is made with, or the transport.

mod eligible;
mod explain;
mod fusion;
mod history;
mod mount;
mod shortlist;
mod signals;
mod tie;

use std::collections::BTreeMap;

pub use eligible::{Eligible, Narrowing, Obstacle, eligible, obstacles};
pub use explain::{Part, explain};
pub use fusion::{Weights, fuse};
pub use history::{Context, context};
pub use mount::{Mounted, Within, mount};
pub use shortlist::{shortlist_len, stable_order};
pub use signals::{SignalValues, signals};

use crate::catalog::Catalog;
use crate::index::IndexError;
use crate::text::Query;
use crate::types::{Candidate, Score, Signal, Vector};

/// How the signals are fused and how many candidates are handed on.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Up to this many eligible tools, all are handed on.
    pub hand_on_all_up_to: usize,
    /// Fewest candidates above that.
    pub shortlist_min: usize,
    /// Most candidates above that.
    pub shortlist_max: usize,
    pub basis: Basis,
    pub strategy: Strategy,
}

/// What a ranking rests on. A tool that the utterance names, and the history, count with each of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Basis {
    /// Meaning and words.
    #[default]
    Fused,
    /// Meaning alone.
    Dense,
    /// Words alone; nothing is embedded.
    Lexical,
}

impl Basis {
    fn admits(self, signal: Signal) -> bool {
        match signal {
            Signal::DenseCentroid | Signal::DenseBest => self != Self::Lexical,
            Signal::Lexical => self != Self::Dense,
            Signal::Named | Signal::History => true,
        }
    }
}

/// How candidates are found among more tools than are all handed on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Strategy {
    /// The best of all.
    #[default]
    Auto,
    /// The domain first, then the best in it.
    Layered,
}

/// Ranks the eligible tools: best first, equal scores by tool id, at most `top`.
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
    basis: Basis,
    top: usize,
) -> Result<Vec<Candidate>, IndexError> {
    let Scored { signals, fused, mut order, .. } = score(catalog, query, vector, eligible, context, basis)?;
    let positions: Vec<usize> = eligible.positions().collect();
    order.truncate(top);
    let candidates = order.into_iter().map(|i| Candidate {
        tool: catalog.tools[positions[i]].id().clone(),
        score: fused[i],
        signals: signals.iter().map(|signal| (signal.kind, signal.values[i])).collect::<BTreeMap<_, _>>(),
    });
    Ok(candidates.collect())
}

/// A ranking with what it was made of. Every list but `order` is in the order of the eligible tools.
#[derive(Debug, Clone)]
pub struct Scored {
    pub signals: Vec<SignalValues>,
    pub weights: Weights,
    pub fused: Vec<Score>,
    /// Indices of the eligible tools, best first, equal scores by tool id.
    pub order: Vec<usize>,
}

/// Scores the eligible tools; see [`rank`].
///
/// # Errors
/// As [`rank`].
pub fn score(
    catalog: &Catalog,
    query: &Query,
    vector: Option<(&str, &Vector)>,
    eligible: &Eligible,
    context: &Context,
    basis: Basis,
) -> Result<Scored, IndexError> {
    let mut signals = signals(catalog, query, vector, eligible, context)?;
    // Without a vector words are all there is.
    signals.retain(|signal| vector.is_none() || basis.admits(signal.kind));
    let weights = match vector {
        Some((encoder, _)) => Weights::of_encoder(encoder, query),
        None => Weights::lexical_only(),
    };
    let fused = fuse(&signals, &weights, eligible.len());
    let mut order: Vec<usize> = (0..eligible.len()).collect();
    // Positions are in id order, so the index itself breaks ties by id.
    order.sort_by(|&a, &b| fused[a].descending(fused[b]).then(a.cmp(&b)));
    Ok(Scored { signals, weights, fused, order })
}
