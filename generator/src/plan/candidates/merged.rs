//! Merged siblings: convolutions of the same input that differ in their weights only, such as the 1x1 branches of an Inception module, as
//! one convolution with their output channels one after the other.
//!
//! The unit is that of an ordinary convolution, so its output is one tensor. An output that owns its memory can be at any place in it. The
//! slices of a concatenation cannot, but if they are its first ones, the others can precede them: then the concatenation and the other
//! outputs are one tensor in memory, `[others | slices of these siblings | other slices]`. The same holds for its last slices.

use super::candidate::Candidate;
use crate::ir::{ConvProblem, Epilogue, MAX_ELEMENTS, OpId, Problem, TensorShape};
use crate::plan::graph::{MergedLayer, Parameters, Task, TaskGraph, Value, ValueId};
use tdc_runtime::ConvShape;

/// Adds a candidate for each run of siblings whose outputs can follow each other.
pub(super) fn add(graph: &TaskGraph, candidates: &mut Vec<Candidate>) {
    for siblings in siblings(graph) {
        let first = candidates.len();
        for row in rows(graph, &siblings) {
            for start in 0..row.len() {
                for end in start + 2..=row.len() {
                    let Some(merged) = merged(graph, &row[start..end]) else {
                        continue;
                    };
                    let mut own = candidates[first..].iter();
                    if own.all(|known| known.covers != merged.covers) {
                        candidates.push(merged);
                    }
                }
            }
        }
    }
}

/// What siblings have in common: input, prologue, and the convolution but for its output channels and bias.
#[derive(PartialEq)]
struct Kind {
    x: ValueId,
    scale_shift: Option<OpId>,
    conv: ConvProblem,
}

impl Kind {
    /// `None` for a task that is not merged: one that is no NCHW convolution of one group, that computes a factor, adds a residual or uses
    /// atomics, or whose scheme the config requests.
    fn of(task: &Task) -> Option<Self> {
        let conv = task.plain_conv()?;
        let is_plain = task.residual.is_none() && conv.shape.groups == 1;
        is_plain.then_some(Self {
            x: task.x,
            scale_shift: task.parameters.scale_shift,
            conv: ConvProblem {
                shape: ConvShape { n: 1, ..conv.shape },
                epilogue: Epilogue {
                    bias: false,
                    ..conv.epilogue
                },
                ..*conv
            },
        })
    }
}

/// The sets of at least two siblings: indices of tasks, ascending.
fn siblings(graph: &TaskGraph) -> Vec<Vec<usize>> {
    let mut sets: Vec<(Kind, Vec<usize>)> = Vec::new();
    for (index, task) in graph.tasks.iter().enumerate() {
        let Some(kind) = Kind::of(task) else {
            continue;
        };
        match sets.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, tasks)) => tasks.push(index),
            None => sets.push((kind, vec![index])),
        }
    }
    let sets = sets.into_iter().map(|(_, tasks)| tasks);
    sets.filter(|tasks| tasks.len() > 1).collect()
}

/// Orders in which the outputs of siblings can follow each other. Siblings may be part of several rows or of none.
fn rows(graph: &TaskGraph, siblings: &[usize]) -> Vec<Vec<usize>> {
    let output = |task: usize| graph.tasks[task].y;
    let movable = |task: &usize| can_be_moved(graph, output(*task));
    let free: Vec<usize> = siblings.iter().copied().filter(movable).collect();
    let mut rows = Vec::new();
    for slices in adjacent_slices(graph, siblings) {
        let (first, last) = (slices[0].start, slices[slices.len() - 1].end);
        let concat = &graph.values[slices[0].concat.0];
        let takes_others = can_be_moved(graph, slices[0].concat);
        let slices = slices.into_iter().map(|slice| slice.task);
        rows.push(match takes_others {
            true if first == 0 => free.iter().copied().chain(slices).collect(),
            true if last == concat.shape.image_len() => {
                slices.chain(free.iter().copied()).collect()
            }
            _ => slices.collect(),
        });
    }
    rows.push(free);
    rows
}

/// Whether a value can become a view of a larger one: it owns its memory, which is not the caller's, and its images need not follow each
/// other, as they do for a view of several complete images.
fn can_be_moved(graph: &TaskGraph, id: ValueId) -> bool {
    let value = &graph.values[id.0];
    let is_complete_view = |view: &Value| {
        view.parent == Some((id, 0)) && view.shape.image_len() == value.shape.image_len()
    };
    value.parent.is_none()
        && !graph.inputs.contains(&id)
        && !graph.outputs.contains(&id)
        && (value.shape.batch == 1 || !graph.values.iter().any(is_complete_view))
}

/// The output of a sibling in a concatenation.
#[derive(Clone, Copy)]
struct Slice {
    task: usize,
    concat: ValueId,
    /// First element in each image of the concatenation.
    start: u64,
    /// The element after the last one.
    end: u64,
}

/// The siblings that write slices of concatenations, in runs of slices that follow each other.
fn adjacent_slices(graph: &TaskGraph, siblings: &[usize]) -> Vec<Vec<Slice>> {
    let slice = |&task: &usize| {
        let value = &graph.values[graph.tasks[task].y.0];
        let (concat, start) = value.parent?;
        let end = start + value.shape.image_len();
        Some(Slice {
            task,
            concat,
            start,
            end,
        })
    };
    let mut slices: Vec<Slice> = siblings.iter().filter_map(slice).collect();
    slices.sort_by_key(|slice| (slice.concat, slice.start));
    let follows = |a: &Slice, b: &Slice| a.concat == b.concat && a.end == b.start;
    slices.chunk_by(follows).map(<[Slice]>::to_vec).collect()
}

/// The candidate for siblings whose outputs follow each other in this order; `None` if a tensor would be too large.
fn merged(graph: &TaskGraph, siblings: &[usize]) -> Option<Candidate> {
    let mut tasks = siblings.iter().map(|&task| &graph.tasks[task]);
    let first = tasks.next()?;
    let mut name = first.name.clone();
    let mut conv = *first.problem.conv()?;
    let mut parameters: Parameters = first.parameters.clone();
    let mut other_outputs = Vec::new();
    for task in tasks {
        let own = task.problem.conv()?;
        name += "+";
        name += &task.name;
        conv.shape.n = conv.shape.n.checked_add(own.shape.n)?;
        conv.epilogue.bias |= own.epilogue.bias;
        parameters.merged.push(MergedLayer {
            layer: task.parameters.layer?,
            fold: task.parameters.fold.clone(),
            y: task.y,
        });
        other_outputs.push(task.y);
    }
    let problem = Problem::Conv(conv);
    let mut covers = siblings.to_vec();
    covers.sort_unstable();
    (is_small(graph, siblings, problem.y()) && problem.weight_len() <= MAX_ELEMENTS).then(|| {
        Candidate {
            task: Task {
                name,
                problem,
                parameters,
                ..first.clone()
            },
            covers,
            other_outputs,
            extends: None,
        }
    })
}

/// Whether kernels can index the tensor that contains the outputs, with the concatenations of which some are slices.
fn is_small(graph: &TaskGraph, siblings: &[usize], y: TensorShape) -> bool {
    let parents = siblings.iter().filter_map(|&task| {
        let (parent, _) = graph.values[graph.tasks[task].y.0].parent?;
        Some(graph.values[parent.0].shape.len())
    });
    y.len().saturating_add(parents.max().unwrap_or(0)) <= MAX_ELEMENTS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{
        Activation, ConvOptions, Layout, NetworkBuilder, OpOptions, PoolOptions, Precision, Reduce,
        ScaleShiftOptions,
    };
    use crate::plan::graph::WeightPart;
    use tdc_runtime::Padding;

    fn conv(n: u32) -> ConvOptions {
        ConvOptions {
            kernel: [1, 1],
            activation: Activation::Relu,
            ..ConvOptions::new(n)
        }
    }

    fn graph_of(batch: u32, ops: &[(&str, &[&str], OpOptions)]) -> TaskGraph {
        let mut builder = NetworkBuilder::new("net", TensorShape::new(batch, 7, 9, 11));
        for (name, inputs, options) in ops {
            let inputs: Vec<_> = inputs.iter().map(|&input| input.to_owned()).collect();
            builder.op(name, Some(&inputs), options.clone());
        }
        TaskGraph::new(&builder.finish().unwrap())
    }

    /// Names of the candidates that merge convolutions.
    fn names(graph: &TaskGraph) -> Vec<String> {
        let candidates = graph.candidates();
        let merged = candidates
            .iter()
            .filter(|candidate| !candidate.task.parameters.merged.is_empty());
        merged
            .map(|candidate| candidate.task.name.clone())
            .collect()
    }

    /// An Inception module: three 1x1 convolutions of the input, two of which others read, and a pooled branch.
    fn module(batch: u32, order: &[&str], after: &[(&str, &[&str], OpOptions)]) -> TaskGraph {
        let one = |n| OpOptions::Conv(conv(n));
        let three = |n| OpOptions::Conv(ConvOptions::new(n));
        let pool = PoolOptions {
            kernel: [3, 3],
            stride: [1, 1],
            pad: Padding::all(1),
            dilation: [1, 1],
            ceil_mode: false,
            count_include_pad: true,
        };
        let mut ops = vec![
            ("a", &["input"][..], one(5)),
            ("b1", &["input"], one(3)),
            ("b2", &["b1"], three(4)),
            ("c1", &["input"], one(2)),
            ("c2", &["c1"], three(6)),
            ("pool", &["input"], OpOptions::MaxPool(pool)),
            ("d", &["pool"], one(3)),
            ("all", order, OpOptions::Concat),
        ];
        ops.extend(after.iter().cloned());
        graph_of(batch, &ops)
    }

    #[test]
    fn outputs_of_siblings_precede_a_concatenation_that_starts_with_one() {
        let read = ("last", &["all"][..], OpOptions::Conv(conv(3)));
        let order = ["a", "b2", "c2", "d"];
        let graph = module(2, &order, std::slice::from_ref(&read));
        assert_eq!(names(&graph), ["b1+c1", "b1+c1+a", "c1+a"]);
        let candidates = graph.candidates();
        let mut found = candidates.iter();
        let all = found
            .find(|candidate| candidate.task.name == "b1+c1+a")
            .unwrap();
        assert_eq!(all.covers, [0, 1, 3]);
        assert_eq!(all.task.problem.y(), TensorShape::new(2, 10, 9, 11));
        let outputs: Vec<_> = all.outputs().map(|y| &graph.values[y.0].name).collect();
        assert_eq!(outputs, ["b1", "c1", "a"]);
        let weights = all.task.parameters.weights();
        assert_eq!(weights, [(OpId(2), WeightPart::Whole)]);
        let merged = all.task.parameters.merged.iter();
        assert!(merged.map(|merged| merged.layer).eq([OpId(4), OpId(1)]));

        // At the end of the concatenation they follow it.
        let order = ["b2", "c2", "d", "a"];
        let graph = module(2, &order, std::slice::from_ref(&read));
        assert_eq!(names(&graph), ["a+b1", "a+b1+c1", "b1+c1"]);
        // Between other slices there is no place.
        let order = ["b2", "a", "c2", "d"];
        assert_eq!(names(&module(2, &order, &[read])), ["b1+c1"]);
    }

    #[test]
    fn the_callers_memory_and_contiguous_images_have_no_place_for_others() {
        let order = ["a", "b2", "c2", "d"];
        // The concatenation is the network's output.
        assert_eq!(names(&module(1, &order, &[])), ["b1+c1"]);
        let flat = [
            ("flat", &["all"][..], OpOptions::Flatten),
            ("relu", &["flat"], OpOptions::Activation(Activation::Relu)),
        ];
        assert_eq!(names(&module(2, &order, &flat)), ["b1+c1"]);
        let one_image = names(&module(1, &order, &flat));
        assert_eq!(one_image, ["b1+c1", "b1+c1+a", "c1+a"]);
    }

    #[test]
    fn adjacent_slices_are_merged_anywhere() {
        let one = |n| OpOptions::Conv(conv(n));
        let all = |order: &'static [&'static str]| {
            graph_of(
                2,
                &[
                    ("a", &["input"], one(5)),
                    ("b", &["input"], one(3)),
                    ("c", &["a"], one(3)),
                    ("d", &["input"], one(1)),
                    ("all", order, OpOptions::Concat),
                ],
            )
        };
        // `all` is the caller's; its slices stay where they are, in the order of the concatenation.
        assert_eq!(names(&all(&["c", "b", "a", "d"])), ["b+a", "b+a+d", "a+d"]);
        assert_eq!(names(&all(&["b", "c", "d", "a"])), ["d+a"]);
    }

    #[test]
    fn other_convolutions_are_not_merged() {
        let relu = |name: &'static str, input: &'static [&'static str]| {
            (name, input, OpOptions::Activation(Activation::Tanh))
        };
        let pair = |change: &dyn Fn(&mut ConvOptions)| {
            let mut options = conv(3);
            change(&mut options);
            let graph = graph_of(
                1,
                &[
                    ("a", &["input"], OpOptions::Conv(conv(4))),
                    ("b", &["input"], OpOptions::Conv(options)),
                    relu("ra", &["a"]),
                    ("pa", &["ra"], OpOptions::GlobalAvgPool),
                    relu("rb", &["b"]),
                    ("pb", &["rb"], OpOptions::GlobalAvgPool),
                    ("all", &["pa", "pb"], OpOptions::Concat),
                ],
            );
            names(&graph)
        };
        assert_eq!(pair(&|_| {}), ["a+b"]);
        assert_eq!(pair(&|options| options.bias = true), ["a+b"]);
        let none = Vec::<String>::new();
        assert_eq!(pair(&|options| options.kernel = [3, 3]), none);
        assert_eq!(pair(&|options| options.stride = [2, 2]), none);
        assert_eq!(pair(&|options| options.activation = Activation::Silu), none);
        assert_eq!(pair(&|options| options.precision = Precision::Tf32), none);
        assert_eq!(pair(&|options| options.layout = Layout::Hwcn), none);
        assert_eq!(pair(&|options| options.reduce = Reduce::Atomic), none);
        assert_eq!(pair(&|options| options.rank = Some(2)), none);
        assert_eq!(
            pair(&|options| options.scheme = Some("direct".to_owned())),
            none
        );
    }

    #[test]
    fn siblings_have_the_same_prologue() {
        let scale_shift = || {
            OpOptions::ScaleShift(ScaleShiftOptions {
                bn: None,
                activation: Activation::Relu,
            })
        };
        let conv = |n| OpOptions::Conv(conv(n));
        let graph = graph_of(
            1,
            &[
                ("s", &["input"], scale_shift()),
                ("t", &["input"], scale_shift()),
                ("a", &["s"], conv(3)),
                ("b", &["t"], conv(3)),
                ("c", &["s"], conv(2)),
                ("all", &["a", "c", "b"], OpOptions::Concat),
            ],
        );
        assert_eq!(names(&graph), ["a+c"]);
    }
}
