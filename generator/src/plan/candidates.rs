//! Candidates: all units that could compute tasks of a graph. The [search](super::select) chooses among them.
//!
//! A [`Candidate`] is the work of one unit. It [covers](Candidate::covers) one task or several, and reads and writes each value in a
//! certain [format](Format). Each kind of candidate has a file of its own with one function, which adds its candidates to the list:
//!
//! - `separate`: each task by a unit of its own;
//! - `fused_factors`: all factors of a Tucker or CP layer by one unit, and all but the first of a Tucker layer;
//! - `next_factor`: these and the first factor of the next Tucker layer.
//!
//! Units that bring values from one format to another cover no task; they are [`FormatConversion`]s.
//!
//! # Adding a kind
//!
//! Write a file with a function `add(&TaskGraph, &mut Vec<Candidate>)` and call it in [`TaskGraph::candidates`]. Nothing else has to
//! know of the new kind: [`times`](super::times) predicts or looks up the time of its task's problem, the search weighs it against all
//! others, [`lowering`](super::lowering) puts it into the plan, and `tdc-gen tune` measures it. Four rules hold for a candidate:
//!
//! 1. It runs when the first of the tasks that it covers would run. So it may read only what tasks before that one write (or what it
//!    computes itself).
//! 2. It writes every value that it computes and that another task reads: [`Task::y`](super::Task::y), and a
//!    [second output](Candidate::second_output).
//! 3. The formats of its edges are those of its problem. A kind that computes a task in another format than the graph's is a candidate
//!    like any other; where it is chosen, the search adds the conversions. They are listed by
//!    [`format_conversions`](TaskGraph::format_conversions) as soon as a candidate needs them.
//! 4. If it computes all that another candidate does and more, it names that one in [`extends`](Candidate::extends). Its time is then
//!    asked for only if it can be part of the best plan, which saves most of the planner's work for large layers.
//!
//! Whether a config allows a candidate is decided by its covered tasks alone (see `times`): a requested scheme or `tiles: paper` fixes
//! whether the factors of a layer are separate or one unit.

mod candidate;
mod conversions;
mod fused_factors;
mod next_factor;
mod separate;

use super::graph::TaskGraph;
use crate::ir::{Network, Problem};
pub use candidate::Candidate;
pub use conversions::FormatConversion;

impl TaskGraph {
    /// Every candidate for the graph's tasks. The first ones are the tasks themselves, in order.
    pub fn candidates(&self) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        separate::add(self, &mut candidates);
        fused_factors::add(self, &mut candidates);
        next_factor::add(self, &mut candidates);
        candidates
    }
}

/// The problems of all units that a plan of the network may have, in the order of the tasks.
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
    problems.chain(conversions).collect()
}
