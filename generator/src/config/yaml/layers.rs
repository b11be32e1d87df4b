//! The keys of a layer set.

use super::activation::activation;
use super::fields::{Fields, KeySet, list};
use super::node::{Node, Value};
use super::ops;
use super::report::Report;
use super::targets::single_target;
use super::{NETWORK, Overrides, tiles};
use crate::config::Position;
use crate::ir::reserved_reason;
use crate::ir::{Activation, LayerSet, LayerSpec, Prologue, SpecLocation, TensorShape};
use crate::ir::{is_file_name, symbol};
use std::collections::HashSet;

/// The keys of a layer set.
pub(super) const LAYER_SET: KeySet = KeySet {
    what: "a layer set",
    keys: &[
        "name",
        "gpu",
        "tiles",
        "precision",
        "tolerance",
        "defaults",
        "layers",
    ],
};

pub(super) const LAYER: KeySet = KeySet {
    what: "a layer",
    keys: &with_options::<2, 19>(["name", "conv"], &[]),
};

const DEFAULTS: KeySet = KeySet {
    what: "`defaults`",
    keys: &OPTIONS,
};

/// The keys of a convolution in a layer set, without its sizes.
pub(in crate::config) const OPTIONS: [&str; 17] = [
    "batch",
    "kernel",
    "stride",
    "pad",
    "dilation",
    "groups",
    "bias",
    "activation",
    "residual",
    "prologue",
    "cp_rank",
    "scheme",
    "tile",
    "reduce",
    "precision",
    "tolerance",
    "layout",
];

/// Some keys followed by the options of a convolution in a layer set, except those in `without`.
pub(in crate::config) const fn with_options<const FIRST: usize, const ALL: usize>(
    first: [&'static str; FIRST],
    without: &[&str],
) -> [&'static str; ALL] {
    assert!(FIRST + OPTIONS.len() == ALL + without.len());
    let mut all = [""; ALL];
    let mut end = 0;
    while end < FIRST {
        all[end] = first[end];
        end += 1;
    }
    let mut index = 0;
    while index < OPTIONS.len() {
        if !is_among(OPTIONS[index], without) {
            all[end] = OPTIONS[index];
            end += 1;
        }
        index += 1;
    }
    assert!(end == ALL);
    all
}

/// `words.contains(&word)` as a constant function.
const fn is_among(word: &str, words: &[&str]) -> bool {
    let mut index = 0;
    while index < words.len() {
        let (a, b) = (word.as_bytes(), words[index].as_bytes());
        let mut same = a.len() == b.len();
        let mut byte = 0;
        while same && byte < a.len() {
            same = a[byte] == b[byte];
            byte += 1;
        }
        if same {
            return true;
        }
        index += 1;
    }
    false
}

/// Reads a layer set.
pub(super) fn read(
    node: &Node,
    fields: &Fields<'_>,
    overrides: &Overrides,
    report: &mut Report<'_>,
) -> Option<LayerSet> {
    fields.check_keys(node, LAYER_SET, &[NETWORK, LAYER], report);
    fields.require("name", "it is part of the names of generated files", report);
    let name = fields.string("name", report);
    if let (Some(name), Some(node)) = (name, fields.get("name")) {
        check_name(name, node, report);
        check_symbol(name, node, report);
    }
    if overrides.input.is_some() {
        report.error(
            node.at,
            "an input shape was given for a layer set; only a network has an input",
        );
    }
    let gpu = single_target(fields, overrides, report);
    let tiles = tiles(fields, overrides, report);
    ops::check_inherited(fields, report);
    let defaults = fields.get("defaults").and_then(|node| {
        let defaults = Fields::of(node, "`defaults`", report)?;
        defaults.check_keys(node, DEFAULTS, &[LAYER], report);
        Some(defaults)
    });
    let node = fields.get("layers")?;
    let items = list(
        "layers",
        node,
        "one `- {conv: [C, N, H, W]}` a line",
        report,
    )?;
    if items.is_empty() {
        report.error(node.at, "the layer set has no layers; list at least one");
    }
    let mut names = UsedNames::default();
    let mut layers = Vec::new();
    for item in items {
        let Some(own) = Fields::of(item, "a layer", report) else {
            continue;
        };
        own.check_keys(item, LAYER, &ops::words(), report);
        let all = match &defaults {
            Some(defaults) => own.with_defaults(defaults, DEFAULTS.keys),
            None => own,
        };
        let all = all.with_defaults(fields, &ops::INHERITED);
        all.require("conv", "write `conv: [C, N, H, W]`", report);
        let sizes = all.integers("conv", "[C, N, H, W]", report);
        layers.extend(layer(sizes, &all, overrides, &mut names, report));
    }
    let mut name = name?.to_owned();
    if overrides.dense
        && layers
            .iter()
            .any(|layer: &LayerSpec| layer.cp_rank.is_some())
    {
        name.push_str("_dense");
        for layer in &mut layers {
            layer.cp_rank = None;
        }
    }
    Some(LayerSet {
        name,
        gpu: gpu?,
        tiles,
        layers,
    })
}

/// The symbols that are in use.
#[derive(Default)]
pub(in crate::config) struct UsedNames(HashSet<String>);

impl UsedNames {
    /// `base`, or `base_2` and so on if it is in use.
    fn unused(&mut self, base: &str) -> String {
        let numbered = (2u32..).map(|number| format!("{base}_{number}"));
        std::iter::once(base.to_owned())
            .chain(numbered)
            .find(|name| self.0.insert(symbol(name)))
            .unwrap_or_default()
    }
}

fn check_name(name: &str, node: &Node, report: &mut Report<'_>) {
    if !is_file_name(name) {
        let found = report.quote(node);
        report.error(
            node.at,
            format!(
                "{found} cannot be a name here; use letters, digits, _, - and ., not - or . first"
            ),
        );
    }
}

/// Rejects a name of a layer set that is not possible in C++ or CMake.
fn check_symbol(name: &str, node: &Node, report: &mut Report<'_>) {
    let symbol = symbol(name);
    if let Some((reason, help)) = reserved_reason(&symbol).filter(|_| is_file_name(name)) {
        let read_as = match symbol == name {
            true => String::new(),
            false => format!(", read as `{symbol}`,"),
        };
        report.error(
            node.at,
            format!("`{name}`{read_as} cannot be the name of a layer set: {reason}; {help}"),
        );
    }
}

/// A convolution with the sizes of `conv` and the options of `fields`.
pub(in crate::config) fn layer(
    sizes: Option<[u32; 4]>,
    fields: &Fields<'_>,
    overrides: &Overrides,
    names: &mut UsedNames,
    report: &mut Report<'_>,
) -> Option<LayerSpec> {
    let before = report.count();
    let batch = fields.integer("batch", report);
    let batch = overrides.batch.or(batch).unwrap_or(1);
    let mut options = ops::conv_options(sizes.map_or(1, |[_, n, _, _]| n), fields, report);
    options.precision = overrides.precision.unwrap_or(options.precision);
    options.tolerance = overrides.tolerance.unwrap_or(options.tolerance);
    options.ranks = fields.integers("ranks", "[D1, D2]", report);
    let prologue = prologue(fields, report);
    let residual = fields.boolean("residual", false, report);
    let given = fields.string("name", report);
    if let (Some(name), Some(node)) = (given, fields.get("name")) {
        check_name(name, node, report);
        if !names.0.insert(symbol(name)) {
            report.error(
                node.at,
                format!(
                    "there are two layers named `{name}`, - and . read as _; give each its own name"
                ),
            );
        }
    }
    let [c, n, h, w] = sizes?;
    if report.count() > before {
        return None;
    }
    let name = match given {
        Some(name) => name.to_owned(),
        None => names.unused(&format!("c{c}_n{n}_h{h}_w{w}")),
    };
    let x = TensorShape::new(batch, c, h, w);
    match LayerSpec::new(&name, x, options, prologue, residual) {
        Ok(layer) => Some(layer),
        Err(errors) => {
            for error in errors {
                let at = position(&error.location, [c, n, h, w], fields);
                report.error(at, error.to_string());
            }
            None
        }
    }
}

/// The position in the layer of the first op of the network as which the layer is checked.
fn position(location: &SpecLocation, sizes: [u32; 4], fields: &Fields<'_>) -> Position {
    match location {
        SpecLocation::Key(_, "n") | SpecLocation::Item(_, "n", _) => {
            fields.position("conv", Some(1))
        }
        SpecLocation::Key(_, key) => fields.position(key, None),
        SpecLocation::Item(_, key, item) => fields.position(key, Some(*item)),
        // The input's shape: the position of the zero in it.
        SpecLocation::TopLevel(_) => match sizes.iter().position(|&size| size == 0) {
            None if fields.integer_is("batch", 0) => fields.position("batch", None),
            zero => fields.position("conv", zero),
        },
        SpecLocation::Op(_) => fields.at,
    }
}

/// `true`, or a mapping with `activation`.
fn prologue(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<Prologue> {
    let node = fields.get("prologue")?;
    if !matches!(node.value, Value::Map(_)) {
        let requested = fields.boolean("prologue", false, report);
        return requested.then_some(Prologue {
            activation: Activation::None,
        });
    }
    let inner = Fields::of(node, "`prologue`", report)?;
    let words = KeySet {
        what: "`prologue`",
        keys: &["activation"],
    };
    inner.check_keys(node, words, &[], report);
    Some(Prologue {
        activation: activation(&inner, report),
    })
}
