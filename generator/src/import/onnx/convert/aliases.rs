//! Nodes that change nothing in inference: their outputs are other names of their inputs.

use super::super::attributes::Attributes;
use super::super::inputs::input;
use super::super::message::Node;
use super::{Converter, Problem, ValueId, first, op_type, unsupported};

/// Whether the first output of a node is its first input.
pub(super) fn is_alias(node: &Node) -> bool {
    matches!(op_type(node), "Identity" | "Dropout")
}

impl Converter<'_> {
    /// Checks that a node changes nothing: a Dropout must not be in training.
    pub(super) fn check_alias(
        &self,
        node: &Node,
        inputs: &[Option<ValueId>],
        attributes: &Attributes<'_>,
    ) -> Result<(), Problem> {
        first(inputs)?;
        if op_type(node) == "Dropout" {
            attributes.ignore("seed");
            // Operator sets before 12.
            attributes.ignore("ratio");
            let is_test = attributes.int("is_test");
            if self.graph.opset < 7 && is_test.unwrap_or(0) == 0 {
                return Err(unsupported("Dropout in training is not supported"));
            }
            if let Some(training) = input(inputs, 2) {
                let is_training = self.constant(training).and_then(|tensor| tensor.scalar());
                if is_training != Some(0.0) {
                    return Err(unsupported("Dropout in training is not supported"));
                }
            }
        }
        Ok(())
    }
}
