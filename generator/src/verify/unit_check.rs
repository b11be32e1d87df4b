//! Checks one unit on its own.

use super::deviation::larger_deviation;
use super::guarded_buffer::{GuardedBuffer, INPUT_POISON, MARGIN, OUTPUT_POISON, count_differing};
use super::stored_tensor::{stored_words, values_of_words, word_count};
use super::{Bindings, CheckFailure, Deviation, Device, DeviceError, ProblemData, run_variant};
#[cfg(feature = "gpu")]
use super::{GpuDevice, Repeats};
use crate::ir::{Format, Problem, Tensor, TensorShape};
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
    /// Words between consecutive parts of the output.
    y_stride: usize,
    /// Words of the residual's images that the unit appends.
    appended: AppendedWords,
    bindings: Bindings,
}

impl DeviceTensors {
    /// If there are several images, tensors have a batch stride larger than an image, as inside a
    /// concatenation. The pixels of a view are apart too.
    fn new(
        device: &mut dyn Device,
        unit: &PlannedUnit,
        data: &ProblemData,
    ) -> Result<Self, DeviceError> {
        /// Unused elements between the images of a batch.
        const GAP: usize = 5;
        /// Bytes of a word.
        const WORD: u64 = 4;
        let variant = unit.variant();
        let kind = unit.problem.kind();
        let (x, y) = (kind.input(), kind.output());
        let residual = Tensor::new(kind.residual_shape(), y.format);
        let values = data
            .pack(variant)
            .expect("the values have the problem's sizes, which are those of the layouts");
        let stride = |tensor: Tensor| match (dense_parts(tensor), tensor.format.pixel_stride) {
            (_, Some(stride)) => (u64::from(stride) * tensor.format.dtype.bytes() / WORD) as usize,
            ((1, words), None) => words,
            ((_, words), None) => words + GAP,
        };
        let [x_stride, residual_stride, y_stride] = [x, residual, y].map(stride);
        let upload = |device: &mut dyn Device, tensor: Tensor, values: &[f32], stride: usize| {
            let (parts, words) = dense_parts(tensor);
            let values = stored_words(tensor, values);
            let mut tensor = GuardedBuffer::new(device, parts * stride, INPUT_POISON)?;
            for (part, values) in values.chunks(words).enumerate() {
                tensor.write(device, part * stride, values)?;
            }
            Ok::<_, DeviceError>(tensor)
        };
        let x = upload(device, x, data.x(), x_stride)?;
        let residual = upload(device, residual, &data.residual, residual_stride)?;
        let mut packed = GuardedBuffer::new(device, values.len(), INPUT_POISON)?;
        packed.write(device, 0, &values)?;
        let mut bias = GuardedBuffer::new(device, data.bias.len(), INPUT_POISON)?;
        bias.write(device, 0, &data.bias)?;
        let workspace =
            GuardedBuffer::new(device, variant.workspace_bytes as usize / 4, OUTPUT_POISON)?;
        let y = GuardedBuffer::new(device, dense_parts(y).0 * y_stride, OUTPUT_POISON)?;
        let appended = AppendedWords::new(&unit.problem, residual_stride);
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
            appended,
            bindings,
        })
    }

    /// The number of elements of inputs and their guards that were modified, without the channels that the unit appends.
    fn modified_inputs(&self, device: &mut dyn Device) -> Result<usize, DeviceError> {
        let mut modified = 0;
        for input in [&self.x, &self.packed, &self.bias] {
            modified += count_differing(&input.read(device)?, &input.image);
        }
        let mut residual = self.residual.read(device)?;
        for place in self.appended.places() {
            residual[place.clone()].copy_from_slice(&self.residual.image[place]);
        }
        Ok(modified + count_differing(&residual, &self.residual.image))
    }

    /// What a unit has written: its output with the words around it, and the channels that it has appended.
    fn written(&self, device: &mut dyn Device) -> Result<[Vec<f32>; 2], DeviceError> {
        let mut appended = Vec::new();
        if self.appended.words > 0 {
            let residual = self.residual.read(device)?;
            appended.extend(self.appended.places().flat_map(|place| &residual[place]));
        }
        Ok([self.y.read(device)?, appended])
    }
}

/// The channels that a unit appends to its residual, fp32 NCHW, in the residual's allocation.
struct AppendedWords {
    images: usize,
    /// Words between consecutive images, before the appended channels in each, and of these.
    stride: usize,
    before: usize,
    words: usize,
}

impl AppendedWords {
    fn new(problem: &Problem, stride: usize) -> Self {
        let shape = problem.residual_shape();
        let channels = problem.kind().appended_channels();
        let [words, all] = [channels, shape.c].map(|c| (u64::from(c) * shape.pixels()) as usize);
        Self {
            images: if channels > 0 {
                shape.batch as usize
            } else {
                0
            },
            stride,
            before: all - words,
            words,
        }
    }

    /// Their places in the allocation, for each image.
    fn places(&self) -> impl Iterator<Item = std::ops::Range<usize>> + '_ {
        (0..self.images).map(|image| {
            let start = MARGIN + image * self.stride + self.before;
            start..start + self.words
        })
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
        tensors.written(device)
    };
    let first = run(device)?;
    let (mut last, mut same) = (first.clone(), true);
    for _ in 1..runs {
        last = run(device)?;
        same &= (0..2).all(|part| count_differing(&last[part], &first[part]) == 0);
    }
    let y = problem.kind().output();
    let (parts, part_words) = dense_parts(y);
    let output = OutputWords {
        parts,
        part_words,
        stride: tensors.y_stride,
    };
    let modified = output
        .modified_outside(&first[0])
        .max(output.modified_outside(&last[0]))
        + tensors.modified_inputs(device)?
        + tensors.workspace.modified_elements(device)?;
    if modified > 0 {
        return Err(CheckFailure::OutOfBounds(modified));
    }
    if problem.is_deterministic() && !same {
        return Err(CheckFailure::NotDeterministic);
    }
    let of_run = |[y, appended]: &[Vec<f32>; 2]| {
        let deviation = deviation(problem, output.values(y), data.expected());
        let shape = TensorShape {
            c: problem.kind().appended_channels(),
            ..problem.residual_shape()
        };
        match shape.c {
            0 => deviation,
            _ => larger_deviation(
                deviation,
                Deviation::between(shape, appended, data.appended()),
            ),
        }
    };
    let mut deviation = of_run(&first);
    if !same {
        deviation = larger_deviation(deviation, of_run(&last));
    }
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

/// The parts of a tensor that are dense in memory, and the words of each: images in fp32 NCHW, pixels of a view, else the whole tensor.
fn dense_parts(tensor: Tensor) -> (usize, usize) {
    let images = tensor.shape.batch as usize;
    let is_fp32_nchw = tensor.format == Format::default();
    let parts = match tensor.format.pixel_stride {
        Some(_) => images * tensor.shape.pixels() as usize,
        None if is_fp32_nchw => images,
        None => 1,
    };
    (parts, word_count(tensor) / parts)
}

/// The words of an output in its guarded allocation.
struct OutputWords {
    parts: usize,
    part_words: usize,
    /// Words between consecutive parts.
    stride: usize,
}

impl OutputWords {
    /// The output of a run.
    fn values(&self, run: &[f32]) -> Vec<f32> {
        let parts = run[MARGIN..].chunks(self.stride).take(self.parts);
        parts
            .flat_map(|part| &part[..self.part_words])
            .copied()
            .collect()
    }

    /// The number of other words of the allocation that a run has modified.
    fn modified_outside(&self, run: &[f32]) -> usize {
        let (before, run) = run.split_at(MARGIN);
        let (parts, after) = run.split_at(self.parts * self.stride);
        let gaps = parts
            .chunks(self.stride)
            .flat_map(|part| &part[self.part_words..]);
        let outside = before.iter().chain(gaps).chain(after);
        outside
            .filter(|value| value.to_bits() != OUTPUT_POISON)
            .count()
    }
}

/// The deviation of an output, as the words in memory, from the exact one, NCHW.
fn deviation(problem: &Problem, words: Vec<f32>, expected: &[f64]) -> Deviation {
    let y = problem.kind().output();
    let shape = y.shape;
    let found = values_of_words(y, words);
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
