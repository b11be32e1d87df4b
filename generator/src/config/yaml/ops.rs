//! An entry of a network's `ops`: the keys of each op and their conversion to its options.

use super::activation::{activation, is_activation};
use super::fields::{Fields, KeySet, integer, integers, list, string};
use super::node::{Node, Value};
use super::report::Report;
use crate::ir::{
    Activation, BatchNorm, BinaryOp, ConvOptions, Layout, LinearOptions, OpOptions, PaddingOption,
    PoolOptions, Precision, Reduce, ScaleShiftOptions, Tolerance,
};
use crate::scheme::{Tile, scheme, tile_names};
use crate::suggest::nearest;
use tdc_runtime::Padding;

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
    /// The name of its output in the driver's interface.
    pub(super) output: Option<String>,
    pub(super) options: OpOptions,
}

type ReadOptions = fn(&Fields<'_>, &mut Report<'_>) -> Option<OpOptions>;

/// All ops: name, keys, and the function that reads them.
const OPS: [(KeySet, ReadOptions); 12] = [
    (CONV, |fields, report| {
        let n = required_n(fields, report);
        Some(OpOptions::Conv(ConvOptions {
            bn: batch_norm(fields, report),
            ranks: fields.integers("ranks", "[D1, D2]", report),
            factors: factors(fields, report),
            ..conv_options(n?, fields, report)
        }))
    }),
    (
        KeySet {
            what: "max_pool",
            keys: &[
                "op",
                "name",
                "inputs",
                "output",
                "kernel",
                "stride",
                "pad",
                "dilation",
                "ceil_mode",
            ],
        },
        |fields, report| pool(fields, report).map(OpOptions::MaxPool),
    ),
    (
        KeySet {
            what: "avg_pool",
            keys: &[
                "op",
                "name",
                "inputs",
                "output",
                "kernel",
                "stride",
                "pad",
                "ceil_mode",
                "count_include_pad",
            ],
        },
        |fields, report| pool(fields, report).map(OpOptions::AvgPool),
    ),
    (plain("global_max_pool"), |_, _| {
        Some(OpOptions::GlobalMaxPool)
    }),
    (plain("global_avg_pool"), |_, _| {
        Some(OpOptions::GlobalAvgPool)
    }),
    (
        KeySet {
            what: "linear",
            keys: &["op", "name", "inputs", "output", "n", "bias", "activation"],
        },
        |fields, report| {
            let n = required_n(fields, report);
            Some(OpOptions::Linear(LinearOptions {
                bias: fields.boolean("bias", true, report),
                activation: activation(fields, report),
                n: n?,
            }))
        },
    ),
    (
        KeySet {
            what: "add",
            keys: &["op", "name", "inputs", "output", "activation"],
        },
        |fields, report| Some(OpOptions::Binary(BinaryOp::Add, activation(fields, report))),
    ),
    (
        KeySet {
            what: "mul",
            keys: &["op", "name", "inputs", "output", "activation"],
        },
        |fields, report| Some(OpOptions::Binary(BinaryOp::Mul, activation(fields, report))),
    ),
    (
        KeySet {
            what: "activation",
            keys: &["op", "name", "inputs", "output", "activation"],
        },
        |fields, report| {
            let node = fields.require("activation", "write `activation: relu`", report)?;
            let before = report.count();
            let activation = activation(fields, report);
            if activation == Activation::None && report.count() == before {
                report.error(node.at, "an op that changes nothing; remove it");
            }
            Some(OpOptions::Activation(activation))
        },
    ),
    (
        KeySet {
            what: "scale_shift",
            keys: &["op", "name", "inputs", "output", "bn", "activation"],
        },
        |fields, report| {
            Some(OpOptions::ScaleShift(ScaleShiftOptions {
                bn: batch_norm(fields, report),
                activation: activation(fields, report),
            }))
        },
    ),
    (plain("concat"), |_, _| Some(OpOptions::Concat)),
    (plain("flatten"), |_, _| Some(OpOptions::Flatten)),
];

/// The keys of a convolution in a network.
const CONV: KeySet = KeySet {
    what: "conv",
    keys: &[
        "op",
        "name",
        "inputs",
        "output",
        "n",
        "kernel",
        "stride",
        "pad",
        "dilation",
        "groups",
        "bias",
        "bn",
        "activation",
        "ranks",
        "cp_rank",
        "factors",
        "scheme",
        "tile",
        "reduce",
        "precision",
        "tolerance",
        "layout",
    ],
};

/// The keys that a network or layer set may have for all its convolutions.
pub(super) const INHERITED: [&str; 2] = ["precision", "tolerance"];

/// Checks them in the network or layer set: an invalid value is an error even if every convolution overrides
/// it, or if there are none.
pub(super) fn check_inherited(fields: &Fields<'_>, report: &mut Report<'_>) {
    precision(fields, report);
    tolerance(fields, report);
}

fn precision(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<Precision> {
    fields.choice("precision", &Precision::NAMES, report)
}

/// A relative error.
fn tolerance(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<Tolerance> {
    let node = fields.get("tolerance")?;
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

const fn plain(what: &'static str) -> KeySet {
    KeySet {
        what,
        keys: &["op", "name", "inputs", "output"],
    }
}

/// The keys of all ops, for finding where a misplaced key belongs.
pub(super) fn words() -> [KeySet; 12] {
    OPS.map(|(words, _)| words)
}

/// Reads one op of a network, whose keys are defaults for the op; `None` if it is not a mapping.
pub(super) fn read<'n>(
    node: &'n Node,
    network: &Fields<'n>,
    report: &mut Report<'_>,
) -> Option<RawOp<'n>> {
    let before = report.count();
    let fields = Fields::of(node, "an op", report)?.with_defaults(network, &INHERITED);
    let kind = fields
        .require("op", "write `op: conv` or another op first", report)
        .and_then(|node| kind(node, report));
    if let Some((words, _)) = kind {
        fields.check_keys(node, words, &self::words(), report);
    }
    fields.require(
        "name",
        "every op has one: weights and other ops refer to it",
        report,
    );
    let name = fields.string("name", report);
    let inputs = inputs(&fields, report);
    let output = output(&fields, report);
    let options = kind.and_then(|(_, read)| read(&fields, report));
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

fn kind(node: &Node, report: &mut Report<'_>) -> Option<(KeySet, ReadOptions)> {
    let requested = string("op", node, report)?;
    let known = OPS.iter().find(|(words, _)| words.what == requested);
    if known.is_none() {
        let all: Vec<&str> = OPS.iter().map(|(words, _)| words.what).collect();
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

/// One name or a list of them.
fn inputs(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<Vec<String>> {
    let node = fields.get("inputs")?;
    if let Value::String(name) = &node.value {
        return Some(vec![name.clone()]);
    }
    let names = list("inputs", node, "[first, second]", report)?;
    let names = names
        .iter()
        .filter_map(|item| string("inputs", item, report));
    Some(names.map(str::to_owned).collect())
}

/// The name in `output: {name: ...}`.
fn output(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<String> {
    let node = fields.get("output")?;
    let output = Fields::of(node, "`output`", report)?;
    let words = KeySet {
        what: "output",
        keys: &["name"],
    };
    output.check_keys(node, words, &[], report);
    output.require("name", "it is the output's name in the driver", report);
    output.string("name", report).map(str::to_owned)
}

fn required_n(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<u32> {
    let node = fields.require("n", "it is the number of output channels", report)?;
    integer("n", node, report)
}

/// The options that a convolution has in a network and in a layer set. A value with an error is replaced by
/// its default.
pub(super) fn conv_options(n: u32, fields: &Fields<'_>, report: &mut Report<'_>) -> ConvOptions {
    let default = ConvOptions::new(n);
    ConvOptions {
        kernel: fields.pair("kernel", report).unwrap_or(default.kernel),
        stride: fields.pair("stride", report).unwrap_or(default.stride),
        pad: conv_pad(fields, report).unwrap_or(default.pad),
        dilation: fields.pair("dilation", report).unwrap_or(default.dilation),
        groups: fields.integer("groups", report).unwrap_or(default.groups),
        bias: fields.boolean("bias", default.bias, report),
        activation: activation(fields, report),
        cp_rank: fields.integer("cp_rank", report),
        scheme: fields.string("scheme", report).map(str::to_owned),
        tile: tile(fields, report),
        reduce: fields
            .choice("reduce", &Reduce::NAMES, report)
            .unwrap_or(default.reduce),
        precision: precision(fields, report).unwrap_or(default.precision),
        tolerance: tolerance(fields, report).unwrap_or(default.tolerance),
        layout: fields
            .choice("layout", &Layout::NAMES, report)
            .unwrap_or(default.layout),
        ..default
    }
}

fn conv_pad(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<PaddingOption> {
    let node = fields.get("pad")?;
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
                integers("pad", node, "[top, left, bottom, right]", report)?;
            Some(Padding {
                top,
                left,
                bottom,
                right,
            })
        }
        Value::List(_) => {
            let form = "[vertical, horizontal] or [top, left, bottom, right]";
            let [vertical, horizontal] = integers("pad", node, form, report)?;
            Some(Padding {
                top: vertical,
                left: horizontal,
                bottom: vertical,
                right: horizontal,
            })
        }
        Value::Map(_) => {
            let sides = Fields::of(node, "`pad`", report)?;
            let words = KeySet {
                what: "pad",
                keys: &["top", "left", "bottom", "right"],
            };
            sides.check_keys(node, words, &[], report);
            let mut side = |key| sides.integer(key, report).unwrap_or(0);
            Some(Padding {
                top: side("top"),
                left: side("left"),
                bottom: side("bottom"),
                right: side("right"),
            })
        }
        Value::Integer(_) => integer("pad", node, report).map(Padding::all),
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

fn pool(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<PoolOptions> {
    fields.require("kernel", "it is the size of the window", report);
    let kernel = fields.pair("kernel", report);
    let stride = fields.pair("stride", report);
    let pad = fields
        .get("pad")
        .and_then(|node| padding(node, "a number", report));
    let dilation = fields.pair("dilation", report).unwrap_or([1, 1]);
    let ceil_mode = fields.boolean("ceil_mode", false, report);
    let count_include_pad = fields.boolean("count_include_pad", true, report);
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

/// A BatchNorm's name, or `{name, eps}`.
fn batch_norm(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<BatchNorm> {
    let node = fields.get("bn")?;
    if !matches!(node.value, Value::Map(_)) {
        return Some(BatchNorm {
            name: string("bn", node, report)?.to_owned(),
            eps: BatchNorm::DEFAULT_EPS,
        });
    }
    let inner = Fields::of(node, "`bn`", report)?;
    let words = KeySet {
        what: "bn",
        keys: &["name", "eps"],
    };
    inner.check_keys(node, words, &[], report);
    inner.require(
        "name",
        "it is the BatchNorm's name in the checkpoint",
        report,
    );
    let name = inner.string("name", report);
    let eps = match inner.get("eps") {
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

fn factors(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<Vec<String>> {
    let (count, form) = match fields.get("cp_rank") {
        Some(_) => (4, "[first, vertical, horizontal, last]"),
        None => (3, "[first, core, last]"),
    };
    let node = fields.get("factors")?;
    let items = list("factors", node, form, report)?;
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
        .filter_map(|item| string("factors", item, report));
    Some(names.map(str::to_owned).collect())
}

fn tile(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<Vec<u32>> {
    let node = fields.get("tile")?;
    if let Value::Map(numbers) = &node.value {
        return named_tile(fields, node, numbers, report);
    }
    let form = "the tile's numbers, as [2, 4] or {th: 2, tw: 4}";
    let items = list("tile", node, form, report)?;
    let sizes = items
        .iter()
        .filter_map(|item| integer("tile", item, report));
    Some(sizes.collect())
}

/// A tile by the names that its scheme has for the numbers.
fn named_tile(
    fields: &Fields<'_>,
    node: &Node,
    numbers: &[(Node, Node)],
    report: &mut Report<'_>,
) -> Option<Vec<u32>> {
    let Some(name) = fields.get("scheme") else {
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
        let value = integer("tile", value, report);
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
