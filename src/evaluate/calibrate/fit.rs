//! Logistic regression for a handful of features.
//!
//! Owns: standardising, the penalty, Newton's method.
//! Does not know: what a feature means.
//!
//! Source: penalised maximum likelihood by iteratively reweighted least squares, Hastie, Tibshirani and Friedman, The
//! Elements of Statistical Learning, 2009, 4.4. Sums run in the order of the examples: the same input gives the same
//! coefficients to the last bit.

/// One labelled case.
#[derive(Debug, Clone, PartialEq)]
pub struct Example<const N: usize> {
    pub values: [f64; N],
    pub right: bool,
    /// How much it counts; 0 or more.
    pub weight: f64,
}

/// Penalty on half the squared length of the coefficients of standardised features; the constant term is free.
const PENALTY: f64 = 2.0;
/// Newton's method doubles the digits with every step; what has not settled by then never will.
const STEPS: usize = 60;
/// A step this short changes no coefficient that is written down.
const SETTLED: f64 = 1e-10;

/// Constant term and one coefficient per feature. A feature that never varies gets 0; without examples all are.
pub fn fit<const N: usize>(examples: &[Example<N>]) -> (f64, [f64; N]) {
    let scale = Scale::of(examples);
    let rows: Vec<Vec<f64>> = examples.iter().map(|example| scale.apply(&example.values)).collect();
    let mut beta = vec![0.0; N + 1];
    let mut loss = objective(&rows, examples, &beta);
    for _ in 0..STEPS {
        let Some(step) = newton_step(&rows, examples, &beta) else { break };
        let mut length = 1.0;
        // A full step may overshoot where the classes are far apart.
        let (next, next_loss) = loop {
            let next: Vec<f64> = beta.iter().zip(&step).map(|(b, s)| b - length * s).collect();
            let next_loss = objective(&rows, examples, &next);
            if next_loss <= loss || length < 1e-6 {
                break (next, next_loss);
            }
            length /= 2.0;
        };
        let moved = beta.iter().zip(&next).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        if next_loss > loss {
            break;
        }
        (beta, loss) = (next, next_loss);
        if moved < SETTLED {
            break;
        }
    }
    scale.undo(&beta)
}

/// Mean and deviation of each feature.
struct Scale<const N: usize> {
    mean: [f64; N],
    deviation: [f64; N],
}

impl<const N: usize> Scale<N> {
    fn of(examples: &[Example<N>]) -> Self {
        let total: f64 = examples.iter().map(|example| example.weight).sum::<f64>().max(f64::MIN_POSITIVE);
        let mean: [f64; N] =
            std::array::from_fn(|at| examples.iter().map(|e| e.weight * e.values[at]).sum::<f64>() / total);
        let deviation = std::array::from_fn(|at| {
            let squares = examples.iter().map(|e| e.weight * (e.values[at] - mean[at]).powi(2)).sum::<f64>();
            (squares / total).sqrt()
        });
        Self { mean, deviation }
    }

    fn varies(&self, at: usize) -> bool {
        self.deviation[at] > 1e-9 * self.mean[at].abs().max(1e-3)
    }

    /// Standardised values behind a 1 for the constant term.
    fn apply(&self, values: &[f64; N]) -> Vec<f64> {
        let standard =
            (0..N).map(|at| if self.varies(at) { (values[at] - self.mean[at]) / self.deviation[at] } else { 0.0 });
        std::iter::once(1.0).chain(standard).collect()
    }

    /// Coefficients for values as they come.
    fn undo(&self, beta: &[f64]) -> (f64, [f64; N]) {
        let weights: [f64; N] =
            std::array::from_fn(|at| if self.varies(at) { beta[at + 1] / self.deviation[at] } else { 0.0 });
        let shift: f64 = weights.iter().zip(self.mean).map(|(weight, mean)| weight * mean).sum();
        (beta[0] - shift, weights)
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

pub fn logistic(sum: f64) -> f64 {
    1.0 / (1.0 + (-sum).exp())
}

/// Negative log likelihood and penalty.
fn objective<const N: usize>(rows: &[Vec<f64>], examples: &[Example<N>], beta: &[f64]) -> f64 {
    let penalty = PENALTY / 2.0 * dot(&beta[1..], &beta[1..]);
    let losses = rows.iter().zip(examples).map(|(row, example)| {
        let sum = dot(row, beta);
        let towards = if example.right { -sum } else { sum };
        // ln(1 + exp(x)) without overflow.
        example.weight * (towards.max(0.0) + (-towards.abs()).exp().ln_1p())
    });
    penalty + losses.sum::<f64>()
}

/// What to subtract from `beta`; `None` when there is nothing to solve.
fn newton_step<const N: usize>(rows: &[Vec<f64>], examples: &[Example<N>], beta: &[f64]) -> Option<Vec<f64>> {
    let size = beta.len();
    let mut gradient = vec![0.0; size];
    let mut hessian = vec![vec![0.0; size]; size];
    for (row, example) in rows.iter().zip(examples) {
        let p = logistic(dot(row, beta));
        let error = example.weight * (p - f64::from(u8::from(example.right)));
        let curvature = example.weight * p * (1.0 - p);
        for i in 0..size {
            gradient[i] += error * row[i];
            for j in 0..=i {
                hessian[i][j] += curvature * row[i] * row[j];
            }
        }
    }
    for at in 1..size {
        gradient[at] += PENALTY * beta[at];
        hessian[at][at] += PENALTY;
    }
    // Keeps the constant term solvable where all examples are of one kind.
    hessian[0][0] += 1e-9;
    solve(hessian, gradient)
}

/// Solves `matrix * x = right` by Cholesky's factors; `matrix` is symmetric, its lower half is read.
fn solve(mut matrix: Vec<Vec<f64>>, mut right: Vec<f64>) -> Option<Vec<f64>> {
    let size = right.len();
    for i in 0..size {
        for j in 0..=i {
            let sum = matrix[i][j] - (0..j).map(|k| matrix[i][k] * matrix[j][k]).sum::<f64>();
            if i == j {
                if sum.is_nan() || sum <= 0.0 {
                    return None;
                }
                matrix[i][i] = sum.sqrt();
            } else {
                matrix[i][j] = sum / matrix[j][j];
            }
        }
    }
    for i in 0..size {
        let sum: f64 = (0..i).map(|k| matrix[i][k] * right[k]).sum();
        right[i] = (right[i] - sum) / matrix[i][i];
    }
    for i in (0..size).rev() {
        let sum: f64 = (i + 1..size).map(|k| matrix[k][i] * right[k]).sum();
        right[i] = (right[i] - sum) / matrix[i][i];
    }
    Some(right)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::super::sample::Random;
    use super::*;

    /// Labels drawn from a known model.
    fn drawn(seed: u64, count: usize, bias: f64, weights: [f64; 3]) -> Vec<Example<3>> {
        let mut random = Random::new(seed);
        let mut uniform = move || (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        (0..count)
            .map(|_| {
                // Scales as different as those of real features.
                let values = [uniform() * 4.0 - 2.0, uniform() * 0.2, uniform() * 30.0];
                let p = logistic(bias + dot(&values, &weights));
                Example { values, right: uniform() < p, weight: 1.0 }
            })
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]

        #[test]
        fn known_coefficients_are_recovered(seed in any::<u64>(), bias in -1.0f64..1.0, a in -1.5f64..1.5, b in -8.0f64..8.0, c in -0.1f64..0.1) {
            let (found_bias, found) = fit(&drawn(seed, 6_000, bias, [a, b, c]));
            // In the unit of each feature's deviation (1.15, 0.058, 8.7) the sampling error is about 0.04.
            for (found, wanted, deviation) in [(found[0], a, 1.15), (found[1], b, 0.058), (found[2], c, 8.7)] {
                prop_assert!(((found - wanted) * deviation).abs() < 0.2, "{} is not {}", found, wanted);
            }
            prop_assert!((found_bias - bias).abs() < 0.6, "{} is not {}", found_bias, bias);
        }

        #[test]
        fn any_examples_give_finite_coefficients(rows in prop::collection::vec((prop::array::uniform3(-1e3f64..1e3), any::<bool>(), 0.0f64..2.0), 0..12)) {
            let examples: Vec<Example<3>> = rows.iter().map(|(values, right, weight)| Example { values: *values, right: *right, weight: *weight }).collect();
            let (bias, weights) = fit(&examples);
            prop_assert!(bias.is_finite() && weights.iter().all(|weight| weight.is_finite()), "{bias} {weights:?}");
            prop_assert_eq!(fit(&examples), (bias, weights));
        }
    }

    #[test]
    fn a_feature_that_never_varies_gets_no_weight() {
        let examples: Vec<Example<2>> =
            (0..40).map(|at| Example { values: [0.7, f64::from(at)], right: at >= 20, weight: 1.0 }).collect();
        let (_, weights) = fit(&examples);
        assert_eq!(weights[0], 0.0);
        assert!(weights[1] > 0.1 && weights[1].is_finite(), "separable classes stay bounded: {weights:?}");
        assert_eq!(fit::<2>(&[]), (0.0, [0.0, 0.0]));
    }

    #[test]
    fn a_weight_is_so_many_copies() {
        let examples = drawn(3, 50, 0.2, [0.5, 1.0, 0.0]);
        let mut weighted = examples.clone();
        weighted[7].weight = 3.0;
        let mut copied = examples.clone();
        copied.extend([examples[7].clone(), examples[7].clone()]);
        let (a, b) = (fit(&weighted), fit(&copied));
        assert!((a.0 - b.0).abs() < 1e-6 && a.1.iter().zip(b.1).all(|(a, b)| (a - b).abs() < 1e-6), "{a:?} {b:?}");
    }
}
