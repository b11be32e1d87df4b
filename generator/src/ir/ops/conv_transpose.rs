//! Transposed convolution.

use super::{Problem, ProblemKind, ordered_epilogue};
use crate::ir::{Activation, Epilogue, Tensor, TensorShape, description, label};
use serde::Serialize;
use tdc_runtime::ConvShape;

/// A transposed convolution in fp32 NCHW, the gradient of a convolution: each pixel of the input adds its products with the filter to the
/// output, where the steps between pixels are `stride` and those between taps are `dilation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct ConvTransposeProblem {
    /// Input channels, output channels, image of the input, filter and options. The padding is cut off the output; the output sizes are
    /// those of [`output`](ProblemKind::output), not of a convolution.
    pub shape: ConvShape,
    /// Rows and columns that the output has at the bottom and on the right beyond those that its input reaches without padding.
    pub output_padding: [u32; 2],
    /// Applied to the sums; there is no residual.
    pub epilogue: Epilogue,
}

impl ConvTransposeProblem {
    /// Height and width of the output before the padding is cut off.
    pub fn full_size(&self) -> [u64; 2] {
        let shape = &self.shape;
        [(shape.h, shape.r, 0), (shape.w, shape.s, 1)].map(|(size, taps, axis)| {
            let steps = u64::from(size).saturating_sub(1) * u64::from(shape.stride[axis]);
            let reach = u64::from(taps).saturating_sub(1) * u64::from(shape.dilation[axis]) + 1;
            steps + reach + u64::from(self.output_padding[axis])
        })
    }
}

impl ProblemKind for ConvTransposeProblem {
    fn input(&self) -> Tensor {
        let shape = &self.shape;
        Tensor::nchw(TensorShape::new(shape.batch, shape.c, shape.h, shape.w))
    }

    fn output(&self) -> Tensor {
        let (shape, pad) = (&self.shape, self.shape.padding);
        let [h, w] = self.full_size();
        let cut = |full: u64, first: u32, last: u32| {
            let size = full.saturating_sub(u64::from(first) + u64::from(last));
            u32::try_from(size).unwrap_or(u32::MAX)
        };
        Tensor::nchw(TensorShape::new(
            shape.batch,
            shape.n,
            cut(h, pad.top, pad.bottom),
            cut(w, pad.left, pad.right),
        ))
    }

    fn reads_bias(&self) -> bool {
        self.epilogue.bias
    }

    fn activations(&self) -> Vec<Activation> {
        vec![self.epilogue.activation]
    }

    /// OIHW; a checkpoint has them with both axes of channels exchanged.
    fn weights(&self) -> Vec<[u32; 4]> {
        vec![self.shape.weight()]
    }

    fn flops(&self) -> u64 {
        let shape = &self.shape;
        let weights = shape.weight().map(u64::from);
        let products = weights.into_iter().fold(2, u64::saturating_mul);
        let pixels = u64::from(shape.h).saturating_mul(u64::from(shape.w));
        products
            .saturating_mul(pixels)
            .saturating_mul(u64::from(shape.batch))
    }

    fn label(&self) -> String {
        let shape = &self.shape;
        format!(
            "convtranspose{}_c{}_n{}{}{}{}",
            label::batch(shape.batch),
            shape.c,
            shape.n,
            label::filter(shape),
            label::pair("op", self.output_padding, 0),
            label::epilogue(self.epilogue)
        )
    }

    fn description(&self) -> String {
        format!(
            "Transposed convolution {}{}{}",
            description::filter(&self.shape),
            description::unless("output padding", self.output_padding, [0, 0]),
            description::epilogue(self.epilogue)
        )
    }

    fn measured(&self) -> Problem {
        Problem::ConvTranspose(Self {
            epilogue: ordered_epilogue(self.epilogue),
            ..*self
        })
    }

    #[cfg(feature = "check")]
    fn reference(&self, inputs: &crate::ir::ReferenceInputs) -> Vec<f64> {
        use crate::ir::reference::{activate_all, add_bias};

        let weight = exchanged_channels(&self.shape, &inputs.weights[0]);
        let mut y = conv_transpose_reference(self, inputs.x, &weight);
        if self.epilogue.bias {
            add_bias(self.output().shape, &mut y, inputs.bias);
        }
        activate_all(self.epilogue.activation, &mut y);
        y
    }
}

/// OIHW weights in the order of a checkpoint: input channels, output channels of a group, R, S.
#[cfg(feature = "check")]
fn exchanged_channels(shape: &ConvShape, weight: &[f64]) -> Vec<f64> {
    let [n, c, r, s] = shape.weight().map(|size| size as usize);
    let n_per_group = n / shape.groups as usize;
    let mut exchanged = Vec::with_capacity(weight.len());
    for input in 0..shape.c as usize {
        let group = input / c;
        for output in group * n_per_group..(group + 1) * n_per_group {
            let filter = output * c + input % c;
            exchanged.extend(&weight[filter * r * s..][..r * s]);
        }
    }
    exchanged
}

/// By definition, without the epilogue: each pixel of the input is added to the output with each weight. The weight is in the order of a
/// checkpoint, C x N / groups x R x S.
#[cfg(feature = "check")]
pub fn conv_transpose_reference(p: &ConvTransposeProblem, x: &[f64], weight: &[f64]) -> Vec<f64> {
    let (shape, y_shape) = (&p.shape, p.output().shape);
    let [n, c, r, s] = shape.weight().map(|size| size as usize);
    let n_per_group = n / shape.groups as usize;
    let (w, pixels) = (shape.w as usize, shape.h as usize * shape.w as usize);
    let place = |pixel: usize, tap: usize, axis: usize, before: u32, size: u32| {
        let place = pixel as u64 * u64::from(shape.stride[axis])
            + tap as u64 * u64::from(shape.dilation[axis]);
        let place = place.checked_sub(u64::from(before))?;
        (place < u64::from(size)).then_some(place as usize)
    };
    let mut y = vec![0.0; y_shape.len() as usize];
    for (plane, values) in x.chunks(pixels).enumerate() {
        let (image, input) = (plane / shape.c as usize, plane % shape.c as usize);
        for (pixel, value) in values.iter().enumerate() {
            for (tap, row, column) in (0..r * s).filter_map(|tap| {
                let row = place(pixel / w, tap / s, 0, shape.padding.top, y_shape.h)?;
                let column = place(pixel % w, tap % s, 1, shape.padding.left, y_shape.w)?;
                Some((tap, row, column))
            }) {
                for output in 0..n_per_group {
                    let to = image * n + input / c * n_per_group + output;
                    let to = (to * y_shape.h as usize + row) * y_shape.w as usize + column;
                    y[to] += value * weight[(input * n_per_group + output) * r * s + tap];
                }
            }
        }
    }
    y
}

#[cfg(all(test, feature = "check"))]
mod tests {
    use super::*;
    use tdc_runtime::Padding;

    #[test]
    fn pixels_add_their_filters() {
        let row = |left, output_padding| {
            let shape = ConvShape {
                stride: [1, 2],
                padding: Padding {
                    left,
                    ..Padding::default()
                },
                ..ConvShape::new(1, 1, 1, 2, 1, 3)
            };
            let problem = ConvTransposeProblem {
                shape,
                output_padding: [0, output_padding],
                epilogue: Epilogue::default(),
            };
            conv_transpose_reference(&problem, &[1.0, 2.0], &[10.0, 20.0, 30.0])
        };
        assert_eq!(row(0, 0), [10.0, 20.0, 50.0, 40.0, 60.0]);
        assert_eq!(row(1, 1), [20.0, 50.0, 40.0, 60.0, 0.0]);
    }

    #[test]
    fn groups_are_independent() {
        let shape = ConvShape {
            groups: 2,
            ..ConvShape::new(4, 2, 1, 1, 1, 1)
        };
        let problem = ConvTransposeProblem {
            shape,
            output_padding: [0, 0],
            epilogue: Epilogue::default(),
        };
        let x = [1.0, 2.0, 3.0, 4.0];
        let weight = [10.0, 20.0, 30.0, 40.0];
        assert_eq!(
            conv_transpose_reference(&problem, &x, &weight),
            [50.0, 250.0]
        );
        // Two inputs of one output, of each group: the order is the same.
        assert_eq!(exchanged_channels(&shape, &weight), weight);
        let shape = ConvShape::new(2, 3, 1, 1, 1, 1);
        let weight = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        assert_eq!(
            exchanged_channels(&shape, &weight),
            [1.0, 3.0, 5.0, 2.0, 4.0, 6.0]
        );
    }
}
