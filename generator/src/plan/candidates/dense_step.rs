//! Dense steps: the convolution that computes the new channels of a dense layer, and the 1x1 convolution with which the next layer starts,
//! as one unit.

use super::candidate::Candidate;
use crate::ir::{ConvProblem, DenseStepProblem, Problem};
use crate::plan::graph::{Parameters, Task, TaskGraph, ValueId};
use crate::plan::nhwc_concats::NhwcConcats;

/// Adds a candidate for each convolution whose output ends the concatenation that a later 1x1 convolution reads.
pub(super) fn add(graph: &TaskGraph, candidates: &mut Vec<Candidate>) {
    let concats = NhwcConcats::of_graph(graph);
    let first = 0..graph.tasks.len();
    candidates.extend(first.filter_map(|growth| {
        let later = growth + 1..graph.tasks.len();
        let steps = later.filter_map(|pointwise| dense_step(graph, growth, pointwise));
        let mut steps = steps.filter(|step| !may_be_nhwc(graph, step.task.residual, &concats));
        // The one that can start first.
        steps.next()
    }));
}

/// Whether a value or one that contains it may be stored in NHWC.
fn may_be_nhwc(graph: &TaskGraph, mut value: Option<ValueId>, concats: &NhwcConcats) -> bool {
    while let Some(id) = value {
        if concats.contains(id) {
            return true;
        }
        value = graph.values[id.0].parent.map(|(parent, _)| parent);
    }
    false
}

/// The candidate of two tasks; `None` if they are something else, or if later tasks write channels that the second one reads.
fn dense_step(graph: &TaskGraph, growth: usize, pointwise: usize) -> Option<Candidate> {
    let [first, last] = [growth, pointwise].map(|task| &graph.tasks[task]);
    let [growth_conv, pointwise_conv] = [convolution(first)?, convolution(last)?];
    let shape = growth_conv.shape;
    let [all, new] = [last.x, first.y].map(|value| Channels::of(graph, value));
    let pixels = graph.values[first.y.0].shape.pixels();
    let is_end = all.root == new.root && all.start < new.start && all.end == new.end;
    if !is_end || (new.start - all.start) % pixels != 0 {
        return None;
    }
    let problem = DenseStepProblem {
        growth: shape,
        grown: growth_conv.epilogue,
        before: ((new.start - all.start) / pixels).try_into().ok()?,
        n: pointwise_conv.shape.n,
        prologue: pointwise_conv.prologue,
        epilogue: pointwise_conv.epilogue,
        precision: pointwise_conv.precision,
    };
    let is_valid = shape.groups == 1
        && reads_all_before(graph, first, &all, &new)
        && growth_conv.prologue.is_none()
        && growth_conv.precision == pointwise_conv.precision
        && pointwise_conv.shape == problem.pointwise()
        && is_ready(graph, &all, growth);
    let inner = first.as_inner(growth_conv)?;
    is_valid.then(|| Candidate {
        task: Task {
            name: format!("{}+{}", first.name, last.name),
            problem: Problem::DenseStep(problem),
            x: first.x,
            residual: Some(last.x),
            appended: Some(first.y),
            parameters: Parameters {
                inner: vec![inner],
                ..last.parameters.clone()
            },
            ..last.clone()
        },
        covers: vec![growth, pointwise],
        other_outputs: Vec::new(),
        extends: None,
    })
}

/// The convolution of a task without residual.
fn convolution(task: &Task) -> Option<&ConvProblem> {
    task.plain_conv().filter(|_| task.residual.is_none())
}

/// The elements of an image of the value that owns its memory, which a value takes.
struct Channels {
    root: ValueId,
    start: u64,
    end: u64,
}

impl Channels {
    fn of(graph: &TaskGraph, value: ValueId) -> Self {
        let (root, start) = graph.root(value);
        Self {
            root,
            start,
            end: start + graph.values[value.0].shape.image_len(),
        }
    }
}

/// Whether the input of the first convolution is computed by a layer that reads all channels before, factorised or not. If it is not, as in a
/// fire module of SqueezeNet, the convolution may run beside the tasks that compute those, and one unit would have to wait for them.
fn reads_all_before(graph: &TaskGraph, growth: &Task, all: &Channels, new: &Channels) -> bool {
    let writer_of = |value: ValueId| graph.tasks.iter().find(|task| task.y == value);
    let Some(writer) = writer_of(growth.x) else {
        return false;
    };
    // The first task of the layer.
    let layer = writer.parameters.layer;
    let is_of_layer = |task: &&Task| layer.is_some() && task.parameters.layer == layer;
    let of_layer =
        std::iter::successors(Some(writer), |task| writer_of(task.x).filter(is_of_layer));
    let read = of_layer.last().map(|task| Channels::of(graph, task.x));
    read.is_some_and(|read| (read.root, read.start, read.end) == (all.root, all.start, new.start))
}

/// Whether all channels before the new ones are computed before the task that computes these.
fn is_ready(graph: &TaskGraph, all: &Channels, growth: usize) -> bool {
    let writes_channels = |task: &Task| {
        let written = Channels::of(graph, task.y);
        written.root == all.root && written.start < all.end && all.start < written.end
    };
    graph.tasks.iter().rposition(writes_channels) == Some(growth)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{
        Activation, ConvOptions, NetworkBuilder, OpOptions, ScaleShiftOptions, TensorShape,
    };
    use crate::plan::graph::WeightPart;

    type Ops = Vec<(&'static str, Vec<&'static str>, OpOptions)>;

    fn conv(n: u32, kernel: u32) -> OpOptions {
        OpOptions::Conv(ConvOptions {
            kernel: [kernel; 2],
            bias: true,
            ..ConvOptions::new(n)
        })
    }

    fn relu() -> OpOptions {
        OpOptions::ScaleShift(ScaleShiftOptions {
            bn: None,
            activation: Activation::Relu,
        })
    }

    /// Two dense layers after a convolution of eight channels; each appends three.
    fn block() -> Ops {
        vec![
            ("x", vec!["input"], conv(8, 3)),
            ("norm1", vec!["x"], relu()),
            ("a1", vec!["norm1"], conv(16, 1)),
            ("a2", vec!["a1"], conv(3, 3)),
            ("all", vec!["x", "a2"], OpOptions::Concat),
            ("norm2", vec!["all"], relu()),
            ("b1", vec!["norm2"], conv(13, 1)),
            ("b2", vec!["b1"], conv(3, 3)),
            ("more", vec!["all", "b2"], OpOptions::Concat),
        ]
    }

    fn graph(ops: &Ops) -> TaskGraph {
        let mut builder = NetworkBuilder::new("net", TensorShape::new(2, 4, 9, 11));
        for (name, inputs, options) in ops {
            let inputs: Vec<_> = inputs.iter().map(|&input| input.to_owned()).collect();
            builder.op(name, Some(&inputs), options.clone());
        }
        TaskGraph::new(&builder.finish().unwrap())
    }

    fn fused(ops: &Ops) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        add(&graph(ops), &mut candidates);
        candidates
    }

    #[test]
    fn convolutions_of_adjacent_layers_are_one_unit() {
        let graph = graph(&block());
        let mut found = Vec::new();
        add(&graph, &mut found);
        assert_eq!(found.len(), 1);
        let task = &found[0].task;
        assert_eq!(task.name, "a2+b1");
        let label =
            "densestep_b2_c16_grow3_before8_n13_h9_w11_k3x3_p1_bias_concat_prologuerelu_bias";
        assert_eq!(task.problem.kind().label(), label);
        let name = |value: ValueId| &graph.values[value.0].name[..];
        let residual = task.residual.map(name);
        assert_eq!([name(task.x), name(task.y)], ["a1", "b1"]);
        assert_eq!(
            (residual, task.appended.map(name)),
            (Some("all"), Some("a2"))
        );
        let writes: Vec<_> = found[0].writes().map(|(value, _)| name(value)).collect();
        assert_eq!(writes, ["b1", "a2"]);
        // Ops by their ids: 4 is a2, 7 is b1.
        let weights = task.parameters.weights();
        let expected = [
            (4, WeightPart::Whole),
            (7, WeightPart::Whole),
            (4, WeightPart::Bias),
        ];
        assert!(weights.iter().map(|&(op, part)| (op.0, part)).eq(expected));
        let carries = [0, 1, 2].map(|index| {
            let parameters = &task.parameters;
            [
                parameters.carries_bias(index),
                parameters.carries_prologue(index),
            ]
        });
        assert_eq!(carries, [[false; 2], [true; 2], [false; 2]]);
    }

    #[test]
    fn other_sequences_are_not_fused() {
        let changed = |change: &dyn Fn(&mut Ops)| {
            let mut ops = block();
            change(&mut ops);
            fused(&ops).len()
        };
        assert_eq!(changed(&|_| {}), 1);
        // A filter of 3x3 instead of 1x1; ranks; a requested scheme.
        assert_eq!(changed(&|ops| ops[6].2 = conv(13, 3)), 0);
        let with = |index: usize, change: &dyn Fn(&mut ConvOptions)| {
            changed(&|ops| {
                if let OpOptions::Conv(options) = &mut ops[index].2 {
                    change(options);
                }
            })
        };
        assert_eq!(with(3, &|options| options.ranks = Some([2, 2])), 0);
        assert_eq!(
            with(6, &|options| options.scheme = Some("direct".to_owned())),
            0
        );
        assert_eq!(
            with(3, &|options| options.precision = crate::ir::Precision::Tf32),
            0
        );
        // The new channels come first, so that others follow them.
        assert_eq!(changed(&|ops| ops[4].1 = vec!["a2", "x"]), 0);
        // The layer before may be factorised.
        assert_eq!(with(2, &|options| options.rank = Some(5)), 1);
        // The first convolution does not depend on all channels before, as in a fire module.
        assert_eq!(changed(&|ops| ops[1].1 = vec!["input"]), 0);
        // A channel before that is computed later.
        let late = |ops: &mut Ops| {
            ops.insert(4, ("late", vec!["x"], conv(2, 3)));
            ops[5].1 = vec!["x", "late", "a2"];
        };
        assert_eq!(changed(&late), 0);
        // Other readers do not matter.
        let reader = |ops: &mut Ops| {
            let tanh = OpOptions::Activation(Activation::Tanh);
            ops.insert(8, ("tanh", vec!["a2"], tanh));
            ops[9].1.push("tanh");
        };
        assert_eq!(changed(&reader), 1);
    }
}
