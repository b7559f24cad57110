//! Exact scan: every allowed row is compared with the query.

use super::rank;
use crate::types::vector::dot;
use crate::types::{Similarity, Vector};

/// Similarity of two vectors of one dimension.
pub(super) fn similarity(query: &Vector, row: &Vector) -> Similarity {
    Similarity::from_dot(dot(query.as_slice(), row.as_slice())).expect("unit vectors have a finite product")
}

/// The best `k` of the rows for which `allowed` is true.
pub(super) fn nearest(rows: &[Vector], query: &Vector, k: usize, allowed: &[bool]) -> Vec<(usize, Similarity)> {
    let hits = rows
        .iter()
        .zip(allowed)
        .enumerate()
        .filter(|(_, (_, allowed))| **allowed)
        .map(|(row, (vector, _))| (row, similarity(query, vector)))
        .collect();
    rank::best(hits, k)
}
