//! Conversion between layouts.

use super::ProblemKind;
use crate::ir::{Format, Layout, Problem, Tensor, TensorShape, label};
use serde::Serialize;

/// Copy of a tensor to another layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct ConvertProblem {
    /// Shape of the tensor.
    pub x: TensorShape,
    /// The layout of the output; the input has the other one.
    pub to: Layout,
}

impl ProblemKind for ConvertProblem {
    fn input(&self) -> Tensor {
        let from = match self.to {
            Layout::Nchw => Layout::Hwcn,
            Layout::Hwcn => Layout::Nchw,
        };
        Tensor {
            shape: self.x,
            format: Format::fp32(from),
        }
    }

    fn output(&self) -> Tensor {
        Tensor {
            shape: self.x,
            format: Format::fp32(self.to),
        }
    }

    fn flops(&self) -> u64 {
        self.x.len()
    }

    fn label(&self) -> String {
        let layout = self.to.name().to_lowercase();
        format!("convert{}_{layout}", label::sizes(self.x))
    }

    fn description(&self) -> String {
        "Conversion between layouts".to_owned()
    }

    fn measured(&self) -> Problem {
        Problem::Convert(*self)
    }

    /// References are dense NCHW regardless of the problem's layouts.
    #[cfg(feature = "check")]
    fn reference(&self, inputs: &crate::ir::ReferenceInputs) -> Vec<f64> {
        inputs.x.to_vec()
    }
}
