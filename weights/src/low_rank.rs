//! Low-rank approximation of the weight of a 1x1 convolution or a linear layer, by truncated singular value decomposition.

use crate::matrix::{
    NoConvergence, leading_singular_vectors, power_of_two_below, product, relative_error,
    transposed,
};

/// A weight W [O, I] as the weights of two consecutive layers: `W[o, i]` is the sum over k of `last[o, k] * first[k, i]`.
#[derive(Debug, Clone, PartialEq)]
pub struct LowRankFactors {
    /// O, I.
    pub shape: [usize; 2],
    /// K.
    pub rank: usize,
    /// [K, I]: the layer that is computed first.
    pub first: Vec<f64>,
    /// [O, K]: the layer that is computed last.
    pub last: Vec<f64>,
}

impl LowRankFactors {
    /// Truncated singular value decomposition of `weight` (row-major): of all products of this rank, the one with the least error in the
    /// Frobenius norm.
    ///
    /// One factor has the leading singular vectors, of the side with fewer channels; the other is the weight multiplied by their
    /// transpose, and so contains the singular values. Signs, determinism and accuracy are those of
    /// [`TuckerFactors::hosvd`](crate::TuckerFactors::hosvd).
    ///
    /// # Errors
    /// [`NoConvergence`] if the eigenvalue iteration fails or a value is not finite.
    ///
    /// # Panics
    /// If the length of `weight` is not that of `shape`, or if the rank is larger than O or I.
    pub fn svd(weight: &[f64], shape: [usize; 2], rank: usize) -> Result<Self, NoConvergence> {
        let [o, i] = shape;
        let vectors = Self::singular_vectors(weight, shape, rank)?;
        let (first, last) = if o < i {
            let first = product([rank, o, i], &vectors, weight);
            (first, transposed(&vectors, rank, o))
        } else {
            let last = product([o, i, rank], weight, &transposed(&vectors, rank, i));
            (vectors, last)
        };
        Ok(Self {
            shape,
            rank,
            first,
            last,
        })
    }

    /// The leading singular vectors of the side with fewer channels, [K, O] if O < I and otherwise [K, I].
    ///
    /// # Errors
    /// [`NoConvergence`] if the eigenvalue iteration fails or a value is not finite.
    ///
    /// # Panics
    /// If the length of `weight` is not that of `shape`, or if the rank is larger than O or I.
    pub fn singular_vectors(
        weight: &[f64],
        shape: [usize; 2],
        rank: usize,
    ) -> Result<Vec<f64>, NoConvergence> {
        let [o, i] = shape;
        assert_eq!(weight.len(), o * i, "weight of shape {shape:?}");
        assert!(rank <= o.min(i), "rank {rank} of shape {shape:?}");
        if !weight.iter().all(|v| v.is_finite()) {
            return Err(NoConvergence);
        }
        // A power of two, so that scaling is exact and squares neither overflow nor underflow.
        let scale = power_of_two_below(weight.iter().fold(0.0, |max, v| v.abs().max(max)));
        let scaled: Vec<_> = weight.iter().map(|v| v / scale).collect();
        match o < i {
            true => leading_singular_vectors(&scaled, o, rank),
            false => leading_singular_vectors(&transposed(&scaled, o, i), i, rank),
        }
    }

    /// The dense weight [O, I] that the factors represent.
    pub fn reconstruct(&self) -> Vec<f64> {
        let [o, i] = self.shape;
        product([o, self.rank, i], &self.last, &self.first)
    }

    /// `|weight - reconstruct()| / |weight|` in the Frobenius norm; 0 if both are zero.
    ///
    /// # Panics
    /// If `weight` and the reconstruction differ in length.
    pub fn relative_error(&self, weight: &[f64]) -> f64 {
        relative_error(weight, &self.reconstruct())
    }
}
