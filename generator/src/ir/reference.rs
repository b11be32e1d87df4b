//! Code that the float64 references of several ops share. Tensors are dense NCHW.

use super::{Activation, TensorShape, activate};

/// Operands of one problem; those that it does not read are empty.
#[derive(Debug, Clone, Default)]
pub struct ReferenceInputs<'a> {
    /// Input.
    pub x: &'a [f64],
    /// Second operand.
    pub residual: &'a [f64],
    /// Each weight tensor, OIHW.
    pub weights: &'a [Vec<f64>],
    /// One value for each output channel.
    pub bias: &'a [f64],
    /// Scale of the prologue or of a `scale_shift` op.
    pub scale: &'a [f64],
    /// Shift of the prologue or of a `scale_shift` op.
    pub shift: &'a [f64],
}

/// `scale[c] * x + shift[c]`.
pub fn scale_shift(shape: TensorShape, x: &[f64], scale: &[f64], shift: &[f64]) -> Vec<f64> {
    let pixels = shape.pixels() as usize;
    x.chunks(pixels)
        .enumerate()
        .flat_map(|(plane, values)| {
            let channel = plane % shape.c as usize;
            values
                .iter()
                .map(move |value| scale[channel] * value + shift[channel])
        })
        .collect()
}

/// Adds `bias[c]` to every pixel.
pub fn add_bias(shape: TensorShape, y: &mut [f64], bias: &[f64]) {
    let pixels = shape.pixels() as usize;
    for (plane, values) in y.chunks_mut(pixels).enumerate() {
        for value in values {
            *value += bias[plane % shape.c as usize];
        }
    }
}

/// Adds a tensor of the same shape.
pub fn add(y: &mut [f64], other: &[f64]) {
    for (value, other) in y.iter_mut().zip(other) {
        *value += other;
    }
}

/// Applies an activation function to every element.
pub fn activate_all(activation: Activation, y: &mut [f64]) {
    for value in y {
        *value = activate(activation, *value);
    }
}
