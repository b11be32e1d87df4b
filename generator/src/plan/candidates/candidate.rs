//! A candidate: the work of one unit, and the tasks that it computes.

use crate::ir::Format;
use crate::plan::graph::{Task, ValueId};

/// A unit that could compute some tasks of a graph.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// The unit's work.
    pub task: Task,
    /// Indices of the graph's tasks that it computes, ascending.
    pub covers: Vec<usize>,
    /// The values that the candidate writes in addition to [`Task::y`]. They are stored after `y` in each image, in this order.
    pub other_outputs: Vec<ValueId>,
    /// Index of a candidate that computes less and is assumed to take no more time.
    pub extends: Option<usize>,
}

impl Candidate {
    /// A candidate that covers consecutive tasks and has one output.
    pub(super) fn of_tasks(task: Task, covers: std::ops::Range<usize>) -> Self {
        Self {
            task,
            covers: covers.collect(),
            other_outputs: Vec::new(),
            extends: None,
        }
    }

    /// The values that it reads, with the format.
    pub fn reads(&self) -> impl Iterator<Item = (ValueId, Format)> {
        self.task.reads_in_formats()
    }

    /// The values that it writes, with the format.
    pub fn writes(&self) -> impl Iterator<Item = (ValueId, Format)> {
        let format = self.task.output_format();
        let all = self.outputs().chain(self.task.appended);
        all.map(move |value| (value, format))
    }

    /// The values that it writes to memory of its own, in the order in which they are stored: all but what it appends to its residual.
    pub(in crate::plan) fn outputs(&self) -> impl Iterator<Item = ValueId> {
        std::iter::once(self.task.y).chain(self.other_outputs.iter().copied())
    }
}
