//! What a ranking shows besides its candidates, for judging how far its first one can be trusted.

use std::collections::BTreeMap;

use super::{Signal, ToolId};

/// Mean and standard deviation of a set of values.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Spread {
    pub mean: f32,
    pub deviation: f32,
}

impl Spread {
    pub fn of(values: &[f32]) -> Self {
        let count = values.len().max(1) as f64;
        let mean = values.iter().map(|v| f64::from(*v)).sum::<f64>() / count;
        let variance = values.iter().map(|v| (f64::from(*v) - mean).powi(2)).sum::<f64>() / count;
        Self { mean: mean as f32, deviation: variance.sqrt() as f32 }
    }

    /// Whether the values do not differ: a deviation within rounding of zero says nothing, nor does a broken one.
    pub fn is_flat(&self) -> bool {
        self.deviation.is_nan() || self.deviation < 1e-6 * self.mean.abs().max(1e-3)
    }

    /// `distance` in standard deviations; 0 where the values do not differ.
    pub fn in_deviations(&self, distance: f32) -> f32 {
        let z = if self.is_flat() { 0.0 } else { distance / self.deviation };
        if z.is_finite() { z } else { 0.0 }
    }

    /// How far `value` lies above the mean, in standard deviations.
    pub fn standardise(&self, value: f32) -> f32 {
        self.in_deviations(value - self.mean)
    }
}

/// How one signal is distributed over all eligible tools.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Distribution {
    pub spread: Spread,
    pub highest: f32,
    /// Equals `highest` where two tools share it, or where there is one tool alone.
    pub second: f32,
}

/// One utterance against one catalog. Raw similarities mean different things for different encoders; here each has the
/// measure it is to be read with.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Evidence {
    /// The encoder that read the utterance; `None` when words alone decided.
    pub encoder: Option<String>,
    /// Eligible tools.
    pub tools: usize,
    pub signals: BTreeMap<Signal, Distribution>,
    /// Similarity of cards of this catalog that have nothing to do with each other, in the encoder's own scale.
    pub unrelated: Option<Spread>,
    /// Share of the utterance's words that stand in any card, rare ones counting more.
    pub known_words: f32,
    /// The same for the words of one candidate.
    pub coverage: BTreeMap<ToolId, f32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_measures_in_its_own_unit() {
        let spread = Spread::of(&[1.0, 3.0]);
        assert_eq!((spread.mean, spread.deviation), (2.0, 1.0));
        assert_eq!(spread.standardise(4.5), 2.5);
        assert_eq!(Spread::of(&[0.8; 5]).standardise(0.9), 0.0);
        assert_eq!(Spread::of(&[]).standardise(1.0), 0.0);
        assert_eq!(Spread::of(&[f32::NAN, 1.0]).standardise(1.0), 0.0);
    }
}
