//! Padding of images.

use super::super::attributes::Attributes;
use super::super::inputs::input;
use super::convolution::sizes;
use super::{Converter, OpRef, Problem, Value, ValueId, first, invalid, unsupported};
use crate::ir::{ActivationParameter, OpOptions, PadMode, PadOptions};
use tdc_runtime::Padding;

/// Most elements of a padded tensor.
const MAX_PADDED: usize = 1 << 40;

impl Converter<'_> {
    /// Rows and columns around each image. Zeros become an op only where their reader is no convolution or pool that takes them over.
    pub(super) fn pad(
        &mut self,
        node: usize,
        inputs: &[Option<ValueId>],
        attributes: &Attributes<'_>,
    ) -> Result<Value, Problem> {
        let mode = self.pad_mode(inputs, attributes)?;
        let pads = self.pads(inputs, attributes)?;
        let id = first(inputs)?;
        if pads == [0; 4] {
            let op = self.op_in_either_order(id)?;
            return Ok(self.value_like(id, op));
        }
        let is_channels_last = self.is_channels_last(id);
        if mode != PadMode::ZERO {
            let op = self.op_in_either_order(id)?;
            let options = OpOptions::Pad(PadOptions {
                pad: padding(pads),
                mode,
            });
            let op = self.add_op(node, vec![op], options, |_| Vec::new())?;
            return Ok(self.output(op, is_channels_last));
        }
        let [top, left, bottom, right] = pads.map(|pixels| pixels as usize);
        let mut dims = self.dims(id);
        let rows = if is_channels_last { 1 } else { 2 };
        dims[rows] += top + bottom;
        dims[rows + 1] += left + right;
        let mut sizes = dims.iter();
        let elements = sizes.try_fold(1usize, |all, &dim| all.checked_mul(dim));
        if elements.is_none_or(|elements| elements > MAX_PADDED) {
            return Err(invalid(format!("it pads to {dims:?}, which is too large")));
        }
        Ok(Value::Padded {
            of: id,
            pads,
            is_channels_last,
            dims,
            node,
        })
    }

    /// What a Pad has around the images. Up to operator set 10 the number is an attribute.
    fn pad_mode(
        &self,
        inputs: &[Option<ValueId>],
        attributes: &Attributes<'_>,
    ) -> Result<PadMode, Problem> {
        let constant = attributes.float("value");
        match attributes.string("mode").as_deref() {
            None | Some("constant") => {}
            Some("reflect") => return Ok(PadMode::Reflect),
            Some("edge") => return Ok(PadMode::Edge),
            Some(other) => {
                return Err(unsupported(format!(
                    "padding by `{}` is not supported, only by constant, reflect and edge",
                    other.escape_debug()
                )));
            }
        }
        let value = match input(inputs, 2) {
            Some(_) => self.expect_constant(inputs, 2, "value")?.scalar(),
            None => Some(constant.unwrap_or(0.0).into()),
        };
        let value = value.ok_or_else(|| invalid("its value is not a single number"))? as f32;
        match value.is_finite() {
            true => Ok(PadMode::Constant(ActivationParameter::new(value))),
            false => Err(unsupported(format!("padding by {value} is not supported"))),
        }
    }

    /// The pixels of a Pad: top, left, bottom, right. Up to operator set 10 they are an attribute; from 18 on there may be a list of axes.
    fn pads(
        &self,
        inputs: &[Option<ValueId>],
        attributes: &Attributes<'_>,
    ) -> Result<[u32; 4], Problem> {
        let attribute = attributes.ints("pads");
        let given = match attribute.or_else(|| attributes.ints("paddings")) {
            Some(given) => given.to_vec(),
            None => self.expect_ints(inputs, 1, "padding")?,
        };
        let rank = self.dims(first(inputs)?).len();
        let axes = match input(inputs, 3) {
            None => (0..rank).collect(),
            Some(_) => {
                let axes = self.expect_ints(inputs, 3, "list of axes")?;
                distinct_axes(&axes, rank)
                    .ok_or_else(|| invalid(format!("it pads the axes {axes:?} of {rank}")))?
            }
        };
        if given.len() != 2 * axes.len() {
            return Err(invalid(format!(
                "`pads` = {given:?} is not two numbers for each of {} axes",
                axes.len()
            )));
        }
        let mut all = vec![0; 2 * rank];
        for (place, axis) in axes.iter().enumerate() {
            all[*axis] = given[place];
            all[rank + axis] = given[axes.len() + place];
        }
        let is_channels_last = self.is_channels_last(first(inputs)?);
        match (sizes::<8>(&all), is_channels_last) {
            (Some([0, top, left, 0, 0, bottom, right, 0]), true)
            | (Some([0, 0, top, left, 0, 0, bottom, right]), false) => {
                Ok([top, left, bottom, right])
            }
            _ => Err(unsupported(format!(
                "`pads` = {given:?} is not supported: rows and columns are padded, by 0 or more"
            ))),
        }
    }

    /// The op that computes a node's input, and the zeros around its images that are not an op yet.
    pub(super) fn padded_op_of(
        &mut self,
        inputs: &[Option<ValueId>],
    ) -> Result<(OpRef, [u32; 4]), Problem> {
        let id = first(inputs)?;
        match self.values[id] {
            Value::Padded {
                of,
                pads,
                is_channels_last: false,
                ..
            } => Ok((self.op_in_either_order(of)?, pads)),
            _ => Ok((self.op_of(inputs, 0)?, [0; 4])),
        }
    }

    /// The op of zeros around the images of a value.
    pub(super) fn pad_op(
        &mut self,
        node: usize,
        of: ValueId,
        pads: [u32; 4],
    ) -> Result<OpRef, Problem> {
        let op = self.op_in_either_order(of)?;
        let options = OpOptions::Pad(PadOptions {
            pad: padding(pads),
            mode: PadMode::ZERO,
        });
        self.add_op(node, vec![op], options, |_| Vec::new())
    }
}

/// Padding from top, left, bottom and right.
pub(super) fn padding([top, left, bottom, right]: [u32; 4]) -> Padding {
    Padding {
        top,
        left,
        bottom,
        right,
    }
}

/// Axes from 0 to `rank`, of which negative ones count from the end; `None` if one is outside or there twice.
pub(super) fn distinct_axes(axes: &[i64], rank: usize) -> Option<Vec<usize>> {
    let mut found = Vec::new();
    for &axis in axes {
        let axis = match axis {
            0.. => usize::try_from(axis).ok()?,
            _ => rank.checked_sub(usize::try_from(axis.unsigned_abs()).ok()?)?,
        };
        if axis >= rank || found.contains(&axis) {
            return None;
        }
        found.push(axis);
    }
    Some(found)
}
