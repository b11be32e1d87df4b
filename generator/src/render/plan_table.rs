//! The plan as a table for the command line.

use super::columns::align_columns;
use super::plan_json::tile_fields;
use crate::cost::{CostTerms, memset_us};
use crate::gpu::Gpu;
use crate::plan::{LaunchPrediction, LayerSetPlan, NetworkPlan, PlannedUnit, launch_terms};
use tdc_runtime::Step;

const TITLES: [&str; 14] = [
    "op",
    "scheme",
    "tile",
    "chosen by",
    "blocks",
    "threads",
    "occupancy",
    "waves",
    "MFLOP",
    "KB",
    "predicted us",
    "measured us",
    "floor us",
    "unit",
];

/// The columns that contain numbers.
const NUMBERS: std::ops::Range<usize> = 4..13;

type Row = [String; TITLES.len()];

/// A network's plan: a row for each launch, times in microseconds, KB of 1000 bytes.
pub fn network_table(plan: &NetworkPlan) -> String {
    let ops = plan
        .layers
        .iter()
        .map(|layer| (layer.name.as_str(), &plan.units[layer.unit]));
    let ops: Vec<_> = ops.collect();
    let branches = match plan.branches() {
        1 => String::new(),
        several => format!(" in {several} branches"),
    };
    format!(
        "{}: {} -> {}, {}\n{}{branches}; arena {:.2} MB (all tensors {:.2} MB), weights {:.2} MB\n\n{}\nthe network as a whole: {:.2} us predicted\n",
        plan.name,
        plan.input_shapes(),
        plan.output_shapes(),
        planned_for(plan.gpu),
        counts(&ops),
        plan.arena_bytes as f64 / 1e6,
        plan.arena_bytes_without_reuse as f64 / 1e6,
        plan.weights.payload_bytes() as f64 / 1e6,
        table(&ops, plan.gpu),
        plan.network_us()
    )
}

/// A layer set's plan, with the same columns.
pub fn layer_set_table(plan: &LayerSetPlan) -> String {
    let ops = plan
        .layers
        .iter()
        .map(|layer| (layer.name.as_str(), &plan.units[layer.unit]));
    let ops: Vec<_> = ops.collect();
    format!(
        "{}: {}\n{}\n\n{}",
        plan.name,
        planned_for(plan.gpu),
        counts(&ops),
        table(&ops, plan.gpu)
    )
}

const TERMS: [&str; 14] = [
    "op", "tile", "launch", "load", "latency", "stage", "compute", "wait", "reduce", "exchange",
    "store", "waves", "memory", "us",
];

/// The terms of the predicted times of a network's launches and memsets, microseconds.
pub fn network_terms(plan: &NetworkPlan) -> String {
    let layers = plan.layers.iter();
    let ops = layers.map(|layer| (layer.name.as_str(), &plan.units[layer.unit]));
    terms(&plan.name, &ops.collect::<Vec<_>>(), plan.gpu)
}

/// The same for a layer set.
pub fn layer_set_terms(plan: &LayerSetPlan) -> String {
    let layers = plan.layers.iter();
    let ops = layers.map(|layer| (layer.name.as_str(), &plan.units[layer.unit]));
    terms(&plan.name, &ops.collect::<Vec<_>>(), plan.gpu)
}

fn terms(name: &str, ops: &[(&str, &PlannedUnit)], gpu: &Gpu) -> String {
    let mut rows = vec![TERMS.map(str::to_owned)];
    for (name, unit) in ops {
        for (index, terms) in launch_terms(unit, gpu).into_iter().enumerate() {
            let op = match index {
                0 => (*name).to_owned(),
                _ => format!("  {}", unit.kernels[index].blueprint.role),
            };
            let tile = unit.tile.label(tile_fields(unit)).to_string();
            rows.push(terms_row(op, tile, terms));
        }
        for step in unit.variant().steps.iter() {
            if let Step::Memset { bytes, .. } = step {
                let launch = memset_us(0, gpu);
                let memory = memset_us(*bytes, gpu) - launch;
                let terms = CostTerms {
                    launch,
                    memory,
                    ..CostTerms::default()
                };
                rows.push(terms_row("  memset".to_owned(), String::new(), Some(terms)));
            }
        }
    }
    format!(
        "{name}: {}\n\n{}",
        planned_for(gpu),
        align_columns(&rows, &(2..TERMS.len()))
    )
}

/// A row of terms and their sum; without terms the sum is infinite.
fn terms_row(op: String, tile: String, terms: Option<CostTerms>) -> [String; TERMS.len()] {
    let mut row: [String; TERMS.len()] = Default::default();
    (row[0], row[1]) = (op, tile);
    let Some(terms) = terms else {
        row[TERMS.len() - 1] = us(f64::INFINITY);
        return row;
    };
    let parts = [
        terms.launch,
        terms.load,
        terms.latency,
        terms.stage,
        terms.compute,
        terms.wait,
        terms.reduce,
        terms.exchange,
        terms.store,
        terms.waves,
        terms.memory,
        terms.us(),
    ];
    for (cell, part) in row[2..].iter_mut().zip(parts) {
        *cell = us(part);
    }
    row
}

fn planned_for(gpu: &Gpu) -> String {
    format!("planned for {} ({})", gpu.title, gpu.arch)
}

fn counts(ops: &[(&str, &PlannedUnit)]) -> String {
    let layers = ops.len();
    let launches: usize = ops.iter().map(|(_, unit)| unit.kernels.len()).sum();
    let steps = ops.iter().flat_map(|(_, unit)| unit.variant().steps.iter());
    let memsets = steps
        .filter(|step| matches!(step, Step::Memset { .. }))
        .count();
    let mut text = format!(
        "{layers} layer{}, {launches} launch{}",
        if layers == 1 { "" } else { "s" },
        if launches == 1 { "" } else { "es" }
    );
    if memsets > 0 {
        text += &format!(", {memsets} memset{}", if memsets == 1 { "" } else { "s" });
    }
    text
}

fn table(ops: &[(&str, &PlannedUnit)], gpu: &Gpu) -> String {
    let mut rows = vec![TITLES.map(str::to_owned)];
    for (name, unit) in ops {
        rows.extend(launch_rows(name, unit, gpu));
        rows.extend(memset_rows(unit, gpu));
    }
    rows.push(total(ops));
    align_columns(&rows, &NUMBERS)
}

/// One row for each memset of an op, after its launches.
fn memset_rows(unit: &PlannedUnit, gpu: &Gpu) -> impl Iterator<Item = Row> {
    unit.variant().steps.iter().filter_map(|step| match step {
        Step::Memset { bytes, .. } => {
            let mut row = Row::default();
            row[0] = "  memset".to_owned();
            row[10] = us(memset_us(*bytes, gpu));
            Some(row)
        }
        Step::Launch(_) => None,
    })
}

/// One row for each launch. Values of the complete op are in the first row.
fn launch_rows<'a>(name: &'a str, unit: &'a PlannedUnit, gpu: &Gpu) -> impl Iterator<Item = Row> {
    let launches = unit
        .kernels
        .iter()
        .zip(LaunchPrediction::for_unit(unit, gpu));
    launches
        .enumerate()
        .map(move |(index, (kernel, prediction))| {
            let of_op = |text: String| match index {
                0 => text,
                _ => String::new(),
            };
            [
                match index {
                    0 => name.to_owned(),
                    _ => format!("  {}", kernel.blueprint.role),
                },
                of_op(unit.scheme.to_owned()),
                of_op(unit.tile.label(tile_fields(unit)).to_string()),
                of_op(unit.chosen_by.as_str().to_owned()),
                size(kernel.blueprint.grid).to_string(),
                size(kernel.blueprint.block).to_string(),
                format!("{:.0} %", 100.0 * prediction.occupancy.fraction),
                prediction.occupancy.waves.to_string(),
                of_op(mflop(unit.problem.flops())),
                of_op(format!("{:.1}", unit.problem.bytes() as f64 / 1e3)),
                us(prediction.us),
                of_op(unit.measured_us.map(us).unwrap_or_default()),
                of_op(us(unit.floor_us)),
                of_op(unit.unit.name.to_string()),
            ]
        })
}

fn total(ops: &[(&str, &PlannedUnit)]) -> Row {
    let units = || ops.iter().map(|(_, unit)| unit);
    let mut row = Row::default();
    row[0] = "total".to_owned();
    row[8] = mflop(units().map(|unit| unit.problem.flops()).sum());
    row[10] = us(units().map(|unit| unit.predicted_us).sum());
    // Empty unless all units have a measured time: a partial sum would be misleading.
    let measured: Option<f64> = units().map(|unit| unit.measured_us).sum();
    row[11] = measured.map(us).unwrap_or_default();
    row[12] = us(units().map(|unit| unit.floor_us).sum());
    row
}

fn size([x, y, z]: [u32; 3]) -> u64 {
    u64::from(x) * u64::from(y) * u64::from(z)
}

fn mflop(flops: u64) -> String {
    format!("{:.2}", flops as f64 / 1e6)
}

fn us(us: f64) -> String {
    format!("{us:.2}")
}
