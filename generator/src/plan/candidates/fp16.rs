//! Tasks with activations in fp16 NHWC, where the network allows them: convolutions of precision fp16, and pooling.
//!
//! The search chooses formats and conversions by the time of the whole chain. Products of these convolutions are of fp16 numbers in any case,
//! so an fp16 input loses nothing that they would keep; an output, and a residual, are rounded in addition.

use super::candidate::Candidate;
use super::linear_as_convolution::as_convolution;
use crate::ir::{ConvProblem, DType, Format, GlobalPoolProblem, PoolProblem, Precision, Problem};
use crate::plan::graph::{Task, TaskGraph};

/// Adds the candidates of each task that can have such an input or output.
pub(super) fn add(graph: &TaskGraph, candidates: &mut Vec<Candidate>) {
    if graph.activations != DType::Fp16 {
        return;
    }
    for (at, task) in graph.tasks.iter().enumerate() {
        let convolution = as_convolution(graph, task);
        let task = convolution.as_ref().unwrap_or(task);
        // A flattened image has another order of elements in NHWC.
        let is_flattened = graph.values[task.x.0].shape != task.problem.x();
        let problems = in_other_formats(task).into_iter();
        let problems = problems
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

/// The problem of a task with fp16 input, fp16 output, and both, as far as its schemes may support them.
fn in_other_formats(task: &Task) -> Vec<Problem> {
    let (fp32, fp16) = (Format::default(), Format::FP16_NHWC);
    let formats = [(fp16, fp16), (fp16, fp32), (fp32, fp16)];
    let fits = |&(input, output): &(Format, Format)| {
        let side =
            |format: Format, channels: u32| format == fp32 || Format::fits_fp16_nhwc(channels);
        side(input, task.problem.x().c) && side(output, task.problem.y().c)
    };
    let formats = formats.into_iter().filter(fits);
    match task.problem {
        Problem::Conv(conv) if is_eligible(task, &conv) => formats
            .map(|(input, output)| Problem::Conv(conv.in_formats(input, output)))
            .collect(),
        Problem::Pool(pool) => formats
            .map(|(input, output)| {
                Problem::Pool(PoolProblem {
                    input,
                    output,
                    ..pool
                })
            })
            .collect(),
        Problem::GlobalPool(pool) => formats
            .filter(|&(_, output)| output == fp32)
            .map(|(input, _)| Problem::GlobalPool(GlobalPoolProblem { input, ..pool }))
            .collect(),
        _ => Vec::new(),
    }
}

/// Whether the formats of a convolution are left to the planner.
fn is_eligible(task: &Task, conv: &ConvProblem) -> bool {
    conv.input == Format::default()
        && conv.output == Format::default()
        && conv.precision == Precision::Fp16
        && task.scheme.is_none()
}
