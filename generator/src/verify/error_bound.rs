//! The largest error that the values of a network may have.

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
    10.0 * layer_tolerance(plan)
}

/// The relative error that the least precise unit may have.
fn layer_tolerance(plan: &NetworkPlan) -> f64 {
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
/// Some networks amplify errors. With random weights, errors of 1e-7 in each layer of MobileNet-v2 become 1e-5, in any implementation.
/// The bound of a value is therefore at least twice the error that it has where every layer before it has a random error as large as its
/// bound: twice, because the error that was found and this one are each one sample of what random errors can cause.
pub(super) struct ErrorBound<'a> {
    network: &'a Network,
    parameters: &'a dyn NetworkParameters,
    inputs: &'a [Vec<f64>],
    /// Exact outputs of all ops.
    exact: &'a [Vec<f64>],
    layer_tolerance: f64,
    network_tolerance: f64,
    /// Outputs of all ops where the layers have errors. It takes as long as the reference and is seldom needed.
    with_errors: OnceCell<Vec<Vec<f64>>>,
}

impl<'a> ErrorBound<'a> {
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
            layer_tolerance: layer_tolerance(plan),
            network_tolerance: network_tolerance(plan),
            with_errors: OnceCell::new(),
        }
    }

    /// The bound of an op's output, whose error is `found`.
    pub(super) fn of(&self, op: OpId, found: f64) -> f64 {
        if found <= self.network_tolerance {
            return self.network_tolerance;
        }
        self.network_tolerance.max(2.0 * self.amplified(op))
    }

    /// The relative L2 error of an op's output where layers have errors.
    fn amplified(&self, op: OpId) -> f64 {
        let with_errors = self.with_errors.get_or_init(|| {
            let error = self.layer_tolerance;
            evaluate_network_with_errors(self.network, self.parameters, self.inputs, error)
        });
        let (mut error, mut norm) = (0.0, 0.0);
        for (exact, disturbed) in self.exact[op.0].iter().zip(&with_errors[op.0]) {
            error += (disturbed - exact).powi(2);
            norm += exact.powi(2);
        }
        if error == 0.0 {
            0.0
        } else {
            (error / norm).sqrt()
        }
    }
}
