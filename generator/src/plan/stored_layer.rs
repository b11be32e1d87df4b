//! A layer by itself, with its input and its output in the formats in which a network stores them.

use super::candidates::Candidate;
use super::factors::SquareFactors;
use super::graph::TaskGraph;
use super::lowering::least_us;
use crate::ir::{DType, Format, LayerSpec, LinearProblem, Precision, Problem};

/// How a network stores the input and the output of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct StoredFormats {
    /// The format of the input.
    pub input: Format,
    /// The format of the output, and of a residual.
    pub output: Format,
    /// As [`TaskGraph::activations`]; for what is between the factors.
    pub activations: DType,
}

/// A layer, dense or factorised, with the candidates to compute it.
pub(crate) struct StoredLayer {
    graph: TaskGraph,
    candidates: Vec<Candidate>,
}

impl StoredLayer {
    /// A convolution, whose layout is NCHW.
    pub(crate) fn conv(spec: &LayerSpec, formats: StoredFormats) -> Self {
        let whole = Problem::Conv(spec.problem);
        let graph = TaskGraph::of_layer(&spec.name, &whole, |graph, values, ops| {
            graph.push_layer(spec, SquareFactors::Dropped, values, ops);
        });
        Self::new(graph, formats)
    }

    /// A linear layer, with the rank of its weight. `precision` is how its products may be rounded if it is computed as a convolution.
    pub(crate) fn linear(
        linear: LinearProblem,
        rank: Option<u32>,
        precision: Precision,
        formats: StoredFormats,
    ) -> Self {
        let whole = Problem::Linear(linear);
        let graph = TaskGraph::of_layer("", &whole, |graph, values, ops| {
            graph.linear_precisions.insert(ops.layer, precision);
            graph.push_linear("", linear, rank, values, ops);
        });
        Self::new(graph, formats)
    }

    /// Parts of concatenations count as tensors with their own memory.
    fn new(mut graph: TaskGraph, formats: StoredFormats) -> Self {
        let [input, output] = [formats.input, formats.output].map(|format| Format {
            pixel_stride: None,
            ..format
        });
        graph.activations = formats.activations;
        let x = graph.inputs[0];
        graph.values[x.0].format = input;
        if let Some(residual) = graph.tasks.last().and_then(|task| task.residual) {
            graph.values[residual.0].format = output;
        }
        graph.output_formats = vec![output];
        Self {
            candidates: graph.candidates(),
            graph,
        }
    }

    /// The problems of all units that may compute it, and of conversions between them.
    pub(crate) fn problems(&self) -> impl Iterator<Item = Problem> {
        let candidates = self.candidates.iter();
        let conversions = self.graph.format_conversions(&self.candidates).into_iter();
        candidates
            .map(|candidate| candidate.task.problem)
            .chain(conversions.map(|conversion| conversion.problem()))
    }

    /// The least time in which units of these times compute it, nanoseconds. `None` if they cannot: a problem without a time is not used.
    pub(crate) fn least_ns(&self, ns: impl Fn(&Problem) -> Option<u32>) -> Option<u32> {
        let us = |problem: &Problem| Some(f64::from(ns(problem)?) / 1e3);
        let least = least_us(&self.graph, &self.candidates, us)?;
        u32::try_from((least * 1e3).round() as u64).ok()
    }
}
