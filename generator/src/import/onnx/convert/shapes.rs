//! Operations that change only the shape or the type of a tensor, and concatenations.

use super::super::attributes::Attributes;
use super::super::fold::reshaped_dims;
use super::super::inputs::input;
use super::super::message::data_type;
use super::{Converter, OpRef, Problem, Value, ValueId, first, invalid, op_type, unsupported};
use crate::ir::OpOptions;

impl Converter<'_> {
    /// A reshaped tensor: flattened, or with more or fewer axes of size 1.
    pub(super) fn reshape(
        &mut self,
        node: usize,
        inputs: &[Option<ValueId>],
        attributes: &Attributes<'_>,
    ) -> Result<Value, Problem> {
        let kind = op_type(&self.graph.nodes[node]);
        let before = self.dims(first(inputs)?);
        let parameter = match input(inputs, 1) {
            None => None,
            Some(_) => Some(self.expect_ints(inputs, 1, "shape")?),
        };
        let dims = reshaped_dims(kind, &before, parameter.as_deref(), attributes);
        let dims = dims.map_err(invalid)?;
        if let Some(moment) = self.reshaped_moment(first(inputs)?, &dims) {
            return Ok(moment);
        }
        if let Value::Grouped {
            op,
            groups,
            is_swapped,
            ..
        } = self.values[first(inputs)?]
        {
            return self.ungrouped(node, (op, groups, is_swapped), dims);
        }
        let is_channels_last = self.is_channels_last(first(inputs)?);
        let op = self.view_of(inputs, 0)?;
        let y = self.shapes[op];
        if is_channels_last && y.pixels() > 1 {
            if dims[..] == [y.batch as usize, y.image_len() as usize] {
                let op = self.add_op(node, vec![op], OpOptions::Flatten, |_| Vec::new())?;
                return Ok(Value::FlatChannelsLast { op, image: y });
            }
            return Err(unsupported(format!(
                "a change of the shape {before:?}, of which the channels are the last axis, is not supported"
            )));
        }
        let own = [y.batch, y.c, y.h, y.w].map(|size| size as usize);
        let is_flat = dims[..] == [own[0], own[1] * own[2] * own[3]];
        let is_image = y.pixels() > 1;
        if without_ones(&dims) == without_ones(&own) && !(is_flat && is_image) {
            return Ok(Value::Op { op, dims });
        }
        if is_flat {
            let value = self.add(node, vec![op], OpOptions::Flatten, |_| Vec::new())?;
            return Ok(value.with_dims(dims));
        }
        if self.is_plain(first(inputs)?, op)
            && let Some(grouped) = self.grouped(op, &dims)
        {
            return Ok(grouped);
        }
        // What only the caller reads may have any sizes.
        let output = self.graph.nodes[node].output.first();
        let id = output.and_then(|name| self.ids.get(&name[..]));
        if id.is_some_and(|&id| self.readers[id].is_empty()) {
            return Ok(Value::Op { op, dims });
        }
        Err(unsupported(format!(
            "a change of the shape from {before:?} to {dims:?} is not supported"
        )))
    }

    /// Concatenation along the channels.
    pub(super) fn concat(
        &mut self,
        node: usize,
        inputs: &[Option<ValueId>],
        attributes: &Attributes<'_>,
    ) -> Result<Value, Problem> {
        let axis = attributes
            .int("axis")
            .ok_or_else(|| invalid("it has no axis"))?;
        let id = first(inputs)?;
        let mut dims = self.dims(id);
        let rank = dims.len() as i64;
        let is_channels_last = self.is_channels_last(id);
        let channels = self.channel_axis(id) as i64;
        if rank < 2 || ![channels, channels - rank].contains(&axis) {
            return Err(unsupported(format!(
                "a concatenation along axis {axis} of {rank} is not supported, only along the channels"
            )));
        }
        if let [Some(id)] = *inputs {
            let op = self.op_in_either_order(id)?;
            return Ok(self.value_like(id, op));
        }
        let ops: Result<Vec<_>, Problem> = (0..inputs.len())
            .map(|index| match (is_channels_last, input(inputs, index)) {
                (true, Some(id)) if self.is_channels_last(id) => self.op_in_either_order(id),
                (true, Some(id)) => Err(unsupported(format!(
                    "a concatenation of a tensor with the channels as the last axis and {:?} is not supported",
                    self.dims(id)
                ))),
                _ => self.op_of(inputs, index),
            })
            .collect();
        let all = ops?;
        let inputs = self.with_known_concat(&all);
        let concat = self.add_op(node, inputs, OpOptions::Concat, |_| Vec::new())?;
        self.concats.insert(all, concat);
        dims[1] = self.shapes[concat].c as usize;
        Ok(match is_channels_last {
            true => Value::ChannelsLast { op: concat },
            false => Value::Op { op: concat, dims },
        })
    }

    /// The operands of a concatenation, the first of which are replaced by an earlier concatenation of the same: in a DenseNet each layer
    /// concatenates all layers before it, and memory for the last concatenation then serves all of them.
    fn with_known_concat(&self, all: &[OpRef]) -> Vec<OpRef> {
        /// Most operands for which earlier concatenations are looked up.
        const MAX_OPERANDS: usize = 256;

        let lengths = (2..all.len().min(MAX_OPERANDS)).rev();
        let known = lengths
            .filter_map(|length| Some((length, *self.concats.get(&all[..length])?)))
            .next();
        match known {
            Some((length, concat)) => {
                let rest = all[length..].iter().copied();
                std::iter::once(concat).chain(rest).collect()
            }
            None => all.to_vec(),
        }
    }

    /// All elements of a list in order, which is a change of the shape: PyTorch's newer exporter spells `as_strided` so.
    pub(super) fn gather(
        &mut self,
        inputs: &[Option<ValueId>],
        attributes: &Attributes<'_>,
    ) -> Result<Value, Problem> {
        let dims = self.dims(first(inputs)?);
        let indices = self.expect_constant(inputs, 1, "indices")?;
        let axis = attributes.int("axis").unwrap_or(0);
        let is_in_order = |places: &[i64]| (0..).zip(places).all(|(index, &place)| index == place);
        let is_whole = dims.len() == 1 && matches!(axis, 0 | -1) && indices.len() == dims[0];
        if !is_whole || !indices.as_ints().is_some_and(is_in_order) {
            return Err(unsupported(format!(
                "a selection of elements of {dims:?} is not supported"
            )));
        }
        let op = self.view_of(inputs, 0)?;
        Ok(Value::Op {
            op,
            dims: indices.dims.clone(),
        })
    }

    /// A change between floating-point types, which tdc computes in fp32.
    pub(super) fn cast(
        &mut self,
        inputs: &[Option<ValueId>],
        attributes: &Attributes<'_>,
    ) -> Result<Value, Problem> {
        let to = attributes.int("to").unwrap_or_default();
        attributes.ignore("saturate");
        let floats = [
            data_type::FLOAT,
            data_type::FLOAT16,
            data_type::BFLOAT16,
            data_type::DOUBLE,
        ];
        if !floats.map(i64::from).contains(&to) {
            return Err(unsupported(format!(
                "a cast to element type {to} is not supported"
            )));
        }
        let id = first(inputs)?;
        if let moment @ Value::Moment { .. } = &self.values[id] {
            return Ok(moment.clone());
        }
        let dims = self.dims(id);
        Ok(match self.last_channels_of(id)? {
            Some(op) => Value::ChannelsLast { op },
            None => {
                let op = self.view_of(inputs, 0)?;
                Value::Op { op, dims }
            }
        })
    }
}

/// Sizes without axes of size 1, by which shapes of the same elements in the same order agree.
fn without_ones(dims: &[usize]) -> Vec<usize> {
    dims.iter().copied().filter(|&dim| dim != 1).collect()
}
