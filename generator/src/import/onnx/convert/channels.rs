//! Operations on channels: slices, splits and channel shuffles.

use super::super::attributes::Attributes;
use super::super::fold::{AxisSlice, slice_of};
use super::super::inputs::input;
use super::super::tensor::Tensor;
use super::{Converter, OpRef, Problem, Value, ValueId, first, invalid, unsupported};
use crate::ir::{OpOptions, SliceOptions};

impl Converter<'_> {
    /// Consecutive channels of a tensor.
    pub(super) fn slice(
        &mut self,
        node: usize,
        inputs: &[Option<ValueId>],
        constants: &[Option<&Tensor>],
        attributes: &Attributes<'_>,
    ) -> Result<Value, Problem> {
        let mut parameters = inputs.iter().zip(constants).skip(1);
        if parameters.any(|(id, constant)| id.is_some() && constant.is_none()) {
            return Err(unsupported(
                "its range is computed; only constants are supported",
            ));
        }
        let dims = self.dims(first(inputs)?);
        let axes = slice_of(&dims, constants, attributes).map_err(invalid)?;
        let is_whole = |(axis, slice): (usize, &AxisSlice)| {
            axis == 1 || *slice == AxisSlice::whole(dims[axis])
        };
        if !axes.iter().enumerate().all(is_whole) {
            return Err(unsupported(format!(
                "a slice of {dims:?} along other axes than the channels is not supported"
            )));
        }
        let Some(channels) = axes.get(1).filter(|channels| channels.step == 1) else {
            return Err(unsupported(
                "a slice of every other channel is not supported",
            ));
        };
        let op = self.op_of(inputs, 0)?;
        self.channels(node, op, &dims, channels.first, channels.count)
    }

    /// The parts of a tensor along the channels, one for each output of the node.
    pub(super) fn split(
        &mut self,
        node: usize,
        inputs: &[Option<ValueId>],
        attributes: &Attributes<'_>,
    ) -> Result<Vec<Value>, Problem> {
        let dims = self.dims(first(inputs)?);
        let rank = dims.len() as i64;
        let axis = attributes.int("axis").unwrap_or(0);
        if rank < 2 || ![1, 1 - rank].contains(&axis) {
            return Err(unsupported(format!(
                "a split along axis {axis} of {rank} is not supported, only along the channels"
            )));
        }
        let outputs = self.graph.nodes[node].output.len();
        let parts = attributes.int("num_outputs").unwrap_or(outputs as i64);
        if parts != outputs as i64 || parts == 0 {
            return Err(invalid(format!(
                "it has {outputs} outputs, `num_outputs` = {parts}"
            )));
        }
        let sizes = match (attributes.ints("split"), input(inputs, 1)) {
            (Some(sizes), _) => sizes.to_vec(),
            (None, Some(_)) => self.expect_ints(inputs, 1, "list of sizes")?,
            // Equal parts, of which the last one may be smaller.
            (None, None) => {
                let part = (dims[1] as i64 + parts - 1) / parts;
                let mut sizes = vec![part; outputs];
                sizes[outputs - 1] = dims[1] as i64 - part * (parts - 1);
                sizes
            }
        };
        let sizes: Option<Vec<usize>> = sizes
            .iter()
            .map(|&size| usize::try_from(size).ok().filter(|&size| size > 0))
            .collect();
        let sizes = sizes.filter(|sizes| {
            let all = sizes
                .iter()
                .try_fold(0usize, |all, &size| all.checked_add(size));
            sizes.len() == outputs && all == Some(dims[1])
        });
        let sizes = sizes.ok_or_else(|| {
            invalid(format!(
                "its {outputs} parts are not the {} channels",
                dims[1]
            ))
        })?;
        let op = self.op_of(inputs, 0)?;
        let mut start = 0;
        let mut values = Vec::new();
        for size in sizes {
            values.push(self.channels(node, op, &dims, start, size)?);
            start += size;
        }
        Ok(values)
    }

    /// `count` channels of an op from `start` on.
    fn channels(
        &mut self,
        node: usize,
        op: OpRef,
        dims: &[usize],
        start: usize,
        count: usize,
    ) -> Result<Value, Problem> {
        let mut dims = dims.to_vec();
        if count == dims[1] {
            return Ok(Value::Op { op, dims });
        }
        let number = |size: usize| u32::try_from(size).map_err(|_| invalid("it is too large"));
        let options = SliceOptions {
            start: number(start)?,
            n: number(count)?,
        };
        let value = self.add(node, vec![op], OpOptions::Slice(options), |_| Vec::new())?;
        dims[1] = count;
        Ok(value.with_dims(dims))
    }

    /// The channels of an op in groups, B x G x C/G x H x W, if the sizes are these: the first step of a channel shuffle.
    pub(super) fn grouped(&self, op: OpRef, dims: &[usize]) -> Option<Value> {
        let y = self.shapes[op];
        let [b, c, h, w] = [y.batch, y.c, y.h, y.w].map(|size| size as usize);
        let &[batch, groups, channels, rows, columns] = dims else {
            return None;
        };
        let is_grouped =
            [batch, rows, columns] == [b, h, w] && groups.checked_mul(channels) == Some(c);
        is_grouped.then(|| Value::Grouped {
            op,
            groups,
            is_swapped: false,
            dims: dims.to_vec(),
        })
    }

    /// A transposition: that of groups and channels in a channel shuffle, or of channels to the last axis and back.
    pub(super) fn transpose(
        &mut self,
        inputs: &[Option<ValueId>],
        attributes: &Attributes<'_>,
    ) -> Result<Value, Problem> {
        let id = first(inputs)?;
        let order = attributes.ints("perm");
        if let Some(moved) = self.moved_channels(inputs, order)? {
            return Ok(moved);
        }
        match (&self.values[id], order) {
            (
                Value::Grouped {
                    op,
                    groups,
                    is_swapped: false,
                    dims,
                },
                Some([0, 2, 1, 3, 4]),
            ) => Ok(Value::Grouped {
                op: *op,
                groups: *groups,
                is_swapped: true,
                dims: [0, 2, 1, 3, 4].map(|axis| dims[axis]).to_vec(),
            }),
            _ => Err(unsupported(format!(
                "a transposition of {:?} is not supported, except in a channel shuffle, and of the channels to the last axis and back",
                self.dims(id)
            ))),
        }
    }

    /// The last step of a channel shuffle: groups become channels again.
    pub(super) fn ungrouped(
        &mut self,
        node: usize,
        (op, groups, is_swapped): (OpRef, usize, bool),
        dims: Vec<usize>,
    ) -> Result<Value, Problem> {
        let y = self.shapes[op];
        if dims != [y.batch, y.c, y.h, y.w].map(|size| size as usize) {
            return Err(unsupported(format!(
                "a change of the shape from groups of channels to {dims:?} is not supported"
            )));
        }
        if !is_swapped {
            return Ok(Value::Op { op, dims });
        }
        let groups = u32::try_from(groups).map_err(|_| invalid("it has too many groups"))?;
        let name = self.names.op_called(&self.graph.nodes[node], "shuffle");
        let options = OpOptions::Shuffle(groups);
        let op = self.add_named(node, name, vec![op], options, |_| Vec::new())?;
        Ok(Value::Op { op, dims })
    }
}
