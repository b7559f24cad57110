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

pub use eligible::{Eligible, Narrowing, Obstacle, eligible, obstacles, succeeded};
pub use evidence::cover;
pub use explain::{Part, explain};
pub use fusion::{Coverage, Fusion, FusionError, Gaps, Weights, fuse, length};
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
    /// Enough of the tools have borders for [`Signal::Boundary`] to be weighed.
    pub borders_weigh: bool,
}

impl TextSignals {
    fn weights(&self, fusion: &Fusion) -> Weights {
        let weights = fusion.weights(self.words);
        if self.borders_weigh { weights } else { Weights { boundary: 0.0, ..weights } }
    }
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
    let rows = embedded.and_then(|embedded| catalog.dense.get(&embedded.encoder));
    let borders_weigh = rows.is_some_and(|rows| signals::borders_weigh(rows, eligible));
    let of_text = |text: &str, vector: Option<&Vector>| {
        let vector = embedded.and_then(|embedded| Some((embedded.encoder.as_str(), vector?)));
        let mut signals = signals::of_text(catalog, text, vector, eligible)?;
        // Without a vector words are all there is.
        signals.retain(|signal| embedded.is_none() || basis.admits(signal.kind));
        Ok::<_, IndexError>(TextSignals { words: terms(text).len(), signals, borders_weigh })
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
    let mut weights = whole.weights(&fusion);
    let mut signals = whole.signals;
    if !clauses.is_empty() {
        let mut best: Vec<f32> = vec![f32::MIN; eligible.len()];
        for clause in &clauses {
            let scores = fuse(&clause.signals, &clause.weights(&fusion), eligible.len());
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::catalog::CatalogBuilder;
    use crate::embed::Encoders;
    use crate::embed::testing::hashing_encoder;
    use crate::index::Mode;
    use crate::registry::{Registry, from_values, merge};
    use crate::store::Store;
    use crate::text::normalise;
    use crate::types::{Caller, Deadline};

    /// Nine tools of which the first `bordering` send the reader of a moon case to the next one.
    async fn ranked(bordering: usize) -> (Weights, Ranked) {
        let card = |n: usize| {
            let border = if n < bordering { format!(" For moon {n}, use tool_{}.", n + 1) } else { String::new() };
            json!({"name": format!("tool_{n}"), "description": format!("Does thing {n} 第{n}件.{border}"),
                "side_effect": "read", "timeout_ms": 9, "permissions": []})
        };
        let cards: Vec<_> = (0..9).map(card).collect();
        let store = Arc::new(Store::in_memory().unwrap());
        let encoders = Arc::new(Encoders::of(vec![hashing_encoder("words", &["zh", "en"], 64, store)]));
        let index = crate::index::Settings { mode: Mode::Auto, exact_up_to: 1_000, recall_sample: 0.0 };
        let builder = CatalogBuilder::new(Arc::clone(&encoders), index);
        let registry = merge(Registry::default(), from_values(&cards));
        let (catalog, _) = builder.build(registry, 1, &|_, _| {}).await.unwrap();
        let query = normalise("moon 0").unwrap();
        let whole = encoders.all()[0].embed_query(&query.text, Deadline::after(Duration::from_secs(60))).await.unwrap();
        let fusion = Fusion { boundary: 0.5, ..Fusion::UNTUNED };
        let embedded = Embedded { encoder: "words".into(), whole: whole.vector, clauses: Vec::new(), fusion };
        let open = eligible(&catalog, &Caller::local(), &Narrowing::default(), &[]);
        let settings = Settings {
            hand_on_all_up_to: 1,
            shortlist_min: 1,
            shortlist_max: 1,
            coverage: Coverage::default(),
            basis: Basis::default(),
            without: BTreeSet::new(),
            strategy: Strategy::default(),
        };
        let none = Context::default();
        let scored = score(&catalog, &query, Some(&embedded), &open, &none, &settings).unwrap();
        (scored.weights, rank(&catalog, &query, Some(&embedded), &open, &none, &settings, 9).unwrap())
    }

    #[tokio::test]
    async fn a_lone_border_tells_its_case_and_weighs_nothing() {
        let (weights, few) = ranked(1).await;
        assert_eq!(weights.boundary, 0.0);
        let case = |ranked: &Ranked, name: &str| {
            ranked.candidates.iter().find(|candidate| candidate.tool.as_str() == name).unwrap().signals
                [&Signal::Boundary]
        };
        assert!(case(&few, "tool_1") > 0.0, "what decides whether the two are shown together stays known");
        let (weights, many) = ranked(8).await;
        assert_eq!(weights.boundary, 0.5);
        assert!(case(&many, "tool_1") > case(&many, "tool_5"));
    }
}
