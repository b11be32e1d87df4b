//! Checks complete networks.

use super::error_bound::ErrorBound;
use super::network_buffers::NetworkBuffers;
use super::reference::{self, NetworkParameters};
use super::stored_tensor::rounded_to;
use super::{CheckFailure, Deviation, Device, DeviceError, Random, run_variant};
use crate::ir::{Network, OpId};
use crate::plan::{Memory, NetworkPlan, PlannedTensor};
use std::collections::HashMap;

/// The result of checking a complete network.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NetworkCheck {
    /// Deviation of each op's output that a layer wrote, in order: name of the layer, name of the op,
    /// deviation.
    pub layers: Vec<(String, String, Deviation)>,
    /// The first layer that failed, with the failure.
    pub failure: Option<(String, CheckFailure)>,
    /// Whether a value exceeds [`network_tolerance`](super::network_tolerance). Without a failure the network amplifies errors, so that larger
    /// ones are allowed.
    pub exceeds_tolerance: bool,
    /// The outputs of the network in order, as dense NCHW values.
    pub outputs: Vec<Vec<f32>>,
}

impl NetworkCheck {
    /// Adds the deviation of an op's output that a layer wrote. Returns whether it is within the tolerance.
    fn add(&mut self, layer: &str, output_op: &str, deviation: Deviation, tolerance: f64) -> bool {
        let (layer, output_op) = (layer.to_owned(), output_op.to_owned());
        let is_accurate = self.compare(&layer, &deviation, tolerance);
        self.layers.push((layer, output_op, deviation));
        is_accurate
    }

    /// Notes a failure, if it is the first one, unless the deviation is within the tolerance. Returns whether it is.
    fn compare(&mut self, name: &str, deviation: &Deviation, tolerance: f64) -> bool {
        let is_accurate = deviation.relative <= tolerance;
        if !is_accurate {
            let deviation = deviation.clone();
            let failure = CheckFailure::Inaccurate {
                deviation,
                tolerance,
            };
            self.failure.get_or_insert((name.to_owned(), failure));
        }
        is_accurate
    }
}

/// Random values of an input, NCHW: in [-1, 1), or whole numbers from 0 to 255.
pub fn random_input(input: &PlannedTensor, random: &mut Random) -> Vec<f32> {
    rounded_to(input.format, random.values(input.shape.len() as usize))
}

/// Runs a planned network on given inputs and compares every value with the reference as soon as it is written.
///
/// `packed` is the payload of the weight file, in floats.
///
/// # Errors
/// [`DeviceError`] if memory or copies fail. Incorrect values are part of the result.
pub fn check_network(
    device: &mut dyn Device,
    network: &Network,
    plan: &NetworkPlan,
    parameters: &dyn NetworkParameters,
    packed: &[f32],
    inputs: &[Vec<f32>],
) -> Result<NetworkCheck, DeviceError> {
    let double = |input: &Vec<f32>| input.iter().map(|&v| f64::from(v)).collect();
    let double: Vec<Vec<f64>> = inputs.iter().map(double).collect();
    let expected = reference::evaluate_network(network, parameters, &double);
    let reference = Reference {
        network,
        plan,
        bound: ErrorBound::new(network, plan, parameters, &double, &expected),
        expected: &expected,
    };
    let result = NetworkBuffers::new(device, plan, packed, inputs)
        .and_then(|buffers| reference.check(device, &buffers));
    device.free_all();
    result
}

/// What the values of a network are compared with.
struct Reference<'a> {
    network: &'a Network,
    plan: &'a NetworkPlan,
    /// Outputs of all ops.
    expected: &'a [Vec<f64>],
    bound: ErrorBound<'a>,
}

impl Reference<'_> {
    fn check(
        &self,
        device: &mut dyn Device,
        buffers: &NetworkBuffers,
    ) -> Result<NetworkCheck, DeviceError> {
        let mut check = NetworkCheck::default();
        self.check_layers(device, buffers, &mut check)?;
        let modified = buffers.modified_elements(device)?;
        if modified > 0 {
            let failure = CheckFailure::OutOfBounds(modified);
            check
                .failure
                .get_or_insert((self.plan.name.clone(), failure));
        }
        // No layer may write all of an output, as of a concatenation.
        for (index, output) in self.network.outputs.iter().enumerate() {
            let (op, shape) = (output.op, self.network.op(output.op).y);
            let found = buffers.read_output(device, index, shape, output.format)?;
            let deviation = Deviation::between(shape, &found, &self.expected[op.0]);
            let rounding = output.format.dtype.rounding_error();
            let tolerance = self.bound.of(op, &deviation, rounding);
            check.compare(&output.name, &deviation, tolerance);
            check.outputs.push(found);
        }
        check.exceeds_tolerance = self.bound.is_exceeded();
        Ok(check)
    }

    /// Runs the layers in order, up to the first one that is not accurate.
    fn check_layers(
        &self,
        device: &mut dyn Device,
        buffers: &NetworkBuffers,
        check: &mut NetworkCheck,
    ) -> Result<(), DeviceError> {
        let ops = self.network.ops.iter().enumerate();
        let ops: HashMap<&str, OpId> = ops
            .map(|(index, op)| (op.name.as_str(), OpId(index)))
            .collect();
        for layer in self.plan.late_order() {
            let layer = &self.plan.layers[layer];
            let variant = self.plan.units[layer.unit].variant();
            run_variant(device, variant, &buffers.bindings(self.plan, layer))?;
            for (output_op, y) in layer.outputs() {
                let Some(&op) = ops.get(output_op) else {
                    continue;
                };
                let found = buffers.read(device, y)?;
                let deviation = Deviation::between(y.shape, &found, &self.expected[op.0]);
                let rounding = match y.memory {
                    Memory::Output { .. } => y.format.dtype.rounding_error(),
                    _ => 0.0,
                };
                let tolerance = self.bound.of(op, &deviation, rounding);
                if !check.add(&layer.name, output_op, deviation, tolerance) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
