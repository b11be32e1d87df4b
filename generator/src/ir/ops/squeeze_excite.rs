//! Squeeze-and-excite: a factor for each channel, computed from the averages of all channels.

use super::{Problem, ProblemKind, measured_activation};
use crate::ir::{Activation, Epilogue, Tensor, TensorShape, description, label};
use serde::Serialize;

/// `y[c] = after(x[c] * gate[c])` with `gate = excite(W2 squeeze(W1 average(x)))`: the average of each channel, two fully connected layers,
/// and a product. W1 is `squeezed x c`, W2 `c x squeezed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct SqueezeExciteProblem {
    /// Shape of input and output.
    pub x: TensorShape,
    /// Output features of the first layer.
    pub squeezed: u32,
    /// Applied to the sums of the first layer; it has no residual.
    pub squeeze: Epilogue,
    /// Applied to the sums of the second layer; it has no residual.
    pub excite: Epilogue,
    /// Activation function of the product.
    pub after: Activation,
}

impl ProblemKind for SqueezeExciteProblem {
    fn input(&self) -> Tensor {
        Tensor::nchw(self.x)
    }

    fn output(&self) -> Tensor {
        Tensor::nchw(self.x)
    }

    /// Whether the second layer has a bias. That of the first is a weight.
    fn reads_bias(&self) -> bool {
        self.excite.bias
    }

    fn activations(&self) -> Vec<Activation> {
        vec![self.squeeze.activation, self.excite.activation, self.after]
    }

    /// Both layers' weights, and the bias of the first layer as one number for each of its outputs.
    fn weights(&self) -> Vec<[u32; 4]> {
        let (c, squeezed) = (self.x.c, self.squeezed);
        let mut weights = vec![[squeezed, c, 1, 1], [c, squeezed, 1, 1]];
        weights.extend(self.squeeze.bias.then_some([squeezed, 1, 1, 1]));
        weights
    }

    fn flops(&self) -> u64 {
        let products = 4 * u64::from(self.x.batch) * u64::from(self.x.c) * u64::from(self.squeezed);
        2 * self.x.len() + products
    }

    fn label(&self) -> String {
        let after = match self.after {
            Activation::None => String::new(),
            other => format!("_after_{}", label::activation(other)),
        };
        format!(
            "squeezeexcite{}_n{}{}_gate{}{after}",
            label::sizes(self.x),
            self.squeezed,
            label::epilogue(self.squeeze),
            label::epilogue(self.excite),
        )
    }

    fn description(&self) -> String {
        format!(
            "Squeeze-and-excite: average of each channel, fully connected layer to {}{}, fully connected layer{}, product with the \
             input{}",
            self.squeezed,
            description::epilogue(self.squeeze),
            description::epilogue(self.excite),
            description::activation(self.after)
        )
    }

    fn measured(&self) -> Problem {
        let measured = |epilogue: Epilogue| Epilogue {
            bias: true,
            activation: Activation::Relu,
            ..epilogue
        };
        Problem::SqueezeExcite(Self {
            squeeze: measured(self.squeeze),
            excite: measured(self.excite),
            after: measured_activation(self.after),
            ..*self
        })
    }

    #[cfg(feature = "check")]
    fn reference(&self, inputs: &crate::ir::ReferenceInputs) -> Vec<f64> {
        use crate::ir::reference::{activate_all, add_bias};
        use crate::ir::{
            BinaryOp, Format, GlobalPoolProblem, global_pool_reference, linear_reference,
        };

        let (c, squeezed) = (self.x.c as usize, self.squeezed as usize);
        let vectors = |channels| TensorShape::new(self.x.batch, channels, 1, 1);
        let average = GlobalPoolProblem {
            max: false,
            x: self.x,
            input: Format::default(),
        };
        let means = global_pool_reference(&average, inputs.x);
        let mut hidden = linear_reference(c, squeezed, &means, &inputs.weights[0]);
        if self.squeeze.bias {
            add_bias(vectors(self.squeezed), &mut hidden, &inputs.weights[2]);
        }
        activate_all(self.squeeze.activation, &mut hidden);
        let weight = &inputs.weights[1];
        let mut gates = linear_reference(squeezed, c, &hidden, weight);
        if self.excite.bias {
            add_bias(vectors(self.x.c), &mut gates, inputs.bias);
        }
        activate_all(self.excite.activation, &mut gates);
        let mut y = inputs.x.to_vec();
        BinaryOp::Gate.apply(self.x, &mut y, &gates);
        activate_all(self.after, &mut y);
        y
    }
}
