//! Conversion between formats.

use super::ProblemKind;
use crate::ir::{Format, Problem, Tensor, TensorShape, label};
use serde::Serialize;

/// Copy of a tensor to another format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct ConvertProblem {
    /// Shape of the tensor.
    pub x: TensorShape,
    /// Format of the input.
    pub from: Format,
    /// Format of the output. One of both is fp32 NCHW.
    pub to: Format,
}

impl ProblemKind for ConvertProblem {
    fn input(&self) -> Tensor {
        Tensor::new(self.x, self.from)
    }

    fn output(&self) -> Tensor {
        Tensor::new(self.x, self.to)
    }

    fn flops(&self) -> u64 {
        self.x.len()
    }

    fn label(&self) -> String {
        // The other format of a conversion from HWCN is not named: it came first.
        let formats = label::formats(self.from, self.to);
        let formats = match &formats[..] {
            "_hwcn" => "_nchw",
            "" => "_hwcn",
            formats => formats,
        };
        format!("convert{}{formats}", label::sizes(self.x))
    }

    fn description(&self) -> String {
        format!("Conversion from {} to {}", self.from.name(), self.to.name())
    }

    fn measured(&self) -> Problem {
        Problem::Convert(*self)
    }

    /// References are dense NCHW regardless of the problem's formats.
    #[cfg(feature = "check")]
    fn reference(&self, inputs: &crate::ir::ReferenceInputs) -> Vec<f64> {
        inputs.x.to_vec()
    }
}
