//! The context of the kernel's template, in the phases of the kernel.

mod factors;
mod input;
mod output;
mod weights;

use super::geometry::TuckerFusedGeometry;
use super::shared_memory::{CORE_MAX_BUFFER, FIRST_MAX_BUFFER, OUTPUT_MAX_BUFFER};
use crate::ir::TuckerProblem;
use crate::scheme::shared_offsets::BARRIER_FLOATS;
use crate::scheme::tensor_core::{MMA_M, MMA_N};
use factors::FactorsContext;
use input::InputContext;
use output::OutputContext;
use serde::Serialize;
use tdc_runtime::WeightLayout;
use weights::WeightsContext;

/// See the [module](self). Templates use the integers as constants, by their names in upper case.
#[derive(Serialize)]
pub(super) struct TuckerFusedContext {
    #[serde(flatten)]
    units: UnitsContext,
    #[serde(flatten)]
    cluster: ClusterContext,
    #[serde(flatten)]
    memory: MemoryContext,
    #[serde(flatten)]
    weights: WeightsContext,
    #[serde(flatten)]
    input: InputContext,
    #[serde(flatten)]
    sums: SumsContext,
    #[serde(flatten)]
    output: OutputContext,
    #[serde(flatten)]
    factors: FactorsContext,
}

impl TuckerFusedContext {
    pub(super) fn new(
        problem: &TuckerProblem,
        sizes: &TuckerFusedGeometry,
        layouts: &[WeightLayout],
    ) -> Self {
        Self {
            units: UnitsContext::new(sizes),
            cluster: ClusterContext::new(sizes),
            memory: MemoryContext::new(sizes),
            weights: WeightsContext::new(sizes),
            input: InputContext::new(problem, sizes, layouts),
            sums: SumsContext::new(sizes),
            output: OutputContext::new(problem, sizes),
            factors: FactorsContext::new(problem, sizes, layouts),
        }
    }
}

/// Sizes of the GPU's units and of data types.
#[derive(Serialize)]
struct UnitsContext {
    warps: u32,
    warp_size: u32,
    /// MMA tile: rows, half of them, channel quads in the rows, and columns.
    mma_m: u32,
    half_m: u32,
    mma_m_quads: u32,
    mma_n: u32,
    /// Channels of a quad, and floats of a float4.
    quad: u32,
    vector: u32,
    float_bytes: u32,
    /// Whether values are split into a hi and a lo part.
    hi_lo: bool,
}

impl UnitsContext {
    fn new(sizes: &TuckerFusedGeometry) -> Self {
        Self {
            warps: sizes.tile.warps,
            warp_size: 32,
            mma_m: MMA_M,
            half_m: MMA_M / 2,
            mma_m_quads: MMA_M / 4,
            mma_n: MMA_N,
            quad: 4,
            vector: 4,
            float_bytes: 4,
            hi_lo: sizes.split_terms == 2,
        }
    }
}

/// How a cluster divides the work.
#[derive(Serialize)]
struct ClusterContext {
    cluster: u32,
    blocks_n: u32,
    d1_splits: u32,
    d2_splits: u32,
    /// Indentation of the code inside the loop over the splits of D2.
    d2_indent: u32,
    d2_rows: u32,
    d2_rows_per_block: u32,
    next_rows_per_block: u32,
    block_pixels: u32,
    cluster_pixels: u32,
}

impl ClusterContext {
    fn new(sizes: &TuckerFusedGeometry) -> Self {
        let (tile, split) = (&sizes.tile, &sizes.split);
        Self {
            cluster: tile.cluster,
            blocks_n: tile.blocks_n,
            d1_splits: split.d1_splits,
            d2_splits: tile.d2_splits,
            d2_indent: if tile.d2_splits > 1 { 4 } else { 0 },
            d2_rows: split.d2_rows,
            d2_rows_per_block: split.d2_rows_per_block,
            next_rows_per_block: split.next_rows_per_block,
            block_pixels: split.block_pixels,
            cluster_pixels: split.cluster_pixels,
        }
    }
}

/// Offsets in shared memory.
#[derive(Serialize)]
struct MemoryContext {
    input_at: u32,
    first_partials_at: u32,
    partials_at: u32,
    core_output_at: u32,
    core_input_at: u32,
    received_at: u32,
    scales_at: u32,
    copy_barriers_at: u32,
    /// mbarriers of the exchanges of the core's partial sums, its output, and the next factor's partial sums.
    sums_barrier_at: u32,
    core_output_barrier_at: u32,
    next_barrier_at: u32,
    /// The buffers for the largest magnitudes of the warps. Those of the first factor, the core and the output are relative to the start.
    warp_max_at: u32,
    first_max: u32,
    core_max: u32,
    output_max: u32,
}

impl MemoryContext {
    fn new(sizes: &TuckerFusedGeometry) -> Self {
        let (memory, lasting) = (&sizes.memory, &sizes.memory.lasting);
        let barrier = |index: u32| lasting.exchange_barriers_at + index * BARRIER_FLOATS;
        let max_buffer = |index: u32| index * sizes.tile.warps;
        Self {
            input_at: memory.input_at,
            first_partials_at: memory.first_partials_at,
            partials_at: memory.partials_at,
            core_output_at: memory.core_output_at,
            core_input_at: lasting.core_input_at,
            received_at: lasting.received_at,
            scales_at: lasting.scales_at,
            copy_barriers_at: lasting.copy_barriers_at,
            sums_barrier_at: barrier(0),
            core_output_barrier_at: barrier(1),
            next_barrier_at: barrier(2),
            warp_max_at: lasting.warp_max_at,
            first_max: max_buffer(FIRST_MAX_BUFFER),
            core_max: max_buffer(CORE_MAX_BUFFER),
            output_max: max_buffer(OUTPUT_MAX_BUFFER),
        }
    }
}

/// How sums pass from one factor to the next.
#[derive(Serialize)]
struct SumsContext {
    first_in_registers: bool,
    core_sent_from_registers: bool,
    core_in_registers: bool,
    last_in_registers: bool,
    /// Whether partial sums of the core pass through shared memory.
    core_partials: bool,
    /// Channel quads of the first factor's output, and those that a thread converts.
    first_quads: u32,
    first_items: u32,
    /// Channel quads of the core's output and their distance, those that a thread converts, and the threads for each pixel.
    d2_quads: u32,
    d2_plane: u32,
    core_items: u32,
    converters: u32,
    has_idle_converters: bool,
    /// float4 vectors: that a block sends, of a channel of the cluster's pixels, of the core's output for the block's pixels, and of a
    /// channel of the block's pixels.
    sent_vectors: u32,
    row_vectors: u32,
    core_output_vectors: u32,
    pixel_float4s: u32,
}

impl SumsContext {
    fn new(sizes: &TuckerFusedGeometry) -> Self {
        let (sums, split) = (&sizes.sums, &sizes.split);
        let threads = 32 * sizes.tile.warps;
        let converters = threads / split.block_pixels;
        let d2_quads = split.d2_rows / 4;
        Self {
            first_in_registers: sums.first_in_registers,
            core_sent_from_registers: sums.core_sent_from_registers,
            core_in_registers: sums.core_in_registers,
            last_in_registers: sums.last_in_registers,
            core_partials: sums.has_core_partials(),
            first_quads: split.first_quads(),
            first_items: split.first_quads().div_ceil(sizes.input.loaders),
            d2_quads,
            d2_plane: sizes.d2_plane,
            core_items: d2_quads.div_ceil(converters),
            converters,
            has_idle_converters: converters * split.block_pixels != threads,
            sent_vectors: sizes.factors.core.rows * split.cluster_pixels / 4,
            row_vectors: split.cluster_pixels / 4,
            core_output_vectors: split.d2_rows * split.block_pixels / 4,
            pixel_float4s: split.block_pixels / 4,
        }
    }
}
