//! Random operands of a problem, and its result in float64.

use super::Random;
use super::stored_tensor::rounded_to;
use crate::ir::{Problem, ReferenceInputs};
use tdc_runtime::{PackError, Variant};

/// Random operands of a problem and its float64 result.
pub struct ProblemData {
    x: Vec<f32>,
    pub(super) residual: Vec<f32>,
    /// One vector per weight tensor.
    weights: Vec<Vec<f32>>,
    pub(super) bias: Vec<f32>,
    scale: Vec<f32>,
    shift: Vec<f32>,
    expected: Vec<f64>,
}

impl ProblemData {
    /// The input, NCHW, rounded to its type.
    pub fn x(&self) -> &[f32] {
        &self.x
    }

    /// Weight tensors, OIHW.
    pub fn weights(&self) -> &[Vec<f32>] {
        &self.weights
    }

    /// The exact result, NCHW.
    pub fn expected(&self) -> &[f64] {
        &self.expected
    }

    /// Operands for a seed.
    pub fn new(problem: &Problem, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let count = |there: bool, count: u64| if there { count as usize } else { 0 };
        let epilogue_shape = problem.epilogue_shape();
        let (input, output) = (problem.kind().input(), problem.kind().output());
        let x = random.values(input.shape.len() as usize);
        let x = rounded_to(input.format, x);
        let residual = random.values(count(problem.reads_residual(), epilogue_shape.len()));
        let residual = rounded_to(output.format, residual);
        let elements = |sizes: &[u32; 4]| sizes.iter().map(|&size| size as usize).product();
        let weights = problem.weights();
        let weights: Vec<_> = weights
            .iter()
            .map(|sizes| random.values(elements(sizes)))
            .collect();
        let bias = random.values(count(problem.reads_bias(), u64::from(epilogue_shape.c)));
        let scale = random.values(problem.scale_shift_channels() as usize);
        let shift = random.values(scale.len());
        let double =
            |values: &[f32]| -> Vec<f64> { values.iter().map(|&v| f64::from(v)).collect() };
        let expected = problem.kind().reference(&ReferenceInputs {
            x: &double(&x),
            residual: &double(&residual),
            weights: &weights
                .iter()
                .map(|values| double(values))
                .collect::<Vec<_>>(),
            bias: &double(&bias),
            scale: &double(&scale),
            shift: &double(&shift),
        });
        Self {
            x,
            residual,
            weights,
            bias,
            scale,
            shift,
            expected,
        }
    }

    /// The packed weights of a variant.
    ///
    /// # Errors
    /// [`PackError`] if the variant belongs to a different problem.
    pub fn pack(&self, variant: &Variant) -> Result<Vec<f32>, PackError> {
        let mut packed = vec![0.0; variant.packed_len()];
        for (index, (at, layout)) in variant.packed_layouts().enumerate() {
            let weight = self.weights.get(index).map_or(&[][..], |weight| weight);
            let (scale, shift) = match layout.prologue_channels {
                0 => (&[][..], &[][..]),
                _ => (&self.scale[..], &self.shift[..]),
            };
            layout.pack(weight, scale, shift, &mut packed[at..][..layout.len()])?;
        }
        Ok(packed)
    }
}
