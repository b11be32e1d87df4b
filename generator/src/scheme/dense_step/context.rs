//! The context of the kernel's template. Templates use the integers as constants, by their names in upper case.

use super::channels::STEP_QUADS;
use super::geometry::Geometry;
use super::products::warps_of_products;
use super::shared_memory::WEIGHT_COPIES;
use crate::ir::DenseStepProblem;
use crate::scheme::factor::{FactorContext, RectangleContext, all_of, copies_late};
use crate::scheme::shared_offsets::BARRIER_FLOATS;
use crate::scheme::step_order::StepNames;
use crate::scheme::tensor_core::{MMA_M, MMA_N};
use crate::scheme::{activation_function, packed_offsets};
use serde::Serialize;
use tdc_runtime::WeightLayout;

#[derive(Serialize)]
pub(super) struct Context {
    #[serde(flatten)]
    units: UnitsContext,
    #[serde(flatten)]
    rectangle: RectangleContext,
    #[serde(flatten)]
    memory: MemoryContext,
    #[serde(flatten)]
    channels: ChannelsContext,
    #[serde(flatten)]
    conditions: ConditionsContext,
    #[serde(flatten)]
    output: OutputContext,
    growth: FactorContext,
    pointwise: FactorContext,
}

impl Context {
    pub(super) fn new(
        problem: &DenseStepProblem,
        sizes: &Geometry,
        layouts: &[WeightLayout],
    ) -> Self {
        let offsets = packed_offsets(layouts);
        let factor = |index: usize, factor, warp_k, prefix| {
            let names = StepNames { warp_k, prefix };
            FactorContext::new(factor, names, &layouts[index], offsets[index])
        };
        Self {
            units: UnitsContext::new(sizes),
            rectangle: RectangleContext::new(&sizes.rectangle),
            memory: MemoryContext::new(sizes, layouts, &offsets),
            channels: ChannelsContext::new(problem, sizes),
            conditions: ConditionsContext::new(problem, sizes),
            output: OutputContext::new(problem, sizes),
            growth: factor(0, &sizes.growth, "growth_k", "GROWTH_"),
            pointwise: factor(1, &sizes.pointwise, "pointwise_k", "POINTWISE_"),
        }
    }
}

/// Sizes of the GPU's units and of data types.
#[derive(Serialize)]
struct UnitsContext {
    threads: u32,
    warps: u32,
    /// Warps that have parts of the first convolution and of the 1x1 convolution.
    growth_warps: u32,
    pointwise_warps: u32,
    warp_size: u32,
    cluster: u32,
    /// MMA tile: rows, half of them, and columns; quads of a K step.
    mma_m: u32,
    half_m: u32,
    mma_n: u32,
    step_quads: u32,
    /// Channels of a quad, and floats of a float4.
    quad: u32,
    vector: u32,
    float_bytes: u32,
    barrier_floats: u32,
    weight_copies: u32,
    /// Whether values are split into a hi and a lo part, and packed 32-bit words of the weights of a K step.
    hi_lo: bool,
    step_weights: u32,
}

impl UnitsContext {
    fn new(sizes: &Geometry) -> Self {
        Self {
            threads: 32 * sizes.tile.warps,
            warps: sizes.tile.warps,
            growth_warps: warps_of_products(&sizes.tile)[0],
            pointwise_warps: warps_of_products(&sizes.tile)[1],
            warp_size: 32,
            cluster: sizes.tile.cluster,
            mma_m: MMA_M,
            half_m: MMA_M / 2,
            mma_n: MMA_N,
            step_quads: STEP_QUADS,
            quad: 4,
            vector: 4,
            float_bytes: 4,
            barrier_floats: BARRIER_FLOATS,
            weight_copies: WEIGHT_COPIES,
            hi_lo: sizes.split_terms == 2,
            step_weights: 128 * sizes.split_terms,
        }
    }
}

/// Offsets in shared memory and in the packed parameters.
#[derive(Serialize)]
struct MemoryContext {
    growth_weights_at: u32,
    pointwise_weights_at: u32,
    input_at: u32,
    before_at: u32,
    grown_at: u32,
    grown_sums_at: u32,
    new_values_at: u32,
    received_at: u32,
    warp_max_at: u32,
    grown_barrier_at: u32,
    sums_barrier_at: u32,
    copy_barriers_at: u32,
    packed_scales_at: usize,
    packed_growth_bias_at: usize,
}

impl MemoryContext {
    fn new(sizes: &Geometry, layouts: &[WeightLayout], offsets: &[usize]) -> Self {
        let memory = &sizes.memory;
        Self {
            growth_weights_at: memory.growth_weights_at,
            pointwise_weights_at: memory.pointwise_weights_at,
            input_at: memory.input_at,
            before_at: memory.before_at,
            grown_at: memory.grown_at,
            grown_sums_at: memory.grown_sums_at,
            new_values_at: memory.new_values_at,
            received_at: memory.received_at,
            warp_max_at: memory.warp_max_at,
            grown_barrier_at: memory.grown_barrier_at,
            sums_barrier_at: memory.sums_barrier_at,
            copy_barriers_at: memory.copy_barriers_at,
            packed_scales_at: offsets[1] + layouts[1].weight_len(),
            packed_growth_bias_at: offsets.get(2).copied().unwrap_or(0),
        }
    }
}

/// Channels and their quads.
#[derive(Serialize)]
struct ChannelsContext {
    /// Input channel quads of a block, and their distance.
    slice_quads: u32,
    input_plane: u32,
    /// Input channels; channels of the concatenation before the new ones, the new ones, and both.
    c: u32,
    before: u32,
    grown: u32,
    concatenated: u32,
    /// Their quads: before, and new; rows of partial sums of new channels in a block.
    before_quads: u32,
    new_quads: u32,
    own_rows: u32,
    /// Quads of a block with padding to K steps, and their distance.
    before_step_quads: u32,
    grown_step_quads: u32,
    plane: u32,
    /// K steps of the 1x1 convolution: the first one that may have a new channel, and the number of those.
    first_grown_step: u32,
    grown_steps: u32,
    /// Output channels, and those of a block.
    n: u32,
    block_n: u32,
    /// Items of a thread: channel quads of a position of the input, of a pixel of the concatenation, of new channels in
    /// the K steps that have some, new channels, and outputs.
    input_items: u32,
    before_items: u32,
    new_items: u32,
    grown_items: u32,
    output_items: u32,
}

impl ChannelsContext {
    fn new(problem: &DenseStepProblem, sizes: &Geometry) -> Self {
        let (pixels, quads) = (sizes.rectangle.pixels(), &sizes.quads);
        let [before, grown] =
            [quads.before_steps, quads.grown_steps].map(|steps| STEP_QUADS * steps);
        Self {
            slice_quads: sizes.slice / 4,
            input_plane: sizes.input_plane,
            c: problem.growth.c,
            before: problem.before,
            grown: problem.growth.n,
            concatenated: problem.new_channels().end,
            before_quads: quads.before,
            new_quads: quads.grown,
            own_rows: sizes.own_rows(),
            before_step_quads: before,
            grown_step_quads: grown,
            plane: sizes.plane,
            first_grown_step: quads.first_grown_step,
            grown_steps: quads.grown_steps,
            n: problem.n,
            block_n: sizes.block_n,
            input_items: sizes
                .block
                .items(sizes.slice / 4 * sizes.rectangle.position_count()),
            before_items: sizes.block.items(before * pixels),
            new_items: sizes.block.items(sizes.own_rows() * pixels),
            grown_items: sizes.block.items(grown * pixels),
            output_items: sizes.block.items(sizes.block_n * pixels),
        }
    }
}

/// Conditions in the code, as CUDA expressions.
#[derive(Serialize)]
struct ConditionsContext {
    /// For an item of the input, inside the tensor.
    loads_position: String,
    checks_input: bool,
    /// Whether a block's slice of the input may have channels that are padding.
    checks_c: bool,
    /// For an item of the concatenation before the new channels, inside the tensor.
    loads_before: String,
    checks_before: bool,
    checks_grown: bool,
    /// For sums of a lane that belong to no new channel or pixel; empty if there are none.
    skips_sum: String,
    /// For an item of the new channels.
    checks_new: bool,
    stores_new: String,
    /// For the accumulators of a lane at pixels that are none.
    checks_columns: bool,
    /// For an output that is not stored.
    outside_output: String,
}

impl ConditionsContext {
    fn new(problem: &DenseStepProblem, sizes: &Geometry) -> Self {
        let rectangle = &sizes.rectangle;
        let threads = 32 * sizes.tile.warps;
        let idle = |all: u32| !all.is_multiple_of(threads);
        let (cluster, pixels, quads) = (sizes.tile.cluster, sizes.rectangle.pixels(), &sizes.quads);
        let checks_input = idle(sizes.slice / 4 * sizes.rectangle.position_count());
        let mut loads = rectangle.positions_inside();
        loads.extend(checks_input.then_some("quad < SLICE_QUADS"));
        let [cut_rows, cut_columns] = rectangle.is_cut();
        let mut inside = Vec::new();
        inside.extend(cut_rows.then_some("y0 + item % PIXELS / TW < OUT_H"));
        inside.extend(cut_columns.then_some("x0 + item % PIXELS % TW < OUT_W"));
        let before = STEP_QUADS * quads.before_steps;
        let checks_before = idle(before * pixels);
        let is_padded = checks_before || before * cluster != quads.before;
        let mut loads_before = inside.clone();
        loads_before.extend(is_padded.then_some(match cluster {
            1 => "first_channel(item) < BEFORE",
            _ => "first_channel(item, rank) < BEFORE",
        }));
        let mut skips = Vec::new();
        skips.extend((sizes.growth.rows > 4 * quads.grown).then_some("row >= NEW_QUADS * QUAD"));
        skips.extend(
            (sizes.growth.columns > sizes.rectangle.columns()).then_some("pixel >= COLUMNS"),
        );
        let mut stores = inside.clone();
        stores.extend((cluster * sizes.own_rows() > problem.growth.n).then_some("c < GROWN"));
        let none = idle(sizes.block_n * pixels).then_some("row >= BLOCK_N");
        Self {
            loads_position: all_of(&loads),
            checks_input,
            checks_c: sizes.slice * cluster != problem.growth.c,
            loads_before: all_of(&loads_before),
            checks_before,
            checks_grown: idle(STEP_QUADS * quads.grown_steps * pixels),
            skips_sum: skips.join(" || "),
            checks_new: idle(sizes.own_rows() * pixels),
            stores_new: all_of(&stores),
            checks_columns: sizes.pointwise.columns > sizes.rectangle.columns(),
            outside_output: rectangle.outside_output(none, sizes.block_n * cluster != problem.n),
        }
    }
}

/// Batches, and what is applied to operands and sums.
#[derive(Serialize)]
struct OutputContext {
    batched: bool,
    copies_late: bool,
    grown_bias: bool,
    grown_activation: Option<String>,
    prologue: bool,
    prologue_activation: Option<String>,
    /// Of the 1x1 convolution; its operands are quantised.
    scaled: bool,
    bias: bool,
    residual: bool,
    activation: Option<String>,
    /// Whether the 1x1 convolution has rows that are padding.
    checks_rows: bool,
}

impl OutputContext {
    fn new(problem: &DenseStepProblem, sizes: &Geometry) -> Self {
        let prologue = problem.prologue.map(|prologue| prologue.activation);
        Self {
            batched: problem.growth.batch > 1,
            copies_late: copies_late(sizes.blocks),
            grown_bias: problem.grown.bias,
            grown_activation: activation_function(problem.grown.activation),
            prologue: prologue.is_some(),
            prologue_activation: prologue.and_then(activation_function),
            scaled: true,
            bias: problem.epilogue.bias,
            residual: false,
            activation: activation_function(problem.epilogue.activation),
            checks_rows: sizes.pointwise.rows > problem.n,
        }
    }
}
