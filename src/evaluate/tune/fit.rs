//! The weights under which the right tools are likeliest.
//!
//! Owns: the likelihood and its maximum.
//! Does not know: clauses, crowding, history; those have no likelihood here and are chosen by recall.
//!
//! Source: conditional logit, McFadden, 1974; coordinate-wise Newton steps with bounds, as for the lasso in Friedman,
//! Hastie and Tibshirani, Journal of Statistical Software 33, 2010.

use super::cases::Case;
use super::point::{BY_LENGTH, WEIGHTS};

/// Strength of the pull to 0.
const RIDGE: f64 = 1e-3;
const MOST_SWEEPS: usize = 60;
/// Steps below this end the search.
const SMALL: f64 = 1e-4;

/// One row: features of each tool, and the share of the probability that it should have.
struct Choice {
    weight: f64,
    features: Vec<[f64; WEIGHTS]>,
    target: Vec<f64>,
}

/// Fits on the plain rows among `sets`; each set counts the same, whatever its size.
///
/// Weights are 0 or more, the one by length 0 or less.
pub(super) fn fit(sets: &[Vec<&Case>]) -> [f64; WEIGHTS] {
    let choices: Vec<Choice> = sets
        .iter()
        .flat_map(|cases| {
            let plain: Vec<&&Case> = cases.iter().filter(|case| case.is_plain()).collect();
            let weight = 1.0 / (plain.len().max(1) * sets.len()) as f64;
            plain.into_iter().map(move |case| choice(case, weight))
        })
        .collect();
    let mut weights = [0.0; WEIGHTS];
    let mut loss = slope(&choices, &weights, 0).loss;
    for _ in 0..MOST_SWEEPS {
        let mut largest: f64 = 0.0;
        for at in 0..WEIGHTS {
            let Slope { first, second, .. } = slope(&choices, &weights, at);
            let mut step = bounded(at, weights[at] - first / second.max(RIDGE)) - weights[at];
            // A full step may overshoot where the likelihood is flat.
            while step.abs() > SMALL / 8.0 {
                let mut tried = weights;
                tried[at] += step;
                let tried_loss = slope(&choices, &tried, at).loss;
                if tried_loss <= loss {
                    (weights, loss) = (tried, tried_loss);
                    largest = largest.max(step.abs());
                    break;
                }
                step /= 2.0;
            }
        }
        if largest < SMALL {
            break;
        }
    }
    weights
}

fn bounded(at: usize, weight: f64) -> f64 {
    if at == BY_LENGTH { weight.min(0.0) } else { weight.max(0.0) }
}

fn choice(case: &Case, weight: f64) -> Choice {
    let features = case.whole.lines.iter().map(|[centroid, best, lexical, name, purpose, boundary]| {
        let by_length = case.whole.length * (centroid + best) / 2.0;
        [*centroid, *best, by_length, *lexical, *name, *purpose, *boundary]
    });
    let share = 1.0 / case.right.iter().filter(|right| **right).count().max(1) as f64;
    let target = case.right.iter().map(|right| if *right { share } else { 0.0 });
    Choice { weight, features: features.collect(), target: target.collect() }
}

/// The loss and its first and second derivative by one weight.
struct Slope {
    loss: f64,
    first: f64,
    second: f64,
}

fn slope(choices: &[Choice], weights: &[f64; WEIGHTS], by: usize) -> Slope {
    let mut sum = Slope {
        loss: RIDGE / 2.0 * weights.iter().map(|weight| weight * weight).sum::<f64>(),
        first: RIDGE * weights[by],
        second: RIDGE,
    };
    let mut scores = Vec::new();
    for Choice { weight, features, target } in choices {
        scores.clear();
        scores.extend(features.iter().map(|tool| tool.iter().zip(weights).map(|(f, w)| f * w).sum::<f64>()));
        let highest = scores.iter().copied().fold(f64::MIN, f64::max);
        let (mut total, mut mean, mut square, mut wanted, mut wanted_score) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for ((score, tool), share) in scores.iter().zip(features).zip(target) {
            let likely = (score - highest).exp();
            total += likely;
            mean += likely * tool[by];
            square += likely * tool[by] * tool[by];
            wanted += share * tool[by];
            wanted_score += share * score;
        }
        mean /= total;
        sum.loss += weight * (highest + total.ln() - wanted_score);
        sum.first += weight * (mean - wanted);
        sum.second += weight * (square / total - mean * mean);
    }
    sum
}
