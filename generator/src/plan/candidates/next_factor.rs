//! A Tucker layer together with the first factor of the next one. That factor is 1x1, so a launch that has all channels of a pixel can also
//! compute it. A chain of layers then has one launch less for each layer but the last.

use super::candidate::Candidate;
use super::fused_factors::{FusedFactors, fused_factors};
use crate::ir::{NextFactor, Problem, TuckerProblem};
use crate::plan::graph::{Parameters, Task, TaskGraph, Value};
use std::ops::Range;
use tdc_runtime::FactorRole;

/// Adds the candidates of each layer. They extend the candidates for the layer without the next layer's factor.
pub(super) fn add(graph: &TaskGraph, candidates: &mut Vec<Candidate>) {
    let fusions = (0..graph.tasks.len()).filter_map(|index| next_fusion(graph, index));
    for fusion in fusions {
        let whole = (fusion.whole, fusion.layer.start);
        let core_last = fusion.core_last.map(|task| (task, fusion.layer.start + 1));
        for (task, own) in std::iter::once(whole).chain(core_last) {
            let mut covers: Vec<_> = (own..fusion.layer.end).collect();
            let extends = candidates.iter().position(|known| known.covers == covers);
            covers.push(fusion.next_first);
            let next_output = graph.tasks[fusion.next_first].y;
            candidates.push(Candidate {
                other_outputs: match next_output == task.y {
                    true => Vec::new(),
                    false => vec![next_output],
                },
                task,
                covers,
                extends,
            });
        }
    }
}

/// The tasks that compute a Tucker layer together with the first factor of the next one.
struct NextFusion {
    /// The layer's tasks.
    layer: Range<usize>,
    /// Index of the next layer's first task.
    next_first: usize,
    /// The complete layer, followed by that factor.
    whole: Task,
    /// Core and last factor, followed by that factor; `None` if the layer has no first factor.
    core_last: Option<Task>,
}

/// The fusion of the Tucker layer whose first task is at `index` with the first factor of the next layer. If several layers read its
/// output, the next layer is the one that runs first. `None` if no layer starts there or no layer reads its output, if it is the
/// caller's or shares memory with other values, or if the config requests a scheme for either layer.
///
/// The tasks write the layer's output and, after it in each image, the factor's output. If no other task reads the layer's output, they
/// write only the factor's.
fn next_fusion(graph: &TaskGraph, index: usize) -> Option<NextFusion> {
    let readers = FusableReaders::new(graph, index)?;
    let next_first = *readers.tasks.first()?;
    let FusableReaders {
        layer,
        whole,
        core_last,
        stores_layer_output,
        ..
    } = readers;
    let factor = &graph.tasks[next_first];
    let layer_output = whole.y;
    let next = NextFactor {
        n: factor.problem.y().c,
        stores_layer_output,
    };
    let fuse = |task: Task| match task.problem {
        Problem::Tucker(tucker) => Some(Task {
            name: format!("{}+{}", task.name, factor.name),
            problem: Problem::Tucker(TuckerProblem {
                next: Some(next),
                ..tucker
            }),
            y: if next.stores_layer_output {
                layer_output
            } else {
                factor.y
            },
            parameters: Parameters {
                next: factor.parameters.layer,
                ..task.parameters
            },
            ..task
        }),
        _ => None,
    };
    Some(NextFusion {
        layer,
        next_first,
        whole: fuse(whole)?,
        core_last: core_last.and_then(fuse),
    })
}

/// A Tucker layer, and the first factors that can be fused with it.
pub(crate) struct FusableReaders {
    /// The layer's tasks.
    layer: Range<usize>,
    /// The complete layer.
    whole: Task,
    /// Core and last factor; `None` if the layer has no first factor.
    core_last: Option<Task>,
    /// The tasks of the first factors, in order.
    pub tasks: Vec<usize>,
    /// Whether the layer's own output is stored too, because other tasks read it.
    pub stores_layer_output: bool,
}

impl FusableReaders {
    /// For the Tucker layer whose first task is at `index`; `None` under the conditions of [`next_fusion`].
    pub(crate) fn new(graph: &TaskGraph, index: usize) -> Option<Self> {
        let FusedFactors {
            tasks: layer,
            whole,
            core_last,
        } = fused_factors(graph, index)?;
        let layer_output = whole.y;
        if !matches!(whole.problem, Problem::Tucker(_)) {
            return None;
        }
        let is_view_of_output = |value: &Value| {
            value
                .parent
                .is_some_and(|(parent, _)| parent == layer_output)
        };
        let shares_memory = graph.values[layer_output.0].parent.is_some()
            || graph.values.iter().any(is_view_of_output);
        if graph.outputs.contains(&layer_output) || shares_memory || whole.scheme.is_some() {
            return None;
        }
        let tasks = (index..graph.tasks.len()).filter(|&at| is_fusable_first(graph, &whole, at));
        let reads = |task: &&Task| task.reads().any(|value| value == layer_output);
        Some(Self {
            tasks: tasks.collect(),
            stores_layer_output: graph.tasks.iter().filter(reads).count() > 1,
            layer,
            whole,
            core_last,
        })
    }
}

/// Whether the task at `index` is a first factor that can be fused with `layer`: it belongs to another Tucker layer of the same precision,
/// and reads the layer's output without a prologue.
fn is_fusable_first(graph: &TaskGraph, layer: &Task, index: usize) -> bool {
    let task = &graph.tasks[index];
    let plain = |problem: &Problem| {
        problem
            .nchw_conv()
            .is_some_and(|conv| conv.prologue.is_none())
            && problem.precision() == layer.problem.precision()
    };
    task.x == layer.y
        && task.parameters.factors == [FactorRole::First]
        && plain(&task.problem)
        && fused_factors(graph, index)
            .is_some_and(|fused| fused.core_last.is_some() && fused.whole.scheme.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{
        Activation, BinaryOp, ConvOptions, Layout, NetworkBuilder, OpOptions, Precision,
        ScaleShiftOptions, TensorShape,
    };
    use crate::plan::graph::WeightPart;

    fn tucker(n: u32) -> ConvOptions {
        ConvOptions {
            ranks: Some([3, 3]),
            ..ConvOptions::new(n)
        }
    }

    fn graph(ops: &[(&str, &[&str], OpOptions)]) -> TaskGraph {
        let mut builder = NetworkBuilder::new("net", TensorShape::new(2, 7, 9, 11));
        for (name, inputs, options) in ops {
            let inputs: Vec<_> = inputs.iter().map(|&input| input.to_owned()).collect();
            builder.op(name, Some(&inputs), options.clone());
        }
        TaskGraph::new(&builder.finish().unwrap())
    }

    /// Names of the candidates that compute core, last factor and the next layer's first factor, and whether they write both outputs.
    fn fusions(graph: &TaskGraph) -> Vec<(String, bool)> {
        let candidates = graph.candidates();
        let fused = candidates
            .iter()
            .filter(|candidate| candidate.task.name.contains(".core_last+"));
        let names = fused.map(|candidate| match candidate.task.problem {
            Problem::Tucker(TuckerProblem {
                next: Some(next), ..
            }) => {
                assert_eq!(
                    candidate.other_outputs.len(),
                    usize::from(next.stores_layer_output)
                );
                (candidate.task.name.clone(), next.stores_layer_output)
            }
            other => panic!("{other:?}"),
        });
        names.collect()
    }

    #[test]
    fn consecutive_layers_are_fused_and_store_what_others_read() {
        let conv = |n| OpOptions::Conv(tucker(n));
        let graph = graph(&[
            ("a", &["input"], conv(8)),
            ("b", &["a"], conv(13)),
            ("c", &["b"], conv(8)),
            (
                "sum",
                &["c", "a"],
                OpOptions::Binary(BinaryOp::Add, Activation::Relu),
            ),
            ("d", &["sum"], conv(3)),
        ]);
        let expected = [
            ("a.core_last+b.first".to_owned(), true),
            ("b.core_last+c.first".to_owned(), false),
            ("c.core_last+d.first".to_owned(), false),
        ];
        assert_eq!(fusions(&graph), expected);

        let candidates = graph.candidates();
        let named = |name: &str| {
            let mut candidates = candidates.iter();
            candidates.find(|candidate| candidate.task.name == name)
        };
        let weights = |candidate: &Candidate| -> Vec<_> {
            let weights = candidate.task.parameters.weights().into_iter();
            weights
                .map(|(op, part)| match part {
                    WeightPart::Factor(factor) => (op.0, factor.as_str()),
                    other => panic!("{other:?}"),
                })
                .collect()
        };
        let (whole, core_last) = (
            named("a+b.first").unwrap(),
            named("a.core_last+b.first").unwrap(),
        );
        assert_eq!(whole.covers, [0, 1, 2, 3]);
        assert_eq!(core_last.covers, [1, 2, 3]);
        let of_core_last = [(1, "core"), (1, "last"), (2, "first")];
        assert_eq!(weights(core_last), of_core_last);
        assert_eq!(weights(whole)[0], (1, "first"));
        assert_eq!(weights(whole)[1..], of_core_last);
        // They extend the candidates without the next layer's factor.
        let extended = |candidate: &Candidate| &candidates[candidate.extends.unwrap()].task.name;
        assert_eq!(extended(whole), "a");
        assert_eq!(extended(core_last), "a.core_last");
        // The layer's output is read by others too, so both outputs are written.
        assert_eq!(graph.values[whole.task.y.0].name, "a");
        assert_eq!(whole.other_outputs, [graph.tasks[3].y]);
        // An output that no other task reads is not written.
        let next_only = named("b.core_last+c.first").unwrap();
        assert_eq!(next_only.task.y, graph.tasks[6].y);
        assert_eq!(
            next_only.task.problem.y(),
            graph.values[graph.tasks[6].y.0].shape
        );
    }

    #[test]
    fn a_layer_is_fused_with_the_first_of_several_readers() {
        let conv = |n| OpOptions::Conv(tucker(n));
        let graph = graph(&[
            ("a", &["input"], conv(8)),
            ("dense", &["a"], OpOptions::Conv(ConvOptions::new(4))),
            ("b", &["a"], conv(13)),
            ("c", &["a"], conv(4)),
            ("all", &["dense", "b", "c"], OpOptions::Concat),
        ]);
        assert_eq!(fusions(&graph), [("a.core_last+b.first".to_owned(), true)]);
    }

    #[test]
    fn other_layers_are_not_fused() {
        #[track_caller]
        fn none(ops: &[(&str, &[&str], OpOptions)]) {
            assert_eq!(fusions(&graph(ops)), []);
        }
        let conv = |n| OpOptions::Conv(tucker(n));
        let with = |change: &dyn Fn(&mut ConvOptions)| {
            let mut options = tucker(6);
            change(&mut options);
            OpOptions::Conv(options)
        };
        let a = || ("a", &["input"][..], conv(8));
        // The caller's memory has space for the layer's output only.
        none(&[a()]);
        // The same holds for a concatenation. A flattened tensor is contiguous.
        let all = ("all", &["b", "a"][..], OpOptions::Concat);
        none(&[a(), ("b", &["a"], conv(8)), all]);
        none(&[
            a(),
            ("flat", &["a"], OpOptions::Flatten),
            ("b", &["a"], conv(8)),
            ("also", &["b"], OpOptions::Flatten),
            (
                "sum",
                &["flat", "also"],
                OpOptions::Binary(BinaryOp::Add, Activation::None),
            ),
        ]);
        // A prologue between the layers.
        let scale_shift = OpOptions::ScaleShift(ScaleShiftOptions {
            bn: None,
            activation: Activation::Relu,
        });
        none(&[
            a(),
            ("s", &["a"], scale_shift),
            ("b", &["s"], conv(8)),
            (
                "sum",
                &["b", "a"],
                OpOptions::Binary(BinaryOp::Add, Activation::None),
            ),
        ]);
        // A layer of another kind or precision, and layers whose scheme, layout or order of sums the config requests.
        let wide = |options: &mut ConvOptions| options.ranks = None;
        none(&[a(), ("b", &["a"], with(&wide))]);
        let cp = |options: &mut ConvOptions| {
            options.ranks = None;
            options.cp_rank = Some(3);
        };
        none(&[a(), ("b", &["a"], with(&cp))]);
        none(&[("a", &["input"], with(&cp)), ("b", &["a"], conv(8))]);
        let tf32 = |options: &mut ConvOptions| options.precision = Precision::Tf32;
        none(&[a(), ("b", &["a"], with(&tf32))]);
        let named = |options: &mut ConvOptions| options.scheme = Some("tucker_fused".to_owned());
        none(&[a(), ("b", &["a"], with(&named))]);
        none(&[("a", &["input"], with(&named)), ("b", &["a"], conv(8))]);
        let hwcn = |options: &mut ConvOptions| options.layout = Layout::Hwcn;
        none(&[a(), ("b", &["a"], with(&hwcn))]);
        none(&[("a", &["input"], with(&hwcn)), ("b", &["a"], conv(8))]);
        let atomic = |options: &mut ConvOptions| options.reduce = crate::ir::Reduce::Atomic;
        none(&[a(), ("b", &["a"], with(&atomic))]);
        none(&[("a", &["input"], with(&atomic)), ("b", &["a"], conv(8))]);
    }
}
