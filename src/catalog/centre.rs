//! Similarities seen from the middle of a catalog.
//!
//! All cards of a catalog share something (they are short descriptions of software, often of one trade), and an
//! encoder puts that share into every vector. Measured from their mean instead of from zero, what tells the cards apart
//! counts alone. Vectors stay as they are: the correction is arithmetic on their dot products.
//!
//! Source: removing the mean vector, Mu and Viswanath, All-but-the-Top, ICLR 2018.

use crate::types::{Vector, vector::dot};

/// With fewer tools the mean is not what they share but what they are.
const MIN_TOOLS: usize = 8;
/// A row this close to the mean has no direction of its own.
const MIN_LENGTH: f32 = 1e-3;

/// The mean of a catalog's tools and what each row needs for the correction.
#[derive(Debug, Clone)]
pub struct Centre {
    mean: Vec<f32>,
    mean_square: f32,
    /// Dot product with the mean, by row.
    along: Vec<f32>,
    /// One over the distance from the mean, by row.
    scale: Vec<f32>,
}

impl Centre {
    /// `tools` holds one row number per tool: each tool counts once, however many texts it has.
    pub(super) fn of(rows: &[Vector], tools: &[usize]) -> Self {
        let dim = rows.first().map_or(0, Vector::dim);
        let mut sum = vec![0.0f64; dim];
        if tools.len() >= MIN_TOOLS {
            for row in tools {
                for (total, component) in sum.iter_mut().zip(rows[*row].as_slice()) {
                    *total += f64::from(*component);
                }
            }
        }
        let mean: Vec<f32> = sum.iter().map(|total| (total / tools.len().max(1) as f64) as f32).collect();
        let mean_square = dot(&mean, &mean);
        let along: Vec<f32> = rows.iter().map(|row| dot(row.as_slice(), &mean)).collect();
        let distance = |along: &f32| (1.0 - 2.0 * along + mean_square).max(0.0).sqrt();
        let scale = along.iter().map(|along| 1.0 / distance(along).max(MIN_LENGTH)).collect();
        Self { mean, mean_square, along, scale }
    }

    /// What the queries' similarities need once.
    pub fn query_along(&self, query: &Vector) -> f32 {
        dot(query.as_slice(), &self.mean)
    }

    /// Similarity of a query to a row, from their dot product.
    pub fn similarity(&self, row: usize, dot: f32, query_along: f32) -> f32 {
        (dot - query_along) * self.scale[row]
    }

    /// Cosine between two rows, from their dot product.
    pub fn between(&self, a: usize, b: usize, dot: f32) -> f32 {
        (dot - self.along[a] - self.along[b] + self.mean_square) * self.scale[a] * self.scale[b]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(components: &[f32]) -> Vector {
        Vector::normalised(components.to_vec()).unwrap()
    }

    #[test]
    fn the_arithmetic_is_that_of_moved_vectors() {
        let rows: Vec<Vector> = (0..10).map(|n| vector(&[3.0, (n % 5) as f32, (n % 3) as f32, 1.0])).collect();
        let centre = Centre::of(&rows, &(0..10).collect::<Vec<_>>());
        let query = vector(&[1.0, 2.0, -1.0, 0.5]);
        let mean: Vec<f32> = (0..4).map(|i| rows.iter().map(|row| row.as_slice()[i]).sum::<f32>() / 10.0).collect();
        let moved = |row: &Vector| -> Vec<f32> { row.as_slice().iter().zip(&mean).map(|(a, b)| a - b).collect() };
        let length = |v: &[f32]| dot(v, v).sqrt();
        let along = centre.query_along(&query);
        for (at, row) in rows.iter().enumerate() {
            let expected = dot(query.as_slice(), &moved(row)) / length(&moved(row));
            let got = centre.similarity(at, dot(query.as_slice(), row.as_slice()), along);
            assert!((got - expected).abs() < 1e-4, "{got} {expected}");
            let expected = dot(&moved(row), &moved(&rows[3])) / length(&moved(row)) / length(&moved(&rows[3]));
            let got = centre.between(at, 3, dot(row.as_slice(), rows[3].as_slice()));
            assert!((got - expected).abs() < 1e-3, "{got} {expected}");
        }
    }

    #[test]
    fn few_tools_and_equal_tools_change_nothing_and_break_nothing() {
        let rows = [vector(&[1.0, 0.0]), vector(&[0.0, 1.0])];
        let centre = Centre::of(&rows, &[0, 1]);
        assert_eq!(centre.similarity(1, 0.25, centre.query_along(&rows[0])), 0.25);
        let same = vec![vector(&[1.0, 1.0]); 9];
        let centre = Centre::of(&same, &(0..9).collect::<Vec<_>>());
        assert!(centre.similarity(0, 1.0, centre.query_along(&same[0])).is_finite());
        assert!(Centre::of(&[], &[]).query_along(&rows[0]).abs() < 1e-6);
    }
}
