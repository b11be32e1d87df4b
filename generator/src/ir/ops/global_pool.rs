//! Pooling over the complete image.

use super::ProblemKind;
use crate::ir::{Format, Problem, Tensor, TensorShape, description, label};
use serde::Serialize;

/// Pooling over the complete image, to `batch x c x 1 x 1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct GlobalPoolProblem {
    /// Maximum instead of average.
    pub max: bool,
    /// Shape of the input.
    pub x: TensorShape,
    /// Format of the input. The output is fp32.
    pub input: Format,
}

impl ProblemKind for GlobalPoolProblem {
    fn input(&self) -> Tensor {
        Tensor::new(self.x, self.input)
    }

    fn output(&self) -> Tensor {
        Tensor::nchw(TensorShape::new(self.x.batch, self.x.c, 1, 1))
    }

    fn terms(&self) -> f64 {
        self.x.pixels() as f64
    }

    fn flops(&self) -> u64 {
        self.x.len()
    }

    fn label(&self) -> String {
        let kind = if self.max {
            "globalmaxpool"
        } else {
            "globalavgpool"
        };
        let formats = label::formats(self.input, Format::default());
        format!("{kind}{}{formats}", label::sizes(self.x))
    }

    fn description(&self) -> String {
        let text = match self.max {
            true => "Maximum of each channel",
            false => "Average of each channel",
        };
        text.to_owned() + &description::formats(self.input, Format::default())
    }

    fn measured(&self) -> Problem {
        Problem::GlobalPool(*self)
    }

    #[cfg(feature = "check")]
    fn reference(&self, inputs: &crate::ir::ReferenceInputs) -> Vec<f64> {
        global_pool_reference(self, inputs.x)
    }
}

/// Plain loops over every channel.
#[cfg(feature = "check")]
pub fn global_pool_reference(p: &GlobalPoolProblem, x: &[f64]) -> Vec<f64> {
    let pixels = p.x.pixels() as usize;
    x.chunks(pixels)
        .map(|plane| {
            if p.max {
                plane.iter().copied().fold(f64::NEG_INFINITY, f64::max)
            } else {
                plane.iter().sum::<f64>() / pixels as f64
            }
        })
        .collect()
}
