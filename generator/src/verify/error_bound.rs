//! The largest error that the values of a network may have.

use super::Deviation;
use super::reference::{NetworkParameters, evaluate_network_with_errors};
use crate::ir::{Network, OpId, Precision, Problem};
use crate::plan::{LayerPlan, Memory, NetworkPlan};
use std::cell::OnceCell;

/// The largest relative L2 error of the values of a network that does not amplify errors: ten times that of its least precise unit, which
/// is 1e-5 in fp32. A conversion to the format of an output does not count: the bound of that output is larger by what
/// [rounding](crate::ir::DType::rounding_error) to its type adds.
///
/// A layer of such a network passes on the relative error of its input almost unchanged, and the errors that layers add are independent.
/// After L layers the error is therefore sqrt(L) times that of one. Ten times corresponds to a hundred layers, each at its bound.
pub fn network_tolerance(plan: &NetworkPlan) -> f64 {
    10.0 * unit_tolerance(plan)
}

/// The bound of the least precise unit.
fn unit_tolerance(plan: &NetworkPlan) -> f64 {
    let problem = |layer: &LayerPlan| plan.units[layer.unit].problem;
    let converts_output = |layer: &&LayerPlan| {
        matches!(layer.y.memory, Memory::Output { .. })
            && matches!(problem(layer), Problem::Convert(_))
    };
    let layers = plan.layers.iter().filter(|layer| !converts_output(layer));
    let of_layers = layers.map(|layer| problem(layer).kind().min_tolerance());
    of_layers.fold(Precision::Fp32.tolerance(), f64::max)
}

/// The bounds of all values of a network for given inputs.
///
/// Some networks amplify errors. With random weights, random errors of 1e-7 in each layer of MobileNet-v2 become 2e-5. The bound of a value
/// is therefore at least twice the error that it has where all convolutions and linear layers have random errors as large as the bound of
/// the network's least precise unit: twice, because these errors and those that were found are samples.
pub(super) struct ErrorBound<'a> {
    network: &'a Network,
    parameters: &'a dyn NetworkParameters,
    inputs: &'a [Vec<f64>],
    /// Exact outputs of all ops.
    exact: &'a [Vec<f64>],
    unit_tolerance: f64,
    network_tolerance: f64,
    /// The errors of the outputs of all ops where layers have random errors. Seldom needed, and slower than the reference.
    amplified: OnceCell<Vec<f64>>,
}

impl<'a> ErrorBound<'a> {
    /// No bound is larger: values with such an error have little to do with the exact ones.
    const MOST: f64 = 0.5;
    /// Evaluations with random errors. One alone may have small errors by chance in a layer of few values.
    const SAMPLES: u64 = 3;

    pub(super) fn new(
        network: &'a Network,
        plan: &NetworkPlan,
        parameters: &'a dyn NetworkParameters,
        inputs: &'a [Vec<f64>],
        exact: &'a [Vec<f64>],
    ) -> Self {
        Self {
            network,
            parameters,
            inputs,
            exact,
            unit_tolerance: unit_tolerance(plan),
            network_tolerance: network_tolerance(plan),
            amplified: OnceCell::new(),
        }
    }

    /// The bound of an op's output with this error. `rounding` is what storing it in another type may add.
    pub(super) fn of(&self, op: OpId, deviation: &Deviation, rounding: f64) -> f64 {
        let least = self.network_tolerance + rounding;
        if deviation.relative <= least {
            return least;
        }
        let amplified = self.amplified.get_or_init(|| self.amplified_errors())[op.0];
        least.max((2.0 * amplified + rounding).min(Self::MOST))
    }

    /// Whether a value exceeded the [`network_tolerance`].
    pub(super) fn is_exceeded(&self) -> bool {
        self.amplified.get().is_some()
    }

    /// The root mean squares of the relative errors of all ops' outputs in the evaluations with random errors; 0 for an output that is zero.
    fn amplified_errors(&self) -> Vec<f64> {
        let mut squares = vec![0.0; self.exact.len()];
        for seed in 0..Self::SAMPLES {
            let changed = evaluate_network_with_errors(
                self.network,
                self.parameters,
                self.inputs,
                self.unit_tolerance,
                seed,
            );
            for ((square, exact), changed) in squares.iter_mut().zip(self.exact).zip(&changed) {
                let norm: f64 = exact.iter().map(|value| value * value).sum();
                let pairs = exact.iter().zip(changed);
                let error: f64 = pairs
                    .map(|(exact, changed)| (changed - exact).powi(2))
                    .sum();
                if norm > 0.0 {
                    *square += error / norm / Self::SAMPLES as f64;
                }
            }
        }
        squares.into_iter().map(f64::sqrt).collect()
    }
}
