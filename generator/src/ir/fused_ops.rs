//! What a convolution or linear layer does besides its sum, in the same launch.

use super::Activation;
use serde::Serialize;

/// What is applied to the input of a convolution before it is padded: a per-channel `scale * x + shift`, then an activation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct Prologue {
    /// Applied to `scale * x + shift`.
    pub activation: Activation,
}

/// What is applied to the sum of a convolution or linear layer, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Default)]
pub struct Epilogue {
    /// Adds one value for each output channel.
    pub bias: bool,
    /// Adds a tensor of the output's shape and format.
    pub residual: bool,
    /// Applied last.
    pub activation: Activation,
}
