//! An entry of a network's `ops`: the keys of each op and their conversion to its options.

use super::activation::{activation, is_activation};
use super::fields::{Fields, integer, integers, list, string};
use super::node::{Node, Value};
use super::outputs;
use super::report::Report;
use crate::config::Overrides;
use crate::config::schema::{Key, Mapping, NetworkOp, inherited_keys};
use crate::ir::{
    Activation, ActivationParameter, BatchNorm, BinaryOp, ChannelNorm, ConvOptions,
    ConvTransposeOptions, Coordinates, Interpolation, Layout, LinearOptions, Lrn, OpOptions,
    OutputOptions, PadMode, PadOptions, PaddingOption, PoolOptions, Precision, Reduce,
    ResizeOptions, ResizedSize, Rounding, ScaleShiftOptions, SliceOptions, Tolerance,
};
use crate::scheme::{Tile, scheme, tile_names};
use crate::suggest::nearest;
use tdc_runtime::{FactorRole, Padding};

/// An op as written.
pub(super) struct RawOp<'n> {
    pub(super) fields: Fields<'n>,
    /// Its name, if it could be read.
    pub(super) name: Option<&'n str>,
    /// The rest; `None` after an error.
    pub(super) request: Option<OpRequest>,
}

/// What a builder needs in addition to the name.
pub(super) struct OpRequest {
    pub(super) inputs: Option<Vec<String>>,
    /// Its output, if the op says that it is one of the network.
    pub(super) output: Option<OutputOptions>,
    pub(super) options: OpOptions,
}

/// Checks the inherited keys in the network or layer set: an invalid value is an error even if every convolution overrides
/// it, or if there are none.
pub(super) fn check_inherited(fields: &Fields<'_>, report: &mut Report<'_>) {
    precision(fields, report);
    tolerance(fields, report);
}

pub(super) fn precision(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<Precision> {
    fields.choice(Key::Precision, &Precision::NAMES, report)
}

/// A relative error.
pub(super) fn tolerance(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<Tolerance> {
    let node = fields.get(Key::Tolerance)?;
    let number = match node.value {
        Value::Float(number) => Some(number),
        Value::Integer(number) => Some(number as f64),
        _ => None,
    };
    let found = number.and_then(Tolerance::new);
    if found.is_none() {
        let [least, most] = Tolerance::RANGE;
        let quoted = report.quote(node);
        report.error(
            node.at,
            format!(
                "`tolerance` cannot be {quoted}; write a relative error from {least:e} to {most}, such as 5e-6"
            ),
        );
    }
    found
}

/// Reads one op of a network, whose keys are defaults for the op; `None` if it is not a mapping.
pub(super) fn read<'n>(
    node: &'n Node,
    network: &Fields<'n>,
    overrides: &Overrides,
    report: &mut Report<'_>,
) -> Option<RawOp<'n>> {
    let before = report.count();
    let fields = Fields::of(node, "an op", report)?.with_defaults(network, inherited_keys());
    let kind = fields
        .require(Key::Op, "write `op: conv` or another op first", report)
        .and_then(|node| kind(node, report));
    if let Some(op) = kind {
        fields.check_keys(node, Mapping::Op(op), &NetworkOp::mappings(), report);
    }
    fields.require(
        Key::Name,
        "every op has one: weights and other ops refer to it",
        report,
    );
    let name = fields.string(Key::Name, report);
    let inputs = inputs(&fields, report);
    let output = outputs::of_op(&fields, report);
    let options = kind.and_then(|op| options(op, &fields, overrides, report));
    let request = options
        .filter(|_| report.count() == before)
        .map(|options| OpRequest {
            inputs,
            output,
            options,
        });
    Some(RawOp {
        fields,
        name,
        request,
    })
}

fn kind(node: &Node, report: &mut Report<'_>) -> Option<NetworkOp> {
    let requested = string(Key::Op, node, report)?;
    let known = NetworkOp::ALL.iter().find(|op| op.row().name == requested);
    if known.is_none() {
        let all: Vec<&str> = NetworkOp::ALL.iter().map(|op| op.row().name).collect();
        let hint = match nearest(requested, all.iter().copied()) {
            _ if is_activation(requested) => {
                format!("write `op: activation, activation: {requested}`; ")
            }
            Some(near) => format!("did you mean `{near}`? "),
            None => String::new(),
        };
        let found = report.quote(node);
        report.error(
            node.at,
            format!("unknown op {found}; {hint}the ops are {}", all.join(", ")),
        );
    }
    known.copied()
}

/// The options of an op.
fn options(
    op: NetworkOp,
    fields: &Fields<'_>,
    overrides: &Overrides,
    report: &mut Report<'_>,
) -> Option<OpOptions> {
    match op {
        NetworkOp::Conv => {
            let n = required_n(fields, report);
            let options = ConvOptions {
                bn: batch_norm(fields, report),
                ranks: fields.integers(Key::Ranks, "[D1, D2]", report),
                rank: fields.integer(Key::Rank, report),
                factors: factors(fields, conv_factors(fields), report),
                ..conv_options(n?, fields, report)
            };
            Some(OpOptions::Conv(overrides.convolution(options)))
        }
        NetworkOp::ConvTranspose => conv_transpose(fields, report).map(OpOptions::ConvTranspose),
        NetworkOp::MaxPool => pool(fields, report).map(OpOptions::MaxPool),
        NetworkOp::AvgPool => pool(fields, report).map(OpOptions::AvgPool),
        NetworkOp::GlobalMaxPool => Some(OpOptions::GlobalMaxPool),
        NetworkOp::GlobalAvgPool => Some(OpOptions::GlobalAvgPool),
        NetworkOp::Softmax => Some(OpOptions::ChannelNorm(ChannelNorm::Softmax)),
        NetworkOp::LayerNorm => {
            let eps = match fields.get(Key::Eps) {
                None => Some(BatchNorm::DEFAULT_EPS),
                Some(node) => eps(node, report),
            };
            let eps = ActivationParameter::new(eps? as f32);
            Some(OpOptions::ChannelNorm(ChannelNorm::LayerNorm { eps }))
        }
        NetworkOp::L2Norm => {
            let eps = number(Key::Eps, ChannelNorm::DEFAULT_L2_EPS, fields, report)?;
            Some(OpOptions::ChannelNorm(ChannelNorm::L2 { eps }))
        }
        NetworkOp::Lrn => lrn(fields, report).map(OpOptions::Lrn),
        NetworkOp::Pad => pad(fields, report).map(OpOptions::Pad),
        NetworkOp::Resize => resize(fields, report).map(OpOptions::Resize),
        NetworkOp::Linear => {
            let n = required_n(fields, report);
            let default = LinearOptions::new(0);
            let options = LinearOptions {
                bias: fields.boolean(Key::Bias, default.bias, report),
                activation: activation(fields, report),
                rank: fields.integer(Key::Rank, report),
                factors: factors(fields, &FactorRole::LOW_RANK, report),
                precision: precision(fields, report).unwrap_or(default.precision),
                n: n?,
            };
            Some(OpOptions::Linear(overrides.linear(options)))
        }
        NetworkOp::Add => Some(OpOptions::Binary(BinaryOp::Add, activation(fields, report))),
        NetworkOp::Sub => Some(OpOptions::Binary(BinaryOp::Sub, activation(fields, report))),
        NetworkOp::Mul => Some(OpOptions::Binary(BinaryOp::Mul, activation(fields, report))),
        NetworkOp::Activation => {
            let node = fields.require(Key::Activation, "write `activation: relu`", report)?;
            let before = report.count();
            let activation = activation(fields, report);
            if activation == Activation::None && report.count() == before {
                report.error(node.at, "an op that changes nothing; remove it");
            }
            Some(OpOptions::Activation(activation))
        }
        NetworkOp::PRelu => Some(OpOptions::PRelu),
        NetworkOp::ScaleShift => Some(OpOptions::ScaleShift(ScaleShiftOptions {
            bn: batch_norm(fields, report),
            activation: activation(fields, report),
        })),
        NetworkOp::Concat => Some(OpOptions::Concat),
        NetworkOp::Slice => {
            let start = fields.integer(Key::Start, report).unwrap_or(0);
            let n = required(Key::N, "it is the number of channels", fields, report);
            Some(OpOptions::Slice(SliceOptions { start, n: n? }))
        }
        NetworkOp::Shuffle => {
            let help = "it is the number of groups of channels";
            required(Key::Groups, help, fields, report).map(OpOptions::Shuffle)
        }
        NetworkOp::Flatten => Some(OpOptions::Flatten),
    }
}

/// One name or a list of them.
fn inputs(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<Vec<String>> {
    let node = fields.get(Key::Inputs)?;
    if let Value::String(name) = &node.value {
        return Some(vec![name.clone()]);
    }
    let names = list(Key::Inputs, node, "[first, second]", report)?;
    let names = names
        .iter()
        .filter_map(|item| string(Key::Inputs, item, report));
    Some(names.map(str::to_owned).collect())
}

fn required_n(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<u32> {
    let help = "it is the number of output channels";
    required(Key::N, help, fields, report)
}

/// A number that must be given.
fn required(key: Key, help: &str, fields: &Fields<'_>, report: &mut Report<'_>) -> Option<u32> {
    let node = fields.require(key, help, report)?;
    integer(key, node, report)
}

/// Whether an op is written as a factorised layer.
pub(super) fn has_ranks(fields: &Fields<'_>) -> bool {
    let keys = [Key::Ranks, Key::CpRank, Key::Rank];
    keys.iter().any(|&key| fields.get(key).is_some())
}

/// The options that a convolution has in a network and in a layer set. A value with an error is replaced by
/// its default.
pub(super) fn conv_options(n: u32, fields: &Fields<'_>, report: &mut Report<'_>) -> ConvOptions {
    let default = ConvOptions::new(n);
    ConvOptions {
        kernel: fields.pair(Key::Kernel, report).unwrap_or(default.kernel),
        stride: fields.pair(Key::Stride, report).unwrap_or(default.stride),
        pad: conv_pad(fields, report).unwrap_or(default.pad),
        dilation: fields
            .pair(Key::Dilation, report)
            .unwrap_or(default.dilation),
        groups: fields
            .integer(Key::Groups, report)
            .unwrap_or(default.groups),
        bias: fields.boolean(Key::Bias, default.bias, report),
        activation: activation(fields, report),
        cp_rank: fields.integer(Key::CpRank, report),
        scheme: fields.string(Key::Scheme, report).map(str::to_owned),
        tile: tile(fields, report),
        reduce: fields
            .choice(Key::Reduce, &Reduce::NAMES, report)
            .unwrap_or(default.reduce),
        precision: precision(fields, report).unwrap_or(default.precision),
        tolerance: tolerance(fields, report).unwrap_or(default.tolerance),
        layout: fields
            .choice(Key::Layout, &Layout::NAMES, report)
            .unwrap_or(default.layout),
        ..default
    }
}

fn conv_pad(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<PaddingOption> {
    let node = fields.get(Key::Pad)?;
    match &node.value {
        Value::String(text) if text == "same" => Some(PaddingOption::Same),
        _ => padding(node, "same, a number", report).map(PaddingOption::Pixels),
    }
}

/// A number, `[vertical, horizontal]`, `[top, left, bottom, right]` or a mapping of sides.
fn padding(node: &Node, simple_forms: &str, report: &mut Report<'_>) -> Option<Padding> {
    match &node.value {
        Value::List(items) if items.len() == 4 => {
            let [top, left, bottom, right] =
                integers(Key::Pad, node, "[top, left, bottom, right]", report)?;
            Some(Padding {
                top,
                left,
                bottom,
                right,
            })
        }
        Value::List(_) => {
            let form = "[vertical, horizontal] or [top, left, bottom, right]";
            let [vertical, horizontal] = integers(Key::Pad, node, form, report)?;
            Some(Padding {
                top: vertical,
                left: horizontal,
                bottom: vertical,
                right: horizontal,
            })
        }
        Value::Map(_) => {
            let sides = Fields::of(node, "`pad`", report)?;
            sides.check_keys(node, Mapping::Pad, &[], report);
            let mut side = |key| sides.integer(key, report).unwrap_or(0);
            Some(Padding {
                top: side(Key::Top),
                left: side(Key::Left),
                bottom: side(Key::Bottom),
                right: side(Key::Right),
            })
        }
        Value::Integer(_) => integer(Key::Pad, node, report).map(Padding::all),
        _ => {
            let found = report.quote(node);
            report.error(
                node.at,
                format!(
                    "`pad` cannot be {found}; write {simple_forms}, [vertical, horizontal], \
                     [top, left, bottom, right] or {{top: 1}}"
                ),
            );
            None
        }
    }
}

fn conv_transpose(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<ConvTransposeOptions> {
    let n = required_n(fields, report);
    fields.require(Key::Kernel, "it is the size of the filter", report);
    let kernel = fields.pair(Key::Kernel, report);
    let pad = fields
        .get(Key::Pad)
        .and_then(|node| padding(node, "a number", report));
    let default = ConvTransposeOptions::new(n.unwrap_or(1), kernel.unwrap_or([1, 1]));
    let pair = |key, default: [u32; 2], report: &mut Report<'_>| {
        fields.pair(key, report).unwrap_or(default)
    };
    let options = ConvTransposeOptions {
        stride: pair(Key::Stride, default.stride, report),
        pad: pad.unwrap_or_default(),
        output_padding: pair(Key::OutputPadding, default.output_padding, report),
        dilation: pair(Key::Dilation, default.dilation, report),
        groups: fields
            .integer(Key::Groups, report)
            .unwrap_or(default.groups),
        bias: fields.boolean(Key::Bias, default.bias, report),
        activation: activation(fields, report),
        ..default
    };
    (n.is_some() && kernel.is_some()).then_some(options)
}

fn pool(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<PoolOptions> {
    fields.require(Key::Kernel, "it is the size of the window", report);
    let kernel = fields.pair(Key::Kernel, report);
    let stride = fields.pair(Key::Stride, report);
    let pad = fields
        .get(Key::Pad)
        .and_then(|node| padding(node, "a number", report));
    let dilation = fields.pair(Key::Dilation, report).unwrap_or([1, 1]);
    let ceil_mode = fields.boolean(Key::CeilMode, false, report);
    let count_include_pad = fields.boolean(Key::CountIncludePad, true, report);
    let kernel = kernel?;
    Some(PoolOptions {
        kernel,
        stride: stride.unwrap_or(kernel),
        pad: pad.unwrap_or_default(),
        dilation,
        ceil_mode,
        count_include_pad,
    })
}

fn lrn(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<Lrn> {
    let size = required(Key::Size, "it is the number of channels", fields, report);
    let (alpha, beta, k) = (
        number(Key::Alpha, Lrn::DEFAULT_ALPHA, fields, report),
        number(Key::Beta, Lrn::DEFAULT_BETA, fields, report),
        number(Key::K, Lrn::DEFAULT_K, fields, report),
    );
    Some(Lrn {
        size: size?,
        alpha: alpha?,
        beta: beta?,
        k: k?,
    })
}

fn pad(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<PadOptions> {
    let node = fields.require(Key::Pad, "it is the number of pixels", report);
    let pad = node.and_then(|node| padding(node, "a number", report));
    let value = number(Key::Value, 0.0, fields, report);
    let mode = fields.choice(Key::Mode, &PadMode::NAMES, report);
    let mode = match (mode.unwrap_or(PadMode::ZERO), fields.get(Key::Value)) {
        (PadMode::Constant(_), _) => PadMode::Constant(value?),
        (mode, None) => mode,
        (_, Some(node)) => {
            let message = "`value` is of `mode: constant`; remove it".to_owned();
            report.error(node.at, message);
            return None;
        }
    };
    Some(PadOptions { pad: pad?, mode })
}

/// A number with a default; `None` after an error.
fn number(
    key: Key,
    default: f32,
    fields: &Fields<'_>,
    report: &mut Report<'_>,
) -> Option<ActivationParameter> {
    let Some(node) = fields.get(key) else {
        return Some(ActivationParameter::new(default));
    };
    let number = match node.value {
        Value::Float(number) => number,
        Value::Integer(number) => number as f64,
        _ => f64::NAN,
    };
    if number.is_nan() {
        let found = report.quote(node);
        report.error(node.at, format!("`{key}` must be a number, not {found}"));
        return None;
    }
    Some(ActivationParameter::new(number as f32))
}

fn resize(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<ResizeOptions> {
    let (scale, size) = (
        fields.pair(Key::Scale, report),
        fields.pair(Key::Size, report),
    );
    let size = match (fields.get(Key::Scale), fields.get(Key::Size)) {
        (None, None) => {
            report.error(
                fields.at,
                "`scale` or `size` is missing; write `scale: 2`".to_owned(),
            );
            None
        }
        (Some(_), Some(node)) => {
            report.error(
                node.at,
                "`scale` gives the size already; remove one".to_owned(),
            );
            None
        }
        _ => scale
            .map(ResizedSize::Scale)
            .or(size.map(ResizedSize::Pixels)),
    };
    let coordinates = fields.choice(Key::Coordinates, &Coordinates::NAMES, report);
    let rounding = fields.choice(Key::Rounding, &Rounding::NAMES, report);
    let is_bilinear = fields.choice(Key::Mode, &[("nearest", false), ("bilinear", true)], report);
    let interpolation = match (is_bilinear, fields.get(Key::Rounding)) {
        (Some(true), Some(node)) => {
            let message = "`rounding` is of `mode: nearest`; remove it".to_owned();
            report.error(node.at, message);
            Interpolation::Bilinear
        }
        (Some(true), None) => Interpolation::Bilinear,
        _ => Interpolation::Nearest(rounding.unwrap_or_default()),
    };
    Some(ResizeOptions {
        size: size?,
        coordinates: coordinates.unwrap_or_default(),
        interpolation,
    })
}

/// A BatchNorm's name, or `{name, eps}`.
fn batch_norm(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<BatchNorm> {
    let node = fields.get(Key::Bn)?;
    if !matches!(node.value, Value::Map(_)) {
        return Some(BatchNorm {
            name: string(Key::Bn, node, report)?.to_owned(),
            eps: BatchNorm::DEFAULT_EPS,
        });
    }
    let inner = Fields::of(node, "`bn`", report)?;
    inner.check_keys(node, Mapping::BatchNorm, &[], report);
    inner.require(
        Key::Name,
        "it is the BatchNorm's name in the checkpoint",
        report,
    );
    let name = inner.string(Key::Name, report);
    let eps = match inner.get(Key::Eps) {
        None => Some(BatchNorm::DEFAULT_EPS),
        Some(node) => eps(node, report),
    };
    Some(BatchNorm {
        name: name?.to_owned(),
        eps: eps?,
    })
}

fn eps(node: &Node, report: &mut Report<'_>) -> Option<f64> {
    let eps = match node.value {
        Value::Float(eps) => eps,
        Value::Integer(eps) => eps as f64,
        _ => f64::NAN,
    };
    if eps.is_finite() && eps >= 0.0 {
        return Some(eps);
    }
    let found = report.quote(node);
    report.error(
        node.at,
        format!("`eps` must be a number from 0, not {found}; PyTorch's default is 1e-5"),
    );
    None
}

/// The factors of a convolution, by the ranks that are written.
pub(super) fn conv_factors(fields: &Fields<'_>) -> &'static [FactorRole] {
    match (fields.get(Key::CpRank), fields.get(Key::Rank)) {
        (Some(_), _) => &FactorRole::CP,
        (None, Some(_)) => &FactorRole::LOW_RANK,
        (None, None) => &FactorRole::TUCKER,
    }
}

/// The names of a layer's factors in the checkpoint.
pub(super) fn factors(
    fields: &Fields<'_>,
    roles: &[FactorRole],
    report: &mut Report<'_>,
) -> Option<Vec<String>> {
    let count = roles.len();
    let names: Vec<_> = roles.iter().map(|role| role.as_str()).collect();
    let form = &format!("[{}]", names.join(", "))[..];
    let node = fields.get(Key::Factors)?;
    let items = list(Key::Factors, node, form, report)?;
    if items.len() != count {
        report.error(
            node.at,
            format!(
                "`factors` needs {count} names, not {}; write {form}",
                items.len()
            ),
        );
        return None;
    }
    let names = items
        .iter()
        .filter_map(|item| string(Key::Factors, item, report));
    Some(names.map(str::to_owned).collect())
}

pub(super) fn tile(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<Vec<u32>> {
    let node = fields.get(Key::Tile)?;
    if let Value::Map(numbers) = &node.value {
        return named_tile(fields, node, numbers, report);
    }
    let form = "the tile's numbers, as [2, 4] or {th: 2, tw: 4}";
    let items = list(Key::Tile, node, form, report)?;
    let sizes = items
        .iter()
        .filter_map(|item| integer(Key::Tile, item, report));
    Some(sizes.collect())
}

/// A tile by the names that its scheme has for the numbers.
fn named_tile(
    fields: &Fields<'_>,
    node: &Node,
    numbers: &[(Node, Node)],
    report: &mut Report<'_>,
) -> Option<Vec<u32>> {
    let Some(name) = fields.get(Key::Scheme) else {
        report.error(
            node.at,
            "the names of a tile's numbers are its scheme's; set `scheme` too".to_owned(),
        );
        return None;
    };
    // Another value is reported where `scheme` is read, an unknown scheme by the planner.
    let Value::String(name) = &name.value else {
        return None;
    };
    let Some(scheme) = scheme(name) else {
        report.error(
            node.at,
            format!(
                "there is no scheme named `{name}`, so the names of the tile's numbers are unknown"
            ),
        );
        return None;
    };
    let mut found = Vec::new();
    let mut complete = true;
    for (key, value) in numbers {
        let value = integer(Key::Tile, value, report);
        match (&key.value, value) {
            (Value::String(key), Some(value)) => found.push((key.as_str(), value)),
            (Value::String(_), None) => complete = false,
            _ => {
                let written = report.quote(key);
                let names = tile_names(scheme.tile_fields());
                report.error(
                    key.at,
                    format!(
                        "a tile's numbers have names, not {written}; those of `{name}` are {names}"
                    ),
                );
                complete = false;
            }
        }
    }
    if !complete {
        return None;
    }
    match Tile::from_named(found, scheme.tile_fields()) {
        Ok(tile) => Some(tile.0),
        Err(errors) => {
            for error in errors {
                let key = numbers.iter().rfind(|(key, _)| match &key.value {
                    Value::String(key) => error.name() == Some(key),
                    _ => false,
                });
                let at = key.map_or(node.at, |(key, _)| key.at);
                report.error(at, format!("scheme `{name}`: {error}"));
            }
            None
        }
    }
}
