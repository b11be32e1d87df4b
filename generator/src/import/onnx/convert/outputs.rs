//! The outputs of the graph: each an output of one op, or a copy of an input.

use super::{Converter, NewOp, OpRef};
use crate::import::onnx::error::{EXPORT_AGAIN, ImportError};
use crate::ir::{Layout, OpOptions, SliceOptions};
use std::collections::BTreeMap;

/// An output of the graph.
pub(super) struct GraphOutput<'g> {
    pub(super) name: &'g str,
    /// NHWC if the channels are its last axis.
    pub(super) layout: Layout,
}

impl<'g> Converter<'g> {
    /// The outputs by the ops that compute them. Reports every output that is none of an op, or the same as another.
    pub(super) fn output_ops(&mut self) -> BTreeMap<OpRef, GraphOutput<'g>> {
        let graph = self.graph;
        let mut ops: BTreeMap<OpRef, GraphOutput<'g>> = BTreeMap::new();
        for name in &graph.outputs {
            let id = self.ids.get(&name[..]).copied();
            let before = self.errors.len();
            let op = id.and_then(|id| self.materialize(id));
            let op = op.and_then(|op| match self.index_of(op) {
                Some(_) => Some(op),
                None => self.copy(op),
            });
            let quoted = format!("`{}`", name.escape_debug());
            let layout = match id.is_some_and(|id| self.is_channels_last(id)) {
                true => Layout::Nhwc,
                false => Layout::Nchw,
            };
            // A tensor in two layouts is two outputs.
            let other = op.and_then(|op| ops.get(&op));
            let op = match other.is_some_and(|other| other.layout != layout) {
                true => op.and_then(|op| self.copy(op)),
                false => op,
            };
            let other = op.and_then(|op| ops.get(&op));
            let problem = match (op, other) {
                // The reason is the error of a node, if there is one.
                (None, _) if id.is_none() || self.errors.is_empty() => Some((
                    format!("nothing computes the output {quoted}"),
                    EXPORT_AGAIN,
                )),
                (Some(_), Some(other)) => Some((
                    format!(
                        "the outputs `{}` and {quoted} are the same",
                        other.name.escape_debug()
                    ),
                    "remove one of them",
                )),
                _ => None,
            };
            if let Some((message, help)) = problem.filter(|_| self.errors.len() == before) {
                self.errors.push(ImportError::of_file(message, help));
            }
            if let Some(op) = op {
                ops.entry(op).or_insert(GraphOutput { name, layout });
            }
        }
        ops
    }

    /// An op that copies the output of another op, or an input of the network.
    fn copy(&mut self, input: OpRef) -> Option<OpRef> {
        let name = self.names.like("copy");
        let inputs = [self.name_of(input).to_owned()];
        // All channels: the driver has to write them to the output.
        let n = self.shapes[input].c;
        let options = OpOptions::Slice(SliceOptions { start: 0, n });
        self.builder.op(&name, Some(&inputs), options.clone());
        match self.builder.added() {
            Ok(shape) => self.shapes.push(shape),
            Err(errors) => {
                self.errors.extend(ImportError::of_network(errors));
                return None;
            }
        }
        self.ops.push(NewOp {
            name,
            inputs: vec![input],
            options,
            tensors: Vec::new(),
        });
        self.views.push(Vec::new());
        Some(self.shapes.len() - 1)
    }
}
