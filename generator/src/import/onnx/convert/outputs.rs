//! The outputs of the graph: each an output of one op, or a copy of an input.

use super::{Converter, NewOp, OpRef};
use crate::import::onnx::error::{EXPORT_AGAIN, ImportError, REPLACE};
use crate::ir::OpOptions;
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
            let op = op.and_then(|op| match self.index_of(op) {
                Some(_) => Some(op),
                None => self.copy(op),
            });
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

    /// An op that copies an input of the network.
    fn copy(&mut self, input: OpRef) -> Option<OpRef> {
        let name = self.names.like("copy");
        let inputs = [self.name_of(input).to_owned()];
        // It changes the sizes of the axes, but not the order of the elements, and the driver has to write it to the output.
        let options = OpOptions::Flatten;
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
