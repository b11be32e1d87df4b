//! Checks each unit on its own and complete networks against the reference.

use super::reference::{self, NetworkParameters};
use super::{Bindings, Device, DeviceError, Random, run_variant};
#[cfg(feature = "gpu")]
use super::{GpuDevice, Repeats};
use crate::ir::{Layout, Network, Precision, Problem, ReferenceInputs, TensorShape};
use crate::plan::{Location, Memory, NetworkPlan, PlannedUnit};
use crate::wording::counted;
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use tdc_runtime::{PackError, Variant};

/// The largest relative L2 error of the values of a network: ten times that of its least precise unit, which
/// is 1e-5 in fp32.
///
/// A layer passes on the relative error of its input almost unchanged, and the errors that layers add are independent. After L layers the
/// error is therefore sqrt(L) times that of one. Ten times corresponds to a hundred layers, each at its bound; rounding errors are at most
/// a third of the bound.
pub fn network_tolerance(plan: &NetworkPlan) -> f64 {
    let of_units = plan.units.iter();
    let of_units = of_units.map(|unit| unit.problem.kind().min_tolerance());
    10.0 * of_units.fold(Precision::Fp32.tolerance(), f64::max)
}

/// The difference between a result and the reference.
#[derive(Debug, Clone, PartialEq)]
pub struct Deviation {
    /// `|result - reference| / |reference|`, L2 norms.
    pub relative: f64,
    /// NCHW position of the worst element.
    pub worst: [usize; 4],
    /// The result at that position.
    pub found: f64,
    /// The reference at that position.
    pub expected: f64,
}

impl Deviation {
    /// Compares a result with its reference; NaN counts as an infinite deviation.
    pub fn between(shape: TensorShape, found: &[f32], expected: &[f64]) -> Self {
        Self::for_channels(shape, 0..shape.c, found, expected)
    }

    /// The same for some channels only.
    fn for_channels(
        shape: TensorShape,
        channels: Range<u32>,
        found: &[f32],
        expected: &[f64],
    ) -> Self {
        let image_len = shape.image_len() as usize;
        let [begin, end] = [channels.start, channels.end]
            .map(|channel| channel as usize * shape.pixels() as usize);
        let (mut error, mut norm) = (0.0, 0.0);
        let mut worst = (0, -1.0);
        for (index, (&found, &expected)) in found.iter().zip(expected).enumerate() {
            if !(begin..end).contains(&(index % image_len)) {
                continue;
            }
            let difference = (f64::from(found) - expected).abs();
            let difference = if difference.is_nan() {
                f64::INFINITY
            } else {
                difference
            };
            error += difference * difference;
            norm += expected * expected;
            if difference > worst.1 {
                worst = (index, difference);
            }
        }
        let index = worst.0;
        let pixels = shape.pixels() as usize;
        let (c, w) = (shape.c as usize, shape.w as usize);
        Self {
            relative: if error == 0.0 {
                0.0
            } else {
                (error / norm).sqrt()
            },
            worst: [
                index / (pixels * c),
                index / pixels % c,
                index % pixels / w,
                index % w,
            ],
            found: found.get(index).copied().map_or(f64::NAN, f64::from),
            expected: expected.get(index).copied().unwrap_or(f64::NAN),
        }
    }
}

/// The larger of two deviations; ties go to the first.
fn larger_deviation(first: Deviation, second: Deviation) -> Deviation {
    match second.relative > first.relative {
        true => second,
        false => first,
    }
}

impl fmt::Display for Deviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "relative error {:.2e}; largest difference at [batch, channel, row, column] = {:?}: {} instead of {}",
            self.relative, self.worst, self.found, self.expected
        )
    }
}

/// Why a unit or layer has failed its check.
#[derive(Debug, Clone, PartialEq)]
pub enum CheckFailure {
    /// Its error exceeds the tolerance.
    Inaccurate {
        /// The deviation.
        deviation: Deviation,
        /// The tolerance.
        tolerance: f64,
    },
    /// It wrote outside its buffers: the number of modified guard elements.
    OutOfBounds(usize),
    /// A further run gave different bits.
    NotDeterministic,
    /// A device error.
    Device(DeviceError),
}

impl fmt::Display for CheckFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CheckFailure::Inaccurate {
                deviation,
                tolerance,
            } => write!(f, "{deviation}; tolerance {tolerance:.1e}"),
            CheckFailure::OutOfBounds(count) => {
                write!(
                    f,
                    "modified {} outside its output",
                    counted(*count, "element")
                )
            }
            CheckFailure::NotDeterministic => write!(f, "a second run gave different bits"),
            CheckFailure::Device(error) => write!(f, "{error}"),
        }
    }
}

impl From<DeviceError> for CheckFailure {
    fn from(error: DeviceError) -> Self {
        CheckFailure::Device(error)
    }
}

/// The result of checking one unit.
#[derive(Debug, Clone, PartialEq)]
pub struct UnitCheck {
    /// The deviation of a unit that passed.
    pub deviation: Deviation,
    /// Its tolerance.
    pub tolerance: f64,
}

/// Default number of runs: a second run shows whether the result depends on memory contents that an earlier run has left.
const DEFAULT_RUNS: u32 = 2;
/// Number of guard elements before and after every tensor.
const MARGIN: usize = 1024;
/// Value of the guards of inputs: a signalling NaN, which arithmetic turns into a quiet one.
const INPUT_POISON: u32 = 0x7fa1_b2c3;
/// Value of outputs before a run and of their guards: a different NaN, so that reads and writes out of bounds
/// are both detected.
const OUTPUT_POISON: u32 = 0x7fa4_d5e6;

/// The number of elements whose bits differ.
fn count_differing(now: &[f32], then: &[f32]) -> usize {
    let pairs = now.iter().zip(then);
    pairs
        .filter(|(now, then)| now.to_bits() != then.to_bits())
        .count()
}

/// A tensor on the device between two guards; its images are `batch_stride` apart.
struct GuardedBuffer {
    address: u64,
    floats: usize,
    /// The complete allocation as it was written.
    image: Vec<f32>,
}

impl GuardedBuffer {
    fn new(device: &mut dyn Device, floats: usize, poison: u32) -> Result<Self, DeviceError> {
        let image = vec![f32::from_bits(poison); floats + 2 * MARGIN];
        let base = device.alloc(image.len())?;
        device.write(base, &image)?;
        Ok(Self {
            address: base + 4 * MARGIN as u64,
            floats,
            image,
        })
    }

    fn write(
        &mut self,
        device: &mut dyn Device,
        at: usize,
        values: &[f32],
    ) -> Result<(), DeviceError> {
        self.image[MARGIN + at..][..values.len()].copy_from_slice(values);
        device.write(self.address + 4 * at as u64, values)
    }

    /// The number of guard elements that were modified.
    fn modified_elements(&self, device: &mut dyn Device) -> Result<usize, DeviceError> {
        let mut modified_elements = 0;
        for start in [0, MARGIN + self.floats] {
            let mut now = [0.0; MARGIN];
            device.read(
                self.address - 4 * MARGIN as u64 + 4 * start as u64,
                &mut now,
            )?;
            modified_elements += count_differing(&now, &self.image[start..]);
        }
        Ok(modified_elements)
    }

    /// The present content of the complete allocation.
    fn read(&self, device: &mut dyn Device) -> Result<Vec<f32>, DeviceError> {
        let mut values = vec![0.0; self.floats + 2 * MARGIN];
        device.read(self.address - 4 * MARGIN as u64, &mut values)?;
        Ok(values)
    }
}

/// Random operands of a problem and its float64 result.
pub struct ProblemData {
    x: Vec<f32>,
    residual: Vec<f32>,
    /// One vector per weight tensor.
    weights: Vec<Vec<f32>>,
    bias: Vec<f32>,
    scale: Vec<f32>,
    shift: Vec<f32>,
    expected: Vec<f64>,
}

impl ProblemData {
    /// The input, NCHW.
    pub fn x(&self) -> &[f32] {
        &self.x
    }

    /// Weight tensors, OIHW.
    pub fn weights(&self) -> &[Vec<f32>] {
        &self.weights
    }

    /// The exact result, NCHW.
    pub fn expected(&self) -> &[f64] {
        &self.expected
    }

    /// Operands for a seed.
    pub fn new(problem: &Problem, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let count = |there: bool, count: u64| if there { count as usize } else { 0 };
        let epilogue_shape = problem.epilogue_shape();
        let x = random.values(problem.x().len() as usize);
        let residual = random.values(count(problem.reads_residual(), epilogue_shape.len()));
        let elements = |sizes: &[u32; 4]| sizes.iter().map(|&size| size as usize).product();
        let weights = problem.weights();
        let weights: Vec<_> = weights
            .iter()
            .map(|sizes| random.values(elements(sizes)))
            .collect();
        let bias = random.values(count(problem.reads_bias(), u64::from(epilogue_shape.c)));
        let scale = random.values(problem.scale_shift_channels() as usize);
        let shift = random.values(scale.len());
        let double =
            |values: &[f32]| -> Vec<f64> { values.iter().map(|&v| f64::from(v)).collect() };
        let expected = problem.kind().reference(&ReferenceInputs {
            x: &double(&x),
            residual: &double(&residual),
            weights: &weights
                .iter()
                .map(|values| double(values))
                .collect::<Vec<_>>(),
            bias: &double(&bias),
            scale: &double(&scale),
            shift: &double(&shift),
        });
        Self {
            x,
            residual,
            weights,
            bias,
            scale,
            shift,
            expected,
        }
    }

    /// The packed weights of a variant.
    ///
    /// # Errors
    /// [`PackError`] if the variant belongs to a different problem.
    pub fn pack(&self, variant: &Variant) -> Result<Vec<f32>, PackError> {
        let mut packed = vec![0.0; variant.packed_len()];
        for (index, (at, layout)) in variant.packed_layouts().enumerate() {
            let weight = self.weights.get(index).map_or(&[][..], |weight| weight);
            let (scale, shift) = match layout.prologue_channels {
                0 => (&[][..], &[][..]),
                _ => (&self.scale[..], &self.shift[..]),
            };
            layout.pack(weight, scale, shift, &mut packed[at..][..layout.len()])?;
        }
        Ok(packed)
    }
}

/// The operands of a unit on a device, between guards.
struct DeviceTensors {
    x: GuardedBuffer,
    residual: GuardedBuffer,
    packed: GuardedBuffer,
    bias: GuardedBuffer,
    workspace: GuardedBuffer,
    y: GuardedBuffer,
    /// Elements between consecutive images of the output.
    y_stride: usize,
    bindings: Bindings,
}

impl DeviceTensors {
    /// If there are several images, tensors have a batch stride larger than an image, as inside a
    /// concatenation.
    fn new(
        device: &mut dyn Device,
        unit: &PlannedUnit,
        data: &ProblemData,
    ) -> Result<Self, DeviceError> {
        /// Unused elements between the images of a batch.
        const GAP: usize = 5;
        let variant = unit.variant();
        let (x_shape, y_shape) = (unit.problem.x(), unit.problem.y());
        let values = data
            .pack(variant)
            .expect("the values have the problem's sizes, which are those of the layouts");
        // The images of an HWCN batch are interleaved, so there is no gap.
        let gap = |shape: TensorShape, layout| match layout {
            Layout::Nchw if shape.batch > 1 => GAP,
            _ => 0,
        };
        let (x_layout, y_layout) = (unit.problem.x_layout(), unit.problem.y_layout());
        let x_stride = x_shape.image_len() as usize + gap(x_shape, x_layout);
        let y_stride = y_shape.image_len() as usize + gap(y_shape, y_layout);
        let epilogue_shape = unit.problem.epilogue_shape();
        let residual_stride = epilogue_shape.image_len() as usize + gap(epilogue_shape, y_layout);
        let batch = x_shape.batch as usize;
        let upload = |device: &mut dyn Device, values: &[f32], stride: usize| {
            let mut tensor = GuardedBuffer::new(device, batch * stride, INPUT_POISON)?;
            if !values.is_empty() {
                for (image, values) in values.chunks(values.len() / batch).enumerate() {
                    tensor.write(device, image * stride, values)?;
                }
            }
            Ok::<_, DeviceError>(tensor)
        };
        let x = upload(device, &from_nchw(x_shape, x_layout, &data.x), x_stride)?;
        let residual = from_nchw(epilogue_shape, y_layout, &data.residual);
        let residual = upload(device, &residual, residual_stride)?;
        let mut packed = GuardedBuffer::new(device, values.len(), INPUT_POISON)?;
        packed.write(device, 0, &values)?;
        let mut bias = GuardedBuffer::new(device, data.bias.len(), INPUT_POISON)?;
        bias.write(device, 0, &data.bias)?;
        let workspace =
            GuardedBuffer::new(device, variant.workspace_bytes as usize / 4, OUTPUT_POISON)?;
        let y = GuardedBuffer::new(device, batch * y_stride, OUTPUT_POISON)?;
        let bindings = Bindings {
            x: x.address,
            residual: residual.address,
            packed: packed.address,
            bias: bias.address,
            y: y.address,
            workspace: workspace.address,
            x_batch_stride: x_stride as u64,
            residual_batch_stride: residual_stride as u64,
            y_batch_stride: y_stride as u64,
        };
        Ok(Self {
            x,
            residual,
            packed,
            bias,
            workspace,
            y,
            y_stride,
            bindings,
        })
    }
}

/// Converts NCHW values to a dense tensor of another layout; empty stays empty.
fn from_nchw(shape: TensorShape, layout: Layout, values: &[f32]) -> Vec<f32> {
    let mut converted = values.to_vec();
    if layout != Layout::Nchw && !values.is_empty() {
        for (place, index) in element_indices(shape, layout).zip(0..) {
            converted[place] = values[index];
        }
    }
    converted
}

/// Converts a dense tensor of another layout to NCHW.
fn to_nchw(shape: TensorShape, layout: Layout, values: Vec<f32>) -> Vec<f32> {
    match layout {
        Layout::Nchw => values,
        _ => element_indices(shape, layout)
            .map(|place| values[place])
            .collect(),
    }
}

/// The indices of the elements of an NCHW tensor in another layout, in NCHW order.
fn element_indices(shape: TensorShape, layout: Layout) -> impl Iterator<Item = usize> {
    let (c, pixels) = (shape.c as usize, shape.pixels() as usize);
    (0..shape.len() as usize).map(move |index| {
        let position = [index / pixels / c, index / pixels % c, index % pixels];
        layout.index(shape, position)
    })
}

/// Runs a unit twice on random data between guards and compares the results with the reference.
///
/// Both must be within the tolerance and, if the problem [is deterministic](Problem::is_deterministic), have
/// the same bits.
///
/// # Errors
/// The first failure.
pub fn check_unit(
    device: &mut dyn Device,
    unit: &PlannedUnit,
    seed: u64,
) -> Result<UnitCheck, CheckFailure> {
    let data = ProblemData::new(&unit.problem, seed);
    check_unit_on(device, unit, &data, DEFAULT_RUNS)
}

/// As [`check_unit`], with data that several units of a problem share, and with the given number of runs, all
/// of which must give the same bits.
///
/// # Errors
/// The first failure.
pub fn check_unit_on(
    device: &mut dyn Device,
    unit: &PlannedUnit,
    data: &ProblemData,
    runs: u32,
) -> Result<UnitCheck, CheckFailure> {
    let tensors = DeviceTensors::new(device, unit, data).map_err(CheckFailure::from);
    let result = tensors.and_then(|tensors| run_and_compare(device, unit, data, &tensors, runs));
    device.free_all();
    result
}

/// Times of a correct unit in microseconds, in a CUDA graph of many runs on the same buffers, which stay in
/// L2 if they fit: a quick time from few runs, and a full time if `wants_full` returns true.
///
/// # Errors
/// As [`check_unit`]: an incorrect result is not timed.
#[cfg(feature = "gpu")]
pub fn time_unit(
    device: &mut GpuDevice,
    unit: &PlannedUnit,
    data: &ProblemData,
    wants_full: &dyn Fn(f64) -> bool,
) -> Result<(f64, Option<f64>), CheckFailure> {
    let tensors = DeviceTensors::new(device, unit, data).map_err(CheckFailure::from);
    let times = tensors.and_then(|tensors| {
        run_and_compare(device, unit, data, &tensors, DEFAULT_RUNS)?;
        let variant = unit.variant();
        let mut run = |device: &mut GpuDevice, _| run_variant(device, variant, &tensors.bindings);
        let quick = device.graph_us(Repeats::QUICK, &mut run)?;
        let full = match wants_full(quick) {
            true => Some(device.graph_us(Repeats::FULL, &mut run)?),
            false => None,
        };
        Ok((quick, full))
    });
    device.free_all();
    times
}

fn run_and_compare(
    device: &mut dyn Device,
    unit: &PlannedUnit,
    data: &ProblemData,
    tensors: &DeviceTensors,
    runs: u32,
) -> Result<UnitCheck, CheckFailure> {
    let problem = &unit.problem;
    let variant = unit.variant();
    let y_shape = problem.y();
    let batch = y_shape.batch as usize;
    let y_stride = tensors.y_stride;
    let run = |device: &mut dyn Device| {
        run_variant(device, variant, &tensors.bindings)?;
        tensors.y.read(device)
    };
    let first = run(device)?;
    let (mut last, mut same) = (first.clone(), true);
    for _ in 1..runs {
        last = run(device)?;
        same &= count_differing(&last, &first) == 0;
    }

    let image_len = y_shape.image_len() as usize;
    let owned = |index: usize| {
        index >= MARGIN
            && index < MARGIN + batch * y_stride
            && (index - MARGIN) % y_stride < image_len
    };
    let outside = |run: &[f32]| {
        run.iter()
            .enumerate()
            .filter(|(index, value)| !owned(*index) && value.to_bits() != OUTPUT_POISON)
            .count()
    };
    let mut modified_elements = outside(&first).max(outside(&last));
    for input in [
        &tensors.x,
        &tensors.residual,
        &tensors.packed,
        &tensors.bias,
    ] {
        modified_elements += count_differing(&input.read(device)?, &input.image);
    }
    modified_elements += tensors.workspace.modified_elements(device)?;
    if modified_elements > 0 {
        return Err(CheckFailure::OutOfBounds(modified_elements));
    }
    if problem.is_deterministic() && !same {
        return Err(CheckFailure::NotDeterministic);
    }

    let deviation = |run: &[f32]| {
        let found: Vec<f32> = (0..run.len())
            .filter(|&index| owned(index))
            .map(|index| run[index])
            .collect();
        let found = to_nchw(y_shape, problem.y_layout(), found);
        let for_channels =
            |channels| Deviation::for_channels(y_shape, channels, &found, &data.expected);
        // The output of the next layer's first factor is compared on its own: the norm of the main output
        // could hide an error in its smaller values.
        let next = match problem {
            Problem::Tucker(tucker) => tucker.next.filter(|next| next.stores_layer_output),
            _ => None,
        };
        let own = y_shape.c - next.map_or(0, |next| next.n);
        larger_deviation(for_channels(0..own), for_channels(own..y_shape.c))
    };
    let deviation = larger_deviation(deviation(&first), deviation(&last));
    let tolerance = problem.kind().tolerance();
    if deviation.relative > tolerance {
        return Err(CheckFailure::Inaccurate {
            deviation,
            tolerance,
        });
    }
    Ok(UnitCheck {
        deviation,
        tolerance,
    })
}

/// The result of checking a complete network.
#[derive(Debug, Clone, PartialEq)]
pub struct NetworkCheck {
    /// Deviation of each op's output that a layer wrote, in order: name of the layer, name of the op,
    /// deviation.
    pub layers: Vec<(String, String, Deviation)>,
    /// The first layer that failed, with the failure.
    pub failure: Option<(String, CheckFailure)>,
    /// The output.
    pub output: Vec<f32>,
}

/// Runs a planned network on one input and compares every value with the reference as soon as it is written.
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
    input: &[f32],
) -> Result<NetworkCheck, DeviceError> {
    let result = check_network_layers(device, network, plan, parameters, packed, input);
    device.free_all();
    result
}

fn check_network_layers(
    device: &mut dyn Device,
    network: &Network,
    plan: &NetworkPlan,
    parameters: &dyn NetworkParameters,
    packed: &[f32],
    input: &[f32],
) -> Result<NetworkCheck, DeviceError> {
    let double: Vec<f64> = input.iter().map(|&v| f64::from(v)).collect();
    let expected = reference::evaluate_network(network, parameters, &double);
    let op_index: HashMap<&str, usize> = network
        .ops
        .iter()
        .enumerate()
        .map(|(index, op)| (op.name.as_str(), index))
        .collect();

    let mut x = GuardedBuffer::new(device, input.len(), INPUT_POISON)?;
    x.write(device, 0, input)?;
    let y = GuardedBuffer::new(device, plan.output.len() as usize, OUTPUT_POISON)?;
    let arena = GuardedBuffer::new(device, plan.arena_bytes as usize / 4, OUTPUT_POISON)?;
    let weights = device.alloc(packed.len().max(1))?;
    device.write(weights, packed)?;
    let tolerance = network_tolerance(plan);
    let address = |location: &Location| {
        let base = match location.memory {
            Memory::Input => x.address,
            Memory::Output => y.address,
            Memory::Arena { offset } => arena.address + offset,
        };
        base + 4 * location.offset
    };

    let mut check = NetworkCheck {
        layers: Vec::new(),
        failure: None,
        output: Vec::new(),
    };
    for layer in &plan.layers {
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
        let Some(&op) = op_index.get(layer.output_op.as_str()) else {
            continue;
        };
        let found = read_location(device, &layer.y, address(&layer.y))?;
        let deviation = Deviation::between(layer.y.shape, &found, &expected[op]);
        let accurate = deviation.relative <= tolerance;
        check.layers.push((
            layer.name.clone(),
            layer.output_op.clone(),
            deviation.clone(),
        ));
        if !accurate {
            let failure = CheckFailure::Inaccurate {
                deviation,
                tolerance,
            };
            check.failure = Some((layer.name.clone(), failure));
            break;
        }
    }
    for guarded in [&x, &y, &arena] {
        let now = guarded.read(device)?;
        let inside = MARGIN..MARGIN + guarded.floats;
        let modified_elements = now
            .iter()
            .zip(&guarded.image)
            .enumerate()
            .filter(|(index, (now, then))| {
                !inside.contains(index) && now.to_bits() != then.to_bits()
            })
            .count();
        if modified_elements > 0 && check.failure.is_none() {
            check.failure = Some((
                plan.name.clone(),
                CheckFailure::OutOfBounds(modified_elements),
            ));
        }
    }
    let whole = y.read(device)?;
    check.output = whole[MARGIN..MARGIN + y.floats].to_vec();
    Ok(check)
}

/// The dense NCHW content of a location.
fn read_location(
    device: &mut dyn Device,
    location: &Location,
    address: u64,
) -> Result<Vec<f32>, DeviceError> {
    let image_len = location.shape.image_len() as usize;
    let mut values = vec![0.0; location.shape.len() as usize];
    if location.layout != Layout::Nchw {
        device.read(address, &mut values)?;
        return Ok(to_nchw(location.shape, location.layout, values));
    }
    for (image, values) in values.chunks_mut(image_len).enumerate() {
        device.read(address + 4 * image as u64 * location.batch_stride, values)?;
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_small_channels_are_not_masked_by_large_ones() {
        // Two images of three channels; the last channel is small and wrong in the second image.
        let shape = TensorShape::new(2, 3, 1, 2);
        let expected = [
            1e3, 1e3, 1e3, 1e3, 1e-3, 1e-3, 1e3, 1e3, 1e3, 1e3, 1e-3, 1e-3,
        ];
        let mut found = expected.map(|value| value as f32);
        found[11] = 3e-3;
        assert!(Deviation::between(shape, &found, &expected).relative < 1e-5);
        let large = Deviation::for_channels(shape, 0..2, &found, &expected);
        let small = Deviation::for_channels(shape, 2..3, &found, &expected);
        assert!(large.relative < 1e-7 && small.relative > 0.9, "{small}");
        assert_eq!(small.worst, [1, 2, 0, 1]);
        assert_eq!(larger_deviation(large.clone(), small.clone()), small);
        let none = Deviation::for_channels(shape, 3..3, &found, &expected);
        assert_eq!(larger_deviation(large.clone(), none), large);
    }
}
