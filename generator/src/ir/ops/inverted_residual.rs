//! Inverted residual: 1x1, a depthwise convolution, 1x1, in one launch.

use super::{ConvProblem, Problem, ProblemKind, ordered_epilogue};
use crate::ir::{Activation, Epilogue, Precision, Tensor, TensorShape, description, label};
use serde::Serialize;
use tdc_runtime::ConvShape;

/// The three convolutions of an inverted residual (MobileNet-v2): a 1x1 convolution that expands C channels to E, a depthwise convolution of
/// these, and a 1x1 convolution that projects them to N channels. Each has a bias and an activation function of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct InvertedResidualProblem {
    /// The depthwise convolution: E channels in as many groups.
    pub depthwise: ConvShape,
    /// Input channels C of the expansion.
    pub c: u32,
    /// Output channels N of the projection.
    pub n: u32,
    /// Applied to the sums of the expansion; it has no residual.
    pub expand: Epilogue,
    /// Applied to the sums of the depthwise convolution; it has no residual.
    pub filter: Epilogue,
    /// Applied to the sums of the projection.
    pub project: Epilogue,
    /// How products of the expansion and the projection may be rounded.
    pub precision: Precision,
}

impl InvertedResidualProblem {
    /// The convolutions in order, each with its epilogue.
    pub fn convolutions(&self) -> [ConvProblem; 3] {
        let [expand, filter, project] = self.shapes();
        [
            (expand, self.expand),
            (filter, self.filter),
            (project, self.project),
        ]
        .map(|(shape, epilogue)| ConvProblem {
            epilogue,
            precision: self.precision,
            ..ConvProblem::new(shape)
        })
    }

    /// Their shapes.
    pub fn shapes(&self) -> [ConvShape; 3] {
        let depthwise = self.depthwise;
        let pointwise = |c, n, h, w| ConvShape {
            batch: depthwise.batch,
            ..ConvShape::new(c, n, h, w, 1, 1)
        };
        [
            pointwise(self.c, depthwise.c, depthwise.h, depthwise.w),
            depthwise,
            pointwise(depthwise.n, self.n, depthwise.out_h(), depthwise.out_w()),
        ]
    }
}

impl ProblemKind for InvertedResidualProblem {
    fn input(&self) -> Tensor {
        let ConvShape { batch, h, w, .. } = self.depthwise;
        Tensor::nchw(TensorShape::new(batch, self.c, h, w))
    }

    fn output(&self) -> Tensor {
        let (out_h, out_w) = (self.depthwise.out_h(), self.depthwise.out_w());
        Tensor::nchw(TensorShape::new(self.depthwise.batch, self.n, out_h, out_w))
    }

    fn reads_residual(&self) -> bool {
        self.project.residual
    }

    /// Whether the projection has a bias. Those of the others are weights.
    fn reads_bias(&self) -> bool {
        self.project.bias
    }

    fn activations(&self) -> Vec<Activation> {
        [self.expand, self.filter, self.project]
            .map(|epilogue| epilogue.activation)
            .to_vec()
    }

    /// The weights of the three convolutions, and the biases of the first two, each as one number for each of E channels.
    fn weights(&self) -> Vec<[u32; 4]> {
        let bias = [self.depthwise.c, 1, 1, 1];
        let biases = [self.expand.bias, self.filter.bias].into_iter();
        let biases = biases.filter(|&has_bias| has_bias).map(|_| bias);
        let convolutions = self.shapes();
        let weights = convolutions.iter().map(ConvShape::weight);
        weights.chain(biases).collect()
    }

    fn terms(&self) -> f64 {
        let terms = |shape: ConvShape| {
            let [_, c, r, s] = shape.weight();
            f64::from(c) * f64::from(r) * f64::from(s)
        };
        self.shapes().into_iter().map(terms).sum()
    }

    /// Expansion and projection may each have the bound of the precision.
    fn tolerance(&self) -> f64 {
        (2.5e-8 * self.terms().sqrt()).max(2f64.sqrt() * self.min_tolerance())
    }

    fn precision(&self) -> Precision {
        self.precision
    }

    fn flops(&self) -> u64 {
        self.shapes().iter().map(ConvShape::flops).sum()
    }

    fn label(&self) -> String {
        let shape = &self.depthwise;
        let image_and_filter = label::filter(&ConvShape {
            groups: 1,
            ..*shape
        });
        format!(
            "invertedresidual{}_c{}_e{}_n{}{image_and_filter}{}_depthwise{}_project{}{}",
            label::batch(shape.batch),
            self.c,
            shape.c,
            self.n,
            label::epilogue(self.expand),
            label::epilogue(self.filter),
            label::epilogue(self.project),
            label::precision(self.precision),
        )
    }

    fn description(&self) -> String {
        format!(
            "Inverted residual: 1x1 to {} channels{}, depthwise {}{}, 1x1 to {} channels{}{}",
            self.depthwise.c,
            description::epilogue(self.expand),
            description::filter(&self.depthwise),
            description::epilogue(self.filter),
            self.n,
            description::epilogue(self.project),
            description::precision(self.precision),
        )
    }

    fn measured(&self) -> Problem {
        Problem::InvertedResidual(Self {
            expand: ordered_epilogue(self.expand),
            filter: ordered_epilogue(self.filter),
            project: ordered_epilogue(self.project),
            ..*self
        })
    }

    #[cfg(feature = "check")]
    fn reference(&self, inputs: &crate::ir::ReferenceInputs) -> Vec<f64> {
        use super::conv::conv_reference;
        use crate::ir::reference::{activate_all, add, add_bias};

        let [expand, depthwise, project] = self.shapes();
        let mut biases = inputs.weights[3..].iter();
        let mut bias_if = |has_bias: bool| has_bias.then(|| biases.next()).flatten();
        let ConvShape { batch, h, w, c, .. } = depthwise;
        let (out_h, out_w) = (depthwise.out_h(), depthwise.out_w());
        let mut expanded = conv_reference(&expand, inputs.x, &inputs.weights[0]);
        if let Some(bias) = bias_if(self.expand.bias) {
            add_bias(TensorShape::new(batch, c, h, w), &mut expanded, bias);
        }
        activate_all(self.expand.activation, &mut expanded);
        let mut filtered = conv_reference(&depthwise, &expanded, &inputs.weights[1]);
        if let Some(bias) = bias_if(self.filter.bias) {
            add_bias(
                TensorShape::new(batch, c, out_h, out_w),
                &mut filtered,
                bias,
            );
        }
        activate_all(self.filter.activation, &mut filtered);
        let mut y = conv_reference(&project, &filtered, &inputs.weights[2]);
        if self.project.bias {
            add_bias(self.output().shape, &mut y, inputs.bias);
        }
        if self.project.residual {
            add(&mut y, inputs.residual);
        }
        activate_all(self.project.activation, &mut y);
        y
    }
}
