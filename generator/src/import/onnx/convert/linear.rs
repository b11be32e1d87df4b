//! Fully connected layers.

use super::super::attributes::Attributes;
use super::super::fold::transposed;
use super::super::inputs::input;
use super::super::tensor::Tensor;
use super::{Converter, Problem, Value, ValueId, first, invalid, unsupported};
use crate::ir::{LinearOptions, OpOptions, TensorShape};

impl Converter<'_> {
    /// `alpha * A * B + beta * C`, with constant B and C.
    pub(super) fn gemm(
        &mut self,
        node: usize,
        inputs: &[Option<ValueId>],
        attributes: &Attributes<'_>,
    ) -> Result<Value, Problem> {
        attributes.expect_int("transA", 0);
        // Operator set 6: whether the bias may have fewer axes, which is always allowed since.
        attributes.ignore("broadcast");
        let is_transposed = attributes.int("transB").unwrap_or(0) != 0;
        let alpha = attributes.float("alpha").unwrap_or(1.0);
        let beta = attributes.float("beta").unwrap_or(1.0);
        let bias = match input(inputs, 2) {
            Some(_) => Some(self.expect_constant(inputs, 2, "bias")?),
            None => None,
        };
        let weight = self.expect_constant(inputs, 1, "weight")?;
        let factors = Factors {
            weight: &weight,
            is_transposed,
            weight_factor: alpha,
            bias: bias.as_deref(),
            bias_factor: beta,
        };
        self.linear(node, inputs, &factors)
    }

    /// A product with a constant matrix.
    pub(super) fn matrix_product(
        &mut self,
        node: usize,
        inputs: &[Option<ValueId>],
    ) -> Result<Value, Problem> {
        let weight = self.expect_constant(inputs, 1, "second factor")?;
        let factors = Factors {
            weight: &weight,
            is_transposed: false,
            weight_factor: 1.0,
            bias: None,
            bias_factor: 1.0,
        };
        self.linear(node, inputs, &factors)
    }

    fn linear(
        &mut self,
        node: usize,
        inputs: &[Option<ValueId>],
        factors: &Factors<'_>,
    ) -> Result<Value, Problem> {
        let id = first(inputs)?;
        let dims = self.dims(id);
        if dims.len() != 2 {
            return Err(unsupported(format!(
                "a matrix product of a tensor with {} axes is not supported, only of features",
                dims.len()
            )));
        }
        let (op, channels_last_image) = match self.values[id] {
            Value::FlatChannelsLast { op, image } => (op, Some(image)),
            _ => (self.op_of(inputs, 0)?, None),
        };
        // Before anything is copied: many nodes may have the same large weight.
        let [n, c] = factors.sizes()?;
        if self.shapes[op].image_len() != c as u64 {
            return Err(invalid(format!(
                "its weight is for {c} features, its input has {}",
                dims[1]
            )));
        }
        let number = u32::try_from(n).map_err(|_| invalid("its weight is too large"))?;
        let bias = factors.bias(n)?;
        let weight = match channels_last_image {
            Some(image) => with_channels_first(&factors.weight()?, image),
            None => factors.weight()?,
        };
        let options = OpOptions::Linear(LinearOptions {
            bias: bias.is_some(),
            ..LinearOptions::new(number)
        });
        let value = self.add(node, vec![op], options, |name| {
            let mut tensors = vec![(format!("{name}.weight"), vec![n, c], weight)];
            tensors.extend(bias.map(|bias| (format!("{name}.bias"), vec![n], bias)));
            tensors
        })?;
        Ok(value.with_dims(vec![dims[0], n]))
    }
}

/// The weight of features in the order of rows, columns and channels, each row reordered for channels, rows and columns.
fn with_channels_first(weight: &[f32], image: TensorShape) -> Vec<f32> {
    let (channels, pixels) = (image.c as usize, image.pixels() as usize);
    let rows = weight.chunks_exact(channels * pixels);
    rows.flat_map(|row| {
        (0..channels).flat_map(move |c| (0..pixels).map(move |pixel| row[pixel * channels + c]))
    })
    .collect()
}

/// The constants of a matrix product.
struct Factors<'t> {
    /// C x N, or N x C if it is transposed.
    weight: &'t Tensor,
    is_transposed: bool,
    weight_factor: f32,
    bias: Option<&'t Tensor>,
    bias_factor: f32,
}

impl Factors<'_> {
    /// N and C, both at least 1.
    fn sizes(&self) -> Result<[usize; 2], Problem> {
        let &[rows, columns] = &self.weight.dims[..] else {
            return Err(unsupported(format!(
                "its weight has {} axes, not two",
                self.weight.dims.len()
            )));
        };
        match (rows, columns, self.is_transposed) {
            (0, _, _) | (_, 0, _) => Err(invalid("its weight is empty")),
            (n, c, true) | (c, n, false) => Ok([n, c]),
        }
    }

    /// The weight, N x C.
    fn weight(&self) -> Result<Vec<f32>, Problem> {
        let values = match self.is_transposed {
            true => self.weight.to_floats(),
            false => transposed(self.weight, None).map_err(invalid)?.to_floats(),
        };
        let factor = self.weight_factor;
        Ok(values.into_iter().map(|value| factor * value).collect())
    }

    /// The bias of `n` features, from one number for each of them or for all.
    fn bias(&self, n: usize) -> Result<Option<Vec<f32>>, Problem> {
        let Some(bias) = self.bias else {
            return Ok(None);
        };
        let values = match bias.dims[..] {
            _ if bias.len() == 1 => vec![bias.to_floats()[0]; n],
            [count] | [1, count] if count == n => bias.to_floats(),
            _ => {
                return Err(unsupported(format!(
                    "a bias of {:?} for {n} features is not supported",
                    bias.dims
                )));
            }
        };
        let factor = self.bias_factor;
        Ok(Some(
            values.into_iter().map(|value| factor * value).collect(),
        ))
    }
}
