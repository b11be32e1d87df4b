//! The normalisation of an input in uint8 together with the first layer that reads it, as one unit.

use super::candidate::Candidate;
use super::formats::first_layer_outputs;
use crate::ir::{Activation, ConvProblem, DType, Problem, Prologue};
use crate::plan::graph::{Parameters, Task, TaskGraph};

/// Adds the candidates for each input in uint8 that only one convolution reads.
pub(super) fn add(graph: &TaskGraph, candidates: &mut Vec<Candidate>) {
    for (at, task) in graph.tasks.iter().enumerate() {
        let Problem::Normalize(normalize) = task.problem else {
            continue;
        };
        if normalize.from.dtype != DType::Uint8 {
            continue;
        }
        let Some(reader) = graph.only_reader(task.y) else {
            continue;
        };
        let layer = &graph.tasks[reader];
        let is_whole = layer.x == task.y && layer.residual.is_none();
        let outputs = first_layer_outputs(graph, layer).into_iter();
        candidates.extend(outputs.filter(|_| is_whole).map(|conv| {
            let problem = Problem::Conv(ConvProblem {
                input: normalize.from,
                prologue: Some(Prologue {
                    activation: Activation::None,
                }),
                ..conv
            });
            Candidate {
                task: Task {
                    problem,
                    x: task.x,
                    parameters: Parameters {
                        scale_shift: task.parameters.scale_shift,
                        ..layer.parameters.clone()
                    },
                    ..layer.clone()
                },
                covers: vec![at, reader],
                other_outputs: Vec::new(),
                extends: None,
            }
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{
        ConvOptions, Format, InputEncoding, Layout, NetworkBuilder, OpOptions, TensorShape,
    };
    use crate::plan::graph::ValueId;

    /// Formats of the outputs of the candidates that normalise the input of a network of these ops.
    fn outputs(c: u32, dtype: DType, ops: &[(&str, &str, OpOptions)]) -> Vec<Format> {
        let mut builder = NetworkBuilder::new("net", TensorShape::new(1, c, 9, 11));
        let encoding = InputEncoding {
            dtype,
            layout: Layout::Nhwc,
            mean: Some(vec![0.5; c as usize]),
            std: None,
        };
        builder.encode_input(0, encoding);
        for (name, input, options) in ops {
            builder.op(name, Some(&[(*input).to_owned()]), options.clone());
        }
        let graph = TaskGraph::new(&builder.finish().unwrap());
        // The caller's tensor is another value than the normalised one, which is the op's output.
        let [given] = graph.inputs[..] else {
            panic!("{:?}", graph.inputs)
        };
        assert_ne!(given, ValueId(0));
        assert_eq!(graph.tasks[0].y, ValueId(0));
        let candidates = graph.candidates();
        let fused = candidates
            .iter()
            .filter(|candidate| candidate.task.x == given && candidate.covers.len() == 2);
        fused
            .map(|candidate| {
                assert_eq!(candidate.covers, [0, 1]);
                assert_eq!(
                    candidate.task.parameters.scale_shift,
                    Some(crate::ir::OpId(0))
                );
                candidate.task.output_format()
            })
            .collect()
    }

    #[test]
    fn the_only_reader_of_bytes_normalises_them() {
        let conv = || OpOptions::Conv(ConvOptions::new(16));
        let one = [("a", "input", conv())];
        let both = [Format::default(), Format::SPLIT_NHWC];
        assert_eq!(outputs(3, DType::Uint8, &one), both);
        assert_eq!(outputs(3, DType::Fp32, &one), []);
        // Too many channels to be gathered.
        assert_eq!(outputs(5, DType::Uint8, &one), []);
        let pool = ("a", "input", OpOptions::GlobalAvgPool);
        assert_eq!(outputs(3, DType::Uint8, &[pool]), []);
        let ranks = OpOptions::Conv(ConvOptions {
            ranks: Some([2, 8]),
            ..ConvOptions::new(16)
        });
        assert_eq!(outputs(3, DType::Uint8, &[("a", "input", ranks)]), []);
    }
}
