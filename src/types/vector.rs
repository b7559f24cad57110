//! Unit vectors: the only form in which an embedding travels.

use std::sync::Arc;

/// An L2-normalised embedding: finite components, length 1 within rounding, at least one component.
/// Cheap to clone: the catalogs of many versions share one.
#[derive(Debug, Clone, PartialEq)]
pub struct Vector(Arc<[f32]>);

/// Why a list of numbers is no usable embedding. A zero or NaN vector scores a perfect match with everything in some
/// graph indices, so it is refused here, before any index can see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum VectorError {
    #[error("embedding holds a number that is not finite")]
    NotFinite,
    #[error("embedding has no direction (length 0)")]
    Zero,
}

/// Below this length a vector has no reliable direction.
const MIN_NORM: f64 = 1e-6;

impl Vector {
    /// Scales `components` to length 1.
    ///
    /// # Errors
    /// [`VectorError`] if a component is not finite or all are (nearly) zero.
    pub fn normalised(mut components: Vec<f32>) -> Result<Self, VectorError> {
        if components.iter().any(|c| !c.is_finite()) {
            return Err(VectorError::NotFinite);
        }
        // In f64, because the length of finite f32 numbers may be beyond f32.
        let norm = components.iter().map(|c| f64::from(*c) * f64::from(*c)).sum::<f64>().sqrt();
        if norm < MIN_NORM {
            return Err(VectorError::Zero);
        }
        for c in &mut components {
            *c = (f64::from(*c) / norm) as f32;
        }
        Ok(Self(components.into()))
    }

    pub fn dim(&self) -> usize {
        self.0.len()
    }

    pub fn as_slice(&self) -> &[f32] {
        &self.0
    }

    /// Where the components are in memory: equal for clones of one vector as long as one of them lives.
    pub fn address(&self) -> usize {
        self.0.as_ptr() as usize
    }

    /// Mean direction of `vectors`, or `None` if there is none or they cancel out.
    ///
    /// # Panics
    /// If the vectors differ in dimension: they come from one encoder.
    pub fn centroid<'a>(vectors: impl IntoIterator<Item = &'a Vector>) -> Option<Self> {
        let mut vectors = vectors.into_iter();
        let mut sum = vectors.next()?.0.to_vec();
        for vector in vectors {
            assert_eq!(vector.dim(), sum.len(), "vectors of one encoder share a dimension");
            for (total, component) in sum.iter_mut().zip(vector.0.iter()) {
                *total += component;
            }
        }
        Self::normalised(sum).ok()
    }
}

/// Dot product of two slices of the same length, summed in a fixed order.
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    // Eight accumulators let the compiler use vector registers; the order of additions stays the same everywhere.
    let mut sums = [0.0f32; 8];
    let (a_blocks, a_rest) = a.as_chunks::<8>();
    let (b_blocks, b_rest) = b.as_chunks::<8>();
    for (x, y) in a_blocks.iter().zip(b_blocks) {
        for lane in 0..8 {
            sums[lane] += x[lane] * y[lane];
        }
    }
    let tail: f32 = a_rest.iter().zip(b_rest).map(|(x, y)| x * y).sum();
    sums.iter().sum::<f32>() + tail
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_without_direction_are_refused() {
        assert_eq!(Vector::normalised(vec![0.0; 4]), Err(VectorError::Zero));
        assert_eq!(Vector::normalised(vec![]), Err(VectorError::Zero));
        assert_eq!(Vector::normalised(vec![1.0, f32::NAN]), Err(VectorError::NotFinite));
        assert_eq!(Vector::normalised(vec![1.0, f32::INFINITY]), Err(VectorError::NotFinite));
    }

    #[test]
    fn a_centroid_has_length_one_and_opposites_have_none() {
        let a = Vector::normalised(vec![3.0, 0.0]).unwrap();
        let b = Vector::normalised(vec![0.0, 5.0]).unwrap();
        let minus_a = Vector::normalised(vec![-1.0, 0.0]).unwrap();
        let mean = Vector::centroid([&a, &b]).unwrap();
        assert!((dot(mean.as_slice(), mean.as_slice()) - 1.0).abs() < 1e-6);
        assert_eq!(Vector::centroid([&a, &minus_a]), None);
        assert_eq!(Vector::centroid([]), None);
    }
}
