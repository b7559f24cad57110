//! Deterministic draws: the same seed gives the same rows on every machine and in every version.
//!
//! Owns: the generator and drawing without replacement.
//! Source: SplitMix64, Steele, Lea and Flood, OOPSLA 2014; bounded numbers by multiply and reject, Lemire, ACM TOMACS
//! 2019. Both are a few lines, and a crate's generator may change its stream between versions.

/// SplitMix64: one 64-bit state, a Weyl step and a mixing function.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `0..bound`; 0 when `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let bound = bound as u64;
        if bound == 0 {
            return 0;
        }
        // Products whose low half falls under this come from an incomplete last interval.
        let reject_under = bound.wrapping_neg() % bound;
        loop {
            let product = u128::from(self.next_u64()) * u128::from(bound);
            if product as u64 >= reject_under {
                return (product >> 64) as usize;
            }
        }
    }
}

/// Draws `count` of `0..len` without replacement, in ascending order; all of them when `count >= len`.
pub fn draw(len: usize, count: usize, seed: u64) -> Vec<usize> {
    let mut all: Vec<usize> = (0..len).collect();
    if count < len {
        let mut random = Random::new(seed);
        for at in 0..count {
            let other = at + random.below(len - at);
            all.swap(at, other);
        }
        all.truncate(count);
        all.sort_unstable();
    }
    all
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_stream_is_the_published_one() {
        let mut random = Random::new(1_234_567);
        assert_eq!(random.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(random.next_u64(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn draws_are_even() {
        let mut counts = [0usize; 10];
        for seed in 0..10_000 {
            for drawn in draw(10, 3, seed) {
                counts[drawn] += 1;
            }
        }
        assert!(counts.iter().all(|count| (2_800..3_200).contains(count)), "{counts:?}");
    }

    proptest! {
        #[test]
        fn a_draw_has_no_repeats_and_depends_on_the_seed_alone(len in 0usize..200, count in 0usize..220, seed: u64) {
            let drawn = draw(len, count, seed);
            prop_assert_eq!(drawn.len(), count.min(len));
            prop_assert!(drawn.windows(2).all(|pair| pair[0] < pair[1]));
            prop_assert!(drawn.iter().all(|index| *index < len));
            prop_assert_eq!(drawn, draw(len, count, seed));
        }
    }
}
