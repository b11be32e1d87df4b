//! The names of all keys, and the table that says what they are.

use super::Mapping::{
    BatchNorm, Call, CallConfig, CallConfigLayer, Defaults, Input, Layer, LayerOptions, LayerSet,
    ModelOptions, ModelOutput, Network, Op, Output, Pad, Prologue,
};
use super::{CallOp, Mapping, NetworkOp, Row, enum_with_rows};

enum_with_rows! {
    /// A key. Readers refer to keys by this type, so that none is read that the schema does not have.
    Key: &'static str {
        Activation = "activation",
        Alpha = "alpha",
        Arch = "arch",
        Batch = "batch",
        Beta = "beta",
        Bias = "bias",
        Bn = "bn",
        Bottom = "bottom",
        CeilMode = "ceil_mode",
        Conv = "conv",
        Coordinates = "coordinates",
        CountIncludePad = "count_include_pad",
        CpRank = "cp_rank",
        Defaults = "defaults",
        Dilation = "dilation",
        Dtype = "dtype",
        Eps = "eps",
        Factors = "factors",
        Gpu = "gpu",
        Groups = "groups",
        Input = "input",
        Inputs = "inputs",
        K = "k",
        Kernel = "kernel",
        Layer = "layer",
        Layers = "layers",
        Layout = "layout",
        Left = "left",
        Mean = "mean",
        Mode = "mode",
        N = "n",
        Name = "name",
        Op = "op",
        Ops = "ops",
        Output = "output",
        OutputPadding = "output_padding",
        Pad = "pad",
        Precision = "precision",
        Prologue = "prologue",
        Rank = "rank",
        Ranks = "ranks",
        Reduce = "reduce",
        Residual = "residual",
        Right = "right",
        Rounding = "rounding",
        Scale = "scale",
        Scheme = "scheme",
        Shape = "shape",
        Size = "size",
        Start = "start",
        Std = "std",
        Stride = "stride",
        Table = "table",
        Tile = "tile",
        Tiles = "tiles",
        Activations = "activations",
        Tolerance = "tolerance",
        Value = "value",
        Top = "top",
    }
}

/// Whether a mapping describes a convolution.
const fn convolution(mapping: Mapping) -> bool {
    matches!(mapping, Op(NetworkOp::Conv)) || layer(mapping)
}

/// Whether a mapping has what the planner chooses for a convolution. The factors of a low-rank layer are always planned.
const fn planned(mapping: Mapping) -> bool {
    let is_convolution = convolution(mapping) && !matches!(mapping, Call(CallOp::LowRank));
    is_convolution || matches!(mapping, LayerOptions(NetworkOp::Conv))
}

/// Whether a mapping describes a convolution with a filter of any size.
const fn with_filter(mapping: Mapping) -> bool {
    convolution(mapping) && !matches!(mapping, Call(CallOp::Pointwise | CallOp::LowRank))
}

/// Whether a mapping describes a convolution with what a network would fuse into it.
const fn layer(mapping: Mapping) -> bool {
    matches!(mapping, Layer | Defaults | Call(_))
}

/// Whether a mapping is a call of `kernel!` or `kernels!`.
const fn call(mapping: Mapping) -> bool {
    matches!(mapping, Call(_) | CallConfig | CallConfigLayer)
}

/// A function that says whether a mapping matches a pattern.
macro_rules! of {
    ($pattern:pat) => {
        |mapping| matches!(mapping, $pattern)
    };
}

const NUMBER: &str = "number";
const PAIR: &str = "number or `[vertical, horizontal]`";
const BOOLEAN: &str = "`true` or `false`";
const ACTIVATION: &str =
    "an [activation function](configs.md#activation-functions) such as `relu` or `{clip: [0, 6]}`";
const PRECISIONS: &str = "`fp32`, `tf32`, `fp16` or `bf16`";
const PRECISION: &str = "how [products may be rounded](configs.md#precision-and-tolerance); with ranks, those of all factors";
const ERROR: &str = "number from 1e-6 to 0.1, such as 5e-6";
const TOLERANCE: &str =
    "relative error to allow beyond that of `precision`; with ranks, for each factor";
const POLICIES: &str = "`tuned`, `model` or `paper`";

/// Every key: which mappings have it, the forms of its value, its default, its meaning. A key with different
/// meanings has several rows; a mapping has at most one of them. Messages list keys in this order.
pub static ROWS: &[Row] = &[
    // Configs.
    Row::new(
        Key::Name,
        of!(Network),
        "a C identifier of at most 100 characters, not reserved in C++, CUDA or CMake",
        "required",
        "prefix of every generated symbol",
    ),
    Row::new(
        Key::Name,
        of!(LayerSet),
        "as in a network; may also have `-` and `.`",
        "required",
        "part of the names of generated files",
    ),
    Row::new(
        Key::Gpu,
        of!(Network | ModelOptions),
        "a [name](gpus.md), or a list of names",
        "`h200`",
        "GPUs to plan for: one variant for each",
    )
    .overridden_by(
        "gpu",
        "NAME,...",
        "GPUs to plan for, instead of those of the config; a network gets a variant for each",
    ),
    Row::new(
        Key::Gpu,
        of!(LayerSet),
        "a [name](gpus.md)",
        "`h200`",
        "the GPU to plan for",
    ),
    Row::new(
        Key::Tiles,
        of!(Network | LayerSet | ModelOptions),
        POLICIES,
        "`tuned`",
        "how [scheme and tile are chosen](configs.md#tile-policies)",
    )
    .overridden_by(
        "tiles",
        "POLICY",
        "how tiles are chosen: `tuned`, by measured times where the tuning table has the problem, else by the cost model; \
         `model`, by the cost model among the default schemes; or `paper`, by the equations of the TDC paper for its kernel",
    ),
    Row::new(
        Key::Precision,
        of!(Network | LayerSet | ModelOptions),
        PRECISIONS,
        "`fp32`",
        "default of all convolutions and linear layers, see [Precision](configs.md#precision-and-tolerance)",
    )
    .inherited()
    .overridden_by(
        "precision",
        "PRECISION",
        "precision of all convolutions and linear layers, instead of that of the config: how their products may be rounded. \
         Accumulators stay fp32",
    ),
    Row::new(
        Key::Activations,
        of!(Network | ModelOptions),
        "`fp32`, `fp16` or `bf16`",
        "`fp32`",
        "how [activation tensors inside the network](configs.md#activations) may be stored",
    )
    .overridden_by(
        "activations",
        "TYPE",
        "how activation tensors inside the network may be stored, instead of as the config says: with `fp16` or `bf16` \
         those between convolutions of the same precision, where the planner predicts that it is faster",
    ),
    Row::new(
        Key::Tolerance,
        of!(Network | LayerSet | ModelOptions),
        ERROR,
        "none",
        "default of all convolutions, see [Precision](configs.md#precision-and-tolerance)",
    )
    .inherited()
    .overridden_by(
        "tolerance",
        "ERROR",
        "tolerance of all convolutions, instead of that of the config: a larger relative error than the precision allows",
    ),
    Row::new(
        Key::Input,
        of!(Network | ModelOptions),
        "`BxCxHxW` or `[B, C, H, W]`, or a mapping such as `{shape: BxCxHxW, dtype: uint8}`; of several inputs `{left: BxCxHxW, right: BxCxHxW}`",
        "required",
        "shape of the input and [how it is stored](configs.md#inputs), or names and shapes of several inputs; all other sizes are inferred",
    )
    .overridden_by(
        "input",
        "[NAME=]BxCxHxW",
        "input shape instead of that of the config, such as 1x3x480x640; once for each of several inputs, with its name, such as left=1x3x480x640; all other sizes are inferred",
    ),
    Row::new(
        Key::Batch,
        of!(Network | ModelOptions),
        "number or list of numbers",
        "that of `input`",
        "numbers of images, instead of that of `input`: [a plan for each](configs.md#batches-at-run-time)",
    )
    .overridden_by(
        "batch",
        "N,...",
        "batch instead of that of the config; a network gets a plan for each of several, among which its driver chooses",
    ),
    Row::new(
        Key::Ops,
        of!(Network),
        "list of [ops](configs.md#ops)",
        "required",
        "the ops in topological order",
    ),
    Row::new(
        Key::Defaults,
        of!(LayerSet),
        "mapping of a layer's keys, except `name` and `conv`",
        "none",
        "keys of all layers that do not have them",
    ),
    Row::new(
        Key::Layers,
        of!(LayerSet),
        "list of layers",
        "required",
        "the convolutions",
    ),
    Row::new(
        Key::Output,
        of!(ModelOptions),
        "`{dtype: fp16, layout: nhwc}`; of several outputs `{logits: {dtype: fp16}}`",
        "as in the model, in fp32",
        "how [an output is stored](configs.md#outputs)",
    ),
    Row::new(
        Key::Layers,
        of!(ModelOptions),
        "mapping of names to options",
        "none",
        "options of convolutions and linear layers",
    ),
    // Every op of a network.
    Row::new(
        Key::Op,
        of!(Op(_)),
        "a name of the table below",
        "required",
        "what is computed",
    ),
    Row::new(
        Key::Name,
        of!(Op(_)),
        "a unique name",
        "required",
        "used by weights and by other ops; names of factors, such as `b.first` if `b` has ranks, are reserved",
    ),
    Row::new(
        Key::Inputs,
        of!(Op(_)),
        "a name or a list of names",
        "the op before it; for the first op, `input`, if there is one input",
        "the ops that it reads",
    ),
    Row::new(
        Key::Output,
        of!(Op(_)),
        "a mapping such as `{name: logits}` or `{name: logits, dtype: fp16, layout: nhwc}`",
        "none",
        "makes the op's output an output of the network, with this name in the driver's interface, [stored like this](configs.md#outputs); that of the last op is always one",
    ),
    // A layer of a layer set.
    Row::new(
        Key::Name,
        of!(Layer),
        "as that of a layer set",
        "by its sizes, such as `c64_n32_h56_w56`",
        "part of the names of generated files",
    ),
    Row::new(
        Key::Conv,
        of!(Layer),
        "`[C, N, H, W]`",
        "required",
        "input channels, output channels, height and width of the input",
    ),
    // Calls of `kernel!`.
    Row::new(
        Key::Layer,
        of!(CallConfigLayer),
        "a name in quotes",
        "required",
        "the layer of the config",
    ),
    Row::new(
        Key::Ranks,
        of!(Call(CallOp::Tucker)),
        "`[D1, D2]`",
        "required",
        "Tucker ranks",
    ),
    Row::new(
        Key::Rank,
        of!(Call(CallOp::LowRank)),
        "`R`",
        "required",
        "channels between the two factors, at most C and N",
    ),
    Row::new(
        Key::Gpu,
        call,
        "a [name](gpus.md), or a list of names",
        "that of the config, else one for each architecture",
        "GPUs to plan for",
    ),
    Row::new(
        Key::Arch,
        call,
        "`sm_90`, or a list of such names",
        "that of `gpu`, else `TDC_ARCH`, else `[sm_80, sm_90]`",
        "architectures to compile for",
    ),
    Row::new(
        Key::Tiles,
        call,
        POLICIES,
        "that of the config, else `tuned`",
        "how scheme and tile are chosen: `tuned`, by measured times if the tuning table has the problem, else by the cost model; \
         `model`, by the cost model; `paper`, by the TDC paper's equations",
    ),
    Row::new(
        Key::Table,
        call,
        "path of a file",
        "the built-in ones",
        "a tuning table written by `tdc-gen tune`",
    )
    .overridden_by(
        "table",
        "FILE",
        "tuning table written by `tune`, used instead of the built-in one of its GPU",
    ),
    // Convolutions; keys that other ops have with the same meaning.
    Row::new(
        Key::N,
        of!(Op(NetworkOp::Conv | NetworkOp::ConvTranspose | NetworkOp::Linear)),
        NUMBER,
        "required",
        "output channels or features",
    ),
    Row::new(
        Key::Start,
        of!(Op(NetworkOp::Slice)),
        NUMBER,
        "0",
        "the first channel",
    ),
    Row::new(
        Key::N,
        of!(Op(NetworkOp::Slice)),
        NUMBER,
        "required",
        "number of channels",
    ),
    Row::new(
        Key::Groups,
        of!(Op(NetworkOp::Shuffle)),
        NUMBER,
        "required",
        "groups of channels, a divisor of their number",
    ),
    Row::new(Key::Batch, layer, NUMBER, "1", "number of images"),
    Row::new(
        Key::Kernel,
        with_filter,
        "number or `[R, S]`",
        "3",
        "height and width of the filter",
    ),
    Row::new(
        Key::Stride,
        convolution,
        PAIR,
        "1",
        "step between output pixels",
    ),
    Row::new(
        Key::Pad,
        convolution,
        "`same`, number, `[vertical, horizontal]`, `[top, left, bottom, right]`, or a mapping such as `{top: 1}` \
         with `top`, `left`, `bottom`, `right`",
        "`same`",
        "zeros around the input; `same`: for odd filters at stride 1 the output is as large as the input",
    ),
    Row::new(
        Key::Dilation,
        with_filter,
        PAIR,
        "1",
        "step between filter taps",
    ),
    Row::new(
        Key::Groups,
        of!(Op(NetworkOp::Conv) | Layer | Defaults | Call(CallOp::Conv)),
        NUMBER,
        "1",
        "groups of channels; the number of channels for a depthwise convolution",
    ),
    Row::new(
        Key::Bias,
        convolution,
        BOOLEAN,
        "`false`",
        "whether the layer has a bias",
    ),
    Row::new(
        Key::Bias,
        of!(Op(NetworkOp::Linear)),
        BOOLEAN,
        "`true`",
        "whether the layer has a bias",
    ),
    Row::new(
        Key::Bn,
        of!(Op(NetworkOp::Conv)),
        "a name, or `{name: ..., eps: 1e-3}`",
        "none",
        "the BatchNorm that follows; folded into the weights",
    ),
    Row::new(
        Key::Bn,
        of!(Op(NetworkOp::ScaleShift)),
        "a name, or `{name: ..., eps: 1e-3}`",
        "none",
        "the BatchNorm that is computed",
    ),
    Row::new(
        Key::Activation,
        |mapping| {
            convolution(mapping)
                || matches!(
                    mapping,
                    Prologue
                        | Op(NetworkOp::ConvTranspose
                            | NetworkOp::Linear
                            | NetworkOp::Add
                            | NetworkOp::Sub
                            | NetworkOp::Mul
                            | NetworkOp::ScaleShift)
                )
        },
        ACTIVATION,
        "`none`",
        "applied last",
    ),
    Row::new(
        Key::Activation,
        of!(Op(NetworkOp::Activation)),
        ACTIVATION,
        "required",
        "what is computed",
    ),
    Row::new(
        Key::Residual,
        layer,
        BOOLEAN,
        "`false`",
        "whether a tensor of the output's shape is added before the activation function",
    ),
    Row::new(
        Key::Prologue,
        layer,
        "`true`, or `{activation: relu}` with any activation function",
        "none",
        "scale and shift of the input per channel, then the activation function",
    ),
    Row::new(
        Key::Ranks,
        of!(Op(NetworkOp::Conv) | LayerOptions(NetworkOp::Conv)),
        "`[D1, D2]`",
        "none",
        "[Tucker](configs.md#tucker-layers) ranks",
    )
    .overridden_by(
        "dense",
        "",
        "without ranks; `_dense` is appended to the network's name",
    ),
    Row::new(
        Key::CpRank,
        of!(Op(NetworkOp::Conv) | Layer | Defaults | LayerOptions(NetworkOp::Conv)),
        NUMBER,
        "none",
        "[CP](configs.md#cp-layers) rank R; in a layer set, one launch",
    ),
    Row::new(
        Key::Rank,
        of!(Op(NetworkOp::Conv | NetworkOp::Linear)
            | LayerOptions(NetworkOp::Conv | NetworkOp::Linear)),
        NUMBER,
        "none",
        "[rank](configs.md#low-rank-layers) of the weight of a linear layer or a 1x1 convolution, which becomes two layers",
    ),
    Row::new(
        Key::Factors,
        of!(Op(NetworkOp::Conv) | LayerOptions(NetworkOp::Conv)),
        "`[first, core, last]` with `ranks`, `[first, vertical, horizontal, last]` with `cp_rank`, `[first, last]` with `rank`",
        "`<name>.first.weight` and so on, if the checkpoint has them",
        "names of trained factors in the checkpoint",
    ),
    Row::new(
        Key::Factors,
        of!(Op(NetworkOp::Linear) | LayerOptions(NetworkOp::Linear)),
        "`[first, last]`",
        "`<name>.first.weight` and so on, if the checkpoint has them",
        "names of trained factors in the checkpoint, with `rank`",
    ),
    Row::new(
        Key::Scheme,
        planned,
        "a [name](tiles.md#per-scheme)",
        "the planner's choice",
        "the scheme that computes it",
    ),
    Row::new(
        Key::Tile,
        planned,
        "mapping of names to numbers, or a list of the numbers",
        "the planner's choice",
        "the scheme's [tile](tiles.md); requires `scheme`",
    ),
    Row::new(
        Key::Reduce,
        planned,
        "`ordered` or `atomic`",
        "`ordered`",
        "`ordered`: deterministic; `atomic`: float atomics as in the published TDC kernels, only with `tdc` and `tdc_rows`",
    ),
    Row::new(
        Key::Precision,
        of!(Op(NetworkOp::Conv | NetworkOp::Linear)
            | Layer
            | Defaults
            | LayerOptions(NetworkOp::Conv | NetworkOp::Linear)),
        PRECISIONS,
        "the config's",
        PRECISION,
    ),
    Row::new(
        Key::Tolerance,
        of!(Op(NetworkOp::Conv) | Layer | Defaults | LayerOptions(NetworkOp::Conv)),
        ERROR,
        "the config's",
        TOLERANCE,
    ),
    Row::new(
        Key::Precision,
        of!(Call(_)),
        PRECISIONS,
        "`fp32`",
        PRECISION,
    ),
    Row::new(
        Key::Tolerance,
        of!(Call(_)),
        ERROR,
        "none",
        TOLERANCE,
    ),
    Row::new(
        Key::Layout,
        of!(Op(NetworkOp::Conv) | Layer | Defaults | LayerOptions(NetworkOp::Conv)),
        "`nchw` or `hwcn`",
        "`nchw`",
        "layout of input, residual and output; `hwcn` as in the TVM tutorial (scheme `tvm`, large batches); with ranks, for all factors",
    ),
    // Transposed convolutions.
    Row::new(
        Key::Kernel,
        of!(Op(NetworkOp::ConvTranspose)),
        "number or `[R, S]`",
        "required",
        "height and width of the filter",
    ),
    Row::new(
        Key::Stride,
        of!(Op(NetworkOp::ConvTranspose)),
        PAIR,
        "1",
        "step in the output between pixels of the input",
    ),
    Row::new(
        Key::Pad,
        of!(Op(NetworkOp::ConvTranspose)),
        "as that of a convolution, without `same`",
        "0",
        "pixels that are cut off the output",
    ),
    Row::new(
        Key::OutputPadding,
        of!(Op(NetworkOp::ConvTranspose)),
        PAIR,
        "0",
        "rows at the bottom and columns on the right that are added to the output",
    ),
    Row::new(
        Key::Dilation,
        of!(Op(NetworkOp::ConvTranspose)),
        PAIR,
        "1",
        "step between filter taps",
    ),
    Row::new(
        Key::Groups,
        of!(Op(NetworkOp::ConvTranspose)),
        NUMBER,
        "1",
        "groups of channels; the number of channels for a depthwise convolution",
    ),
    Row::new(
        Key::Bias,
        of!(Op(NetworkOp::ConvTranspose)),
        BOOLEAN,
        "`false`",
        "whether the layer has a bias",
    ),
    // Pooling.
    Row::new(
        Key::Kernel,
        of!(Op(NetworkOp::MaxPool | NetworkOp::AvgPool)),
        PAIR,
        "required",
        "height and width of the window",
    ),
    Row::new(
        Key::Stride,
        of!(Op(NetworkOp::MaxPool | NetworkOp::AvgPool)),
        PAIR,
        "that of `kernel`",
        "step between windows",
    ),
    Row::new(
        Key::Pad,
        of!(Op(NetworkOp::MaxPool | NetworkOp::AvgPool)),
        "as that of a convolution, without `same`",
        "0",
        "padding: of minus infinity for a maximum, of zeros for a mean",
    ),
    Row::new(
        Key::Dilation,
        of!(Op(NetworkOp::MaxPool | NetworkOp::AvgPool)),
        PAIR,
        "1",
        "step between the elements of a window",
    ),
    Row::new(
        Key::CeilMode,
        of!(Op(NetworkOp::MaxPool | NetworkOp::AvgPool)),
        BOOLEAN,
        "`false`",
        "whether the output size is rounded up instead of down",
    ),
    Row::new(
        Key::CountIncludePad,
        of!(Op(NetworkOp::AvgPool)),
        BOOLEAN,
        "`true`",
        "whether padded zeros count as elements",
    ),
    Row::new(
        Key::Eps,
        of!(Op(NetworkOp::LayerNorm)),
        "number from 0",
        "1e-5",
        "added to the variance",
    ),
    Row::new(
        Key::Eps,
        of!(Op(NetworkOp::L2Norm)),
        "positive number",
        "1e-12",
        "least norm",
    ),
    // Local response normalisation.
    Row::new(
        Key::Size,
        of!(Op(NetworkOp::Lrn)),
        NUMBER,
        "required",
        "number of neighbouring channels",
    ),
    Row::new(
        Key::Alpha,
        of!(Op(NetworkOp::Lrn)),
        "number from 0",
        "1e-4",
        "factor of the mean of the squares",
    ),
    Row::new(
        Key::Beta,
        of!(Op(NetworkOp::Lrn)),
        "number from 0",
        "0.75",
        "exponent",
    ),
    Row::new(
        Key::K,
        of!(Op(NetworkOp::Lrn)),
        "positive number",
        "1",
        "added to the mean of the squares",
    ),
    // Padding.
    Row::new(
        Key::Pad,
        of!(Op(NetworkOp::Pad)),
        "as that of a convolution, without `same`",
        "required",
        "number of rows and columns on each side",
    ),
    Row::new(
        Key::Mode,
        of!(Op(NetworkOp::Pad)),
        "`constant`, `reflect` or `edge`",
        "`constant`",
        "what they are: a number, the image mirrored at its first and last pixels, or the nearest pixel",
    ),
    Row::new(
        Key::Value,
        of!(Op(NetworkOp::Pad)),
        "number",
        "0",
        "the number; only with `mode: constant`",
    ),
    // Resizing.
    Row::new(
        Key::Scale,
        of!(Op(NetworkOp::Resize)),
        PAIR,
        "that of `size`",
        "factor of height and width; this or `size` is required",
    ),
    Row::new(
        Key::Size,
        of!(Op(NetworkOp::Resize)),
        PAIR,
        "that of `scale`",
        "height and width of the output",
    ),
    Row::new(
        Key::Mode,
        of!(Op(NetworkOp::Resize)),
        "`nearest` or `bilinear`",
        "`nearest`",
        "how a pixel is computed",
    ),
    Row::new(
        Key::Coordinates,
        of!(Op(NetworkOp::Resize)),
        "`half_pixel`, `pytorch_half_pixel`, `align_corners` or `asymmetric`",
        "`half_pixel`",
        "where it is in the input",
    ),
    Row::new(
        Key::Rounding,
        of!(Op(NetworkOp::Resize)),
        "`prefer_floor`, `prefer_ceil`, `floor` or `ceil`",
        "`prefer_floor`",
        "the pixel that is nearest; only with `mode: nearest`",
    ),
    // Values that are mappings.
    Row::new(
        Key::Shape,
        of!(Input),
        "`BxCxHxW` or `[B, C, H, W]`",
        "required; of a model file, its own",
        "batch, channels, height and width, in any layout",
    ),
    Row::new(
        Key::Dtype,
        of!(Input),
        "`fp32` or `uint8`",
        "`fp32`",
        "element type; a uint8 element `v` stands for `v / 255`",
    ),
    Row::new(
        Key::Dtype,
        of!(Output | ModelOutput),
        "`fp32`, `fp16` or `bf16`",
        "`fp32`",
        "element type; fp16 values beyond 65504 become 65504",
    ),
    Row::new(
        Key::Layout,
        of!(Input | Output | ModelOutput),
        "`nchw` or `nhwc`",
        "`nchw`",
        "order of the elements in memory",
    ),
    Row::new(
        Key::Mean,
        of!(Input),
        "list of numbers, one for each channel",
        "zeros",
        "subtracted from the channels",
    ),
    Row::new(
        Key::Std,
        of!(Input),
        "list of positive numbers, one for each channel",
        "ones",
        "divisors of the channels, after the mean is subtracted",
    ),
    Row::new(
        Key::Name,
        of!(Output),
        "a name",
        "that of the op",
        "the name in the driver's interface",
    ),
    Row::new(
        Key::Name,
        of!(BatchNorm),
        "a name",
        "required",
        "the name in the checkpoint",
    ),
    Row::new(
        Key::Eps,
        of!(BatchNorm),
        "number from 0",
        "1e-5",
        "added to the variance",
    ),
    Row::new(Key::Top, of!(Pad), NUMBER, "0", "rows before the first"),
    Row::new(Key::Left, of!(Pad), NUMBER, "0", "columns before the first"),
    Row::new(Key::Bottom, of!(Pad), NUMBER, "0", "rows after the last"),
    Row::new(Key::Right, of!(Pad), NUMBER, "0", "columns after the last"),
];
