//! How sure an LLM's choice is, while endpoints differ in whether they report probabilities: by how far two
//! independent judges agree, the model and the prefilter.

use crate::types::{Candidate, Confidence, ToolId};

/// The model says that nothing fits, or that something must be asked: the prefilter has no opinion on that.
pub(super) const CONTROL: f32 = 0.7;
/// Concluded from prose.
pub(super) const TEXT: f32 = 0.5;
/// Each repaired answer takes a fifth: a repaired choice stays below the cache's default threshold.
const REPAIRED: f32 = 0.8;

/// Confidence in `chosen`.
///
/// The prefilter's best candidate gets 0.85 to 0.95, more the further it leads; any other one starts at 0.75 and
/// loses up to 0.25 by the distance of its score from the best, and 0.02 per rank, down to 0.4. Distances are shares
/// of the range of scores on the list, since scores have no scale of their own. Values not yet calibrated.
pub(super) fn agreement(chosen: &ToolId, candidates: &[Candidate], repairs: usize) -> Confidence {
    let score = |candidate: &Candidate| candidate.score.get();
    let (best, worst) = (candidates.first().map_or(0.0, score), candidates.last().map_or(0.0, score));
    let share = |distance: f32| if best > worst { (distance / (best - worst)).clamp(0.0, 1.0) } else { 0.0 };
    let raw = match candidates.iter().position(|candidate| candidate.tool == *chosen) {
        Some(0) => match candidates.get(1) {
            Some(second) => 0.85 + 0.1 * share(best - score(second)),
            None => 0.9,
        },
        Some(rank) => (0.75 - 0.25 * share(best - score(&candidates[rank])) - 0.02 * (rank - 1) as f32).max(0.4),
        None => 0.4,
    };
    repaired(raw, repairs)
}

/// `raw`, less for each answer that had to be repaired first.
pub(super) fn repaired(raw: f32, repairs: usize) -> Confidence {
    Confidence::new(raw * REPAIRED.powi(i32::try_from(repairs).unwrap_or(i32::MAX)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::types::Score;

    #[test]
    fn agreement_counts_and_repairs_cost() {
        let candidates: Vec<Candidate> = [("a", 2.0), ("b", 1.5), ("c", 0.0)]
            .map(|(tool, score)| Candidate {
                tool: ToolId::new(tool),
                score: Score::new(score),
                signals: BTreeMap::new(),
            })
            .to_vec();
        let of = |id: &str, repairs| (agreement(&ToolId::new(id), &candidates, repairs).get() * 1000.0).round();
        assert_eq!([of("a", 0), of("b", 0), of("c", 0), of("x", 0)], [875.0, 688.0, 480.0, 400.0]);
        assert!(of("a", 1) < 800.0, "a repaired choice is not cached by default");
        assert_eq!(agreement(&ToolId::new("a"), &candidates[..1], 0).get(), 0.9);
        assert_eq!(agreement(&ToolId::new("a"), &[], 0).get(), 0.4);
    }
}
