//! Memory of a network: the location of each value and workspace.

use super::arena::{Arena, Lifetime};
use super::branches::Branches;
use super::graph::{TaskGraph, ValueId};
use crate::ir::{Format, Tensor, TensorShape};
use serde::ser::{Serialize, SerializeStructVariant, Serializer};

/// The memory that contains a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// An input of the caller.
    Input {
        /// Index of the input.
        index: usize,
    },
    /// An output of the caller.
    Output {
        /// Index of the output.
        index: usize,
    },
    /// The arena.
    Arena {
        /// Byte offset.
        offset: u64,
    },
}

/// In JSON `"input"`, `"output"` or `{"arena": {"offset": 256}}`; inputs and outputs after the first have their index, as in `{"output": 1}`.
impl Serialize for Memory {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const NAME: &str = "Memory";
        match self {
            Self::Input { index: 0 } => serializer.serialize_unit_variant(NAME, 0, "input"),
            Self::Input { index } => serializer.serialize_newtype_variant(NAME, 0, "input", index),
            Self::Output { index: 0 } => serializer.serialize_unit_variant(NAME, 1, "output"),
            Self::Output { index } => {
                serializer.serialize_newtype_variant(NAME, 1, "output", index)
            }
            Self::Arena { offset } => {
                let mut arena = serializer.serialize_struct_variant(NAME, 2, "arena", 1)?;
                arena.serialize_field("offset", offset)?;
                arena.end()
            }
        }
    }
}

/// Location of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Location {
    /// The block of memory.
    pub memory: Memory,
    /// Offset of the value's first element in that block, in elements: that of a view in a concatenation.
    pub offset: u64,
    /// Elements from one image of a batch to the next.
    pub batch_stride: u64,
    /// Format.
    #[serde(flatten, skip_serializing_if = "is_default")]
    pub format: Format,
    /// Shape.
    pub shape: TensorShape,
}

impl Location {
    /// Offset of the value's first element in its block of memory, in bytes.
    pub fn offset_bytes(&self) -> u64 {
        self.offset * self.format.dtype.bytes()
    }
}

/// Whether the format is the one that `plan.json` omits.
fn is_default(format: &Format) -> bool {
    *format == Format::default()
}

/// The memory of a graph's values and of the workspaces of its tasks.
pub(super) struct MemoryPlan {
    /// For each value that owns memory, that memory.
    memory: Vec<Option<Memory>>,
    /// For each task, the byte offset of its workspace in the arena.
    pub workspaces: Vec<Option<u64>>,
    pub arena: Arena,
}

impl MemoryPlan {
    /// Assigns offsets in an arena to all values and workspaces, except for the caller's inputs and outputs. `workspace_bytes` returns the
    /// workspace size of a task. A buffer lives as long as any task may run that reads or writes it: two buffers share memory only if
    /// all tasks of one have finished before those of the other start.
    pub(super) fn new(
        graph: &TaskGraph,
        branches: &Branches,
        workspace_bytes: impl Fn(usize) -> u64,
    ) -> Self {
        let concurrent = branches.concurrent();
        let mut memory: Vec<Option<Memory>> = vec![None; graph.values.len()];
        for (index, input) in graph.inputs.iter().enumerate() {
            memory[input.0] = Some(Memory::Input { index });
        }
        for (index, output) in graph.outputs.iter().enumerate() {
            memory[output.0] = Some(Memory::Output { index });
        }

        let mut lifetimes: Vec<Lifetime> = Vec::new();
        let mut buffer_of_value: Vec<Option<usize>> = vec![None; graph.values.len()];
        let mut workspace_buffers = Vec::new();
        for (index, task) in graph.tasks.iter().enumerate() {
            let [first, last] = concurrent[index];
            for value in task.reads().chain(task.writes()) {
                let (root, _) = graph.root(value);
                if memory[root.0].is_some() {
                    continue;
                }
                let buffer = *buffer_of_value[root.0].get_or_insert_with(|| {
                    let value = &graph.values[root.0];
                    lifetimes.push(Lifetime {
                        bytes: Tensor::new(value.shape, value.format).bytes(),
                        first,
                        last,
                    });
                    lifetimes.len() - 1
                });
                let lifetime = &mut lifetimes[buffer];
                lifetime.first = lifetime.first.min(first);
                lifetime.last = lifetime.last.max(last);
            }
            let bytes = workspace_bytes(index);
            workspace_buffers.push((bytes > 0).then(|| {
                lifetimes.push(Lifetime { bytes, first, last });
                lifetimes.len() - 1
            }));
        }
        let arena = Arena::plan(&lifetimes);
        for (value, buffer) in buffer_of_value.iter().enumerate() {
            if let Some(buffer) = buffer {
                memory[value] = Some(Memory::Arena {
                    offset: arena.offsets[*buffer],
                });
            }
        }
        let workspaces = workspace_buffers
            .iter()
            .map(|buffer| buffer.map(|buffer| arena.offsets[buffer]))
            .collect();
        Self {
            memory,
            workspaces,
            arena,
        }
    }

    /// The location of a value that a task reads or writes.
    pub(super) fn location(&self, graph: &TaskGraph, value: ValueId) -> Location {
        let (root, offset) = graph.root(value);
        Location {
            memory: self.memory[root.0].expect("every value that a task touches was given memory"),
            offset,
            batch_stride: graph.values[root.0].shape.image_len(),
            format: graph.values[value.0].format,
            shape: graph.values[value.0].shape,
        }
    }
}
