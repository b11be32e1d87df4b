//! Depthwise separable convolution: a depthwise convolution and a 1x1 convolution.

use super::{Problem, ProblemKind};
use crate::ir::{Activation, Epilogue, Tensor, TensorShape, description, label};
use serde::Serialize;
use tdc_runtime::ConvShape;

/// A depthwise convolution with one output for each channel, and a 1x1 convolution of its output at stride 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct SeparableProblem {
    /// The depthwise convolution; it has as many groups and outputs as input channels.
    pub depthwise: ConvShape,
    /// Applied to the sums of the depthwise convolution; it has no residual.
    pub between: Epilogue,
    /// Output channels.
    pub n: u32,
    /// Applied to the sums of the 1x1 convolution.
    pub epilogue: Epilogue,
}

impl SeparableProblem {
    /// Index of the 1x1 convolution's weight in [`weights`](ProblemKind::weights).
    pub const POINTWISE_WEIGHT: usize = 1;

    /// Numbers of a channel in the first weight: the taps of its filter, then its bias, if there is one.
    pub fn filter_len(&self) -> u32 {
        self.depthwise.r * self.depthwise.s + u32::from(self.between.bias)
    }

    /// Shape of the 1x1 convolution.
    pub fn pointwise(&self) -> ConvShape {
        let shape = &self.depthwise;
        ConvShape {
            batch: shape.batch,
            ..ConvShape::new(shape.c, self.n, shape.out_h(), shape.out_w(), 1, 1)
        }
    }
}

impl ProblemKind for SeparableProblem {
    fn input(&self) -> Tensor {
        let shape = &self.depthwise;
        Tensor::nchw(TensorShape::new(shape.batch, shape.c, shape.h, shape.w))
    }

    fn output(&self) -> Tensor {
        let shape = self.pointwise();
        Tensor::nchw(TensorShape::new(shape.batch, shape.n, shape.h, shape.w))
    }

    fn reads_residual(&self) -> bool {
        self.epilogue.residual
    }

    fn reads_bias(&self) -> bool {
        self.epilogue.bias
    }

    fn activations(&self) -> Vec<Activation> {
        vec![self.between.activation, self.epilogue.activation]
    }

    fn weights(&self) -> Vec<[u32; 4]> {
        let c = self.depthwise.c;
        vec![[c, 1, 1, self.filter_len()], [self.n, c, 1, 1]]
    }

    fn flops(&self) -> u64 {
        self.depthwise.flops() + self.pointwise().flops()
    }

    fn label(&self) -> String {
        let shape = &self.depthwise;
        format!(
            "separable{}_c{}_n{}{}{}_pointwise{}",
            label::batch(shape.batch),
            shape.c,
            self.n,
            label::filter(shape),
            label::epilogue(self.between),
            label::epilogue(self.epilogue)
        )
    }

    fn description(&self) -> String {
        format!(
            "Depthwise convolution, {}{}, then 1x1 convolution{}",
            description::filter(&self.depthwise),
            description::epilogue(self.between),
            description::epilogue(self.epilogue)
        )
    }

    fn measured(&self) -> Problem {
        let measured = |epilogue: Epilogue| Epilogue {
            bias: true,
            activation: Activation::Relu,
            ..epilogue
        };
        Problem::Separable(Self {
            between: measured(self.between),
            epilogue: measured(self.epilogue),
            ..*self
        })
    }

    #[cfg(feature = "check")]
    fn reference(&self, inputs: &crate::ir::ReferenceInputs) -> Vec<f64> {
        use crate::ir::conv_reference;
        use crate::ir::reference::{activate_all, add, add_bias};

        let taps = (self.depthwise.r * self.depthwise.s) as usize;
        let rows = || inputs.weights[0].chunks(self.filter_len() as usize);
        let filters: Vec<f64> = rows().flat_map(|row| &row[..taps]).copied().collect();
        let mut inner = conv_reference(&self.depthwise, inputs.x, &filters);
        if self.between.bias {
            let biases: Vec<f64> = rows().map(|row| row[taps]).collect();
            let shape = self.pointwise();
            let inner_shape = TensorShape::new(shape.batch, shape.c, shape.h, shape.w);
            add_bias(inner_shape, &mut inner, &biases);
        }
        activate_all(self.between.activation, &mut inner);
        let weight = &inputs.weights[Self::POINTWISE_WEIGHT];
        let mut y = conv_reference(&self.pointwise(), &inner, weight);
        if self.epilogue.bias {
            add_bias(self.output().shape, &mut y, inputs.bias);
        }
        if self.epilogue.residual {
            add(&mut y, inputs.residual);
        }
        activate_all(self.epilogue.activation, &mut y);
        y
    }
}
