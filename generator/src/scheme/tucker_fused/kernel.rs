//! The kernel's text as its template needs it, and the layouts of its weights.

use super::factor::Factor;
use super::sizes::{Sizes, core_problem};
use crate::ir::{NextFactor, Problem, TuckerProblem};
use crate::scheme::block_sums::vector;
use crate::scheme::matrix_product::{M_TILE, STEP_CHANNELS};
use crate::scheme::step_order::StepOrder;
use crate::scheme::{DevicePart, KernelBlueprint, context, stride_args};
use serde::Serialize;
use tdc_runtime::{Arg, Axis, Filter, LayoutDim, Transform, WeightFile, WeightLayout};

/// Layouts of the factors, of matrices of 16x16 as the tensor cores' lanes hold them, in the order in which a block reads them.
pub(super) fn layouts(problem: &TuckerProblem, sizes: &Sizes) -> Vec<WeightLayout> {
    let dim = |axis, count, step| LayoutDim { axis, count, step };
    // A lane: a row, and four channels; its registers: the second two of them, the row eight rows on. Where the terms were sums in
    // registers, the four channels are those that a lane has of them.
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
        transform: Transform::Halves {
            run: M_TILE * STEP_CHANNELS,
            parts: sizes.parts,
        },
        prologue_channels,
    };
    // Chunks of the sum in a 1x1 factor.
    let pointwise = |factor: &Factor, shares: u32| {
        vec![
            dim(Axis::O, shares, factor.rows),
            dim(Axis::I, factor.chunks, factor.chunk_steps * STEP_CHANNELS),
            dim(Axis::O, factor.rows / M_TILE, M_TILE),
            dim(Axis::I, factor.chunk_steps, STEP_CHANNELS),
        ]
    };
    let (r, s) = (problem.core.r, problem.core.s);
    let core = &sizes.core;
    let share = dim(Axis::I, sizes.senders, sizes.share_groups * STEP_CHANNELS);
    let part = dim(Axis::O, sizes.row_parts, core.rows);
    let tiles = dim(Axis::O, core.rows / M_TILE, M_TILE);
    let core_dims = match core.chunk_steps / (r * s) {
        0 => vec![
            share,
            part,
            dim(Axis::I, sizes.share_groups, STEP_CHANNELS),
            dim(Axis::R, r, 1),
            tiles,
            dim(Axis::S, s, 1),
        ],
        groups => vec![
            share,
            part,
            dim(Axis::I, sizes.share_groups / groups, groups * STEP_CHANNELS),
            tiles,
            dim(Axis::I, groups, STEP_CHANNELS),
            dim(Axis::R, r, 1),
            dim(Axis::S, s, 1),
        ],
    };
    let dims = sizes
        .first
        .iter()
        .map(|first| (pointwise(first, sizes.senders), false))
        .chain([
            (core_dims, sizes.rounds_first),
            (pointwise(&sizes.last, sizes.group), sizes.rounds_core),
        ])
        .chain(sizes.next.iter().map(|next| {
            let dims = vec![
                dim(Axis::I, sizes.group, sizes.last.rows),
                dim(Axis::O, next.rows / M_TILE, M_TILE),
                dim(Axis::I, next.chunk_steps, STEP_CHANNELS),
            ];
            (dims, true)
        }));
    let affine = Problem::Tucker(*problem).affine_channels();
    let weights = Problem::Tucker(*problem).weights();
    dims.zip(weights)
        .enumerate()
        .map(|(index, ((dims, rounded), source))| {
            layout(source, dims, if index == 0 { affine } else { 0 }, rounded)
        })
        .collect()
}

/// A factor as the template knows it.
#[derive(Serialize)]
struct FactorContext {
    #[serde(flatten)]
    factor: Factor,
    #[serde(flatten)]
    order: StepOrder,
    /// Which part of the channels, pixels and steps a warp has.
    warp_m: String,
    warp_p: String,
    warp_k: String,
    /// Where its block and what undoes its scales begin in the packed parameters.
    at: usize,
    unscale_at: usize,
}

#[derive(Serialize)]
struct Context {
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
    tile_h: u32,
    tile_w: u32,
    members: u32,
    group: u32,
    row_parts: u32,
    senders: u32,
    /// Of the text that a loop over the parts encloses.
    core_indent: u32,
    warps: u32,
    rows: u32,
    row: u32,
    quads: u32,
    plane: u32,
    columns: u32,
    all_columns: u32,
    inner: u32,
    d2_rows: u32,
    row_share: u32,
    resident: bool,
    /// Chunks of weights that are on their way before the wait, and whether others follow.
    ahead: u32,
    follows: bool,
    slots: u32,
    slot: u32,
    /// Chunks of weights that are waited for, and of the first factor's sum that are loaded at once.
    chunks: u32,
    loads: u32,
    min_blocks: u32,
    rounds_first: bool,
    sends_sums: bool,
    rounds_core: bool,
    stores_sums: bool,
    /// Whether shares of the core's sums go through shared memory.
    core_partials: bool,
    staged_at: u32,
    early_at: u32,
    late_at: u32,
    gathered_at: u32,
    middle_at: u32,
    received_at: u32,
    factors_at: u32,
    largest_at: u32,
    arrivals_at: u32,
    chunks_at: u32,
    /// Of what undoes the scales: where that of the core and of the last factor begin, and how many values there are.
    core_factors: u32,
    last_factors: u32,
    factor_floats: u32,
    /// Times four channels of the first factor's output and of the core's; vectors of four pixels of a block's sums, of a
    /// block's pixels, and of a channel.
    first_quads: u32,
    d2_quads: u32,
    exchanged: u32,
    gathered: u32,
    row_vectors: u32,
    /// Vectors of outputs of a thread, and of a channel, all of them or those of a lane.
    output_items: u32,
    pixel_vectors: u32,
    lane_row: u32,
    /// Elements of four channels that a thread rounds of the first factor's output and of the core's.
    first_items: u32,
    inner_items: u32,
    /// Threads that round a pixel.
    rounders: u32,
    idle_rounders: bool,
    first: Option<FactorContext>,
    core: FactorContext,
    /// Elements of what the core multiplies that a chunk of whole filters has, of one position; 0 where a chunk is a row of one.
    core_chunk_quads: u32,
    last: FactorContext,
    /// The first factor of the layer behind: its output channels that a block adds up, where what undoes its scales and its output begin,
    /// and the condition for a place outside of that.
    next: Option<FactorContext>,
    next_share: u32,
    next_factors: u32,
    z_at: u32,
    z_bounds: String,
    /// Whether the output that it reads is not stored.
    made_only: bool,
    split: bool,
    /// Threads that stage a position, elements of four channels that one has, and what has to be checked.
    stagers: u32,
    idle_stagers: bool,
    items: u32,
    checks_items: bool,
    checks_c: bool,
    prologue: bool,
    prologue_relu: bool,
    scale_at: usize,
    /// As the stores know them.
    scaled: bool,
    bias: bool,
    residual: bool,
    relu: bool,
    y_vector: u32,
    y_type: &'static str,
    y_elements: &'static [&'static str],
    /// The condition for a place outside the output.
    bounds: String,
}

pub(super) fn kernel(
    problem: &TuckerProblem,
    sizes: Sizes,
    layouts: &[WeightLayout],
) -> KernelBlueprint {
    let shape = problem.core;
    let x = Problem::Tucker(*problem).x();
    let mut end = 0;
    let mut layouts_left = layouts.iter();
    let mut of_factor = |factor: &Factor, warp_k: &str| {
        let layout = layouts_left.next().expect("a layout for each factor");
        let at = usize::next_multiple_of(end, WeightFile::ALIGNMENT as usize / 4);
        end = at + layout.len();
        let [warp_m, warp_p, warp_k_of] = parts_of_warp(factor, sizes.warps);
        FactorContext {
            factor: factor.clone(),
            order: StepOrder::new(
                factor.steps,
                warp_k,
                factor.steps.unroll(factor.m * factor.p),
            ),
            warp_m,
            warp_p,
            warp_k: warp_k_of,
            at,
            unscale_at: at + layout.weight_len() - layout.unscale_len(),
        }
    };
    let first = sizes.first.as_ref();
    let first = first.map(|first| of_factor(first, "warp_k"));
    let core = of_factor(&sizes.core, "core_warp_k");
    let last = of_factor(&sizes.last, "warp_k");
    let next = sizes.next.as_ref();
    let next = next.map(|next| of_factor(next, "next_warp_k"));
    let scale_at = layouts.first().map_or(0, WeightLayout::weight_len);
    let conv = core_problem(problem);
    let [tiles, tiles_w] = sizes.sums.tiles(&conv);
    // A lane has pairs of neighbouring pixels.
    let most = if sizes.stores_sums { 2 } else { 4 };
    let y_vector = sizes.sums.y_vector(&conv).min(most);
    let (y_type, y_elements) = vector(y_vector);
    let (out_h, out_w) = (shape.out_h(), shape.out_w());
    let pixels = sizes.tile_h * sizes.tile_w;
    let n_rows = sizes.group * sizes.last.rows;
    let outputs = sizes.last.rows * sizes.columns / y_vector;
    let lane_row = sizes.last.p * 2 / y_vector.min(2);
    let output_items = match sizes.stores_sums {
        true => 2 * sizes.last.m * lane_row,
        false => outputs.div_ceil(32 * sizes.warps),
    };
    let outside_image = [
        (sizes.all_columns > pixels, "pixel >= TH * TW".to_owned()),
        (
            !out_h.is_multiple_of(sizes.tile_h),
            "row >= OUT_H".to_owned(),
        ),
        (
            !out_w.is_multiple_of(sizes.tile_w),
            "column >= OUT_W".to_owned(),
        ),
    ];
    let outside_output = [
        (n_rows > problem.n, format!("n0 + n >= {}", problem.n)),
        (
            !sizes.stores_sums && !outputs.is_multiple_of(32 * sizes.warps),
            format!("item >= {outputs}"),
        ),
        (
            sizes.stores_sums && sizes.last.idle,
            "warp_k >= LAST_WARPS_K".to_owned(),
        ),
        (
            sizes.stores_sums && sizes.last.columns > sizes.columns,
            "column_out >= COLUMNS_OUT".to_owned(),
        ),
    ];
    let z = problem.next.unwrap_or(NextFactor { n: 0, keeps: true });
    let next_rows = sizes.next.as_ref().map_or(0, |next| next.rows);
    let outside_next = [(next_rows > z.n, format!("n >= {}", z.n))];
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
    let threads = 32 * sizes.warps;
    let positions = sizes.rows * sizes.row;
    let rounders = threads / sizes.columns;
    let core_factors = sizes
        .first
        .as_ref()
        .map_or(0, |first| sizes.senders * first.rows);
    let d2_rows = sizes.row_parts * sizes.core.rows;
    let last_factors = core_factors + d2_rows;
    let chunks = sizes.chunks();
    let epilogue = problem.epilogue;
    let work = sizes.work(problem);
    let padded_c = match &sizes.first {
        Some(_) => x.c.next_multiple_of(STEP_CHANNELS),
        None => sizes.senders * sizes.share_groups * STEP_CHANNELS,
    };
    let mut args = vec![Arg::X, Arg::Packed];
    args.extend(epilogue.bias.then_some(Arg::Bias));
    args.extend(epilogue.residual.then_some(Arg::Residual));
    args.push(Arg::Y);
    args.extend(stride_args(shape.batch, epilogue.residual));
    KernelBlueprint {
        role: "kernel",
        template: "kernel/tucker_fused.cu",
        grid: [tiles * shape.batch, 1, sizes.members],
        block: [threads, 1, 1],
        cluster: [1, 1, sizes.members],
        shared_bytes: 4 * sizes.shared_floats,
        overlaps: true,
        device: device(&sizes),
        args,
        work,
        context: context(&Context {
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
            tile_h: sizes.tile_h,
            tile_w: sizes.tile_w,
            members: sizes.members,
            group: sizes.group,
            row_parts: sizes.row_parts,
            senders: sizes.senders,
            core_indent: if sizes.row_parts > 1 { 4 } else { 0 },
            warps: sizes.warps,
            rows: sizes.rows,
            row: sizes.row,
            quads: sizes.quads,
            plane: sizes.plane,
            columns: sizes.columns,
            all_columns: sizes.all_columns,
            inner: sizes.inner,
            d2_rows,
            row_share: sizes.row_share,
            resident: sizes.resident,
            ahead: sizes.chunks_ahead(),
            follows: sizes.chunks_ahead() < chunks,
            slots: sizes.slots,
            slot: sizes.slot,
            chunks,
            loads: sizes.loads,
            min_blocks: sizes.blocks_beside().min(2),
            rounds_first: sizes.rounds_first,
            sends_sums: sizes.sends_sums,
            rounds_core: sizes.rounds_core,
            stores_sums: sizes.stores_sums,
            core_partials: sizes.core_partials(),
            lane_row,
            staged_at: sizes.staged_at,
            early_at: sizes.early_at,
            late_at: sizes.late_at,
            gathered_at: sizes.gathered_at,
            middle_at: sizes.middle_at,
            received_at: sizes.received_at,
            factors_at: sizes.factors_at,
            largest_at: sizes.largest_at,
            arrivals_at: sizes.arrivals_at,
            chunks_at: sizes.chunks_at,
            core_factors,
            last_factors,
            factor_floats: last_factors + n_rows,
            first_quads: sizes.share_groups * STEP_CHANNELS / 4,
            d2_quads: d2_rows / 4,
            exchanged: sizes.core.rows * sizes.all_columns / 4,
            gathered: d2_rows * sizes.columns / 4,
            row_vectors: sizes.all_columns / 4,
            output_items,
            pixel_vectors: sizes.columns / y_vector,
            first_items: (sizes.share_groups * STEP_CHANNELS / 4).div_ceil(sizes.stagers),
            inner_items: (d2_rows / 4).div_ceil(rounders),
            rounders,
            idle_rounders: rounders * sizes.columns != threads,
            split: sizes.parts == 2,
            stagers: sizes.stagers,
            idle_stagers: sizes.stagers * positions != threads,
            items: sizes.items,
            checks_items: !sizes.quads.is_multiple_of(sizes.stagers),
            checks_c: padded_c != x.c,
            prologue: problem.prologue.is_some(),
            prologue_relu: problem.prologue.is_some_and(|prologue| prologue.relu),
            scale_at,
            scaled: true,
            bias: epilogue.bias,
            residual: epilogue.residual,
            relu: epilogue.relu,
            y_vector,
            y_type,
            y_elements,
            bounds: any_of(&outside_output),
            z_bounds: any_of(&outside_next),
            next_share: sizes.next_share,
            next_factors: last_factors + 2 * n_rows,
            z_at: if z.keeps {
                problem.n * out_h * out_w
            } else {
                0
            },
            made_only: !z.keeps,
            next,
            first,
            core,
            core_chunk_quads: sizes.core.chunk_steps / (shape.r * shape.s) * STEP_CHANNELS / 4,
            last,
        }),
    }
}

/// Which part of a factor's channels, pixels and steps a warp has, out of its index.
fn parts_of_warp(factor: &Factor, warps: u32) -> [String; 3] {
    let Factor {
        warps_m,
        warps_p,
        warps_k,
        ..
    } = *factor;
    // The index without the parts before, and one part of that.
    let over = |part: u32| match part {
        1 => "warp".to_owned(),
        _ => format!("warp / {part}"),
    };
    let part = |before: u32, part: u32| match part {
        1 => "0".to_owned(),
        _ => format!("{} % {part}", over(before)),
    };
    let last = match warps_m * warps_p * warps_k {
        1 if warps == 1 => "0".to_owned(),
        _ => over(warps_m * warps_p),
    };
    [part(1, warps_m), part(warps_m, warps_p), last]
}

/// Parts of the prelude that the kernel uses.
fn device(sizes: &Sizes) -> &'static [DevicePart] {
    let first = usize::from(sizes.members == 1);
    let rounds = sizes.rounds_first || sizes.rounds_core || sizes.next.is_some();
    &DEVICE[first..DEVICE.len() - usize::from(!rounds)]
}

/// The first only with clusters, the last where sums are rounded in registers.
const DEVICE: &[DevicePart] = &[
    DevicePart::Cluster,
    DevicePart::DynamicShared,
    DevicePart::AsyncCopy,
    DevicePart::ChunkCopy,
    DevicePart::Overlap,
    DevicePart::Half,
    DevicePart::Mma,
    DevicePart::Steps,
    DevicePart::RoundedSums,
];
