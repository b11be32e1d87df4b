//! The tensors of a network in float64.

use super::LossError;
use crate::gpu::{DEFAULT_GPU, gpu};
use crate::ir::{BatchNorm, Network};
use crate::plan::{plan_network, recipes};
use tdc_weights::{Checkpoint, resolve};

/// A checkpoint that has all tensors of a network.
pub(super) struct Tensors<'a> {
    checkpoint: &'a Checkpoint,
}

/// A BatchNorm's parameters, for each channel.
pub(super) struct BatchNormTensors {
    /// Gamma.
    pub gamma: Vec<f64>,
    /// Beta.
    pub beta: Vec<f64>,
    /// Gamma over the standard deviation of the input.
    pub scale: Vec<f64>,
}

impl<'a> Tensors<'a> {
    /// Checks names, shapes and values as `pack` does.
    pub(super) fn new(network: &Network, checkpoint: &'a Checkpoint) -> Result<Self, LossError> {
        let gpu = gpu(DEFAULT_GPU).map_err(|error| LossError::Plan(error.to_string()))?;
        let plan = plan_network(network, gpu).map_err(|errors| {
            let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
            LossError::Plan(errors.join("\n"))
        })?;
        resolve(&recipes(network, &plan), checkpoint)?;
        Ok(Self { checkpoint })
    }

    /// The weight of a convolution or linear layer.
    pub(super) fn weight(&self, layer: &str) -> Vec<f64> {
        self.tensor(&format!("{layer}.weight"))
    }

    /// The bias of a layer.
    pub(super) fn bias(&self, layer: &str) -> Vec<f64> {
        self.tensor(&format!("{layer}.bias"))
    }

    /// Scale and shift of an op without a BatchNorm.
    pub(super) fn scale_shift(&self, op: &str) -> [Vec<f64>; 2] {
        ["scale", "shift"].map(|part| self.tensor(&format!("{op}.{part}")))
    }

    pub(super) fn batch_norm(&self, bn: &BatchNorm) -> BatchNormTensors {
        let part = |part: &str| self.tensor(&format!("{}.{part}", bn.name));
        let variance = part("running_var");
        let channels = variance.len();
        let or = |values: Vec<f64>, default: f64| match values.is_empty() {
            true => vec![default; channels],
            false => values,
        };
        let gamma = or(part("weight"), 1.0);
        let scale = gamma.iter().zip(&variance);
        let scale = scale.map(|(gamma, variance)| gamma / (variance + bn.eps).sqrt());
        BatchNormTensors {
            scale: scale.collect(),
            beta: or(part("bias"), 0.0),
            gamma,
        }
    }

    /// A tensor that was checked; empty if it is optional and missing.
    fn tensor(&self, name: &str) -> Vec<f64> {
        let tensor = self.checkpoint.tensor(name);
        tensor.and_then(Result::ok).unwrap_or_default()
    }
}
