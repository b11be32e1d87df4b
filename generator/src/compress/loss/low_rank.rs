//! The losses of all ranks of a 1x1 convolution or a linear layer.

use super::grid::Norm;
use tdc_weights::{LowRankFactors, NoConvergence, inner_products, product, transposed};

/// The losses of a layer at all ranks.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LowRankLosses {
    /// By rank, from 0 on.
    losses: Vec<f64>,
}

impl LowRankLosses {
    /// For a weight [N, C].
    ///
    /// The singular value decomposition gives W as a sum of terms `last[:, k] first[k, :]`, and the weight of rank r is the sum of the first r.
    /// The error is the sum of the others, so its norm is the sum over their pairs of inner products, each of which is the product of an inner
    /// product of the columns of `last` and one of the rows of `first`.
    ///
    /// One of both has orthonormal vectors v, the other one products of them with W. Their inner products `(v W) D (v W)^T` are those of the rows
    /// of W, multiplied by v on both sides, which takes fewer operations than the products with W: v is the shorter side of W.
    pub(super) fn new(
        weight: &[f64],
        [c, n]: [u32; 2],
        norm: &Norm,
    ) -> Result<Self, NoConvergence> {
        let [c, n] = [c, n].map(|size| size as usize);
        let terms = n.min(c);
        let vectors = LowRankFactors::singular_vectors(weight, [n, c], terms)?;
        let of_products = |rows: &[f64], weights: &[f64]| {
            let of_rows = inner_products(rows, weights);
            let size = [terms; 3];
            let half = product(size, &vectors, &of_rows);
            product(size, &half, &transposed(&vectors, terms, terms))
        };
        let dots = |rows: &[f64], with: &[f64]| -> Vec<f64> {
            let rows = rows.chunks(with.len());
            rows.map(|row| row.iter().zip(with).map(|(a, b)| a * b).sum())
                .collect()
        };
        let (of_columns, of_rows, means) = match n < c {
            true => (
                inner_products(&vectors, &norm.output),
                of_products(weight, &norm.variance),
                dots(&vectors, &dots(weight, &norm.mean)),
            ),
            false => (
                of_products(&transposed(weight, n, c), &norm.output),
                inner_products(&vectors, &norm.variance),
                dots(&vectors, &norm.mean),
            ),
        };
        let pair = |k: usize, l: usize| {
            of_columns[k * terms + l] * (of_rows[k * terms + l] + means[k] * means[l])
        };
        // From the last term on, each adds its pairs with itself and with the later ones.
        let mut losses = vec![0.0; terms + 1];
        for k in (0..terms).rev() {
            let later: f64 = (k + 1..terms).map(|l| pair(k, l)).sum();
            losses[k] = losses[k + 1] + pair(k, k) + 2.0 * later;
        }
        for loss in &mut losses {
            // A weight whose squares overflow has no loss that could be compared.
            *loss = match loss.is_finite() {
                true => loss.max(0.0),
                false => f64::INFINITY,
            };
        }
        Ok(Self { losses })
    }

    /// The loss at a rank; infinite for one that is larger than that of the weight.
    pub(super) fn loss(&self, rank: u32) -> f64 {
        let loss = self.losses.get(rank as usize);
        loss.copied().unwrap_or(f64::INFINITY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_those_of_the_factors() {
        let mut state = 5u64;
        let mut random = || {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
        };
        for [c, n] in [[7, 5], [4, 11], [6, 6], [1, 3]] {
            let mut values = |len: u32| -> Vec<f64> { (0..len).map(|_| random()).collect() };
            let weight = values(n * c);
            let norm = Norm {
                mean: values(c),
                variance: values(c).into_iter().map(|v| v * v + 0.1).collect(),
                output: values(n).into_iter().map(|v| 3.0 * v * v + 0.01).collect(),
            };
            for norm in [&norm, &Norm::relative(&weight, [c, n])] {
                let losses = LowRankLosses::new(&weight, [c, n], norm).unwrap();
                for rank in 1..=c.min(n) {
                    let sizes = [n as usize, c as usize];
                    let factors = LowRankFactors::svd(&weight, sizes, rank as usize).unwrap();
                    let approximate = factors.reconstruct();
                    let error = weight.iter().zip(&approximate).map(|(a, b)| a - b);
                    let expected = norm.of(&error.collect::<Vec<_>>(), 1);
                    let found = losses.loss(rank);
                    let all = norm.of(&weight, 1);
                    assert!(
                        (found - expected).abs() < 1e-9 * all,
                        "{c} {n} {rank}: {found} is not {expected}"
                    );
                }
                assert_eq!(losses.loss(c.min(n)), 0.0);
                assert_eq!(losses.loss(c.min(n) + 1), f64::INFINITY);
            }
        }
    }
}
