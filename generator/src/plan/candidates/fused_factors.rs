//! Several factors of a Tucker or CP layer by one unit: all of them, or core and last factor of a Tucker layer, whose first factor then is
//! a separate launch.

use super::candidate::Candidate;
use crate::ir::{CORE_LAST, ConvProblem, CpProblem, FusedTucker, Problem, TuckerProblem};
use crate::plan::graph::{Parameters, Task, TaskGraph};
use std::ops::Range;
use tdc_runtime::{ConvShape, FactorRole, Padding};

/// The tasks that fuse several factors of a layer.
pub(super) struct FusedFactors {
    /// The layer's tasks, one for each factor.
    pub tasks: Range<usize>,
    /// All factors.
    pub whole: Task,
    /// For a Tucker layer with a first factor: core and last factor.
    pub core_last: Option<Task>,
}

/// Adds the candidates of each layer.
pub(super) fn add(graph: &TaskGraph, candidates: &mut Vec<Candidate>) {
    let layers = (0..graph.tasks.len()).filter_map(|index| fused_factors(graph, index));
    for FusedFactors {
        tasks,
        whole,
        core_last,
    } in layers
    {
        let (start, end) = (tasks.start, tasks.end);
        candidates.push(Candidate::of_tasks(whole, tasks));
        let core_last = core_last.map(|task| Candidate::of_tasks(task, start + 1..end));
        candidates.extend(core_last);
    }
}

/// The tasks that can compute the Tucker or CP layer whose first task is at `index`. `None` if no layer starts there, if its partial sums
/// are added by atomics, or if it is not NCHW.
pub(super) fn fused_factors(graph: &TaskGraph, index: usize) -> Option<FusedFactors> {
    let layer = graph.tasks.get(index)?.parameters.layer?;
    let is_of_layer = |task: &Task| task.parameters.layer == Some(layer);
    if index > 0 && is_of_layer(&graph.tasks[index - 1]) {
        return None;
    }
    let rest = &graph.tasks[index..];
    let count = rest.iter().take_while(|task| is_of_layer(task)).count();
    let tasks = &rest[..count];
    let roles: Vec<FactorRole> = tasks
        .iter()
        .flat_map(|task| task.parameters.factors.iter().copied())
        .collect();
    if roles.contains(&FactorRole::Core) {
        return fused_tucker(graph, index, tasks, &roles);
    }
    match roles == FactorRole::CP || roles == FactorRole::CP_HORIZONTAL_FIRST {
        true => fused_cp(graph, index, tasks),
        false => None,
    }
}

fn fused_tucker(
    graph: &TaskGraph,
    index: usize,
    tasks: &[Task],
    roles: &[FactorRole],
) -> Option<FusedFactors> {
    let factors = roles.iter().zip(tasks);
    let factors = factors.map(|(role, task)| Some((*role, conv(task)?)));
    let FusedTucker { whole, core_last } = FusedTucker::new(&factors.collect::<Option<Vec<_>>>()?)?;
    let name = layer_name(graph, tasks.first()?)?;
    let core_last_name = format!("{name}.{CORE_LAST}");
    let fused = |tasks: &[Task], name, problem: TuckerProblem| {
        fused_task(tasks, name, Problem::Tucker(problem), problem.roles())
    };
    Some(FusedFactors {
        tasks: index..index + tasks.len(),
        whole: fused(tasks, name, whole),
        core_last: core_last.map(|problem| fused(&tasks[1..], core_last_name, problem)),
    })
}

fn fused_cp(graph: &TaskGraph, index: usize, tasks: &[Task]) -> Option<FusedFactors> {
    let [first, filters @ .., last] = tasks else {
        return None;
    };
    let filter = |factor: FactorRole| {
        let mut filters = filters.iter();
        let task = filters.find(|task| task.parameters.factors == [factor])?;
        Some(conv(task)?.shape)
    };
    let vertical = filter(FactorRole::Vertical)?;
    let horizontal = filter(FactorRole::Horizontal)?;
    let (first_conv, last_conv) = (conv(first)?, conv(last)?);
    let whole = CpProblem {
        conv: ConvProblem {
            shape: ConvShape {
                n: last_conv.shape.n,
                r: vertical.r,
                s: horizontal.s,
                stride: [vertical.stride[0], horizontal.stride[1]],
                padding: Padding {
                    left: horizontal.padding.left,
                    right: horizontal.padding.right,
                    ..vertical.padding
                },
                dilation: [vertical.dilation[0], horizontal.dilation[1]],
                ..first_conv.shape
            },
            prologue: first_conv.prologue,
            ..last_conv
        },
        rank: vertical.c,
    };
    let name = layer_name(graph, first)?;
    Some(FusedFactors {
        tasks: index..index + tasks.len(),
        whole: fused_task(tasks, name, Problem::Cp(whole), &FactorRole::CP),
        core_last: None,
    })
}

/// The task of consecutive factors of a layer, with the scheme and tile that the config requests for the layer.
fn fused_task(tasks: &[Task], name: String, problem: Problem, factors: &[FactorRole]) -> Task {
    let (first, last) = (&tasks[0], &tasks[tasks.len() - 1]);
    let is_inner = |task: &&Task| task.parameters.factors != [FactorRole::First];
    let inner = tasks.iter().find(is_inner).unwrap_or(last);
    Task {
        name,
        problem,
        x: first.x,
        parameters: Parameters {
            factors: factors.to_vec(),
            scale_shift: first.parameters.scale_shift,
            ..last.parameters.clone()
        },
        scheme: inner.scheme.clone(),
        tile: inner.tile.clone(),
        ..last.clone()
    }
}

fn conv(task: &Task) -> Option<ConvProblem> {
    task.problem.nchw_conv().copied()
}

fn layer_name(graph: &TaskGraph, first: &Task) -> Option<String> {
    let layer = first.parameters.layer?;
    Some(graph.values[layer.0].name.clone())
}
