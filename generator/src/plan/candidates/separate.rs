//! Each task by a separate unit: for a factorised layer, one launch for each factor.

use super::candidate::Candidate;
use crate::plan::graph::TaskGraph;

/// Adds one candidate for each task.
pub(super) fn add(graph: &TaskGraph, candidates: &mut Vec<Candidate>) {
    let tasks = graph.tasks.iter().enumerate();
    candidates.extend(tasks.map(|(at, task)| Candidate::of_tasks(task.clone(), at..at + 1)));
}
