//! A linear layer for several images as a 1x1 convolution of images of one pixel.
//!
//! Sums, weights and memory are the same. The schemes of convolutions multiply on tensor cores, and read the weights once for many images;
//! the scheme `linear` reads them again for every eight images, but is faster for a few.

use super::candidate::Candidate;
use crate::ir::{ConvProblem, Problem};
use crate::plan::graph::{Task, TaskGraph};
use tdc_runtime::ConvShape;

/// Adds a candidate for each linear layer, or factor of one, of a batch.
pub(super) fn add(graph: &TaskGraph, candidates: &mut Vec<Candidate>) {
    for (at, task) in graph.tasks.iter().enumerate() {
        if let Some(task) = as_convolution(graph, task) {
            candidates.push(Candidate::of_tasks(task, at..at + 1));
        }
    }
}

/// The task of a linear layer for several images as a convolution; `None` for any other task.
pub(super) fn as_convolution(graph: &TaskGraph, task: &Task) -> Option<Task> {
    let Problem::Linear(linear) = task.problem else {
        return None;
    };
    let layer = task.parameters.layer?;
    let shape = ConvShape {
        batch: linear.batch,
        ..ConvShape::new(linear.c, linear.n, 1, 1, 1, 1)
    };
    let convolution = ConvProblem {
        epilogue: linear.epilogue,
        precision: *graph.linear_precisions.get(&layer)?,
        ..ConvProblem::new(shape)
    };
    (linear.batch > 1).then(|| Task {
        problem: Problem::Conv(convolution),
        ..task.clone()
    })
}
