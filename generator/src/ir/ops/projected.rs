//! The end of a residual block with a projection shortcut: two 1x1 convolutions of different inputs, which are added.

use super::{ConvProblem, Problem, ProblemKind, ordered_epilogue};
use crate::ir::{
    Activation, Epilogue, Format, MAX_ELEMENTS, Precision, Tensor, TensorShape, Tolerance,
    description, label,
};
use serde::Serialize;
use tdc_runtime::ConvShape;

/// `y = epilogue(W1 x + W2 s)`: a 1x1 convolution of `x` and another one, with a stride, of the shortcut's input `s` (He et al.,
/// Deep Residual Learning, section 3.3, option B). Both weights are one, `[W1 W2]` along I: the sum is that of a 1x1 convolution whose input
/// is the concatenation of `x` and the pixels of `s` that the stride leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct ProjectedProblem {
    /// Shape of `x`; the output has as many pixels.
    pub x: TensorShape,
    /// Output channels.
    pub n: u32,
    /// The shortcut.
    pub shortcut: Shortcut,
    /// Applied to the sums; it has no residual.
    pub epilogue: Epilogue,
    /// How products may be rounded.
    pub precision: Precision,
    /// Format of both inputs and of the output.
    pub format: Format,
}

/// A projection shortcut: a 1x1 convolution without padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct Shortcut {
    /// Channels, height and width of its input.
    pub image: [u32; 3],
    /// Vertical and horizontal stride.
    pub stride: [u32; 2],
}

impl ProjectedProblem {
    /// The 1x1 convolution of the concatenated inputs, whose sums are those of this problem.
    pub fn concatenated(&self) -> ConvProblem {
        let [shortcut_channels, _, _] = self.shortcut.image;
        ConvProblem {
            shape: ConvShape {
                c: self.x.c + shortcut_channels,
                ..self.product().shape
            },
            ..self.product()
        }
    }

    /// Both convolutions, in fp32 NCHW and without epilogue.
    pub fn convolutions(&self) -> [ConvProblem; 2] {
        [self.product().shape, self.shortcut_shape()].map(|shape| ConvProblem {
            precision: self.precision,
            ..ConvProblem::new(shape)
        })
    }

    /// Whether no size is zero or too large for kernels to index, and both convolutions have the same output shape.
    pub fn is_valid(&self) -> bool {
        let [c, h, w] = self.shortcut.image;
        let sizes = [self.x.batch, self.x.c, self.x.h, self.x.w, self.n, c, h, w];
        let is_sane = sizes.iter().all(|&size| (1..=1 << 28).contains(&size))
            && self.shortcut.stride.iter().all(|&stride| stride > 0);
        let is_small = || {
            let tensors = [self.x, self.shortcut_input(), self.output().shape];
            tensors.iter().all(|shape| shape.len() <= MAX_ELEMENTS)
        };
        let is_added = || {
            let shape = self.shortcut_shape();
            [shape.out_h(), shape.out_w()] == [self.x.h, self.x.w]
        };
        is_sane && is_small() && is_added()
    }

    /// Shape of the shortcut's input.
    pub fn shortcut_input(&self) -> TensorShape {
        let [c, h, w] = self.shortcut.image;
        TensorShape::new(self.x.batch, c, h, w)
    }

    /// The shape of the shortcut's convolution.
    pub fn shortcut_shape(&self) -> ConvShape {
        let s = self.shortcut_input();
        ConvShape {
            batch: s.batch,
            stride: self.shortcut.stride,
            ..ConvShape::new(s.c, self.n, s.h, s.w, 1, 1)
        }
    }

    /// The convolution of `x`.
    fn product(&self) -> ConvProblem {
        ConvProblem {
            shape: ConvShape {
                batch: self.x.batch,
                ..ConvShape::new(self.x.c, self.n, self.x.h, self.x.w, 1, 1)
            },
            input: self.format,
            output: self.format,
            prologue: None,
            epilogue: self.epilogue,
            reduce: Default::default(),
            precision: self.precision,
            tolerance: Tolerance::default(),
        }
    }
}

impl ProblemKind for ProjectedProblem {
    fn input(&self) -> Tensor {
        Tensor::new(self.x, self.format)
    }

    fn output(&self) -> Tensor {
        let shape = TensorShape {
            c: self.n,
            ..self.x
        };
        Tensor::new(shape, self.format)
    }

    /// The shortcut's input, which takes the place of the residual.
    fn reads_residual(&self) -> bool {
        true
    }

    fn residual_shape(&self) -> TensorShape {
        self.shortcut_input()
    }

    /// The pixels that the stride leaves.
    fn residual_read(&self) -> TensorShape {
        TensorShape {
            c: self.shortcut.image[0],
            ..self.x
        }
    }

    fn reads_bias(&self) -> bool {
        self.epilogue.bias
    }

    fn activations(&self) -> Vec<Activation> {
        vec![self.epilogue.activation]
    }

    fn weights(&self) -> Vec<[u32; 4]> {
        vec![self.concatenated().shape.weight()]
    }

    fn precision(&self) -> Precision {
        self.precision
    }

    fn tolerance(&self) -> f64 {
        self.concatenated().tolerance()
    }

    fn min_tolerance(&self) -> f64 {
        self.concatenated().min_tolerance()
    }

    fn flops(&self) -> u64 {
        self.concatenated().shape.flops()
    }

    fn label(&self) -> String {
        let [c, h, w] = self.shortcut.image;
        format!(
            "projected{}_n{}_shortcut_c{c}_h{h}_w{w}{}{}{}{}",
            label::sizes(self.x),
            self.n,
            label::pair("s", self.shortcut.stride, 1),
            label::epilogue(self.epilogue),
            label::precision(self.precision),
            label::formats(self.format, self.format),
        )
    }

    fn description(&self) -> String {
        format!(
            "Convolution {}, plus the projection shortcut {}{}{}{}",
            description::filter(&self.product().shape),
            description::filter(&self.shortcut_shape()),
            description::epilogue(self.epilogue),
            description::precision(self.precision),
            description::formats(self.format, self.format),
        )
    }

    fn measured(&self) -> Problem {
        Problem::Projected(Self {
            epilogue: ordered_epilogue(self.epilogue),
            ..*self
        })
    }

    #[cfg(feature = "check")]
    fn reference(&self, inputs: &crate::ir::ReferenceInputs) -> Vec<f64> {
        use super::conv_reference;
        use crate::ir::reference::{activate_all, add, add_bias};

        let channels = [self.x.c, self.shortcut.image[0]].map(|c| c as usize);
        // The columns of both weights alternate.
        let rows = inputs.weights[0].chunks(channels[0] + channels[1]);
        let (own, shortcut): (Vec<_>, Vec<_>) = rows.map(|row| row.split_at(channels[0])).unzip();
        let mut y = conv_reference(&self.product().shape, inputs.x, &own.concat());
        let shortcut = conv_reference(&self.shortcut_shape(), inputs.residual, &shortcut.concat());
        add(&mut y, &shortcut);
        if self.epilogue.bias {
            add_bias(self.output().shape, &mut y, inputs.bias);
        }
        activate_all(self.epilogue.activation, &mut y);
        y
    }
}

#[cfg(all(test, feature = "check"))]
mod tests {
    use super::*;
    use crate::ir::ReferenceInputs;

    /// Computed by hand: one channel of 1x2 pixels, a shortcut of two channels of 2x3 pixels with strides of 2.
    #[test]
    fn sums_of_two_convolutions_worked_by_hand() {
        let problem = ProjectedProblem {
            x: TensorShape::new(1, 1, 1, 2),
            n: 2,
            shortcut: Shortcut {
                image: [2, 2, 3],
                stride: [2, 2],
            },
            epilogue: Epilogue {
                bias: true,
                activation: Activation::Relu,
                ..Epilogue::default()
            },
            precision: Precision::Fp32,
            format: Format::SPLIT_NHWC,
        };
        let shortcut = [
            1.0, 2.0, 3.0, 4.0, 5.0, 6.0, -1.0, -2.0, -3.0, -4.0, -5.0, -6.0,
        ];
        let y = problem.reference(&ReferenceInputs {
            x: &[10.0, 20.0],
            residual: &shortcut,
            weights: &[vec![1.0, 100.0, 10.0, 2.0, 0.0, 1.0]],
            bias: &[0.5, -30.0],
            scale: &[],
            shift: &[],
        });
        // 10 + 100 * 1 - 10 * 1, 20 + 100 * 3 - 10 * 3; 2 * 10 - 1 - 30, 2 * 20 - 3 - 30.
        assert_eq!(y, [100.5, 290.5, 0.0, 7.0]);
        assert_eq!(problem.weights(), [[2, 3, 1, 1]]);
        assert_eq!(problem.flops(), 2 * 2 * 2 * 3);
        // The input, two of six pixels of the shortcut's, the output; three headers; weights and biases.
        let elements = 2 + 2 * 2 + 2 * 2 + 6 + 2;
        let bytes = Problem::Projected(problem).bytes();
        assert_eq!(bytes, 4 * elements + 3 * Format::SPLIT_HEADER_BYTES);
    }
}
