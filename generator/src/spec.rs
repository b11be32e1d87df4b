//! What is asked: networks of typed ops, layer sets, and the problems that single units solve.

mod config_error;
mod error;
mod identifier;
pub mod layer_set;
mod network;
mod options;
mod problem;
mod tensor;
pub mod text;
pub mod yaml;

pub use config_error::{ConfigError, ConfigErrors, Position};
pub use error::{Place, SpecError};
pub use layer_set::{Layer, LayerSet};
#[cfg(test)]
pub(crate) use network::FACTORS;
pub(crate) use network::nearest;
pub use network::{
    Conv, INPUT_NAME, Linear, Network, NetworkBuilder, Op, OpId, OpKind, Pool, ScaleShift,
};
pub use options::{
    BatchNorm, ConvOptions, LinearOptions, OpOptions, Pad, PoolOptions, ScaleShiftOptions, Tiles,
};
pub use problem::{
    ConvProblem, ConvertProblem, CpProblem, Elementwise, ElementwiseProblem, Epilogue,
    GlobalPoolProblem, Layout, LinearProblem, NextFactor, PoolKind, PoolProblem, Precision,
    Problem, Prologue, Reduce, Tolerance, TuckerProblem,
};
pub use tensor::{MAX_ELEMENTS, ParseShapeError, TensorShape};
pub use text::{Asked, KernelRequest};
pub use yaml::{Config, Overrides};
