//! What is computed: networks of typed ops, sets of layers, and the problems that single units solve.
//!
//! [`Network`] is a graph of ops as the user wrote them, with every size inferred. [`Problem`] is what one unit computes, with
//! what was fused to it; each kind of problem is a [`ProblemKind`] with a file of its own.

mod activation;
mod batches;
mod description;
mod error;
mod format;
mod fused_ops;
mod identifier;
mod input_encoding;
mod label;
mod layer_set;
mod network;
mod ops;
mod options;
mod precision;
#[cfg(feature = "check")]
pub mod reference;
mod tensor;

#[cfg(feature = "onnx")]
pub(crate) use activation::erfc;
pub use activation::{Activation, ActivationParameter, activate};
pub(crate) use activation::{is_transcendental, never_grows};
pub use batches::Batches;
pub use error::{SpecError, SpecLocation};
pub use format::{DType, Format, Layout, Tensor};
pub use fused_ops::{Epilogue, Prologue};
pub(crate) use identifier::reserved_reason;
pub use input_encoding::InputEncoding;
pub(crate) use label::{NHWC_FORMATS, activation_of_label, number_label, number_of_label};
pub(crate) use layer_set::is_file_name;
pub use layer_set::{LayerSet, LayerSpec, symbol};
#[cfg(feature = "onnx")]
pub(crate) use network::is_name;
pub(crate) use network::{CORE_LAST, factor_names, op_errors};
pub use network::{
    Conv, ConvTranspose, INPUT_NAME, Linear, Network, NetworkBuilder, NetworkOutput, Op, OpId,
    OpKind, OutputOptions, Pool, ScaleShift,
};
pub use ops::{
    AxisPlaces, BinaryOp, ChannelNorm, ChannelNormProblem, ConvProblem, ConvTransposeProblem,
    ConvertProblem, Coordinates, CpProblem, DenseStepProblem, Elementwise, ElementwiseProblem,
    FusedTucker, GlobalPoolProblem, Interpolation, InvertedResidualProblem, LinearProblem, Lrn,
    LrnProblem, NextFactor, NormalizeProblem, PadMode, PadProblem, PoolKind, PoolProblem, Problem,
    ProblemKind, ProjectedProblem, ResizeProblem, Rounding, Shortcut, SqueezeExciteProblem,
    TuckerProblem,
};
#[cfg(feature = "check")]
pub use ops::{
    channel_norm_reference, conv_reference, conv_transpose_reference, global_pool_reference,
    linear_reference, lrn_reference, pad_reference, pool_reference, prelu, resize_reference,
    shuffled,
};
pub use options::{
    BatchNorm, ConvOptions, ConvTransposeOptions, LinearOptions, OpOptions, PadOptions,
    PaddingOption, PoolOptions, ResizeOptions, ResizedSize, ScaleShiftOptions, SliceOptions,
    TilePolicy,
};
pub use precision::{Precision, Reduce, Tolerance};
#[cfg(feature = "check")]
pub use reference::ReferenceInputs;
pub use tensor::{MAX_ELEMENTS, ParseShapeError, TensorShape};
