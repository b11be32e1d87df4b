//! Inverted residuals: a 1x1 convolution, a depthwise convolution of its output and a 1x1 convolution of that, as one unit.

use super::candidate::Candidate;
use crate::ir::{ConvProblem, InvertedResidualProblem, Problem};
use crate::plan::graph::{Parameters, Task, TaskGraph};

/// Adds a candidate for each 1x1 convolution that the two others follow.
pub(super) fn add(graph: &TaskGraph, candidates: &mut Vec<Candidate>) {
    let first = 0..graph.tasks.len();
    candidates.extend(first.filter_map(|expand| inverted_residual(graph, expand)));
}

/// The candidate whose first task is `expand`. `None` if what follows differs, or if other tasks read the values between the convolutions.
fn inverted_residual(graph: &TaskGraph, expand: usize) -> Option<Candidate> {
    let tasks = &graph.tasks;
    let depthwise = graph.only_reader(tasks[expand].y)?;
    let project = graph.only_reader(tasks[depthwise].y)?;
    let last = &tasks[project];
    let [expand_conv, depthwise_conv] = [expand, depthwise].map(|task| plain(&tasks[task]));
    let [expand_conv, depthwise_conv] = [expand_conv?, depthwise_conv?];
    let project_conv = plain(last)?;
    let [expand_shape, shape, project_shape] =
        [expand_conv, depthwise_conv, project_conv].map(|conv| conv.shape);
    let is_depthwise = shape.groups == shape.c && shape.n == shape.c;
    let is_inner = !expand_conv.epilogue.residual && !depthwise_conv.epilogue.residual;
    // The unit runs at the position of the first task.
    let residual = last.residual;
    let is_ready = residual.is_none_or(|residual| graph.is_computed_before(residual, expand));
    let problem = InvertedResidualProblem {
        depthwise: shape,
        c: expand_shape.c,
        n: project_shape.n,
        expand: expand_conv.epilogue,
        filter: depthwise_conv.epilogue,
        project: project_conv.epilogue,
        precision: project_conv.precision,
    };
    let is_sequence = problem.shapes() == [expand_shape, shape, project_shape];
    let is_valid = is_depthwise
        && is_inner
        && is_ready
        && is_sequence
        && expand_conv.precision == project_conv.precision;
    let inner = vec![
        tasks[expand].as_inner(expand_conv)?,
        tasks[depthwise].as_inner(depthwise_conv)?,
    ];
    is_valid.then(|| Candidate {
        task: Task {
            problem: Problem::InvertedResidual(problem),
            x: tasks[expand].x,
            parameters: Parameters {
                inner,
                ..last.parameters.clone()
            },
            ..last.clone()
        },
        covers: vec![expand, depthwise, project],
        other_outputs: Vec::new(),
        extends: None,
    })
}

/// The convolution of a task without prologue.
fn plain(task: &Task) -> Option<&ConvProblem> {
    task.plain_conv().filter(|conv| conv.prologue.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{
        Activation, BatchNorm, BinaryOp, ConvOptions, NetworkBuilder, OpOptions, TensorShape,
    };
    use crate::plan::graph::WeightPart;

    fn conv(n: u32, kernel: u32, groups: u32) -> ConvOptions {
        ConvOptions {
            kernel: [kernel; 2],
            groups,
            bn: Some(BatchNorm {
                name: "bn".to_owned(),
                eps: 1e-5,
            }),
            activation: Activation::Relu,
            ..ConvOptions::new(n)
        }
    }

    type Ops = Vec<(&'static str, Vec<&'static str>, OpOptions)>;

    /// A block of 7 channels that are expanded to 13, after a convolution.
    fn block() -> Ops {
        let linear = ConvOptions {
            activation: Activation::None,
            ..conv(7, 1, 1)
        };
        vec![
            ("x", vec!["input"], OpOptions::Conv(conv(7, 1, 1))),
            ("expand", vec!["x"], OpOptions::Conv(conv(13, 1, 1))),
            ("filter", vec!["expand"], OpOptions::Conv(conv(13, 3, 13))),
            ("project", vec!["filter"], OpOptions::Conv(linear)),
            (
                "sum",
                vec!["project", "x"],
                OpOptions::Binary(BinaryOp::Add, Activation::None),
            ),
        ]
    }

    fn fused(ops: &Ops) -> Vec<Candidate> {
        let mut builder = NetworkBuilder::new("net", TensorShape::new(2, 4, 9, 11));
        for (name, inputs, options) in ops {
            let inputs: Vec<_> = inputs.iter().map(|&input| input.to_owned()).collect();
            builder.op(name, Some(&inputs), options.clone());
            if *name == "more" {
                builder.name_output("another");
            }
        }
        let mut candidates = Vec::new();
        add(&TaskGraph::new(&builder.finish().unwrap()), &mut candidates);
        candidates
    }

    #[test]
    fn the_three_convolutions_are_one_unit() {
        let found = fused(&block());
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].covers, [1, 2, 3]);
        let task = &found[0].task;
        let label = "invertedresidual_b2_c7_e13_n7_h9_w11_k3x3_p1_bias_relu_depthwise_bias_relu_project_bias_residual";
        assert_eq!(task.problem.kind().label(), label);
        assert_eq!(task.residual, Some(task.x));
        let weights = task.parameters.weights();
        let weights = weights.iter().map(|&(op, part)| (op.0, part));
        let expected = [
            (2, WeightPart::Whole),
            (3, WeightPart::Whole),
            (4, WeightPart::Whole),
            (2, WeightPart::Bias),
            (3, WeightPart::Bias),
        ];
        assert!(weights.eq(expected));
        let carries_bias = [0, 1, 2, 3, 4].map(|index| task.parameters.carries_bias(index));
        assert_eq!(carries_bias, [false, false, true, false, false]);
    }

    #[test]
    fn other_sequences_are_not_fused() {
        let changed = |change: &dyn Fn(&mut Ops)| {
            let mut ops = block();
            change(&mut ops);
            fused(&ops).len()
        };
        let with = |index: usize, options: ConvOptions| {
            changed(&|ops| ops[index].2 = OpOptions::Conv(options.clone()))
        };
        assert_eq!(changed(&|_| {}), 1);
        // A filter of 3x3, or groups, in a 1x1 convolution; no depthwise convolution.
        assert_eq!(with(1, conv(13, 3, 1)), 0);
        assert_eq!(with(3, conv(7, 3, 1)), 0);
        assert_eq!(with(2, conv(13, 3, 1)), 0);
        assert_eq!(with(2, conv(26, 3, 13)), 0);
        // A requested scheme, ranks.
        let requested = ConvOptions {
            scheme: Some("direct".to_owned()),
            ..conv(13, 1, 1)
        };
        assert_eq!(with(1, requested), 0);
        let ranked = ConvOptions {
            rank: Some(2),
            ..conv(7, 1, 1)
        };
        assert_eq!(with(3, ranked), 0);
        // Other readers of the values between them, and one of the input.
        let reader = |value: &'static str| {
            let op = ("more", vec![value], OpOptions::Activation(Activation::Tanh));
            changed(&|ops| ops.insert(ops.len() - 1, op.clone()))
        };
        assert_eq!(["expand", "filter", "x"].map(reader), [0, 0, 1]);
        // A residual that is computed after the first of them.
        let late = |ops: &mut Ops| {
            ops.insert(2, ("late", vec!["x"], OpOptions::Conv(conv(7, 3, 1))));
            ops[5].1[1] = "late";
        };
        assert_eq!(changed(&late), 0);
    }
}
