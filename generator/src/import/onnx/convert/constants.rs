//! Constants for each channel: biases, scales, shifts and BatchNorms.

use super::super::attributes::Attributes;
use super::super::elementwise::Elementwise;
use super::{Converter, NamedTensor, OpRef, Problem, Value, ValueId, first, invalid, unsupported};
use crate::ir::{Activation, BatchNorm, OpOptions, ScaleShiftOptions};

impl Converter<'_> {
    /// The value of an elementwise node with a constant for each channel; `None` if it has no such constant.
    pub(super) fn with_channel_constants(
        &mut self,
        node: usize,
        kind: Elementwise,
        operands: &[ValueId],
        old_axis: Option<i64>,
    ) -> Result<Option<Value>, Problem> {
        let &[a, b] = operands else { return Ok(None) };
        let (x, constant, is_reversed) = match (self.constant(a), self.constant(b)) {
            (None, Some(constant)) => (a, constant, false),
            (Some(constant), None) => (b, constant, true),
            _ => return Ok(None),
        };
        if constant.len() == 1 || self.moments_of(x).is_some() {
            return Ok(None);
        }
        let sizes = constant.dims.clone();
        if !self.has_one_for_each_channel(x, &sizes, old_axis) {
            let dims = self.dims(x);
            return Err(unsupported(format!(
                "arithmetic of {dims:?} with a constant of {sizes:?} is not supported, only with one number for each channel"
            )));
        }
        let values = constant.to_floats();
        let channels = values.len();
        let (scale, shift) = match (kind, is_reversed) {
            (Elementwise::Add, _) => {
                let op = self.op_in_either_order(x)?;
                if self.take_bias(node, op, &values) {
                    return Ok(Some(self.value_like(x, op)));
                }
                (vec![1.0; channels], values)
            }
            (Elementwise::Sub, false) => (
                vec![1.0; channels],
                values.iter().map(|value| -value).collect(),
            ),
            (Elementwise::Sub, true) => (vec![-1.0; channels], values),
            (Elementwise::Mul, _) => (values, vec![0.0; channels]),
            (Elementwise::Div, false) => (
                values.iter().map(|value| 1.0 / value).collect(),
                vec![0.0; channels],
            ),
            _ => {
                return Err(unsupported(
                    "this operation with a constant for each channel is not supported",
                ));
            }
        };
        let op = self.op_in_either_order(x)?;
        if self.compose_scale_shift(node, op, &scale, &shift) {
            return Ok(Some(self.value_like(x, op)));
        }
        let op = self.scale_shift(node, op, scale, shift)?;
        Ok(Some(self.value_like(x, op)))
    }

    /// Whether a constant of these sizes has one number for each channel of a value. `old_axis` is as in
    /// [`elementwise`](Self::elementwise).
    pub(super) fn has_one_for_each_channel(
        &self,
        x: ValueId,
        sizes: &[usize],
        old_axis: Option<i64>,
    ) -> bool {
        let dims = self.dims(x);
        let channel_axis = self.channel_axis(x);
        let channels = dims.get(channel_axis).copied().unwrap_or(0);
        match old_axis {
            Some(axis) => axis == channel_axis as i64 && *sizes == [channels],
            None => is_per_channel(sizes, dims.len(), (channel_axis, channels)),
        }
    }

    /// Makes the constants the bias of a convolution or linear layer that has none, if nothing else reads it.
    fn take_bias(&mut self, node: usize, op: OpRef, values: &[f32]) -> bool {
        if !self.is_only_read_by(op, &[node]) {
            return false;
        }
        let Some(op) = self.index_of(op).map(|index| &mut self.ops[index]) else {
            return false;
        };
        let bias = match &mut op.options {
            OpOptions::Conv(conv) if conv.bn.is_none() && conv.activation == Activation::None => {
                &mut conv.bias
            }
            OpOptions::ConvTranspose(layer) if layer.activation == Activation::None => {
                &mut layer.bias
            }
            OpOptions::Linear(linear) if linear.activation == Activation::None => &mut linear.bias,
            _ => return false,
        };
        if *bias {
            return false;
        }
        *bias = true;
        op.tensors.push((
            format!("{}.bias", op.name),
            vec![values.len()],
            values.to_vec(),
        ));
        true
    }

    /// Applies a scale and a shift to those of an op that nothing else reads.
    fn compose_scale_shift(
        &mut self,
        node: usize,
        op: OpRef,
        scale: &[f32],
        shift: &[f32],
    ) -> bool {
        if !self.is_only_read_by(op, &[node]) {
            return false;
        }
        let Some(op) = self.index_of(op).map(|index| &mut self.ops[index]) else {
            return false;
        };
        let composes = matches!(
            &op.options,
            OpOptions::ScaleShift(ScaleShiftOptions {
                bn: None,
                activation: Activation::None
            })
        );
        let [(_, _, own_scale), (_, _, own_shift)] = &mut op.tensors[..] else {
            return false;
        };
        if composes {
            for (own, factor) in own_scale.iter_mut().zip(scale) {
                *own *= factor;
            }
            for ((own, factor), shift) in own_shift.iter_mut().zip(scale).zip(shift) {
                *own = *own * factor + shift;
            }
        }
        composes
    }

    /// BatchNorm in inference: a part of the convolution before it, if nothing else reads that, or an op of its own.
    pub(super) fn batch_norm(
        &mut self,
        node: usize,
        inputs: &[Option<ValueId>],
        attributes: &Attributes<'_>,
    ) -> Result<Value, Problem> {
        let eps = attributes.float("epsilon").unwrap_or(1e-5);
        if !(0.0..f32::INFINITY).contains(&eps) {
            return Err(invalid(format!(
                "`epsilon` = {eps}, it must be a number from 0"
            )));
        }
        attributes.ignore("momentum");
        attributes.expect_int("training_mode", 0);
        attributes.expect_int("spatial", 1);
        attributes.ignore("consumed_inputs");
        let outputs = self.graph.nodes[node].output.iter();
        let has_statistics = outputs.skip(1).any(|name| !name.is_empty());
        let is_training = match self.graph.opset {
            ..7 => attributes.int("is_test").unwrap_or(0) == 0,
            // With the statistics among its outputs it is in training.
            7..14 => has_statistics,
            _ => false,
        };
        if is_training {
            return Err(unsupported(
                "BatchNormalization in training is not supported",
            ));
        }
        let op = self.op_of(inputs, 0)?;
        let channels = self.shapes[op].c as usize;
        let mut tensors: Vec<(&str, Vec<f32>)> = Vec::new();
        for (index, name) in [
            (1, "weight"),
            (2, "bias"),
            (3, "running_mean"),
            (4, "running_var"),
        ] {
            let values = self.expect_constant(inputs, index, name)?.to_floats();
            if values.len() != channels {
                return Err(invalid(format!(
                    "its {name} has {} elements for {channels} channels",
                    values.len()
                )));
            }
            tensors.push((name, values));
        }
        let named = |bn: &str| -> Vec<NamedTensor> {
            let tensors = tensors.iter();
            tensors
                .map(|(name, values)| (format!("{bn}.{name}"), vec![channels], values.clone()))
                .collect()
        };
        let bn = |name: String| BatchNorm {
            name,
            eps: shortest(eps),
        };
        let dims = self.dims(first(inputs)?);
        if self.is_only_read_by(op, &[node])
            && let Some(conv_op) = self.index_of(op).map(|index| &mut self.ops[index])
            && let OpOptions::Conv(conv) = &mut conv_op.options
            && conv.bn.is_none()
            && conv.activation == Activation::None
        {
            let name = self.names.op(&self.graph.nodes[node]);
            conv_op.tensors.extend(named(&name));
            conv.bn = Some(bn(name));
            return Ok(Value::Op { op, dims });
        }
        let name = self.names.op(&self.graph.nodes[node]);
        let options = OpOptions::ScaleShift(ScaleShiftOptions {
            bn: Some(bn(name.clone())),
            activation: Activation::None,
        });
        let op = self.add_named(node, name.clone(), vec![op], options, |_| named(&name))?;
        Ok(Value::Op { op, dims })
    }
}

/// The shortest decimal number that rounds to this one: the file has 1e-5 in fp32.
fn shortest(value: f32) -> f64 {
    value.to_string().parse().unwrap_or(f64::from(value))
}

/// Whether a constant of these sizes has one number for each channel of a tensor with `rank` axes.
fn is_per_channel(sizes: &[usize], rank: usize, (channel_axis, channels): (usize, usize)) -> bool {
    // Sizes are aligned at the last axis.
    let Some(start) = rank.checked_sub(sizes.len()) else {
        return false;
    };
    let expected = |axis: usize| if axis == channel_axis { channels } else { 1 };
    let mut axes = sizes.iter().enumerate();
    axes.all(|(index, &size)| size == expected(start + index))
}
