//! Configs in YAML: networks and layer sets.
//!
//! A network has `name`, `input` and `ops`; a layer set has `name`, `layers` and optionally `defaults`; both
//! may have `gpu`. The keys of an op are the fields of its options. All errors are reported at once, with
//! line and column.

mod activation;
mod edit;
pub(super) mod fields;
mod inputs;
pub(super) mod layers;
mod model_options;
pub(super) mod node;
mod ops;
mod outputs;
mod places;
pub(super) mod report;
mod targets;
mod write;

use super::schema::{Key, Mapping};
use super::{ConfigError, ConfigErrors, Overrides, Position};
use crate::ir::{Batches, DType, LayerSet, Network, NetworkBuilder, SpecLocation, TilePolicy};
pub use edit::with_ranks;
use fields::{Fields, integer, list};
pub use model_options::ModelOptions;
use node::{Node, Value};
use ops::RawOp;
pub use places::Places;
use report::Report;
use std::io::Read;
use std::path::Path;
pub(super) use targets::targets;
pub use write::network_text;

/// Largest config that is read; real ones have a few kilobytes.
const MAX_BYTES: u64 = 16 << 20;

/// Maximal number of ops of a network; the deepest known ones have a few hundred.
const MAX_OPS: usize = 10_000;

/// A parsed config.
#[derive(Debug, Clone, PartialEq)]
pub enum Config {
    /// A network.
    Network(Network),
    /// Independent convolutions.
    LayerSet(LayerSet),
}

/// Reads a config file.
///
/// # Errors
/// If the file cannot be read, or as [`parse`].
pub fn load(path: &Path, overrides: &Overrides) -> Result<Config, ConfigErrors> {
    load_with_places(path, overrides).map(|(config, _)| config)
}

/// As [`load`], with the positions of its layers, for errors that are found by the planner.
///
/// # Errors
/// As [`load`].
pub fn load_with_places(
    path: &Path,
    overrides: &Overrides,
) -> Result<(Config, Places), ConfigErrors> {
    let file = path.display().to_string();
    let text = read_text(path)
        .map_err(|message| ConfigErrors::from(ConfigError::unreadable(&file, message)))?;
    parse_with_places(&text, &file, overrides)
}

fn read_text(path: &Path) -> Result<String, String> {
    let explain = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => "no such file; check the path".to_owned(),
        std::io::ErrorKind::PermissionDenied => {
            "permission denied; check the permissions of the file".to_owned()
        }
        _ => format!("the file cannot be read: {error}"),
    };
    if path.is_dir() {
        return Err("this is a directory; give a YAML file".to_owned());
    }
    let file = std::fs::File::open(path).map_err(explain)?;
    let mut bytes = Vec::new();
    // Reads one byte more than allowed, to detect a file that is too large without trusting its reported
    // size.
    file.take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(explain)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err("the file is larger than 16 MiB; a config has some kilobytes".to_owned());
    }
    String::from_utf8(bytes).map_err(|error| {
        let line = error.as_bytes()[..error.utf8_error().valid_up_to()]
            .split(|&byte| byte == b'\n')
            .count();
        format!("line {line} is not UTF-8 text; save the file as UTF-8")
    })
}

/// Parses a config; `file` is its name in messages.
///
/// # Errors
/// All errors that can be found, each with line and column.
pub fn parse(text: &str, file: &str, overrides: &Overrides) -> Result<Config, ConfigErrors> {
    parse_with_places(text, file, overrides).map(|(config, _)| config)
}

/// As [`parse`], with the positions of its layers, for errors that are found by the planner.
///
/// # Errors
/// As [`parse`].
pub fn parse_with_places(
    text: &str,
    file: &str,
    overrides: &Overrides,
) -> Result<(Config, Places), ConfigErrors> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut report = Report::new(text);
    let root = node::read(text, &mut report);
    let config = root.and_then(|root| {
        let config = config(&root, overrides, &mut report)?;
        let places = Places::new(file, text, &root, &config);
        Some((config, places))
    });
    report.finish(file, config)
}

fn config(root: &Node, overrides: &Overrides, report: &mut Report<'_>) -> Option<Config> {
    let fields = Fields::of(root, "a config", report)?;
    match (fields.get(Key::Ops), fields.get(Key::Layers)) {
        (Some(_), None) => network(root, &fields, overrides, report).map(Config::Network),
        (None, Some(_)) => layers::read(root, &fields, overrides, report).map(Config::LayerSet),
        (Some(_), Some(layers)) => {
            report.error(
                layers.at,
                "`ops` and `layers` are both present; a config is a network with `ops` or a layer set with `layers`",
            );
            None
        }
        (None, None) => {
            report.error(
                root.at,
                "there is neither `ops` nor `layers`; a network has `ops`, a layer set has `layers`",
            );
            // Points out a misspelt `ops` or `layers`.
            fields.check_keys(root, Mapping::Network, &[Mapping::LayerSet], report);
            None
        }
    }
}

/// The tile policy: the caller's, else the config's, else the default.
pub(super) fn tiles(
    fields: &Fields<'_>,
    overrides: &Overrides,
    report: &mut Report<'_>,
) -> TilePolicy {
    overrides.tiles(fields.choice(Key::Tiles, &TilePolicy::NAMES, report))
}

fn network(
    root: &Node,
    fields: &Fields<'_>,
    overrides: &Overrides,
    report: &mut Report<'_>,
) -> Option<Network> {
    fields.check_keys(root, Mapping::Network, &[Mapping::LayerSet], report);
    fields.require(Key::Name, "it is part of every generated symbol", report);
    let name = fields.string(Key::Name, report);
    let gpus = targets(fields, overrides, report);
    let tiles = tiles(fields, overrides, report);
    let activations = fields.choice(Key::Activations, &DType::NAMES, report);
    ops::check_inherited(fields, report);
    let overrides = &overrides.or(&Overrides {
        batches: batches(fields, report),
        ..Overrides::default()
    });
    let inputs = inputs::inputs(fields, overrides, report);
    let node = fields.get(Key::Ops)?;
    let items = list(
        Key::Ops,
        node,
        "one `- {op: ..., name: ...}` a line",
        report,
    )?;
    if items.len() > MAX_OPS {
        let count = items.len();
        report.error(
            node.at,
            format!("the network has {count} ops; at most {MAX_OPS} are supported"),
        );
        return None;
    }
    let raw: Vec<Option<RawOp<'_>>> = items
        .iter()
        .map(|item| ops::read(item, fields, overrides, report))
        .collect();
    // The ops can be checked without a name.
    let inputs = inputs?;
    let shapes: Vec<_> = inputs
        .iter()
        .map(|(name, shape, _)| (name.clone(), *shape))
        .collect();
    let mut builder = NetworkBuilder::with_inputs(name.unwrap_or("network"), &shapes);
    for (index, (_, _, encoding)) in inputs.into_iter().enumerate() {
        builder.encode_input(index, encoding);
    }
    for op in &raw {
        let (name, request) = match op {
            Some(op) => (op.name, op.request.as_ref()),
            None => (None, None),
        };
        match (name, request) {
            (Some(name), Some(request)) => {
                builder.op(name, request.inputs.as_deref(), request.options.clone());
                if let Some(output) = &request.output {
                    builder.add_output(output.clone());
                }
            }
            (name, _) => builder.add_invalid(name),
        }
    }
    let has_ranks = raw.iter().flatten().any(|op| ops::has_ranks(&op.fields));
    match builder.finish() {
        Ok(mut network) => {
            network.gpus = gpus?;
            network.tiles = tiles;
            network.activations = overrides.activations(activations);
            network.batches = overrides.batches(network.batch());
            network.name = overrides.name(&network.name, has_ranks);
            Some(network)
        }
        Err(errors) => {
            for error in errors {
                let at = position(&error.location, fields, items, &raw);
                report.error(at, error.to_string());
            }
            None
        }
    }
}

/// The position of an element of a network.
fn position(
    location: &SpecLocation,
    fields: &Fields<'_>,
    items: &[Node],
    raw: &[Option<RawOp<'_>>],
) -> Position {
    let op = |index: usize| raw.get(index).and_then(Option::as_ref);
    let start = |index: usize| items.get(index).map_or(fields.at, |item| item.at);
    match location {
        SpecLocation::TopLevel(key) => fields.position(key, None),
        SpecLocation::Op(index) => start(*index),
        SpecLocation::Key(index, key) => {
            op(*index).map_or(start(*index), |op| op.fields.position(key, None))
        }
        SpecLocation::Item(index, key, item) => {
            op(*index).map_or(start(*index), |op| op.fields.position(key, Some(*item)))
        }
    }
}

/// The key `batch` of a network: a number or a list of numbers.
fn batches(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<Batches> {
    let node = fields.get(Key::Batch)?;
    let items = match &node.value {
        Value::List(items) => &items[..],
        _ => std::slice::from_ref(node),
    };
    let numbers = items.iter().map(|item| integer(Key::Batch, item, report));
    // All are read, so that each mistake is reported.
    let numbers: Vec<Option<u32>> = numbers.collect();
    let numbers: Vec<u32> = numbers.into_iter().collect::<Option<_>>()?;
    match Batches::new(&numbers) {
        Ok(batches) => Some(batches),
        Err(message) => {
            report.error(node.at, format!("`{}`: {message}", Key::Batch));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_reference_names_every_activation() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/configs.md");
        let reference = std::fs::read_to_string(path).unwrap();
        for (name, _) in crate::ir::Activation::NAMES {
            let named = [format!("\n| `{name}` |"), format!("\n| `{{{name}: ")];
            assert!(named.iter().any(|row| reference.contains(row)), "{name}");
        }
    }
}
