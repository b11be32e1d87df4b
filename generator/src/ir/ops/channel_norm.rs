//! Normalisation over the channels of each pixel.

use super::ProblemKind;
use crate::ir::{ActivationParameter, Problem, Tensor, TensorShape, label};
use serde::Serialize;

/// What is computed from the channels of a pixel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChannelNorm {
    /// `exp(x[c]) / sum(exp(x))`.
    Softmax,
    /// `scale[c] * (x[c] - mean) / sqrt(variance + eps) + shift[c]`, with the variance of all channels, not of a sample.
    LayerNorm {
        /// Added to the variance.
        eps: ActivationParameter,
    },
    /// `x[c] / max(norm, eps)`, with the square root of the sum of all squares as the norm.
    L2 {
        /// The least norm, at least [`MIN_EPS`](Self::MIN_EPS).
        eps: ActivationParameter,
    },
}

impl ChannelNorm {
    /// PyTorch's default of the least norm.
    pub const DEFAULT_L2_EPS: f32 = 1e-12;

    /// The least `eps` of an L2 norm: its reciprocal is finite.
    pub const MIN_EPS: f32 = f32::MIN_POSITIVE;
}

/// A normalisation over the channels of each pixel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct ChannelNormProblem {
    /// What is computed.
    pub norm: ChannelNorm,
    /// Shape of input and output.
    pub x: TensorShape,
}

impl ProblemKind for ChannelNormProblem {
    fn input(&self) -> Tensor {
        Tensor::nchw(self.x)
    }

    fn output(&self) -> Tensor {
        Tensor::nchw(self.x)
    }

    fn scale_shift_channels(&self) -> u32 {
        match self.norm {
            ChannelNorm::LayerNorm { .. } => self.x.c,
            ChannelNorm::Softmax | ChannelNorm::L2 { .. } => 0,
        }
    }

    fn terms(&self) -> f64 {
        f64::from(self.x.c)
    }

    fn flops(&self) -> u64 {
        // Each pass reads every element.
        let passes = match self.norm {
            ChannelNorm::Softmax | ChannelNorm::LayerNorm { .. } => 3,
            ChannelNorm::L2 { .. } => 2,
        };
        passes * self.x.len()
    }

    fn label(&self) -> String {
        let kind = match self.norm {
            ChannelNorm::Softmax => "softmax".to_owned(),
            ChannelNorm::LayerNorm { eps } => {
                format!("layernorm{}", label::number_label(eps.get()))
            }
            ChannelNorm::L2 { eps } => format!("l2norm{}", label::number_label(eps.get())),
        };
        kind + &label::sizes(self.x)
    }

    fn description(&self) -> String {
        match self.norm {
            ChannelNorm::Softmax => "Softmax over the channels of each pixel".to_owned(),
            ChannelNorm::LayerNorm { eps } => {
                let eps = eps.get();
                format!("Layer norm over the channels of each pixel, eps {eps}")
            }
            ChannelNorm::L2 { eps } => {
                let eps = eps.get();
                format!("Channels of each pixel over their L2 norm, which is at least {eps}")
            }
        }
    }

    fn measured(&self) -> Problem {
        Problem::ChannelNorm(*self)
    }

    #[cfg(feature = "check")]
    fn reference(&self, inputs: &crate::ir::ReferenceInputs) -> Vec<f64> {
        use crate::ir::reference::scale_shift;

        let y = channel_norm_reference(self, inputs.x);
        match self.norm {
            ChannelNorm::Softmax | ChannelNorm::L2 { .. } => y,
            ChannelNorm::LayerNorm { .. } => scale_shift(self.x, &y, inputs.scale, inputs.shift),
        }
    }
}

/// The normalisation by its definition, pixel by pixel, without scale and shift.
#[cfg(feature = "check")]
pub fn channel_norm_reference(p: &ChannelNormProblem, x: &[f64]) -> Vec<f64> {
    let (channels, pixels) = (p.x.c as usize, p.x.pixels() as usize);
    let mut y = x.to_vec();
    for image in y.chunks_mut(channels * pixels) {
        for pixel in 0..pixels {
            let places = || (0..channels).map(|c| c * pixels + pixel);
            let values: Vec<f64> = places().map(|place| image[place]).collect();
            let normed: Vec<f64> = match p.norm {
                ChannelNorm::Softmax => {
                    let largest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    let powers = values.iter().map(|value| (value - largest).exp());
                    let powers: Vec<f64> = powers.collect();
                    let sum: f64 = powers.iter().sum();
                    powers.iter().map(|power| power / sum).collect()
                }
                ChannelNorm::L2 { eps } => {
                    let squares: f64 = values.iter().map(|value| value * value).sum();
                    let norm = squares.sqrt().max(f64::from(eps.get()));
                    values.iter().map(|value| value / norm).collect()
                }
                ChannelNorm::LayerNorm { eps } => {
                    let count = channels as f64;
                    let mean = values.iter().sum::<f64>() / count;
                    let squares = values.iter().map(|value| (value - mean).powi(2));
                    let variance = squares.sum::<f64>() / count;
                    let deviation = (variance + f64::from(eps.get())).sqrt();
                    let centred = values.iter().map(|value| value - mean);
                    centred.map(|value| value / deviation).collect()
                }
            };
            for (place, value) in places().zip(normed) {
                image[place] = value;
            }
        }
    }
    y
}

#[cfg(all(test, feature = "check"))]
mod tests {
    use super::*;

    /// Values of PyTorch's `softmax` and `layer_norm` along the channels.
    #[test]
    fn known_values() {
        let normed = |norm| {
            let x = TensorShape::new(1, 3, 1, 2);
            let values = [1.0, 5.0, 2.0, 5.0, 3.0, 5.0];
            channel_norm_reference(&ChannelNormProblem { norm, x }, &values)
        };
        let third = 1.0 / 3.0;
        let softmax = normed(ChannelNorm::Softmax);
        let expected = [0.090_030_573_170_38, third, 0.244_728_471_054_79, third];
        for (found, expected) in softmax.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-12, "{softmax:?}");
        }
        let eps = ActivationParameter::new(0.25);
        let layer_norm = normed(ChannelNorm::LayerNorm { eps });
        let deviation = (2.0f64 / 3.0 + 0.25).sqrt();
        assert_eq!(
            layer_norm,
            [-1.0 / deviation, 0.0, 0.0, 0.0, 1.0 / deviation, 0.0]
        );
    }
}
