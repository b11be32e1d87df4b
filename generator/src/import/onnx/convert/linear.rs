//! Fully connected layers.

use super::super::attributes::Attributes;
use super::super::fold::transposed;
use super::super::inputs::input;
use super::super::tensor::Tensor;
use super::{Converter, Problem, Value, ValueId, first, invalid, unsupported};
use crate::ir::{Activation, LinearOptions, OpOptions};

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
        let weight = matrix(&weight, is_transposed, alpha)?;
        let bias = bias
            .map(|bias| bias_of(&bias, weight.n, beta))
            .transpose()?;
        self.linear(node, inputs, weight, bias)
    }

    /// A product with a constant matrix.
    pub(super) fn matrix_product(
        &mut self,
        node: usize,
        inputs: &[Option<ValueId>],
    ) -> Result<Value, Problem> {
        let weight = self.expect_constant(inputs, 1, "second factor")?;
        let weight = matrix(&weight, false, 1.0)?;
        self.linear(node, inputs, weight, None)
    }

    fn linear(
        &mut self,
        node: usize,
        inputs: &[Option<ValueId>],
        weight: Matrix,
        bias: Option<Vec<f32>>,
    ) -> Result<Value, Problem> {
        let dims = self.dims(first(inputs)?);
        if dims.len() != 2 {
            return Err(unsupported(format!(
                "a matrix product of a tensor with {} axes is not supported, only of features",
                dims.len()
            )));
        }
        let op = self.op_of(inputs, 0)?;
        if self.shapes[op].image_len() != weight.c as u64 {
            return Err(invalid(format!(
                "its weight is for {} features, its input has {}",
                weight.c, dims[1]
            )));
        }
        let n = u32::try_from(weight.n).map_err(|_| invalid("its weight is too large"))?;
        let options = OpOptions::Linear(LinearOptions {
            n,
            bias: bias.is_some(),
            activation: Activation::None,
        });
        let value = self.add(node, vec![op], options, |name| {
            let mut tensors = vec![(
                format!("{name}.weight"),
                vec![weight.n, weight.c],
                weight.values,
            )];
            tensors.extend(bias.map(|bias| (format!("{name}.bias"), vec![bias.len()], bias)));
            tensors
        })?;
        Ok(value.with_dims(vec![dims[0], n as usize]))
    }
}

/// A weight of n x c.
struct Matrix {
    n: usize,
    c: usize,
    values: Vec<f32>,
}

/// The weight from one of c x n, or of n x c if it is transposed.
fn matrix(tensor: &Tensor, is_transposed: bool, factor: f32) -> Result<Matrix, Problem> {
    let &[rows, columns] = &tensor.dims[..] else {
        return Err(unsupported(format!(
            "its weight has {} axes, not two",
            tensor.dims.len()
        )));
    };
    let (n, c, values) = match is_transposed {
        true => (rows, columns, tensor.to_floats()),
        false => {
            let transposed = transposed(tensor, None).map_err(invalid)?;
            (columns, rows, transposed.to_floats())
        }
    };
    let values = values.into_iter().map(|value| factor * value).collect();
    Ok(Matrix { n, c, values })
}

/// The bias of `n` features from a constant that may be one number for all of them.
fn bias_of(tensor: &Tensor, n: usize, factor: f32) -> Result<Vec<f32>, Problem> {
    let values = tensor.to_floats();
    let values = match values.len() {
        1 => vec![values[0]; n],
        count if count == n => values,
        _ => {
            return Err(invalid(format!(
                "its bias has the shape {:?} for {n} features",
                tensor.dims
            )));
        }
    };
    Ok(values.into_iter().map(|value| factor * value).collect())
}
