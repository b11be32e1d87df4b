//! The filter of a convolution or a transposed convolution.

use super::super::attributes::Attributes;
use super::super::inputs::input;
use super::super::tensor::Tensor;
use super::convolution::window_pair;
use super::{Converter, Problem, ValueId, first, invalid, unsupported};
use std::rc::Rc;

/// Weight and bias, which are constants.
pub(super) struct Filter {
    weight: Rc<Tensor>,
    bias: Option<Vec<f32>>,
    /// Sizes of the weight as it is stored; the last two are the rows and columns of the filter.
    pub sizes: [u32; 4],
    /// Groups of channels.
    pub groups: u32,
}

impl Filter {
    /// The filter of a node on images. `what` is the node's kind with its article, for messages.
    pub(super) fn read(
        converter: &Converter<'_>,
        inputs: &[Option<ValueId>],
        attributes: &Attributes<'_>,
        what: &str,
    ) -> Result<Self, Problem> {
        let weight = converter.expect_constant(inputs, 1, "weight")?;
        let bias = match input(inputs, 2) {
            Some(_) => Some(converter.expect_constant(inputs, 2, "bias")?.to_floats()),
            None => None,
        };
        let stored = match weight.dims[..] {
            [n, c, s] => [n, c, 1, s],
            [n, c, r, s] => [n, c, r, s],
            _ => {
                return Err(unsupported(format!(
                    "{what} with {} axes is not supported, only of images and of rows",
                    weight.dims.len().saturating_sub(2)
                )));
            }
        };
        let rank = converter.dims(first(inputs)?).len();
        if rank != weight.dims.len() {
            return Err(unsupported(format!(
                "its input has {rank} axes, its weight {}",
                weight.dims.len()
            )));
        }
        let stored = stored.map(|size| u32::try_from(size).unwrap_or(u32::MAX));
        let [_, _, r, s] = stored;
        if let Some(kernel) = attributes.ints("kernel_shape")
            && window_pair(kernel, rank) != Some([r, s])
        {
            return Err(invalid(format!(
                "`kernel_shape` = {kernel:?}, its weight has {r}x{s}"
            )));
        }
        let groups = attributes.int("group").unwrap_or(1);
        let groups = u32::try_from(groups).map_err(|_| invalid(format!("`group` = {groups}")))?;
        Ok(Self {
            weight,
            bias,
            sizes: stored,
            groups,
        })
    }

    /// Whether there is a bias, which must have a number for each of `n` channels.
    pub(super) fn has_bias(&self, n: u32) -> Result<bool, Problem> {
        match &self.bias {
            Some(bias) if bias.len() != n as usize => {
                Err(invalid(format!("its bias is not for {n} channels")))
            }
            bias => Ok(bias.is_some()),
        }
    }

    /// The tensors of the layer of a name.
    pub(super) fn tensors(self, name: &str) -> Vec<(String, Vec<usize>, Vec<f32>)> {
        let dims = self.sizes.map(|size| size as usize).to_vec();
        let mut tensors = vec![(format!("{name}.weight"), dims, self.weight.to_floats())];
        let bias = self.bias;
        tensors.extend(bias.map(|bias| (format!("{name}.bias"), vec![bias.len()], bias)));
        tensors
    }
}
