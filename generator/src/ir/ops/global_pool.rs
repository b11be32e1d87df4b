//! Pooling over the complete image.

use super::ProblemKind;
use crate::ir::{Problem, Tensor, TensorShape, label};
use serde::Serialize;

/// Pooling over the complete image, to `batch x c x 1 x 1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct GlobalPoolProblem {
    /// Maximum instead of average.
    pub max: bool,
    /// Shape of the input.
    pub x: TensorShape,
}

impl ProblemKind for GlobalPoolProblem {
    fn input(&self) -> Tensor {
        Tensor::nchw(self.x)
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
        format!("{kind}{}", label::sizes(self.x))
    }

    fn description(&self) -> String {
        match self.max {
            true => "Maximum of each channel".to_owned(),
            false => "Average of each channel".to_owned(),
        }
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
