//! CP decomposition of a convolution's weight, by alternating least squares.

use crate::matrix::{
    NoConvergence, leading_singular_vectors, norm, power_of_two_below, product, relative_error,
    transposed,
};
use crate::random::SplitMix64;
use crate::tucker::input_unfolding;

/// A weight W [O, I, R, S] as the sum of `rank` outer products of four vectors (Reustle, Rabbani and Huang, eq. 1).
///
/// `W[o, i, r, s]` is the sum over k of `last[o, k] * first[k, i] * vertical[k, r] * horizontal[k, s]`. The
/// four vectors of each k have equal norms.
#[derive(Debug, Clone, PartialEq)]
pub struct CpFactors {
    /// O, I, R, S.
    pub shape: [usize; 4],
    /// Number of outer products.
    pub rank: usize,
    /// [K, I]: the paper's S transposed.
    pub first: Vec<f64>,
    /// [K, R]: H transposed.
    pub vertical: Vec<f64>,
    /// [K, S]: W transposed.
    pub horizontal: Vec<f64>,
    /// [O, K]: T.
    pub last: Vec<f64>,
}

/// Number of starts of the iteration: one from the singular vectors of the unfoldings, the others from random
/// vectors.
const STARTS: usize = 4;

/// Maximal number of rounds of the most promising start; the others have a quarter of that.
const MAX_ROUNDS: usize = 400;

/// Maximal number of multiply-adds of all rounds, and minimal number of rounds regardless of it.
const MAX_MULTIPLY_ADDS: usize = 400_000_000_000;
const MIN_ROUNDS: usize = 20;

impl CpFactors {
    /// A CP decomposition of `weight` (OIHW), by alternating least squares (Kolda and Bader 2009, section
    /// 3.4): each factor in turn is optimised for the three others. The result is a local optimum, the best
    /// of several starts. For a given rank an optimum need not exist; then
    /// [`cancellation`](Self::cancellation) is large. The result is the same in every run.
    ///
    /// # Errors
    /// [`NoConvergence`] if an eigenvalue iteration fails or a value is not finite.
    ///
    /// # Panics
    /// If the length of `weight` is not that of `shape`, or if `rank` is 0.
    pub fn als(weight: &[f64], shape: [usize; 4], rank: usize) -> Result<Self, NoConvergence> {
        let [o, i, r, s] = shape;
        assert_eq!(weight.len(), o * i * r * s, "weight of shape {shape:?}");
        assert!(rank > 0, "a CP form of rank 0");
        if !weight.iter().all(|v| v.is_finite()) {
            return Err(NoConvergence);
        }
        let scale = power_of_two_below(weight.iter().fold(0.0, |max, v| v.abs().max(max)));
        let scaled: Vec<_> = weight.iter().map(|v| v / scale).collect();
        let iteration = AlsSolver::new(scaled, shape, rank);
        let round = 2 * rank * weight.len().max(1);
        let rounds = (MAX_MULTIPLY_ADDS / round / 2).clamp(MIN_ROUNDS, MAX_ROUNDS);
        let mut best: Option<ModeVectors> = None;
        for start in 0..STARTS {
            let mut modes = iteration.start(start)?;
            iteration.improve(&mut modes, rounds / 4);
            if best.as_ref().is_none_or(|best| modes.error < best.error) {
                best = Some(modes);
            }
        }
        let mut best = best.ok_or(NoConvergence)?;
        iteration.improve(&mut best, rounds);
        Ok(iteration.balanced(&best, scale))
    }

    /// The dense weight in OIHW that the factors represent.
    pub fn reconstruct(&self) -> Vec<f64> {
        let [o, i, r, s] = self.shape;
        let outer = outer_products(self.rank, [&self.first, &self.vertical, &self.horizontal]);
        product([o, self.rank, i * r * s], &self.last, &outer)
    }

    /// `|weight - reconstruct()| / |weight|` in the Frobenius norm; 0 if both are zero.
    ///
    /// # Panics
    /// If `weight` and the reconstruction differ in length.
    pub fn relative_error(&self, weight: &[f64]) -> f64 {
        relative_error(weight, &self.reconstruct())
    }

    /// Ratio of the outer products to their sum: the root of the sum of their squared norms over the norm of
    /// the sum. It is about 1 if they are independent. If it is large they cancel each other, and the error
    /// of rounding them to fp32 grows by this factor.
    pub fn cancellation(&self) -> f64 {
        let [o, i, r, s] = self.shape;
        let last = transposed(&self.last, o, self.rank);
        let modes = [
            (&last, o),
            (&self.first, i),
            (&self.vertical, r),
            (&self.horizontal, s),
        ];
        let of_term = |k: usize| {
            let norms = modes.map(|(mode, size)| norm(mode[k * size..][..size].iter().copied()));
            norms.into_iter().product::<f64>()
        };
        let terms = norm((0..self.rank).map(of_term).collect::<Vec<_>>().into_iter());
        let sum = norm(self.reconstruct().into_iter());
        match terms == sum {
            true => 1.0,
            false => terms / sum,
        }
    }
}

/// The vectors of each mode during the iteration: [K, O], [K, I], [K, R], [K, S]. All except those of O have
/// norm 1.
struct ModeVectors {
    vectors: [Vec<f64>; 4],
    /// `|W - sum|^2`, computed by subtraction.
    error: f64,
}

struct AlsSolver {
    weight: Vec<f64>,
    /// [I * R * S, O].
    transposed: Vec<f64>,
    shape: [usize; 4],
    rank: usize,
    squared_norm: f64,
}

impl AlsSolver {
    fn new(weight: Vec<f64>, shape: [usize; 4], rank: usize) -> Self {
        let [o, i, r, s] = shape;
        Self {
            transposed: transposed(&weight, o, i * r * s),
            squared_norm: weight.iter().map(|v| v * v).sum(),
            weight,
            shape,
            rank,
        }
    }

    /// Initial vectors: the leading singular vectors of both channel unfoldings, as far as there are enough,
    /// else random ones.
    fn start(&self, start: usize) -> Result<ModeVectors, NoConvergence> {
        let [o, i, ..] = self.shape;
        let mut vectors = [0, 1, 2, 3].map(|mode| {
            let mut numbers = SplitMix64::for_tensor(start as u64, &mode.to_string());
            let values = (0..self.rank * self.shape[mode]).map(|_| numbers.around_zero());
            values.collect::<Vec<_>>()
        });
        if start == 0 {
            let unfoldings = [
                (0, o, self.weight.clone()),
                (1, i, input_unfolding(&self.weight, self.shape)),
            ];
            for (mode, size, unfolding) in unfoldings {
                let known = leading_singular_vectors(&unfolding, size, self.rank.min(size))?;
                vectors[mode][..known.len()].copy_from_slice(&known);
            }
        }
        for (vectors, size) in vectors.iter_mut().zip(self.shape) {
            normalise(vectors, size);
        }
        Ok(ModeVectors {
            vectors,
            error: f64::INFINITY,
        })
    }

    /// Runs `rounds` rounds over the modes, or until a round improves too little.
    fn improve(&self, modes: &mut ModeVectors, rounds: usize) {
        let [o, i, r, s] = self.shape;
        let rank = self.rank;
        for _ in 0..rounds {
            // The product of the weight and the vectors of O is used for the three other modes.
            normalise(&mut modes.vectors[0], o);
            let narrowed = product([rank, o, i * r * s], &modes.vectors[0], &self.weight);
            for mode in 1..4 {
                let mut sums = vec![0.0; rank * self.shape[mode]];
                for (k, slice) in narrowed.chunks_exact(i * r * s).enumerate() {
                    let [_, first, vertical, horizontal] = &modes.vectors;
                    let (first, vertical, horizontal) =
                        (&first[k * i..], &vertical[k * r..], &horizontal[k * s..]);
                    let sums = &mut sums[k * self.shape[mode]..];
                    for (at, value) in slice.iter().enumerate() {
                        let (a, b, c) = (at / (r * s), at / s % r, at % s);
                        match mode {
                            1 => sums[a] += value * vertical[b] * horizontal[c],
                            2 => sums[b] += value * first[a] * horizontal[c],
                            _ => sums[c] += value * first[a] * vertical[b],
                        }
                    }
                }
                self.solve(modes, mode, sums);
                normalise(&mut modes.vectors[mode], self.shape[mode]);
            }
            let [_, first, vertical, horizontal] = &modes.vectors;
            let outer = outer_products(rank, [first, vertical, horizontal]);
            let sums = product([rank, i * r * s, o], &outer, &self.transposed);
            self.solve(modes, 0, sums.clone());
            let last = &modes.vectors[0];
            let with_weight: f64 = sums.iter().zip(last).map(|(a, b)| a * b).sum();
            let all = self.gram(modes, None);
            let before = modes.error;
            modes.error = self.squared_norm - 2.0 * with_weight + all.iter().sum::<f64>();
            let gained = before - modes.error;
            if modes.error <= 1e-18 * self.squared_norm || gained < 1e-5 * modes.error {
                break;
            }
        }
    }

    /// The optimal vectors of a mode for given others: the normal equations, slightly regularised.
    fn solve(&self, modes: &mut ModeVectors, mode: usize, sums: Vec<f64>) {
        let gram = self.gram(modes, Some(mode));
        modes.vectors[mode] = solve_positive(gram, self.rank, sums);
    }

    /// Inner products of all pairs of outer products, [K, K], without one mode.
    fn gram(&self, modes: &ModeVectors, without: Option<usize>) -> Vec<f64> {
        let mut gram = vec![1.0; self.rank * self.rank];
        for (mode, vectors) in modes.vectors.iter().enumerate() {
            if without == Some(mode) {
                continue;
            }
            let size = self.shape[mode];
            let own = product(
                [self.rank, size, self.rank],
                vectors,
                &transposed(vectors, self.rank, size),
            );
            for (value, own) in gram.iter_mut().zip(own) {
                *value *= own;
            }
        }
        gram
    }

    /// The factors of the scaled weight times `scale`. The four vectors of each k have equal norms; outer
    /// products are sorted by norm, the largest first; the largest component (the first one in case of ties)
    /// of each vector except those of `last` is positive.
    fn balanced(&self, modes: &ModeVectors, scale: f64) -> CpFactors {
        let rank = self.rank;
        let size = |mode: usize| self.shape[mode];
        let vector = |mode: usize, k: usize| &modes.vectors[mode][k * size(mode)..][..size(mode)];
        let norms = |k: usize| [0, 1, 2, 3].map(|mode| norm(vector(mode, k).iter().copied()));
        let length = |k: usize| norms(k).into_iter().product::<f64>() * scale;
        let mut order: Vec<usize> = (0..rank).collect();
        order.sort_by(|&a, &b| length(b).total_cmp(&length(a)));
        let mut balanced = [0, 1, 2, 3].map(|mode| Vec::with_capacity(rank * size(mode)));
        for k in order {
            let root = length(k).sqrt().sqrt();
            let mut sign_of_last = 1.0;
            for mode in [1, 2, 3, 0] {
                let values = vector(mode, k);
                let largest = values
                    .iter()
                    .fold(0.0_f64, |max, &v| if v.abs() > max.abs() { v } else { max });
                let sign = match mode {
                    0 => sign_of_last,
                    _ if largest < 0.0 => -1.0,
                    _ => 1.0,
                };
                sign_of_last *= sign;
                let norm = norms(k)[mode];
                let factor = if norm > 0.0 { sign * root / norm } else { 0.0 };
                balanced[mode].extend(values.iter().map(|v| v * factor));
            }
        }
        let [last, first, vertical, horizontal] = balanced;
        CpFactors {
            shape: self.shape,
            rank,
            first,
            vertical,
            horizontal,
            last: transposed(&last, rank, size(0)),
        }
    }
}

/// The outer product of the three vectors of each k, [K, I * R * S].
fn outer_products(rank: usize, [first, vertical, horizontal]: [&Vec<f64>; 3]) -> Vec<f64> {
    let [i, r, s] = [first, vertical, horizontal].map(|vectors| vectors.len() / rank);
    let mut outer = Vec::with_capacity(rank * i * r * s);
    for k in 0..rank {
        for a in &first[k * i..][..i] {
            for b in &vertical[k * r..][..r] {
                outer.extend(horizontal[k * s..][..s].iter().map(|c| a * b * c));
            }
        }
    }
    outer
}

/// Scales each vector of `size` values to norm 1; zero vectors are unchanged.
fn normalise(vectors: &mut [f64], size: usize) {
    for vector in vectors.chunks_exact_mut(size.max(1)) {
        let length = norm(vector.iter().copied());
        if length > 0.0 {
            vector.iter_mut().for_each(|value| *value /= length);
        }
    }
}

/// Solves `A X = B` for a positive semidefinite A [K, K] and B [K, any] by Cholesky factorisation of A plus a
/// multiple of the identity that is so small that it matters only in directions in which A is nearly
/// singular.
fn solve_positive(mut a: Vec<f64>, rank: usize, mut b: Vec<f64>) -> Vec<f64> {
    let trace: f64 = (0..rank).map(|k| a[k * rank + k]).sum();
    let ridge = 1e-13 * trace.max(f64::MIN_POSITIVE);
    for k in 0..rank {
        a[k * rank + k] += ridge;
    }
    let columns = b.len() / rank;
    for k in 0..rank {
        for j in 0..=k {
            let before: f64 = (0..j).map(|t| a[k * rank + t] * a[j * rank + t]).sum();
            let rest = a[k * rank + j] - before;
            a[k * rank + j] = match j == k {
                true => rest.max(ridge).sqrt(),
                false => rest / a[j * rank + j],
            };
        }
    }
    for k in 0..rank {
        let (above, row) = b.split_at_mut(k * columns);
        for (t, other) in above.chunks_exact(columns).enumerate() {
            let factor = a[k * rank + t];
            for (value, other) in row.iter_mut().zip(other) {
                *value -= factor * other;
            }
        }
        row[..columns]
            .iter_mut()
            .for_each(|value| *value /= a[k * rank + k]);
    }
    for k in (0..rank).rev() {
        let (row, below) = b[k * columns..].split_at_mut(columns);
        for (t, other) in below.chunks_exact(columns).enumerate() {
            let factor = a[(k + 1 + t) * rank + k];
            for (value, other) in row.iter_mut().zip(other) {
                *value -= factor * other;
            }
        }
        row.iter_mut().for_each(|value| *value /= a[k * rank + k]);
    }
    b
}
