//! The keys of a layer set.

use super::activation::activation;
use super::fields::{Fields, list};
use super::node::{Node, Value};
use super::ops;
use super::report::Report;
use super::targets::single_target;
use super::tiles;
use crate::config::schema::{Key, Mapping, NetworkOp, inherited_keys};
use crate::config::{Overrides, Position};
use crate::ir::reserved_reason;
use crate::ir::{Activation, LayerSet, LayerSpec, Prologue, SpecLocation, TensorShape};
use crate::ir::{is_file_name, symbol};
use std::collections::HashSet;

/// Reads a layer set.
pub(super) fn read(
    node: &Node,
    fields: &Fields<'_>,
    overrides: &Overrides,
    report: &mut Report<'_>,
) -> Option<LayerSet> {
    let others = [Mapping::Network, Mapping::Layer];
    fields.check_keys(node, Mapping::LayerSet, &others, report);
    fields.require(
        Key::Name,
        "it is part of the names of generated files",
        report,
    );
    let name = fields.string(Key::Name, report);
    if let (Some(name), Some(node)) = (name, fields.get(Key::Name)) {
        check_name(name, node, report);
        check_symbol(name, node, report);
    }
    if overrides.input.is_some() || !overrides.inputs.is_empty() {
        report.error(
            node.at,
            "an input shape was given for a layer set; only a network has an input",
        );
    }
    if let Some(batches) = &overrides.batches
        && batches.are_several()
    {
        report.error(
            node.at,
            format!("a layer set is planned for one batch, not for {batches}; choose one"),
        );
    }
    let gpu = single_target(fields, overrides, report);
    let tiles = tiles(fields, overrides, report);
    ops::check_inherited(fields, report);
    let defaults = fields.get(Key::Defaults).and_then(|node| {
        let defaults = Fields::of(node, "`defaults`", report)?;
        defaults.check_keys(node, Mapping::Defaults, &[Mapping::Layer], report);
        Some(defaults)
    });
    let node = fields.get(Key::Layers)?;
    let items = list(
        Key::Layers,
        node,
        "one `- {conv: [C, N, H, W]}` a line",
        report,
    )?;
    if items.is_empty() {
        report.error(node.at, "the layer set has no layers; list at least one");
    }
    let ops = NetworkOp::mappings();
    let mut names = UsedNames::default();
    let (mut layers, mut has_ranks) = (Vec::new(), false);
    for item in items {
        let Some(own) = Fields::of(item, "a layer", report) else {
            continue;
        };
        own.check_keys(item, Mapping::Layer, &ops, report);
        let all = match &defaults {
            Some(defaults) => own.with_defaults(defaults, Mapping::Defaults.keys()),
            None => own,
        };
        let all = all.with_defaults(fields, inherited_keys());
        all.require(Key::Conv, "write `conv: [C, N, H, W]`", report);
        let sizes = all.integers(Key::Conv, "[C, N, H, W]", report);
        has_ranks |= ops::has_ranks(&all);
        layers.extend(layer(sizes, &all, overrides, &mut names, report));
    }
    Some(LayerSet {
        name: overrides.name(name?, has_ranks),
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
    let batch = fields.integer(Key::Batch, report);
    let batch = overrides.largest_batch(batch.unwrap_or(1));
    let mut options = ops::conv_options(sizes.map_or(1, |[_, n, _, _]| n), fields, report);
    options.ranks = fields.integers(Key::Ranks, "[D1, D2]", report);
    options.rank = fields.integer(Key::Rank, report);
    let options = overrides.convolution(options);
    let prologue = prologue(fields, report);
    let residual = fields.boolean(Key::Residual, false, report);
    let given = fields.string(Key::Name, report);
    if let (Some(name), Some(node)) = (given, fields.get(Key::Name)) {
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
            fields.position(Key::Conv, Some(1))
        }
        SpecLocation::Key(_, key) => fields.position(key, None),
        SpecLocation::Item(_, key, item) => fields.position(key, Some(*item)),
        // The input's shape: the position of the zero in it.
        SpecLocation::TopLevel(_) => match sizes.iter().position(|&size| size == 0) {
            None if fields.integer_is(Key::Batch, 0) => fields.position(Key::Batch, None),
            zero => fields.position(Key::Conv, zero),
        },
        SpecLocation::Op(_) => fields.at,
    }
}

/// `true`, or a mapping with `activation`.
fn prologue(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<Prologue> {
    let node = fields.get(Key::Prologue)?;
    if !matches!(node.value, Value::Map(_)) {
        let requested = fields.boolean(Key::Prologue, false, report);
        return requested.then_some(Prologue {
            activation: Activation::None,
        });
    }
    let inner = Fields::of(node, "`prologue`", report)?;
    inner.check_keys(node, Mapping::Prologue, &[], report);
    Some(Prologue {
        activation: activation(&inner, report),
    })
}
