//! Lowering: replaces the tasks of a graph by the tasks that a plan launches.
//!
//! Only this code decides in how many launches a Tucker or CP layer is computed, for networks and for single kernels: all
//! [candidates](super::candidates) are [timed](super::times), the [search](super::select) finds those that compute the graph in the least
//! time, and they replace its tasks.

use super::candidates::{Candidate, FormatConversion};
use super::choose::Planner;
use super::graph::{TaskGraph, Value, ValueId};
use super::nhwc_concats::NhwcConcats;
use super::select::{Conversion, CoverOption, Edge, ExactCover, Step};
use super::times::{Times, conversion_in_network_us};
#[cfg(feature = "compress")]
use crate::ir::Problem;
use crate::ir::{Format, TensorShape};
use std::collections::HashMap;

/// The graph with the tasks of the candidates that take the least time, and with conversions between tasks of different formats.
pub(super) fn lower(planner: &mut Planner, graph: TaskGraph) -> TaskGraph {
    let candidates = graph.candidates();
    let times = Times::new(planner, &graph, &candidates);
    lowered(graph, &candidates, &times.candidates, |conversion| {
        times.conversion_us(planner, conversion)
    })
}

/// The same for rank choice: conversions count what they take in a network.
pub(super) fn lower_by_layers(planner: &mut Planner, graph: TaskGraph) -> TaskGraph {
    let candidates = graph.candidates();
    let times = Times::new(planner, &graph, &candidates);
    lowered(graph, &candidates, &times.candidates, |conversion| {
        conversion_in_network_us(planner, conversion)
    })
}

/// The same for given times; a candidate without a time is not chosen.
fn lowered(
    graph: TaskGraph,
    candidates: &[Candidate],
    times: &[Option<f64>],
    mut conversion_us: impl FnMut(&FormatConversion) -> f64,
) -> TaskGraph {
    let concats = NhwcConcats::of_graph(&graph);
    let conversions = graph.format_conversions(candidates);
    let conversion_times = conversions
        .iter()
        .map(|conversion| Some(conversion_us(conversion)));
    let conversion_times: Vec<_> = conversion_times.collect();
    let cover = Cover {
        graph: &graph,
        concats: &concats,
        candidates,
        times,
        conversions: &conversions,
        conversion_times: &conversion_times,
    };
    let cover = cover.exact();
    let timed = candidates.iter().zip(times);
    let chosen: Vec<&Candidate> = timed
        .filter_map(|(candidate, us)| us.map(|_| candidate))
        .collect();
    let steps = cover
        .solve()
        .expect("each task has a candidate, and each format a conversion");
    let mut lowering = Lowering {
        graph: TaskGraph {
            tasks: Vec::with_capacity(steps.len()),
            ..graph
        },
        concats,
        copies: HashMap::new(),
    };
    for step in steps {
        match step {
            // A concatenation has no unit.
            Step::Run(index) => {
                if let Some(candidate) = chosen.get(index) {
                    lowering.run(candidate);
                }
            }
            Step::Convert(index) => lowering.convert(&conversions[index]),
        }
    }
    lowering.finish()
}

/// The least time in which candidates compute a graph, microseconds, by the times of problems. `None` if they cannot: a problem without a time
/// is not chosen.
#[cfg(feature = "compress")]
pub(super) fn least_us(
    graph: &TaskGraph,
    candidates: &[Candidate],
    us: impl Fn(&Problem) -> Option<f64>,
) -> Option<f64> {
    let conversions = graph.format_conversions(candidates);
    let times = candidates
        .iter()
        .map(|candidate| us(&candidate.task.problem));
    let conversion_times = conversions
        .iter()
        .map(|conversion| us(&conversion.problem()));
    let cover = Cover {
        graph,
        concats: &NhwcConcats::of_graph(graph),
        candidates,
        times: &times.collect::<Vec<_>>(),
        conversions: &conversions,
        conversion_times: &conversion_times.collect::<Vec<_>>(),
    };
    cover.exact().least_us()
}

/// A graph with its candidates and conversions, and their times in microseconds.
struct Cover<'a> {
    graph: &'a TaskGraph,
    concats: &'a NhwcConcats,
    candidates: &'a [Candidate],
    times: &'a [Option<f64>],
    conversions: &'a [FormatConversion],
    conversion_times: &'a [Option<f64>],
}

impl Cover<'_> {
    /// Those that have a time as a problem of the search, in the same order; after the candidates, the concatenations.
    fn exact(&self) -> ExactCover<Format> {
        let Self {
            graph,
            concats,
            candidates,
            ..
        } = self;
        let position = |&task: &usize| concats.position_of_task(task);
        let options = candidates.iter().zip(self.times);
        let options = options.filter_map(|(candidate, us)| {
            Some(CoverOption {
                covers: candidate.covers.iter().map(position).collect(),
                reads: candidate.reads().map(edge).collect(),
                writes: candidate.writes().map(edge).collect(),
                us: (*us)?,
            })
        });
        let conversions = self.conversions.iter().zip(self.conversion_times);
        let conversions = conversions.filter_map(|(conversion, us)| {
            Some(Conversion {
                value: conversion.value.0,
                from: conversion.from,
                to: conversion.to,
                us: (*us)?,
            })
        });
        ExactCover {
            tasks: graph.tasks.len() + concats.all.len(),
            options: options.chain(concats.options()).collect(),
            conversions: conversions.collect(),
            available: graph.available().into_iter().map(edge).collect(),
            required: graph.required(candidates).into_iter().map(edge).collect(),
        }
    }
}

fn edge((value, format): (ValueId, Format)) -> Edge<Format> {
    Edge {
        value: value.0,
        format,
    }
}

/// A graph whose tasks are replaced by those of candidates.
struct Lowering {
    graph: TaskGraph,
    /// The original graph's concatenations that may be stored in NHWC.
    concats: NhwcConcats,
    /// Values in other formats than the original graph's.
    copies: HashMap<(ValueId, Format), ValueId>,
}

impl Lowering {
    fn run(&mut self, candidate: &Candidate) {
        if !candidate.other_outputs.is_empty() {
            self.place_outputs(candidate);
        }
        let mut task = candidate.task.clone();
        let (from, to) = (task.input_format(), task.output_format());
        task.x = self.in_format(task.x, from);
        task.residual = task.residual.map(|value| self.in_format(value, to));
        task.y = self.in_format(task.y, to);
        self.graph.tasks.push(task);
    }

    fn convert(&mut self, conversion: &FormatConversion) {
        let from = self.in_format(conversion.value, conversion.from);
        let to = self.in_format(conversion.value, conversion.to);
        let task = conversion.task(&self.graph, from, to);
        self.graph.tasks.push(task);
    }

    /// The graph, whose outputs are the values in the required formats.
    fn finish(mut self) -> TaskGraph {
        for index in 0..self.graph.outputs.len() {
            let format = self.graph.output_formats[index];
            self.graph.outputs[index] = self.in_format(self.graph.outputs[index], format);
        }
        self.graph
    }

    /// The value itself if it has this format, otherwise a value of the same name and shape in this format: a part of a concatenation in this
    /// format, or one with its own memory.
    fn in_format(&mut self, value: ValueId, format: Format) -> ValueId {
        if self.graph.values[value.0].format == format {
            return value;
        }
        if let Some(&copy) = self.copies.get(&(value, format)) {
            return copy;
        }
        let concat = self.concats.of_part(value);
        let concat = concat.filter(|_| format.pixel_stride.is_some());
        let whole = concat.map(|(concat, first)| (concat.value, concat.format, first));
        let parent = whole.map(|(whole, format, first)| {
            // In NHWC channels are adjacent.
            (self.in_format(whole, format), u64::from(first))
        });
        let values = &mut self.graph.values;
        values.push(Value {
            parent,
            format,
            ..values[value.0].clone()
        });
        let copy = ValueId(values.len() - 1);
        self.copies.insert((value, format), copy);
        copy
    }

    /// Makes the outputs of a candidate follow each other in each image. Those that own their memory become views of a new value. If the
    /// others are views of a concatenation, at its start or its end, it becomes a view of the new value too.
    fn place_outputs(&mut self, candidate: &Candidate) {
        let values = &self.graph.values;
        let mut parts: Vec<ValueId> = Vec::new();
        for output in candidate.outputs() {
            let part = match values[output.0].parent {
                None => output,
                Some(_) => self.graph.root(output).0,
            };
            if !parts.contains(&part) {
                parts.push(part);
            }
        }
        if parts.len() == 1 {
            // They are adjacent views already.
            return;
        }
        let names: Vec<_> = parts.iter().map(|part| &values[part.0].name[..]).collect();
        let shape = values[parts[0].0].shape;
        let all = Value {
            name: names.join("+"),
            shape: TensorShape {
                c: parts.iter().map(|part| values[part.0].shape.c).sum(),
                ..shape
            },
            format: candidate.task.output_format(),
            parent: None,
        };
        let values = &mut self.graph.values;
        let all_id = ValueId(values.len());
        values.push(all);
        let mut offset = 0;
        for part in parts {
            values[part.0].parent = Some((all_id, offset));
            offset += values[part.0].shape.image_len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::gpu;
    use crate::ir::{
        Activation, BinaryOp, ConvOptions, DType, Layout, NetworkBuilder, OpOptions, OutputOptions,
        Precision, Problem, TensorShape, TilePolicy,
    };
    use crate::plan::plan_network;

    /// A chain of three Tucker layers.
    fn chain(scheme: Option<&str>) -> TaskGraph {
        let mut builder = NetworkBuilder::new("net", TensorShape::new(1, 16, 9, 11));
        for name in ["a", "b", "c"] {
            let options = ConvOptions {
                ranks: Some([8, 8]),
                scheme: scheme.filter(|_| name == "b").map(str::to_owned),
                ..ConvOptions::new(16)
            };
            builder.op(name, None, OpOptions::Conv(options));
        }
        TaskGraph::new(&builder.finish().unwrap())
    }

    /// The lowered chain, if the time of each task is `us` of its name.
    fn planned(us: &dyn Fn(&str) -> f64) -> TaskGraph {
        let graph = chain(None);
        let candidates = graph.candidates();
        let times: Vec<_> = candidates
            .iter()
            .map(|candidate| Some(us(&candidate.task.name)).filter(|us| us.is_finite()))
            .collect();
        lowered(graph, &candidates, &times, |_| 0.0)
    }

    fn task_names(graph: &TaskGraph) -> String {
        let names: Vec<_> = graph.tasks.iter().map(|task| &task.name[..]).collect();
        names.join(" ")
    }

    /// Times: 2 for a launch of one 1x1 factor, 3 for the core; 1 more for each further factor in a launch, 0.5 for the next layer's first
    /// factor.
    fn plain(name: &str) -> f64 {
        match name {
            _ if name.contains('+') => 0.5 + plain(name.split('+').next().unwrap()),
            _ if name.ends_with(".first") || name.ends_with(".last") => 2.0,
            _ if name.ends_with(".core") => 3.0,
            _ if name.ends_with(".core_last") => 4.0,
            _ => 5.0,
        }
    }

    #[test]
    fn a_chain_has_the_launches_of_least_total_time() {
        let names = |us: &dyn Fn(&str) -> f64| task_names(&planned(us));
        assert_eq!(names(&plain), "a+b.first b.core_last+c.first c.core_last");
        // Fusing `b.first` with `a` must save more than the separate launch costs that `b` then needs.
        let but = |slow: &'static str, us: f64| {
            move |name: &str| if name == slow { us } else { plain(name) }
        };
        assert_eq!(
            names(&but("b.core_last+c.first", 9.0)),
            "a+b.first b.core_last c"
        );
        assert_eq!(names(&but("a+b.first", 9.0)), "a b+c.first c.core_last");
        assert_eq!(names(&but("c.core_last", 9.0)), "a+b.first b.core_last c");
        assert_eq!(
            names(&|name| if name.contains('+') {
                f64::INFINITY
            } else {
                plain(name)
            }),
            "a b c"
        );
        // Core and last factor may be separate after a launch that includes the first factor, and the first factor may be separate before a
        // launch with the next layer's first factor.
        let apart = |name: &str| match name {
            "b.core_last" | "b" => 8.0,
            "a" | "a+b.first" | "b.core_last+c.first" | "b+c.first" => 20.0,
            _ => plain(name),
        };
        assert_eq!(names(&apart), "a.first a.core_last+b.first b.core b.last c");
    }

    #[test]
    fn fused_launches_read_what_the_one_before_writes() {
        let fused = planned(&plain);
        for tasks in fused.tasks.windows(2) {
            assert_eq!(tasks[0].y, tasks[1].x);
            assert_eq!(tasks[0].problem.y(), tasks[1].problem.x());
        }
        assert_eq!([fused.tasks[2].y], fused.outputs[..]);
    }

    /// A layer's output with other readers is stored before the output of the next layer's first factor.
    #[test]
    fn two_outputs_are_views_of_one_value() {
        let mut builder = NetworkBuilder::new("net", TensorShape::new(2, 7, 9, 11));
        let tucker = |n| {
            OpOptions::Conv(ConvOptions {
                ranks: Some([3, 3]),
                ..ConvOptions::new(n)
            })
        };
        builder.op("a", None, tucker(8));
        builder.op("b", None, tucker(8));
        let inputs = ["a", "b"].map(str::to_owned);
        builder.op(
            "sum",
            Some(&inputs),
            OpOptions::Binary(BinaryOp::Add, Activation::None),
        );
        let graph = TaskGraph::new(&builder.finish().unwrap());
        let (layer_output, next_output) = (graph.tasks[2].y, graph.tasks[3].y);
        let candidates = graph.candidates();
        let fused_is_best = |name: &str| if name == "a+b.first" { 0.5 } else { 1.0 };
        let times: Vec<_> = candidates
            .iter()
            .map(|candidate| Some(fused_is_best(&candidate.task.name)))
            .collect();
        let fused = lowered(graph, &candidates, &times, |_| 0.0);
        assert_eq!(task_names(&fused), "a+b.first b.core_last");
        assert_eq!(fused.tasks[0].y, layer_output);
        assert_eq!(fused.tasks[1].x, next_output);
        let (both, offset) = fused.root(layer_output);
        assert_eq!(
            (offset, fused.root(next_output)),
            (0, (both, 8 * 99)),
            "the factor's output follows the layer's"
        );
        let both = &fused.values[both.0];
        assert_eq!(
            (&both.name[..], both.shape),
            ("a+b.first", TensorShape::new(2, 11, 9, 11))
        );
        assert_eq!(both.shape, fused.tasks[0].problem.y());
    }

    /// `[b | all | d]`: the output of a merged convolution precedes a concatenation, that of another one follows it.
    #[test]
    fn merged_convolutions_extend_a_concatenation_on_both_sides() {
        let mut builder = NetworkBuilder::new("net", TensorShape::new(2, 7, 9, 11));
        let conv = |n, size| {
            OpOptions::Conv(ConvOptions {
                kernel: [size; 2],
                ..ConvOptions::new(n)
            })
        };
        let mut op = |name: &str, inputs: &[&str], options| {
            let inputs: Vec<_> = inputs.iter().map(|&input| input.to_owned()).collect();
            builder.op(name, Some(&inputs), options);
        };
        op("a", &["input"], conv(5, 1));
        op("b", &["input"], conv(3, 1));
        op("c", &["b"], conv(2, 3));
        op("d", &["b"], conv(4, 3));
        op("e", &["d"], conv(1, 3));
        op("all", &["a", "e", "c"], OpOptions::Concat);
        op("last", &["all"], conv(1, 1));
        let graph = TaskGraph::new(&builder.finish().unwrap());
        let value = |name: &str| {
            let mut values = graph.values.iter();
            ValueId(values.position(|value| value.name == name).unwrap())
        };
        let [a, b, c, d, e, all] = ["a", "b", "c", "d", "e", "all"].map(value);
        let candidates = graph.candidates();
        let us = |candidate: &Candidate| match &candidate.task.name[..] {
            "b+a" | "c+d" => 0.5,
            _ => 1.0,
        };
        let times: Vec<_> = candidates
            .iter()
            .map(|candidate| Some(us(candidate)))
            .collect();
        let merged = lowered(graph, &candidates, &times, |_| 0.0);
        assert_eq!(task_names(&merged), "b+a c+d e last");
        let channels = |id| {
            let (_, offset) = merged.root(id);
            (offset / 99, merged.values[id.0].shape.c)
        };
        let found = [b, a, e, c, d, all].map(channels);
        assert_eq!(found, [(0, 3), (3, 5), (8, 1), (9, 2), (11, 4), (3, 8)]);
        let (root, _) = merged.root(a);
        assert_eq!(merged.values[root.0].shape, TensorShape::new(2, 15, 9, 11));
    }

    #[test]
    fn a_layer_with_a_requested_scheme_is_fused_with_no_other() {
        let mut planner = Planner::new(gpu("h200").unwrap());
        let free = lower(&mut planner, chain(None));
        assert!(task_names(&free).contains('+'), "{}", task_names(&free));
        let named = lower(&mut planner, chain(Some("direct")));
        assert!(!task_names(&named).contains('+'), "{}", task_names(&named));
        let mut planner = Planner::new(gpu("h200").unwrap()).with_tile_policy(TilePolicy::Paper);
        assert_eq!(lower(&mut planner, chain(None)), chain(None));
    }

    fn hwcn(n: u32) -> ConvOptions {
        ConvOptions {
            layout: Layout::Hwcn,
            ..ConvOptions::new(n)
        }
    }

    /// Names of the tasks of a network, including conversions.
    fn converted(ops: &[(&str, &[&str], OpOptions)]) -> Vec<String> {
        let mut builder = NetworkBuilder::new("net", TensorShape::new(5, 3, 7, 9));
        for (name, inputs, options) in ops {
            let inputs: Vec<_> = inputs.iter().map(|&input| input.to_owned()).collect();
            builder.op(name, Some(&inputs), options.clone());
        }
        let mut planner = Planner::new(gpu("h200").unwrap());
        let graph = lower(&mut planner, TaskGraph::new(&builder.finish().unwrap()));
        graph.tasks.into_iter().map(|task| task.name).collect()
    }

    #[test]
    fn tasks_of_one_layout_need_no_conversion() {
        let conv = |n| OpOptions::Conv(hwcn(n));
        let names = converted(&[
            ("a", &["input"], conv(4)),
            ("b", &["a"], conv(4)),
            ("c", &["b"], conv(4)),
            (
                "sum",
                &["c", "a"],
                OpOptions::Binary(BinaryOp::Add, Activation::Relu),
            ),
        ]);
        // The addition is the residual of `c`, which reads `a` in HWCN.
        assert_eq!(names, ["input.hwcn", "a", "b", "c", "sum.nchw"]);
    }

    #[test]
    fn a_value_is_converted_once_for_all_readers() {
        let conv = |n| OpOptions::Conv(hwcn(n));
        let names = converted(&[
            ("a", &["input"], conv(4)),
            ("b", &["input"], conv(4)),
            ("relu", &["a"], OpOptions::Activation(Activation::Relu)),
            ("plain", &["a"], OpOptions::Conv(ConvOptions::new(2))),
            ("all", &["relu", "plain", "b"], OpOptions::Concat),
        ]);
        let expected = ["input.hwcn", "a", "a.nchw", "b", "b.nchw", "relu", "plain"];
        assert_eq!(names, expected);
    }

    /// A chain of two convolutions in precision fp16 on a batch, whose output has a format, and what its tasks convert.
    fn converted_output(n: u32, activations: DType, format: Format) -> (Vec<String>, TaskGraph) {
        let mut builder = NetworkBuilder::new("net", TensorShape::new(32, 64, 28, 28));
        let conv = |n| {
            OpOptions::Conv(ConvOptions {
                precision: Precision::Fp16,
                ..ConvOptions::new(n)
            })
        };
        builder.op("a", None, conv(64));
        builder.op("b", None, conv(n));
        builder.add_output(OutputOptions { name: None, format });
        let mut network = builder.finish().unwrap();
        network.activations = activations;
        let mut planner = Planner::new(gpu("h200").unwrap());
        let graph = lower(&mut planner, TaskGraph::new(&network));
        let names = graph.tasks.iter().map(|task| task.name.clone()).collect();
        (names, graph)
    }

    #[test]
    fn outputs_have_the_formats_of_the_interface() {
        let [fp32, fp16] = [DType::Fp32, DType::Fp16];
        let fp32_nhwc = Format::fp32(Layout::Nhwc);
        // The convolution writes the format itself.
        let (names, graph) = converted_output(64, fp16, Format::FP16_NHWC);
        assert_eq!(names.last().unwrap(), "b", "{names:?}");
        assert_eq!(
            graph.tasks.last().unwrap().output_format(),
            Format::FP16_NHWC
        );
        // It has no runs of channels, or another format.
        for (n, activations, format) in [
            (63, fp16, Format::FP16_NHWC),
            (64, fp32, Format::FP16_NHWC),
            (64, fp16, Format::FP16_NCHW),
            (64, fp16, Format::BF16_NHWC),
            (64, fp16, fp32_nhwc),
            (63, fp32, fp32_nhwc),
        ] {
            let (names, graph) = converted_output(n, activations, format);
            assert_eq!(names.last().unwrap(), "b.output", "{names:?}");
            let [output] = graph.outputs[..] else {
                panic!("{:?}", graph.outputs);
            };
            assert_eq!(graph.values[output.0].format, format);
            assert_eq!(graph.tasks.last().unwrap().y, output);
        }
        // One unit of runs, not a transposition.
        let (_, graph) = converted_output(64, fp16, fp32_nhwc);
        assert_eq!(
            graph.tasks.last().unwrap().input_format(),
            Format::FP16_NHWC
        );
    }

    /// Of images of one pixel both layouts are the same bytes.
    #[test]
    fn an_output_of_one_pixel_needs_no_other_layout() {
        let mut builder = NetworkBuilder::new("net", TensorShape::new(3, 5, 7, 9));
        builder.op("mean", None, OpOptions::GlobalAvgPool);
        builder.add_output(OutputOptions {
            name: None,
            format: Format::fp32(Layout::Nhwc),
        });
        let mut planner = Planner::new(gpu("h200").unwrap());
        let graph = lower(&mut planner, TaskGraph::new(&builder.finish().unwrap()));
        assert_eq!(task_names(&graph), "mean");
    }

    /// No unit converts HWCN to split NHWC.
    #[test]
    fn every_conversion_is_possible() {
        let mut builder = NetworkBuilder::new("net", TensorShape::new(32, 64, 28, 28));
        builder.op("a", None, OpOptions::Conv(hwcn(64)));
        builder.op("b", None, OpOptions::Conv(ConvOptions::new(64)));
        builder.op("c", None, OpOptions::Conv(ConvOptions::new(64)));
        let graph = TaskGraph::new(&builder.finish().unwrap());
        let candidates = graph.candidates();
        let reads_split = |candidate: &Candidate| {
            let mut reads = candidate.reads();
            reads.any(|(_, format)| format == Format::SPLIT_NHWC)
        };
        assert!(candidates.iter().any(reads_split));
        for conversion in graph.format_conversions(&candidates) {
            let Problem::Convert(problem) = conversion.problem() else {
                panic!("{conversion:?}");
            };
            assert!(problem.is_possible(), "{problem:?}");
        }
    }

    #[test]
    fn a_layout_that_no_scheme_supports_is_an_error() {
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
        assert!(
            groups.contains("`layout: hwcn` is not supported"),
            "{groups}"
        );
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
