//! The tables of one plan: its layers, their launches, and what they wait for.

use super::features::{Features, storage};
use super::launch_call::launch_call;
use crate::plan::{LayerPlan, Memory, NetworkPlan};
use crate::render::text::{literal, markdown_cell};
use crate::render::wrap::wrap_list;
use serde::Serialize;
use std::collections::BTreeSet;

/// The tables of one plan.
#[derive(Serialize)]
pub(super) struct PlanContext {
    batch: u32,
    layers: Vec<NetworkLayerContext>,
    /// Number of branches beside the caller's stream.
    side_branches: usize,
    /// The rows of the table of waits.
    waits: String,
    /// Its row of the table of plans, without the namespace of its variant.
    row: String,
}

/// A layer's row of the tables and its case of the switch.
#[derive(Serialize)]
struct NetworkLayerContext {
    name: String,
    /// The name in a table of a README.
    markdown: String,
    scheme: &'static str,
    /// The name of its unit.
    unit: String,
    row: String,
    call: String,
}

pub(super) fn plan_context(plan: &NetworkPlan, features: &Features) -> PlanContext {
    let batch = plan.batch();
    let own = |name: &str| format!("batch{batch}::{name}");
    let mut row = vec![format!("{{{batch}")];
    row.extend(plan_columns(plan, features, own));
    if let Some(last) = row.last_mut() {
        last.push('}');
    }
    let awaited = awaited(plan);
    let layers = plan.layers.iter().enumerate().map(|(index, layer)| {
        let event = awaited.binary_search(&index).ok();
        layer_context(plan, layer, event, features)
    });
    PlanContext {
        batch,
        layers: layers.collect(),
        side_branches: plan.branches() - 1,
        waits: waits_table(plan),
        row: wrap_list(&row, 4, 5),
    }
}

/// The columns of the table of plans, or of variants with one plan each: names of the plan's own tables, as `own` qualifies them.
pub(super) fn plan_columns(
    plan: &NetworkPlan,
    features: &Features,
    own: impl Fn(&str) -> String,
) -> Vec<String> {
    let mut columns = vec![own("layers"), own("layers_size")];
    if features.has_branches {
        columns.push(own("side_branches"));
        columns.extend(match waits_table(plan).is_empty() {
            true => ["nullptr".to_owned(), "0".to_owned()],
            false => [own("waits"), own("waits_size")],
        });
    }
    columns.push(own("launch"));
    columns
}

/// The layers that layers of other branches wait for, ascending: each has an event.
pub(super) fn awaited(plan: &NetworkPlan) -> Vec<usize> {
    let waits = plan.layers.iter().flat_map(|layer| &layer.waits);
    let layers: BTreeSet<usize> = waits.chain(&plan.ends).copied().collect();
    layers.into_iter().collect()
}

/// The rows of the table of waits, in lines; empty if there is none.
fn waits_table(plan: &NetworkPlan) -> String {
    let end = (plan.layers.len(), &plan.ends);
    let layers = plan.layers.iter().enumerate();
    let layers = layers.map(|(index, layer)| (index, &layer.waits));
    let rows = layers.chain([end]).flat_map(|(layer, others)| {
        others
            .iter()
            .map(move |other| format!("{{{layer}, {other}}}"))
    });
    wrap_list(&rows.collect::<Vec<_>>(), 4, 4)
}

/// `event` is the index of the event that is recorded after the layer.
fn layer_context(
    plan: &NetworkPlan,
    layer: &LayerPlan,
    event: Option<usize>,
    features: &Features,
) -> NetworkLayerContext {
    let y = &layer.y;
    let (output, start) = match y.memory {
        Memory::Arena { offset } => (None, offset / 4),
        Memory::Output { index } => (Some(index), 0),
        // No layer writes an input.
        Memory::Input { .. } => (None, 0),
    };
    // A layer that writes a whole output of the network writes it by its name in the interface.
    let whole = output
        .and_then(|index| plan.outputs.get(index))
        .filter(|output| output.shape == y.shape);
    let output_name = whole.map_or(&layer.output_op, |output| &output.name);
    let mut row = vec![
        format!("{{\"{}\"", literal(&layer.name)),
        format!("\"{}\"", literal(output_name)),
        output.map_or_else(|| "-1".to_owned(), |index| index.to_string()),
        (start + y.offset_bytes() / 4).to_string(),
        y.batch_stride.to_string(),
        y.shape.batch.to_string(),
        y.shape.image_len().to_string(),
    ];
    if features.has_storages {
        row.push(format!("Storage::{}", storage(y.format)));
        row.push(y.shape.c.to_string());
    }
    if features.has_branches {
        row.push(layer.branch.to_string());
        row.push(event.map_or_else(|| "-1".to_owned(), |event| event.to_string()));
    }
    if let Some(last) = row.last_mut() {
        last.push('}');
    }
    let unit = &plan.units[layer.unit];
    NetworkLayerContext {
        name: literal(&layer.name),
        markdown: markdown_cell(&layer.name),
        scheme: unit.scheme,
        unit: unit.unit.name.to_string(),
        row: wrap_list(&row, 4, 5),
        call: launch_call(plan, layer),
    }
}
