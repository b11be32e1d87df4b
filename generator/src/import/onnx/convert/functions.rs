//! Elementwise functions, and the ops that they become.

use super::super::elementwise::{Elementwise, Recognised, recognise};
use super::super::error::ImportError;
use super::super::inputs::input;
use super::super::tensor::Tensor;
use super::{
    Converter, Function, OpRef, Operand, Problem, Value, ValueId, first, invalid, unsupported,
};
use crate::ir::{Activation, ActivationParameter, BinaryOp, OpOptions, ScaleShiftOptions};
use std::collections::HashMap;

/// Most functions that are recognised as one; the longest known spelling has eight.
const MAX_DEPTH: usize = 12;

const ONLY_IN_LAYER_NORM: &str =
    "a mean over the channels is supported only as a part of a layer norm";

impl Converter<'_> {
    /// The value of an elementwise node. `old_axis` is the axis of the first operand at which operator set 6 aligns the second one; later
    /// ones align operands at the last axis.
    pub(super) fn elementwise(
        &mut self,
        node: usize,
        kind: Elementwise,
        inputs: &[Option<ValueId>],
        old_axis: Option<i64>,
    ) -> Result<Value, Problem> {
        let count = kind.operand_count().unwrap_or(inputs.len());
        let operands: Option<Vec<ValueId>> = (0..count).map(|index| input(inputs, index)).collect();
        let operands = operands.filter(|operands| !operands.is_empty());
        let operands = operands.ok_or_else(|| invalid("an input is missing"))?;
        // The parameters behind the operands, which were read with the kind.
        let mut parameters = inputs.iter().skip(count).flatten();
        if parameters.any(|&id| self.constant(id).is_none()) {
            return Err(unsupported(
                "a parameter of it is computed; only constants are supported",
            ));
        }
        if let Some(value) = self.with_channel_constants(node, kind, &operands, old_axis)? {
            return Ok(value);
        }
        let mut dims: Vec<usize> = Vec::new();
        let mut enlarge = |own: Vec<usize>| {
            if own.iter().product::<usize>() > dims.iter().product::<usize>() || dims.is_empty() {
                dims = own;
            }
        };
        let mut depth = 0;
        let mut found = Vec::new();
        for &id in &operands {
            let number = self.constant(id).map(|tensor| tensor.scalar());
            match number {
                Some(Some(number)) => found.push(Operand::Number(number)),
                Some(None) => {
                    enlarge(self.dims_with_moments(&operands, id, old_axis)?);
                    found.push(Operand::Value(id));
                }
                None => {
                    if let Value::Grouped { .. } = &self.values[id] {
                        return Err(unsupported(
                            "arithmetic on groups of channels is not supported",
                        ));
                    }
                    enlarge(self.dims(id));
                    if let Value::Function(function) = &self.values[id] {
                        depth = depth.max(function.depth);
                    }
                    found.push(Operand::Value(id));
                }
            }
        }
        // ONNX would add axes to the other operand.
        let has_more_axes = |id: &ValueId| {
            self.constant(*id)
                .is_some_and(|tensor| tensor.dims.len() > dims.len())
        };
        if operands.iter().any(has_more_axes) && !dims.is_empty() {
            return Err(unsupported(
                "arithmetic with a constant of more axes is not supported",
            ));
        }
        let mut orders = found.iter().filter_map(|operand| match operand {
            Operand::Value(id) if self.constant(*id).is_none() => Some(self.is_channels_last(*id)),
            Operand::Value(_) | Operand::Number(_) => None,
        });
        let is_channels_last = orders.next().unwrap_or(false);
        if orders.any(|order| order != is_channels_last) {
            return Err(unsupported(
                "arithmetic on a tensor with the channels as the last axis and one without is not supported",
            ));
        }
        if depth >= MAX_DEPTH {
            for &id in &operands {
                if self.constant(id).is_none() && self.materialize(id).is_none() {
                    return Err(Problem::Reported);
                }
            }
            depth = 0;
        }
        Ok(Value::Function(Function {
            kind,
            operands: found,
            dims,
            is_channels_last,
            node,
            depth: depth + 1,
        }))
    }

    /// The sizes of an elementwise operation with a constant for each channel, whose other operand depends on the moments of a value.
    fn dims_with_moments(
        &self,
        operands: &[ValueId],
        constant: ValueId,
        old_axis: Option<i64>,
    ) -> Result<Vec<usize>, Problem> {
        let of = match operands {
            [a, b] => self.moments_of(if *a == constant { *b } else { *a }),
            _ => None,
        };
        let sizes = self.dims(constant);
        match of.filter(|&of| self.has_one_for_each_channel(of, &sizes, old_axis)) {
            Some(of) => Ok(self.dims(of)),
            None => Err(unsupported(
                "arithmetic with a constant of this shape is not supported",
            )),
        }
    }

    /// That one of two operands which is no constant, if the other one is.
    fn beside_constant(&self, a: ValueId, b: ValueId) -> Option<ValueId> {
        match (self.constant(a), self.constant(b)) {
            (None, Some(_)) => Some(a),
            (Some(_), None) => Some(b),
            _ => None,
        }
    }

    /// PReLU; with one slope it is leaky ReLU.
    pub(super) fn prelu(
        &mut self,
        node: usize,
        inputs: &[Option<ValueId>],
    ) -> Result<Value, Problem> {
        let slopes = self.expect_constant(inputs, 1, "slope")?;
        let x = first(inputs)?;
        let Some(slope) = slopes.scalar() else {
            return self.channel_prelu(node, x, &slopes);
        };
        if !(slope as f32).is_finite() {
            return Err(unsupported("a slope that is not finite is not supported"));
        }
        let kind = Elementwise::Activation(Activation::LeakyRelu {
            slope: ActivationParameter::new(slope as f32),
        });
        self.elementwise(node, kind, &[Some(x)], None)
    }

    /// PReLU with a slope for each channel.
    fn channel_prelu(
        &mut self,
        node: usize,
        x: ValueId,
        slopes: &Tensor,
    ) -> Result<Value, Problem> {
        let sizes = slopes.dims.clone();
        // Operator set 6 has a list of slopes, later ones align sizes at the last axis.
        let old_axis = (self.graph.opset < 7).then_some(1);
        if !self.has_one_for_each_channel(x, &sizes, old_axis) {
            return Err(unsupported(format!(
                "a slope of {sizes:?} for {:?} is not supported, only one number for each channel",
                self.dims(x)
            )));
        }
        let op = self.op_in_either_order(x)?;
        let values = slopes.to_floats();
        let op = self.add_op(node, vec![op], OpOptions::PRelu, |name| {
            vec![(format!("{name}.weight"), vec![values.len()], values)]
        })?;
        Ok(self.value_like(x, op))
    }

    /// The op that computes a value, which is added if there is none yet; `None` after an error.
    pub(super) fn materialize(&mut self, id: ValueId) -> Option<OpRef> {
        let (problem, node) = match &self.values[id] {
            Value::Failed => return None,
            Value::Op { op, .. } | Value::ChannelsLast { op } => return Some(*op),
            Value::Function(function) => {
                let function = function.clone();
                match self.function_op(id, &function) {
                    Ok(op) => {
                        let value = match function.is_channels_last {
                            true => Value::ChannelsLast { op },
                            false => Value::Op {
                                op,
                                dims: function.dims,
                            },
                        };
                        self.set(id, value);
                        return Some(op);
                    }
                    Err(problem) => (problem, Some(function.node)),
                }
            }
            Value::Constant(_) => (unsupported("a constant is used like an image"), None),
            Value::Norm { .. } => {
                let message = "a norm is supported only where its input is divided by it";
                (unsupported(message), None)
            }
            Value::FlatChannelsLast { .. } => {
                let message = "features in the order of rows, columns and channels are supported only in a product with a constant matrix";
                (unsupported(message), None)
            }
            Value::Moment { node, .. } => (unsupported(ONLY_IN_LAYER_NORM), Some(*node)),
            Value::Grouped { dims, .. } => {
                let message = format!(
                    "groups of channels, {dims:?}, are supported only in a channel shuffle"
                );
                (unsupported(message), None)
            }
            Value::Padded {
                of,
                pads,
                is_channels_last,
                node,
                ..
            } => {
                let (of, pads, node) = (*of, *pads, *node);
                let is_channels_last = *is_channels_last;
                match self.pad_op(node, of, pads) {
                    Ok(op) => {
                        self.set(id, self.output(op, is_channels_last));
                        return Some(op);
                    }
                    Err(problem) => (problem, Some(node)),
                }
            }
        };
        self.values[id] = Value::Failed;
        if let Problem::New(message, help) = problem {
            let node = node.or_else(|| self.readers[id].first().copied());
            let error = match node.and_then(|node| self.graph.nodes.get(node)) {
                Some(node) => ImportError::of_node(node, message, help),
                None => ImportError::of_file(format!("the output: {message}"), help),
            };
            self.errors.push(error);
        }
        None
    }

    /// The op of a function: an activation or a scale and shift of one value, or an op on two values.
    fn function_op(&mut self, id: ValueId, function: &Function) -> Result<OpRef, Problem> {
        let parts = self.parts(id);
        if let Some((of, norm)) = self.spelled_layer_norm(id, function, &parts) {
            let op = self.op_in_either_order(of)?;
            return self.layer_norm_op(function.node, op, norm);
        }
        for &base in parts.bases.iter().rev() {
            if self.dims(base) != function.dims {
                continue;
            }
            let of_base = |x: f64| {
                let mut known = HashMap::from([(base, Some(x))]);
                self.evaluate(id, &mut known).unwrap_or(f64::NAN)
            };
            match recognise(of_base) {
                Some(Recognised::Activation(activation)) => {
                    return self.activation_of(base, activation, &parts);
                }
                Some(Recognised::Affine { scale, shift }) => {
                    let op = self.materialize(base).ok_or(Problem::Reported)?;
                    let channels = self.shapes[op].c as usize;
                    return self.scale_shift(
                        function.node,
                        op,
                        vec![scale as f32; channels],
                        vec![shift as f32; channels],
                    );
                }
                None => {}
            }
        }
        if let Elementwise::HardSigmoid { alpha, beta } = function.kind
            && let [Operand::Value(x)] = function.operands[..]
        {
            return self.hard_sigmoid(function.node, x, alpha, beta);
        }
        // A constant for each channel that is no part of a layer norm.
        if let [Operand::Value(a), Operand::Value(b)] = function.operands[..]
            && let Some(x) = self.beside_constant(a, b)
        {
            self.materialize(x).ok_or(Problem::Reported)?;
            let (node, kind) = (function.node, function.kind);
            if let Some(Value::Op { op, .. } | Value::ChannelsLast { op }) =
                self.with_channel_constants(node, kind, &[a, b], None)?
            {
                return Ok(op);
            }
        }
        let kind = match function.kind {
            Elementwise::Add => BinaryOp::Add,
            Elementwise::Sub => BinaryOp::Sub,
            Elementwise::Mul => BinaryOp::Mul,
            _ => return Err(self.unknown_function(id)),
        };
        let [Operand::Value(a), Operand::Value(b)] = function.operands[..] else {
            return Err(self.unknown_function(id));
        };
        // ONNX aligns sizes at the last axis, so features do not match the channels of an image.
        if self.dims(a).len() != self.dims(b).len() {
            let (a, b) = (self.dims(a), self.dims(b));
            return Err(unsupported(format!(
                "an operation on {a:?} and {b:?} is not supported"
            )));
        }
        let operands = [Some(a), Some(b)];
        let (a, b) = match function.is_channels_last {
            true => (self.view_of(&operands, 0)?, self.view_of(&operands, 1)?),
            false => (self.op_of(&operands, 0)?, self.op_of(&operands, 1)?),
        };
        // A factor for each channel is the second input.
        let is_gate =
            kind == BinaryOp::Mul && self.shapes[a].pixels() == 1 && self.shapes[b].pixels() > 1;
        let inputs = if is_gate { vec![b, a] } else { vec![a, b] };
        self.add_op(
            function.node,
            inputs,
            OpOptions::Binary(kind, Activation::None),
            |_| Vec::new(),
        )
    }

    fn unknown_function(&self, id: ValueId) -> Problem {
        unsupported(match self.moments_of(id) {
            Some(_) => ONLY_IN_LAYER_NORM,
            None => {
                "this elementwise operation is not supported, except as a part of a known activation function"
            }
        })
    }

    /// An activation of a value: of the op that computes it, if nothing else reads that.
    fn activation_of(
        &mut self,
        base: ValueId,
        activation: Activation,
        parts: &Parts,
    ) -> Result<OpRef, Problem> {
        let op = self.materialize(base).ok_or(Problem::Reported)?;
        if activation == Activation::None {
            return Ok(op);
        }
        // Nothing else may depend on the value without the activation, nor on a part of the function's spelling.
        let is_inner = |part: &ValueId| {
            let readers = &self.readers[*part];
            !self.outputs.contains(part)
                && readers.iter().all(|reader| parts.nodes.contains(reader))
        };
        let mut functions = parts
            .bases
            .iter()
            .filter(|part| matches!(self.values[**part], Value::Function(_)));
        if functions.all(is_inner)
            && self.is_only_read_by(op, &parts.nodes)
            && let Some(index) = self.index_of(op)
            && let Some(own) = own_activation(&mut self.ops[index].options)
            && *own == Activation::None
        {
            *own = activation;
            return Ok(op);
        }
        let node = parts.nodes.first().copied().unwrap_or(0);
        self.add_op(node, vec![op], OpOptions::Activation(activation), |_| {
            Vec::new()
        })
    }

    /// A hard sigmoid of a slope other than that of the activation function: a scale and shift, clipped.
    fn hard_sigmoid(
        &mut self,
        node: usize,
        x: ValueId,
        alpha: f64,
        beta: f64,
    ) -> Result<OpRef, Problem> {
        let op = self.materialize(x).ok_or(Problem::Reported)?;
        let channels = self.shapes[op].c as usize;
        let (scale, shift) = (vec![alpha as f32; channels], vec![beta as f32; channels]);
        let scaled = self.scale_shift(node, op, scale, shift)?;
        if let Some(index) = self.index_of(scaled)
            && let Some(activation) = own_activation(&mut self.ops[index].options)
        {
            *activation = Activation::Clip {
                min: ActivationParameter::new(0.0),
                max: ActivationParameter::new(1.0),
            };
        }
        Ok(scaled)
    }

    /// An op that scales and shifts each channel.
    pub(super) fn scale_shift(
        &mut self,
        node: usize,
        op: OpRef,
        scale: Vec<f32>,
        shift: Vec<f32>,
    ) -> Result<OpRef, Problem> {
        let options = OpOptions::ScaleShift(ScaleShiftOptions {
            bn: None,
            activation: Activation::None,
        });
        self.add_op(node, vec![op], options, |name| {
            vec![
                (format!("{name}.scale"), vec![scale.len()], scale),
                (format!("{name}.shift"), vec![shift.len()], shift),
            ]
        })
    }

    /// The functions that a value is composed of.
    pub(super) fn parts(&self, id: ValueId) -> Parts {
        let mut parts = Parts::default();
        let mut seen = vec![id];
        let mut next = 0;
        while let Some(&part) = seen.get(next) {
            next += 1;
            if part != id {
                parts.bases.push(part);
            }
            let Value::Function(function) = &self.values[part] else {
                continue;
            };
            parts.nodes.push(function.node);
            for operand in &function.operands {
                if let Operand::Value(value) = operand
                    && !seen.contains(value)
                    && seen.len() < 4 * MAX_DEPTH
                {
                    seen.push(*value);
                }
            }
        }
        parts
    }

    /// A function's value, from those that are known; `None` if it depends on others.
    pub(super) fn evaluate(
        &self,
        id: ValueId,
        known: &mut HashMap<ValueId, Option<f64>>,
    ) -> Option<f64> {
        if let Some(known) = known.get(&id) {
            return *known;
        }
        let Value::Function(function) = &self.values[id] else {
            return None;
        };
        let operands = function.operands.iter().map(|operand| match operand {
            Operand::Number(number) => Some(*number),
            Operand::Value(value) => self.evaluate(*value, known),
        });
        let operands: Option<Vec<f64>> = operands.collect();
        let value = operands.map(|operands| function.kind.apply(&operands));
        known.insert(id, value);
        value
    }
}

/// What a function is composed of.
#[derive(Default)]
pub(super) struct Parts {
    /// The values that it may be a function of, the nearest ones first.
    pub bases: Vec<ValueId>,
    /// The nodes of its functions.
    pub nodes: Vec<usize>,
}

/// The activation that is a part of an op.
fn own_activation(options: &mut OpOptions) -> Option<&mut Activation> {
    match options {
        OpOptions::Conv(conv) => Some(&mut conv.activation),
        OpOptions::ConvTranspose(layer) => Some(&mut layer.activation),
        OpOptions::Linear(linear) => Some(&mut linear.activation),
        OpOptions::Binary(_, activation) => Some(activation),
        OpOptions::ScaleShift(scale_shift) => Some(&mut scale_shift.activation),
        _ => None,
    }
}
