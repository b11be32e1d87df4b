//! Tucker-2 form of a convolution's weight, by truncated higher-order singular value decomposition.

use faer::diag::Diag;
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::evd::{ComputeEigenvectors, self_adjoint_evd, self_adjoint_evd_scratch};
use faer::linalg::matmul::matmul;
use faer::linalg::matmul::triangular::{self, BlockStructure};
use faer::{Accum, Mat, MatMut, MatRef, Par};

/// One thread, so that the order of additions and with it every bit is the same in every run.
const SEQUENTIAL: Par = Par::Seq;

/// A weight W [O, I, R, S] as three weights of consecutive convolutions (TDC paper, eqs. 1-4).
///
/// `W[o, i, r, s]` is the sum over d1 and d2 of `last[o, d2] * core[d2, d1, r, s] * first[d1, i]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Factors {
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

/// The eigenvalue iteration did not converge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the eigenvalue iteration did not converge")]
pub struct NoConvergence;

impl Factors {
    /// Truncated HOSVD of `weight` (OIHW) on its two channel dimensions (TDC paper, section 4.1, projection of eq. 12).
    ///
    /// U1 holds the D1 leading left singular vectors of the unfolding along dimension 1, U2 the D2 leading ones of the
    /// unfolding along dimension 0; the core is the weight multiplied by both transposed. Each singular vector is signed so
    /// that its first largest component is positive. The result does not depend on the number of threads.
    ///
    /// The vectors are found as eigenvectors of the unfolding times its transpose, several times faster than by a singular
    /// value decomposition. They are orthogonal to rounding whatever the weight, so with full ranks the product is `weight`
    /// to rounding. Directions whose singular value is below 1e-8 of the largest cannot be told apart this way; choosing the
    /// wrong ones of them costs an error of that size.
    ///
    /// # Errors
    /// [`NoConvergence`] when the eigenvalue iteration fails or a value is not finite.
    ///
    /// # Panics
    /// When `weight` has not the length of `shape`, or a rank is above the number of its channels.
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
        // A power of two, so that scaling is exact and squares neither overflow nor vanish.
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

    /// The dense weight in OIHW that the factors stand for (TDC paper, eq. 1).
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

    /// `|weight - reconstruct()| / |weight|` in the Frobenius norm; 0 when both are zero.
    ///
    /// # Panics
    /// When `weight` has another length than the reconstruction.
    pub fn relative_error(&self, weight: &[f64]) -> f64 {
        let reconstructed = self.reconstruct();
        assert_eq!(weight.len(), reconstructed.len());
        let difference = norm(weight.iter().zip(&reconstructed).map(|(w, v)| w - v));
        if difference == 0.0 {
            0.0
        } else {
            difference / norm(weight.iter().copied())
        }
    }
}

/// The unfolding [I, O * R * S] of an OIHW weight.
fn input_unfolding(weight: &[f64], [o, i, r, s]: [usize; 4]) -> Vec<f64> {
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

/// The `count` leading left singular vectors of a row-major matrix with `rows` rows, as the rows of the result.
fn leading_singular_vectors(
    matrix: &[f64],
    rows: usize,
    count: usize,
) -> Result<Vec<f64>, NoConvergence> {
    let columns = matrix.len() / rows.max(1);
    let matrix = MatRef::from_row_major_slice(matrix, rows, columns);
    let mut gram = Mat::<f64>::zeros(rows, rows);
    triangular::matmul(
        gram.as_mut(),
        BlockStructure::TriangularLower,
        Accum::Replace,
        matrix,
        BlockStructure::Rectangular,
        matrix.transpose(),
        BlockStructure::Rectangular,
        1.0,
        SEQUENTIAL,
    );
    let mut eigenvalues = Diag::<f64>::zeros(rows);
    let mut eigenvectors = Mat::<f64>::zeros(rows, rows);
    let parameters = Default::default();
    let mut workspace = MemBuffer::new(self_adjoint_evd_scratch::<f64>(
        rows,
        ComputeEigenvectors::Yes,
        SEQUENTIAL,
        parameters,
    ));
    self_adjoint_evd(
        gram.as_ref(),
        eigenvalues.as_mut(),
        Some(eigenvectors.as_mut()),
        SEQUENTIAL,
        MemStack::new(&mut workspace),
        parameters,
    )
    .map_err(|_| NoConvergence)?;
    // Eigenvalues come in ascending order.
    let mut vectors = Vec::with_capacity(count * rows);
    for column in (rows - count..rows).rev() {
        let vector = eigenvectors.col(column);
        let largest = vector
            .iter()
            .fold(0.0_f64, |max, &v| if v.abs() > max.abs() { v } else { max });
        let sign = if largest < 0.0 { -1.0 } else { 1.0 };
        vectors.extend(vector.iter().map(|v| sign * v));
    }
    Ok(vectors)
}

/// The product of the row-major matrices `left` [rows, inner] and `right` [inner, columns].
fn product([rows, inner, columns]: [usize; 3], left: &[f64], right: &[f64]) -> Vec<f64> {
    let mut result = vec![0.0; rows * columns];
    matmul(
        MatMut::from_row_major_slice_mut(&mut result, rows, columns),
        Accum::Replace,
        MatRef::from_row_major_slice(left, rows, inner),
        MatRef::from_row_major_slice(right, inner, columns),
        1.0,
        SEQUENTIAL,
    );
    result
}

/// A row-major matrix [rows, columns] as [columns, rows].
fn transposed(matrix: &[f64], rows: usize, columns: usize) -> Vec<f64> {
    (0..columns)
        .flat_map(|column| (0..rows).map(move |row| matrix[row * columns + column]))
        .collect()
}

/// The largest power of two that is not above a positive normal `value`; the smallest normal one for less.
fn power_of_two_below(value: f64) -> f64 {
    const EXPONENT_BITS: u64 = 0x7ff0_0000_0000_0000;
    f64::from_bits(value.to_bits() & EXPONENT_BITS).clamp(f64::MIN_POSITIVE, f64::MAX)
}

fn norm(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let scale = power_of_two_below(values.clone().fold(0.0, |max, v| v.abs().max(max)));
    values.map(|v| (v / scale).powi(2)).sum::<f64>().sqrt() * scale
}
