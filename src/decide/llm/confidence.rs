//! How sure an LLM's choice is: by how far two independent judges agree, the model and the prefilter, and by the
//! probability of the chosen name where the endpoint reports it.

use crate::types::{Candidate, Confidence, ToolId};

/// The model says that nothing fits, or that something must be asked: the prefilter has no opinion on that.
const CONTROL: f32 = 0.7;
/// Concluded from prose.
pub(crate) const TEXT: f32 = 0.5;
/// Each repaired answer takes a fifth: a repaired choice stays below the cache's default threshold.
const REPAIRED: f32 = 0.8;

/// Probabilities nearer to 0 or 1 than this say no more: small models are sure of themselves when they are wrong.
const EDGE: f64 = 0.01;

/// Confidence in the call of `chosen`, whose name had `probability` among all names on offer.
pub(crate) fn of_call(
    chosen: &ToolId,
    candidates: &[Candidate],
    probability: Option<f32>,
    repairs: usize,
) -> Confidence {
    repaired(combined(agreement(chosen, candidates), probability), repairs)
}

/// Confidence in declining or asking, on which the prefilter has no opinion.
pub(crate) fn of_control(probability: Option<f32>, repairs: usize) -> Confidence {
    repaired(combined(CONTROL, probability), repairs)
}

/// The mean of both in logarithmic odds: two judges of equal weight, of whom the surer one counts more. `agreement`
/// alone where there is no probability.
fn combined(agreement: f32, probability: Option<f32>) -> f32 {
    let Some(probability) = probability else { return agreement };
    let odds = |p: f32| {
        let p = f64::from(p).clamp(EDGE, 1.0 - EDGE);
        (p / (1.0 - p)).ln()
    };
    let mean = (odds(agreement) + odds(probability)) / 2.0;
    (1.0 / (1.0 + (-mean).exp())) as f32
}

/// How far the prefilter agrees with `chosen`.
///
/// The prefilter's best candidate gets 0.85 to 0.95, more the further it leads; any other one starts at 0.75 and
/// loses up to 0.25 by the distance of its score from the best, and 0.02 per rank, down to 0.4. Distances are shares
/// of the range of scores on the list, since scores have no scale of their own. Values not yet calibrated.
fn agreement(chosen: &ToolId, candidates: &[Candidate]) -> f32 {
    let score = |candidate: &Candidate| candidate.score.get();
    let (best, worst) = (candidates.first().map_or(0.0, score), candidates.last().map_or(0.0, score));
    let share = |distance: f32| if best > worst { (distance / (best - worst)).clamp(0.0, 1.0) } else { 0.0 };
    match candidates.iter().position(|candidate| candidate.tool == *chosen) {
        Some(0) => match candidates.get(1) {
            Some(second) => 0.85 + 0.1 * share(best - score(second)),
            None => 0.9,
        },
        Some(rank) => (0.75 - 0.25 * share(best - score(&candidates[rank])) - 0.02 * (rank - 1) as f32).max(0.4),
        None => 0.4,
    }
}

/// `raw`, less for each answer that had to be repaired first.
fn repaired(raw: f32, repairs: usize) -> Confidence {
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
        let of = |id: &str, repairs| (of_call(&ToolId::new(id), &candidates, None, repairs).get() * 1000.0).round();
        assert_eq!([of("a", 0), of("b", 0), of("c", 0), of("x", 0)], [875.0, 688.0, 480.0, 400.0]);
        assert!(of("a", 1) < 800.0, "a repaired choice is not cached by default");
        assert_eq!(of_call(&ToolId::new("a"), &candidates[..1], None, 0).get(), 0.9);
        assert_eq!(of_call(&ToolId::new("a"), &[], None, 0).get(), 0.4);
        assert_eq!([of_control(None, 0).get(), of_control(None, 1).get()], [0.7, 0.7 * REPAIRED]);
    }

    #[test]
    fn a_probability_counts_as_much_as_the_agreement() {
        let near = |found: f32, expect: f32| assert!((found - expect).abs() < 1e-3, "{found} instead of {expect}");
        near(combined(0.9, Some(0.9)), 0.9);
        near(combined(0.9, Some(0.1)), 0.5);
        near(combined(0.9, Some(0.5)), 0.75);
        near(combined(0.4, Some(1.0)), 0.890);
        near(combined(0.9, Some(0.0)), 0.232);
        near(combined(0.7, None), 0.7);
        assert!(of_control(Some(0.9), 1) < of_control(Some(0.9), 0));
    }
}
