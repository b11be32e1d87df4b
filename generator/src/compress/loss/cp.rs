//! The losses of some CP ranks of a convolution.

use super::grid::Norm;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use tdc_runtime::ConvShape;
use tdc_weights::{CpFactors, NoConvergence};

/// The losses of a layer at some CP ranks.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct CpLosses {
    losses: BTreeMap<u32, f64>,
}

impl CpLosses {
    /// For a weight in OIHW.
    ///
    /// The factors of a rank are no part of those of a larger one, so each rank is factorised like `pack` does it, by alternating least
    /// squares. Several ranks are factorised at a time, one on each processor.
    pub(super) fn new(
        weight: &[f64],
        shape: &ConvShape,
        norm: &Norm,
        ranks: &[u32],
    ) -> Result<Self, NoConvergence> {
        let sizes = shape.weight().map(|size| size as usize);
        let taps = sizes[2] * sizes[3];
        let loss = |rank: u32| {
            let factors = CpFactors::als(weight, sizes, rank as usize)?;
            let approximate = factors.reconstruct();
            let error = weight.iter().zip(&approximate).map(|(w, a)| w - a);
            Ok((rank, norm.of(&error.collect::<Vec<_>>(), taps)))
        };
        let mut ranks = ranks.to_vec();
        ranks.sort_unstable();
        ranks.dedup();
        let next = AtomicUsize::new(0);
        // The largest ranks, which take longest, first.
        let work = || -> Result<Vec<(u32, f64)>, NoConvergence> {
            let mut losses = Vec::new();
            while let Some(&rank) = ranks.iter().rev().nth(next.fetch_add(1, Ordering::Relaxed)) {
                losses.push(loss(rank)?);
            }
            Ok(losses)
        };
        let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let found = thread::scope(|scope| {
            let others: Vec<_> = (1..threads.min(ranks.len()))
                .map(|_| scope.spawn(work))
                .collect();
            let mut all = work()?;
            for thread in others {
                all.extend(thread.join().expect("a factorisation does not panic")?);
            }
            Ok(all)
        })?;
        Ok(Self {
            losses: found.into_iter().collect(),
        })
    }

    /// The loss at a rank, if it was computed.
    pub(super) fn loss(&self, rank: u32) -> Option<f64> {
        self.losses.get(&rank).copied()
    }
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
            let losses = CpLosses::new(&weight, &shape, &norm, &[6, 2, 3, 2]).unwrap();
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
                let found = losses.loss(rank).unwrap();
                assert!((found - expected).abs() < 1e-12 * norm.of(&weight, taps));
                assert!(found > 0.0);
            }
            assert_eq!(losses.loss(4), None);
        }
    }
}
