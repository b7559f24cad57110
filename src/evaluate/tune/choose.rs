//! Among the points around the fitted one, the one with the best recall.
//!
//! A likelihood also rewards being sure of what is right anyway, which makes meaning weigh too much; what counts is
//! whether the right tool is among the first five.

use super::cases::Case;
use super::fit::fit;
use super::point::{BEST, CENTROID, Point, WEIGHTS};

const CLAUSES: [f64; 5] = [0.0, 0.3, 0.4, 0.5, 0.6];
const CROWDINGS: [f64; 4] = [0.0, 0.15, 0.3, 0.5];
const FACTORS: [f64; 4] = [0.5, 0.75, 1.33, 2.0];
const ROUNDS: usize = 2;
/// Weights that are tried together.
const GROUPS: [&[usize]; WEIGHTS + 1] = [&[CENTROID, BEST], &[0], &[1], &[2], &[3], &[4], &[5], &[6]];
/// Below this two recalls are the same.
const SAME: f64 = 1e-9;

/// Fits, then chooses; equal recall keeps the point that was found first, so the fitted one stays unless another is
/// better.
pub(super) fn choose(sets: &[Vec<&Case>]) -> Point {
    let weights = fit(sets);
    let mut best = Point { weights, clause: CLAUSES[3], crowding: CROWDINGS[2] }.scaled();
    let mut reached = recall(sets, &best);
    let mut attempt = |best: &mut Point, point: Point| {
        let found = recall(sets, &point);
        if found > reached + SAME {
            (*best, reached) = (point, found);
        }
    };
    for round in 0..=ROUNDS {
        for clause in CLAUSES {
            for crowding in CROWDINGS {
                let point = Point { clause, crowding, ..best };
                if point != best {
                    attempt(&mut best, point);
                }
            }
        }
        if round == ROUNDS {
            break;
        }
        for group in GROUPS {
            let before = best;
            for factor in FACTORS {
                let mut point = before;
                group.iter().for_each(|at| point.weights[*at] *= factor);
                if point != before {
                    attempt(&mut best, point.scaled());
                }
            }
        }
    }
    best
}

/// Mean over the sets of recall within five places.
fn recall(sets: &[Vec<&Case>], point: &Point) -> f64 {
    let of_set =
        |cases: &Vec<&Case>| cases.iter().map(|case| case.recall(point).at_5).sum::<f64>() / cases.len().max(1) as f64;
    sets.iter().map(of_set).sum::<f64>() / sets.len().max(1) as f64
}
