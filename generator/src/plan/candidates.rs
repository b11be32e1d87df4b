//! Candidates: all units that can compute tasks of a graph. The [search](super::select) chooses among them.
//!
//! A [`Candidate`] is the work of one unit. It [covers](Candidate::covers) one or several tasks, and reads and writes each value in a
//! certain [format](crate::ir::Format). Each kind of candidate has a separate file with one function, which adds its candidates to the list:
//!
//! - `separate`: each task by a separate unit;
//! - `fused_factors`: all factors of a Tucker or CP layer by one unit, and all but the first of a Tucker layer;
//! - `next_factor`: these together with the first factor of the next Tucker layer;
//! - `squeeze_excite`: average, two fully connected layers and product of a squeeze-and-excite;
//! - `dense_step`: the last convolution of a dense layer and the first one of the next layer, which reads the concatenation;
//! - `inverted_residual`: the 1x1, depthwise and 1x1 convolutions of an inverted residual;
//! - `merged`: several convolutions of the same input and geometry as one;
//! - `linear_as_convolution`: a linear layer for several images as a 1x1 convolution;
//! - `formats`: a task with its input or output in fp16 or split NHWC;
//! - `normalized_input`: a first layer that reads the caller's bytes;
//! - `projection`: the last convolution of a residual block with the block's projection shortcut, in these formats.
//!
//! Units that convert values from one format to another cover no task; they are [`FormatConversion`]s.
//!
//! # Adding a kind
//!
//! Write a file with a function `add(&TaskGraph, &mut Vec<Candidate>)` and call it in [`TaskGraph::candidates`]. No other code depends on
//! the kind: [`times`](super::times) predicts or looks up the time of its task's problem, the search compares it with all others,
//! [`lowering`](super::lowering) puts it into the plan, and `tdc-gen tune` measures it. A candidate must satisfy four rules:
//!
//! 1. It runs at the position of the first task that it covers. So it may read only values that tasks before that one, or the candidate
//!    itself, compute.
//! 2. It writes every value that it computes and that another task reads: [`Task::y`](super::Task::y), and [other
//!    outputs](Candidate::other_outputs).
//! 3. The formats of its edges are those of its problem. A kind that computes a task in another format than the graph's needs no special
//!    treatment: the search adds the conversions where it is chosen. They are listed by
//!    [`format_conversions`](TaskGraph::format_conversions) as soon as a candidate needs them.
//! 4. If it computes all that another candidate computes and more, [`extends`](Candidate::extends) is the index of that one. Its time is
//!    then computed only if it can be part of the best plan, which saves most of the planner's work for large layers.
//!
//! Only the covered tasks decide whether a config allows a candidate (see `times`): a requested scheme or `tiles: paper` determines whether
//! the factors of a layer are separate or one unit.

mod candidate;
mod conversions;
mod dense_step;
mod formats;
mod fused_factors;
mod inverted_residual;
mod linear_as_convolution;
mod merged;
mod next_factor;
mod normalized_input;
mod projection;
mod separate;
mod squeeze_excite;

use super::graph::TaskGraph;
use super::kernel::layers_with_square_factors;
#[cfg(feature = "compress")]
use crate::ir::{Format, OpId};
use crate::ir::{Network, Problem};
pub use candidate::Candidate;
pub use conversions::FormatConversion;
pub(super) use conversions::output_task;
#[cfg(feature = "compress")]
pub(crate) use next_factor::FusableReaders;

impl TaskGraph {
    /// Every candidate for the graph's tasks. The first ones are the tasks themselves, in order.
    pub fn candidates(&self) -> Vec<Candidate> {
        let mut candidates = self.candidates_of_single_layers();
        squeeze_excite::add(self, &mut candidates);
        dense_step::add(self, &mut candidates);
        inverted_residual::add(self, &mut candidates);
        merged::add(self, &mut candidates);
        projection::add(self, &mut candidates);
        normalized_input::add(self, &mut candidates);
        candidates
    }

    /// Those that cover one layer, possibly with the first factor of the next Tucker layer.
    fn candidates_of_single_layers(&self) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        separate::add(self, &mut candidates);
        fused_factors::add(self, &mut candidates);
        next_factor::add(self, &mut candidates);
        linear_as_convolution::add(self, &mut candidates);
        formats::add(self, &mut candidates);
        candidates
    }
}

/// A launch that computes several layers.
#[cfg(feature = "compress")]
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SharedLaunch {
    /// At least two.
    pub layers: Vec<OpId>,
    /// What it computes.
    pub problem: Problem,
}

#[cfg(feature = "compress")]
impl SharedLaunch {
    /// All that a plan may have of a graph: convolutions with projection shortcuts, merged siblings, dense steps, then inverted residuals.
    pub(crate) fn of_graph(graph: &TaskGraph) -> Vec<Self> {
        let mut candidates = Vec::new();
        projection::add(graph, &mut candidates);
        merged::add(graph, &mut candidates);
        dense_step::add(graph, &mut candidates);
        inverted_residual::add(graph, &mut candidates);
        let launches = candidates.into_iter().map(|candidate| Self {
            layers: candidate.task.parameters.layers(),
            problem: candidate.task.problem,
        });
        launches.collect()
    }
}

/// A launch that computes dense layers together with ops that are no layers: a squeeze-and-excite, or a first layer that normalises the
/// caller's bytes.
#[cfg(feature = "compress")]
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MixedLaunch {
    /// At least one.
    pub layers: Vec<OpId>,
    /// The tasks, ascending.
    pub tasks: Vec<usize>,
    /// What it computes; it writes NCHW.
    pub problem: Problem,
}

#[cfg(feature = "compress")]
impl MixedLaunch {
    /// All that a plan may have of a graph.
    pub(crate) fn of_graph(graph: &TaskGraph) -> Vec<Self> {
        let mut candidates = Vec::new();
        squeeze_excite::add(graph, &mut candidates);
        normalized_input::add(graph, &mut candidates);
        let in_nchw = candidates.into_iter();
        let in_nchw =
            in_nchw.filter(|candidate| candidate.task.output_format() == Format::default());
        let launches = in_nchw.map(|candidate| Self {
            layers: candidate.task.parameters.layers(),
            tasks: candidate.covers,
            problem: candidate.task.problem,
        });
        launches.collect()
    }
}

/// The problems of all units that a plan of the network may have, in task order, and of those that kernels of its layers have in addition.
pub fn candidate_problems(network: &Network) -> Vec<Problem> {
    let graph = TaskGraph::new(network);
    let candidates = graph.candidates();
    let conversions = graph.format_conversions(&candidates);
    let mut problems: Vec<(usize, Problem)> = candidates
        .iter()
        .map(|candidate| (candidate.covers[0], candidate.task.problem))
        .collect();
    problems.sort_by_key(|(task, _)| *task);
    let problems = problems.into_iter().map(|(_, problem)| problem);
    let conversions = conversions.iter().map(FormatConversion::problem);
    let kernels = layers_with_square_factors(network);
    let of_kernel = |graph: TaskGraph| {
        let candidates = graph.candidates().into_iter();
        candidates
            .map(|candidate| candidate.task.problem)
            .collect::<Vec<_>>()
    };
    let kernels = kernels.into_iter().flat_map(of_kernel);
    problems.chain(conversions).chain(kernels).collect()
}
