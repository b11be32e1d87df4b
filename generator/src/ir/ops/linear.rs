//! Fully connected layer.

use super::{Problem, ProblemKind, ordered_epilogue};
use crate::ir::{Activation, Epilogue, Tensor, TensorShape, description, label};
use serde::Serialize;

/// `y = W x + bias` for every row of a batch: x is `batch x c`, y `batch x n`, W `n x c`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct LinearProblem {
    /// Rows.
    pub batch: u32,
    /// Input features.
    pub c: u32,
    /// Output features.
    pub n: u32,
    /// Applied to the sums; a linear layer has no residual.
    pub epilogue: Epilogue,
}

impl LinearProblem {
    /// The two layers that replace one whose weight has this rank. The last has the epilogue.
    pub fn low_rank_factors(&self, rank: u32) -> [Self; 2] {
        let first = Self {
            n: rank,
            epilogue: Epilogue::default(),
            ..*self
        };
        [first, Self { c: rank, ..*self }]
    }
}

impl ProblemKind for LinearProblem {
    fn input(&self) -> Tensor {
        Tensor::nchw(TensorShape::new(self.batch, self.c, 1, 1))
    }

    fn output(&self) -> Tensor {
        Tensor::nchw(TensorShape::new(self.batch, self.n, 1, 1))
    }

    fn reads_bias(&self) -> bool {
        self.epilogue.bias
    }

    fn activations(&self) -> Vec<Activation> {
        vec![self.epilogue.activation]
    }

    fn weights(&self) -> Vec<[u32; 4]> {
        vec![[self.n, self.c, 1, 1]]
    }

    fn flops(&self) -> u64 {
        2 * u64::from(self.batch) * u64::from(self.c) * u64::from(self.n)
    }

    fn label(&self) -> String {
        format!(
            "linear{}_c{}_n{}{}",
            label::batch(self.batch),
            self.c,
            self.n,
            label::epilogue(self.epilogue)
        )
    }

    fn description(&self) -> String {
        format!(
            "Fully connected layer{}",
            description::epilogue(self.epilogue)
        )
    }

    fn measured(&self) -> Problem {
        Problem::Linear(Self {
            epilogue: ordered_epilogue(self.epilogue),
            ..*self
        })
    }

    #[cfg(feature = "check")]
    fn reference(&self, inputs: &crate::ir::ReferenceInputs) -> Vec<f64> {
        use crate::ir::reference::{activate_all, add_bias};

        let (c, n) = (self.c as usize, self.n as usize);
        let mut y = linear_reference(c, n, inputs.x, &inputs.weights[0]);
        if self.epilogue.bias {
            add_bias(self.output().shape, &mut y, inputs.bias);
        }
        activate_all(self.epilogue.activation, &mut y);
        y
    }
}

/// Only the product: x has rows of `c` features, the weight `n` rows of `c`.
#[cfg(feature = "check")]
pub fn linear_reference(c: usize, n: usize, x: &[f64], weight: &[f64]) -> Vec<f64> {
    x.chunks(c)
        .flat_map(|row| {
            (0..n).map(move |n| {
                let weights = &weight[n * c..][..c];
                weights.iter().zip(row).map(|(w, x)| w * x).sum::<f64>()
            })
        })
        .collect()
}
