//! Dense step: the last convolution of a dense layer and the first one of the next layer, in one launch.

use super::{ConvProblem, Problem, ProblemKind, measured_prologue, ordered_epilogue};
use crate::ir::{
    Activation, Epilogue, Precision, Prologue, Tensor, TensorShape, description, label,
};
use serde::Serialize;
use tdc_runtime::ConvShape;

/// A step of a dense block (Huang et al., Densely Connected Convolutional Networks, section 3): the convolution that computes the new
/// channels of a dense layer, and the 1x1 convolution with which the next layer starts. That one reads the concatenation of all channels
/// before and the new ones.
///
/// The concatenation takes the place of the residual. The unit reads its first channels, and writes the new ones after them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct DenseStepProblem {
    /// The convolution of the new channels.
    pub growth: ConvShape,
    /// Applied to its sums; it has no residual.
    pub grown: Epilogue,
    /// Channels of the concatenation before the new ones.
    pub before: u32,
    /// Output channels N of the 1x1 convolution.
    pub n: u32,
    /// Applied to the concatenation as the 1x1 convolution reads it.
    pub prologue: Option<Prologue>,
    /// Applied to the sums of the 1x1 convolution; it has no residual.
    pub epilogue: Epilogue,
    /// How products may be rounded.
    pub precision: Precision,
}

impl DenseStepProblem {
    /// Both convolutions, in order.
    pub fn convolutions(&self) -> [ConvProblem; 2] {
        let growth = ConvProblem {
            epilogue: self.grown,
            precision: self.precision,
            ..ConvProblem::new(self.growth)
        };
        let pointwise = ConvProblem {
            prologue: self.prologue,
            epilogue: self.epilogue,
            precision: self.precision,
            ..ConvProblem::new(self.pointwise())
        };
        [growth, pointwise]
    }

    /// The shape of the 1x1 convolution.
    pub fn pointwise(&self) -> ConvShape {
        let growth = &self.growth;
        let (out_h, out_w) = (growth.out_h(), growth.out_w());
        ConvShape {
            batch: growth.batch,
            ..ConvShape::new(self.before + growth.n, self.n, out_h, out_w, 1, 1)
        }
    }

    /// The channels of the concatenation that the unit writes.
    pub fn new_channels(&self) -> std::ops::Range<u32> {
        self.before..self.before + self.growth.n
    }

    fn concatenation(&self, channels: u32) -> TensorShape {
        let growth = &self.growth;
        TensorShape::new(growth.batch, channels, growth.out_h(), growth.out_w())
    }
}

impl ProblemKind for DenseStepProblem {
    fn input(&self) -> Tensor {
        let ConvShape { batch, c, h, w, .. } = self.growth;
        Tensor::nchw(TensorShape::new(batch, c, h, w))
    }

    fn output(&self) -> Tensor {
        Tensor::nchw(self.concatenation(self.n))
    }

    /// The concatenation, which takes the place of the residual.
    fn reads_residual(&self) -> bool {
        true
    }

    fn residual_shape(&self) -> TensorShape {
        self.concatenation(self.new_channels().end)
    }

    fn appended_channels(&self) -> u32 {
        self.growth.n
    }

    fn reads_bias(&self) -> bool {
        self.epilogue.bias
    }

    fn scale_shift_channels(&self) -> u32 {
        match self.prologue {
            Some(_) => self.new_channels().end,
            None => 0,
        }
    }

    fn activations(&self) -> Vec<Activation> {
        let prologue = self.prologue.map(|prologue| prologue.activation);
        let epilogues = [self.grown, self.epilogue].map(|epilogue| epilogue.activation);
        prologue.into_iter().chain(epilogues).collect()
    }

    /// The weights of both convolutions, and the bias of the first one as one number for each new channel.
    fn weights(&self) -> Vec<[u32; 4]> {
        let convolutions = [self.growth.weight(), self.pointwise().weight()];
        let bias = self.grown.bias.then_some([self.growth.n, 1, 1, 1]);
        convolutions.into_iter().chain(bias).collect()
    }

    fn terms(&self) -> f64 {
        let terms = |shape: ConvShape| {
            let [_, c, r, s] = shape.weight();
            f64::from(c) * f64::from(r) * f64::from(s)
        };
        terms(self.growth) + terms(self.pointwise())
    }

    /// Both convolutions may have the bound of the precision.
    fn tolerance(&self) -> f64 {
        (2.5e-8 * self.terms().sqrt()).max(2f64.sqrt() * self.min_tolerance())
    }

    fn precision(&self) -> Precision {
        self.precision
    }

    fn flops(&self) -> u64 {
        self.growth.flops() + self.pointwise().flops()
    }

    fn label(&self) -> String {
        let growth = &self.growth;
        format!(
            "densestep{}_c{}_grow{}_before{}_n{}{}{}_concat{}{}{}",
            label::batch(growth.batch),
            growth.c,
            growth.n,
            self.before,
            self.n,
            label::filter(growth),
            label::epilogue(self.grown),
            label::prologue(self.prologue),
            label::epilogue(self.epilogue),
            label::precision(self.precision),
        )
    }

    fn description(&self) -> String {
        format!(
            "Dense step: {} to {} channels{}, appended to {}; 1x1 of all to {} channels{}{}{}",
            description::filter(&self.growth),
            self.growth.n,
            description::epilogue(self.grown),
            self.before,
            self.n,
            description::prologue(self.prologue),
            description::epilogue(self.epilogue),
            description::precision(self.precision),
        )
    }

    fn measured(&self) -> Problem {
        Problem::DenseStep(Self {
            grown: ordered_epilogue(self.grown),
            prologue: measured_prologue(self.prologue),
            epilogue: ordered_epilogue(self.epilogue),
            ..*self
        })
    }

    #[cfg(feature = "check")]
    fn reference(&self, inputs: &crate::ir::ReferenceInputs) -> Vec<f64> {
        let appended = self.appended_reference(inputs);
        let [_, pointwise] = self.convolutions();
        let images = |channels: u32| self.concatenation(channels).image_len() as usize;
        let [all, new] = [self.new_channels().end, self.growth.n].map(images);
        let before = inputs.residual.chunks(all);
        let images = before.zip(appended.chunks(new));
        let concatenation = images.flat_map(|(image, new_channels)| {
            let before = &image[..all - new];
            before.iter().chain(new_channels).copied()
        });
        pointwise.reference(&crate::ir::ReferenceInputs {
            x: &concatenation.collect::<Vec<_>>(),
            residual: &[],
            weights: &inputs.weights[1..2],
            ..inputs.clone()
        })
    }

    #[cfg(feature = "check")]
    fn appended_reference(&self, inputs: &crate::ir::ReferenceInputs) -> Vec<f64> {
        let [growth, _] = self.convolutions();
        growth.reference(&crate::ir::ReferenceInputs {
            x: inputs.x,
            residual: &[],
            weights: &inputs.weights[..1],
            bias: inputs.weights.get(2).map_or(&[], |bias| bias),
            scale: &[],
            shift: &[],
        })
    }
}

#[cfg(all(test, feature = "check"))]
mod tests {
    use super::*;
    use crate::ir::ReferenceInputs;

    /// Computed by hand: two images of one channel and two pixels, one channel before, a filter of 1x1.
    #[test]
    fn a_step_worked_by_hand() {
        let problem = DenseStepProblem {
            growth: ConvShape {
                batch: 2,
                ..ConvShape::new(1, 1, 1, 2, 1, 1)
            },
            grown: Epilogue {
                bias: true,
                activation: Activation::Relu,
                ..Epilogue::default()
            },
            before: 1,
            n: 1,
            prologue: Some(Prologue {
                activation: Activation::Relu,
            }),
            epilogue: Epilogue {
                bias: true,
                ..Epilogue::default()
            },
            precision: Precision::Fp32,
        };
        // The values of the new channel are ignored.
        let concatenation = [1.0, 2.0, 77.0, 77.0, 3.0, -4.0, 77.0, 77.0];
        let inputs = ReferenceInputs {
            x: &[1.0, -1.0, 2.0, 3.0],
            residual: &concatenation,
            weights: &[vec![2.0], vec![10.0, 100.0], vec![0.5]],
            bias: &[0.25],
            scale: &[1.0, 1.0],
            shift: &[0.0, -1.0],
        };
        assert_eq!(problem.appended_reference(&inputs), [2.5, 0.0, 4.5, 6.5]);
        // 10 * 1 + 100 * (2.5 - 1), 10 * 2 + 0, 10 * 3 + 100 * 3.5, 0 + 100 * 5.5.
        let expected = [160.25, 20.25, 380.25, 550.25];
        assert_eq!(problem.reference(&inputs), expected);
        assert_eq!(
            problem.weights(),
            [[1, 1, 1, 1], [1, 2, 1, 1], [1, 1, 1, 1]]
        );
        assert_eq!(problem.new_channels(), 1..2);
    }
}
