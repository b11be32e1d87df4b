//! Products, singular vectors and norms of row-major matrices, for the factorisations.

use faer::diag::Diag;
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::evd::{ComputeEigenvectors, self_adjoint_evd, self_adjoint_evd_scratch};
use faer::linalg::matmul::matmul;
use faer::linalg::matmul::triangular::{self, BlockStructure};
use faer::{Accum, Mat, MatMut, MatRef, Par};

/// A single thread, so that the order of additions and hence every bit is the same in every run.
const SEQUENTIAL: Par = Par::Seq;

/// The eigenvalue iteration did not converge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the eigenvalue iteration did not converge")]
pub struct NoConvergence;

/// The `count` leading left singular vectors of a row-major matrix with `rows` rows, as the rows of the result.
pub(crate) fn leading_singular_vectors(
    matrix: &[f64],
    rows: usize,
    count: usize,
) -> Result<Vec<f64>, NoConvergence> {
    let gram = lower_gram(matrix, matrix, rows);
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
    // Eigenvalues are in ascending order.
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

/// The lower triangle of `left right^T`, of row-major matrices with `rows` rows.
fn lower_gram(left: &[f64], right: &[f64], rows: usize) -> Mat<f64> {
    let columns = left.len() / rows.max(1);
    let [left, right] = [left, right].map(|m| MatRef::from_row_major_slice(m, rows, columns));
    let mut gram = Mat::<f64>::zeros(rows, rows);
    triangular::matmul(
        gram.as_mut(),
        BlockStructure::TriangularLower,
        Accum::Replace,
        left,
        BlockStructure::Rectangular,
        right.transpose(),
        BlockStructure::Rectangular,
        1.0,
        SEQUENTIAL,
    );
    gram
}

/// The inner products of the rows of a row-major matrix, with a weight for each column, row-major.
///
/// # Panics
/// If there are no weights, or if the length of `matrix` is no multiple of theirs.
pub fn inner_products(matrix: &[f64], weights: &[f64]) -> Vec<f64> {
    let columns = weights.len();
    assert_eq!(matrix.len() % columns, 0, "a matrix with {columns} columns");
    let rows = matrix.len() / columns;
    let weighted = matrix.chunks(columns);
    let weighted: Vec<f64> = weighted
        .flat_map(|row| {
            row.iter()
                .zip(weights)
                .map(|(value, weight)| value * weight)
        })
        .collect();
    let lower = lower_gram(&weighted, matrix, rows);
    let of_row = |row: usize| {
        let lower = &lower;
        (0..rows).map(move |column| lower[(row.max(column), row.min(column))])
    };
    (0..rows).flat_map(of_row).collect()
}

/// The product of the row-major matrices `left` [rows, inner] and `right` [inner, columns]. Its bits do not depend on the number of
/// threads.
///
/// # Panics
/// If a length is not that of its matrix.
pub fn product([rows, inner, columns]: [usize; 3], left: &[f64], right: &[f64]) -> Vec<f64> {
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

/// A row-major matrix with `rows` rows, transposed.
pub fn transposed(matrix: &[f64], rows: usize, columns: usize) -> Vec<f64> {
    (0..columns)
        .flat_map(|column| (0..rows).map(move |row| matrix[row * columns + column]))
        .collect()
}

/// The largest power of two that is at most the positive normal number `value`; the smallest normal number
/// for smaller values.
pub(crate) fn power_of_two_below(value: f64) -> f64 {
    const EXPONENT_BITS: u64 = 0x7ff0_0000_0000_0000;
    f64::from_bits(value.to_bits() & EXPONENT_BITS).clamp(f64::MIN_POSITIVE, f64::MAX)
}

pub(crate) fn norm(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let scale = power_of_two_below(values.clone().fold(0.0, |max, v| v.abs().max(max)));
    values.map(|v| (v / scale).powi(2)).sum::<f64>().sqrt() * scale
}

/// `|exact - found| / |exact|` in the Frobenius norm; 0 if both are zero.
///
/// # Panics
/// If the lengths differ.
pub(crate) fn relative_error(exact: &[f64], found: &[f64]) -> f64 {
    assert_eq!(exact.len(), found.len());
    let difference = norm(exact.iter().zip(found).map(|(a, b)| a - b));
    if difference == 0.0 {
        0.0
    } else {
        difference / norm(exact.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inner_products_are_sums_over_weighted_columns() {
        // Odd sizes, more rows than columns and the reverse, and a single value.
        for [rows, columns] in [[5, 3], [2, 7], [1, 1]] {
            let value = |i: usize| ((i * 37 + 11) % 19) as f64 - 9.0;
            let matrix: Vec<f64> = (0..rows * columns).map(value).collect();
            let weights: Vec<f64> = (0..columns).map(|i| value(i + 5)).collect();
            let found = inner_products(&matrix, &weights);
            assert_eq!(found.len(), rows * rows);
            for a in 0..rows {
                for b in 0..rows {
                    let terms = (0..columns)
                        .map(|i| matrix[a * columns + i] * weights[i] * matrix[b * columns + i]);
                    assert_eq!(found[a * rows + b], terms.sum::<f64>(), "{a} {b}");
                }
            }
        }
    }

    #[test]
    fn transposed_twice_is_the_matrix() {
        let matrix = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let other = transposed(&matrix, 2, 3);
        assert_eq!(other, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
        assert_eq!(transposed(&other, 3, 2), matrix);
    }
}
