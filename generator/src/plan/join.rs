//! Tucker layers that go on with the first factor of the layer behind: it is 1x1, so a launch that has all channels of a pixel can
//! compute it there, and a chain of layers has a launch less for each layer but one.

use super::fuse::{Fusions, Parameters, Task, TaskGraph, TaskPart, Value, ValueId};
use crate::ir::{Layout, NextFactor, Problem, TuckerProblem};

/// What can carry out a Tucker layer together with the first factor of the one that reads its output.
#[derive(Debug, Clone, PartialEq)]
pub struct Join {
    /// Index of the task that this leaves out: the first of the layer behind.
    pub behind: usize,
    /// The whole layer, then that factor.
    pub whole: Task,
    /// Core and last factor, then that factor, behind the task of the layer's own first.
    pub rest: Task,
}

impl TaskGraph {
    /// How the Tucker layer whose first task is at `index` can go on with the first factor of the layer behind: of several, the
    /// one that runs first. `None` where no such layer begins or none reads it, where the output belongs to the caller or
    /// shares the memory of other values, and where the config names a scheme for either layer.
    ///
    /// The tasks write the layer's own output, with what the factor makes behind it in each image; that alone where nobody else reads
    /// the layer's.
    pub fn join(&self, index: usize) -> Option<Join> {
        let Fusions { whole, rest, .. } = self.fusions(index)?;
        let (rest, own) = (rest?, whole.y);
        let in_another = |value: &Value| value.parent.is_some_and(|(parent, _)| parent == own);
        let shares_memory =
            self.values[own.0].parent.is_some() || self.values.iter().any(in_another);
        if own == self.output || shares_memory || whole.scheme.is_some() {
            return None;
        }
        let behind = (index..self.tasks.len()).find(|&at| self.can_go_on(&whole, at))?;
        let factor = &self.tasks[behind];
        let reads = |task: &Task| task.x == own || task.residual == Some(own);
        let next = NextFactor {
            n: factor.problem.y().c,
            keeps: self.tasks.iter().filter(|task| reads(task)).count() > 1,
        };
        let join = |task: Task| match task.problem {
            Problem::Tucker(tucker) => Some(Task {
                name: format!("{}+{}", task.name, factor.name),
                problem: Problem::Tucker(TuckerProblem {
                    next: Some(next),
                    ..tucker
                }),
                y: if next.keeps { own } else { factor.y },
                parameters: Parameters {
                    next: factor.parameters.layer,
                    ..task.parameters
                },
                ..task
            }),
            _ => None,
        };
        Some(Join {
            behind,
            whole: join(whole)?,
            rest: join(rest)?,
        })
    }

    /// Whether the task at `index` is a first factor that `layer` can go on with: of another Tucker layer, with nothing between them.
    fn can_go_on(&self, layer: &Task, index: usize) -> bool {
        let task = &self.tasks[index];
        let plain = |problem: &Problem| {
            matches!(problem, Problem::Conv(conv) if conv.prologue.is_none())
                && problem.precision() == layer.problem.precision()
        };
        task.x == layer.y
            && task.parameters.parts == [TaskPart::First]
            && plain(&task.problem)
            && self
                .fusions(index)
                .is_some_and(|fusions| fusions.rest.is_some() && fusions.whole.scheme.is_none())
    }

    /// Gives both outputs of a join their places in one value where both are read: in each image the factor's lies behind the layer's.
    pub(super) fn place(&mut self, join: &Join) {
        let (own, made) = (join.whole.y, self.tasks[join.behind].y);
        if own == made {
            return;
        }
        let value = Value {
            name: format!("{}+{}", self.values[own.0].name, self.values[made.0].name),
            shape: join.whole.problem.y(),
            layout: Layout::Nchw,
            parent: None,
        };
        let both = ValueId(self.values.len());
        self.values.push(value);
        self.values[made.0].parent = Some((both, self.values[own.0].shape.image_len()));
        self.values[own.0].parent = Some((both, 0));
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
        let found = (0..graph.tasks.len()).filter_map(|index| graph.join(index));
        let told = found.map(|join| match join.rest.problem {
            Problem::Tucker(TuckerProblem {
                next: Some(next), ..
            }) => (join.rest.name, next.keeps),
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
            ("sum", &["c", "a"], OpOptions::Add { relu: true }),
            ("d", &["sum"], conv(3)),
        ]);
        let expected = [
            ("a.rest+b.first".to_owned(), true),
            ("b.rest+c.first".to_owned(), false),
            ("c.rest+d.first".to_owned(), false),
        ];
        assert_eq!(joins(&graph), expected);

        let mut graph = graph;
        let join = graph.join(0).unwrap();
        assert_eq!(join.whole.name, "a+b.first");
        assert_eq!(join.behind, 3);
        let words = |task: &Task| -> Vec<_> {
            let weights = task.parameters.weights().into_iter();
            weights
                .map(|(op, part)| (op.0, part.unwrap().word()))
                .collect()
        };
        let rest = [(1, "core"), (1, "last"), (2, "first")];
        assert_eq!(words(&join.rest), rest);
        assert_eq!(words(&join.whole)[0], (1, "first"));
        assert_eq!(words(&join.whole)[1..], rest);
        // Both are in one tensor, the factor's behind the layer's; the layer is still what the task writes.
        graph.place(&join);
        let own = graph.values[..].iter().position(|value| value.name == "a");
        assert_eq!(join.whole.y.0, own.unwrap());
        let (both, at) = graph.root(join.whole.y);
        assert_eq!((at, graph.root(graph.tasks[3].y)), (0, (both, 8 * 99)));
        let both = &graph.values[both.0];
        assert_eq!(
            (&both.name[..], both.shape),
            ("a+b.first", TensorShape::new(2, 11, 9, 11))
        );
        assert_eq!(both.shape, join.whole.problem.y());
        // What nobody else reads lies nowhere.
        let (join, values) = (graph.join(3).unwrap(), graph.values.len());
        graph.place(&join);
        assert_eq!(join.rest.y, graph.tasks[6].y);
        assert_eq!(
            join.rest.problem.y(),
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
        assert_eq!(joins(&graph), [("a.rest+b.first".to_owned(), true)]);
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
            ("sum", &["flat", "also"], OpOptions::Add { relu: false }),
        ]);
        // A prologue comes between.
        let affine = OpOptions::ScaleShift(ScaleShiftOptions {
            bn: None,
            relu: true,
        });
        none(&[
            a(),
            ("s", &["a"], affine),
            ("b", &["s"], conv(8)),
            ("sum", &["b", "a"], OpOptions::Add { relu: false }),
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
