//! Scores that are never compared across kinds.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A number that should have been finite was not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a finite number")]
pub struct NotANumber;

/// Cosine similarity of two unit vectors, in `[-1, 1]`, never NaN.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Similarity(f32);

impl Similarity {
    /// # Errors
    /// [`NotANumber`] for NaN, which means a broken vector.
    pub fn from_dot(dot: f32) -> Result<Self, NotANumber> {
        // Rounding may leave the product a hair outside the range.
        if dot.is_nan() { Err(NotANumber) } else { Ok(Self(dot.clamp(-1.0, 1.0))) }
    }

    pub fn get(self) -> f32 {
        self.0
    }
}

/// A fused or signal score: finite, higher is better, comparable only within one ranking.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Score(f32);

impl Score {
    /// Non-finite input becomes the lowest score, so that a broken signal can never win.
    pub fn new(value: f32) -> Self {
        if value.is_finite() { Self(value) } else { Self(f32::MIN) }
    }

    pub fn get(self) -> f32 {
        self.0
    }

    /// Highest first, total because every score is finite.
    pub fn descending(self, other: Self) -> std::cmp::Ordering {
        other.0.total_cmp(&self.0)
    }
}

/// Probability that the chosen tool is right, in `[0, 1]`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Confidence(f32);

impl Confidence {
    pub const ZERO: Self = Self(0.0);
    pub const ONE: Self = Self(1.0);

    /// Clamps to `[0, 1]`; NaN becomes 0, the value that decides nothing.
    pub fn new(value: f32) -> Self {
        if value.is_nan() { Self(0.0) } else { Self(value.clamp(0.0, 1.0)) }
    }

    pub fn get(self) -> f32 {
        self.0
    }
}

impl fmt::Display for Confidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_numbers_never_win() {
        assert_eq!(Similarity::from_dot(f32::NAN), Err(NotANumber));
        assert_eq!(Similarity::from_dot(1.000_000_2).map(Similarity::get), Ok(1.0));
        assert!(Score::new(f32::NAN) < Score::new(-1e30));
        assert_eq!(Confidence::new(f32::NAN), Confidence::ZERO);
        assert_eq!(Confidence::new(7.0), Confidence::ONE);
    }
}
