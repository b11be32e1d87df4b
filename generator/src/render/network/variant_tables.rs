//! The tables of one variant: those of its plans, and the choice among them.

use super::batches::is_multi_batch;
use super::features::Features;
use super::plan_tables::{PlanContext, plan_columns, plan_context};
use super::slots::{SlotContext, slots};
use crate::plan::{BatchSchedule, NetworkPlan};
use crate::render::banner::gpu_titles;
use crate::render::text::literal;
use crate::render::wrap::wrap_list;
use serde::Serialize;

/// The tables of one variant.
#[derive(Serialize)]
pub(super) struct VariantContext {
    /// The GPU's name: that of the variant and of its namespace.
    gpu: &'static str,
    /// Title of the GPU.
    title: String,
    min_arch: u16,
    arena_bytes: u64,
    /// The same without reuse, of the plan for the largest batch.
    arena_bytes_without_reuse: u64,
    payload_bytes: u64,
    layouts_checksum: String,
    /// Layers of the plan for the largest batch.
    layer_count: usize,
    /// One for each batch, ascending.
    plans: Vec<PlanContext>,
    /// If there are several plans.
    schedule: Option<ScheduleContext>,
    slots: Vec<SlotContext>,
    /// Its row of the table of variants.
    row: String,
}

/// The tables by which a driver with several plans chooses among them.
#[derive(Serialize)]
struct ScheduleContext {
    /// For 1, 2, ... images that are left, the index of the plan.
    next: String,
    /// Offsets in the arena of copies of inputs and outputs, in floats.
    input_copies: String,
    output_copies: String,
}

/// `plans` are those of one GPU, by ascending batch.
pub(super) fn variant_context(plans: &[NetworkPlan], features: &Features) -> VariantContext {
    let (first, largest) = (&plans[0], &plans[plans.len() - 1]);
    let gpu = first.gpu;
    let units = plans.iter().flat_map(|plan| &plan.units);
    let min_arch = units.map(|unit| unit.variant().min_arch.sm).max();
    let min_arch = min_arch.unwrap_or(0);
    let slots = slots(plans);
    // A single plan is only run as a whole.
    let schedule = is_multi_batch(plans).then(|| BatchSchedule::new(plans));
    let arena_bytes = match &schedule {
        Some(schedule) => schedule.arena_bytes,
        None => first.arena_bytes,
    };
    let own = |name: &str| format!("{}::{name}", gpu.name);
    let mut row = vec![
        format!("{{\"{}\"", gpu.name),
        format!("\"{}\"", literal(gpu.device_name)),
        gpu.arch.sm.to_string(),
        min_arch.to_string(),
        own("arena_bytes"),
        own("payload_bytes"),
        own("layouts_checksum"),
    ];
    if features.has_slots {
        row.extend(match slots.is_empty() {
            true => ["nullptr".to_owned(), "0".to_owned()],
            false => [own("slots"), own("slots_size")],
        });
    }
    match is_multi_batch(plans) {
        true => {
            let tables = ["plans", "next_plan", "input_copies", "output_copies"];
            row.extend(tables.map(own));
        }
        false => row.extend(plan_columns(first, features, own)),
    }
    if let Some(last) = row.last_mut() {
        last.push('}');
    }
    let plan_contexts = plans.iter().map(|plan| plan_context(plan, features));
    VariantContext {
        gpu: gpu.name,
        title: gpu_titles(&[gpu]),
        min_arch,
        arena_bytes,
        arena_bytes_without_reuse: largest.arena_bytes_without_reuse,
        payload_bytes: first.weights.payload_bytes(),
        layouts_checksum: format!("{:#018x}u", first.weights.layouts_checksum()),
        layer_count: largest.layers.len(),
        plans: plan_contexts.collect(),
        schedule: schedule.as_ref().map(schedule_context),
        slots,
        row: wrap_list(&row, 4, 5),
    }
}

fn schedule_context(schedule: &BatchSchedule) -> ScheduleContext {
    let list = |values: Vec<String>| wrap_list(&values, 4, 4);
    // A tensor that is never copied has no use for an offset.
    let offsets = |copies: &[Option<u64>]| {
        let offsets = copies.iter().map(|bytes| bytes.unwrap_or(0) / 4);
        list(offsets.map(|offset| offset.to_string()).collect())
    };
    ScheduleContext {
        next: list(schedule.next.iter().map(usize::to_string).collect()),
        input_copies: offsets(&schedule.input_copies),
        output_copies: offsets(&schedule.output_copies),
    }
}
