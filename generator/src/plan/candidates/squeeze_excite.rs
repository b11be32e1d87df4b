//! Squeeze-and-excite: the average of each channel, two fully connected layers, and the product of the averaged tensor with their output,
//! as one unit.

use super::candidate::Candidate;
use crate::ir::{
    BinaryOp, Elementwise, ElementwiseProblem, Epilogue, GlobalPoolProblem, Problem,
    SqueezeExciteProblem,
};
use crate::plan::graph::{InnerLayer, Parameters, Task, TaskGraph};

/// Adds a candidate for each average that two layers and a product follow.
pub(super) fn add(graph: &TaskGraph, candidates: &mut Vec<Candidate>) {
    let averages = 0..graph.tasks.len();
    candidates.extend(averages.filter_map(|average| squeeze_excite(graph, average)));
}

/// The candidate whose first task is `average`. `None` if that is no average, or if what follows differs or is also read by other tasks.
fn squeeze_excite(graph: &TaskGraph, average: usize) -> Option<Candidate> {
    let tasks = &graph.tasks;
    let Problem::GlobalPool(GlobalPoolProblem { max: false, x, .. }) = tasks[average].problem
    else {
        return None;
    };
    let squeeze = graph.only_reader(tasks[average].y)?;
    let excite = graph.only_reader(tasks[squeeze].y)?;
    let product = graph.only_reader(tasks[excite].y)?;
    let (squeeze_layer, squeezed) = layer(&tasks[squeeze])?;
    let (excite_layer, channels) = layer(&tasks[excite])?;
    let squeeze_parameters = &tasks[squeeze].parameters;
    let last = &tasks[product];
    let Problem::Elementwise(ElementwiseProblem {
        function: Elementwise::Binary(BinaryOp::Gate, after),
        ..
    }) = last.problem
    else {
        return None;
    };
    let gates_average = last.x == tasks[average].x
        && channels == x.c
        && last.residual.map(|gate| graph.root(gate)) == Some((tasks[excite].y, 0));
    if !gates_average {
        return None;
    }
    let problem = SqueezeExciteProblem {
        x,
        squeezed,
        squeeze: squeeze_layer,
        excite: excite_layer,
        after,
    };
    let squeeze_op = InnerLayer {
        layer: squeeze_parameters.layer?,
        fold: squeeze_parameters.fold.clone(),
        bias: squeeze_layer.bias,
    };
    let mut covers = vec![average, squeeze, excite, product];
    covers.sort_unstable();
    Some(Candidate {
        task: Task {
            problem: Problem::SqueezeExcite(problem),
            residual: None,
            parameters: Parameters {
                inner: vec![squeeze_op],
                ..tasks[excite].parameters.clone()
            },
            ..last.clone()
        },
        covers,
        other_outputs: Vec::new(),
        extends: None,
    })
}

/// Epilogue and output features of a fully connected layer, or of a 1x1 convolution of single pixels.
fn layer(task: &Task) -> Option<(Epilogue, u32)> {
    let is_whole = task.parameters.factors.is_empty();
    match &task.problem {
        Problem::Linear(linear) if is_whole => Some((linear.epilogue, linear.n)),
        problem => {
            let conv = problem.nchw_conv()?;
            let shape = &conv.shape;
            let is_plain = conv.prologue.is_none() && !conv.epilogue.residual && is_whole;
            let is_matrix = [shape.h, shape.w, shape.r, shape.s, shape.groups] == [1; 5]
                && [shape.out_h(), shape.out_w()] == [1; 2];
            (is_plain && is_matrix).then_some((conv.epilogue, shape.n))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{
        Activation, ConvOptions, LinearOptions, NetworkBuilder, OpOptions, TensorShape,
    };
    use crate::plan::graph::WeightPart;

    type Ops = Vec<(&'static str, Vec<&'static str>, OpOptions)>;

    fn conv(n: u32, bias: bool, activation: Activation) -> OpOptions {
        OpOptions::Conv(ConvOptions {
            kernel: [1, 1],
            bias,
            activation,
            ..ConvOptions::new(n)
        })
    }

    /// A block of 7 channels, with 3 squeezed features, and a convolution that reads its output.
    fn block() -> Ops {
        vec![
            ("x", vec!["input"], conv(7, false, Activation::Relu)),
            ("mean", vec!["x"], OpOptions::GlobalAvgPool),
            ("fc1", vec!["mean"], conv(3, true, Activation::Relu)),
            ("fc2", vec!["fc1"], conv(7, true, Activation::Sigmoid)),
            (
                "se",
                vec!["x", "fc2"],
                OpOptions::Binary(BinaryOp::Mul, Activation::None),
            ),
            ("last", vec!["se"], conv(5, false, Activation::None)),
        ]
    }

    fn graph_of(ops: &Ops) -> TaskGraph {
        let mut builder = NetworkBuilder::new("net", TensorShape::new(2, 4, 9, 11));
        for (name, inputs, options) in ops {
            let inputs: Vec<_> = inputs.iter().map(|&input| input.to_owned()).collect();
            builder.op(name, Some(&inputs), options.clone());
            if *name == "more" {
                builder.name_output("another");
            }
        }
        TaskGraph::new(&builder.finish().unwrap())
    }

    fn fused(ops: &Ops) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        add(&graph_of(ops), &mut candidates);
        candidates
    }

    #[test]
    fn average_layers_and_product_are_one_unit() {
        let found = fused(&block());
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].covers, [1, 2, 3, 4]);
        let task = &found[0].task;
        let label = "squeezeexcite_b2_c7_h9_w11_n3_bias_relu_gate_bias_sigmoid";
        assert_eq!(task.problem.kind().label(), label);
        let graph = graph_of(&block());
        assert_eq!([task.x, task.y], [graph.tasks[1].x, graph.tasks[4].y]);
        let weights = task.parameters.weights();
        let weights = weights.iter().map(|&(op, part)| (op.0, part));
        let expected = [
            (3, WeightPart::Whole),
            (4, WeightPart::Whole),
            (3, WeightPart::Bias),
        ];
        assert!(weights.eq(expected));
        let carries_bias = [0, 1, 2].map(|index| task.parameters.carries_bias(index));
        assert_eq!(carries_bias, [false, true, false]);
    }

    #[test]
    fn linear_layers_read_a_flattened_average() {
        let mut ops = block();
        let linear = |n| {
            OpOptions::Linear(LinearOptions {
                bias: false,
                ..LinearOptions::new(n)
            })
        };
        ops[2] = ("fc1", vec!["flat"], linear(3));
        ops[3] = ("fc2", vec!["fc1"], linear(7));
        ops.insert(2, ("flat", vec!["mean"], OpOptions::Flatten));
        let found = fused(&ops);
        assert_eq!(found.len(), 1);
        let label = "squeezeexcite_b2_c7_h9_w11_n3_gate";
        assert_eq!(found[0].task.problem.kind().label(), label);
    }

    #[test]
    fn other_sequences_are_not_fused() {
        let changed = |change: &dyn Fn(&mut Ops)| {
            let mut ops = block();
            change(&mut ops);
            fused(&ops).len()
        };
        assert_eq!(changed(&|_| {}), 1);
        assert_eq!(changed(&|ops| ops[1].2 = OpOptions::GlobalMaxPool), 0);
        // Another reader of the average, of the squeezed features or of the gate; the product of another tensor.
        let reader = |value: &'static str| {
            let ops = ("more", vec![value], OpOptions::Activation(Activation::Tanh));
            changed(&|all| all.insert(all.len() - 1, ops.clone()))
        };
        assert_eq!(
            ["mean", "fc1", "fc2", "x", "se"].map(reader),
            [0, 0, 0, 1, 1]
        );
        let other = |ops: &mut Ops| {
            ops.insert(1, ("other", vec!["input"], conv(7, true, Activation::None)));
            ops[5].1[0] = "other";
        };
        assert_eq!(changed(&other), 0);
        let ranked = |ops: &mut Ops| {
            if let OpOptions::Conv(options) = &mut ops[2].2 {
                options.rank = Some(1);
            }
        };
        assert_eq!(changed(&ranked), 0);
    }
}
