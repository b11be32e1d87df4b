//! Normalisation of an input of a network.

use super::{Problem, ProblemKind};
use crate::ir::{Format, Tensor, TensorShape, label};
use serde::Serialize;

/// `y = scale[c] x + shift[c]`, to fp32 NCHW. An input in another format than fp32 NCHW is dense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct NormalizeProblem {
    /// Shape of the tensor.
    pub x: TensorShape,
    /// Format of the input: fp32 or uint8, in NCHW or NHWC.
    pub from: Format,
}

impl ProblemKind for NormalizeProblem {
    fn input(&self) -> Tensor {
        Tensor::new(self.x, self.from)
    }

    fn output(&self) -> Tensor {
        Tensor::nchw(self.x)
    }

    fn scale_shift_channels(&self) -> u32 {
        self.x.c
    }

    fn flops(&self) -> u64 {
        self.x.len()
    }

    fn label(&self) -> String {
        let from = label::input_format(self.from);
        format!("normalize{}_from{from}", label::sizes(self.x))
    }

    fn description(&self) -> String {
        format!("scale * x + shift per channel, of {}", self.from.name())
    }

    fn measured(&self) -> Problem {
        Problem::Normalize(*self)
    }

    #[cfg(feature = "check")]
    fn reference(&self, inputs: &crate::ir::ReferenceInputs) -> Vec<f64> {
        crate::ir::reference::scale_shift(self.x, inputs.x, inputs.scale, inputs.shift)
    }
}
