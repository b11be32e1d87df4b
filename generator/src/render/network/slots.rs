//! The table by which a driver generates random parameters.

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
    for plan in plans {
        for layer in &plan.layers {
            let names = packer_names(&plan.units[layer.unit]);
            for (&slot, name) in layer.slots.iter().zip(names) {
                packers[slot].get_or_insert(name);
            }
        }
    }
    let rows = packers.into_iter().zip(slots);
    rows.filter_map(|(packer, (slot, region))| {
        Some(SlotContext {
            name: literal(&slot.name),
            row: slot_row(&packer?, slot, region),
        })
    })
    .collect()
}

fn slot_row(packer: &str, slot: &WeightSlot, region: WeightRegion) -> String {
    let [_, i, r, s] = slot.layout.source;
    let fan_in = u64::from(i) * u64::from(r) * u64::from(s);
    let values = [
        format!("{{{packer}"),
        slot.layout.source_len().to_string(),
        fan_in.max(1).to_string(),
        slot.layout.prologue_channels.to_string(),
        (region.packed / 4).to_string(),
        (region.bias / 4).to_string(),
        format!("{}}}", slot.bias_len),
    ];
    wrap_list(&values, 4, 5)
}
