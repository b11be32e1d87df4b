//! Layouts of activations: converters where two tasks want the same value in different ones.

use super::fuse::{Parameters, Task, TaskGraph, Value, ValueId};
use crate::ir::{ConvertProblem, Layout, Problem};
use std::collections::HashMap;

/// The graph with tasks that convert, where a convolution on HWCN stands beside something on NCHW.
///
/// What such a convolution writes is a value of its own, the HWCN twin of the op's value; tasks of the same layout read it as it
/// is. The op's own value, NCHW, is made from it only where somebody needs that: another task, a concatenation or flattened view,
/// the network's output.
pub(super) fn with_converters(mut graph: TaskGraph) -> TaskGraph {
    let needed = needed_in_nchw(&graph);
    let mut hwcn_values: HashMap<ValueId, ValueId> = HashMap::new();
    for mut task in std::mem::take(&mut graph.tasks) {
        if task.problem.x_layout() == Layout::Nchw {
            graph.tasks.push(task);
            continue;
        }
        for read in std::iter::once(&mut task.x).chain(&mut task.residual) {
            let nchw = *read;
            *read = *hwcn_values.entry(nchw).or_insert_with(|| {
                let hwcn_value = add_hwcn_value(&mut graph, nchw);
                graph
                    .tasks
                    .push(converter(&graph, nchw, hwcn_value, Layout::Hwcn));
                hwcn_value
            });
        }
        let nchw = task.y;
        task.y = add_hwcn_value(&mut graph, nchw);
        let hwcn_value = task.y;
        hwcn_values.insert(nchw, hwcn_value);
        graph.tasks.push(task);
        if needed[nchw.0] {
            graph
                .tasks
                .push(converter(&graph, hwcn_value, nchw, Layout::Nchw));
        }
    }
    graph
}

/// For each value, whether it is read as NCHW or shares its memory with another one.
fn needed_in_nchw(graph: &TaskGraph) -> Vec<bool> {
    let mut needed = vec![false; graph.values.len()];
    needed[graph.output.0] = true;
    for (index, value) in graph.values.iter().enumerate() {
        if let Some((parent, _)) = value.parent {
            needed[index] = true;
            needed[parent.0] = true;
        }
    }
    let nchw = graph
        .tasks
        .iter()
        .filter(|task| task.problem.x_layout() == Layout::Nchw);
    for read in nchw.flat_map(|task| std::iter::once(task.x).chain(task.residual)) {
        needed[read.0] = true;
    }
    needed
}

/// A value of the same name and sizes that lies HWCN, in memory of its own.
fn add_hwcn_value(graph: &mut TaskGraph, of: ValueId) -> ValueId {
    graph.values.push(Value {
        parent: None,
        layout: Layout::Hwcn,
        ..graph.values[of.0].clone()
    });
    ValueId(graph.values.len() - 1)
}

fn converter(graph: &TaskGraph, from: ValueId, into: ValueId, to: Layout) -> Task {
    let value = &graph.values[from.0];
    Task {
        name: format!("{}.{}", value.name, to.name().to_lowercase()),
        problem: Problem::Convert(ConvertProblem { x: value.shape, to }),
        x: from,
        residual: None,
        y: into,
        parameters: Parameters::default(),
        scheme: None,
        tile: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::gpu;
    use crate::ir::{ConvOptions, NetworkBuilder, OpOptions, TensorShape};
    use crate::plan::plan_network;

    fn hwcn(n: u32) -> ConvOptions {
        ConvOptions {
            layout: Layout::Hwcn,
            ..ConvOptions::new(n)
        }
    }

    fn task_names(ops: &[(&str, &[&str], OpOptions)]) -> Vec<String> {
        let mut builder = NetworkBuilder::new("net", TensorShape::new(5, 3, 7, 9));
        for (name, inputs, options) in ops {
            let inputs: Vec<_> = inputs.iter().map(|&input| input.to_owned()).collect();
            builder.op(name, Some(&inputs), options.clone());
        }
        let graph = TaskGraph::new(&builder.finish().unwrap());
        graph.tasks.into_iter().map(|task| task.name).collect()
    }

    #[test]
    fn neighbours_in_one_layout_need_no_conversion() {
        let conv = |n| OpOptions::Conv(hwcn(n));
        let names = task_names(&[
            ("a", &["input"], conv(4)),
            ("b", &["a"], conv(4)),
            ("c", &["b"], conv(4)),
            ("sum", &["c", "a"], OpOptions::Add(Activation::Relu)),
        ]);
        // The addition is the residual of `c`, which reads `a` as it lies.
        assert_eq!(names, ["input.hwcn", "a", "b", "c", "sum.nchw"]);
    }

    #[test]
    fn a_value_is_converted_once_for_all_that_want_it_so() {
        let conv = |n| OpOptions::Conv(hwcn(n));
        let names = task_names(&[
            ("a", &["input"], conv(4)),
            ("b", &["input"], conv(4)),
            ("relu", &["a"], OpOptions::Activation(Activation::Relu)),
            ("plain", &["a"], OpOptions::Conv(ConvOptions::new(2))),
            ("all", &["relu", "plain", "b"], OpOptions::Concat),
        ]);
        let expected = ["input.hwcn", "a", "a.nchw", "b", "b.nchw", "relu", "plain"];
        assert_eq!(names, expected);
    }

    #[test]
    fn what_the_layout_cannot_have_is_told() {
        let error = |options: ConvOptions| {
            let mut builder = NetworkBuilder::new("net", TensorShape::new(2, 4, 7, 9));
            builder.op("conv", None, OpOptions::Conv(options));
            let errors = plan_network(&builder.finish().unwrap(), gpu("h200").unwrap());
            errors.unwrap_err()[0].to_string()
        };
        let groups = error(ConvOptions {
            groups: 2,
            ..hwcn(4)
        });
        assert!(groups.contains("`layout: hwcn` cannot be had"), "{groups}");
        let direct = error(ConvOptions {
            scheme: Some("direct".to_owned()),
            ..hwcn(4)
        });
        assert!(direct.contains("by scheme `direct`"), "{direct}");
        let nchw = error(ConvOptions {
            scheme: Some("tvm".to_owned()),
            ..ConvOptions::new(4)
        });
        assert!(nchw.contains("add `layout: hwcn`"), "{nchw}");
    }
}
