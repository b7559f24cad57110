//! Prefilter: from a query to a ranking of the eligible tools.
//!
//! Owns: who may be chosen at all, the signals, their fusion, the shortlist and its stable order.
//! Does not know: how a tool is finally chosen, what an embedding is made with, or the transport.

mod eligible;
mod evidence;
mod explain;
mod fusion;
mod history;
mod mount;
mod pairs;
mod shortlist;
mod signals;
mod tie;

use std::collections::{BTreeMap, BTreeSet};

pub use eligible::{Eligible, Narrowing, Obstacle, eligible, obstacles};
pub use evidence::cover;
pub use explain::{Part, explain};
pub use fusion::{Coverage, Fusion, FusionError, Gaps, Weights, fuse, length, standardise};
pub use history::{Context, context};
pub use mount::{Mounted, Within, mount};
pub use shortlist::{shortlist_len, stable_order};
pub use signals::{SignalValues, crowd, nearly_same};

use crate::catalog::Catalog;
use crate::index::IndexError;
use crate::text::{Query, terms};
use crate::types::{Candidate, Evidence, Score, Signal, Vector};

/// How the signals are fused and how many candidates are handed on.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Up to this many eligible tools, all are handed on.
    pub hand_on_all_up_to: usize,
    /// Fewest candidates above that.
    pub shortlist_min: usize,
    /// Most candidates above that.
    pub shortlist_max: usize,
    /// How often the right tool is to be on the shortlist, as long as its length is between the two.
    pub coverage: Coverage,
    pub basis: Basis,
    /// Signals that count for nothing, to see what they are worth.
    pub without: BTreeSet<Signal>,
    pub strategy: Strategy,
}

impl Settings {
    fn counts(&self, signal: Signal) -> bool {
        !self.without.contains(&signal)
    }
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
            Signal::DenseCentroid | Signal::DenseBest | Signal::Boundary => self != Self::Lexical,
            Signal::Lexical | Signal::NameCover | Signal::PurposeCover => self != Self::Dense,
            Signal::Named | Signal::History | Signal::Clause | Signal::Crowding => true,
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

/// An utterance as one encoder reads it, and how that encoder's signals are weighed.
#[derive(Debug, Clone)]
pub struct Embedded {
    pub encoder: String,
    pub whole: Vector,
    /// One per clause of the query, or empty.
    pub clauses: Vec<Vector>,
    pub fusion: Fusion,
}

/// A ranking of the eligible tools.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranked {
    /// Best first, equal scores by tool id.
    pub candidates: Vec<Candidate>,
    /// How far behind the best the right tool is at most, with the coverage that was asked for.
    pub gap: f32,
    /// What the ranking shows besides its order.
    pub evidence: Evidence,
}

/// Ranks the eligible tools, at most `top`. `embedded` is `None` when words alone decide.
///
/// # Errors
/// [`IndexError`] when a vector does not belong to the index.
pub fn rank(
    catalog: &Catalog,
    query: &Query,
    embedded: Option<&Embedded>,
    eligible: &Eligible,
    context: &Context,
    settings: &Settings,
    top: usize,
) -> Result<Ranked, IndexError> {
    let Scored { signals, fused, mut order, gap, .. } = score(catalog, query, embedded, eligible, context, settings)?;
    let positions: Vec<usize> = eligible.positions().collect();
    if top < order.len() {
        let beyond = pairs::targets_beyond(catalog, eligible, &positions, &order, top);
        let tail = order.split_off(top);
        order.extend(tail.into_iter().filter(|i| beyond.contains(i)));
    }
    let candidates = order.into_iter().map(|i| Candidate {
        tool: catalog.tools[positions[i]].id().clone(),
        score: fused[i],
        signals: signals.iter().map(|signal| (signal.kind, signal.values[i])).collect::<BTreeMap<_, _>>(),
    });
    let encoder = embedded.map(|embedded| embedded.encoder.as_str());
    let evidence = evidence::evidence(catalog, query, encoder, &signals);
    Ok(Ranked { candidates: candidates.collect(), gap, evidence })
}

/// A ranking with what it was made of. Every list but `order` is in the order of the eligible tools.
#[derive(Debug, Clone)]
pub struct Scored {
    pub signals: Vec<SignalValues>,
    pub weights: Weights,
    pub fused: Vec<Score>,
    /// Indices of the eligible tools, best first, equal scores by tool id.
    pub order: Vec<usize>,
    /// As in [`Ranked`].
    pub gap: f32,
}

/// What one text says about each eligible tool.
#[derive(Debug, Clone)]
pub struct TextSignals {
    /// Its length.
    pub words: usize,
    pub signals: Vec<SignalValues>,
}

/// What the query as a whole says, and, if `clauses` are wanted, what each of them says.
///
/// # Errors
/// As [`rank`].
pub fn texts(
    catalog: &Catalog,
    query: &Query,
    embedded: Option<&Embedded>,
    eligible: &Eligible,
    basis: Basis,
    clauses: bool,
) -> Result<(TextSignals, Vec<TextSignals>), IndexError> {
    let of_text = |text: &str, vector: Option<&Vector>| {
        let vector = embedded.and_then(|embedded| Some((embedded.encoder.as_str(), vector?)));
        let mut signals = signals::of_text(catalog, text, vector, eligible)?;
        // Without a vector words are all there is.
        signals.retain(|signal| embedded.is_none() || basis.admits(signal.kind));
        Ok::<_, IndexError>(TextSignals { words: terms(text).len(), signals })
    };
    let whole = of_text(&query.retrieval_text(), embedded.map(|embedded| &embedded.whole))?;
    let clauses = if clauses { query.clauses() } else { Vec::new() };
    let of_clause = |(nth, clause): (usize, &String)| of_text(clause, embedded.and_then(|e| e.clauses.get(nth)));
    let clauses = clauses.iter().enumerate().map(of_clause).collect::<Result<_, _>>()?;
    Ok((whole, clauses))
}

/// Scores the eligible tools; see [`rank`].
///
/// # Errors
/// As [`rank`].
pub fn score(
    catalog: &Catalog,
    query: &Query,
    embedded: Option<&Embedded>,
    eligible: &Eligible,
    context: &Context,
    settings: &Settings,
) -> Result<Scored, IndexError> {
    let fusion = embedded.map_or(Fusion::WORDS, |embedded| embedded.fusion);
    let with_clauses = fusion.clause > 0.0 && settings.counts(Signal::Clause);
    let (mut whole, mut clauses) = texts(catalog, query, embedded, eligible, settings.basis, with_clauses)?;
    for text in std::iter::once(&mut whole).chain(&mut clauses) {
        text.signals.retain(|signal| settings.counts(signal.kind));
    }
    let (mut signals, mut weights) = (whole.signals, fusion.weights(whole.words));
    if !clauses.is_empty() {
        let mut best: Vec<f32> = vec![f32::MIN; eligible.len()];
        for clause in &clauses {
            let scores = fuse(&clause.signals, &fusion.weights(clause.words), eligible.len());
            let top = scores.iter().map(|score| score.get()).fold(0.0, f32::max);
            if top > 0.0 {
                best.iter_mut().zip(&scores).for_each(|(best, score)| *best = best.max(score.get() / top));
            }
        }
        if best.iter().all(|value| *value > f32::MIN) {
            let top = fuse(&signals, &weights, eligible.len()).iter().map(|score| score.get()).fold(0.0, f32::max);
            weights = weights.with_clauses(fusion.clause, top);
            signals.push(SignalValues { kind: Signal::Clause, values: best });
        }
    }
    let beside = signals::beside(catalog, query, eligible, context);
    signals.extend(beside.into_iter().filter(|signal| settings.counts(signal.kind)));
    let mut fused = fuse(&signals, &weights, eligible.len());
    if let Some(embedded) = embedded.filter(|_| fusion.crowding > 0.0 && settings.counts(Signal::Crowding)) {
        let positions: Vec<usize> = eligible.positions().collect();
        let scores: Vec<f32> = fused.iter().map(|score| score.get()).collect();
        if let Some(crowding) = signals::crowding(catalog, embedded, &positions, &scores, weights.crowding) {
            signals.push(crowding);
            fused = fuse(&signals, &weights, eligible.len());
        }
    }
    let mut order: Vec<usize> = (0..eligible.len()).collect();
    // Positions are in id order, so the index itself breaks ties by id.
    order.sort_by(|&a, &b| fused[a].descending(fused[b]).then(a.cmp(&b)));
    Ok(Scored { signals, weights, fused, order, gap: fusion.gap.of(settings.coverage) })
}
