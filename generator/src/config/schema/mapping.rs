//! The mappings that have keys, and the ops of networks and of `kernel!`.

use super::{Key, ROWS, Row, enum_with_rows};

/// A mapping with a fixed set of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mapping {
    /// A config with `ops`.
    Network,
    /// A config with `layers`.
    LayerSet,
    /// `defaults` of a layer set.
    Defaults,
    /// A layer of a layer set.
    Layer,
    /// An op of a network.
    Op(NetworkOp),
    /// `kernel!` with an op.
    Call(CallOp),
    /// `kernels!` with a config.
    CallConfig,
    /// `kernel!` with a layer of a config.
    CallConfigLayer,
    /// The options of a model file.
    ModelOptions,
    /// The options of a convolution or linear layer of a model file.
    LayerOptions(NetworkOp),
    /// The value of `input`, if it is not only a shape.
    Input,
    /// The value of an op's `output`.
    Output,
    /// The value of `output` of a model file with one output, and of each of several.
    ModelOutput,
    /// The value of `pad`.
    Pad,
    /// The value of `bn`.
    BatchNorm,
    /// The value of `prologue`.
    Prologue,
}

impl Mapping {
    /// What messages call it.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Network => "a network",
            Self::LayerSet => "a layer set",
            Self::Defaults => "`defaults`",
            Self::Layer => "a layer",
            Self::Op(op) => op.row().name,
            Self::Call(op) => op.row().name,
            Self::CallConfig => "a config",
            Self::CallConfigLayer => "a layer of a config",
            Self::ModelOptions => "the options of a model",
            Self::LayerOptions(NetworkOp::Linear) => "the options of a linear layer",
            Self::LayerOptions(_) => "the options of a convolution",
            Self::Input => "input",
            Self::Output | Self::ModelOutput => "output",
            Self::Pad => "pad",
            Self::BatchNorm => "bn",
            Self::Prologue => "`prologue`",
        }
    }

    /// The rows of its keys, in the order of the table.
    pub fn rows(self) -> impl Iterator<Item = &'static Row> {
        ROWS.iter().filter(move |row| (row.is_of)(self))
    }

    /// Its keys.
    pub fn keys(self) -> impl Iterator<Item = Key> {
        self.rows().map(|row| row.key)
    }

    /// Whether it has a key of this name.
    pub fn has(self, name: impl AsRef<str>) -> bool {
        let name = name.as_ref();
        ROWS.iter()
            .any(|row| row.key.name() == name && (row.is_of)(self))
    }
}

/// An op of a network.
#[derive(Debug, Clone, Copy)]
pub struct NetworkOpRow {
    /// The value of `op`.
    pub name: &'static str,
    /// What it computes, in Markdown.
    pub meaning: &'static str,
}

const fn op(name: &'static str, meaning: &'static str) -> NetworkOpRow {
    NetworkOpRow { name, meaning }
}

enum_with_rows! {
    /// An op of a network.
    NetworkOp: NetworkOpRow {
        Conv = op("conv", "convolution"),
        ConvTranspose = op("conv_transpose", "transposed convolution, with weights in PyTorch's order: C x N / `groups` x R x S"),
        MaxPool = op("max_pool", "maximum over windows"),
        AvgPool = op("avg_pool", "mean over windows"),
        GlobalMaxPool = op("global_max_pool", "maximum over the image"),
        GlobalAvgPool = op("global_avg_pool", "mean over the image"),
        Softmax = op("softmax", "softmax over the channels of each pixel"),
        LayerNorm = op(
            "layer_norm",
            "layer norm over the channels of each pixel, with the tensors `<name>.weight` and `<name>.bias`",
        ),
        L2Norm = op("l2_norm", "channels of each pixel over their L2 norm, as PyTorch's `normalize`"),
        Lrn = op(
            "lrn",
            "local response normalisation: x / (k + alpha / size * sum of the squares of `size` neighbouring channels)^beta",
        ),
        Pad = op("pad", "rows and columns around each image; zeros around the input of a convolution or a pool are its own `pad`"),
        Resize = op("resize", "resized images: nearest pixels or bilinear interpolation, as ONNX defines them"),
        Linear = op("linear", "fully connected layer on a flattened input"),
        Add = op("add", "sum of two tensors of the same shape"),
        Sub = op("sub", "difference of two tensors of the same shape: the first minus the second"),
        Mul = op(
            "mul",
            "product of two tensors of the same shape, or of B x C x H x W and, second, one factor for each channel, B x C x 1 x 1",
        ),
        Activation = op("activation", "an [activation function](configs.md#activation-functions)"),
        PRelu = op("prelu", "PReLU with a slope for each channel, the tensor `<name>.weight`"),
        ScaleShift = op(
            "scale_shift",
            "scale and shift per channel: a BatchNorm, or the tensors `<name>.scale` and `<name>.shift`",
        ),
        Concat = op("concat", "concatenation along the channels"),
        Slice = op("slice", "consecutive channels; takes no time"),
        Shuffle = op(
            "shuffle",
            "channel shuffle: the channels in `groups` groups, one channel of each in turn, as in ShuffleNet",
        ),
        Flatten = op("flatten", "flattens C x H x W"),
    }
}

impl NetworkOp {
    /// The mappings of all ops, for finding where a misplaced key belongs.
    pub(in crate::config) fn mappings() -> Vec<Mapping> {
        Self::ALL.iter().copied().map(Mapping::Op).collect()
    }
}

/// Computes the value of a key from the input channels.
pub type FromChannels = fn(u32) -> u32;

/// An op of `kernel!`.
#[derive(Debug, Clone, Copy)]
pub struct CallOpRow {
    /// The first word of the call.
    pub name: &'static str,
    /// The sizes after it.
    pub sizes: &'static [&'static str],
    /// A call.
    pub example: &'static str,
    /// What it computes, in Markdown.
    pub meaning: &'static str,
    /// Keys of a layer with fixed values, as functions of C.
    pub fixed: &'static [(Key, FromChannels)],
}

enum_with_rows! {
    /// An op of `kernel!`.
    CallOp: CallOpRow {
        Conv = CallOpRow {
            name: "conv",
            sizes: &["C", "N", "H", "W"],
            example: "conv 64,32,56,56",
            meaning: "a convolution of C x H x W to N channels",
            fixed: &[],
        },
        Pointwise = CallOpRow {
            name: "pointwise",
            sizes: &["C", "N", "H", "W"],
            example: "pointwise 64,32,56,56",
            meaning: "the same with a 1x1 filter",
            fixed: &[(Key::Kernel, |_| 1)],
        },
        Depthwise = CallOpRow {
            name: "depthwise",
            sizes: &["C", "H", "W"],
            example: "depthwise 64,56,56",
            meaning: "one filter for each channel",
            fixed: &[(Key::Groups, |c| c)],
        },
        Tucker = CallOpRow {
            name: "tucker",
            sizes: &["C", "N", "H", "W"],
            example: "tucker 64,64,56,56, ranks = [32, 32]",
            meaning: "1x1 to D1 channels, the filter to D2, 1x1 to N, in one to three launches, whatever is fastest",
            fixed: &[],
        },
        LowRank = CallOpRow {
            name: "low_rank",
            sizes: &["C", "N", "H", "W"],
            example: "low_rank 512,256,7,7, rank = 64",
            meaning: "1x1 to `rank` channels, 1x1 to N; with H = W = 1 the two linear layers of a linear layer with a rank",
            fixed: &[(Key::Kernel, |_| 1)],
        },
    }
}

impl CallOp {
    /// The mappings of all ops, for finding where a misplaced key belongs.
    pub(in crate::config) fn mappings() -> Vec<Mapping> {
        Self::ALL.iter().copied().map(Mapping::Call).collect()
    }
}
