//! The losses of all Tucker ranks of a layer.

use crate::compress::eligible::ranks;
use tdc_runtime::ConvShape;
use tdc_weights::{NoConvergence, TuckerFactors, inner_products, transposed};

/// A norm of the error D of a weight: the sum over output channels n of `output[n]` times
///
/// ```text
/// sum over c and taps t of D[n, c, t]^2 variance[c]  +  (sum over c and t of D[n, c, t] mean[c])^2
/// ```
///
/// which is the mean of `(D x)[n]^2` for inputs x whose values are independent and have these means and variances.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Norm {
    pub mean: Vec<f64>,
    pub variance: Vec<f64>,
    pub output: Vec<f64>,
}

impl Norm {
    /// The squared Frobenius norm, relative to that of the weight.
    pub(super) fn relative(weight: &[f64], [c, n]: [u32; 2]) -> Self {
        let square: f64 = weight.iter().map(|w| w * w).sum();
        let scale = if square > 0.0 { square.recip() } else { 0.0 };
        Self {
            mean: vec![0.0; c as usize],
            variance: vec![1.0; c as usize],
            output: vec![scale; n as usize],
        }
    }

    /// The norm of an error, by its definition. `error` is OIHW.
    pub(super) fn of(&self, error: &[f64], taps: usize) -> f64 {
        let inputs = self.mean.len();
        let rows = error.chunks(inputs * taps).zip(&self.output);
        let of_row = |(row, output): (&[f64], &f64)| {
            let (mut square, mut sum) = (0.0, 0.0);
            for (c, filter) in row.chunks(taps).enumerate() {
                for d in filter {
                    square += d * d * self.variance[c];
                    sum += d * self.mean[c];
                }
            }
            output * (square + sum * sum)
        };
        rows.map(of_row).sum()
    }
}

/// The losses of a layer at all ranks of a grid.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TuckerGrid {
    d1s: Vec<u32>,
    d2s: Vec<u32>,
    /// `[D1][D2]`.
    losses: Vec<f64>,
}

impl TuckerGrid {
    /// For a weight in OIHW, and for ranks that need not be on the grid.
    ///
    /// With the complete bases U1 and U2 of the truncated HOSVD, W = U2 A U1^T, and the weight of smaller ranks keeps the leading block of
    /// the core A. In the inner product of the norm,
    ///
    /// ```text
    /// |W - What|^2 = <W, W> - 2 <W, What> + <What, What>
    /// ```
    ///
    /// where the terms with What are sums over leading blocks. They are accumulated while D1 grows by one step at a time.
    pub(super) fn new(
        weight: &[f64],
        shape: &ConvShape,
        norm: &Norm,
        step: u32,
        also: &[[u32; 2]],
    ) -> Result<Self, NoConvergence> {
        let [n, c, r, s] = shape.weight().map(|size| size as usize);
        let taps = r * s;
        let full = TuckerFactors::hosvd(weight, [n, c, r, s], [c, n])?;
        let core = Core::new(&full, norm, [n, c, taps]);
        let [d1s, d2s] = [(shape.c, 0), (shape.n, 1)].map(|(channels, index)| {
            let mut all = ranks(channels, step);
            all.extend(also.iter().map(|ranks| ranks[index]));
            all.sort_unstable();
            all.dedup();
            all
        });
        let whole = core.inner_with_whole(c);
        let total: f64 = whole.iter().sum();
        let mut losses = Vec::with_capacity(d1s.len() * d2s.len());
        // <What, What> of each pair of rows of the core, for the D1 so far.
        let mut squares = vec![0.0; n * n];
        let mut with_whole = vec![0.0; n];
        let mut from = 0;
        for &d1 in &d1s {
            let d1 = d1 as usize;
            for (sum, row) in with_whole
                .iter_mut()
                .zip(core.inner_with_whole_of(from..d1))
            {
                *sum += row;
            }
            core.grow_squares(&mut squares, from, d1);
            from = d1;
            let mut inner = 0.0;
            let mut square = 0.0;
            let mut row = 0;
            for &d2 in &d2s {
                for i in row..d2 as usize {
                    inner += with_whole[i];
                    let g = &core.output_gram[i * n..];
                    let q = &squares[i * n..];
                    let off: f64 = (0..i).map(|j| g[j] * q[j]).sum();
                    square += 2.0 * off + g[i] * q[i];
                }
                row = d2 as usize;
                let loss = total - 2.0 * inner + square;
                // What remains of equal terms is rounding.
                losses.push(if loss < 1e-12 * total { 0.0 } else { loss });
            }
        }
        Ok(Self { d1s, d2s, losses })
    }

    /// The loss at [D1, D2]; infinite for ranks that are not on the grid.
    pub(super) fn loss(&self, [d1, d2]: [u32; 2]) -> f64 {
        match (self.d1s.binary_search(&d1), self.d2s.binary_search(&d2)) {
            (Ok(i), Ok(j)) => self.losses[i * self.d2s.len() + j],
            _ => f64::INFINITY,
        }
    }
}

/// The complete core A [N, C, taps] of a weight, and the norm in its coordinates.
struct Core {
    n: usize,
    c: usize,
    taps: usize,
    /// `[C][N][taps]`: the columns of one D1 are together.
    by_input: Vec<f64>,
    /// U1^T diag(variance) U1, [C, C].
    input_gram: Vec<f64>,
    /// U1^T mean.
    input_mean: Vec<f64>,
    /// U2^T diag(output) U2, [N, N].
    output_gram: Vec<f64>,
}

impl Core {
    fn new(full: &TuckerFactors, norm: &Norm, [n, c, taps]: [usize; 3]) -> Self {
        // `first` is U1^T [C, C]; `last` is U2 [N, N].
        let input_gram = inner_products(&full.first, &norm.variance);
        let output_gram = inner_products(&transposed(&full.last, n, n), &norm.output);
        let input_mean = full.first.chunks(c).map(|row| {
            let products = row.iter().zip(&norm.mean).map(|(u, m)| u * m);
            products.sum::<f64>()
        });
        let mut by_input = Vec::with_capacity(full.core.len());
        for j in 0..c {
            for i in 0..n {
                let start = (i * c + j) * taps;
                by_input.extend_from_slice(&full.core[start..start + taps]);
            }
        }
        Self {
            n,
            c,
            taps,
            by_input,
            input_gram,
            input_mean: input_mean.collect(),
            output_gram,
        }
    }

    /// The entries of D1 j, `[N][taps]`.
    fn column(&self, j: usize) -> &[f64] {
        let len = self.n * self.taps;
        &self.by_input[j * len..(j + 1) * len]
    }

    /// For each D1 j of a range: sum over j' of `G1[j, j'] A[j']`, `[j][N][taps]`, with j' below `end`; and the sums over taps and j' of
    /// `A[j'] mean[j']`, `[N]`.
    fn weighted(&self, range: std::ops::Range<usize>, end: usize) -> Vec<f64> {
        let len = self.n * self.taps;
        let gram: Vec<f64> = range
            .clone()
            .flat_map(|j| {
                self.input_gram[j * self.c..j * self.c + end]
                    .iter()
                    .copied()
            })
            .collect();
        tdc_weights::product([range.len(), end, len], &gram, &self.by_input[..end * len])
    }

    /// Sums over taps and j below `end` of `A[j] mean[j]`, for each row.
    fn means(&self, range: std::ops::Range<usize>) -> Vec<f64> {
        let mut means = vec![0.0; self.n];
        for j in range {
            for (mean, taps) in means.iter_mut().zip(self.column(j).chunks(self.taps)) {
                *mean += self.input_mean[j] * taps.iter().sum::<f64>();
            }
        }
        means
    }

    /// <W, What> by row i of What, for all D1 j below `end`.
    fn inner_with_whole(&self, end: usize) -> Vec<f64> {
        self.inner_with_whole_of(0..end)
    }

    /// The same for the D1 j of a range.
    fn inner_with_whole_of(&self, range: std::ops::Range<usize>) -> Vec<f64> {
        let weighted = self.weighted(range.clone(), self.c);
        let whole_means = self.means(0..self.c);
        let means = self.means(range.clone());
        // Q[i, i'] = sum over j and taps of A[j, i] weighted[j, i'], then the sum over i' of G2[i, i'] Q[i, i'].
        let cross = self.cross(range, &weighted);
        (0..self.n)
            .map(|i| {
                let of_pair = |other: usize| {
                    let q = cross[i * self.n + other] + means[i] * whole_means[other];
                    self.output_gram[i * self.n + other] * q
                };
                (0..self.n).map(of_pair).sum()
            })
            .collect()
    }

    /// Sum over j of a range and taps of A[j, i] weighted[j, i'], [N, N].
    fn cross(&self, range: std::ops::Range<usize>, weighted: &[f64]) -> Vec<f64> {
        let rows = range.len() * self.taps;
        let mut left = vec![0.0; self.n * rows];
        let mut right = vec![0.0; rows * self.n];
        for (index, j) in range.enumerate() {
            let (own, other) = (
                self.column(j),
                &weighted[index * self.n * self.taps..(index + 1) * self.n * self.taps],
            );
            for i in 0..self.n {
                for tap in 0..self.taps {
                    left[i * rows + index * self.taps + tap] = own[i * self.taps + tap];
                    right[(index * self.taps + tap) * self.n + i] = other[i * self.taps + tap];
                }
            }
        }
        tdc_weights::product([self.n, rows, self.n], &left, &right)
    }

    /// Adds to `squares` [N, N] what the D1 from `from` to `to` add to the sum over j, j' below and taps of A[j, i] G1[j, j'] A[j', i'],
    /// and to the products of the means.
    fn grow_squares(&self, squares: &mut [f64], from: usize, to: usize) {
        let new_and_old = self.cross(from..to, &self.weighted(from..to, to));
        let new = match from {
            0 => new_and_old.clone(),
            _ => {
                let len = self.n * self.taps;
                let gram: Vec<f64> = (from..to)
                    .flat_map(|j| self.input_gram[j * self.c + from..j * self.c + to].to_vec())
                    .collect();
                let inputs = &self.by_input[from * len..to * len];
                let weighted = tdc_weights::product([to - from, to - from, len], &gram, inputs);
                self.cross(from..to, &weighted)
            }
        };
        let (old_means, new_means) = (self.means(0..from), self.means(from..to));
        for i in 0..self.n {
            for other in 0..self.n {
                // New with all, and its transpose, count the new pairs twice.
                let pairs = new_and_old[i * self.n + other] + new_and_old[other * self.n + i]
                    - new[i * self.n + other];
                let means = old_means[i] * new_means[other]
                    + new_means[i] * old_means[other]
                    + new_means[i] * new_means[other];
                squares[i * self.n + other] += pairs + means;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of a linear congruential generator in (-1, 1).
    fn random(state: &mut u64) -> f64 {
        *state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (*state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    #[test]
    fn losses_are_those_of_the_factors() {
        let mut state = 3;
        for (n, c, r, s, step) in [
            (7, 5, 3, 3, 2),
            (4, 11, 1, 3, 3),
            (13, 13, 2, 2, 4),
            (6, 2, 3, 1, 1),
        ] {
            let shape = ConvShape::new(c, n, 9, 9, r, s);
            let taps = (r * s) as usize;
            let mut values =
                |len: u32| -> Vec<f64> { (0..len).map(|_| random(&mut state)).collect() };
            let weight = values(n * c * r * s);
            let norm = Norm {
                mean: values(c),
                variance: values(c).into_iter().map(|v| v * v + 0.1).collect(),
                output: values(n).into_iter().map(|v| 3.0 * v * v + 0.01).collect(),
            };
            for norm in [&norm, &Norm::relative(&weight, [c, n])] {
                let grid = TuckerGrid::new(&weight, &shape, norm, step, &[[1, n]]).unwrap();
                for d1 in ranks(c, step) {
                    for d2 in ranks(n, step) {
                        let sizes = [n, c, r, s].map(|size| size as usize);
                        let ranks = [d1 as usize, d2 as usize];
                        let factors = TuckerFactors::hosvd(&weight, sizes, ranks).unwrap();
                        let approximate = factors.reconstruct();
                        let error = weight.iter().zip(&approximate).map(|(a, b)| a - b);
                        let expected = norm.of(&error.collect::<Vec<_>>(), taps);
                        let found = grid.loss([d1, d2]);
                        let all = norm.of(&weight, taps);
                        assert!(
                            (found - expected).abs() < 1e-9 * all,
                            "{shape:?} {d1} {d2}: {found} is not {expected}"
                        );
                    }
                }
                assert!(grid.loss([1, n]).is_finite());
                assert_eq!(grid.loss([c, n]), 0.0);
                assert_eq!(grid.loss([c + 1, n]), f64::INFINITY);
            }
        }
    }
}
