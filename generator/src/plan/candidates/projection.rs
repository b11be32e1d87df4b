//! The last convolution of a residual block together with the projection shortcut that is added to it, as one unit in an NHWC format.

use super::candidate::Candidate;
use super::formats::nhwc_format;
use crate::ir::{
    Activation, ConvProblem, Epilogue, Precision, Problem, ProjectedProblem, Shortcut,
};
use crate::plan::graph::{Parameters, Projection, Task, TaskGraph};
use tdc_runtime::Padding;

/// Adds a candidate for each sum of two such convolutions.
pub(super) fn add(graph: &TaskGraph, candidates: &mut Vec<Candidate>) {
    let sums = 0..graph.tasks.len();
    candidates.extend(sums.filter_map(|sum| projected(graph, sum)));
}

/// The candidate for a task that adds a residual, if another task computes the residual for it alone.
fn projected(graph: &TaskGraph, sum: usize) -> Option<Candidate> {
    let tasks = &graph.tasks;
    let residual = tasks[sum].residual?;
    let other = tasks.iter().position(|task| task.y == residual)?;
    if graph.only_reader(residual) != Some(sum) {
        return None;
    }
    let [last, before] = [sum, other].map(|index| &tasks[index]);
    let (last_conv, before_conv) = (pointwise(last)?, pointwise(before)?);
    let is_linear =
        before_conv.epilogue.activation == Activation::None && before.residual.is_none();
    if !is_linear || last_conv.precision != before_conv.precision {
        return None;
    }
    // Either of them may be the shortcut. The other one has as many pixels as the output.
    let dense = |conv: &ConvProblem| conv.shape.stride == [1, 1];
    let (own, own_conv, shortcut, shortcut_conv) = match dense(last_conv) {
        true => (last, last_conv, before, before_conv),
        false if dense(before_conv) => (before, before_conv, last, last_conv),
        false => return None,
    };
    let shape = &shortcut_conv.shape;
    let problem = ProjectedProblem {
        x: own.problem.x(),
        n: own_conv.shape.n,
        shortcut: Shortcut {
            image: [shape.c, shape.h, shape.w],
            stride: shape.stride,
        },
        epilogue: Epilogue {
            bias: last_conv.epilogue.bias || before_conv.epilogue.bias,
            residual: false,
            activation: last_conv.epilogue.activation,
        },
        precision: own_conv.precision,
        format: nhwc_format(graph, own_conv)?,
    };
    let fits = [problem.x.c, problem.n, shape.c]
        .iter()
        .all(|&channels| problem.format.fits_channels(channels));
    let mut covers = vec![sum, other];
    covers.sort_unstable();
    // The unit runs at the position of the first task.
    let is_ready = [own.x, shortcut.x].iter().all(|&input| {
        let root = graph.root(input).0;
        let writers = tasks.iter().rposition(|task| graph.root(task.y).0 == root);
        writers.is_none_or(|writer| writer < covers[0])
    });
    let is_valid = fits && is_ready && problem.is_valid();
    let added = Projection {
        layer: shortcut.parameters.layer?,
        fold: shortcut.parameters.fold.clone(),
    };
    is_valid.then(|| Candidate {
        task: Task {
            name: format!("{}+{}", own.name, shortcut.name),
            problem: Problem::Projected(problem),
            x: own.x,
            residual: Some(shortcut.x),
            y: last.y,
            parameters: Parameters {
                projection: Some(added),
                ..own.parameters.clone()
            },
            scheme: None,
            tile: None,
        },
        covers,
        other_outputs: Vec::new(),
        extends: None,
    })
}

/// The 1x1 convolution of a task: of a layer that is not factorised, without padding, groups, prologue, or a request of the config's.
fn pointwise(task: &Task) -> Option<&ConvProblem> {
    let conv = task.problem.nchw_conv()?;
    let shape = &conv.shape;
    let is_plain = task.parameters.factors.is_empty()
        && task.parameters.scale_shift.is_none()
        && task.scheme.is_none()
        && task.problem.is_deterministic()
        && conv.precision != Precision::Bf16;
    let is_pointwise =
        [shape.r, shape.s, shape.groups] == [1; 3] && shape.padding == Padding::default();
    (is_plain && is_pointwise).then_some(conv)
}
