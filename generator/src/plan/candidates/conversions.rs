//! Conversions: units that convert a value from one format to another.

use super::candidate::Candidate;
use crate::ir::Format;
use crate::ir::{ConvertProblem, Problem, TensorShape};
use crate::plan::graph::{Parameters, Task, TaskGraph, ValueId};
use crate::plan::nhwc_concats::NhwcConcats;

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
        Problem::Convert(self.conversion())
    }

    fn conversion(&self) -> ConvertProblem {
        ConvertProblem {
            x: self.shape,
            from: self.from,
            to: self.to,
        }
    }

    /// Its task, from `x` to `y`, named by the value and the layout, or as that of an output in a format of its own.
    pub(in crate::plan) fn task(&self, graph: &TaskGraph, x: ValueId, y: ValueId) -> Task {
        let name = &graph.values[self.value.0].name;
        let mut outputs = graph.outputs.iter().zip(&graph.output_formats);
        let is_output = outputs.any(|(&output, &format)| (output, format) == (self.value, self.to));
        if is_output && self.to != Format::default() {
            return output_task(name, self.conversion(), x, y);
        }
        let layout = self.to.layout.name().to_lowercase();
        conversion_task(format!("{name}.{layout}"), self.conversion(), x, y)
    }
}

/// The task that brings a value of this name to the format of the network's output.
pub(in crate::plan) fn output_task(
    name: &str,
    problem: ConvertProblem,
    x: ValueId,
    y: ValueId,
) -> Task {
    conversion_task(format!("{name}.output"), problem, x, y)
}

fn conversion_task(name: String, problem: ConvertProblem, x: ValueId, y: ValueId) -> Task {
    Task {
        name,
        problem: Problem::Convert(problem),
        x,
        residual: None,
        appended: None,
        y,
        parameters: Parameters::default(),
        scheme: None,
        tile: None,
    }
}

impl TaskGraph {
    /// The conversions from each format in which a value is written to each other format in which it is read or required, as far as one unit
    /// can do it. An output of another format than its value's is converted to that one too, from which all others can be reached.
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
        for output in &self.outputs {
            add(&mut needed[output.0], self.values[output.0].format);
        }
        for option in NhwcConcats::of_graph(self).options() {
            for edge in option.reads {
                add(&mut needed[edge.value], edge.format);
            }
            for edge in option.writes {
                add(&mut written[edge.value], edge.format);
            }
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
            // What a conversion writes can be converted again.
            let own = needed[index]
                .iter()
                .filter(|&&format| format == value.format);
            let mut sources = written[index].clone();
            own.for_each(|&format| add(&mut sources, format));
            for from in sources {
                let all = needed[index].iter().map(|&to| FormatConversion {
                    value: ValueId(index),
                    from,
                    to,
                    shape: value.shape,
                });
                conversions.extend(all.filter(|conversion| conversion.conversion().is_possible()));
            }
        }
        conversions
    }

    /// The values that no task writes, nor an [`NhwcConcat`](crate::plan::nhwc_concats::NhwcConcat): the network's input, and values of
    /// which only views are written.
    pub(in crate::plan) fn available(&self) -> Vec<(ValueId, Format)> {
        let mut is_written = vec![false; self.values.len()];
        for concat in &NhwcConcats::of_graph(self).all {
            is_written[concat.value.0] = true;
        }
        for task in &self.tasks {
            is_written[task.y.0] = true;
        }
        let values = self.values.iter().enumerate();
        let available = values.filter(|(index, _)| !is_written[*index]);
        available
            .map(|(index, value)| (ValueId(index), value.format))
            .collect()
    }

    /// The values that are needed regardless of the chosen candidates: the network's outputs in the formats of its interface; and in their
    /// own format values that share memory with others, unless only as parts of an `NhwcConcat`, and inputs that all candidates of a task
    /// read in it.
    pub(in crate::plan) fn required(&self, candidates: &[Candidate]) -> Vec<(ValueId, Format)> {
        let mut is_required = vec![false; self.values.len()];
        let concats = NhwcConcats::of_graph(self);
        for (index, value) in self.values.iter().enumerate() {
            let parent = value
                .parent
                .filter(|(parent, _)| !concats.contains(*parent));
            if let Some((parent, _)) = parent {
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
        let outputs = self.outputs.iter().copied();
        let outputs = outputs.zip(self.output_formats.iter().copied());
        let values = self.values.iter().enumerate();
        let required = values.filter(|(index, _)| is_required[*index]);
        let required = required.map(|(index, value)| (ValueId(index), value.format));
        let mut required: Vec<_> = required.collect();
        for output in outputs {
            if !required.contains(&output) {
                required.push(output);
            }
        }
        required
    }
}
