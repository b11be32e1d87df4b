//! The loss of a convolution at a CP rank.

use super::grid::Norm;
use tdc_runtime::ConvShape;
use tdc_weights::{CpFactors, NoConvergence};

/// For a weight in OIHW. The factors of a rank are no part of those of a larger one, so each rank is factorised like `pack` does it, by
/// alternating least squares.
pub(super) fn cp_loss(
    weight: &[f64],
    shape: &ConvShape,
    norm: &Norm,
    rank: u32,
) -> Result<f64, NoConvergence> {
    let sizes = shape.weight().map(|size| size as usize);
    let factors = CpFactors::als(weight, sizes, rank as usize)?;
    let approximate = factors.reconstruct();
    let error: Vec<f64> = weight
        .iter()
        .zip(&approximate)
        .map(|(w, a)| w - a)
        .collect();
    Ok(norm.of(&error, sizes[2] * sizes[3]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_those_of_the_factors() {
        let mut state = 7u64;
        let mut random = || {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
        };
        for (n, c, r, s) in [(7, 5, 3, 3), (4, 11, 1, 3)] {
            let shape = ConvShape::new(c, n, 9, 9, r, s);
            let mut values = |len: u32| -> Vec<f64> { (0..len).map(|_| random()).collect() };
            let weight = values(n * c * r * s);
            let norm = Norm {
                mean: values(c),
                variance: values(c).into_iter().map(|v| v * v + 0.1).collect(),
                output: values(n).into_iter().map(|v| 3.0 * v * v + 0.01).collect(),
            };
            for rank in [2, 3, 6] {
                let sizes = [n, c, r, s].map(|size| size as usize);
                let factors = CpFactors::als(&weight, sizes, rank as usize).unwrap();
                // By the definition of the norm: the mean square of the error of an output is that of its mean and its deviation.
                let approximate = factors.reconstruct();
                let taps = (r * s) as usize;
                let mut expected = 0.0;
                for o in 0..n as usize {
                    let (mut mean, mut variance) = (0.0, 0.0);
                    for i in 0..c as usize {
                        for t in 0..taps {
                            let at = (o * c as usize + i) * taps + t;
                            let error = weight[at] - approximate[at];
                            mean += error * norm.mean[i];
                            variance += error * error * norm.variance[i];
                        }
                    }
                    expected += norm.output[o] * (mean * mean + variance);
                }
                let found = cp_loss(&weight, &shape, &norm, rank).unwrap();
                assert!((found - expected).abs() < 1e-12 * norm.of(&weight, taps));
                assert!(found > 0.0);
            }
        }
    }
}
