//! CP layer: 1x1, R x 1, 1 x S, 1x1, in one launch.

use super::{ConvProblem, Problem, ProblemKind, measured_prologue, ordered_epilogue};
use crate::ir::{Activation, Precision, Tensor, description};
use serde::Serialize;
use tdc_runtime::{ConvShape, Padding};

/// A CP layer: a convolution whose weight is the sum of `rank` outer products of four vectors (CP paper, eq. 6), computed by the four
/// factors: 1x1 to `rank` channels, an R x 1 and a 1 x S filter of each channel, 1x1 to N (eq. 7).
///
/// There is no bias between the factors, so the zero padding of the vertical and horizontal filters is equivalent to that of the layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct CpProblem {
    /// The convolution that the factors represent. It has one group; its sums are added in a fixed order.
    pub conv: ConvProblem,
    /// Channels of the intermediate tensors.
    pub rank: u32,
}

impl CpProblem {
    /// The factors as convolutions: first, vertical, horizontal, last.
    pub fn factors(&self) -> [ConvShape; 4] {
        self.factors_in_order(false)
    }

    /// The same with the horizontal filter before or after the vertical one. The second filter reads the output of the first.
    pub fn factors_in_order(&self, horizontal_first: bool) -> [ConvShape; 4] {
        let (shape, rank) = (&self.conv.shape, self.rank);
        let (out_h, out_w) = (shape.out_h(), shape.out_w());
        let pointwise = |c, n, h, w| ConvShape {
            batch: shape.batch,
            ..ConvShape::new(c, n, h, w, 1, 1)
        };
        let filter = ConvShape {
            c: rank,
            n: rank,
            groups: rank,
            ..*shape
        };
        let vertical = ConvShape {
            w: if horizontal_first { out_w } else { shape.w },
            s: 1,
            stride: [shape.stride[0], 1],
            padding: Padding {
                left: 0,
                right: 0,
                ..shape.padding
            },
            dilation: [shape.dilation[0], 1],
            ..filter
        };
        let horizontal = ConvShape {
            h: if horizontal_first { shape.h } else { out_h },
            r: 1,
            stride: [1, shape.stride[1]],
            padding: Padding {
                top: 0,
                bottom: 0,
                ..shape.padding
            },
            dilation: [1, shape.dilation[1]],
            ..filter
        };
        let first = pointwise(shape.c, rank, shape.h, shape.w);
        let last = pointwise(rank, shape.n, out_h, out_w);
        match horizontal_first {
            true => [first, horizontal, vertical, last],
            false => [first, vertical, horizontal, last],
        }
    }
}

impl ProblemKind for CpProblem {
    fn input(&self) -> Tensor {
        self.conv.input()
    }

    fn output(&self) -> Tensor {
        self.conv.output()
    }

    fn reads_residual(&self) -> bool {
        self.conv.epilogue.residual
    }

    fn reads_bias(&self) -> bool {
        self.conv.epilogue.bias
    }

    fn scale_shift_channels(&self) -> u32 {
        self.conv.scale_shift_channels()
    }

    fn activations(&self) -> Vec<Activation> {
        self.conv.activations()
    }

    fn weights(&self) -> Vec<[u32; 4]> {
        self.factors().iter().map(ConvShape::weight).collect()
    }

    fn precision(&self) -> Precision {
        self.conv.precision
    }

    fn flops(&self) -> u64 {
        self.factors().iter().map(ConvShape::flops).sum()
    }

    fn label(&self) -> String {
        let conv = self.conv.label();
        let sizes = format!("_n{}_h", self.conv.shape.n);
        let ranked = format!("_r{}{sizes}", self.rank);
        conv.replacen("conv", "cp", 1).replacen(&sizes, &ranked, 1)
    }

    fn description(&self) -> String {
        let conv = &self.conv;
        let filter = description::filter(&conv.shape);
        let mut text = format!("Convolution {filter} of CP rank {}", self.rank);
        text += &description::prologue(conv.prologue);
        text += &description::epilogue(conv.epilogue);
        text + &description::precision(conv.precision)
    }

    fn measured(&self) -> Problem {
        let mut measured = *self;
        measured.conv.prologue = measured_prologue(self.conv.prologue);
        measured.conv.epilogue = ordered_epilogue(self.conv.epilogue);
        Problem::Cp(measured)
    }

    #[cfg(feature = "check")]
    fn reference(&self, inputs: &crate::ir::ReferenceInputs) -> Vec<f64> {
        let conv = &self.conv;
        let factors = self.factors();
        super::conv::factors_reference(self, &factors, conv.prologue, conv.epilogue, inputs)
    }
}
