//! Options of a model file: what an ONNX file cannot say, from a small YAML file beside it.
//!
//! ```yaml
//! gpu: h200
//! precision: fp16
//! layers:
//!   layer1.0.conv2: {ranks: [32, 32]}
//!   fc: {rank: 64}
//! ```
//! The keys are those of a network's config, and under `layers` those of its convolutions and linear layers that do not change what is
//! computed, by the names that `tdc-gen plan` and `tdc-gen import` print.

use super::fields::Fields;
use super::inputs::{self, WrittenInput};
use super::node::{self, Node, Value};
use super::ops;
use super::outputs::{self, WrittenOutput};
use super::places::Places;
use super::report::Report;
use super::write::op_row;
use super::{batches, read_text, targets};
use crate::config::schema::{Key, Mapping, NetworkOp};
use crate::config::{ConfigError, ConfigErrors, Overrides, Position};
use crate::ir::{
    Conv, DType, Layout, Linear, Network, Op, OpKind, OpOptions, Reduce, SpecError, SpecLocation,
    TensorShape, TilePolicy, factor_names, op_errors,
};
use crate::suggest::nearest;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The options of a model file.
#[derive(Debug, Clone)]
pub struct ModelOptions {
    file: String,
    text: String,
    root: Node,
    /// What the file says of the network as a whole.
    whole: Overrides,
    /// What it says of the inputs.
    inputs: Vec<WrittenInput>,
    /// What it says of the outputs.
    outputs: Vec<WrittenOutput>,
}

impl ModelOptions {
    /// The path of the options of a model file: its own, followed by `.yaml`.
    pub fn path(model: &Path) -> PathBuf {
        let mut name = OsString::from(model);
        name.push(".yaml");
        name.into()
    }

    /// The options beside a model file; `None` if there are none.
    ///
    /// # Errors
    /// If the file cannot be read, or as [`parse`](Self::parse).
    pub fn beside(model: &Path) -> Result<Option<Self>, ConfigErrors> {
        let path = Self::path(model);
        if !path.exists() {
            return Ok(None);
        }
        let file = path.display().to_string();
        let text = read_text(&path)
            .map_err(|message| ConfigErrors::from(ConfigError::unreadable(&file, message)))?;
        Self::parse(&text, &file).map(Some)
    }

    /// Options from a text; `file` is its name in messages. The layers are read by [`apply`](Self::apply), which knows their ops.
    ///
    /// # Errors
    /// All errors that can be found, each with line and column.
    pub fn parse(text: &str, file: &str) -> Result<Self, ConfigErrors> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut report = Report::new(text);
        let root = node::read(text, &mut report);
        let options = root.and_then(|root| {
            let (whole, inputs, outputs) = whole(&root, &mut report)?;
            Some(Self {
                file: file.to_owned(),
                text: text.to_owned(),
                root,
                whole,
                inputs,
                outputs,
            })
        });
        report.finish(file, options)
    }

    /// The caller's overrides, completed by those of the file.
    #[must_use]
    pub fn overrides(&self, caller: &Overrides) -> Overrides {
        caller.or(&self.whole)
    }

    /// The network with the options of its layers, and their positions, for errors that are found by the planner. The caller's overrides
    /// come first.
    ///
    /// # Errors
    /// All errors that can be found, each with line and column.
    pub fn apply(
        &self,
        mut network: Network,
        caller: &Overrides,
    ) -> Result<(Network, Places), ConfigErrors> {
        let mut report = Report::new(&self.text);
        self.encode_inputs(&mut network, &mut report);
        self.format_outputs(&mut network, &mut report);
        let mut has_ranks = false;
        for (key, node) in self.layers() {
            if let Some((index, name)) = layer(key, &network, &mut report) {
                let name = name.to_owned();
                has_ranks |= apply_to(&mut network, index, node, caller, &mut report);
                check_parts(&network, index, &name, node, &mut report);
            }
        }
        network.name = caller.name(&network.name, has_ranks);
        let places = Places::of_mapping(&self.file, &self.text, &self.root, self.layers());
        report.finish(&self.file, Some((network, places)))
    }

    /// Sets how the caller stores the inputs.
    fn encode_inputs(&self, network: &mut Network, report: &mut Report<'_>) {
        let count = network.inputs().len();
        for input in &self.inputs {
            let inputs = network.inputs();
            let index = match &input.name {
                // Its shape is an error where the model is read.
                None if input.encoding.is_plain() => continue,
                None => (count == 1).then_some(0),
                Some(name) => inputs.iter().position(|op| op.name == *name),
            };
            let Some(index) = index else {
                let names: Vec<_> = inputs.iter().map(|op| format!("`{}`", op.name)).collect();
                let names = names.join(", ");
                let message = format!(
                    "there is no such input; the model has {names}, write a mapping of their names"
                );
                report.error(input.at, message);
                continue;
            };
            if input.encoding.is_plain() {
                continue;
            }
            if let Err(errors) = network.encode_input(index, input.encoding.clone()) {
                errors
                    .into_iter()
                    .for_each(|error| report.error(input.at, error));
            }
        }
    }

    /// Sets how the outputs are stored.
    fn format_outputs(&self, network: &mut Network, report: &mut Report<'_>) {
        for written in &self.outputs {
            let found = match (&written.name, &mut network.outputs[..]) {
                (None, [only]) => Some(only),
                (None, _) => None,
                (Some(name), outputs) => outputs.iter_mut().find(|output| output.name == *name),
            };
            if let Some(output) = found {
                let format = &mut output.format;
                format.dtype = written.dtype.unwrap_or(format.dtype);
                format.layout = written.layout.unwrap_or(format.layout);
                continue;
            }
            let outputs = network.outputs.iter();
            let names: Vec<_> = outputs.map(|output| format!("`{}`", output.name)).collect();
            let names = names.join(", ");
            let message = format!(
                "there is no such output; the model has {names}, write a mapping of their names"
            );
            report.error(written.at, message);
        }
    }

    /// The entries under `layers`.
    fn layers(&self) -> &[(Node, Node)] {
        let Value::Map(entries) = &self.root.value else {
            return &[];
        };
        let is_layers =
            |key: &Node| matches!(&key.value, Value::String(word) if word == Key::Layers.name());
        let layers = entries.iter().find(|(key, _)| is_layers(key));
        match layers.map(|(_, node)| &node.value) {
            Some(Value::Map(layers)) => layers,
            _ => &[],
        }
    }
}

/// The keys of the network as a whole, of its inputs and of its outputs.
fn whole(
    root: &Node,
    report: &mut Report<'_>,
) -> Option<(Overrides, Vec<WrittenInput>, Vec<WrittenOutput>)> {
    let fields = Fields::of(root, Mapping::ModelOptions.title(), report)?;
    let others = [Mapping::Network, Mapping::LayerOptions(NetworkOp::Conv)];
    fields.check_keys(root, Mapping::ModelOptions, &others, report);
    let gpus = fields
        .get(Key::Gpu)
        .and_then(|_| targets(&fields, &Overrides::default(), report));
    let written = match fields.get(Key::Input) {
        Some(node) => inputs::written(node, report),
        None => Vec::new(),
    };
    let outputs = match fields.get(Key::Output) {
        Some(node) => outputs::of_model(node, report),
        None => Vec::new(),
    };
    let only = written.iter().find(|input| input.name.is_none());
    let named = written.iter();
    let named = named.filter_map(|input| Some((input.name.clone()?, input.shape?)));
    let (input, inputs) = (only.and_then(|input| input.shape), named.collect());
    if let Some(node) = fields.get(Key::Layers)
        && !matches!(node.value, Value::Map(_))
    {
        let found = report.quote(node);
        report.error(
            node.at,
            format!("`layers` must be a mapping of names to options, not {found}; write `conv1: {{ranks: [16, 16]}}`"),
        );
    }
    let overrides = Overrides {
        input,
        inputs,
        batches: batches(&fields, report),
        precision: ops::precision(&fields, report),
        tolerance: ops::tolerance(&fields, report),
        tiles: fields.choice(Key::Tiles, &TilePolicy::NAMES, report),
        activations: fields.choice(Key::Activations, &DType::NAMES, report),
        gpus,
        ..Overrides::default()
    };
    Some((overrides, written, outputs))
}

/// The index and name of the op that a key of `layers` names.
fn layer<'n>(
    key: &'n Node,
    network: &Network,
    report: &mut Report<'_>,
) -> Option<(usize, &'n str)> {
    let Value::String(name) = &key.value else {
        let found = report.quote(key);
        report.error(
            key.at,
            format!("a layer must be a name, not {found}; put it in quotes"),
        );
        return None;
    };
    let is_layer = |op: &Op| matches!(op.kind, OpKind::Conv(_) | OpKind::Linear(_));
    let found = network.ops.iter().position(|op| op.name == *name);
    match found.map(|index| (index, &network.ops[index])) {
        Some((index, op)) if is_layer(op) => Some((index, name)),
        Some((_, op)) => {
            let message = format!(
                "`{name}` is an op {}; only convolutions and linear layers have options",
                op_row(op).name
            );
            report.error(key.at, message);
            None
        }
        None => {
            let layers = network.ops.iter().filter(|op| is_layer(op));
            let help = match nearest(name, layers.map(|op| &op.name[..])) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "`tdc-gen plan` prints the names".to_owned(),
            };
            report.error(key.at, format!("the model has no layer `{name}`; {help}"));
            None
        }
    }
}

/// Gives a layer its options; whether they have ranks.
fn apply_to(
    network: &mut Network,
    index: usize,
    node: &Node,
    caller: &Overrides,
    report: &mut Report<'_>,
) -> bool {
    let Some(fields) = Fields::of(node, "the options of a layer", report) else {
        return false;
    };
    let x = network.op(network.ops[index].inputs[0]).y;
    let before = report.count();
    let errors = match &mut network.ops[index].kind {
        OpKind::Conv(conv) => {
            let mapping = Mapping::LayerOptions(NetworkOp::Conv);
            fields.check_keys(node, mapping, &[Mapping::Op(NetworkOp::Conv)], report);
            convolution(conv, x, &fields, caller, report)
        }
        OpKind::Linear(linear) => {
            let mapping = Mapping::LayerOptions(NetworkOp::Linear);
            let others = [Mapping::LayerOptions(NetworkOp::Conv)];
            fields.check_keys(node, mapping, &others, report);
            linear_layer(linear, x, &fields, caller, report)
        }
        _ => Vec::new(),
    };
    // After an error in a value the others may not fit together.
    if report.count() == before {
        for error in errors {
            report.error(position(&error.location, &fields), error.to_string());
        }
    }
    ops::has_ranks(&fields)
}

/// Sets the options of a convolution, and returns what is wrong with them as a whole.
fn convolution(
    conv: &mut Conv,
    x: TensorShape,
    fields: &Fields<'_>,
    caller: &Overrides,
    report: &mut Report<'_>,
) -> Vec<SpecError> {
    let mut options = conv.options.clone();
    options.ranks = fields.integers(Key::Ranks, "[D1, D2]", report);
    options.cp_rank = fields.integer(Key::CpRank, report);
    options.rank = fields.integer(Key::Rank, report);
    options.factors = ops::factors(fields, ops::conv_factors(fields), report);
    options.scheme = fields.string(Key::Scheme, report).map(str::to_owned);
    options.tile = ops::tile(fields, report);
    if let Some(reduce) = fields.choice(Key::Reduce, &Reduce::NAMES, report) {
        options.reduce = reduce;
    }
    if let Some(precision) = ops::precision(fields, report) {
        options.precision = precision;
    }
    if let Some(tolerance) = ops::tolerance(fields, report) {
        options.tolerance = tolerance;
    }
    if let Some(layout) = fields.choice(Key::Layout, &Layout::NAMES, report) {
        options.layout = layout;
    }
    conv.options = caller.convolution(options);
    op_errors(x, OpOptions::Conv(conv.options.clone()))
}

/// The same for a linear layer.
fn linear_layer(
    linear: &mut Linear,
    x: TensorShape,
    fields: &Fields<'_>,
    caller: &Overrides,
    report: &mut Report<'_>,
) -> Vec<SpecError> {
    let mut options = linear.options.clone();
    options.rank = fields.integer(Key::Rank, report);
    options.factors = ops::factors(fields, &tdc_runtime::FactorRole::LOW_RANK, report);
    if let Some(precision) = ops::precision(fields, report) {
        options.precision = precision;
    }
    linear.options = caller.linear(options);
    op_errors(x, OpOptions::Linear(linear.options.clone()))
}

/// Rejects ranks of a layer whose factors would have the name of another op.
fn check_parts(network: &Network, index: usize, name: &str, node: &Node, report: &mut Report<'_>) {
    let has_ranks = match &network.ops[index].kind {
        OpKind::Conv(conv) => {
            let options = &conv.options;
            options.ranks.is_some() || options.cp_rank.is_some() || options.rank.is_some()
        }
        OpKind::Linear(linear) => linear.options.rank.is_some(),
        _ => false,
    };
    if !has_ranks {
        return;
    }
    for factor in factor_names() {
        let part = format!("{name}.{factor}");
        if network.ops.iter().any(|op| op.name == part) {
            let message = format!(
                "with ranks, a part of `{name}` is called `{part}`, as another op; import the model as a config and rename that op"
            );
            report.error(node.at, message);
        }
    }
}

/// The position of an element of a layer's options.
fn position(location: &SpecLocation, fields: &Fields<'_>) -> Position {
    match location {
        SpecLocation::Key(_, key) => fields.position(key, None),
        SpecLocation::Item(_, key, item) => fields.position(key, Some(*item)),
        SpecLocation::TopLevel(_) | SpecLocation::Op(_) => fields.at,
    }
}
