//! Tucker-2 decomposition of a convolution's weight, by truncated higher-order singular value decomposition.

use crate::matrix::{
    NoConvergence, leading_singular_vectors, power_of_two_below, product, relative_error,
    transposed,
};

/// A weight W [O, I, R, S] as the weights of three consecutive convolutions (TDC paper, eqs. 1-4).
///
/// `W[o, i, r, s]` is the sum over d1 and d2 of `last[o, d2] * core[d2, d1, r, s] * first[d1, i]`.
#[derive(Debug, Clone, PartialEq)]
pub struct TuckerFactors {
    /// O, I, R, S.
    pub shape: [usize; 4],
    /// D1 of the input channels, D2 of the output channels.
    pub ranks: [usize; 2],
    /// [D1, I]: the paper's U1 transposed; the 1x1 convolution of eq. 2.
    pub first: Vec<f64>,
    /// [D2, D1, R, S]: the R x S convolution of eq. 3.
    pub core: Vec<f64>,
    /// [O, D2]: the paper's U2; the 1x1 convolution of eq. 4.
    pub last: Vec<f64>,
}

impl TuckerFactors {
    /// Truncated HOSVD of `weight` (OIHW) on its two channel dimensions (TDC paper, section 4.1, projection of eq. 12).
    ///
    /// U1 has the D1 leading left singular vectors of the unfolding along dimension 1, U2 the D2 leading ones
    /// of the unfolding along dimension 0; the core is the weight multiplied by both transposed. The sign of
    /// each singular vector is such that its largest component (the first one in case of ties) is positive.
    /// The result does not depend on the number of threads.
    ///
    /// The vectors are computed as eigenvectors of the unfolding times its transpose, several times faster
    /// than by a singular value decomposition. They are orthogonal up to rounding for any weight, so with
    /// full ranks the product is `weight` up to rounding. Directions with singular values below 1e-8 of the
    /// largest cannot be distinguished this way; choosing the wrong ones of them causes an error of that
    /// size.
    ///
    /// # Errors
    /// [`NoConvergence`] if the eigenvalue iteration fails or a value is not finite.
    ///
    /// # Panics
    /// If the length of `weight` is not that of `shape`, or if a rank is larger than the number of its
    /// channels.
    pub fn hosvd(
        weight: &[f64],
        shape: [usize; 4],
        ranks: [usize; 2],
    ) -> Result<Self, NoConvergence> {
        let [o, i, r, s] = shape;
        let [d1, d2] = ranks;
        assert_eq!(weight.len(), o * i * r * s, "weight of shape {shape:?}");
        assert!(d1 <= i && d2 <= o, "ranks {ranks:?} of shape {shape:?}");
        if !weight.iter().all(|v| v.is_finite()) {
            return Err(NoConvergence);
        }
        // A power of two, so that scaling is exact and squares neither overflow nor underflow.
        let scale = power_of_two_below(weight.iter().fold(0.0, |max, v| v.abs().max(max)));
        let scaled: Vec<_> = weight.iter().map(|v| v / scale).collect();
        let first = leading_singular_vectors(&input_unfolding(&scaled, shape), i, d1)?;
        let last_transposed = leading_singular_vectors(&scaled, o, d2)?;
        let narrowed = product([d2, o, i * r * s], &last_transposed, &scaled);
        let mut core = Vec::with_capacity(d2 * d1 * r * s);
        for slice in narrowed.chunks_exact((i * r * s).max(1)) {
            core.extend(product([d1, i, r * s], &first, slice));
        }
        for value in &mut core {
            *value *= scale;
        }
        Ok(Self {
            shape,
            ranks,
            first,
            core,
            last: transposed(&last_transposed, d2, o),
        })
    }

    /// The dense weight in OIHW that the factors represent (TDC paper, eq. 1).
    pub fn reconstruct(&self) -> Vec<f64> {
        let [o, i, r, s] = self.shape;
        let [d1, d2] = self.ranks;
        let first_transposed = transposed(&self.first, d1, i);
        let mut widened = Vec::with_capacity(d2 * i * r * s);
        for slice in self.core.chunks_exact((d1 * r * s).max(1)) {
            widened.extend(product([i, d1, r * s], &first_transposed, slice));
        }
        product([o, d2, i * r * s], &self.last, &widened)
    }

    /// The same weight with identities for square factors, which are multiplied into the core: for `first` with D1 = I, and for `last` with
    /// D2 = O. A plan may leave such a factor out.
    pub fn with_identities(mut self) -> Self {
        let [o, i, r, s] = self.shape;
        let [d1, d2] = self.ranks;
        if d1 == i {
            let first_transposed = transposed(&self.first, d1, i);
            let slices = self.core.chunks_exact((d1 * r * s).max(1));
            let widened = slices.map(|slice| product([i, d1, r * s], &first_transposed, slice));
            self.core = widened.flatten().collect();
            self.first = identity(i);
        }
        if d2 == o {
            self.core = product([o, d2, d1 * r * s], &self.last, &self.core);
            self.last = identity(o);
        }
        self
    }

    /// `|weight - reconstruct()| / |weight|` in the Frobenius norm; 0 if both are zero.
    ///
    /// # Panics
    /// If `weight` and the reconstruction differ in length.
    pub fn relative_error(&self, weight: &[f64]) -> f64 {
        relative_error(weight, &self.reconstruct())
    }
}

fn identity(size: usize) -> Vec<f64> {
    let mut values = vec![0.0; size * size];
    for diagonal in values.iter_mut().step_by(size + 1) {
        *diagonal = 1.0;
    }
    values
}

/// The unfolding [I, O * R * S] of an OIHW weight.
pub(crate) fn input_unfolding(weight: &[f64], [o, i, r, s]: [usize; 4]) -> Vec<f64> {
    let filter = r * s;
    let mut unfolding = Vec::with_capacity(weight.len());
    for input in 0..i {
        for output in 0..o {
            let start = (output * i + input) * filter;
            unfolding.extend_from_slice(&weight[start..start + filter]);
        }
    }
    unfolding
}
