//! The kernel's template context, and the layouts of its weights.

use super::factor::Factor;
use super::sizes::{TuckerFusedGeometry, core_problem};
use crate::gpu::Gpu;
use crate::ir::{NextFactor, Problem, TuckerProblem};
use crate::scheme::step_order::{StepNames, StepOrder};
use crate::scheme::tensor_core::{MMA_K, MMA_M};
use crate::scheme::tiling::vector_type;
use crate::scheme::{DevicePart, KernelBlueprint, activation_function, batch_stride_args, context};
use serde::Serialize;
use tdc_runtime::{Arg, Axis, Filter, LayoutDim, Transform, WeightFile, WeightLayout};

/// Weight layouts of the factors: matrices of 16x16 as the lanes of an MMA hold them, in the order in which a block reads them.
pub(super) fn layouts(problem: &TuckerProblem, sizes: &TuckerFusedGeometry) -> Vec<WeightLayout> {
    let dim = |axis, count, step| LayoutDim { axis, count, step };
    // A lane holds one row and two pairs of channels. Its registers are ordered by channel pair, then by row (this one and the one eight
    // rows below), then within a pair. If the other operand was converted from accumulators, the channels of a lane are those of its
    // accumulators.
    let layout = |source, outer: Vec<LayoutDim>, prologue_channels, rounded| WeightLayout {
        source,
        filter: Filter::Taps,
        dims: [
            outer,
            vec![
                dim(Axis::O, 8, 1),
                dim(Axis::I, 4, if rounded { 2 } else { 4 }),
                dim(Axis::I, 2, if rounded { 8 } else { 2 }),
                dim(Axis::O, 2, 8),
                dim(Axis::I, 2, 1),
            ],
        ]
        .concat()
        .into(),
        transform: Transform::Fp16 {
            run: MMA_M * MMA_K,
            terms: sizes.split_terms,
        },
        prologue_channels,
    };
    // The chunks of a 1x1 factor.
    let pointwise = |factor: &Factor, shares: u32| {
        vec![
            dim(Axis::O, shares, factor.rows),
            dim(Axis::I, factor.chunks, factor.chunk_steps * MMA_K),
            dim(Axis::O, factor.rows / MMA_M, MMA_M),
            dim(Axis::I, factor.chunk_steps, MMA_K),
        ]
    };
    let (r, s) = (problem.core.r, problem.core.s);
    let core = &sizes.core;
    let share = dim(Axis::I, sizes.d1_splits, sizes.block_d1_groups * MMA_K);
    let part = dim(Axis::O, sizes.tile.d2_splits, core.rows);
    let tiles = dim(Axis::O, core.rows / MMA_M, MMA_M);
    let core_dims = match core.chunk_steps / (r * s) {
        0 => vec![
            share,
            part,
            dim(Axis::I, sizes.block_d1_groups, MMA_K),
            dim(Axis::R, r, 1),
            tiles,
            dim(Axis::S, s, 1),
        ],
        groups => vec![
            share,
            part,
            dim(Axis::I, sizes.block_d1_groups / groups, groups * MMA_K),
            tiles,
            dim(Axis::I, groups, MMA_K),
            dim(Axis::R, r, 1),
            dim(Axis::S, s, 1),
        ],
    };
    let dims = sizes
        .first
        .iter()
        .map(|first| (pointwise(first, sizes.d1_splits), false))
        .chain([
            (core_dims, sizes.first_in_registers),
            (
                pointwise(&sizes.last, sizes.tile.blocks_n),
                sizes.core_in_registers,
            ),
        ])
        .chain(sizes.next.iter().map(|next| {
            let dims = vec![
                dim(Axis::I, sizes.tile.blocks_n, sizes.last.rows),
                dim(Axis::O, next.rows / MMA_M, MMA_M),
                dim(Axis::I, next.chunk_steps, MMA_K),
            ];
            (dims, true)
        }));
    let first_prologue_channels = Problem::Tucker(*problem).scale_shift_channels();
    let weights = Problem::Tucker(*problem).weights();
    dims.zip(weights)
        .enumerate()
        .map(|(index, ((dims, rounded), source))| {
            layout(
                source,
                dims,
                if index == 0 {
                    first_prologue_channels
                } else {
                    0
                },
                rounded,
            )
        })
        .collect()
}

/// A factor in the template context.
#[derive(Serialize)]
struct FactorContext {
    #[serde(flatten)]
    factor: Factor,
    #[serde(flatten)]
    order: StepOrder,
    if_active: String,
    chunk_quads: u32,
    loop_indent: u32,
    /// Offsets of the factor's block and of its dequantisation scales in the packed parameters.
    at: usize,
    dequant_scale_at: usize,
}

#[derive(Serialize)]
struct TuckerFusedContext {
    batched: bool,
    tiles: u32,
    tiles_w: u32,
    c: u32,
    h: u32,
    w: u32,
    n: u32,
    out_h: u32,
    out_w: u32,
    r: u32,
    s: u32,
    taps: u32,
    stride_h: u32,
    stride_w: u32,
    pad_top: u32,
    pad_left: u32,
    dilation_h: u32,
    dilation_w: u32,
    th: u32,
    tw: u32,
    cluster: u32,
    blocks_n: u32,
    d2_splits: u32,
    d1_splits: u32,
    d2_indent: u32,
    rank_indent: u32,
    warp_size: u32,
    vector: u32,
    quad: u32,
    float_bytes: u32,
    barrier_floats: u32,
    mma_m: u32,
    mma_n: u32,
    mma_m_quads: u32,
    half_m: u32,
    first_max: u32,
    core_max: u32,
    output_max: u32,
    sums_barrier_at: u32,
    core_output_barrier_at: u32,
    next_barrier_at: u32,
    copy_barriers: u32,
    pending_copies: u32,
    positions: u32,
    loads_value: String,
    pixel_float4s: u32,
    tn: u32,
    outputs: u32,
    next_n: u32,
    core_items: u32,
    warps: u32,
    rows: u32,
    row_len: u32,
    quads: u32,
    plane: u32,
    block_pixels: u32,
    cluster_pixels: u32,
    d2_plane: u32,
    d2_rows: u32,
    d2_rows_per_block: u32,
    weights_resident: bool,
    /// Number of chunks of weights whose copies start before the wait for the predecessor, and whether other chunks follow.
    prefetched_chunks: u32,
    has_late_chunks: bool,
    stages: u32,
    stage_floats: u32,
    /// Number of chunks of weights that a block waits for, and of chunks of the first factor's input that are loaded together.
    chunks: u32,
    chunks_per_load: u32,
    min_blocks: u32,
    first_in_registers: bool,
    core_sent_from_registers: bool,
    core_in_registers: bool,
    last_in_registers: bool,
    /// Whether partial sums of the core pass through shared memory.
    core_partials: bool,
    input_at: u32,
    first_partials_at: u32,
    partials_at: u32,
    core_output_at: u32,
    core_input_at: u32,
    received_at: u32,
    scales_at: u32,
    warp_max_at: u32,
    exchange_barriers_at: u32,
    copy_barriers_at: u32,
    /// Dequantisation scales in shared memory: the offsets of those of the core and of the last factor, and the total number.
    core_scales_at: u32,
    last_scales_at: u32,
    scale_floats: u32,
    /// Channel quads of the first factor's output in a block and of the core's output; float4 vectors of the partial sums that a block
    /// sends, of the core's output for the block's pixels, and of one channel of the cluster's pixels.
    first_quads: u32,
    d2_quads: u32,
    sent_vectors: u32,
    core_output_vectors: u32,
    row_vectors: u32,
    /// Vectors of the output: of a thread, of a channel, and of a channel in one lane.
    output_items: u32,
    pixel_vectors: u32,
    lane_row: u32,
    /// Channel quads that a thread converts, of the first factor's output and of the core's.
    first_items: u32,
    inner_items: u32,
    /// Threads that convert the channels of one pixel.
    converters: u32,
    has_idle_converters: bool,
    first: Option<FactorContext>,
    core: FactorContext,
    /// Channel quads of one position that a chunk of complete filters multiplies; 0 if a chunk is one row of a filter.
    core_chunk_quads: u32,
    last: FactorContext,
    /// The first factor of the next layer: the number of its output channels that a block adds, the offsets of its dequantisation scales
    /// and of its output, and the condition for a position outside that output.
    next: Option<FactorContext>,
    next_rows_per_block: u32,
    next_scales_at: u32,
    next_output_at: u32,
    outside_next_output: String,
    /// Whether the layer's own output, which the next factor reads, is not stored.
    skips_output: bool,
    hi_lo: bool,
    /// Loader threads of a position, channel quads of each, and the bounds checks that are needed.
    loaders: u32,
    has_idle_loaders: bool,
    items: u32,
    checks_items: bool,
    checks_c: bool,
    prologue: bool,
    prologue_activation: Option<String>,
    scale_at: usize,
    /// Values for the template of the stores.
    scaled: bool,
    bias: bool,
    residual: bool,
    activation: Option<String>,
    y_vector: u32,
    y_type: &'static str,
    y_elements: &'static [&'static str],
    /// The condition for a position outside the output.
    outside: String,
}

pub(super) fn kernel(
    problem: &TuckerProblem,
    sizes: TuckerFusedGeometry,
    layouts: &[WeightLayout],
    gpu: &Gpu,
) -> KernelBlueprint {
    let shape = problem.core;
    let x = Problem::Tucker(*problem).x();
    let mut end = 0;
    let mut layouts_left = layouts.iter();
    let mut of_factor = |factor: &Factor, names: StepNames| {
        let layout = layouts_left.next().expect("a layout for each factor");
        let at = usize::next_multiple_of(end, WeightFile::ALIGNMENT as usize / 4);
        end = at + layout.len();
        let order = StepOrder::new(
            factor.steps,
            names,
            factor.steps.unroll(factor.m_tiles * factor.p_tiles),
        );
        FactorContext {
            factor: factor.clone(),
            if_active: match factor.has_idle_warps {
                true => format!("if ({} < {}WARPS_K) ", names.warp_k, names.prefix),
                false => String::new(),
            },
            chunk_quads: factor.chunk_steps * MMA_K / 4,
            loop_indent: if order.has_loops() { 4 } else { 0 },
            order,
            at,
            dequant_scale_at: at + layout.weight_len() - layout.dequant_scale_len(),
        }
    };
    let first = sizes.first.as_ref();
    let first = first.map(|first| {
        of_factor(
            first,
            StepNames {
                warp_k: "first_k",
                prefix: "FIRST_",
            },
        )
    });
    let mut core = of_factor(
        &sizes.core,
        StepNames {
            warp_k: "core_k",
            prefix: "CORE_",
        },
    );
    let last = of_factor(
        &sizes.last,
        StepNames {
            warp_k: "last_k",
            prefix: "LAST_",
        },
    );
    let next = sizes.next.as_ref();
    let next = next.map(|next| {
        of_factor(
            next,
            StepNames {
                warp_k: "next_k",
                prefix: "NEXT_",
            },
        )
    });
    core.chunk_quads = sizes.core.chunk_steps / (shape.r * shape.s) * MMA_K / 4;
    let scale_at = layouts.first().map_or(0, WeightLayout::weight_len);
    let conv = core_problem(problem);
    let [tiles, tiles_w] = sizes.sums.tiles(&conv);
    // A lane holds pairs of adjacent pixels.
    let most = if sizes.last_in_registers { 2 } else { 4 };
    let y_vector = sizes.sums.y_vector(&conv).min(most);
    let (y_type, y_elements) = vector_type(y_vector);
    let (out_h, out_w) = (shape.out_h(), shape.out_w());
    let pixels = sizes.tile.th * sizes.tile.tw;
    let n_rows = sizes.tile.blocks_n * sizes.last.rows;
    let outputs = sizes.last.rows * sizes.block_pixels / y_vector;
    let lane_row = sizes.last.p_tiles * 2 / y_vector.min(2);
    let output_items = match sizes.last_in_registers {
        true => 2 * sizes.last.m_tiles * lane_row,
        false => outputs.div_ceil(32 * sizes.tile.warps),
    };
    let outside_image = [
        (sizes.cluster_pixels > pixels, "pixel >= TH * TW".to_owned()),
        (
            !out_h.is_multiple_of(sizes.tile.th),
            "row >= OUT_H".to_owned(),
        ),
        (
            !out_w.is_multiple_of(sizes.tile.tw),
            "column >= OUT_W".to_owned(),
        ),
    ];
    let outside_output = [
        (n_rows > problem.n, "n0 + n >= N".to_owned()),
        (
            !sizes.last_in_registers && !outputs.is_multiple_of(32 * sizes.tile.warps),
            "item >= OUTPUTS".to_owned(),
        ),
        (
            sizes.last_in_registers && sizes.last.has_idle_warps,
            "last_k >= LAST_WARPS_K".to_owned(),
        ),
        (
            sizes.last_in_registers && sizes.last.columns > sizes.block_pixels,
            "block_pixel >= BLOCK_PIXELS".to_owned(),
        ),
    ];
    let z = problem.next.unwrap_or(NextFactor {
        n: 0,
        stores_layer_output: true,
    });
    let next_rows = sizes.next.as_ref().map_or(0, |next| next.rows);
    let outside_next = [(next_rows > z.n, "n >= NEXT_N".to_owned())];
    let any_of = |bounds: &[(bool, String)]| {
        let there = outside_image
            .iter()
            .chain(bounds)
            .filter(|(there, _)| *there);
        let there: Vec<_> = there.map(|(_, bound)| &bound[..]).collect();
        match there.is_empty() {
            true => "false".to_owned(),
            false => there.join(" || "),
        }
    };
    let threads = 32 * sizes.tile.warps;
    let positions = sizes.rows * sizes.row_len;
    let converters = threads / sizes.block_pixels;
    let core_scales_at = sizes
        .first
        .as_ref()
        .map_or(0, |first| sizes.d1_splits * first.rows);
    let d2_rows = sizes.tile.d2_splits * sizes.core.rows;
    let last_scales_at = core_scales_at + d2_rows;
    let chunks = sizes.chunks();
    let epilogue = problem.epilogue;
    let work = sizes.work(problem, Problem::Tucker(*problem).bytes() as f64, gpu);
    let padded_c = match &sizes.first {
        Some(_) => x.c.next_multiple_of(MMA_K),
        None => sizes.d1_splits * sizes.block_d1_groups * MMA_K,
    };
    let mut args = vec![Arg::X, Arg::Packed];
    args.extend(epilogue.bias.then_some(Arg::Bias));
    args.extend(epilogue.residual.then_some(Arg::Residual));
    args.push(Arg::Y);
    args.extend(batch_stride_args(shape.batch, epilogue.residual));
    KernelBlueprint {
        role: "kernel",
        template: "kernel/tucker_fused.cu",
        grid: [tiles * shape.batch, 1, sizes.tile.cluster],
        block: [threads, 1, 1],
        cluster: [1, 1, sizes.tile.cluster],
        shared_bytes: 4 * sizes.shared_floats,
        pdl: true,
        device: device_parts(&sizes),
        args,
        work,
        context: context(&TuckerFusedContext {
            batched: shape.batch > 1,
            tiles,
            tiles_w,
            c: x.c,
            h: shape.h,
            w: shape.w,
            n: problem.n,
            out_h,
            out_w,
            r: shape.r,
            s: shape.s,
            taps: shape.r * shape.s,
            stride_h: shape.stride[0],
            stride_w: shape.stride[1],
            pad_top: shape.padding.top,
            pad_left: shape.padding.left,
            dilation_h: shape.dilation[0],
            dilation_w: shape.dilation[1],
            th: sizes.tile.th,
            tw: sizes.tile.tw,
            cluster: sizes.tile.cluster,
            blocks_n: sizes.tile.blocks_n,
            d2_splits: sizes.tile.d2_splits,
            d1_splits: sizes.d1_splits,
            d2_indent: if sizes.tile.d2_splits > 1 { 4 } else { 0 },
            rank_indent: if sizes.tile.cluster > 1 { 4 } else { 0 },
            warp_size: 32,
            vector: 4,
            quad: 4,
            float_bytes: 4,
            barrier_floats: 2,
            mma_m: 16,
            mma_n: 8,
            mma_m_quads: 4,
            half_m: 8,
            first_max: 2 * sizes.tile.warps,
            core_max: 3 * sizes.tile.warps,
            output_max: 4 * sizes.tile.warps,
            sums_barrier_at: sizes.exchange_barriers_at,
            core_output_barrier_at: sizes.exchange_barriers_at + 2,
            next_barrier_at: sizes.exchange_barriers_at + 4,
            copy_barriers: chunks + u32::from(next.is_some()),
            pending_copies: match (sizes.weights_resident, sizes.tile.cluster) {
                (true, 1) => chunks - 1,
                (true, _) => 0,
                _ => sizes.stages - 1,
            },
            positions,
            loads_value: {
                let mut all = vec!["inside"];
                if !sizes.quads.is_multiple_of(sizes.loaders) {
                    all.push("first_quad + i * LOADERS < QUADS");
                }
                if padded_c != x.c {
                    all.push("first_c + c < C");
                }
                all.join(" && ")
            },
            pixel_float4s: sizes.block_pixels / 4,
            tn: n_rows,
            outputs,
            next_n: z.n,
            core_items: (d2_rows / 4).div_ceil(converters),
            warps: sizes.tile.warps,
            rows: sizes.rows,
            row_len: sizes.row_len,
            quads: sizes.quads,
            plane: sizes.plane,
            block_pixels: sizes.block_pixels,
            cluster_pixels: sizes.cluster_pixels,
            d2_plane: sizes.d2_plane,
            d2_rows,
            d2_rows_per_block: sizes.d2_rows_per_block,
            weights_resident: sizes.weights_resident,
            prefetched_chunks: sizes.prefetched_chunks(),
            has_late_chunks: sizes.prefetched_chunks() < chunks,
            stages: sizes.stages,
            stage_floats: sizes.stage_floats,
            chunks,
            chunks_per_load: sizes.chunks_per_load,
            min_blocks: sizes.source_blocks_per_sm().min(2),
            first_in_registers: sizes.first_in_registers,
            core_sent_from_registers: sizes.core_sent_from_registers,
            core_in_registers: sizes.core_in_registers,
            last_in_registers: sizes.last_in_registers,
            core_partials: sizes.core_partials(),
            lane_row,
            input_at: sizes.input_at,
            first_partials_at: sizes.first_partials_at,
            partials_at: sizes.partials_at,
            core_output_at: sizes.core_output_at,
            core_input_at: sizes.core_input_at,
            received_at: sizes.received_at,
            scales_at: sizes.scales_at,
            warp_max_at: sizes.warp_max_at,
            exchange_barriers_at: sizes.exchange_barriers_at,
            copy_barriers_at: sizes.copy_barriers_at,
            core_scales_at,
            last_scales_at,
            scale_floats: last_scales_at + n_rows,
            first_quads: sizes.block_d1_groups * MMA_K / 4,
            d2_quads: d2_rows / 4,
            sent_vectors: sizes.core.rows * sizes.cluster_pixels / 4,
            core_output_vectors: d2_rows * sizes.block_pixels / 4,
            row_vectors: sizes.cluster_pixels / 4,
            output_items,
            pixel_vectors: sizes.block_pixels / y_vector,
            first_items: (sizes.block_d1_groups * MMA_K / 4).div_ceil(sizes.loaders),
            inner_items: (d2_rows / 4).div_ceil(converters),
            converters,
            has_idle_converters: converters * sizes.block_pixels != threads,
            hi_lo: sizes.split_terms == 2,
            loaders: sizes.loaders,
            has_idle_loaders: sizes.loaders * positions != threads,
            items: sizes.items,
            checks_items: !sizes.quads.is_multiple_of(sizes.loaders),
            checks_c: padded_c != x.c,
            prologue: problem.prologue.is_some(),
            prologue_activation: problem
                .prologue
                .and_then(|prologue| activation_function(prologue.activation)),
            scale_at,
            scaled: true,
            bias: epilogue.bias,
            residual: epilogue.residual,
            activation: activation_function(epilogue.activation),
            y_vector,
            y_type,
            y_elements,
            outside: any_of(&outside_output),
            outside_next_output: any_of(&outside_next),
            next_rows_per_block: sizes.next_rows_per_block,
            next_scales_at: last_scales_at + 2 * n_rows,
            next_output_at: if z.stores_layer_output {
                problem.n * out_h * out_w
            } else {
                0
            },
            skips_output: !z.stores_layer_output,
            next,
            first,
            core,
            core_chunk_quads: sizes.core.chunk_steps / (shape.r * shape.s) * MMA_K / 4,
            last,
        }),
    }
}

/// The parts of the device header that the kernel uses.
fn device_parts(sizes: &TuckerFusedGeometry) -> &'static [DevicePart] {
    let first = usize::from(sizes.tile.cluster == 1);
    let rounds = sizes.first_in_registers || sizes.core_in_registers || sizes.next.is_some();
    &DEVICE[first..DEVICE.len() - usize::from(!rounds)]
}

/// The first part is needed only with clusters, the last only if accumulators are converted in registers.
const DEVICE: &[DevicePart] = &[
    DevicePart::Cluster,
    DevicePart::DynamicShared,
    DevicePart::AsyncCopy,
    DevicePart::BulkCopy,
    DevicePart::Pdl,
    DevicePart::Fp16,
    DevicePart::Mma,
    DevicePart::MmaSteps,
    DevicePart::AccumulatorOperands,
];
