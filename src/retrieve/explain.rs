//! What a fused score is made of.
//!
//! Owns: raw value, standardised value and contribution of each signal for one tool.
//! Does not know: how signals are weighed; [`super::fusion`] does, and the parts given here add up to its score.

use super::fusion::{Weights, fuse};
use super::signals::SignalValues;
use crate::types::{Signal, Spread};

/// One signal's part in one tool's fused score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Part {
    pub signal: Signal,
    pub raw: f32,
    /// In standard deviations from the mean of the eligible tools; `None` for a signal that is taken as it is.
    pub standardised: Option<f32>,
    /// What it adds to the fused score.
    pub contribution: f32,
}

/// The parts of the score of the tool at `position` among the eligible ones, in signal order.
pub fn explain(signals: &[SignalValues], weights: &Weights, position: usize) -> Vec<Part> {
    let tools = signals.iter().map(|signal| signal.values.len()).max().unwrap_or(0);
    let Some(fused) = fuse(signals, weights, tools).get(position).copied() else { return Vec::new() };
    let mut parts: Vec<Part> = signals
        .iter()
        .filter(|signal| position < signal.values.len())
        .map(|signal| {
            let (weight, standardise) = weights.of(signal.kind);
            let raw = signal.values[position];
            let standard = standardise.then(|| Spread::of(&signal.values).standardise(raw));
            Part { signal: signal.kind, raw, standardised: standard, contribution: weight * standard.unwrap_or(raw) }
        })
        .collect();
    // A named tool is lifted above the others by as much as it takes, which is no weight of its own.
    let rest = fused.get() - parts.iter().map(|part| part.contribution).sum::<f32>();
    if let Some(named) = parts.iter_mut().find(|part| part.signal == Signal::Named) {
        named.contribution += rest;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retrieve::Fusion;

    fn sum(parts: &[Part]) -> f32 {
        parts.iter().map(|part| part.contribution).sum()
    }

    #[test]
    fn parts_add_up_to_the_fused_score() {
        let signal = |kind, values: [f32; 4]| SignalValues { kind, values: values.to_vec() };
        let signals = [
            signal(Signal::DenseCentroid, [0.1, 0.4, 0.3, 0.2]),
            signal(Signal::DenseBest, [0.2, 0.2, 0.2, 0.2]),
            signal(Signal::Lexical, [0.0, 7.0, 1.0, 0.0]),
            signal(Signal::Named, [0.0, 0.0, 1.0, 0.0]),
            signal(Signal::History, [0.5, 0.0, 0.0, 0.0]),
        ];
        let fusion = Fusion { dense_centroid: 0.35, dense_best: 0.35, lexical: 0.3, ..Fusion::UNTUNED };
        let weights = fusion.weights(11);
        let fused = fuse(&signals, &weights, 4);
        for (position, score) in fused.iter().enumerate() {
            let parts = explain(&signals, &weights, position);
            assert!((sum(&parts) - score.get()).abs() < 1e-4, "{position}: {parts:?} {score:?}");
            assert_eq!(parts[1].contribution, 0.0, "a constant signal says nothing");
        }
        let history = explain(&signals, &weights, 0)[4];
        assert_eq!((history.raw, history.standardised, history.contribution), (0.5, None, 0.5));
        assert_eq!(explain(&signals, &weights, 9), []);
        assert_eq!(explain(&[], &weights, 0), []);
    }
}
