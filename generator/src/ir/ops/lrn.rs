//! Local response normalisation: over neighbouring channels of each pixel.

use super::ProblemKind;
use crate::ir::{ActivationParameter, Problem, Tensor, TensorShape, label};
use serde::Serialize;

/// `y[c] = x[c] / (k + alpha / size * sum(x[i]^2))^beta`, with the sum over the `size` channels around `c` that exist; of an even number one
/// more follows than precedes it, as ONNX defines it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct Lrn {
    /// Number of channels, at least 1.
    pub size: u32,
    /// Factor of the mean of the squares.
    pub alpha: ActivationParameter,
    /// Exponent.
    pub beta: ActivationParameter,
    /// Added to the mean of the squares; positive.
    pub k: ActivationParameter,
}

impl Lrn {
    /// The default of PyTorch and ONNX for `alpha`.
    pub const DEFAULT_ALPHA: f32 = 1e-4;

    /// The default of PyTorch and ONNX for `beta`.
    pub const DEFAULT_BETA: f32 = 0.75;

    /// The default of PyTorch and ONNX for `k`.
    pub const DEFAULT_K: f32 = 1.0;

    /// Channels of the window before its own.
    pub fn before(&self) -> u32 {
        (self.size - 1) / 2
    }

    /// Channels of the window after its own.
    pub fn after(&self) -> u32 {
        self.size - 1 - self.before()
    }
}

/// A local response normalisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct LrnProblem {
    /// What is computed.
    pub lrn: Lrn,
    /// Shape of input and output.
    pub x: TensorShape,
}

impl ProblemKind for LrnProblem {
    fn input(&self) -> Tensor {
        Tensor::nchw(self.x)
    }

    fn output(&self) -> Tensor {
        Tensor::nchw(self.x)
    }

    fn terms(&self) -> f64 {
        f64::from(self.lrn.size)
    }

    fn flops(&self) -> u64 {
        self.x
            .len()
            .saturating_mul(u64::from(self.lrn.size.min(self.x.c)))
    }

    fn label(&self) -> String {
        let Lrn {
            size,
            alpha,
            beta,
            k,
        } = self.lrn;
        let [alpha, beta, k] = [alpha, beta, k].map(|number| label::number_label(number.get()));
        format!("lrn{size}x{alpha}x{beta}x{k}{}", label::sizes(self.x))
    }

    fn description(&self) -> String {
        let size = self.lrn.size;
        format!("Local response normalisation over {size} channels")
    }

    fn measured(&self) -> Problem {
        Problem::Lrn(*self)
    }

    #[cfg(feature = "check")]
    fn reference(&self, inputs: &crate::ir::ReferenceInputs) -> Vec<f64> {
        lrn_reference(self, inputs.x)
    }
}

/// The normalisation by its definition, element by element.
#[cfg(feature = "check")]
pub fn lrn_reference(p: &LrnProblem, x: &[f64]) -> Vec<f64> {
    let (channels, pixels) = (p.x.c as usize, p.x.pixels() as usize);
    let [alpha, beta, k] = [p.lrn.alpha, p.lrn.beta, p.lrn.k].map(|n| f64::from(n.get()));
    let (before, after) = (p.lrn.before() as usize, p.lrn.after() as usize);
    let mut y = Vec::new();
    for image in x.chunks(channels * pixels) {
        for c in 0..channels {
            let window = c.saturating_sub(before)..(c + after + 1).min(channels);
            for pixel in 0..pixels {
                let squares = window.clone().map(|i| image[i * pixels + pixel].powi(2));
                let mean = squares.sum::<f64>() / f64::from(p.lrn.size);
                y.push(image[c * pixels + pixel] / (k + alpha * mean).powf(beta));
            }
        }
    }
    y
}

#[cfg(all(test, feature = "check"))]
mod tests {
    use super::*;

    /// Of two channels, the window is the channel and the one after it.
    #[test]
    fn windows_of_even_size_reach_further_after() {
        let [alpha, beta, k] = [2.0, 1.0, 1.0].map(ActivationParameter::new);
        let lrn = Lrn {
            size: 2,
            alpha,
            beta,
            k,
        };
        let x = TensorShape::new(1, 3, 1, 1);
        let y = lrn_reference(&LrnProblem { lrn, x }, &[1.0, 2.0, 3.0]);
        assert_eq!(y, [1.0 / 6.0, 2.0 / 14.0, 3.0 / 10.0]);
    }
}
