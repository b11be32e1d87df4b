//! A depthwise convolution and the 1x1 convolution that is its only reader, as one unit.

use super::candidate::Candidate;
use crate::ir::{ConvProblem, Problem, Reduce, SeparableProblem};
use crate::plan::graph::{DepthwiseLayer, Parameters, Task, TaskGraph};

/// Adds a candidate for each pair.
pub(super) fn add(graph: &TaskGraph, candidates: &mut Vec<Candidate>) {
    let pairs = (0..graph.tasks.len()).filter_map(|depthwise| separable(graph, depthwise));
    candidates.extend(pairs);
}

/// The candidate whose first task is `depthwise`. `None` if that is no depthwise convolution, if anything else reads its output, or if the
/// residual of the 1x1 convolution is computed later.
fn separable(graph: &TaskGraph, depthwise: usize) -> Option<Candidate> {
    let tasks = &graph.tasks;
    let first = &tasks[depthwise];
    let conv = plain_conv(first)?;
    let shape = conv.shape;
    if shape.groups == 1 || [shape.c, shape.n] != [shape.groups; 2] || conv.epilogue.residual {
        return None;
    }
    let pointwise = graph.only_reader(first.y)?;
    let last = &tasks[pointwise];
    let product = plain_conv(last)?;
    let one = &product.shape;
    let is_pointwise = [one.r, one.s, one.groups] == [1; 3]
        && one.stride == [1, 1]
        && [one.c, one.h, one.w] == [shape.n, one.out_h(), one.out_w()];
    let runs_before = |value| {
        let (root, _) = graph.root(value);
        tasks[depthwise..]
            .iter()
            .all(|task| graph.root(task.y).0 != root)
    };
    if !is_pointwise || last.x != first.y || !last.residual.is_none_or(runs_before) {
        return None;
    }
    let problem = SeparableProblem {
        depthwise: shape,
        between: conv.epilogue,
        n: one.n,
        epilogue: product.epilogue,
    };
    Some(Candidate {
        task: Task {
            name: format!("{}+{}", first.name, last.name),
            problem: Problem::Separable(problem),
            x: first.x,
            parameters: Parameters {
                depthwise: Some(DepthwiseLayer {
                    layer: first.parameters.layer?,
                    fold: first.parameters.fold.clone(),
                }),
                ..last.parameters.clone()
            },
            ..last.clone()
        },
        covers: vec![depthwise, pointwise],
        other_outputs: Vec::new(),
        extends: None,
    })
}

/// The convolution of a task, if it is NCHW, has no prologue and no factors, and adds its partial sums in a fixed order.
fn plain_conv(task: &Task) -> Option<ConvProblem> {
    let conv = task.problem.nchw_conv()?;
    let is_plain = conv.prologue.is_none()
        && conv.reduce == Reduce::Ordered
        && task.parameters.factors.is_empty();
    is_plain.then_some(*conv)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Activation, BinaryOp, ConvOptions, NetworkBuilder, OpOptions, TensorShape};
    use crate::plan::graph::WeightPart;

    fn conv(n: u32, groups: u32, size: u32) -> ConvOptions {
        ConvOptions {
            kernel: [size; 2],
            groups,
            bias: true,
            ..ConvOptions::new(n)
        }
    }

    /// Labels and covered tasks of the candidates for a depthwise convolution of 6 channels, `b`, and a convolution of its output, whose sum
    /// with another tensor is an output.
    fn found(
        depthwise: ConvOptions,
        last: ConvOptions,
        residual: &str,
    ) -> Vec<(String, Vec<usize>)> {
        let mut builder = NetworkBuilder::new("net", TensorShape::new(2, 6, 9, 11));
        let mut op = |name: &str, inputs: &[&str], options| {
            let inputs: Vec<_> = inputs.iter().map(|&input| input.to_owned()).collect();
            builder.op(name, Some(&inputs), options);
        };
        op("a", &["input"], OpOptions::Conv(conv(6, 1, 1)));
        op("b", &["a"], OpOptions::Conv(depthwise));
        op("late", &["a"], OpOptions::Conv(conv(6, 1, 3)));
        op("c", &["b"], OpOptions::Conv(last));
        op(
            "sum",
            &["c", residual],
            OpOptions::Binary(BinaryOp::Add, Activation::Relu),
        );
        op(
            "all",
            &["sum", "late"],
            OpOptions::Binary(BinaryOp::Mul, Activation::None),
        );
        let graph = TaskGraph::new(&builder.finish().unwrap());
        let mut candidates = Vec::new();
        add(&graph, &mut candidates);
        let described = candidates.iter().map(|candidate| {
            let task = &candidate.task;
            assert_eq!(task.x, graph.tasks[1].x);
            assert_eq!(task.residual, graph.tasks[candidate.covers[1]].residual);
            let weights = task.parameters.weights();
            let weights = weights.iter().map(|&(op, part)| (op.0, part));
            assert!(weights.eq([(2, WeightPart::WithBias), (4, WeightPart::Whole)]));
            assert!(!task.parameters.carries_bias(0) && task.parameters.carries_bias(1));
            (task.problem.kind().label(), candidate.covers.clone())
        });
        described.collect()
    }

    #[test]
    fn a_depthwise_convolution_and_its_only_reader_are_one_unit() {
        let label = "separable_b2_c6_n6_h9_w11_k3x3_p1_g6_bias_pointwise_bias_residual_relu";
        let expected = vec![(label.to_owned(), vec![1, 3])];
        assert_eq!(found(conv(6, 6, 3), conv(6, 1, 1), "a"), expected);
    }

    #[test]
    fn other_pairs_are_not_fused() {
        let one = || conv(6, 1, 1);
        assert_eq!(found(conv(6, 3, 3), one(), "a"), []);
        assert_eq!(found(conv(6, 6, 3), conv(6, 1, 3), "a"), []);
        assert_eq!(found(conv(6, 6, 3), conv(6, 2, 1), "a"), []);
        // The residual is read by another task, or computed after the depthwise convolution.
        assert_eq!(found(conv(6, 6, 3), one(), "b"), []);
        assert_eq!(found(conv(6, 6, 3), one(), "late"), []);
        let ranked = ConvOptions {
            rank: Some(2),
            ..one()
        };
        assert_eq!(found(conv(6, 6, 3), ranked, "a"), []);
    }
}
