//! Tucker layers that go on with the first factor of the layer behind: it is 1x1, so a launch that has all channels of a pixel can
//! compute it there, and a chain of layers has a launch less for each layer but one.

use super::fuse::{FusedTasks, Parameters, Task, TaskFactor, TaskGraph, Value, ValueId};
use crate::ir::{Layout, NextFactor, Problem, TuckerProblem};

/// What can carry out a Tucker layer together with the first factor of the one that reads its output.
#[derive(Debug, Clone, PartialEq)]
pub struct NextFusion {
    /// Index of the task that this leaves out: the first of the layer behind.
    pub next_first: usize,
    /// The whole layer, then that factor.
    pub whole: Task,
    /// Core and last factor, then that factor, behind the task of the layer's own first.
    pub core_last: Task,
}

impl TaskGraph {
    /// How the Tucker layer whose first task is at `index` can go on with the first factor of the layer behind: of several, the
    /// one that runs first. `None` where no such layer begins or none reads it, where the output belongs to the caller or
    /// shares the memory of other values, and where the config names a scheme for either layer.
    ///
    /// The tasks write the layer's own output, with what the factor makes behind it in each image; that alone where nobody else reads
    /// the layer's.
    pub fn next_fusion(&self, index: usize) -> Option<NextFusion> {
        let FusedTasks {
            whole, core_last, ..
        } = self.fused_tasks(index)?;
        let (core_last, layer_output) = (core_last?, whole.y);
        let in_another = |value: &Value| {
            value
                .parent
                .is_some_and(|(parent, _)| parent == layer_output)
        };
        let shares_memory =
            self.values[layer_output.0].parent.is_some() || self.values.iter().any(in_another);
        if layer_output == self.output || shares_memory || whole.scheme.is_some() {
            return None;
        }
        let next_first = (index..self.tasks.len()).find(|&at| self.is_fusable_first(&whole, at))?;
        let factor = &self.tasks[next_first];
        let reads = |task: &Task| task.x == layer_output || task.residual == Some(layer_output);
        let next = NextFactor {
            n: factor.problem.y().c,
            stores_layer_output: self.tasks.iter().filter(|task| reads(task)).count() > 1,
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
            next_first,
            whole: fuse(whole)?,
            core_last: fuse(core_last)?,
        })
    }

    /// Whether the task at `index` is a first factor that `layer` can go on with: of another Tucker layer, with nothing between them.
    fn is_fusable_first(&self, layer: &Task, index: usize) -> bool {
        let task = &self.tasks[index];
        let plain = |problem: &Problem| {
            matches!(problem, Problem::Conv(conv) if conv.prologue.is_none())
                && problem.precision() == layer.problem.precision()
        };
        task.x == layer.y
            && task.parameters.factors == [TaskFactor::First]
            && plain(&task.problem)
            && self.fused_tasks(index).is_some_and(|fused_tasks| {
                fused_tasks.core_last.is_some() && fused_tasks.whole.scheme.is_none()
            })
    }

    /// Gives both outputs of a join their places in one value where both are read: in each image the factor's lies behind the layer's.
    pub(super) fn place_fused_outputs(&mut self, fusion: &NextFusion) {
        let (layer_output, next_output) = (fusion.whole.y, self.tasks[fusion.next_first].y);
        if layer_output == next_output {
            return;
        }
        let value = Value {
            name: format!(
                "{}+{}",
                self.values[layer_output.0].name, self.values[next_output.0].name
            ),
            shape: fusion.whole.problem.y(),
            layout: Layout::Nchw,
            parent: None,
        };
        let both = ValueId(self.values.len());
        self.values.push(value);
        self.values[next_output.0].parent =
            Some((both, self.values[layer_output.0].shape.image_len()));
        self.values[layer_output.0].parent = Some((both, 0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{
        ConvOptions, NetworkBuilder, OpOptions, Precision, ScaleShiftOptions, TensorShape,
    };

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

    /// Names of the tasks that can join two layers, and whether the first one's output is kept.
    fn joins(graph: &TaskGraph) -> Vec<(String, bool)> {
        let found = (0..graph.tasks.len()).filter_map(|index| graph.next_fusion(index));
        let told = found.map(|fusion| match fusion.core_last.problem {
            Problem::Tucker(TuckerProblem {
                next: Some(next), ..
            }) => (fusion.core_last.name, next.stores_layer_output),
            other => panic!("{other:?}"),
        });
        told.collect()
    }

    #[test]
    fn layers_behind_each_other_join_and_keep_what_others_read() {
        let conv = |n| OpOptions::Conv(tucker(n));
        let graph = graph(&[
            ("a", &["input"], conv(8)),
            ("b", &["a"], conv(13)),
            ("c", &["b"], conv(8)),
            ("sum", &["c", "a"], OpOptions::Add(Activation::Relu)),
            ("d", &["sum"], conv(3)),
        ]);
        let expected = [
            ("a.core_last+b.first".to_owned(), true),
            ("b.core_last+c.first".to_owned(), false),
            ("c.core_last+d.first".to_owned(), false),
        ];
        assert_eq!(joins(&graph), expected);

        let mut graph = graph;
        let fusion = graph.next_fusion(0).unwrap();
        assert_eq!(fusion.whole.name, "a+b.first");
        assert_eq!(fusion.next_first, 3);
        let words = |task: &Task| -> Vec<_> {
            let weights = task.parameters.weights().into_iter();
            weights
                .map(|(op, factor)| (op.0, factor.unwrap().as_str()))
                .collect()
        };
        let core_last = [(1, "core"), (1, "last"), (2, "first")];
        assert_eq!(words(&fusion.core_last), core_last);
        assert_eq!(words(&fusion.whole)[0], (1, "first"));
        assert_eq!(words(&fusion.whole)[1..], core_last);
        // Both are in one tensor, the factor's behind the layer's; the layer is still what the task writes.
        graph.place_fused_outputs(&fusion);
        let layer_output = graph.values[..].iter().position(|value| value.name == "a");
        assert_eq!(fusion.whole.y.0, layer_output.unwrap());
        let (both, at) = graph.root(fusion.whole.y);
        assert_eq!((at, graph.root(graph.tasks[3].y)), (0, (both, 8 * 99)));
        let both = &graph.values[both.0];
        assert_eq!(
            (&both.name[..], both.shape),
            ("a+b.first", TensorShape::new(2, 11, 9, 11))
        );
        assert_eq!(both.shape, fusion.whole.problem.y());
        // What nobody else reads lies nowhere.
        let (fusion, values) = (graph.next_fusion(3).unwrap(), graph.values.len());
        graph.place_fused_outputs(&fusion);
        assert_eq!(fusion.core_last.y, graph.tasks[6].y);
        assert_eq!(
            fusion.core_last.problem.y(),
            graph.values[graph.tasks[6].y.0].shape
        );
        assert_eq!(graph.values.len(), values);
    }

    #[test]
    fn the_first_of_several_readers_is_joined() {
        let conv = |n| OpOptions::Conv(tucker(n));
        let graph = graph(&[
            ("a", &["input"], conv(8)),
            ("dense", &["a"], OpOptions::Conv(ConvOptions::new(4))),
            ("b", &["a"], conv(13)),
            ("c", &["a"], conv(4)),
            ("all", &["dense", "b", "c"], OpOptions::Concat),
        ]);
        assert_eq!(joins(&graph), [("a.core_last+b.first".to_owned(), true)]);
    }

    #[test]
    fn what_one_launch_cannot_go_on_with_is_not_joined() {
        #[track_caller]
        fn none(ops: &[(&str, &[&str], OpOptions)]) {
            assert_eq!(joins(&graph(ops)), []);
        }
        let conv = |n| OpOptions::Conv(tucker(n));
        let with = |change: &dyn Fn(&mut ConvOptions)| {
            let mut options = tucker(6);
            change(&mut options);
            OpOptions::Conv(options)
        };
        let a = || ("a", &["input"][..], conv(8));
        // The caller's memory has room for the output alone.
        none(&[a()]);
        // So has a concatenation, and what is flattened lies as it is.
        let all = ("all", &["b", "a"][..], OpOptions::Concat);
        none(&[a(), ("b", &["a"], conv(8)), all]);
        none(&[
            a(),
            ("flat", &["a"], OpOptions::Flatten),
            ("b", &["a"], conv(8)),
            ("also", &["b"], OpOptions::Flatten),
            ("sum", &["flat", "also"], OpOptions::Add(Activation::None)),
        ]);
        // A prologue comes between.
        let scale_shift = OpOptions::ScaleShift(ScaleShiftOptions {
            bn: None,
            relu: true,
        });
        none(&[
            a(),
            ("s", &["a"], scale_shift),
            ("b", &["s"], conv(8)),
            ("sum", &["b", "a"], OpOptions::Add(Activation::None)),
        ]);
        // Another kind of layer, another precision, and layers that the config has plans for.
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
