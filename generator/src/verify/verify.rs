//! Each unit alone and the network whole, against the reference.

use super::reference::{self, NetworkParameters, Operands};
use super::{Bindings, Device, DeviceError, Random, run_variant};
#[cfg(feature = "gpu")]
use super::{GpuDevice, Repeats};
use crate::ir::{Layout, Network, Precision, Problem, TensorShape};
use crate::plan::{Location, Memory, NetworkPlan, PlannedUnit};
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use tdc_runtime::{PackError, Variant};

/// The relative error that a unit may have: `2.5e-8 sqrt(terms of a sum)`, the growth of a plain fp32 sum, and at least 1e-6; of a
/// convolution [what it allows](crate::ir::ConvProblem::tolerance). Of a Tucker layer each factor may have what its precision
/// allows, independently.
pub fn tolerance(problem: &Problem) -> f64 {
    let terms = match problem {
        Problem::Conv(conv) | Problem::HwcnConv(conv) => return conv.tolerance(),
        Problem::GlobalPool(p) => p.x.pixels() as f64,
        Problem::Pool(p) => f64::from(p.kernel[0]) * f64::from(p.kernel[1]),
        // Each factor of a Tucker layer adds an error of its own.
        _ => problem.weights().iter().map(terms).sum(),
    };
    let factors = problem.weights().len().max(1) as f64;
    (2.5e-8 * terms.sqrt()).max(factors.sqrt() * problem.precision().tolerance())
}

/// Terms of a sum over weights of these sizes, OIHW.
fn terms([_, c, r, s]: &[u32; 4]) -> f64 {
    f64::from(*c) * f64::from(*r) * f64::from(*s)
}

/// The relative error that a whole network's values may have, as an L2 norm: ten times what the least precise of its units may
/// have, in fp32 1e-5.
///
/// A layer passes the relative error of its input on about as it is, and the errors that layers add are independent: behind L
/// layers they are sqrt(L) times that of one. Ten times is a hundred layers, each at its bound; rounding leaves them at a
/// third of it or less.
pub fn network_tolerance(plan: &NetworkPlan) -> f64 {
    let of_units = plan.units.iter().map(|unit| match unit.problem.conv() {
        Some(conv) => conv.asked_tolerance(),
        None => unit.problem.precision().tolerance(),
    });
    10.0 * of_units.fold(Precision::Fp32.tolerance(), f64::max)
}

/// How far a result is from the reference.
#[derive(Debug, Clone, PartialEq)]
pub struct Deviation {
    /// `|result - reference| / |reference|`, L2 norms.
    pub relative: f64,
    /// NCHW position of the worst element.
    pub worst: [usize; 4],
    /// The result there.
    pub found: f64,
    /// The reference there.
    pub expected: f64,
}

impl Deviation {
    /// Compares a result with its reference; not-a-number counts as infinitely far.
    pub fn of(shape: TensorShape, found: &[f32], expected: &[f64]) -> Self {
        Self::of_channels(shape, 0..shape.c, found, expected)
    }

    /// The same of some channels alone.
    fn of_channels(
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

/// The larger of two deviations, of equal ones the first.
fn worse(first: Deviation, second: Deviation) -> Deviation {
    match second.relative > first.relative {
        true => second,
        false => first,
    }
}

impl fmt::Display for Deviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "relative error {:.2e}, worst at {:?}: {} instead of {}",
            self.relative, self.worst, self.found, self.expected
        )
    }
}

/// A unit or layer that does not compute what it should.
#[derive(Debug, Clone, PartialEq)]
pub enum Failure {
    /// Farther from the reference than it may be.
    Inaccurate {
        /// How far.
        deviation: Deviation,
        /// What is allowed.
        tolerance: f64,
    },
    /// Wrote outside its buffers: so many elements of the margin were changed.
    OutOfBounds(usize),
    /// Another run gave other bits.
    NotDeterministic,
    /// The device refused.
    Device(DeviceError),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Inaccurate {
                deviation,
                tolerance,
            } => write!(f, "{deviation}; allowed is {tolerance:.1e}"),
            Failure::OutOfBounds(count) => {
                write!(f, "wrote {count} elements outside its output")
            }
            Failure::NotDeterministic => write!(f, "another run gave other bits"),
            Failure::Device(error) => write!(f, "{error}"),
        }
    }
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Self {
        Failure::Device(error)
    }
}

/// What came of checking one unit.
#[derive(Debug, Clone, PartialEq)]
pub struct UnitCheck {
    /// The deviation when it passed.
    pub deviation: Deviation,
    /// The tolerance it held.
    pub tolerance: f64,
}

/// Runs of a unit where nobody says how many: what the first left behind must not matter.
const RUNS: u32 = 2;
/// Elements around every tensor that nobody may touch.
const MARGIN: usize = 1024;
/// What lies around inputs: a signalling NaN, which arithmetic turns into a quiet one.
const INPUT_POISON: u32 = 0x7fa1_b2c3;
/// What lies in and around unwritten outputs: another one, so that a value read outside and written outside is seen.
const OUTPUT_POISON: u32 = 0x7fa4_d5e6;

/// How many elements have other bits than before.
fn changed(now: &[f32], then: &[f32]) -> usize {
    let pairs = now.iter().zip(then);
    pairs
        .filter(|(now, then)| now.to_bits() != then.to_bits())
        .count()
}

/// A tensor on the device between two margins, its images `batch_stride` apart.
struct Guarded {
    address: u64,
    floats: usize,
    /// The whole allocation as it was written.
    image: Vec<f32>,
}

impl Guarded {
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

    /// How many elements of the margins were changed.
    fn damaged(&self, device: &mut dyn Device) -> Result<usize, DeviceError> {
        let mut damaged = 0;
        for start in [0, MARGIN + self.floats] {
            let mut now = [0.0; MARGIN];
            device.read(
                self.address - 4 * MARGIN as u64 + 4 * start as u64,
                &mut now,
            )?;
            damaged += changed(&now, &self.image[start..]);
        }
        Ok(damaged)
    }

    /// The whole allocation as it is now.
    fn read(&self, device: &mut dyn Device) -> Result<Vec<f32>, DeviceError> {
        let mut values = vec![0.0; self.floats + 2 * MARGIN];
        device.read(self.address - 4 * MARGIN as u64, &mut values)?;
        Ok(values)
    }
}

/// Random operands of a problem and what it makes of them, in float64.
pub struct ProblemData {
    x: Vec<f32>,
    residual: Vec<f32>,
    /// Of each tensor of weights.
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

    /// Each tensor of weights, OIHW.
    pub fn weights(&self) -> &[Vec<f32>] {
        &self.weights
    }

    /// The exact result, NCHW.
    pub fn expected(&self) -> &[f64] {
        &self.expected
    }

    /// Operands by a seed.
    pub fn new(problem: &Problem, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let count = |there: bool, count: u64| if there { count as usize } else { 0 };
        let added_to = problem.added_to();
        let x = random.values(problem.x().len() as usize);
        let residual = random.values(count(problem.reads_residual(), added_to.len()));
        let elements = |sizes: &[u32; 4]| sizes.iter().map(|&size| size as usize).product();
        let weights = problem.weights();
        let weights: Vec<_> = weights
            .iter()
            .map(|sizes| random.values(elements(sizes)))
            .collect();
        let bias = random.values(count(problem.reads_bias(), u64::from(added_to.c)));
        let scale = random.values(problem.affine_channels() as usize);
        let shift = random.values(scale.len());
        let double =
            |values: &[f32]| -> Vec<f64> { values.iter().map(|&v| f64::from(v)).collect() };
        let expected = reference::solve(
            problem,
            &Operands {
                x: &double(&x),
                residual: &double(&residual),
                weights: &weights
                    .iter()
                    .map(|values| double(values))
                    .collect::<Vec<_>>(),
                bias: &double(&bias),
                scale: &double(&scale),
                shift: &double(&shift),
            },
        );
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

    /// The packed block of a variant.
    ///
    /// # Errors
    /// [`PackError`] when the variant is one of another problem.
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

/// The operands of a unit on a device, between guarded margins.
struct Placed {
    x: Guarded,
    residual: Guarded,
    packed: Guarded,
    bias: Guarded,
    workspace: Guarded,
    y: Guarded,
    /// Elements from an image of the output to the next.
    y_stride: usize,
    bindings: Bindings,
}

impl Placed {
    /// With several images the tensors are given strides larger than an image, as inside a concatenation.
    fn new(
        device: &mut dyn Device,
        unit: &PlannedUnit,
        data: &ProblemData,
    ) -> Result<Self, DeviceError> {
        /// Elements between the images of a batch that belong to nobody.
        const GAP: usize = 5;
        let variant = unit.variant();
        let (x_shape, y_shape) = (unit.problem.x(), unit.problem.y());
        let values = data
            .pack(variant)
            .expect("the values were made to the problem's sizes, which are the layouts'");
        // The images of an HWCN batch do not lie apart.
        let gap = |shape: TensorShape, layout| match layout {
            Layout::Nchw if shape.batch > 1 => GAP,
            _ => 0,
        };
        let (x_layout, y_layout) = (unit.problem.x_layout(), unit.problem.y_layout());
        let x_stride = x_shape.image_len() as usize + gap(x_shape, x_layout);
        let y_stride = y_shape.image_len() as usize + gap(y_shape, y_layout);
        let added_to = unit.problem.added_to();
        let residual_stride = added_to.image_len() as usize + gap(added_to, y_layout);
        let batch = x_shape.batch as usize;
        let upload = |device: &mut dyn Device, values: &[f32], stride: usize| {
            let mut tensor = Guarded::new(device, batch * stride, INPUT_POISON)?;
            if !values.is_empty() {
                for (image, values) in values.chunks(values.len() / batch).enumerate() {
                    tensor.write(device, image * stride, values)?;
                }
            }
            Ok::<_, DeviceError>(tensor)
        };
        let x = upload(device, &from_nchw(x_shape, x_layout, &data.x), x_stride)?;
        let residual = from_nchw(added_to, y_layout, &data.residual);
        let residual = upload(device, &residual, residual_stride)?;
        let mut packed = Guarded::new(device, values.len(), INPUT_POISON)?;
        packed.write(device, 0, &values)?;
        let mut bias = Guarded::new(device, data.bias.len(), INPUT_POISON)?;
        bias.write(device, 0, &data.bias)?;
        let workspace = Guarded::new(device, variant.workspace_bytes as usize / 4, OUTPUT_POISON)?;
        let y = Guarded::new(device, batch * y_stride, OUTPUT_POISON)?;
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

/// A dense tensor of another layout with the values of an NCHW one; of no values, none.
fn from_nchw(shape: TensorShape, layout: Layout, values: &[f32]) -> Vec<f32> {
    let mut converted = values.to_vec();
    if layout != Layout::Nchw && !values.is_empty() {
        for (place, index) in places(shape, layout).zip(0..) {
            converted[place] = values[index];
        }
    }
    converted
}

/// The NCHW tensor with the values of a dense one of another layout.
fn to_nchw(shape: TensorShape, layout: Layout, values: Vec<f32>) -> Vec<f32> {
    match layout {
        Layout::Nchw => values,
        _ => places(shape, layout).map(|place| values[place]).collect(),
    }
}

/// Where the elements of an NCHW tensor lie in another layout, in NCHW order.
fn places(shape: TensorShape, layout: Layout) -> impl Iterator<Item = usize> {
    let (c, pixels) = (shape.c as usize, shape.pixels() as usize);
    (0..shape.len() as usize).map(move |index| {
        let position = [index / pixels / c, index / pixels % c, index % pixels];
        layout.index(shape, position)
    })
}

/// Runs a unit on random data between guarded margins, twice, and compares with the reference.
///
/// Both must be near the reference and, where the problem [is deterministic](Problem::is_deterministic), give the same bits.
///
/// # Errors
/// The first way in which it fails.
pub fn check_unit(
    device: &mut dyn Device,
    unit: &PlannedUnit,
    seed: u64,
) -> Result<UnitCheck, Failure> {
    let data = ProblemData::new(&unit.problem, seed);
    check_unit_with(device, unit, &data, RUNS)
}

/// As [`check_unit`], on data that several units of the same problem share, and with so many runs, all of which must give the
/// same bits.
///
/// # Errors
/// The first way in which it fails.
pub fn check_unit_with(
    device: &mut dyn Device,
    unit: &PlannedUnit,
    data: &ProblemData,
    runs: u32,
) -> Result<UnitCheck, Failure> {
    let placed = Placed::new(device, unit, data).map_err(Failure::from);
    let result = placed.and_then(|placed| check_placed(device, unit, data, &placed, runs));
    device.free_all();
    result
}

/// Times of a unit that was found right, microseconds, in a CUDA graph of many runs, on buffers that stay in the level-2 cache
/// where they fit: a quick one of few runs, and a full one if that is `worth` it.
///
/// # Errors
/// As [`check_unit`]: a wrong result is not timed.
#[cfg(feature = "gpu")]
pub fn time_unit(
    device: &mut GpuDevice,
    unit: &PlannedUnit,
    data: &ProblemData,
    worth: &dyn Fn(f64) -> bool,
) -> Result<(f64, Option<f64>), Failure> {
    let placed = Placed::new(device, unit, data).map_err(Failure::from);
    let times = placed.and_then(|placed| {
        check_placed(device, unit, data, &placed, RUNS)?;
        let variant = unit.variant();
        let mut run = |device: &mut GpuDevice, _| run_variant(device, variant, &placed.bindings);
        let quick = device.graph_us(Repeats::QUICK, &mut run)?;
        let full = match worth(quick) {
            true => Some(device.graph_us(Repeats::FULL, &mut run)?),
            false => None,
        };
        Ok((quick, full))
    });
    device.free_all();
    times
}

fn check_placed(
    device: &mut dyn Device,
    unit: &PlannedUnit,
    data: &ProblemData,
    placed: &Placed,
    runs: u32,
) -> Result<UnitCheck, Failure> {
    let problem = &unit.problem;
    let variant = unit.variant();
    let y_shape = problem.y();
    let batch = y_shape.batch as usize;
    let y_stride = placed.y_stride;
    let run = |device: &mut dyn Device| {
        run_variant(device, variant, &placed.bindings)?;
        placed.y.read(device)
    };
    let first = run(device)?;
    let (mut last, mut same) = (first.clone(), true);
    for _ in 1..runs {
        last = run(device)?;
        same &= changed(&last, &first) == 0;
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
    let mut damaged = outside(&first).max(outside(&last));
    for input in [&placed.x, &placed.residual, &placed.packed, &placed.bias] {
        damaged += changed(&input.read(device)?, &input.image);
    }
    damaged += placed.workspace.damaged(device)?;
    if damaged > 0 {
        return Err(Failure::OutOfBounds(damaged));
    }
    if problem.is_deterministic() && !same {
        return Err(Failure::NotDeterministic);
    }

    let deviation = |run: &[f32]| {
        let found: Vec<f32> = (0..run.len())
            .filter(|&index| owned(index))
            .map(|index| run[index])
            .collect();
        let found = to_nchw(y_shape, problem.y_layout(), found);
        let of_channels =
            |channels| Deviation::of_channels(y_shape, channels, &found, &data.expected);
        // What the first factor of the layer behind makes has a norm of its own: an error of the smaller values cannot hide.
        let next = match problem {
            Problem::Tucker(tucker) => tucker.next.filter(|next| next.keeps),
            _ => None,
        };
        let own = y_shape.c - next.map_or(0, |next| next.n);
        worse(of_channels(0..own), of_channels(own..y_shape.c))
    };
    let deviation = worse(deviation(&first), deviation(&last));
    let tolerance = tolerance(problem);
    if deviation.relative > tolerance {
        return Err(Failure::Inaccurate {
            deviation,
            tolerance,
        });
    }
    Ok(UnitCheck {
        deviation,
        tolerance,
    })
}

/// What came of running a whole network.
#[derive(Debug, Clone, PartialEq)]
pub struct NetworkCheck {
    /// Deviation of each op's output that a layer wrote, in order: layer's name, op's name, deviation.
    pub layers: Vec<(String, String, Deviation)>,
    /// The layer that failed first, and how.
    pub failure: Option<(String, Failure)>,
    /// The output.
    pub output: Vec<f32>,
}

/// Runs a planned network on one input and compares every value with the reference as soon as it is written.
///
/// `packed` is the payload of the weight file, in floats.
///
/// # Errors
/// [`DeviceError`] when memory or copies fail; wrong numbers are in the result.
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
    let expected = reference::evaluate(network, parameters, &double);
    let op_index: HashMap<&str, usize> = network
        .ops
        .iter()
        .enumerate()
        .map(|(index, op)| (op.name.as_str(), index))
        .collect();

    let mut x = Guarded::new(device, input.len(), INPUT_POISON)?;
    x.write(device, 0, input)?;
    let y = Guarded::new(device, plan.output.len() as usize, OUTPUT_POISON)?;
    let arena = Guarded::new(device, plan.arena_bytes as usize / 4, OUTPUT_POISON)?;
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
        let (packed, bias) = plan.parameter_places(layer);
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
        let Some(&op) = op_index.get(layer.produces.as_str()) else {
            continue;
        };
        let found = read_location(device, &layer.y, address(&layer.y))?;
        let deviation = Deviation::of(layer.y.shape, &found, &expected[op]);
        let accurate = deviation.relative <= tolerance;
        check.layers.push((
            layer.name.clone(),
            layer.produces.clone(),
            deviation.clone(),
        ));
        if !accurate {
            let failure = Failure::Inaccurate {
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
        let damaged = now
            .iter()
            .zip(&guarded.image)
            .enumerate()
            .filter(|(index, (now, then))| {
                !inside.contains(index) && now.to_bits() != then.to_bits()
            })
            .count();
        if damaged > 0 && check.failure.is_none() {
            check.failure = Some((plan.name.clone(), Failure::OutOfBounds(damaged)));
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
    fn an_error_of_small_channels_cannot_hide_behind_large_ones() {
        // Two images of three channels, the last one small and wrong in the second image.
        let shape = TensorShape::new(2, 3, 1, 2);
        let expected = [
            1e3, 1e3, 1e3, 1e3, 1e-3, 1e-3, 1e3, 1e3, 1e3, 1e3, 1e-3, 1e-3,
        ];
        let mut found = expected.map(|value| value as f32);
        found[11] = 3e-3;
        assert!(Deviation::of(shape, &found, &expected).relative < 1e-5);
        let large = Deviation::of_channels(shape, 0..2, &found, &expected);
        let small = Deviation::of_channels(shape, 2..3, &found, &expected);
        assert!(large.relative < 1e-7 && small.relative > 0.9, "{small}");
        assert_eq!(small.worst, [1, 2, 0, 1]);
        assert_eq!(worse(large.clone(), small.clone()), small);
        let none = Deviation::of_channels(shape, 3..3, &found, &expected);
        assert_eq!(worse(large.clone(), none), large);
    }
}
