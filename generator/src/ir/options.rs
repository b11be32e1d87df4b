//! The options of each op, with the same keys in YAML, on the command line and in `kernel!`.

use super::{
    Activation, BinaryOp, ChannelNorm, Coordinates, Interpolation, Layout, Lrn, PadMode, Precision,
    Reduce, Tolerance,
};
use serde::Serialize;
use tdc_runtime::Padding;

/// How tiles are chosen if the config has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum TilePolicy {
    /// The fastest measured tile, if the committed tuning table has the problem on the GPU; otherwise as [`Model`](Self::Model).
    #[default]
    Tuned,
    /// The tile with the least predicted time, among the default schemes.
    Model,
    /// As the TDC paper does, if it applies: filters larger than 1x1 use the scheme `tdc`. A scheme that the config requests uses the tile
    /// of its own paper, if that has a rule.
    Paper,
}

impl TilePolicy {
    /// Every policy with its name in configs.
    pub const NAMES: [(&'static str, Self); 3] = [
        ("tuned", Self::Tuned),
        ("model", Self::Model),
        ("paper", Self::Paper),
    ];
}

/// Zero padding in a config.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Default)]
pub enum PaddingOption {
    /// `dilation * (kernel - 1) / 2` on every side: for odd kernels at stride 1 the output is as large as the input.
    #[default]
    Same,
    /// The number of pixels on each side.
    Pixels(Padding),
}

/// A BatchNorm layer in inference: `weight * (x - running_mean) / sqrt(running_var + eps) + bias`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BatchNorm {
    /// Name in the checkpoint.
    pub name: String,
    /// Epsilon.
    pub eps: f64,
}

impl BatchNorm {
    /// PyTorch's default epsilon.
    pub const DEFAULT_EPS: f64 = 1e-5;
}

/// Options of a convolution.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ConvOptions {
    /// Output channels (N).
    pub n: u32,
    /// Filter height and width (R, S).
    pub kernel: [u32; 2],
    /// Step between output pixels, (vertical, horizontal).
    pub stride: [u32; 2],
    /// Zero padding.
    pub pad: PaddingOption,
    /// Step between filter taps, (vertical, horizontal).
    pub dilation: [u32; 2],
    /// Groups; the number of channels for a depthwise convolution.
    pub groups: u32,
    /// Whether the layer itself has a bias (tensor `<name>.bias`).
    pub bias: bool,
    /// A BatchNorm after the layer, which is folded into its weights and bias.
    pub bn: Option<BatchNorm>,
    /// Activation function after the op and its BatchNorm.
    pub activation: Activation,
    /// Tucker ranks [D1, D2]: D1 at most the input channels, D2 at most the output channels.
    pub ranks: Option<[u32; 2]>,
    /// Rank of a CP decomposition of the weight into four factors.
    pub cp_rank: Option<u32>,
    /// Rank of the weight of a 1x1 convolution: a matrix N x C, the product of one of N x rank and one of rank x C.
    pub rank: Option<u32>,
    /// Checkpoint names of trained factors: [first, core, last] of a layer with Tucker ranks, [first, vertical, horizontal, last] of a
    /// layer with a CP rank, [first, last] of a layer with a rank; by default `<name>.first.weight` and so on.
    pub factors: Option<Vec<String>>,
    /// The requested scheme; `None`: the planner chooses.
    pub scheme: Option<String>,
    /// The requested tile, in the order of the scheme's tile numbers.
    pub tile: Option<Vec<u32>>,
    /// How partial sums may be added; for a layer with Tucker ranks, in its core.
    pub reduce: Reduce,
    /// How products may be rounded; for a factorised layer, in each of its factors.
    pub precision: Precision,
    /// Relative error that is allowed if it is larger than the precision's bound; for a factorised layer, in each of its factors.
    pub tolerance: Tolerance,
    /// Layout of input and output; for a factorised layer, of each factor's. The planner inserts a conversion between ops of different
    /// layouts.
    pub layout: Layout,
}

impl ConvOptions {
    /// A 3x3 convolution to `n` channels with the default of every other option.
    pub fn new(n: u32) -> Self {
        Self {
            n,
            kernel: [3, 3],
            stride: [1, 1],
            pad: PaddingOption::Same,
            dilation: [1, 1],
            groups: 1,
            bias: false,
            bn: None,
            activation: Activation::None,
            ranks: None,
            cp_rank: None,
            rank: None,
            factors: None,
            scheme: None,
            tile: None,
            reduce: Reduce::default(),
            precision: Precision::default(),
            tolerance: Tolerance::default(),
            layout: Layout::default(),
        }
    }
}

/// Options of a transposed convolution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConvTransposeOptions {
    /// Output channels (N).
    pub n: u32,
    /// Filter height and width (R, S).
    pub kernel: [u32; 2],
    /// Step in the output between pixels of the input, (vertical, horizontal).
    pub stride: [u32; 2],
    /// Pixels that are cut off the output.
    pub pad: Padding,
    /// Pixels that are added to the output at the bottom and on the right.
    pub output_padding: [u32; 2],
    /// Step between filter taps, (vertical, horizontal).
    pub dilation: [u32; 2],
    /// Groups; the number of channels for a depthwise convolution.
    pub groups: u32,
    /// Whether it has a bias (tensor `<name>.bias`).
    pub bias: bool,
    /// Activation function after the op.
    pub activation: Activation,
}

impl ConvTransposeOptions {
    /// A filter to `n` channels with the default of every other option.
    pub fn new(n: u32, kernel: [u32; 2]) -> Self {
        Self {
            n,
            kernel,
            stride: [1, 1],
            pad: Padding::default(),
            output_padding: [0, 0],
            dilation: [1, 1],
            groups: 1,
            bias: false,
            activation: Activation::None,
        }
    }
}

/// Options of a pooling window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PoolOptions {
    /// Window height and width.
    pub kernel: [u32; 2],
    /// Step between windows; the window's size by default.
    pub stride: [u32; 2],
    /// Padding: of minus infinity for a maximum, of zeros for an average.
    pub pad: Padding,
    /// Step between the window's elements.
    pub dilation: [u32; 2],
    /// Round the output size up instead of down.
    pub ceil_mode: bool,
    /// Average only: padded zeros count as elements (PyTorch's default).
    pub count_include_pad: bool,
}

/// Options of a fully connected layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LinearOptions {
    /// Output features.
    pub n: u32,
    /// Whether it has a bias (tensor `<name>.bias`).
    pub bias: bool,
    /// Activation function after the op.
    pub activation: Activation,
    /// Rank of its weight: a matrix N x C, the product of one of N x rank and one of rank x C.
    pub rank: Option<u32>,
    /// Checkpoint names of trained factors [first, last] of a layer with a rank; by default `<name>.first.weight` and
    /// `<name>.last.weight`.
    pub factors: Option<Vec<String>>,
    /// How products may be rounded, if the layer is computed as a convolution; with a rank, those of both factors.
    pub precision: Precision,
}

impl LinearOptions {
    /// A layer to `n` features with the default of every other option.
    pub fn new(n: u32) -> Self {
        Self {
            n,
            bias: true,
            activation: Activation::None,
            rank: None,
            factors: None,
            precision: Precision::default(),
        }
    }
}

/// Options of a per-channel `scale * x + shift`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScaleShiftOptions {
    /// The BatchNorm that is computed; without one the tensors `<name>.scale` and `<name>.shift` are read.
    pub bn: Option<BatchNorm>,
    /// Activation function after the op.
    pub activation: Activation,
}

/// Options of resizing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ResizeOptions {
    /// Output height and width.
    pub size: ResizedSize,
    /// Where output pixels are in the input.
    pub coordinates: Coordinates,
    /// What is computed there.
    pub interpolation: Interpolation,
}

/// The size of a resized image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum ResizedSize {
    /// Height and width.
    Pixels([u32; 2]),
    /// Factors of height and width.
    Scale([u32; 2]),
}

/// Options of padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PadOptions {
    /// Number of pixels on each side.
    pub pad: Padding,
    /// What they are.
    pub mode: PadMode,
}

/// Options of a slice of the channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SliceOptions {
    /// The first channel.
    pub start: u32,
    /// Number of channels.
    pub n: u32,
}

/// An op with its options.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum OpOptions {
    /// Convolution.
    Conv(ConvOptions),
    /// Transposed convolution.
    ConvTranspose(ConvTransposeOptions),
    /// Maximum over windows.
    MaxPool(PoolOptions),
    /// Average over windows.
    AvgPool(PoolOptions),
    /// Maximum over the complete image.
    GlobalMaxPool,
    /// Average over the complete image.
    GlobalAvgPool,
    /// Padding of images.
    Pad(PadOptions),
    /// Resizing of images.
    Resize(ResizeOptions),
    /// Local response normalisation.
    Lrn(Lrn),
    /// Normalisation over the channels of each pixel; a layer norm reads the tensors `<name>.weight` and `<name>.bias`.
    ChannelNorm(ChannelNorm),
    /// Fully connected layer on a flattened input.
    Linear(LinearOptions),
    /// An op on two tensors.
    Binary(BinaryOp, Activation),
    /// An activation function that is not fused.
    Activation(Activation),
    /// `scale * x + shift` per channel.
    ScaleShift(ScaleShiftOptions),
    /// PReLU with a slope for each channel, the tensor `<name>.weight`.
    PRelu,
    /// Concatenation along the channels.
    Concat,
    /// Some consecutive channels.
    Slice(SliceOptions),
    /// Channels in another order: as many groups of consecutive channels as this, one channel of each in turn.
    Shuffle(u32),
    /// C x H x W to one axis of features.
    Flatten,
}
