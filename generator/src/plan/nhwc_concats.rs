//! Concatenations that may be stored in 16-bit NHWC: the units that compute their parts then write views of one tensor.
//!
//! In NCHW each part is a [view](super::views) in any case. In NHWC it is one only if all parts are: the [search](super::select) has a task
//! without time for each of these concatenations, whose options read all parts in one format and write the concatenation in that format.

use super::graph::{Task, TaskGraph, Value, ValueId};
use super::select::{CoverOption, Edge};
use crate::ir::{Format, Layout, Problem};
use crate::scheme::MAX_GRID;
use std::collections::HashMap;

/// A concatenation that may be stored in 16-bit NHWC.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NhwcConcat {
    /// The concatenation.
    pub value: ValueId,
    /// Its parts, in order.
    pub parts: Vec<ValueId>,
    /// The last task that writes a part.
    pub last_task: usize,
    /// Its format in NHWC: that of a view if it is a part of another one.
    pub format: Format,
    /// The format of its parts in NHWC.
    pub part_format: Format,
}

/// All of them in a graph.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct NhwcConcats {
    /// Those that are complete first come first.
    pub all: Vec<NhwcConcat>,
    /// For each part, the concatenation's index in `all`, and the part's first channel in it.
    of_part: HashMap<ValueId, (usize, u32)>,
}

impl NhwcConcats {
    /// Finds them. All parts have multiples of eight channels and are no outputs of the network, and their other readers read them as inputs
    /// that can be views.
    pub(super) fn of_graph(graph: &TaskGraph) -> Self {
        let nhwc = Format::new(graph.activations, Layout::Nhwc);
        if !nhwc.is_16_bit_nhwc() {
            return Self::default();
        }
        let found = graph.values.iter().enumerate();
        let mut found: Vec<(ValueId, Vec<ValueId>)> = found
            .filter_map(|(index, value)| {
                let id = ValueId(index);
                Some((id, parts_of(graph, id, value, nhwc)?))
            })
            .collect();
        // A part that is a concatenation must be one of these itself; the parts of an op come before it.
        let is_found = |found: &[(ValueId, _)], id| found.iter().any(|(value, _)| *value == id);
        while let Some(bad) = found.iter().position(|(_, parts)| {
            let mut parts = parts.iter();
            parts.any(|&part| writer(graph, part).is_none() && !is_found(&found, part))
        }) {
            found.swap_remove(bad);
        }
        let parents: HashMap<ValueId, ValueId> = found
            .iter()
            .flat_map(|(value, parts)| parts.iter().map(|&part| (part, *value)))
            .collect();
        let mut all: Vec<NhwcConcat> = found
            .into_iter()
            .map(|(value, parts)| {
                let mut outer = value;
                while let Some(&parent) = parents.get(&outer) {
                    outer = parent;
                }
                let part_format = nhwc.view_of(graph.values[outer.0].shape.c);
                NhwcConcat {
                    last_task: last_task(graph, value),
                    value,
                    parts,
                    format: if outer == value { nhwc } else { part_format },
                    part_format,
                }
            })
            .collect();
        all.sort_by_key(|concat| (concat.last_task, concat.value));
        let mut of_part = HashMap::new();
        for (index, concat) in all.iter().enumerate() {
            let mut first = 0;
            for &part in &concat.parts {
                of_part.insert(part, (index, first));
                first += graph.values[part.0].shape.c;
            }
        }
        Self { all, of_part }
    }

    /// The concatenation with this part, and the part's first channel in it.
    pub(super) fn of_part(&self, part: ValueId) -> Option<(&NhwcConcat, u32)> {
        let (index, first) = self.of_part.get(&part)?;
        Some((&self.all[*index], *first))
    }

    /// Whether a value is one of the concatenations.
    pub(super) fn contains(&self, value: ValueId) -> bool {
        self.all.iter().any(|concat| concat.value == value)
    }

    /// The position of a task in the search, whose tasks are those of the graph and the concatenations.
    pub(super) fn position_of_task(&self, task: usize) -> usize {
        let complete = self.all.iter().filter(|concat| concat.last_task < task);
        task + complete.count()
    }

    /// The 16-bit NHWC format of a value, of which `dense` is the format if it is no part of these concatenations.
    pub(super) fn format_of(&self, value: ValueId, dense: Format) -> Option<Format> {
        let of_part = self.of_part(value);
        let format = of_part.map_or(dense, |(concat, _)| concat.part_format);
        (format.dense() == dense).then_some(format)
    }

    /// The options of the concatenations in the search: in NCHW and in NHWC.
    pub(super) fn options(&self) -> impl Iterator<Item = CoverOption<Format>> {
        self.all.iter().enumerate().flat_map(|(index, concat)| {
            let formats = [[Format::default(); 2], [concat.part_format, concat.format]];
            formats.map(|[read, written]| {
                let edge = |value: ValueId, format| Edge {
                    value: value.0,
                    format,
                };
                CoverOption {
                    covers: vec![concat.last_task + 1 + index],
                    reads: concat.parts.iter().map(|&part| edge(part, read)).collect(),
                    writes: vec![edge(concat.value, written)],
                    us: 0.0,
                }
            })
        })
    }
}

/// The parts of a value, if it is a concatenation whose parts can all be views of it in this format.
fn parts_of(graph: &TaskGraph, id: ValueId, value: &Value, nhwc: Format) -> Option<Vec<ValueId>> {
    let is_callers = graph.outputs.contains(&id) || graph.inputs.contains(&id);
    // Conversions need a grid for it.
    let is_small = value.shape.batch.max(value.shape.c) <= MAX_GRID;
    if is_callers || !is_small || writer(graph, id).is_some() {
        return None;
    }
    let children = graph.values.iter().enumerate().filter_map(|(child, view)| {
        let (parent, offset) = view.parent?;
        (parent == id).then_some((offset, ValueId(child)))
    });
    let mut children: Vec<(u64, ValueId)> = children.collect();
    children.sort_unstable();
    let mut end = 0;
    for &(offset, child) in &children {
        let part = &graph.values[child.0].shape;
        let fits = nhwc.view_of(value.shape.c).fits_view(part.c);
        let has_size =
            [part.batch, part.h, part.w] == [value.shape.batch, value.shape.h, value.shape.w];
        let mut readers = graph
            .tasks
            .iter()
            .filter(|task| task.reads().any(|read| read == child));
        let is_readable = readers.all(|task| task.residual != Some(child) && reads_views(task));
        let is_output = graph.outputs.contains(&child);
        if offset != end || !fits || !has_size || !is_readable || is_output {
            return None;
        }
        end += part.image_len();
    }
    (children.len() > 1 && end == value.shape.image_len())
        .then(|| children.into_iter().map(|(_, child)| child).collect())
}

/// Whether a task may have an input that is a view in NHWC.
fn reads_views(task: &Task) -> bool {
    match task.problem {
        Problem::Conv(conv) => conv.prologue.is_none(),
        Problem::Pool(_) => true,
        _ => false,
    }
}

/// The task that writes a value.
fn writer(graph: &TaskGraph, value: ValueId) -> Option<usize> {
    graph.tasks.iter().position(|task| task.y == value)
}

/// The last task that writes a part of a value.
fn last_task(graph: &TaskGraph, value: ValueId) -> usize {
    let is_part = |mut id: ValueId| loop {
        match graph.values[id.0].parent {
            _ if id == value => return true,
            Some((parent, _)) => id = parent,
            None => return false,
        }
    };
    graph
        .tasks
        .iter()
        .rposition(|task| is_part(task.y))
        .unwrap_or(0)
}
