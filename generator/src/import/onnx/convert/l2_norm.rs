//! Division of the channels by their L2 norm.

use super::super::attributes::Attributes;
use super::super::elementwise::Elementwise;
use super::super::inputs::input;
use super::super::tensor::Tensor;
use super::{Converter, Problem, Value, ValueId, first, op_type, unsupported};
use crate::ir::{ActivationParameter, ChannelNorm, OpOptions};

impl Converter<'_> {
    /// `LpNormalization` over the channels.
    pub(super) fn lp_normalization(
        &mut self,
        node: usize,
        inputs: &[Option<ValueId>],
        attributes: &Attributes<'_>,
    ) -> Result<Value, Problem> {
        attributes.expect_int("p", 2);
        let x = first(inputs)?;
        self.expect_channels(x, attributes.int("axis").unwrap_or(-1))?;
        self.divided_by_norm(node, x, 0.0)
    }

    /// `ReduceL2` over the channels. From operator set 18 on the axes are an input.
    pub(super) fn reduce_l2(
        &mut self,
        inputs: &[Option<ValueId>],
        attributes: &Attributes<'_>,
    ) -> Result<Value, Problem> {
        attributes.expect_int("noop_with_empty_axes", 0);
        attributes.expect_int("keepdims", 1);
        let of = first(inputs)?;
        let axes = match (attributes.ints("axes"), input(inputs, 1)) {
            (Some(axes), _) => axes.to_vec(),
            (None, Some(_)) => self.expect_ints(inputs, 1, "list of axes")?,
            (None, None) => Vec::new(),
        };
        let &[axis] = &axes[..] else {
            return Err(unsupported(format!(
                "a norm over the axes {axes:?} is not supported, only over the channels"
            )));
        };
        let axis = self.expect_channels(of, axis)?;
        let mut dims = self.dims(of);
        dims[axis] = 1;
        Ok(Value::Norm {
            of,
            least: 0.0,
            dims,
        })
    }

    /// The value of a node between a norm and the division by it, and of the division: as PyTorch's `normalize` spells it, Clip, Expand
    /// and Div. `None` for any other node.
    pub(super) fn after_norm(
        &mut self,
        node: usize,
        inputs: &[Option<ValueId>],
        constants: &[Option<&Tensor>],
        attributes: &Attributes<'_>,
    ) -> Result<Option<Value>, Problem> {
        let norms = inputs.iter().flatten().map(|id| &self.values[*id]);
        let Some(Value::Norm { of, least, dims }) = norms
            .clone()
            .find(|value| matches!(value, Value::Norm { .. }))
        else {
            return Ok(None);
        };
        let (of, least, dims) = (*of, *least, dims.clone());
        let op = op_type(&self.graph.nodes[node]);
        if op == "Expand" {
            let sizes = self.expect_ints(inputs, 1, "shape")?;
            let own = self.dims(of);
            let fits = sizes.len() == own.len()
                && sizes
                    .iter()
                    .zip(own.iter().zip(&dims))
                    .all(|(&size, (&own, &dim))| size == own as i64 || size == 1 && own == dim);
            return match fits {
                true => Ok(Some(Value::Norm {
                    of,
                    least,
                    dims: own,
                })),
                false => Err(unsupported(format!(
                    "the expansion of a norm to {sizes:?} is not supported, only to {own:?}"
                ))),
            };
        }
        let scalar = || {
            constants
                .iter()
                .flatten()
                .find_map(|tensor| tensor.scalar())
        };
        let bound = match Elementwise::of(op, constants, attributes) {
            Some(Ok(Elementwise::Clip { min, max })) if max == f64::INFINITY => Some(min),
            Some(Ok(Elementwise::Max)) if inputs.len() == 2 => scalar(),
            Some(Ok(Elementwise::Div)) if input(inputs, 0) == Some(of) => {
                return self.divided_by_norm(node, of, least).map(Some);
            }
            _ => None,
        };
        let bound = bound.filter(|bound| bound.is_finite()).ok_or_else(|| {
            unsupported(
                "a norm is supported only where its input is divided by it, with a least value",
            )
        })?;
        Ok(Some(Value::Norm {
            of,
            least: least.max(bound),
            dims,
        }))
    }

    /// The channels of a value over their norm, or over `least` where that is larger.
    fn divided_by_norm(&mut self, node: usize, x: ValueId, least: f64) -> Result<Value, Problem> {
        let eps = (least as f32).max(ChannelNorm::MIN_EPS);
        if !eps.is_finite() {
            return Err(unsupported(format!(
                "a least norm of {least} is not supported"
            )));
        }
        let op = self.op_in_either_order(x)?;
        let eps = ActivationParameter::new(eps);
        let options = OpOptions::ChannelNorm(ChannelNorm::L2 { eps });
        let op = self.add_op(node, vec![op], options, |_| Vec::new())?;
        Ok(self.value_like(x, op))
    }

    /// Checks that an axis of a value is that of the channels, and returns its index.
    fn expect_channels(&self, x: ValueId, axis: i64) -> Result<usize, Problem> {
        let dims = self.dims(x);
        let rank = dims.len() as i64;
        let channels = self.channel_axis(x);
        let axes = [channels as i64, channels as i64 - rank];
        match axes.contains(&axis) && rank > 1 {
            true => Ok(channels),
            false => Err(unsupported(format!(
                "a norm of {dims:?} along axis {axis} is not supported, only over the channels"
            ))),
        }
    }
}
