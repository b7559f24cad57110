//! The one order of every search result: best first, equals by row.

use std::cmp::Ordering;

/// The best `k` of `hits`, highest value first, equal values by row. Values must not be NaN.
pub(super) fn best<T: PartialOrd + Copy>(mut hits: Vec<(usize, T)>, k: usize) -> Vec<(usize, T)> {
    if k == 0 {
        return Vec::new();
    }
    // The order is total, so an unstable selection gives the same rows every time.
    if k < hits.len() {
        hits.select_nth_unstable_by(k, order);
        hits.truncate(k);
    }
    hits.sort_unstable_by(order);
    hits
}

fn order<T: PartialOrd>(a: &(usize, T), b: &(usize, T)) -> Ordering {
    b.1.partial_cmp(&a.1).unwrap_or(Ordering::Equal).then(a.0.cmp(&b.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_ordered_by_row_also_at_the_cut() {
        let hits = vec![(3, 1.0), (2, 0.5), (0, -0.0), (1, 1.0), (4, 0.0)];
        assert_eq!(best(hits.clone(), 9), [(1, 1.0), (3, 1.0), (2, 0.5), (0, -0.0), (4, 0.0)]);
        assert_eq!(best(hits.clone(), 1), [(1, 1.0)]);
        assert_eq!(best(hits.clone(), 4).last(), Some(&(0, -0.0)));
        assert_eq!(best(hits, 0), []);
    }
}
