//! Vectors for the tests of this module: reproducible, without a random number crate.

use crate::types::Vector;

/// Numbers in `[-1, 1)`.
pub(super) struct Numbers(u64);

impl Numbers {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> f32 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) >> 40) as f32 / (1u32 << 23) as f32 - 1.0
    }

    /// A vector at most `spread` from `center` in each component.
    pub(super) fn near(&mut self, center: &[f32], spread: f32) -> Vector {
        Vector::normalised(center.iter().map(|c| c + spread * self.next()).collect()).expect("not zero")
    }
}

/// `families` groups of `size` vectors each, like the tools of as many families.
pub(super) fn clustered(families: usize, size: usize, dim: usize, spread: f32, seed: u64) -> Vec<Vector> {
    let mut numbers = Numbers::new(seed);
    let centers: Vec<Vector> = (0..families).map(|_| numbers.near(&vec![0.0; dim], 1.0)).collect();
    (0..families * size).map(|row| numbers.near(centers[row / size].as_slice(), spread)).collect()
}
