//! Conversions: units that convert a value from one format to another.

use super::candidate::Candidate;
use crate::ir::Format;
use crate::ir::{ConvertProblem, Problem, TensorShape};
use crate::plan::graph::{Parameters, Task, TaskGraph, ValueId};

/// A conversion of a value that a plan may need.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FormatConversion {
    /// The value.
    pub value: ValueId,
    /// The format in which it is written.
    pub from: Format,
    /// The format in which it is read.
    pub to: Format,
    shape: TensorShape,
}

impl FormatConversion {
    /// The problem of its unit.
    pub fn problem(&self) -> Problem {
        Problem::Convert(ConvertProblem {
            x: self.shape,
            from: self.from,
            to: self.to,
        })
    }

    /// Its task, from `x` to `y`, named by the value and the format.
    pub(in crate::plan) fn task(&self, graph: &TaskGraph, x: ValueId, y: ValueId) -> Task {
        Task {
            name: format!(
                "{}.{}",
                graph.values[self.value.0].name,
                self.to.layout.name().to_lowercase()
            ),
            problem: self.problem(),
            x,
            residual: None,
            y,
            parameters: Parameters::default(),
            scheme: None,
            tile: None,
        }
    }
}

impl TaskGraph {
    /// The conversions from each format in which a value is written to each other format in which it is read or required.
    pub fn format_conversions(&self, candidates: &[Candidate]) -> Vec<FormatConversion> {
        let mut written: Vec<Vec<Format>> = vec![Vec::new(); self.values.len()];
        let mut needed = written.clone();
        let add = |formats: &mut Vec<Format>, format| {
            if !formats.contains(&format) {
                formats.push(format);
            }
        };
        for (value, format) in self.available() {
            add(&mut written[value.0], format);
        }
        for (value, format) in self.required(candidates) {
            add(&mut needed[value.0], format);
        }
        for candidate in candidates {
            for (value, format) in candidate.writes() {
                add(&mut written[value.0], format);
            }
            for (value, format) in candidate.reads() {
                add(&mut needed[value.0], format);
            }
        }
        let mut conversions = Vec::new();
        for (index, value) in self.values.iter().enumerate() {
            for &from in &written[index] {
                let others = needed[index].iter().filter(|&&to| to != from);
                conversions.extend(others.map(|&to| FormatConversion {
                    value: ValueId(index),
                    from,
                    to,
                    shape: value.shape,
                }));
            }
        }
        conversions
    }

    /// The values that no task writes: the network's input, and values of which only views are written.
    pub(in crate::plan) fn available(&self) -> Vec<(ValueId, Format)> {
        let mut is_written = vec![false; self.values.len()];
        for task in &self.tasks {
            is_written[task.y.0] = true;
        }
        let values = self.values.iter().enumerate();
        let available = values.filter(|(index, _)| !is_written[*index]);
        available
            .map(|(index, value)| (ValueId(index), value.format))
            .collect()
    }

    /// The values that are needed in their own format regardless of the chosen candidates: those that share memory with others, the
    /// network's outputs, and the inputs of tasks that all candidates read in that format.
    pub(in crate::plan) fn required(&self, candidates: &[Candidate]) -> Vec<(ValueId, Format)> {
        let mut is_required = vec![false; self.values.len()];
        for output in &self.outputs {
            is_required[output.0] = true;
        }
        for (index, value) in self.values.iter().enumerate() {
            if let Some((parent, _)) = value.parent {
                is_required[index] = true;
                is_required[parent.0] = true;
            }
        }
        for (index, task) in self.tasks.iter().enumerate() {
            for value in task.reads() {
                let edge = (value, self.values[value.0].format);
                let mut covering = candidates
                    .iter()
                    .filter(|candidate| candidate.covers.contains(&index));
                if covering.all(|candidate| candidate.reads().any(|read| read == edge)) {
                    is_required[value.0] = true;
                }
            }
        }
        let values = self.values.iter().enumerate();
        let required = values.filter(|(index, _)| is_required[*index]);
        required
            .map(|(index, value)| (ValueId(index), value.format))
            .collect()
    }
}
