//! Figures with their sampling error.
//!
//! Owns: shares over rows and the bootstrap behind their 95 % intervals.
//! Source: percentile bootstrap over rows, Efron and Tibshirani, An Introduction to the Bootstrap, 1993. Rows are
//! sorted before they are drawn from, so neither a figure nor its interval depends on the order of the rows.

use super::sample::Random;

/// Resamples behind an interval; its ends then move by less than a tenth of its width from seed to seed.
const RESAMPLES: usize = 1_000;
/// Fixed, so that the same rows always get the same interval.
const SEED: u64 = 0x9015;

/// A share over rows with its 95 % interval; `None` where no row counts.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Figure {
    pub value: Option<f64>,
    pub interval: Option<(f64, f64)>,
    /// Rows that count.
    pub rows: usize,
}

impl Figure {
    /// Mean of one number per row.
    pub fn mean(values: impl IntoIterator<Item = f64>) -> Self {
        Self::ratio(values.into_iter().map(|value| (value, 1.0)).collect())
    }

    /// Sum of the first numbers over the sum of the second ones; rows with 0 below the line do not count.
    pub fn ratio(mut parts: Vec<(f64, f64)>) -> Self {
        parts.retain(|(_, below)| *below > 0.0);
        parts.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let statistic = |weights: &[u32]| {
            let mut sums = (0.0, 0.0);
            for ((above, below), weight) in parts.iter().zip(weights) {
                sums.0 += above * f64::from(*weight);
                sums.1 += below * f64::from(*weight);
            }
            (sums.1 > 0.0).then(|| sums.0 / sums.1)
        };
        Self { value: statistic(&vec![1; parts.len()]), interval: interval(parts.len(), statistic), rows: parts.len() }
    }
}

/// The 2.5th and 97.5th percentile of `statistic` over resamples of `rows` sorted rows; it is given how often each row
/// was drawn.
pub fn interval(rows: usize, statistic: impl Fn(&[u32]) -> Option<f64>) -> Option<(f64, f64)> {
    if rows == 0 {
        return None;
    }
    let mut random = Random::new(SEED);
    let mut weights = vec![0u32; rows];
    let mut values: Vec<f64> = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        weights.fill(0);
        for _ in 0..rows {
            weights[random.below(rows)] += 1;
        }
        values.extend(statistic(&weights));
    }
    values.sort_by(f64::total_cmp);
    Some((percentile(&values, 2.5)?, percentile(&values, 97.5)?))
}

/// Nearest-rank percentile of ascending `values`: the smallest one that at least `percent` of them do not exceed.
pub fn percentile<T: Copy>(values: &[T], percent: f64) -> Option<T> {
    let rank = (percent / 100.0 * values.len() as f64).ceil() as usize;
    values.get(rank.clamp(1, values.len().max(1)) - 1).copied()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn percentiles_take_the_nearest_rank() {
        let values: Vec<u32> = (1..=100).collect();
        assert_eq!([50.0, 95.0, 99.0].map(|p| percentile(&values, p)), [Some(50), Some(95), Some(99)]);
        assert_eq!(percentile(&[7], 50.0), Some(7));
        assert_eq!(percentile(&[1, 2, 3], 99.0), Some(3));
        assert_eq!(percentile::<u32>(&[], 50.0), None);
    }

    #[test]
    fn an_interval_has_about_the_textbook_width() {
        let figure = Figure::mean((0..400).map(|i| f64::from(u8::from(i % 2 == 0))));
        let (low, high) = figure.interval.unwrap();
        // 1.96 standard errors of a share of one half over 400 rows are 0.049.
        assert!((low - 0.451).abs() < 0.01 && (high - 0.549).abs() < 0.01, "{low} {high}");
        assert_eq!(figure.value, Some(0.5));
    }

    #[test]
    fn nothing_to_count_is_no_figure() {
        assert_eq!(Figure::ratio(vec![(0.0, 0.0), (0.0, 0.0)]), Figure::default());
        assert_eq!(Figure::mean([]), Figure::default());
        assert_eq!(Figure::ratio(vec![(1.0, 1.0), (0.0, 0.0)]).rows, 1);
    }

    proptest! {
        // Each case draws thousands of resamples.
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn row_order_changes_nothing(values in proptest::collection::vec(0.0f64..1.0, 1..40)) {
            let reversed = values.iter().rev().copied();
            prop_assert_eq!(Figure::mean(reversed), Figure::mean(values.clone()));
        }
    }
}
