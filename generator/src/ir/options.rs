//! The options of each op: the same words in YAML, on the command line and in `kernel!`.

use super::{Activation, BinaryOp, Layout, Precision, Reduce, Tolerance};
use serde::Serialize;
use tdc_runtime::Padding;

/// How tiles are chosen where the config names none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum TilePolicy {
    /// As was measured on the GPU, where the committed table has the problem; else as [`Model`](Self::Model).
    #[default]
    Tuned,
    /// By our estimate of time, among our own schemes.
    Model,
    /// As the TDC paper does, for what it is about: filters larger than 1x1 then take scheme `tdc`. A scheme that is named takes the
    /// tile of its own paper, where that tells one.
    Paper,
}

impl TilePolicy {
    /// Every way with its word.
    pub const NAMES: [(&'static str, Self); 3] = [
        ("tuned", Self::Tuned),
        ("model", Self::Model),
        ("paper", Self::Paper),
    ];
}

/// Zero padding as asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Default)]
pub enum PaddingOption {
    /// `dilation * (kernel - 1) / 2` on every side: for odd kernels at stride 1 the output is as large as the input.
    #[default]
    Same,
    /// So many pixels.
    Pixels(Padding),
}

/// A BatchNorm layer in inference: `weight * (x - running_mean) / sqrt(running_var + eps) + bias`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BatchNorm {
    /// Its name in the checkpoint.
    pub name: String,
    /// Its epsilon; PyTorch's default is 1e-5.
    pub eps: f64,
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
    /// Whether the layer has a bias of its own (tensor `<name>.bias`).
    pub bias: bool,
    /// A BatchNorm behind the layer; folded into its weights.
    pub bn: Option<BatchNorm>,
    /// Activation after the op (and its BatchNorm).
    pub activation: Activation,
    /// Tucker ranks [D1, D2]: D1 of the input channels, D2 of the output channels.
    pub ranks: Option<[u32; 2]>,
    /// Rank of a CP decomposition: four factors that share it take the place of the weight.
    pub cp_rank: Option<u32>,
    /// Checkpoint names of trained factors: [first, core, last] of a layer with ranks, [first, vertical, horizontal, last] of one
    /// with a CP rank; by default `<name>.first.weight` and so on.
    pub factors: Option<Vec<String>>,
    /// A scheme asked for by name instead of the planner's choice.
    pub scheme: Option<String>,
    /// A tile asked for, in the order of the scheme's tile names.
    pub tile: Option<Vec<u32>>,
    /// How partial sums may be added; of a layer with ranks, those of its core.
    pub reduce: Reduce,
    /// How products may be rounded; of a layer with ranks, those of all its parts.
    pub precision: Precision,
    /// How far results may be off beyond that; of a layer with ranks, those of each of its parts.
    pub tolerance: Tolerance,
    /// How input and output lie; of a layer with ranks, those of its parts. The planner converts where neighbours differ.
    pub layout: Layout,
}

impl ConvOptions {
    /// A 3x3 convolution to `n` channels with everything else as it is when nothing is asked for.
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

/// Options of a pooling window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PoolOptions {
    /// Window height and width.
    pub kernel: [u32; 2],
    /// Step between windows; the window's size by default.
    pub stride: [u32; 2],
    /// Padding: of minus infinity for a maximum, of zeros for an average.
    pub pad: Padding,
    /// Step between the window's elements (maximum only).
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
    /// Activation after the op (and its BatchNorm).
    pub activation: Activation,
}

/// Options of a per-channel `scale * x + shift`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScaleShiftOptions {
    /// The BatchNorm it comes from; without one the tensors `<name>.scale` and `<name>.shift` are read.
    pub bn: Option<BatchNorm>,
    /// Activation after the op (and its BatchNorm).
    pub activation: Activation,
}

/// An op as asked for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum OpOptions {
    /// Convolution.
    Conv(ConvOptions),
    /// Maximum over windows.
    MaxPool(PoolOptions),
    /// Average over windows.
    AvgPool(PoolOptions),
    /// Maximum over the whole image.
    GlobalMaxPool,
    /// Average over the whole image.
    GlobalAvgPool,
    /// Fully connected layer on a flattened input.
    Linear(LinearOptions),
    /// An op on two tensors.
    Binary(BinaryOp, Activation),
    /// An activation on its own.
    Activation(Activation),
    /// `scale * x + shift` per channel.
    ScaleShift(ScaleShiftOptions),
    /// Tensors one behind the other along the channels.
    Concat,
    /// C x H x W to one axis of features.
    Flatten,
}
