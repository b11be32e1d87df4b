//! The context of the kernel's template. Templates use the integers as constants, by their names in upper case.

use super::geometry::{Geometry, run_reach};
use super::shared_memory::WEIGHT_COPIES;
use crate::ir::InvertedResidualProblem;
use crate::scheme::factor::{FactorContext, RectangleContext, all_of, copies_late};
use crate::scheme::shared_offsets::BARRIER_FLOATS;
use crate::scheme::step_order::StepNames;
use crate::scheme::tensor_core::{MMA_K, MMA_M, MMA_N};
use crate::scheme::{activation_function, packed_offsets};
use serde::Serialize;
use tdc_runtime::WeightLayout;

#[derive(Serialize)]
pub(super) struct Context {
    #[serde(flatten)]
    units: UnitsContext,
    #[serde(flatten)]
    image: ImageContext,
    #[serde(flatten)]
    memory: MemoryContext,
    #[serde(flatten)]
    slice: SliceContext,
    #[serde(flatten)]
    conditions: ConditionsContext,
    #[serde(flatten)]
    output: OutputContext,
    expand: FactorContext,
    project: FactorContext,
}

impl Context {
    pub(super) fn new(
        problem: &InvertedResidualProblem,
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
            image: ImageContext::new(problem, sizes),
            memory: MemoryContext::new(problem, sizes, &offsets),
            slice: SliceContext::new(problem, sizes),
            conditions: ConditionsContext::new(problem, sizes),
            output: OutputContext::new(problem, sizes),
            expand: factor(0, &sizes.expand, "expand_k", "EXPAND_"),
            project: factor(2, &sizes.project, "project_k", "PROJECT_"),
        }
    }
}

/// Sizes of the GPU's units and of data types.
#[derive(Serialize)]
struct UnitsContext {
    threads: u32,
    warps: u32,
    warp_size: u32,
    cluster: u32,
    /// MMA tile: rows, half of them, and columns.
    mma_m: u32,
    half_m: u32,
    mma_n: u32,
    /// Channels of a quad, and floats of a float4.
    quad: u32,
    vector: u32,
    float_bytes: u32,
    barrier_floats: u32,
    weight_copies: u32,
    /// Whether values are split into a hi and a lo part.
    hi_lo: bool,
}

impl UnitsContext {
    fn new(sizes: &Geometry) -> Self {
        Self {
            threads: 32 * sizes.tile.warps,
            warps: sizes.tile.warps,
            warp_size: 32,
            cluster: sizes.tile.cluster,
            mma_m: MMA_M,
            half_m: MMA_M / 2,
            mma_n: MMA_N,
            quad: 4,
            vector: 4,
            float_bytes: 4,
            barrier_floats: BARRIER_FLOATS,
            weight_copies: WEIGHT_COPIES,
            hi_lo: sizes.split_terms == 2,
        }
    }
}

/// The convolutions.
#[derive(Serialize)]
struct ImageContext {
    c: u32,
    n: u32,
    r: u32,
    s: u32,
    dilation_h: u32,
    dilation_w: u32,
    #[serde(flatten)]
    rectangle: RectangleContext,
}

impl ImageContext {
    fn new(problem: &InvertedResidualProblem, sizes: &Geometry) -> Self {
        let shape = &problem.depthwise;
        Self {
            c: problem.c,
            n: problem.n,
            r: shape.r,
            s: shape.s,
            dilation_h: shape.dilation[0],
            dilation_w: shape.dilation[1],
            rectangle: RectangleContext::new(&sizes.rectangle),
        }
    }
}

/// Offsets in shared memory and in the packed parameters.
#[derive(Serialize)]
struct MemoryContext {
    expand_weights_at: u32,
    depthwise_weights_at: u32,
    project_weights_at: u32,
    input_at: u32,
    expanded_at: u32,
    filtered_at: u32,
    received_at: u32,
    expand_scales_at: u32,
    expand_biases_at: u32,
    depthwise_biases_at: u32,
    warp_max_at: u32,
    sums_barrier_at: u32,
    copy_barriers_at: u32,
    packed_depthwise_at: usize,
    packed_expand_bias_at: usize,
    packed_depthwise_bias_at: usize,
}

impl MemoryContext {
    fn new(problem: &InvertedResidualProblem, sizes: &Geometry, offsets: &[usize]) -> Self {
        let memory = &sizes.memory;
        let channel_values = |index: u32| memory.channel_values_at + index * sizes.slice;
        let offset = |index: usize| offsets.get(index).copied().unwrap_or(0);
        Self {
            expand_weights_at: memory.expand_weights_at,
            depthwise_weights_at: memory.depthwise_weights_at,
            project_weights_at: memory.project_weights_at,
            input_at: memory.input_at,
            expanded_at: memory.expanded_at,
            filtered_at: memory.filtered_at,
            received_at: memory.received_at,
            expand_scales_at: channel_values(0),
            expand_biases_at: channel_values(1),
            depthwise_biases_at: channel_values(2),
            warp_max_at: memory.warp_max_at,
            sums_barrier_at: memory.sums_barrier_at,
            copy_barriers_at: memory.copy_barriers_at,
            packed_depthwise_at: offset(1),
            packed_expand_bias_at: offset(3),
            packed_depthwise_bias_at: offset(3 + usize::from(problem.expand.bias)),
        }
    }
}

/// The channels of a block.
#[derive(Serialize)]
struct SliceContext {
    /// Expanded channels, and their quads.
    slice: u32,
    slice_quads: u32,
    /// Channel quads of the input.
    input_quads: u32,
    /// Distances of two channel quads in shared memory.
    input_plane: u32,
    expanded_plane: u32,
    filtered_plane: u32,
    /// Adjacent pixels that a thread filters at a time, and positions of a row that it reads for them.
    run: u32,
    run_reach: u32,
    /// Weights of the depthwise convolution.
    depthwise_weights: u32,
    /// Output channels that a block adds.
    block_n: u32,
    /// Items of a thread: channel quads of one position of the input, of a run of filtered pixels, and outputs.
    input_items: u32,
    filtered_items: u32,
    output_items: u32,
}

impl SliceContext {
    fn new(problem: &InvertedResidualProblem, sizes: &Geometry) -> Self {
        let shape = &problem.depthwise;
        Self {
            slice: sizes.slice,
            slice_quads: sizes.slice / 4,
            input_quads: sizes.input_quads,
            input_plane: sizes.input_plane,
            expanded_plane: sizes.expanded_plane,
            filtered_plane: sizes.filtered_plane,
            run: sizes.run,
            run_reach: run_reach(shape, sizes.run),
            depthwise_weights: sizes.slice * shape.r * shape.s,
            block_n: sizes.block_n,
            input_items: sizes
                .block
                .items(sizes.input_quads * sizes.rectangle.position_count()),
            filtered_items: sizes
                .block
                .items(sizes.slice / 4 * sizes.rectangle.pixels() / sizes.run),
            output_items: sizes.block.items(sizes.block_n * sizes.rectangle.pixels()),
        }
    }
}

/// Conditions in the code, as CUDA expressions.
#[derive(Serialize)]
struct ConditionsContext {
    /// For an item of the input, and for a channel of it, inside the tensor.
    loads_position: String,
    checks_c: bool,
    /// For a position of the rectangle inside the image; empty if all are.
    inside_image: String,
    /// Whether that condition depends on the row and on the column.
    checks_row: bool,
    checks_column: bool,
    /// For the accumulators of a lane at positions and pixels that are none.
    checks_positions: bool,
    checks_columns: bool,
    checks_filtered: bool,
    /// For an output that is not stored.
    outside_output: String,
}

impl ConditionsContext {
    fn new(problem: &InvertedResidualProblem, sizes: &Geometry) -> Self {
        let threads = 32 * sizes.tile.warps;
        let rectangle = &sizes.rectangle;
        let inside = rectangle.positions_inside();
        let idle = |all: u32| !all.is_multiple_of(threads);
        let all_inputs = sizes.input_quads * sizes.rectangle.position_count();
        let mut loads = inside.clone();
        loads.extend(idle(all_inputs).then_some("quad < INPUT_QUADS"));
        let outputs = sizes.block_n * sizes.rectangle.pixels();
        let is_uneven = sizes.block_n * sizes.tile.cluster != problem.n;
        let none = idle(outputs).then_some("row >= BLOCK_N");
        Self {
            loads_position: all_of(&loads),
            checks_c: !problem.c.is_multiple_of(MMA_K),
            inside_image: inside.join(" && "),
            checks_row: inside.iter().any(|condition| condition.starts_with("row")),
            checks_column: inside
                .iter()
                .any(|condition| condition.starts_with("column")),
            checks_positions: sizes.expand.columns > sizes.rectangle.position_count(),
            checks_columns: sizes.project.columns > sizes.rectangle.columns(),
            checks_filtered: idle(sizes.slice / 4 * sizes.rectangle.pixels() / sizes.run),
            outside_output: rectangle.outside_output(none, is_uneven),
        }
    }
}

/// Batches, and what is applied to sums.
#[derive(Serialize)]
struct OutputContext {
    batched: bool,
    copies_late: bool,
    expand_bias: bool,
    expand_activation: Option<String>,
    depthwise_bias: bool,
    depthwise_activation: Option<String>,
    /// Of the projection; its operands are quantised.
    scaled: bool,
    bias: bool,
    residual: bool,
    activation: Option<String>,
    /// Whether the projection has rows that are padding.
    checks_rows: bool,
}

impl OutputContext {
    fn new(problem: &InvertedResidualProblem, sizes: &Geometry) -> Self {
        let InvertedResidualProblem {
            expand,
            filter,
            project,
            ..
        } = *problem;
        Self {
            batched: problem.depthwise.batch > 1,
            copies_late: copies_late(sizes.blocks),
            expand_bias: expand.bias,
            expand_activation: activation_function(expand.activation),
            depthwise_bias: filter.bias,
            depthwise_activation: activation_function(filter.activation),
            scaled: true,
            bias: project.bias,
            residual: project.residual,
            activation: activation_function(project.activation),
            checks_rows: sizes.project.rows > problem.n,
        }
    }
}
