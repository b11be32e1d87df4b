//! Tasks with activations in the NHWC formats that tensor cores read: convolutions, and pooling.
//!
//! The search chooses formats and conversions by the time of the whole chain.
//!
//! - fp16 NHWC, where the network allows it, for convolutions of precision fp16. Their products are of fp16 numbers in any case, so an fp16
//!   input loses nothing that they would keep; an output, and a residual, are rounded in addition. bf16 NHWC likewise.
//! - Split NHWC for fp32 activations. It keeps 22 bits of values that are not much smaller than the largest.

use super::candidate::Candidate;
use super::linear_as_convolution::as_convolution;
use crate::ir::{ConvProblem, Format, GlobalPoolProblem, Layout, PoolProblem, Problem};
use crate::plan::graph::{Task, TaskGraph};
use crate::plan::nhwc_concats::NhwcConcats;

/// Adds the candidates of each task that can have such an input or output.
pub(super) fn add(graph: &TaskGraph, candidates: &mut Vec<Candidate>) {
    let concats = NhwcConcats::of_graph(graph);
    for (at, task) in graph.tasks.iter().enumerate() {
        let convolution = as_convolution(graph, task);
        let task = convolution.as_ref().unwrap_or(task);
        // A flattened image has another order of elements in NHWC.
        let is_flattened = graph.values[task.x.0].shape != task.problem.x();
        let problems = formats_of(graph, task)
            .into_iter()
            .flat_map(|format| match format {
                Format::SPLIT_NHWC => in_split(task),
                _ => in_16_bits(task, format, &concats),
            })
            .filter(|problem| !is_flattened || problem.kind().input().format == Format::default());
        candidates.extend(problems.map(|problem| {
            let task = Task {
                problem,
                ..task.clone()
            };
            Candidate::of_tasks(task, at..at + 1)
        }));
    }
}

/// The NHWC formats that the network may store for a task: of a convolution that of its precision; for pooling those of all convolutions, and
/// the 16-bit one in any case, as the network's output may have it.
fn formats_of(graph: &TaskGraph, task: &Task) -> Vec<Format> {
    if let Some(conv) = task.problem.conv() {
        return nhwc_format(graph, conv).into_iter().collect();
    }
    let of_16_bits = Format::new(graph.activations, Layout::Nhwc);
    let mut convolutions = graph.tasks.iter().filter_map(|task| task.problem.conv());
    let is_split = |conv| nhwc_format(graph, conv) == Some(Format::SPLIT_NHWC);
    let formats = [
        of_16_bits.is_16_bit_nhwc().then_some(of_16_bits),
        convolutions.any(is_split).then_some(Format::SPLIT_NHWC),
    ];
    formats.into_iter().flatten().collect()
}

/// The NHWC format of both input and output of a convolution, if the network may store activations in one: that of its precision, where
/// it is the type of the activations, else split NHWC, which has not the range of bf16.
pub(super) fn nhwc_format(graph: &TaskGraph, conv: &ConvProblem) -> Option<Format> {
    match conv.precision.nhwc_format() {
        Some(format) if format.dtype == graph.activations => Some(format),
        Some(Format::BF16_NHWC) => None,
        _ => Some(Format::SPLIT_NHWC),
    }
}

/// The convolution of a task that is a first layer, with an output in each format that the network may store; none for another task.
pub(super) fn first_layer_outputs(graph: &TaskGraph, task: &Task) -> Vec<ConvProblem> {
    let Some(conv) = task.problem.nchw_conv() else {
        return Vec::new();
    };
    let is_plain = task.parameters.factors.is_empty() && conv.prologue.is_none();
    if !is_plain || !is_first_layer(conv) || !is_free(task, conv) {
        return Vec::new();
    }
    let stored = nhwc_format(graph, conv).filter(|format| format.fits_channels(conv.shape.n));
    let outputs = [Some(Format::default()), stored].into_iter().flatten();
    outputs
        .map(|output| conv.in_formats(Format::default(), output))
        .collect()
}

/// Whether a convolution has so few channels that its pixels are gathered.
fn is_first_layer(conv: &ConvProblem) -> bool {
    conv.shape.c <= 4
}

/// The problem of a task with input, output, and both in an NHWC format of 16-bit numbers, as far as its schemes may support them. The part
/// of a concatenation is a view of it.
fn in_16_bits(task: &Task, nhwc: Format, concats: &NhwcConcats) -> Vec<Problem> {
    let fp32 = Format::default();
    let [input, output] = [task.x, task.y].map(|value| concats.format_of(value, nhwc));
    let pairs = [
        input.zip(output),
        input.zip(Some(fp32)),
        Some(fp32).zip(output),
    ];
    let pairs: Vec<_> = pairs.into_iter().flatten().collect();
    in_formats(task, &pairs)
}

/// The same with split input, and for a first layer with split output. An fp32 input of other layers is converted by a unit of the
/// planner's own, which all readers share.
fn in_split(task: &Task) -> Vec<Problem> {
    let (fp32, split) = (Format::default(), Format::SPLIT_NHWC);
    let is_first = task.problem.conv().is_some_and(is_first_layer);
    let pairs: &[_] = match is_first {
        true => &[(fp32, split)],
        false => &[(split, split), (split, fp32)],
    };
    in_formats(task, pairs)
}

/// The problem of a task with the pairs of formats of input and output that fit it.
fn in_formats(task: &Task, pairs: &[(Format, Format)]) -> Vec<Problem> {
    let [c, n] = [task.problem.x().c, task.problem.y().c];
    let fits =
        |&(input, output): &(Format, Format)| input.fits_channels(c) && output.fits_channels(n);
    let pairs = pairs.iter().copied().filter(fits);
    match task.problem {
        // A residual has the output's format, but is no view.
        Problem::Conv(conv) if is_free(task, &conv) => pairs
            .filter(|(_, output)| output.pixel_stride.is_none() || !conv.epilogue.residual)
            .map(|(input, output)| Problem::Conv(conv.in_formats(input, output)))
            .collect(),
        // A pool keeps the scale of its input, and its layout if that is NHWC.
        Problem::Pool(pool) => pairs
            .filter(|(_, output)| *output != Format::default())
            .filter(|(input, output)| {
                (*input == Format::SPLIT_NHWC) == (*output == Format::SPLIT_NHWC)
            })
            .map(|(input, output)| {
                Problem::Pool(PoolProblem {
                    input,
                    output,
                    ..pool
                })
            })
            .collect(),
        Problem::GlobalPool(pool) => pairs
            .filter(|(input, output)| input.pixel_stride.is_none() && *output == Format::default())
            .map(|(input, _)| Problem::GlobalPool(GlobalPoolProblem { input, ..pool }))
            .collect(),
        _ => Vec::new(),
    }
}

/// Whether the formats of a convolution are left to the planner.
fn is_free(task: &Task, conv: &ConvProblem) -> bool {
    conv.input == Format::default() && conv.output == Format::default() && task.scheme.is_none()
}
