//! One choice of weights.

use crate::retrieve::{Fusion, Gaps};

/// Signals that have a weight.
pub(super) const SIGNALS: usize = 6;
/// Weights, in the order of [`Fusion::NAMES`].
pub(super) const WEIGHTS: usize = 7;
pub(super) const CENTROID: usize = 0;
pub(super) const BEST: usize = 1;
pub(super) const BY_LENGTH: usize = 2;
pub(super) const LEXICAL: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Point {
    pub weights: [f64; WEIGHTS],
    pub clause: f64,
    pub crowding: f64,
}

impl Point {
    /// Weight of each signal for a text of this length, as [`Fusion::weights`] has it.
    pub fn at(&self, length: f64) -> [f64; SIGNALS] {
        let [centroid, best, by_length, lexical, name, purpose, boundary] = self.weights;
        let by_length = by_length * length / 2.0;
        let dense = |weight: f64| if weight == 0.0 { 0.0 } else { (weight + by_length).max(0.0) };
        [dense(centroid), dense(best), lexical, name, purpose, boundary]
    }

    /// The same ranking on the scale on which meaning and words together weigh 1 in a text of usual length.
    ///
    /// History and crowding count on that scale.
    #[must_use]
    pub fn scaled(mut self) -> Self {
        let sum = self.weights[CENTROID] + self.weights[BEST] + self.weights[LEXICAL];
        if sum > 0.0 {
            // A signal that alone decides a set would grow without end; the manifest takes ten times the usual sum.
            let most = f64::from(Fusion::MOST);
            self.weights.iter_mut().for_each(|weight| *weight = (*weight / sum).clamp(-most, most));
        }
        self
    }

    /// As a manifest holds it: three decimals.
    pub fn fusion(&self, gap: Gaps) -> Fusion {
        let round = |value: f64| ((value * 1000.0).round() / 1000.0) as f32;
        let [dense_centroid, dense_best, dense_by_length, lexical, name_cover, purpose_cover, boundary] =
            self.weights.map(round);
        let (clause, crowding) = (round(self.clause), round(self.crowding));
        Fusion {
            dense_centroid,
            dense_best,
            dense_by_length,
            lexical,
            name_cover,
            purpose_cover,
            boundary,
            clause,
            crowding,
            gap,
        }
    }
}
