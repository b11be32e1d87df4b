//! The config of a network: text that a person can read and edit, and that gives the same network.

use crate::config::schema::{Key, NetworkOp, NetworkOpRow};
use crate::gpu::Targets;
use crate::ir::{
    Activation, BatchNorm, BinaryOp, ChannelNorm, Conv, ConvOptions, ConvTransposeOptions,
    Coordinates, DType, Format, InputEncoding, Interpolation, Layout, Lrn, Network, NetworkOutput,
    Op, OpId, OpKind, PadMode, PadProblem, PaddingOption, PoolKind, PoolProblem, Precision, Reduce,
    ResizeProblem, Rounding, TilePolicy, Tolerance,
};
use crate::scheme::scheme;
use std::collections::HashMap;
use std::fmt::Display;
use tdc_runtime::Padding;

/// The config of a network. Values that are defaults are left out, an op is one line, and blank lines separate modules.
pub fn network_text(network: &Network) -> String {
    let common = Common::of(network);
    let mut text = String::new();
    let mut line = |key: Key, value: String| text += &format!("{key}: {value}\n");
    line(Key::Name, scalar(&network.name));
    if network.gpus != Targets::default() {
        let names = network.gpus.gpus().iter().map(|gpu| gpu.name.to_owned());
        line(Key::Gpu, one_or_list(names.collect()));
    }
    if network.tiles != TilePolicy::default() {
        line(Key::Tiles, name_of(&TilePolicy::NAMES, network.tiles));
    }
    if network.activations != DType::default() {
        line(Key::Activations, network.activations.as_str().to_owned());
    }
    if common.precision != Precision::default() {
        line(Key::Precision, name_of(&Precision::NAMES, common.precision));
    }
    if common.tolerance != Tolerance::default() {
        line(Key::Tolerance, common.tolerance.value().to_string());
    }
    line(Key::Input, input(network));
    if network.batches.are_several() {
        let numbers = network.batches.as_slice().iter().map(u32::to_string);
        line(Key::Batch, one_or_list(numbers.collect()));
    }
    text += &format!("{}:\n", Key::Ops);
    let blocks = blocks(&network.ops);
    let first = network.inputs().len();
    for (index, op) in network.ops.iter().enumerate().skip(first) {
        if index > first && blocks[index] != blocks[index - 1] {
            text.push('\n');
        }
        let entries = entries(network, &common, OpId(index), op);
        let entries: Vec<String> = entries
            .into_iter()
            .map(|(key, value)| format!("{key}: {value}"))
            .collect();
        text += &format!("  - {{{}}}\n", entries.join(", "));
    }
    text
}

/// The shape of the only input, or names and shapes of several.
fn input(network: &Network) -> String {
    match network.inputs() {
        [only] => encoded_input(only),
        inputs => {
            let inputs = inputs.iter();
            let inputs = inputs.map(|op| format!("{}: {}", scalar(&op.name), encoded_input(op)));
            format!("{{{}}}", inputs.collect::<Vec<_>>().join(", "))
        }
    }
}

/// The shape of an input, in a mapping if the caller stores it otherwise than as fp32 NCHW.
fn encoded_input(op: &Op) -> String {
    let OpKind::Input(encoding) = &op.kind else {
        unreachable!("the first ops are inputs");
    };
    if encoding.is_plain() {
        return op.y.to_string();
    }
    let plain = InputEncoding::PLAIN;
    let mut entries = vec![format!("{}: {}", Key::Shape, op.y)];
    if encoding.dtype != plain.dtype {
        entries.push(format!("{}: {}", Key::Dtype, encoding.dtype.as_str()));
    }
    if encoding.layout != plain.layout {
        let layout = name_of(&Layout::OF_INTERFACES, encoding.layout);
        entries.push(format!("{}: {layout}", Key::Layout));
    }
    for (key, numbers) in [(Key::Mean, &encoding.mean), (Key::Std, &encoding.std)] {
        if let Some(numbers) = numbers {
            let numbers: Vec<_> = numbers.iter().map(f32::to_string).collect();
            entries.push(format!("{key}: [{}]", numbers.join(", ")));
        }
    }
    format!("{{{}}}", entries.join(", "))
}

/// What all convolutions of a network have.
struct Common {
    precision: Precision,
    tolerance: Tolerance,
}

impl Common {
    fn of(network: &Network) -> Self {
        let convolutions = || {
            network.ops.iter().filter_map(|op| match &op.kind {
                OpKind::Conv(conv) => Some(&conv.options),
                _ => None,
            })
        };
        let first = convolutions().next();
        let same = |property: fn(&ConvOptions) -> u64| {
            let first = first.map(property);
            convolutions().all(|conv| Some(property(conv)) == first)
        };
        let precision = first.filter(|_| same(|conv| conv.precision as u64));
        let tolerance = first.filter(|_| same(|conv| conv.tolerance.billionths().into()));
        Self {
            precision: precision.map_or(Precision::default(), |conv| conv.precision),
            tolerance: tolerance.map_or(Tolerance::default(), |conv| conv.tolerance),
        }
    }
}

/// The block of each op: its module. A module of a single op is no block of its own: `features.0` is in `features`.
fn blocks(ops: &[Op]) -> Vec<&str> {
    let module = |op: &Op, depth: usize| -> usize {
        let mut dots = op.name.match_indices('.').map(|(at, _)| at);
        dots.nth(depth).unwrap_or(0)
    };
    let mut sizes: HashMap<&str, usize> = HashMap::new();
    for op in ops {
        *sizes.entry(&op.name[..module(op, 1)]).or_default() += 1;
        // The output of a module has the module's name.
        *sizes.entry(&op.name).or_default() += 1;
    }
    let block = |op: &Op| {
        let inner = module(op, 1);
        let has_parts = |name: &str| sizes.get(name).is_some_and(|&size| size > 1);
        match inner {
            0 if has_parts(&op.name) => op.name.len(),
            inner if inner > 0 && has_parts(&op.name[..inner]) => inner,
            _ => module(op, 0),
        }
    };
    ops.iter().map(|op| &op.name[..block(op)]).collect()
}

/// The keys of an op.
fn entries(network: &Network, common: &Common, id: OpId, op: &Op) -> Vec<(Key, String)> {
    let mut all = Entries(Vec::new());
    all.always(Key::Op, op_row(op).name);
    all.always(Key::Name, scalar(&op.name));
    // The first op has none before it, unless there is one input.
    let first = network.inputs().len();
    let reads_previous = op.inputs[..] == [OpId(id.0 - 1)] && (id.0 > first || first == 1);
    if !reads_previous {
        let names = op.inputs.iter();
        let names = names.map(|&input| scalar(&network.op(input).name));
        all.always(
            Key::Inputs,
            format!("[{}]", names.collect::<Vec<_>>().join(", ")),
        );
    }
    match &op.kind {
        OpKind::Conv(conv) => all.convolution(conv, common),
        OpKind::ConvTranspose(layer) => all.conv_transpose(&layer.options),
        OpKind::Pool(pool) => all.pool(pool),
        OpKind::Pad(pad) => all.pad(pad),
        OpKind::Resize(resize) => all.resize(resize),
        OpKind::ChannelNorm(ChannelNorm::LayerNorm { eps }) => {
            let default = eps.get() == BatchNorm::DEFAULT_EPS as f32;
            all.unless(default, Key::Eps, eps.get());
        }
        OpKind::ChannelNorm(ChannelNorm::L2 { eps }) => {
            let default = eps.get() == ChannelNorm::DEFAULT_L2_EPS;
            all.unless(default, Key::Eps, eps.get());
        }
        OpKind::ChannelNorm(ChannelNorm::Softmax) => {}
        OpKind::Lrn(lrn) => {
            all.always(Key::Size, lrn.size);
            for (key, number, default) in [
                (Key::Alpha, lrn.alpha.get(), Lrn::DEFAULT_ALPHA),
                (Key::Beta, lrn.beta.get(), Lrn::DEFAULT_BETA),
                (Key::K, lrn.k.get(), Lrn::DEFAULT_K),
            ] {
                all.unless(number == default, key, number);
            }
        }
        OpKind::Linear(linear) => {
            all.always(Key::N, linear.options.n);
            all.unless(linear.options.bias, Key::Bias, false);
            all.activation(linear.options.activation);
            all.rank(linear.options.rank);
            all.factors(linear.options.factors.as_deref());
            all.precision(linear.options.precision, common);
        }
        OpKind::Binary(_, activation) | OpKind::Activation(activation) => {
            all.activation(*activation);
        }
        OpKind::ScaleShift(scale_shift) => {
            all.batch_norm(scale_shift.bn.as_ref());
            all.activation(scale_shift.activation);
        }
        OpKind::Slice { start } => {
            all.unless(*start == 0, Key::Start, start);
            all.always(Key::N, op.y.c);
        }
        OpKind::Shuffle { groups } => all.always(Key::Groups, groups),
        OpKind::Input(_)
        | OpKind::GlobalPool { .. }
        | OpKind::PRelu
        | OpKind::Concat
        | OpKind::Flatten => {}
    }
    let mut outputs = network.outputs.iter();
    if let Some(output) = outputs.find(|output| output.op == id) {
        let entries = output_entries(output, op, id == network.last_op());
        all.unless(
            entries.is_empty(),
            Key::Output,
            format!("{{{}}}", entries.join(", ")),
        );
    }
    all.0
}

/// The entries of `output` of an op. Without any, the op's output is one only if the op is the last.
fn output_entries(output: &NetworkOutput, op: &Op, is_last: bool) -> Vec<String> {
    let plain = Format::default();
    let mut entries = Vec::new();
    if !is_last || output.name != op.name {
        entries.push(format!("{}: {}", Key::Name, scalar(&output.name)));
    }
    if output.format.dtype != plain.dtype {
        let dtype = name_of(&DType::NAMES, output.format.dtype);
        entries.push(format!("{}: {dtype}", Key::Dtype));
    }
    if output.format.layout != plain.layout {
        let layout = name_of(&Layout::OF_INTERFACES, output.format.layout);
        entries.push(format!("{}: {layout}", Key::Layout));
    }
    entries
}

/// The row of an op.
pub(super) fn op_row(op: &Op) -> NetworkOpRow {
    name(op).row()
}

/// The op that a config calls this one.
fn name(op: &Op) -> NetworkOp {
    match &op.kind {
        OpKind::Input(_) | OpKind::Conv(_) => NetworkOp::Conv,
        OpKind::Pool(pool) => match pool.kind {
            PoolKind::Max => NetworkOp::MaxPool,
            PoolKind::Avg { .. } => NetworkOp::AvgPool,
        },
        OpKind::GlobalPool { max: true } => NetworkOp::GlobalMaxPool,
        OpKind::GlobalPool { max: false } => NetworkOp::GlobalAvgPool,
        OpKind::ConvTranspose(_) => NetworkOp::ConvTranspose,
        OpKind::Pad(_) => NetworkOp::Pad,
        OpKind::Resize(_) => NetworkOp::Resize,
        OpKind::ChannelNorm(ChannelNorm::Softmax) => NetworkOp::Softmax,
        OpKind::ChannelNorm(ChannelNorm::L2 { .. }) => NetworkOp::L2Norm,
        OpKind::Lrn(_) => NetworkOp::Lrn,
        OpKind::ChannelNorm(ChannelNorm::LayerNorm { .. }) => NetworkOp::LayerNorm,
        OpKind::Linear(_) => NetworkOp::Linear,
        OpKind::Binary(BinaryOp::Add, _) => NetworkOp::Add,
        OpKind::Binary(BinaryOp::Sub, _) => NetworkOp::Sub,
        OpKind::Binary(BinaryOp::Mul | BinaryOp::Gate, _) => NetworkOp::Mul,
        OpKind::Activation(_) => NetworkOp::Activation,
        OpKind::ScaleShift(_) => NetworkOp::ScaleShift,
        OpKind::PRelu => NetworkOp::PRelu,
        OpKind::Concat => NetworkOp::Concat,
        OpKind::Slice { .. } => NetworkOp::Slice,
        OpKind::Shuffle { .. } => NetworkOp::Shuffle,
        OpKind::Flatten => NetworkOp::Flatten,
    }
}

/// Keys with their values, in order.
struct Entries(Vec<(Key, String)>);

impl Entries {
    fn always(&mut self, key: Key, value: impl Display) {
        self.0.push((key, value.to_string()));
    }

    fn unless(&mut self, is_default: bool, key: Key, value: impl Display) {
        if !is_default {
            self.always(key, value);
        }
    }

    fn pair(&mut self, key: Key, default: [u32; 2], value: [u32; 2]) {
        self.unless(value == default, key, pair(value));
    }

    fn activation(&mut self, activation: Activation) {
        if activation == Activation::None {
            return;
        }
        let name = activation.as_str();
        let number = |value: f32| match value {
            f32::INFINITY => ".inf".to_owned(),
            f32::NEG_INFINITY => "-.inf".to_owned(),
            _ => value.to_string(),
        };
        let parameters: Vec<String> = activation.parameters().into_iter().map(number).collect();
        let value = match &parameters[..] {
            [] => name.to_owned(),
            [parameter] => format!("{{{name}: {parameter}}}"),
            parameters => format!("{{{name}: [{}]}}", parameters.join(", ")),
        };
        self.always(Key::Activation, value);
    }

    fn batch_norm(&mut self, bn: Option<&BatchNorm>) {
        let Some(BatchNorm { name, eps }) = bn else {
            return;
        };
        let name = scalar(name);
        let value = match *eps == BatchNorm::DEFAULT_EPS {
            true => name,
            false => format!("{{{}: {name}, {}: {eps}}}", Key::Name, Key::Eps),
        };
        self.always(Key::Bn, value);
    }

    fn convolution(&mut self, conv: &Conv, common: &Common) {
        let options = &conv.options;
        let default = ConvOptions::new(options.n);
        self.always(Key::N, options.n);
        self.pair(Key::Kernel, default.kernel, options.kernel);
        self.pair(Key::Stride, default.stride, options.stride);
        if let PaddingOption::Pixels(pixels) = options.pad {
            self.always(Key::Pad, padding(pixels));
        }
        self.pair(Key::Dilation, default.dilation, options.dilation);
        self.unless(options.groups == 1, Key::Groups, options.groups);
        self.unless(!options.bias, Key::Bias, true);
        self.batch_norm(options.bn.as_ref());
        self.activation(options.activation);
        if let Some(ranks) = options.ranks {
            self.always(Key::Ranks, format!("[{}, {}]", ranks[0], ranks[1]));
        }
        if let Some(rank) = options.cp_rank {
            self.always(Key::CpRank, rank);
        }
        self.rank(options.rank);
        self.factors(options.factors.as_deref());
        if let Some(scheme) = &options.scheme {
            self.always(Key::Scheme, scalar(scheme));
        }
        if let Some(numbers) = &options.tile {
            self.always(Key::Tile, tile(options.scheme.as_deref(), numbers));
        }
        let reduce = options.reduce;
        self.unless(
            reduce == Reduce::default(),
            Key::Reduce,
            name_of(&Reduce::NAMES, reduce),
        );
        self.precision(options.precision, common);
        let tolerance = options.tolerance;
        self.unless(
            tolerance == common.tolerance,
            Key::Tolerance,
            tolerance.value(),
        );
        let layout = options.layout;
        self.unless(
            layout == Layout::default(),
            Key::Layout,
            name_of(&Layout::NAMES, layout),
        );
    }

    fn precision(&mut self, precision: Precision, common: &Common) {
        self.unless(
            precision == common.precision,
            Key::Precision,
            name_of(&Precision::NAMES, precision),
        );
    }

    fn rank(&mut self, rank: Option<u32>) {
        if let Some(rank) = rank {
            self.always(Key::Rank, rank);
        }
    }

    fn factors(&mut self, factors: Option<&[String]>) {
        if let Some(factors) = factors {
            let names: Vec<String> = factors.iter().map(|name| scalar(name)).collect();
            self.always(Key::Factors, format!("[{}]", names.join(", ")));
        }
    }

    fn conv_transpose(&mut self, options: &ConvTransposeOptions) {
        let default = ConvTransposeOptions::new(options.n, options.kernel);
        self.always(Key::N, options.n);
        self.always(Key::Kernel, pair(options.kernel));
        self.pair(Key::Stride, default.stride, options.stride);
        let pad = options.pad;
        self.unless(pad == default.pad, Key::Pad, padding(pad));
        self.pair(
            Key::OutputPadding,
            default.output_padding,
            options.output_padding,
        );
        self.pair(Key::Dilation, default.dilation, options.dilation);
        self.unless(options.groups == 1, Key::Groups, options.groups);
        self.unless(!options.bias, Key::Bias, true);
        self.activation(options.activation);
    }

    fn pad(&mut self, pad: &PadProblem) {
        self.always(Key::Pad, padding(pad.padding));
        match pad.mode {
            PadMode::Constant(value) => self.unless(value.get() == 0.0, Key::Value, value.get()),
            mode => self.always(Key::Mode, name_of(&PadMode::NAMES, mode)),
        }
    }

    fn resize(&mut self, resize: &ResizeProblem) {
        let [h, w] = resize.out;
        let x = resize.x;
        let is_scale = h.is_multiple_of(x.h) && w.is_multiple_of(x.w);
        match is_scale {
            true => self.always(Key::Scale, pair([h / x.h, w / x.w])),
            false => self.always(Key::Size, pair([h, w])),
        }
        match resize.interpolation {
            Interpolation::Bilinear => self.always(Key::Mode, "bilinear"),
            Interpolation::Nearest(rounding) => self.unless(
                rounding == Rounding::default(),
                Key::Rounding,
                name_of(&Rounding::NAMES, rounding),
            ),
        }
        let coordinates = resize.coordinates;
        self.unless(
            coordinates == Coordinates::default(),
            Key::Coordinates,
            name_of(&Coordinates::NAMES, coordinates),
        );
    }

    fn pool(&mut self, pool: &PoolProblem) {
        self.always(Key::Kernel, pair(pool.kernel));
        self.pair(Key::Stride, pool.kernel, pool.stride);
        let pad = pool.padding;
        self.unless(pad == Padding::default(), Key::Pad, padding(pad));
        self.pair(Key::Dilation, [1, 1], pool.dilation);
        self.unless(!pool.ceil_mode(), Key::CeilMode, true);
        if let PoolKind::Avg { count_include_pad } = pool.kind {
            self.unless(count_include_pad, Key::CountIncludePad, false);
        }
    }
}

fn pair([vertical, horizontal]: [u32; 2]) -> String {
    match vertical == horizontal {
        true => vertical.to_string(),
        false => format!("[{vertical}, {horizontal}]"),
    }
}

fn padding(pad: Padding) -> String {
    let Padding {
        top,
        left,
        bottom,
        right,
    } = pad;
    match (top, left) == (bottom, right) {
        true => pair([top, left]),
        false => format!("[{top}, {left}, {bottom}, {right}]"),
    }
}

/// A tile by the names that its scheme has for the numbers, if there is such a scheme and tile.
fn tile(scheme_name: Option<&str>, numbers: &[u32]) -> String {
    let fields = scheme_name
        .and_then(scheme)
        .map(|scheme| scheme.tile_fields());
    let fields = fields.filter(|fields| fields.len() == numbers.len());
    match fields {
        Some(fields) => {
            let named = fields.iter().zip(numbers);
            let named: Vec<String> = named
                .map(|(field, number)| format!("{}: {number}", field.name))
                .collect();
            format!("{{{}}}", named.join(", "))
        }
        None => format!("{numbers:?}"),
    }
}

fn one_or_list(mut names: Vec<String>) -> String {
    match names.len() {
        1 => names.remove(0),
        _ => format!("[{}]", names.join(", ")),
    }
}

fn name_of<T: Copy + PartialEq>(names: &[(&'static str, T)], value: T) -> String {
    let mut names = names.iter();
    let found = names.find(|(_, known)| *known == value);
    found.map_or(String::new(), |(name, _)| (*name).to_owned())
}

/// A text as it is if YAML reads that as the same text, else in quotes.
fn scalar(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '/');
    // Numbers begin with a digit, a dot or a sign.
    let starts_plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let words = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    let is_word = words.contains(&&text.to_ascii_lowercase()[..]);
    match starts_plain && !is_word && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => {
            let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
            format!("\"{escaped}\"")
        }
    }
}
