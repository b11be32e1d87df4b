//! Checks one unit on its own.

use super::dense_layout::{from_nchw, to_nchw};
use super::deviation::larger_deviation;
use super::guarded_buffer::{GuardedBuffer, INPUT_POISON, MARGIN, OUTPUT_POISON, count_differing};
use super::{Bindings, CheckFailure, Deviation, Device, DeviceError, ProblemData, run_variant};
#[cfg(feature = "gpu")]
use super::{GpuDevice, Repeats};
use crate::ir::{Layout, Problem, TensorShape};
use crate::plan::PlannedUnit;

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
        let x = upload(device, &from_nchw(x_shape, x_layout, data.x()), x_stride)?;
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

    /// The number of elements of inputs and their guards that were modified.
    fn modified_inputs(&self, device: &mut dyn Device) -> Result<usize, DeviceError> {
        let mut modified = 0;
        for input in [&self.x, &self.residual, &self.packed, &self.bias] {
            modified += count_differing(&input.read(device)?, &input.image);
        }
        Ok(modified)
    }
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
    let output = OutputElements {
        shape: problem.y(),
        stride: tensors.y_stride,
    };
    let modified = output
        .modified_outside(&first)
        .max(output.modified_outside(&last))
        + tensors.modified_inputs(device)?
        + tensors.workspace.modified_elements(device)?;
    if modified > 0 {
        return Err(CheckFailure::OutOfBounds(modified));
    }
    if problem.is_deterministic() && !same {
        return Err(CheckFailure::NotDeterministic);
    }
    let deviation = |run: &[f32]| deviation(problem, output.values(run), data.expected());
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

/// The elements of an output in its guarded allocation.
struct OutputElements {
    shape: TensorShape,
    /// Elements between consecutive images.
    stride: usize,
}

impl OutputElements {
    fn contain(&self, index: usize) -> bool {
        let end = MARGIN + self.shape.batch as usize * self.stride;
        (MARGIN..end).contains(&index)
            && (index - MARGIN) % self.stride < self.shape.image_len() as usize
    }

    /// The number of other elements of the allocation that a run has modified.
    fn modified_outside(&self, run: &[f32]) -> usize {
        let elements = run.iter().enumerate();
        elements
            .filter(|(index, value)| !self.contain(*index) && value.to_bits() != OUTPUT_POISON)
            .count()
    }

    /// The output of a run.
    fn values(&self, run: &[f32]) -> Vec<f32> {
        let indices = (0..run.len()).filter(|&index| self.contain(index));
        indices.map(|index| run[index]).collect()
    }
}

/// The deviation of the output `found`, in the problem's layout, from the exact one, NCHW.
fn deviation(problem: &Problem, found: Vec<f32>, expected: &[f64]) -> Deviation {
    let shape = problem.y();
    let found = to_nchw(shape, problem.y_layout(), found);
    let for_channels = |channels| Deviation::for_channels(shape, channels, &found, expected);
    // The output of the next layer's first factor is compared on its own: the norm of the main output could hide an error in its
    // smaller values.
    let next = match problem {
        Problem::Tucker(tucker) => tucker.next.filter(|next| next.stores_layer_output),
        _ => None,
    };
    let own = shape.c - next.map_or(0, |next| next.n);
    larger_deviation(for_channels(0..own), for_channels(own..shape.c))
}
