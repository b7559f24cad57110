//! Merges the signals into one score per tool.
//!
//! Owns: standardising, weights.
//! Does not know: how a signal was found ([`super::signals`]) or who may see a tool (only eligible tools arrive).
//!
//! Source: zero-mean, unit-variance score normalisation, Montague and Aslam, CIKM 2001. Rank fusion was measured and is
//! worse on every development set.

use std::collections::BTreeMap;

use super::signals::SignalValues;
use crate::types::{Score, Signal, Spread};

/// How one encoder's signals are weighed; kept in its manifest (`[fusion]`) and found by `pointsman tune`.
///
/// Weights apply to standardised values, except `crowding`, which is per tool before it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fusion {
    pub dense_centroid: f32,
    pub dense_best: f32,
    /// Added to both dense weights, half each, for every unit of [`length`]: one vector blurs a long text, words do not.
    pub dense_by_length: f32,
    pub lexical: f32,
    pub name_cover: f32,
    pub purpose_cover: f32,
    pub boundary: f32,
    /// Share of the score that the single wishes of a compound request decide, in `[0, 1)`.
    pub clause: f32,
    pub crowding: f32,
    /// How far behind the best the right tool is at most, in fused score, in so many of 100 requests.
    pub gap: Gaps,
}

/// Distances from the best that hold the right tool with a stated frequency, measured on labelled requests.
///
/// Source: split conformal prediction, Vovk, Gammerman and Shafer, Algorithmic Learning in a Random World, 2005; the
/// nonconformity of a tool is its distance from the best.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gaps {
    pub of_90: f32,
    pub of_95: f32,
    pub of_98: f32,
    pub of_99: f32,
}

/// How often the right tool is to be on a shortlist whose length may still grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Coverage {
    Of90,
    Of95,
    Of98,
    #[default]
    Of99,
}

impl Coverage {
    /// In percent.
    pub const PERCENTS: [u8; 4] = [90, 95, 98, 99];

    pub fn of_percent(percent: u8) -> Option<Self> {
        match percent {
            90 => Some(Self::Of90),
            95 => Some(Self::Of95),
            98 => Some(Self::Of98),
            99 => Some(Self::Of99),
            _ => None,
        }
    }

    pub fn percent(self) -> u8 {
        match self {
            Self::Of90 => 90,
            Self::Of95 => 95,
            Self::Of98 => 98,
            Self::Of99 => 99,
        }
    }
}

impl Gaps {
    pub fn of(&self, coverage: Coverage) -> f32 {
        match coverage {
            Coverage::Of90 => self.of_90,
            Coverage::Of95 => self.of_95,
            Coverage::Of98 => self.of_98,
            Coverage::Of99 => self.of_99,
        }
    }
}

/// A weight that the manifest does not know, lacks, or that cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum FusionError {
    #[error("`{0}` is no weight; the weights are {names}", names = Fusion::NAMES.join(", "))]
    Unknown(String),
    #[error("`{0}` is missing; `pointsman tune --write` writes all of them")]
    Missing(&'static str),
    #[error("`{name}` is {value}, which is not in {range}")]
    Range { name: &'static str, value: f64, range: &'static str },
}

impl Fusion {
    pub const NAMES: [&'static str; 13] = [
        "dense_centroid",
        "dense_best",
        "dense_by_length",
        "lexical",
        "name_cover",
        "purpose_cover",
        "boundary",
        "clause",
        "crowding",
        "gap_90",
        "gap_95",
        "gap_98",
        "gap_99",
    ];

    /// Largest weight of a manifest, in size.
    pub const MOST: f32 = 10.0;

    /// For an encoder that was never tuned.
    pub const UNTUNED: Self = Self {
        dense_centroid: 0.35,
        dense_best: 0.25,
        dense_by_length: -0.1,
        lexical: 0.4,
        name_cover: 0.05,
        purpose_cover: 0.05,
        boundary: 0.1,
        clause: 0.25,
        crowding: 0.3,
        gap: Gaps { of_90: 1.0, of_95: 1.5, of_98: 2.0, of_99: 2.5 },
    };

    /// Words alone.
    pub const WORDS: Self = Self {
        dense_centroid: 0.0,
        dense_best: 0.0,
        dense_by_length: 0.0,
        lexical: 0.9,
        boundary: 0.0,
        ..Self::UNTUNED
    };

    /// Reads the table of a manifest.
    ///
    /// # Errors
    /// [`FusionError`] for the first weight that is unknown, missing or out of range.
    pub fn from_named(named: &BTreeMap<String, f64>) -> Result<Self, FusionError> {
        if let Some(unknown) = named.keys().find(|name| !Self::NAMES.contains(&name.as_str())) {
            return Err(FusionError::Unknown(unknown.clone()));
        }
        let get = |name: &'static str| named.get(name).copied().ok_or(FusionError::Missing(name));
        let within = |name: &'static str, low: f64, high: f64, range: &'static str| {
            let value = get(name)?;
            let fits = value >= low && value <= high;
            if fits { Ok(value as f32) } else { Err(FusionError::Range { name, value, range }) }
        };
        let weight = |name| within(name, -f64::from(Self::MOST), f64::from(Self::MOST), "[-10, 10]");
        let gap = |name| within(name, 0.0, 100.0, "[0, 100]");
        Ok(Self {
            dense_centroid: weight("dense_centroid")?,
            dense_best: weight("dense_best")?,
            dense_by_length: weight("dense_by_length")?,
            lexical: weight("lexical")?,
            name_cover: weight("name_cover")?,
            purpose_cover: weight("purpose_cover")?,
            boundary: weight("boundary")?,
            clause: within("clause", 0.0, 0.95, "[0, 0.95]")?,
            crowding: within("crowding", 0.0, 10.0, "[0, 10]")?,
            gap: Gaps { of_90: gap("gap_90")?, of_95: gap("gap_95")?, of_98: gap("gap_98")?, of_99: gap("gap_99")? },
        })
    }

    /// Every weight under its name, in the order of [`Fusion::NAMES`].
    pub fn named(&self) -> [(&'static str, f32); 13] {
        let values = [
            self.dense_centroid,
            self.dense_best,
            self.dense_by_length,
            self.lexical,
            self.name_cover,
            self.purpose_cover,
            self.boundary,
            self.clause,
            self.crowding,
            self.gap.of_90,
            self.gap.of_95,
            self.gap.of_98,
            self.gap.of_99,
        ];
        std::array::from_fn(|at| (Self::NAMES[at], values[at]))
    }

    /// The weights for a text of so many words.
    pub fn weights(&self, words: usize) -> Weights {
        let by_length = self.dense_by_length * length(words) / 2.0;
        // A negative weight would punish the tool that is meant.
        let dense = |weight: f32| if weight == 0.0 { 0.0 } else { (weight + by_length).max(0.0) };
        Weights {
            dense_centroid: dense(self.dense_centroid),
            dense_best: dense(self.dense_best),
            lexical: self.lexical,
            name_cover: self.name_cover,
            purpose_cover: self.purpose_cover,
            boundary: self.boundary,
            clause: 0.0,
            crowding: -self.crowding,
            history: 1.0,
        }
    }
}

/// Length of a text of so many words: 0 for eleven, one unit more for each 2.2-fold, in `[-1.5, 2]`.
pub fn length(words: usize) -> f32 {
    (((words as f32 + 1.0).ln() - 2.5) / 0.8).clamp(-1.5, 2.0)
}

/// Weight of each signal for one text. A named tool needs none: it ranks above all others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Weights {
    pub dense_centroid: f32,
    pub dense_best: f32,
    pub lexical: f32,
    pub name_cover: f32,
    pub purpose_cover: f32,
    pub boundary: f32,
    /// Of the raw value.
    pub clause: f32,
    /// Of the raw value; 0 or less.
    pub crowding: f32,
    /// Of the raw value, since what was just called means the same in every catalog.
    pub history: f32,
}

impl Weights {
    /// Leaves `share` of the whole to the single wishes, whose best value is 1 where the whole's best is `best`.
    pub(super) fn with_clauses(self, share: f32, best: f32) -> Self {
        let rest = 1.0 - share;
        Self {
            dense_centroid: self.dense_centroid * rest,
            dense_best: self.dense_best * rest,
            lexical: self.lexical * rest,
            name_cover: self.name_cover * rest,
            purpose_cover: self.purpose_cover * rest,
            boundary: self.boundary * rest,
            clause: share * best,
            ..self
        }
    }

    /// Weight of a signal, and whether it applies to standardised values.
    pub(super) fn of(&self, signal: Signal) -> (f32, bool) {
        match signal {
            Signal::DenseCentroid => (self.dense_centroid, true),
            Signal::DenseBest => (self.dense_best, true),
            Signal::Lexical => (self.lexical, true),
            Signal::NameCover => (self.name_cover, true),
            Signal::PurposeCover => (self.purpose_cover, true),
            Signal::Boundary => (self.boundary, true),
            Signal::Clause => (self.clause, false),
            Signal::Crowding => (self.crowding, false),
            Signal::History => (self.history, false),
            Signal::Named => (0.0, false),
        }
    }
}

/// One fused score per tool, in the order of the signals' values.
///
/// Cosine similarities (`[-1, 1]`) and BM25 scores (`[0, inf)`) need no common scale: both are standardised over the
/// `tools` given. A constant signal contributes 0. Sums run in signal order, so equal input gives equal output.
pub fn fuse(signals: &[SignalValues], weights: &Weights, tools: usize) -> Vec<Score> {
    let mut fused = vec![0.0f32; tools];
    for signal in signals {
        let (weight, standardise) = weights.of(signal.kind);
        let spread = if standardise { Spread::of(&signal.values) } else { Spread { mean: 0.0, deviation: 1.0 } };
        if !spread.is_flat() {
            for (total, value) in fused.iter_mut().zip(&signal.values) {
                *total += weight * (value - spread.mean) / spread.deviation;
            }
        }
    }
    lift_named(signals, &mut fused);
    fused.into_iter().map(Score::new).collect()
}

/// Puts tools that the utterance names above all others, in their own order.
fn lift_named(signals: &[SignalValues], fused: &mut [f32]) {
    let Some(named) = signals.iter().find(|signal| signal.kind == Signal::Named) else { return };
    let highest = fused.iter().copied().fold(f32::MIN, f32::max);
    let lowest = fused.iter().copied().fold(f32::MAX, f32::min);
    let lift = highest - lowest + 1.0;
    for (total, named) in fused.iter_mut().zip(&named.values) {
        *total += lift * named;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WEIGHTS: Weights = Weights {
        dense_centroid: 0.3,
        dense_best: 0.4,
        lexical: 0.3,
        name_cover: 0.0,
        purpose_cover: 0.0,
        boundary: 0.0,
        clause: 0.0,
        crowding: 0.0,
        history: 1.0,
    };

    #[test]
    fn a_table_is_read_whole_or_refused_by_name() {
        let full: BTreeMap<String, f64> = Fusion::NAMES.iter().map(|name| ((*name).to_owned(), 0.5)).collect();
        assert_eq!(Fusion::from_named(&full).unwrap().gap.of(Coverage::Of95), 0.5);
        let named = Fusion::UNTUNED.named().map(|(name, value)| (name.to_owned(), f64::from(value)));
        assert_eq!(Fusion::from_named(&named.into()), Ok(Fusion::UNTUNED));
        let with = |name: &str, value: f64| {
            let mut table = full.clone();
            table.insert(name.to_owned(), value);
            Fusion::from_named(&table).unwrap_err().to_string()
        };
        assert!(with("lexcal", 1.0).starts_with("`lexcal` is no weight"));
        assert!(with("clause", 1.0).contains("[0, 0.95]"));
        assert!(with("lexical", f64::NAN).contains("[-10, 10]"));
        let mut lacking = full.clone();
        lacking.remove("gap_99");
        assert_eq!(Fusion::from_named(&lacking), Err(FusionError::Missing("gap_99")));
        for percent in Coverage::PERCENTS {
            assert_eq!(Coverage::of_percent(percent).unwrap().percent(), percent);
        }
    }

    #[test]
    fn long_texts_lean_on_words() {
        let fusion = Fusion { dense_by_length: -0.4, ..Fusion::UNTUNED };
        let (short, long) = (fusion.weights(4), fusion.weights(80));
        assert!(short.dense_best > long.dense_best && short.lexical == long.lexical);
        assert!(fusion.weights(100_000).dense_best >= 0.0);
        assert_eq!(Fusion::WORDS.weights(3).dense_centroid, 0.0);
    }

    fn signal(kind: Signal, values: Vec<f32>) -> SignalValues {
        SignalValues { kind, values }
    }

    fn order(scores: &[Score]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|&a, &b| scores[a].descending(scores[b]).then(a.cmp(&b)));
        order
    }

    #[test]
    fn constant_and_broken_signals_decide_nothing() {
        let same = fuse(&[signal(Signal::Lexical, vec![0.1; 3])], &WEIGHTS, 3);
        assert_eq!(order(&same), [0, 1, 2]);
        assert!(same.iter().all(|score| score.get() == 0.0));
        let broken = fuse(&[signal(Signal::Lexical, vec![f32::NAN, 1.0, 2.0])], &WEIGHTS, 3);
        assert!(broken.iter().all(|score| score.get().is_finite()));
        assert_eq!(fuse(&[], &WEIGHTS, 0), []);
    }

    fn values() -> impl Strategy<Value = Vec<f32>> {
        prop::collection::vec((-100i32..100).prop_map(|v| v as f32 / 10.0), 12)
    }

    proptest! {
        #[test]
        fn scale_and_shift_of_a_signal_do_not_matter(a in values(), b in values(), k in 0.5f32..8.0, c in -5f32..5.0) {
            let moved: Vec<f32> = a.iter().map(|v| v * k + c).collect();
            let plain = fuse(&[signal(Signal::DenseBest, a), signal(Signal::Lexical, b.clone())], &WEIGHTS, 12);
            let scaled = fuse(&[signal(Signal::DenseBest, moved), signal(Signal::Lexical, b)], &WEIGHTS, 12);
            for (x, y) in plain.iter().zip(&scaled) {
                prop_assert!((x.get() - y.get()).abs() < 1e-2, "{x:?} {y:?}");
            }
        }
    }
}
