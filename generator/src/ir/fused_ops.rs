//! Ops that a convolution or linear layer computes in addition to its sum, in the same launch.

use super::Activation;
use serde::Serialize;

/// The prologue of a convolution, which is applied to the input before padding: `scale * x + shift` per channel, then an activation
/// function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct Prologue {
    /// Activation function of `scale * x + shift`.
    pub activation: Activation,
}

/// The epilogue of a convolution or linear layer, which is applied to its sums in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Default)]
pub struct Epilogue {
    /// Adds one value for each output channel.
    pub bias: bool,
    /// Adds a tensor of the output's shape and format.
    pub residual: bool,
    /// Activation function, applied last.
    pub activation: Activation,
}
