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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{LinearOptions, NetworkBuilder, OpOptions, Precision, TensorShape};

    /// The convolutions among the candidates of a linear layer on flattened images.
    fn convolutions(batch: u32, rank: Option<u32>) -> Vec<ConvProblem> {
        let mut builder = NetworkBuilder::new("net", TensorShape::new(batch, 7, 3, 5));
        builder.op("flat", None, OpOptions::Flatten);
        let linear = LinearOptions {
            rank,
            precision: Precision::Tf32,
            ..LinearOptions::new(11)
        };
        builder.op("fc", None, OpOptions::Linear(linear));
        let graph = TaskGraph::new(&builder.finish().unwrap());
        let candidates = graph.candidates();
        let problems = candidates.iter().map(|candidate| candidate.task.problem);
        problems
            .filter_map(|problem| problem.conv().copied())
            .collect()
    }

    #[test]
    fn batches_have_a_convolution_of_one_pixel() {
        assert_eq!(convolutions(1, None), []);
        let found = convolutions(3, None);
        let [conv] = found[..] else {
            panic!("{found:?}");
        };
        let sizes = (conv.shape.batch, conv.shape.c, conv.shape.n);
        assert_eq!(sizes, (3, 105, 11));
        assert_eq!([conv.shape.h, conv.shape.w, conv.shape.r], [1; 3]);
        assert_eq!(conv.precision, Precision::Tf32);
        assert!(conv.epilogue.bias);
    }

    #[test]
    fn each_factor_has_one() {
        let found = convolutions(2, Some(4));
        let sizes: Vec<_> = found
            .iter()
            .map(|conv| (conv.shape.c, conv.shape.n))
            .collect();
        assert_eq!(sizes, [(105, 4), (4, 11)]);
    }
}
