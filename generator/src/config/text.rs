//! The grammar of `kernel!`, one kernel in one line: `conv 64,32,56,56, kernel = 5, pad = [2, 1], gpu =
//! h100`.
//!
//!```text
//! call  = op value {"," value} {"," key "=" value} [","]        the values are the sizes: C, N, H, W
//!       | string {"," key "=" value} [","]                      a config, and which of its layers
//! value = number | word | string | "[" value {"," value} "]" | "{" key ":" value {"," key ":" value} "}"
//!```
//! The keys are those of a layer in a layer set, with the same forms, defaults and checks, and those of
//! its targets ([`schema`](super::schema)). Activations are NCHW.

mod parser;

use super::schema::{CallOp, Key, Mapping};
use super::yaml::fields::{Fields, integer};
use super::yaml::layers::{self, UsedNames};
use super::yaml::node::{Node, Value};
use super::yaml::report::Report;
use super::{ConfigErrors, Overrides, Position, yaml};
use crate::gpu::{self, Targets, gpu_for_arch};
use crate::ir::{LayerSpec, TilePolicy};
use crate::suggest::nearest;
use parser::{Call, is_word};
use tdc_runtime::Arch;

/// A checked request for kernels.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelRequest {
    /// The layers.
    pub source: LayerSource,
    /// The GPUs to plan for, if specified.
    pub gpus: Option<Targets>,
    /// The architectures to compile for, if specified: ascending, without duplicates.
    pub archs: Option<Vec<Arch>>,
    /// The tile policy, if specified.
    pub tiles: Option<TilePolicy>,
    /// A file with the tuning table to use.
    pub table: Option<String>,
    positions: KeyPositions,
}

/// The layers that a call requests.
#[derive(Debug, Clone, PartialEq)]
pub enum LayerSource {
    /// A layer with all sizes and options.
    Inline(LayerSpec),
    /// A layer of a config.
    Config {
        /// Path of the config.
        file: String,
        /// Name of the layer in it; `None` for all of its convolutions.
        layer: Option<String>,
    },
}

/// Positions for errors that are detected outside this module.
#[derive(Debug, Clone, PartialEq)]
struct KeyPositions {
    op: Position,
    keys: Vec<(&'static str, Position)>,
}

impl KernelRequest {
    /// The position of a key's value, for the cause of a [`PlanError`](crate::plan::PlanError); that of the
    /// op or the config's path if the call does not have the key.
    pub fn position(&self, key: Option<&str>) -> Position {
        let KeyPositions { op, keys } = &self.positions;
        let found = keys.iter().find(|(known, _)| Some(*known) == key);
        found.map_or(*op, |(_, at)| *at)
    }
}

/// The name of the op of a call, for choosing the type of a placeholder even if the call is invalid.
pub fn op_word(text: &str) -> &str {
    let text = text.trim_start();
    text.split(|c| !is_word(c)).next().unwrap_or_default()
}

/// Parses a request; `source` is its name in messages.
///
/// # Errors
/// All errors that can be found, each with line and column.
pub fn parse(text: &str, source: &str) -> Result<KernelRequest, ConfigErrors> {
    let mut report = Report::new(text);
    let call = parser::call(text, &mut report);
    let request = call.and_then(|call| match call.is_config {
        true => request(call, config_layer, &mut report),
        false => request(call, layer, &mut report),
    });
    report.finish(source, request)
}

/// Parses a request for all convolutions of a config, such as `"configs/resnet18.yaml", gpu = h100`; `source`
/// is its name in messages.
///
/// # Errors
/// As [`parse`].
pub fn parse_config(text: &str, source: &str) -> Result<KernelRequest, ConfigErrors> {
    let mut report = Report::new(text);
    let call = parser::call(text, &mut report);
    let request = call.and_then(|call| request(call, whole_config, &mut report));
    report.finish(source, request)
}

fn request(
    call: Call,
    read: fn(Call, &mut Report<'_>) -> Option<ParsedCall>,
    report: &mut Report<'_>,
) -> Option<KernelRequest> {
    let at = call.op.at;
    let (layer_source, options, mapping) = read(call, report)?;
    let fields = Fields::of(&options, mapping.title(), report)?;
    let before = report.count();
    let gpus = fields
        .get(Key::Gpu)
        .and_then(|node| code_targets(node, &fields, report));
    let archs = fields.get(Key::Arch).and_then(|node| archs(node, report));
    let tiles = fields
        .get(Key::Tiles)
        .map(|_| yaml::tiles(&fields, &Overrides::default(), report));
    let table = fields.string(Key::Table, report).map(str::to_owned);
    if report.count() > before {
        return None;
    }
    let position = |key: Key| {
        fields.get(key)?;
        Some((key.name(), fields.position(key, None)))
    };
    Some(KernelRequest {
        source: layer_source?,
        gpus,
        archs,
        tiles,
        table,
        positions: KeyPositions {
            op: at,
            keys: mapping.keys().filter_map(position).collect(),
        },
    })
}

/// The request, if it could be read, and its mapping.
type ParsedCall = (Option<LayerSource>, Node, Mapping);

/// A call with a config and one of its layers.
fn config_layer(call: Call, report: &mut Report<'_>) -> Option<ParsedCall> {
    let at = call.op.at;
    let (file, options) = config(call, Mapping::CallConfigLayer, report)?;
    let fields = Fields::of(&options, Mapping::CallConfigLayer.title(), report)?;
    if fields.get(Key::Layer).is_none() {
        report.error(
            at,
            "`layer` is missing; write `layer = \"its name\"` after the path of the config",
        );
    }
    let layer = fields.string(Key::Layer, report).map(str::to_owned);
    let layer_source = file.zip(layer).map(|(file, layer)| LayerSource::Config {
        file,
        layer: Some(layer),
    });
    Some((layer_source, options, Mapping::CallConfigLayer))
}

/// A call with a config.
fn whole_config(call: Call, report: &mut Report<'_>) -> Option<ParsedCall> {
    if !call.is_config {
        report.error(
            call.op.at,
            "the path of a config is missing; write it in quotes, as \"configs/resnet18.yaml\"",
        );
        return None;
    }
    let (file, options) = config(call, Mapping::CallConfig, report)?;
    let layer_source = file.map(|file| LayerSource::Config { file, layer: None });
    Some((layer_source, options, Mapping::CallConfig))
}

/// The path of a config and the keys after it.
fn config(call: Call, mapping: Mapping, report: &mut Report<'_>) -> Option<(Option<String>, Node)> {
    let Call {
        op, sizes, options, ..
    } = call;
    if let Some(size) = sizes.first() {
        report.error(
            size.at,
            "the sizes of layers are in the config; remove them",
        );
    }
    let fields = Fields::of(&options, mapping.title(), report)?;
    fields.check_keys(&options, mapping, &CallOp::mappings(), report);
    let file = match op.value {
        Value::String(path) => Some(path),
        _ => None,
    };
    Some((file, options))
}

/// A call with an op.
fn layer(call: Call, report: &mut Report<'_>) -> Option<ParsedCall> {
    let Call {
        op, sizes, options, ..
    } = call;
    let names = CallOp::ALL.iter().map(|op| op.row().name);
    let word = match &op.value {
        Value::String(word) => Some(word.as_str()),
        _ => None,
    };
    let Some(&known) = CallOp::ALL.iter().find(|op| Some(op.row().name) == word) else {
        let near = word.and_then(|word| nearest(word, names.clone()));
        let hint = near.map_or(String::new(), |near| format!("did you mean `{near}`? "));
        let found = report.quote(&op);
        let all: Vec<_> = names.collect();
        report.error(
            op.at,
            format!("unknown op {found}; {hint}the ops are {}", all.join(", ")),
        );
        return None;
    };
    let mapping = Mapping::Call(known);
    let mut others = CallOp::mappings();
    others.retain(|other| *other != mapping);
    let fields = Fields::of(&options, mapping.title(), report)?;
    fields.check_keys(&options, mapping, &others, report);
    if mapping.has(Key::Ranks) {
        fields.require(Key::Ranks, "write `ranks = [D1, D2]`", report);
    }
    if mapping.has(Key::Rank) {
        fields.require(Key::Rank, "write `rank = R`, at most C and N", report);
    }
    let numbers = numbers(known, &op, &sizes, report);
    let at = op.at;
    let node = |value| Node {
        value,
        at,
        written: op.written.clone(),
    };
    let fixed = known.row().fixed.iter().map(|(key, value)| {
        let value = value(numbers.map_or(1, |[c, ..]| c));
        let key = Value::String(key.name().to_owned());
        (node(key), node(Value::Integer(value.into())))
    });
    let mut entries: Vec<_> = fixed.collect();
    // Errors that concern the sizes are reported at their position.
    entries.push((
        node(Value::String(Key::Conv.name().to_owned())),
        node(sizes_as_list(known, &sizes)),
    ));
    if let Value::Map(written) = &options.value {
        // A rejected key must not replace the sizes.
        let takes = |key: &Node| matches!(&key.value, Value::String(name) if mapping.has(name));
        entries.extend(written.iter().filter(|(key, _)| takes(key)).cloned());
    }
    let all = Node {
        value: Value::Map(entries),
        at,
        written: options.written.clone(),
    };
    let fields = Fields::of(&all, mapping.title(), report)?;
    let overrides = Overrides::default();
    let layer = layers::layer(
        numbers,
        &fields,
        &overrides,
        &mut UsedNames::default(),
        report,
    );
    Some((layer.map(LayerSource::Inline), options, mapping))
}

/// C, N, H and W. Excess sizes are reported and dropped, so that the others are still checked.
fn numbers(known: CallOp, op: &Node, sizes: &[Node], report: &mut Report<'_>) -> Option<[u32; 4]> {
    let (what, names) = (known.row().name, known.row().sizes);
    let numbers: Vec<_> = names
        .iter()
        .zip(sizes)
        .map(|(name, node)| integer(name, node, report))
        .collect();
    let takes = format!("{what} takes {} sizes ({})", names.len(), names.join(", "));
    let found = sizes.len();
    if let Some(extra) = sizes.get(names.len()) {
        let help = match (&extra.value, known) {
            (_, CallOp::Depthwise) => {
                "for several outputs of a channel write `conv` with `groups`".to_owned()
            }
            (_, CallOp::Pointwise | CallOp::LowRank) => {
                format!("write them as `{}`", known.row().example)
            }
            (Value::Integer(side @ 1..=11), _) => {
                format!("for a {side}x{side} filter write `kernel = {side}`")
            }
            _ => "for a 5x5 filter write `kernel = 5`".to_owned(),
        };
        report.error(extra.at, format!("{takes}, not {found}; {help}"));
    } else if found < names.len() {
        let at = sizes.last().unwrap_or(op).at;
        report.error(
            at,
            format!(
                "{takes}, not {found}; write them as `{}`",
                known.row().example
            ),
        );
    }
    let numbers: Option<Vec<u32>> = numbers.into_iter().collect();
    match numbers?[..] {
        [c, n, h, w] => Some([c, n, h, w]),
        [c, h, w] if names.len() == 3 => Some([c, c, h, w]),
        _ => None,
    }
}

/// The sizes as written, in the order C, N, H, W.
fn sizes_as_list(known: CallOp, sizes: &[Node]) -> Value {
    let mut sizes = sizes.to_vec();
    if let ([c, ..], 3) = (&sizes[..], known.row().sizes.len()) {
        sizes.insert(1, c.clone());
    }
    Value::List(sizes)
}

/// The GPUs that code is generated for; `None` after an error.
fn code_targets(node: &Node, fields: &Fields<'_>, report: &mut Report<'_>) -> Option<Targets> {
    let before = report.count();
    let targets = yaml::targets(fields, &Overrides::default(), report)?;
    for (index, gpu) in targets.gpus().iter().enumerate() {
        if let Err(old) = gpu.code_target() {
            let at = match &node.value {
                Value::List(items) => items.get(index).map_or(node.at, |item| item.at),
                _ => node.at,
            };
            report.error(at, old.to_string());
        }
    }
    (report.count() == before).then_some(targets)
}

/// `sm_90`, or a list of such names; `None` after an error.
fn archs(node: &Node, report: &mut Report<'_>) -> Option<Vec<Arch>> {
    const FORM: &str = "write a name such as sm_90, or a list of names";
    let items = match &node.value {
        Value::List(items) => &items[..],
        _ => std::slice::from_ref(node),
    };
    if items.is_empty() {
        report.error(
            node.at,
            format!("the list of architectures is empty; {FORM}"),
        );
        return None;
    }
    let before = report.count();
    let mut archs: Vec<Arch> = Vec::new();
    for item in items {
        let read = match &item.value {
            Value::String(word) => word.parse::<Arch>().map_err(|error| error.to_string()),
            Value::Integer(sm) => {
                (sm.to_string().parse::<Arch>()).map_err(|error| error.to_string())
            }
            _ => Err(format!(
                "{} is not an architecture; {FORM}",
                report.quote(item)
            )),
        };
        match read.and_then(check_compilable) {
            Ok(arch) if archs.contains(&arch) => {
                report.error(
                    item.at,
                    format!("{arch} is listed twice; remove one of the two"),
                );
            }
            Ok(arch) => archs.push(arch),
            Err(error) => report.error(item.at, error),
        }
    }
    archs.sort_unstable();
    (report.count() == before).then_some(archs)
}

/// Rejects architectures that kernels are not compiled for.
pub fn check_compilable(arch: Arch) -> Result<Arch, String> {
    match gpu_for_arch(arch) {
        Some(_) => Ok(arch),
        None => {
            let known: Vec<_> = gpu::archs().iter().map(ToString::to_string).collect();
            Err(format!(
                "kernels are not compiled for {arch}; choose among {}",
                known.join(", ")
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, yaml};
    use crate::gpu::GPUS;

    /// `column: message` of all errors, one per line.
    fn error_lines(text: &str) -> String {
        match parse(text, "call") {
            Ok(request) => format!("no error: {request:?}"),
            Err(errors) => {
                let lines = errors.first.iter().map(|error| {
                    let column = error.position.map_or(0, |at| at.column);
                    format!("{column}: {}\n", error.message)
                });
                lines.collect()
            }
        }
    }

    /// The message with the names of all GPUs for `{gpus}` and all architectures for `{archs}`.
    fn filled(message: &str) -> String {
        let gpus: Vec<_> = GPUS.iter().map(|gpu| gpu.name).collect();
        let archs: Vec<_> = gpu::archs().iter().map(ToString::to_string).collect();
        let message = message.replace("{gpus}", &gpus.join(", "));
        message.replace("{archs}", &archs.join(", "))
    }

    #[test]
    fn a_call_means_what_a_layer_set_says() {
        for (call, layer) in [
            ("conv 64,32,56,56", "conv: [64, 32, 56, 56]"),
            (
                "conv 64, 32, 56, 28, kernel = [5, 3], stride = 2, pad = [1, 0, 2, 1], dilation = [1, 2],",
                "conv: [64, 32, 56, 28], kernel: [5, 3], stride: 2, pad: [1, 0, 2, 1], dilation: [1, 2]",
            ),
            (
                "conv 1_6,32,9,9,batch=3,groups=4,bias=true,activation=relu,residual=true,prologue={activation: relu}",
                "conv: [16, 32, 9, 9], batch: 3, groups: 4, bias: true, activation: relu, residual: true, prologue: {activation: relu}",
            ),
            (
                "conv 8,8,9,9, scheme = \"direct\", tile = [64, 4, 1, 1], pad = {top: 1}, kernel = 2",
                "conv: [8, 8, 9, 9], scheme: direct, tile: [64, 4, 1, 1], pad: {top: 1}, kernel: 2",
            ),
            (
                "conv 8,8,9,9, scheme = \"direct\", tile = {splits: 1, tp: 64, rn: 4, threads_n: 1}",
                "conv: [8, 8, 9, 9], scheme: direct, tile: [64, 4, 1, 1]",
            ),
            (
                "conv 8,8,9,9, activation = {clip: [-inf, 0.5]}, prologue = {activation: {leaky_relu: -2e-1}}",
                "conv: [8, 8, 9, 9], activation: {clip: [-.inf, 0.5]}, prologue: {activation: {leaky_relu: -0.2}}",
            ),
            (
                "conv 8,8,9,9, precision = tf32",
                "conv: [8, 8, 9, 9], precision: tf32",
            ),
            (
                "conv 8,8,9,9, tolerance = 5e-6",
                "conv: [8, 8, 9, 9], tolerance: 5e-6",
            ),
        ] {
            let request = parse(call, "call").unwrap_or_else(|errors| panic!("{errors}"));
            let set = format!("name: set\nlayers: [{{{layer}}}]\n");
            let Ok(Config::LayerSet(set)) = yaml::parse(&set, "set", &Overrides::default()) else {
                panic!("{layer}");
            };
            assert_eq!(
                request.source,
                LayerSource::Inline(set.layers[0].clone()),
                "{call}"
            );
            assert_eq!((request.gpus, request.archs), (None, None));
        }
    }

    fn layer(call: &str) -> LayerSpec {
        match parse(call, "call").map(|request| request.source) {
            Ok(LayerSource::Inline(layer)) => layer,
            other => panic!("{call}: {other:?}"),
        }
    }

    #[test]
    fn other_ops_are_convolutions_with_keys_fixed() {
        let pointwise = layer("pointwise 7,5,9,8, stride = 2, bias = true");
        let conv = layer("conv 7,5,9,8, kernel = 1, stride = 2, bias = true");
        assert_eq!(pointwise, conv);
        let depthwise = layer("depthwise 7,9,8, kernel = 5");
        assert_eq!(depthwise, layer("conv 7,7,9,8, kernel = 5, groups = 7"));
        let tucker = layer("tucker 7,6,9,8, ranks = [3, 5], residual = true, prologue = true");
        let dense = layer("conv 7,6,9,8, residual = true, prologue = true");
        assert_eq!(tucker.ranks, Some([3, 5]));
        assert_eq!(
            LayerSpec {
                ranks: None,
                ..tucker
            },
            dense
        );
    }

    #[test]
    fn a_low_rank_layer_is_a_pointwise_convolution_with_a_rank() {
        let low_rank = layer("low_rank 7,5,9,8, rank = 3, stride = 2, residual = true");
        assert_eq!(low_rank.rank, Some(3));
        let dense = LayerSpec {
            rank: None,
            ..low_rank
        };
        assert_eq!(
            dense,
            layer("pointwise 7,5,9,8, stride = 2, residual = true")
        );
    }

    #[test]
    fn targets_and_layers_of_configs_are_read() {
        let call = "\"nets/a.yaml\", layer = \"layer1.0.conv1\", arch = [sm_90, sm_80], gpu = [h100, a100], tiles = model, table = \"t.txt\",";
        let request = parse(call, "call").unwrap();
        let file = "nets/a.yaml".to_owned();
        let layer = Some("layer1.0.conv1".to_owned());
        assert_eq!(request.source, LayerSource::Config { file, layer });
        assert_eq!(request.archs, Some(vec![Arch::new(80), Arch::new(90)]));
        let names: Vec<_> = request
            .gpus
            .iter()
            .flat_map(Targets::gpus)
            .map(|gpu| gpu.name)
            .collect();
        assert_eq!(names, ["h100", "a100"]);
        assert_eq!(
            (request.tiles, request.table.as_deref()),
            (Some(TilePolicy::Model), Some("t.txt"))
        );
        assert_eq!(request.position(Some("layer")).column, 24);
        assert_eq!(request.position(Some("scheme")).column, 1);
        let all = parse_config("\"a.yaml\", gpu = h100", "call").unwrap();
        let file = "a.yaml".to_owned();
        assert_eq!(all.source, LayerSource::Config { file, layer: None });
        for wrong in ["conv 1,1,1,1", "\"a.yaml\", layer = a", "\"a.yaml\", 3", ""] {
            assert!(parse_config(wrong, "call").is_err(), "{wrong}");
        }
        assert_eq!(
            parse("conv 1,1,1,1, arch = 75", "call").unwrap().archs,
            Some(vec![Arch::new(75)])
        );
    }

    #[test]
    fn mistakes_of_ops_and_targets_are_told() {
        assert_eq!(
            error_lines(
                "conv 8,8,8,8, arch = [sm_80, sm_81, sm_80, true, hopper], gpu = [h200, gtx1080ti]"
            ),
            filled(
                "30: kernels are not compiled for sm_81; choose among {archs}\n37: sm_80 is listed twice; remove one of the two\n44: `true` is not an architecture; write a name such as sm_90, or a list of names\n50: `hopper` is not an architecture; write it as sm_90 or 90\n72: no code can be generated for `gtx1080ti`, which is sm_61; kernels need sm_70 or newer: use `tdc-gen plan` to see its plan, or choose a newer GPU\n"
            )
        );
        assert_eq!(
            error_lines("conv 8,8,8,8, arch = [], table = 3"),
            "22: the list of architectures is empty; write a name such as sm_90, or a list of names\n34: `table` must be a name, not `3`; put it in quotes if it is one\n"
        );
        assert_eq!(
            error_lines("pointwise 8,8,8,8,3, kernel = 1"),
            "19: pointwise takes 4 sizes (C, N, H, W), not 5; write them as `pointwise 64,32,56,56`\n22: `kernel` is a key of conv, depthwise, tucker, not of pointwise; pointwise takes gpu, arch, tiles, table, batch, stride, pad, bias, activation, residual, prologue, scheme, tile, reduce, precision, tolerance\n"
        );
        assert_eq!(
            error_lines("depthwise 8,8,8,8, groups = 8"),
            "17: depthwise takes 3 sizes (C, H, W), not 4; for several outputs of a channel write `conv` with `groups`\n20: `groups` is a key of conv, not of depthwise; depthwise takes gpu, arch, tiles, table, batch, kernel, stride, pad, dilation, bias, activation, residual, prologue, scheme, tile, reduce, precision, tolerance\n"
        );
        assert_eq!(
            error_lines("tucker 8,8,8,8"),
            "1: `ranks` is missing; write `ranks = [D1, D2]`\n"
        );
        assert_eq!(
            error_lines("tucker 8,8,8,8, ranks = [9, 8]"),
            "26: rank 9 is not between 1 and 8; D1 is at most the input channels; ranks are written [D1, D2]\n"
        );
        assert_eq!(
            error_lines("low_rank 8,6,8,8"),
            "1: `rank` is missing; write `rank = R`, at most C and N\n"
        );
        assert_eq!(
            error_lines("low_rank 8,6,8,8, rank = 7, scheme = direct, kernel = 1"),
            "26: rank 7 is not between 1 and 6; no weight of these sizes has a larger rank than its inputs or its outputs\n\
             29: `scheme` is a key of conv, pointwise, depthwise, tucker, not of low_rank; low_rank takes rank, gpu, arch, tiles, table, batch, stride, pad, bias, activation, residual, prologue, precision, tolerance\n\
             46: `kernel` is a key of conv, depthwise, tucker, not of low_rank; low_rank takes rank, gpu, arch, tiles, table, batch, stride, pad, bias, activation, residual, prologue, precision, tolerance\n"
        );
        assert_eq!(
            error_lines("\"a.yaml\", 3, batch = 2"),
            "1: `layer` is missing; write `layer = \"its name\"` after the path of the config\n11: the sizes of layers are in the config; remove them\n14: `batch` is a key of conv, pointwise, depthwise, tucker, low_rank, not of a layer of a config; a layer of a config takes layer, gpu, arch, tiles, table\n"
        );
        assert_eq!(
            error_lines("\"a.yaml\", layer = 3"),
            "19: `layer` must be a name, not `3`; put it in quotes if it is one\n"
        );
    }

    #[test]
    fn every_mistake_is_reported_at_its_place() {
        assert_eq!(
            error_lines("conv 64,-3,56,\"56\", strid = 2, kernel = x, gpu = h20, pad = 1, pad = 2"),
            filled(
                "9: `N` is negative: `-3`; it must be a whole number from 0\n\
             15: `W` must be a whole number, not the text `\"56\"`; remove the quotes\n\
             21: unknown key `strid`; did you mean `stride`? conv takes gpu, arch, tiles, table, batch, kernel, stride, pad, dilation, groups, bias, activation, residual, prologue, scheme, tile, reduce, precision, tolerance\n\
             41: `kernel` must be a whole number, not `x`; use digits only\n\
             50: there is no GPU named `h20`; did you mean `h200`? known are {gpus}\n\
             64: duplicate key `pad`; remove one of the two\n"
            )
        );
        assert_eq!(
            error_lines("conv 64,32,56,56, gpu = gtx1080ti"),
            "25: no code can be generated for `gtx1080ti`, which is sm_61; kernels need sm_70 or newer: use `tdc-gen plan` to see its \
             plan, or choose a newer GPU\n"
        );
        assert_eq!(
            error_lines("conv 64,32,56,56,7, stride = [2, 0], 3, bias"),
            "18: conv takes 4 sizes (C, N, H, W), not 5; for a 7x7 filter write `kernel = 7`\n\
             34: `stride` is 0; it must be at least 1\n\
             38: `3` follows a key; write the sizes first, then `key = value`\n\
             41: `bias` is not a size; write a number, or `bias = ...` if it is a key\n"
        );
    }

    #[test]
    fn broken_texts_are_refused() {
        assert_eq!(error_lines(""), "1: empty call; write `conv 64,32,56,56`\n");
        assert_eq!(
            error_lines("covn 1,2"),
            "1: unknown op `covn`; did you mean `conv`? the ops are conv, pointwise, depthwise, tucker, low_rank\n"
        );
        assert_eq!(
            error_lines("conv 4 4,4,4, pad = [1 * 2, 3], bias = 2"),
            "8: `4` was not expected; write a comma between sizes and between keys\n\
             24: a comma or `]` was expected; write one\n\
             40: `bias` must be true or false, not `2`\n"
        );
        assert_eq!(
            error_lines("conv 1u32,2,3*3,4, pad ="),
            "6: `C` must be a whole number, not `1u32`; use digits only\n\
             14: `*` was not expected; write a comma between sizes and between keys\n\
             24: a value is missing at the end; add it or remove the key\n"
        );
        let pieces = [
            "conv", "1", ",", "=", "[", "]", "{", "}", ":", "-", "\"", "\\", "é", "pad", "9e99",
            " ",
        ];
        let mut state = 1u64;
        for _ in 0..20_000 {
            let mut text = String::from("conv 4,4,4,4, ");
            for _ in 0..12 {
                state = state
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                text += pieces[(state >> 60) as usize];
            }
            let _ = parse(&text, "call");
        }
        let deep = format!("conv 4,4,4,4, pad = {}", "[".repeat(100_000));
        assert!(error_lines(&deep).contains("`[` was not expected"));
    }
}
