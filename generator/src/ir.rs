//! What is computed: networks of typed ops, sets of layers, and the problems that single units solve.

mod error;
mod identifier;
mod layer_set;
mod network;
mod options;
mod problem;
mod tensor;

pub use error::{SpecError, SpecLocation};
pub(crate) use identifier::reserved_reason;
pub(crate) use layer_set::is_file_name;
pub use layer_set::{LayerSet, LayerSpec, symbol};
#[cfg(test)]
pub(crate) use network::FACTOR_SUFFIXES;
pub use network::{
    Conv, INPUT_NAME, Linear, Network, NetworkBuilder, Op, OpId, OpKind, Pool, ScaleShift,
};
pub use options::{
    BatchNorm, ConvOptions, LinearOptions, OpOptions, PaddingOption, PoolOptions,
    ScaleShiftOptions, TilePolicy,
};
pub use problem::{
    ConvProblem, ConvertProblem, CpProblem, Elementwise, ElementwiseProblem, Epilogue,
    GlobalPoolProblem, Layout, LinearProblem, NextFactor, PoolKind, PoolProblem, Precision,
    Problem, Prologue, Reduce, Tolerance, TuckerProblem,
};
pub use tensor::{MAX_ELEMENTS, ParseShapeError, TensorShape};
