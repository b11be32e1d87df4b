//! Random operands of a problem, and its result in float64.

use super::Random;
use super::stored_tensor::rounded_to;
use crate::ir::{DType, Problem, ReferenceInputs};
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
    /// Of the channels that a unit appends to its residual.
    appended: Vec<f64>,
}

/// The number of different images in [`ProblemData::with_repeated_images`].
const DIFFERENT_IMAGES: u32 = 3;

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

    /// The exact values of the channels that a unit appends to its residual, NCHW; empty for most problems.
    pub(super) fn appended(&self) -> &[f64] {
        &self.appended
    }

    /// Operands for a seed.
    pub fn new(problem: &Problem, seed: u64) -> Self {
        Self::with_residual_of(problem, seed, 1.0)
    }

    /// As [`new`](Self::new), with a residual whose values are larger than the input's by a factor.
    pub fn with_residual_of(problem: &Problem, seed: u64, factor: f32) -> Self {
        let mut random = Random::new(seed);
        let count = |there: bool, count: u64| if there { count as usize } else { 0 };
        let bias_len = u64::from(problem.epilogue_shape().c);
        let (input, output) = (problem.kind().input(), problem.kind().output());
        let x = random.values(input.shape.len() as usize);
        let x = rounded_to(input.format, x);
        let residual = random.values(count(
            problem.reads_residual(),
            problem.residual_shape().len(),
        ));
        let residual = residual.iter().map(|value| value * factor).collect();
        let residual = rounded_to(output.format, residual);
        let elements = |sizes: &[u32; 4]| sizes.iter().map(|&size| size as usize).product();
        let weights = problem.weights();
        let weights: Vec<_> = weights
            .iter()
            .map(|sizes| random.values(elements(sizes)))
            .collect();
        let bias = random.values(count(problem.reads_bias(), bias_len));
        let scale = random.values(problem.scale_shift_channels() as usize);
        // Bytes become numbers from -1 to 1, or a little more, as in networks.
        let unit = match input.format.dtype {
            DType::Uint8 => 1.0 / 128.0,
            _ => 1.0,
        };
        let scale: Vec<f32> = scale.iter().map(|scale| scale * unit).collect();
        let shift = random.values(scale.len());
        let double =
            |values: &[f32]| -> Vec<f64> { values.iter().map(|&v| f64::from(v)).collect() };
        let inputs = ReferenceInputs {
            x: &double(&x),
            residual: &double(&residual),
            weights: &weights
                .iter()
                .map(|values| double(values))
                .collect::<Vec<_>>(),
            bias: &double(&bias),
            scale: &double(&scale),
            shift: &double(&shift),
        };
        let expected = problem.kind().reference(&inputs);
        let appended = problem.kind().appended_reference(&inputs);
        Self {
            x,
            residual,
            weights,
            bias,
            scale,
            shift,
            expected,
            appended,
        }
    }

    /// As [`new`](Self::new), but a batch of more than three images consists of copies of three.
    ///
    /// The float64 reference of a large batch takes longer than all measurements of the problem. The reference of three images is also
    /// that of their copies, so every element of the output is still compared. The order of the copies (`copied_image`) is not periodic:
    /// images at an offset are detected. A single image at a wrong place is detected only if the image that belongs there is a copy of
    /// another one.
    pub fn with_repeated_images(problem: &Problem, seed: u64) -> Self {
        let images = problem.x().batch;
        let different = images.min(DIFFERENT_IMAGES);
        let data = Self::new(&problem.with_batch(different), seed);
        if images == different {
            return data;
        }
        Self {
            x: repeated(&data.x, images),
            residual: repeated(&data.residual, images),
            expected: repeated(&data.expected, images),
            appended: repeated(&data.appended, images),
            ..data
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

/// Which of the different images the image at an index is a copy of: its digit sum in base 3, modulo 3. The first three images differ;
/// the sequence (0 1 2 1 2 0 2 0 1 1 ...) differs from itself with an offset.
fn copied_image(mut index: u32) -> usize {
    let mut sum = 0;
    while index > 0 {
        sum += index % DIFFERENT_IMAGES;
        index /= DIFFERENT_IMAGES;
    }
    (sum % DIFFERENT_IMAGES) as usize
}

/// A tensor of `images` images from one of the different images; empty stays empty.
fn repeated<T: Copy>(different: &[T], images: u32) -> Vec<T> {
    let len = different.len() / DIFFERENT_IMAGES as usize;
    let copies = (0..images).map(|index| &different[copied_image(index) * len..][..len]);
    copies.flatten().copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::problem_of_label;

    /// Odd sizes of every kind.
    const LABELS: [&str; 18] = [
        "conv_b7_c3_n5_h5_w7_k3x3_s2_p1_prologuerelu_bias_residual_relu",
        "conv_b5_c8_n16_h3_w5_k1x1_bias_residual_relu_fp16_nhwc16",
        "convtranspose_b4_c8_n6_h3_w5_k3x4_s2x3_p1x0x2x3_d2_g2_op0x1_bias_relu",
        "tucker_b5_c7_d3x5_n6_h5_w3_k3x3_p1_bias_residual_relu",
        "tucker_b4_d3x5_n6_h5_w3_k3x3_p1_bias_residual_relu_next7",
        "cp_b4_c5_r7_n6_h5_w3_k3x3_p1_bias_relu",
        "linear_b9_c5_n7_bias",
        "lrn5x1em4x0p75x1_b4_c7_h3_w5",
        "padm0p5_b5_c3_h7_w9_p1x0x2x3",
        "maxpool_b11_c3_h7_w5_k3x3_s2_p1_o4x3",
        "bilinear_b5_c3_h7_w9_o14x3_align",
        "layernorm1em6_b5_c7_h3_w5",
        "globalavgpool_b7_c3_h5_w3",
        "squeezeexcite_b5_c7_h3_w5_n3_bias_relu_gate_bias_hardsigmoid",
        "gatehardswish_b5_c7_h3_w5",
        "convert_b5_c8_h3_w5_tonhwc16",
        "conv_b5_c8_n16_h3_w5_k1x1_bias_residual_relu_bf16_nhwcbf16",
        "conv_b5_c16_n8_h3_w5_k1x1_bias_residual_relu_nhwcsplit",
    ];

    #[test]
    fn the_reference_of_copies_is_that_of_the_complete_batch() {
        for label in LABELS {
            let problem = problem_of_label(label).expect(label);
            let data = ProblemData::with_repeated_images(&problem, 5);
            assert_eq!(data.x.len() as u64, problem.x().len(), "{label}");
            let double = |values: &[f32]| values.iter().map(|&v| f64::from(v)).collect::<Vec<_>>();
            let weights: Vec<_> = data.weights.iter().map(|values| double(values)).collect();
            let complete = problem.kind().reference(&ReferenceInputs {
                x: &double(&data.x),
                residual: &double(&data.residual),
                weights: &weights,
                bias: &double(&data.bias),
                scale: &double(&data.scale),
                shift: &double(&data.shift),
            });
            assert_eq!(data.expected, complete, "{label}");
        }
    }

    #[test]
    fn a_shifted_batch_differs() {
        for images in 4..40 {
            for offset in 1..=images / 2 {
                let differing = (offset..images)
                    .filter(|&index| copied_image(index) != copied_image(index - offset));
                assert!(differing.count() > 0, "{images} images, {offset}");
            }
        }
    }

    #[test]
    fn up_to_three_images_are_independent() {
        let problem = problem_of_label("conv_b3_c3_n5_h5_w7_k3x3_p1").unwrap();
        let repeated = ProblemData::with_repeated_images(&problem, 2);
        assert_eq!(repeated.x, ProblemData::new(&problem, 2).x);
    }
}
