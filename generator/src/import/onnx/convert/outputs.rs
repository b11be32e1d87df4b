//! The outputs of the graph: each an output of one op.

use super::{Converter, OpRef};
use crate::import::onnx::error::{EXPORT_AGAIN, ImportError, REPLACE};
use std::collections::BTreeMap;

impl<'g> Converter<'g> {
    /// The ops that compute the outputs, and the names of the outputs. Reports every output that is none of an op, or the same as another.
    pub(super) fn output_ops(&mut self) -> BTreeMap<OpRef, &'g str> {
        let graph = self.graph;
        let mut ops: BTreeMap<OpRef, &'g str> = BTreeMap::new();
        for name in &graph.outputs {
            let id = self.ids.get(&name[..]).copied();
            let before = self.errors.len();
            let op = id.and_then(|id| self.materialize(id));
            let quoted = format!("`{}`", name.escape_debug());
            if id.is_some_and(|id| self.is_channels_last(id)) {
                let message = format!(
                    "the channels are the last axis of the output {quoted}; only the second one is supported"
                );
                self.errors.push(ImportError::of_file(message, REPLACE));
            }
            let other = op.and_then(|op| ops.get(&op));
            let problem = match (op, other) {
                // The reason is the error of a node, if there is one.
                (None, _) if id.is_none() || self.errors.is_empty() => Some((
                    format!("nothing computes the output {quoted}"),
                    EXPORT_AGAIN,
                )),
                // A network of only that has no ops, which is reported elsewhere.
                (Some(op), _) if graph.outputs.len() > 1 && self.index_of(op).is_none() => Some((
                    format!("the output {quoted} is an input of the network"),
                    "remove it from the outputs",
                )),
                (Some(_), Some(other)) => Some((
                    format!(
                        "the outputs `{}` and {quoted} are the same",
                        other.escape_debug()
                    ),
                    "remove one of them",
                )),
                _ => None,
            };
            if let Some((message, help)) = problem.filter(|_| self.errors.len() == before) {
                self.errors.push(ImportError::of_file(message, help));
            }
            if let Some(op) = op {
                ops.entry(op).or_insert(name);
            }
        }
        ops
    }
}
