//! The table by which a driver generates random parameters.

use crate::ir::DType;
use crate::plan::NetworkPlan;
use crate::render::text::literal;
use crate::render::unit::packer_names;
use crate::render::wrap::wrap_list;
use serde::Serialize;
use tdc_runtime::{WeightRegion, WeightSlot};

/// The parameters of a layer, for a program that generates random ones.
#[derive(Serialize)]
pub(super) struct SlotContext {
    name: String,
    row: String,
}

/// Rows of the table by which random parameters are generated, in weight file order. `plans` have one weight file.
pub(super) fn slots(plans: &[NetworkPlan]) -> Vec<SlotContext> {
    let slots: Vec<_> = plans[0].weights.iter().collect();
    let mut packers: Vec<Option<String>> = vec![None; slots.len()];
    let mut reads_bytes = vec![false; slots.len()];
    for plan in plans {
        for layer in &plan.layers {
            let unit = &plan.units[layer.unit];
            let names = packer_names(unit);
            if let (DType::Uint8, Some(&slot)) = (
                unit.problem.kind().input().format.dtype,
                layer.slots.first(),
            ) {
                reads_bytes[slot] = true;
            }
            for (&slot, name) in layer.slots.iter().zip(names) {
                packers[slot].get_or_insert(name);
            }
        }
    }
    let some_reads_bytes = reads_bytes.contains(&true);
    let rows = packers.into_iter().zip(reads_bytes).zip(slots);
    rows.filter_map(|((packer, reads_bytes), (slot, region))| {
        let reads_bytes = some_reads_bytes.then_some(reads_bytes);
        Some(SlotContext {
            name: literal(&slot.name),
            row: slot_row(&packer?, slot, region, reads_bytes),
        })
    })
    .collect()
}

/// `reads_bytes` is `None` if no layer reads an input in uint8; the table then has no such column.
fn slot_row(
    packer: &str,
    slot: &WeightSlot,
    region: WeightRegion,
    reads_bytes: Option<bool>,
) -> String {
    let [_, i, r, s] = slot.layout.source;
    let fan_in = u64::from(i) * u64::from(r) * u64::from(s);
    let mut values = vec![
        format!("{{{packer}"),
        slot.layout.source_len().to_string(),
        fan_in.max(1).to_string(),
        slot.layout.prologue_channels.to_string(),
        (region.packed / 4).to_string(),
        (region.bias / 4).to_string(),
        slot.bias_len.to_string(),
    ];
    values.extend(reads_bytes.map(|reads_bytes| reads_bytes.to_string()));
    if let Some(last) = values.last_mut() {
        last.push('}');
    }
    wrap_list(&values, 4, 5)
}
