//! Whether the stated confidence is the share that is right.
//!
//! Owns: expected calibration error over equal-mass bins and the reliability table.
//! Source: equal-mass bins after Nguyen and O'Connor, EMNLP 2015. Rows of equal confidence cannot be told apart, so
//! where a bin ends among them each takes its part of all of them; the result does not depend on the order of rows.

use serde::Serialize;

use super::interval::{Figure, interval};

const BINS: usize = 10;

/// One bin of the reliability table, lowest confidence first.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bin {
    /// May be a fraction where equal confidences are shared between bins.
    pub rows: f64,
    pub confidence: f64,
    pub right: f64,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Calibration {
    pub ece: Figure,
    pub bins: Vec<Bin>,
}

/// Rows as confidence in `[0, 1]` and whether the tool was right.
pub fn calibration(mut rows: Vec<(f64, bool)>) -> Calibration {
    rows.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let error = |weights: &[u32]| error(&bins(&rows, weights));
    let ones = vec![1; rows.len()];
    Calibration {
        ece: Figure { value: error(&ones), interval: interval(rows.len(), error), rows: rows.len() },
        bins: bins(&rows, &ones),
    }
}

/// Error and table without an interval.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reliability {
    pub error: Option<f64>,
    pub bins: Vec<Bin>,
}

/// As [`calibration`], without resampling.
pub fn reliability(mut rows: Vec<(f64, bool)>) -> Reliability {
    rows.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let bins = bins(&rows, &vec![1; rows.len()]);
    Reliability { error: error(&bins), bins }
}

/// Mean distance between confidence and share right, weighted by the rows of each bin.
fn error(bins: &[Bin]) -> Option<f64> {
    let total: f64 = bins.iter().map(|bin| bin.rows).sum();
    let distance: f64 = bins.iter().map(|bin| bin.rows * (bin.confidence - bin.right).abs()).sum();
    (total > 0.0).then(|| distance / total)
}

/// Splits sorted rows, each counted `weights` times, into bins of equal mass.
fn bins(rows: &[(f64, bool)], weights: &[u32]) -> Vec<Bin> {
    let groups = equal_confidences(rows, weights);
    let total: f64 = groups.iter().map(|group| group.rows).sum();
    let capacity = total / BINS as f64;
    let mut done: Vec<Bin> = Vec::new();
    let mut open = Bin { rows: 0.0, confidence: 0.0, right: 0.0 };
    for group in groups {
        let mut left = group.rows;
        while left > 0.0 {
            let last = done.len() + 1 == BINS;
            // The last bin takes what rounding has left over.
            let taken = if last { left } else { left.min(capacity - open.rows) };
            open.rows += taken;
            open.confidence += taken * group.confidence;
            open.right += taken * group.right;
            left -= taken;
            if !last && open.rows >= capacity * (1.0 - 1e-9) {
                done.push(mean(&open));
                open = Bin { rows: 0.0, confidence: 0.0, right: 0.0 };
            }
        }
    }
    if open.rows > 0.0 {
        done.push(mean(&open));
    }
    done
}

fn mean(sums: &Bin) -> Bin {
    Bin { rows: sums.rows, confidence: sums.confidence / sums.rows, right: sums.right / sums.rows }
}

/// One entry per distinct confidence, ascending.
fn equal_confidences(rows: &[(f64, bool)], weights: &[u32]) -> Vec<Bin> {
    let mut groups: Vec<Bin> = Vec::new();
    for ((confidence, right), weight) in rows.iter().zip(weights).filter(|(_, weight)| **weight > 0) {
        let (weight, right) = (f64::from(*weight), f64::from(u8::from(*right)));
        match groups.last_mut().filter(|group| group.confidence == *confidence) {
            Some(group) => {
                group.right += weight * right;
                group.rows += weight;
            }
            None => groups.push(Bin { rows: weight, confidence: *confidence, right: weight * right }),
        }
    }
    for group in &mut groups {
        group.right /= group.rows;
    }
    groups
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(rows: Vec<(f64, bool)>, expect: f64) {
        let ece = calibration(rows).ece.value.unwrap();
        assert!((ece - expect).abs() < 1e-9, "{ece}");
    }

    #[test]
    fn the_error_is_the_distance_between_confidence_and_share_right() {
        check((0..100).map(|i| (0.8, i % 5 != 0)).collect(), 0.0);
        check((0..100).map(|i| (1.0, i % 2 == 0)).collect(), 0.5);
        check((0..40).map(|i| (if i < 20 { 0.2 } else { 0.9 }, i >= 20)).collect(), 0.15);
        assert_eq!(calibration(Vec::new()), Calibration::default());
    }

    #[test]
    fn bins_hold_equal_mass() {
        let bins = calibration((0..25).map(|i| (f64::from(i) / 25.0, i > 12)).collect()).bins;
        assert_eq!(bins.len(), BINS);
        assert!(bins.iter().all(|bin| (bin.rows - 2.5).abs() < 1e-6), "{bins:?}");
        assert!(bins.windows(2).all(|pair| pair[0].confidence < pair[1].confidence));
    }

    proptest! {
        // Each case draws thousands of resamples.
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn row_order_changes_nothing(rows in proptest::collection::vec((0u8..4, any::<bool>()), 1..30)) {
            let rows: Vec<(f64, bool)> = rows.into_iter().map(|(c, right)| (f64::from(c) / 4.0, right)).collect();
            let reversed = rows.iter().rev().copied().collect();
            let (a, b) = (calibration(rows), calibration(reversed));
            prop_assert!(a.bins.len() <= BINS);
            prop_assert_eq!(a, b);
        }
    }
}
