//! Checks complete networks.

use super::error_bound::ErrorBound;
use super::guarded_buffer::{GuardedBuffer, INPUT_POISON, MARGIN, OUTPUT_POISON};
use super::reference::{self, NetworkParameters};
use super::stored_tensor::{rounded_to, stored_words, values_of_words, word_count};
use super::{Bindings, CheckFailure, Deviation, Device, DeviceError, Random, run_variant};
use crate::ir::{Format, Network, OpId, Tensor};
use crate::plan::{Location, Memory, NetworkPlan, PlannedTensor};
use std::collections::HashMap;

/// The result of checking a complete network.
#[derive(Debug, Clone, PartialEq)]
pub struct NetworkCheck {
    /// Deviation of each op's output that a layer wrote, in order: name of the layer, name of the op,
    /// deviation.
    pub layers: Vec<(String, String, Deviation)>,
    /// The first layer that failed, with the failure.
    pub failure: Option<(String, CheckFailure)>,
    /// The outputs of the network in order, as dense NCHW values.
    pub outputs: Vec<Vec<f32>>,
}

impl NetworkCheck {
    /// Adds the deviation of an op's output, and a failure if it exceeds the tolerance. Returns whether it does not.
    fn add(&mut self, layer: &str, output_op: &str, deviation: Deviation, tolerance: f64) -> bool {
        let is_accurate = deviation.relative <= tolerance;
        let (layer, output_op) = (layer.to_owned(), output_op.to_owned());
        if !is_accurate {
            let failure = CheckFailure::Inaccurate {
                deviation: deviation.clone(),
                tolerance,
            };
            self.failure = Some((layer.clone(), failure));
        }
        self.layers.push((layer, output_op, deviation));
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
    let result = check_network_layers(device, network, plan, parameters, packed, inputs);
    device.free_all();
    result
}

fn check_network_layers(
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
    let op_index: HashMap<&str, OpId> = network
        .ops
        .iter()
        .enumerate()
        .map(|(index, op)| (op.name.as_str(), OpId(index)))
        .collect();

    let mut input_buffers = Vec::new();
    for (planned, input) in plan.inputs.iter().zip(inputs) {
        let words = stored_words(Tensor::new(planned.shape, planned.format), input);
        let mut x = GuardedBuffer::new(device, words.len(), INPUT_POISON)?;
        x.write(device, 0, &words)?;
        input_buffers.push(x);
    }
    let mut outputs = Vec::new();
    for output in &plan.outputs {
        let words = word_count(Tensor::new(output.shape, output.format));
        outputs.push(GuardedBuffer::new(device, words, OUTPUT_POISON)?);
    }
    let arena = GuardedBuffer::new(device, plan.arena_bytes as usize / 4, OUTPUT_POISON)?;
    let weights = device.alloc(packed.len().max(1))?;
    device.write(weights, packed)?;
    let bound = ErrorBound::new(network, plan, parameters, &double, &expected);
    let address = |location: &Location| {
        let base = match location.memory {
            Memory::Input { index } => input_buffers[index].address,
            Memory::Output { index } => outputs[index].address,
            Memory::Arena { offset } => arena.address + offset,
        };
        base + location.offset_bytes()
    };

    let mut check = NetworkCheck {
        layers: Vec::new(),
        failure: None,
        outputs: Vec::new(),
    };
    'layers: for layer in plan.late_order() {
        let layer = &plan.layers[layer];
        let (packed, bias) = plan.parameter_offsets(layer);
        let bindings = Bindings {
            x: address(&layer.x),
            residual: layer.residual.as_ref().map_or(0, address),
            packed: packed.map_or(0, |place| weights + place),
            bias: bias.map_or(0, |place| weights + place),
            y: address(&layer.y),
            workspace: layer.workspace.map_or(0, |offset| arena.address + offset),
            x_batch_stride: layer.x.batch_stride,
            residual_batch_stride: layer.residual.map_or(0, |location| location.batch_stride),
            y_batch_stride: layer.y.batch_stride,
        };
        run_variant(device, plan.units[layer.unit].variant(), &bindings)?;
        for (output_op, y) in layer.outputs() {
            let Some(&op) = op_index.get(output_op) else {
                continue;
            };
            let found = read_location(device, y, address(y))?;
            let deviation = Deviation::between(y.shape, &found, &expected[op.0]);
            let rounding = match y.memory {
                Memory::Output { .. } => y.format.dtype.rounding_error(),
                _ => 0.0,
            };
            let tolerance = bound.of(op, &deviation, rounding);
            if !check.add(&layer.name, output_op, deviation, tolerance) {
                break 'layers;
            }
        }
    }
    for guarded in input_buffers.iter().chain([&arena]).chain(&outputs) {
        let modified = guarded.modified_elements(device)?;
        if modified > 0 && check.failure.is_none() {
            check.failure = Some((plan.name.clone(), CheckFailure::OutOfBounds(modified)));
        }
    }
    for (output, y) in network.outputs.iter().zip(&outputs) {
        let whole = y.read(device)?;
        let shape = network.op(output.op).y;
        let words = whole[MARGIN..MARGIN + y.floats].to_vec();
        let found = values_of_words(Tensor::new(shape, output.format), words);
        // No layer may write all of an output, as of a concatenation.
        let deviation = Deviation::between(shape, &found, &expected[output.op.0]);
        check.outputs.push(found);
        let rounding = output.format.dtype.rounding_error();
        let tolerance = bound.of(output.op, &deviation, rounding);
        if deviation.relative > tolerance {
            let failure = CheckFailure::Inaccurate {
                deviation,
                tolerance,
            };
            check.failure.get_or_insert((output.name.clone(), failure));
        }
    }
    Ok(check)
}

/// The dense NCHW content of a location.
fn read_location(
    device: &mut dyn Device,
    location: &Location,
    address: u64,
) -> Result<Vec<f32>, DeviceError> {
    let image_len = location.shape.image_len() as usize;
    if let Some(stride) = location.format.pixel_stride {
        return read_view(device, location, stride, address);
    }
    // Any other format is dense.
    if location.format != Format::default() {
        let tensor = Tensor::new(location.shape, location.format);
        let mut words = vec![0.0; word_count(tensor)];
        device.read(address, &mut words)?;
        return Ok(values_of_words(tensor, words));
    }
    let mut values = vec![0.0; location.shape.len() as usize];
    for (image, values) in values.chunks_mut(image_len).enumerate() {
        device.read(address + 4 * image as u64 * location.batch_stride, values)?;
    }
    Ok(values)
}

/// The dense NCHW content of a view of 16-bit numbers in NHWC, whose pixels are `stride` elements apart.
fn read_view(
    device: &mut dyn Device,
    location: &Location,
    stride: u32,
    address: u64,
) -> Result<Vec<f32>, DeviceError> {
    /// Elements of a word.
    const ELEMENTS: usize = 2;
    let shape = location.shape;
    let [pitch, len] = [stride, shape.c].map(|elements| elements as usize / ELEMENTS);
    let pixels = shape.batch as usize * shape.pixels() as usize;
    let mut words = vec![0.0; (pixels - 1) * pitch + len];
    device.read(address, &mut words)?;
    let of_view = words.chunks(pitch).flat_map(|pixel| &pixel[..len]);
    let tensor = Tensor::new(shape, location.format.dense());
    Ok(values_of_words(tensor, of_view.copied().collect()))
}
