//! Layer norm over the channels.

use super::super::attributes::Attributes;
use super::super::inputs::input;
use super::{Converter, OpRef, Problem, Value, ValueId, first, invalid, unsupported};
use crate::ir::{ActivationParameter, ChannelNorm, OpOptions};

/// `scale * (x - mean) / sqrt(variance + eps) + shift`, with a scale and a shift for each channel.
pub(super) struct LayerNorm {
    pub eps: f32,
    pub scale: Vec<f32>,
    pub shift: Vec<f32>,
}

impl Converter<'_> {
    /// Layer norm over the channels as the last axis, or over features.
    pub(super) fn layer_norm(
        &mut self,
        node: usize,
        inputs: &[Option<ValueId>],
        attributes: &Attributes<'_>,
    ) -> Result<Value, Problem> {
        let id = first(inputs)?;
        let rank = self.dims(id).len() as i64;
        let axis = attributes.int("axis").unwrap_or(-1);
        // The type of intermediate results.
        attributes.ignore("stash_type");
        let is_last = [-1, rank - 1].contains(&axis);
        if !is_last || !self.is_channels_last(id) && rank != 2 {
            return Err(unsupported(format!(
                "a layer norm of {:?} from axis {axis} on is not supported, only over the channels",
                self.dims(id)
            )));
        }
        let op = self.op_in_either_order(id)?;
        let channels = self.shapes[op].c as usize;
        let scale = self.expect_constant(inputs, 1, "scale")?.to_floats();
        let shift = match input(inputs, 2) {
            Some(_) => self.expect_constant(inputs, 2, "bias")?.to_floats(),
            None => vec![0.0; channels],
        };
        if [scale.len(), shift.len()] != [channels; 2] {
            return Err(invalid(format!(
                "its scale and bias are not for {channels} channels"
            )));
        }
        let eps = attributes.float("epsilon").unwrap_or(1e-5);
        if !(0.0..f32::INFINITY).contains(&eps) {
            return Err(invalid(format!(
                "`epsilon` = {eps}, it must be a number from 0"
            )));
        }
        let op = self.layer_norm_op(node, op, LayerNorm { eps, scale, shift })?;
        Ok(self.value_like(id, op))
    }

    /// The op of a layer norm.
    pub(super) fn layer_norm_op(
        &mut self,
        node: usize,
        op: OpRef,
        norm: LayerNorm,
    ) -> Result<OpRef, Problem> {
        let eps = ActivationParameter::new(norm.eps);
        let options = OpOptions::ChannelNorm(ChannelNorm::LayerNorm { eps });
        self.add_op(node, vec![op], options, |name| {
            vec![
                (format!("{name}.weight"), vec![norm.scale.len()], norm.scale),
                (format!("{name}.bias"), vec![norm.shift.len()], norm.shift),
            ]
        })
    }
}
