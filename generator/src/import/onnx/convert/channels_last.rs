//! Nodes whose tensors have the channels as the last axis: those between two transpositions, as in ConvNeXt, and those between an input of
//! TensorFlow or Keras and its transposition. There are layer norms, matrix products with constants, which are 1x1 convolutions there, and
//! elementwise functions. The ops stay NCHW, so the transpositions cost nothing.

use super::super::channels_last_inputs::FROM_LAST;
use super::super::fold::transposed;
use super::{Converter, OpRef, Problem, Value, ValueId, first, invalid, unsupported};
use crate::ir::{ConvOptions, OpOptions};

/// The transposition that moves the channels to the last axis.
const TO_LAST: [i64; 4] = [0, 2, 3, 1];

impl Converter<'_> {
    /// A transposition that moves the channels to the last axis or back; `None` for any other one.
    pub(super) fn moved_channels(
        &mut self,
        inputs: &[Option<ValueId>],
        order: Option<&[i64]>,
    ) -> Result<Option<Value>, Problem> {
        let id = first(inputs)?;
        if let Some(order) = order
            && *order == FROM_LAST
            && let Value::Padded {
                of,
                pads,
                is_channels_last: true,
                dims,
                node,
            } = &self.values[id]
        {
            let [b, h, w, c] = dims[..] else {
                return Ok(None);
            };
            return Ok(Some(Value::Padded {
                of: *of,
                pads: *pads,
                is_channels_last: false,
                dims: vec![b, c, h, w],
                node: *node,
            }));
        }
        match order {
            Some(order) if *order == TO_LAST && self.dims(id).len() == 4 => {
                let op = self.op_of(inputs, 0)?;
                Ok(Some(Value::ChannelsLast { op }))
            }
            Some(order) if *order == FROM_LAST => match self.last_channels_of(id)? {
                Some(op) => Ok(Some(self.output(op, false))),
                None => Ok(None),
            },
            _ => Ok(None),
        }
    }

    /// The op of a value whose last axis are the channels; `None` for a value with other axes.
    pub(super) fn last_channels_of(&mut self, id: ValueId) -> Result<Option<OpRef>, Problem> {
        match self.is_channels_last(id) {
            true => self.materialize(id).map(Some).ok_or(Problem::Reported),
            false => Ok(None),
        }
    }

    /// Whether a value has its channels as the last axis.
    pub(super) fn is_channels_last(&self, id: ValueId) -> bool {
        match &self.values[id] {
            Value::ChannelsLast { .. } => true,
            Value::Function(function) => function.is_channels_last,
            Value::Moment { of, .. } => self.is_channels_last(*of),
            Value::Padded {
                is_channels_last, ..
            } => *is_channels_last,
            _ => false,
        }
    }

    /// The axis of a value's channels.
    pub(super) fn channel_axis(&self, id: ValueId) -> usize {
        let rank = self.dims(id).len();
        match self.is_channels_last(id) {
            true => rank.saturating_sub(1),
            // Features of one image have no other axis.
            false => usize::from(rank > 1),
        }
    }

    /// The op that computes a value, whether its channels are the second axis or the last one.
    pub(super) fn op_in_either_order(&mut self, id: ValueId) -> Result<OpRef, Problem> {
        match self.last_channels_of(id)? {
            Some(op) => Ok(op),
            None => self.op_of(&[Some(id)], 0),
        }
    }

    /// The output of an op of the same sizes as a value, in its order of axes.
    pub(super) fn value_like(&self, id: ValueId, op: OpRef) -> Value {
        match self.is_channels_last(id) {
            true => Value::ChannelsLast { op },
            false => Value::Op {
                op,
                dims: self.dims(id),
            },
        }
    }

    /// A product with a constant matrix of C x N: a 1x1 convolution to N channels.
    pub(super) fn pixel_product(
        &mut self,
        node: usize,
        op: OpRef,
        inputs: &[Option<ValueId>],
    ) -> Result<Value, Problem> {
        let weight = self.expect_constant(inputs, 1, "second factor")?;
        let channels = self.shapes[op].c as usize;
        let &[c, n] = &weight.dims[..] else {
            let axes = weight.dims.len();
            return Err(unsupported(format!("its weight has {axes} axes, not two")));
        };
        if c != channels {
            return Err(invalid(format!(
                "its weight is for {c} channels, its input has {channels}"
            )));
        }
        let number = u32::try_from(n).map_err(|_| invalid("its weight is too large"))?;
        let values = transposed(&weight, None).map_err(invalid)?.to_floats();
        let options = OpOptions::Conv(ConvOptions {
            kernel: [1, 1],
            ..ConvOptions::new(number)
        });
        let op = self.add_op(node, vec![op], options, |name| {
            vec![(format!("{name}.weight"), vec![n, c, 1, 1], values)]
        })?;
        Ok(Value::ChannelsLast { op })
    }
}
