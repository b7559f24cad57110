//! Merges the signals into one score per tool.
//!
//! Owns: standardising, weights.
//! Does not know: how a signal was found ([`super::signals`]) or who may see a tool (only eligible tools arrive).
//!
//! Source: zero-mean, unit-variance score normalisation, Montague and Aslam, CIKM 2001. Rank fusion was measured and is
//! worse on every development set.

use super::signals::SignalValues;
use crate::text::Query;
use crate::types::{Score, Signal};

/// Weight of each signal. Dense and lexical weights apply to standardised values; `history` is added as it is, since
/// what was just called means the same in every catalog. A named tool needs no weight: it ranks above all others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Weights {
    pub dense_centroid: f32,
    pub dense_best: f32,
    pub lexical: f32,
    pub history: f32,
}

/// From this many characters on an utterance holds several wishes or a dialogue: one vector blurs them, words do not.
const LONG_CHARS: usize = 160;

impl Weights {
    /// Weights for a query embedded by `encoder`.
    pub fn of_encoder(encoder: &str, query: &Query) -> Self {
        let english = encoder.contains("minilm");
        let long = query.text.chars().count() > LONG_CHARS;
        let dense = match (english, long) {
            (true, false) => 0.7,
            (true, true) => 0.5,
            (false, false) => 0.6,
            (false, true) => 0.5,
        };
        Self { dense_centroid: dense / 2.0, dense_best: dense / 2.0, lexical: 1.0 - dense, history: 1.0 }
    }

    pub fn lexical_only() -> Self {
        Self { dense_centroid: 0.0, dense_best: 0.0, lexical: 1.0, history: 1.0 }
    }

    /// Weight of a signal, and whether it applies to standardised values.
    pub(super) fn of(&self, signal: Signal) -> (f32, bool) {
        match signal {
            Signal::DenseCentroid => (self.dense_centroid, true),
            Signal::DenseBest => (self.dense_best, true),
            Signal::Lexical => (self.lexical, true),
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
        let (mean, deviation) = if standardise { moments(&signal.values) } else { (0.0, 1.0) };
        if deviation > 0.0 {
            for (total, value) in fused.iter_mut().zip(&signal.values) {
                *total += weight * (value - mean) / deviation;
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

/// How far `value` lies from the mean of `values`, in standard deviations; 0 where they do not differ.
pub(super) fn standardised(values: &[f32], value: f32) -> f32 {
    let (mean, deviation) = moments(values);
    if deviation > 0.0 { (value - mean) / deviation } else { 0.0 }
}

/// Mean and standard deviation; a deviation within rounding of zero counts as zero.
fn moments(values: &[f32]) -> (f32, f32) {
    let count = values.len().max(1) as f64;
    let mean = values.iter().map(|v| f64::from(*v)).sum::<f64>() / count;
    let variance = values.iter().map(|v| (f64::from(*v) - mean).powi(2)).sum::<f64>() / count;
    let deviation = variance.sqrt();
    if deviation < 1e-6 * mean.abs().max(1e-3) { (mean as f32, 0.0) } else { (mean as f32, deviation as f32) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WEIGHTS: Weights = Weights { dense_centroid: 0.3, dense_best: 0.4, lexical: 0.3, history: 1.0 };

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
