//! What is asked: networks of typed ops, layer sets, and the problems that single units solve.

mod error;
mod network;
mod options;
mod problem;
mod tensor;

pub use error::{Place, SpecError};
pub(crate) use network::nearest;
pub use network::{
    Conv, INPUT_NAME, Linear, Network, NetworkBuilder, Op, OpId, OpKind, Pool, ScaleShift,
};
pub use options::{
    BatchNorm, ConvOptions, LinearOptions, OpOptions, Pad, PoolOptions, ScaleShiftOptions,
};
pub use problem::{
    ConvProblem, Elementwise, ElementwiseProblem, Epilogue, GlobalPoolProblem, LinearProblem,
    PoolKind, PoolProblem, Problem, Prologue,
};
pub use tensor::{MAX_ELEMENTS, TensorShape};
