//! Softmax.

use super::super::attributes::Attributes;
use super::{Converter, Problem, Value, ValueId, first, unsupported};
use crate::ir::{ChannelNorm, OpOptions};

impl Converter<'_> {
    /// Softmax over the channels. Up to operator set 12 it is over all axes from the given one on.
    pub(super) fn softmax(
        &mut self,
        node: usize,
        inputs: &[Option<ValueId>],
        attributes: &Attributes<'_>,
    ) -> Result<Value, Problem> {
        let id = first(inputs)?;
        let dims = self.dims(id);
        let rank = dims.len() as i64;
        let is_old = self.graph.opset < 13;
        let axis = attributes
            .int("axis")
            .unwrap_or(if is_old { 1 } else { -1 });
        let axis = if axis < 0 {
            axis.saturating_add(rank)
        } else {
            axis
        };
        let op = self.op_of(inputs, 0)?;
        if axis != 1 || is_old && self.shapes[op].pixels() > 1 {
            return Err(unsupported(format!(
                "a softmax of {dims:?} along axis {axis} is not supported, only over the channels"
            )));
        }
        let options = OpOptions::ChannelNorm(ChannelNorm::Softmax);
        let value = self.add(node, vec![op], options, |_| Vec::new())?;
        Ok(value.with_dims(dims))
    }
}
