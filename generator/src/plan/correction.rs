//! Predicted times of launches, corrected by measured times of some of them.
//!
//! A measured launch takes its measured time. A prediction for another launch is multiplied by a ratio of measured to predicted time that is
//! interpolated between measured launches of its family: those that differ from it in the numbers of channels only. Near them the ratio is
//! theirs, far from them it is the mean of all measured launches of the same kind. So launches that were measured have no advantage over, or
//! disadvantage to, launches that were not, as far as the cost model errs alike for both.

use crate::ir::{ConvProblem, CpProblem, LinearProblem, NextFactor, Problem, TuckerProblem};
use std::collections::HashMap;
use std::mem::{Discriminant, discriminant};
use tdc_runtime::ConvShape;

/// The weight of the mean of all launches of a kind, relative to a measured launch of the family with twice the channels.
const KIND_WEIGHT: f64 = 1.0;

/// Launches nearer than this count as equally near: the fraction of an octave by which channels may differ.
const NEAR: f64 = 0.05;

/// Measured times, as corrections of predicted ones.
#[derive(Debug, Clone, Default)]
pub(crate) struct Correction {
    measured: HashMap<Problem, f64>,
    families: HashMap<Problem, Vec<Sample>>,
    /// Mean logarithm of the ratio, by kind of problem.
    kinds: HashMap<Discriminant<Problem>, f64>,
}

/// A measured launch of a family.
#[derive(Debug, Clone, Copy)]
struct Sample {
    /// Logarithms to base 2 of the numbers of channels.
    channels: [f64; CHANNELS],
    /// Logarithm of measured over predicted time.
    log_ratio: f64,
}

/// The most numbers of channels that a launch has: those of the four factors of a Tucker layer, and of the next layer's first one.
const CHANNELS: usize = 5;

impl Correction {
    /// From launches with their predicted and measured times, in microseconds.
    pub fn new(launches: impl IntoIterator<Item = (Problem, f64, f64)>) -> Self {
        let mut correction = Self::default();
        let mut sums: HashMap<Discriminant<Problem>, (f64, f64)> = HashMap::new();
        for (problem, predicted_us, measured_us) in launches {
            let problem = problem.measured();
            let log_ratio = (measured_us / predicted_us).ln();
            if !log_ratio.is_finite() || correction.measured.contains_key(&problem) {
                continue;
            }
            correction.measured.insert(problem, measured_us);
            let (family, channels) = family(&problem);
            let samples = correction.families.entry(family).or_default();
            samples.push(Sample {
                channels,
                log_ratio,
            });
            let (sum, count) = sums.entry(discriminant(&problem)).or_default();
            *sum += log_ratio;
            *count += 1.0;
        }
        let means = sums
            .into_iter()
            .map(|(kind, (sum, count))| (kind, sum / count));
        correction.kinds = means.collect();
        correction
    }

    /// Whether no launch was measured.
    pub fn is_empty(&self) -> bool {
        self.measured.is_empty()
    }

    /// Whether a launch was measured.
    pub fn is_measured(&self, problem: &Problem) -> bool {
        self.measured.contains_key(&problem.measured())
    }

    /// The time of a launch whose predicted time is given, microseconds.
    pub fn us(&self, problem: &Problem, predicted_us: f64) -> f64 {
        if self.is_empty() {
            return predicted_us;
        }
        let problem = problem.measured();
        if let Some(&us) = self.measured.get(&problem) {
            return us;
        }
        let kind = self.kinds.get(&discriminant(&problem)).copied();
        let (family, channels) = family(&problem);
        let mut weights = KIND_WEIGHT;
        let mut sum = KIND_WEIGHT * kind.unwrap_or(0.0);
        for sample in self.families.get(&family).into_iter().flatten() {
            let differences = channels.iter().zip(&sample.channels);
            let square: f64 = differences.map(|(a, b)| (a - b) * (a - b)).sum();
            let weight = 1.0 / (square + NEAR * NEAR);
            weights += weight;
            sum += weight * sample.log_ratio;
        }
        predicted_us * (sum / weights).exp()
    }
}

/// A problem without its numbers of channels, and these.
fn family(problem: &Problem) -> (Problem, [f64; CHANNELS]) {
    let of = |numbers: &[u32]| {
        let mut channels = [0.0; CHANNELS];
        for (channel, number) in channels.iter_mut().zip(numbers) {
            *channel = f64::from((*number).max(1)).log2();
        }
        channels
    };
    let without = |shape: ConvShape| ConvShape {
        c: 0,
        n: 0,
        ..shape
    };
    match *problem {
        Problem::Conv(conv) => {
            let channels = of(&[conv.shape.c, conv.shape.n]);
            let shape = without(conv.shape);
            (Problem::Conv(ConvProblem { shape, ..conv }), channels)
        }
        Problem::Linear(linear) => {
            let channels = of(&[linear.c, linear.n]);
            let family = LinearProblem {
                c: 0,
                n: 0,
                ..linear
            };
            (Problem::Linear(family), channels)
        }
        Problem::Tucker(tucker) => {
            let next = tucker.next.map_or(1, |next| next.n);
            let first = tucker.first.unwrap_or(1);
            let channels = of(&[first, tucker.core.c, tucker.core.n, tucker.n, next]);
            let family = TuckerProblem {
                core: without(tucker.core),
                first: tucker.first.map(|_| 0),
                n: 0,
                next: tucker.next.map(|next| NextFactor { n: 0, ..next }),
                ..tucker
            };
            (Problem::Tucker(family), channels)
        }
        Problem::Cp(cp) => {
            let channels = of(&[cp.conv.shape.c, cp.rank, cp.conv.shape.n]);
            let conv = ConvProblem {
                shape: without(cp.conv.shape),
                ..cp.conv
            };
            (Problem::Cp(CpProblem { conv, rank: 0 }), channels)
        }
        other => (other, of(&[])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conv(c: u32, n: u32, size: u32) -> Problem {
        let shape = ConvShape::new(c, n, size, size, 3, 3);
        Problem::Conv(ConvProblem::new(shape))
    }

    #[test]
    fn predictions_follow_the_measured_launches_around_them() {
        let none = Correction::default();
        assert_eq!(none.us(&conv(8, 8, 14), 3.0), 3.0);
        let correction = Correction::new([
            (conv(16, 32, 14), 2.0, 3.0),
            (conv(64, 32, 14), 4.0, 2.0),
            (conv(64, 32, 28), 5.0, 5.0),
        ]);
        // Measured launches take their measured time, whatever is predicted.
        assert_eq!(correction.us(&conv(16, 32, 14), 7.0), 3.0);
        assert!(correction.is_measured(&conv(64, 32, 28)));
        assert!(!correction.is_measured(&conv(64, 32, 7)));
        // Near a measured launch its ratio counts; between two, something between theirs.
        let ratio = |problem| correction.us(&problem, 1.0);
        assert!((ratio(conv(17, 32, 14)) - 1.5).abs() < 0.05);
        assert!((ratio(conv(63, 32, 14)) - 0.5).abs() < 0.02);
        let between = ratio(conv(32, 32, 14));
        assert!(between > 0.6 && between < 1.2, "{between}");
        // Another image is another family: the mean of all convolutions.
        let mean = (0.75f64).powf(1.0 / 3.0);
        assert!((ratio(conv(64, 32, 7)) - mean).abs() < 1e-12);
        // No convolution says anything about linear layers.
        let linear = Problem::Linear(LinearProblem {
            batch: 1,
            c: 64,
            n: 32,
            epilogue: Default::default(),
        });
        assert_eq!(ratio(linear), 1.0);
    }
}
