//! The kernel: its weight layout, and the context of its template.

use super::geometry::ImplicitGemmGeometry;
use super::k_step::{KStep, unrolls_steps_of_chunk};
use crate::ir::{ConvProblem, Precision, Problem};
use crate::scheme::convolution::{self, FusedOpsContext};
use crate::scheme::step_order::{ChunkSteps, StepNames, StepOrder};
use crate::scheme::stored_pairs::StoredPairs;
use crate::scheme::tensor_core::{
    MMA_K, MMA_M, MMA_N, PartialSum, device_parts, mma_function, scales_input, to_pair, truncated,
    weight_transform,
};
use crate::scheme::tiling::{BlockOutputContext, WeightCopies, vector_type};
use crate::scheme::{DevicePart, KernelBlueprint, context, without_nhwc_strides};
use serde::Serialize;
use tdc_runtime::{Axis, LayoutDim, WeightLayout};

#[derive(Serialize)]
struct ImplicitGemmContext {
    /// Input channels: of a merged group, and of all; the last merged group may have fewer than the others. The end of the channels that
    /// a block reads.
    c: u32,
    all_c: u32,
    checks_group_c: bool,
    end_c: &'static str,
    /// Groups of a merged one.
    merged: u32,
    h: u32,
    w: u32,
    /// A K step covers four columns with one channel quad each ([`KStep`]).
    few_channels: bool,
    stride_h: u32,
    stride_w: u32,
    pad_top: u32,
    /// Staged columns to the left of the output tile's first column.
    aligned_pad_left: u32,
    dilation_w: u32,
    /// MMA tile: rows, half of them, and columns.
    mma_m: u32,
    half_m: u32,
    mma_n: u32,
    m_tiles: u32,
    p_tiles: u32,
    warps: u32,
    warps_m: u32,
    warps_p: u32,
    warps_k: u32,
    chunks: u32,
    /// Chunks of the complete sum, over all blocks of a cluster.
    all_chunks: u32,
    quads: u32,
    rows: u32,
    row_len: u32,
    plane: u32,
    /// Index of the first staged column that an output pixel reads.
    first_column: u32,
    x_vector: u32,
    x_type: &'static str,
    x_elements: &'static [&'static str],
    items: u32,
    /// Load positions of the plane of one channel quad, and of all planes.
    positions: u32,
    all_items: u32,
    checks_items: bool,
    checks_c: bool,
    checks_each_c: bool,
    checks_pixel: bool,
    stages: u32,
    refills_stages: bool,
    /// Packed weights of a chunk in 32-bit words: for 16 output channels, and for a block.
    m_chunk_weights: u32,
    chunk_weights: u32,
    /// Distance of the lo parts of a 16x16 matrix of weights from its hi parts, in 32-bit words.
    lo_weights: u32,
    #[serde(flatten)]
    weight_copies: WeightCopies,
    warp_max_at: u32,
    #[serde(flatten)]
    steps: StepOrder,
    hi_lo: bool,
    /// Accumulator and operands of each product. The products of an accumulator are in ascending order of magnitude.
    split_products: &'static [[&'static str; 3]],
    /// The cross terms have a separate accumulator. With few MMA tiles the products of a K step would otherwise wait for each
    /// other.
    separate_accumulators: bool,
    /// Functions of the device header: conversion of a pair of values to 16 bits each, and the MMA.
    to_pair: &'static str,
    mma: &'static str,
    /// The weights are scaled, and sums are multiplied by the dequantisation scale.
    scaled: bool,
    /// The output, and a residual, are fp16 NHWC.
    writes_nhwc: bool,
    #[serde(flatten)]
    pairs: StoredPairs,
    /// The input is scaled as well.
    scales_input: bool,
    dequant_scale_at: usize,
    #[serde(flatten)]
    sums: BlockOutputContext,
    #[serde(flatten)]
    fused_ops: FusedOpsContext,
}

/// `[O/TN][I/chunk][TN/16][chunk/16][R][S]` of 16x16 matrices, each in the fragment order of the tensor cores' lanes, in 16-bit
/// numbers. The weights that a block stages for a chunk are contiguous. With few channels `[O/TN][TN/16][R][S/4]`; the K side of
/// each matrix is then one channel quad of four filter columns. With several (merged) groups each has such a block.
pub(super) fn layout(problem: &ConvProblem, sizes: &ImplicitGemmGeometry) -> WeightLayout {
    let shape = &problem.shape;
    let dim = |axis, count, step| LayoutDim { axis, count, step };
    let tn = sizes.tn();
    let step = KStep::for_shape(shape);
    let [chunk_groups, rows, columns] = sizes.counts(problem);
    let groups = sizes.groups;
    let group_dims = match shape.n.div_ceil(groups.n) {
        1 => vec![],
        count => vec![dim(Axis::O, count, groups.n)],
    };
    // Elements of a K step along K, one for each of four lanes: channel quads, or filter columns if there are few channels.
    let elements = match step.columns {
        1 => dim(Axis::I, 4, 4),
        columns => dim(Axis::S, columns, 1),
    };
    let dims = [
        dim(Axis::O, groups.n.div_ceil(tn), tn),
        dim(
            Axis::I,
            sizes.chunks * sizes.tile.cluster,
            sizes.tile.chunk_groups * step.channels,
        ),
        dim(Axis::O, sizes.tile.m_tiles * sizes.tile.warps_m, MMA_M),
        dim(Axis::I, chunk_groups, step.channels),
        dim(Axis::R, rows, 1),
        dim(Axis::S, columns, step.columns),
        // A lane has a row and a channel quad. Its four registers: the first two channels of the row and of the row eight
        // rows further, then the other two channels of both rows.
        dim(Axis::O, 8, 1),
        elements,
        dim(Axis::I, 2, 2),
        dim(Axis::O, 2, 8),
        dim(Axis::I, 2, 1),
    ];
    WeightLayout {
        source: problem.shape.weight(),
        dims: group_dims.into_iter().chain(dims).collect(),
        filter: groups.filter(),
        transform: weight_transform(problem.precision, MMA_M * MMA_K),
        prologue_channels: Problem::Conv(*problem).scale_shift_channels(),
    }
}

/// The parts of the device header that a kernel in fp16 uses. The first part is needed only with clusters.
const FP16_DEVICE_PARTS: &[DevicePart] = &[
    DevicePart::Cluster,
    DevicePart::DynamicShared,
    DevicePart::AsyncCopy,
    DevicePart::Pdl,
    DevicePart::Fp16,
    DevicePart::Mma,
    DevicePart::SaturatedFp16,
];

pub(super) fn kernel(
    problem: &ConvProblem,
    sizes: &ImplicitGemmGeometry,
    layout: &WeightLayout,
) -> KernelBlueprint {
    let shape = &problem.shape;
    let step = KStep::for_shape(shape);
    let warps = sizes.warps();
    let quads = sizes.quads(problem);
    let m_chunk_weights = sizes.m_chunk_weights(problem);
    let all_chunks = sizes.chunks * sizes.tile.cluster;
    let chunk_weights = sizes.tile.m_tiles * sizes.tile.warps_m * m_chunk_weights;
    let pixels = sizes.tile.th * sizes.tile.tw;
    let threads = 32 * warps;
    let (x_type, x_elements) = vector_type(sizes.x_vector);
    let all_items = quads * sizes.rows * sizes.row_len / sizes.x_vector;
    let counts = sizes.counts(problem);
    let steps = ChunkSteps {
        counts,
        a: [counts[1] * counts[2], counts[2], 1].map(|steps| steps * 128 * sizes.split_terms),
        b: [
            4 * sizes.plane,
            sizes.row_len * shape.dilation[0],
            step.columns * shape.dilation[1],
        ],
        warps: sizes.tile.warps_k,
        split_terms: sizes.split_terms,
    };
    let order = StepOrder::new(
        steps,
        StepNames {
            warp_k: "warp_k",
            prefix: "",
        },
        unrolls_steps_of_chunk(
            sizes.chunks,
            counts.iter().product::<u32>() / sizes.tile.warps_k,
            sizes.tile.m_tiles * sizes.p_tiles,
            sizes.split_terms,
        ),
    );
    let fused_ops = fused_ops(problem, sizes, layout, &order);
    let groups = sizes.groups;
    let checks_group_c = !shape.c.is_multiple_of(groups.c);
    let bf16 = problem.precision == Precision::Bf16;
    let scales_input = scales_input(problem.precision);
    let context = context(&ImplicitGemmContext {
        c: groups.c,
        all_c: shape.c,
        checks_group_c,
        end_c: if checks_group_c { "channels" } else { "C" },
        merged: groups.merged,
        h: shape.h,
        w: shape.w,
        few_channels: step.columns > 1,
        stride_h: shape.stride[0],
        stride_w: shape.stride[1],
        pad_top: shape.padding.top,
        aligned_pad_left: sizes.aligned_pad_left,
        dilation_w: shape.dilation[1],
        mma_m: MMA_M,
        half_m: MMA_M / 2,
        mma_n: MMA_N,
        m_tiles: sizes.tile.m_tiles,
        p_tiles: sizes.p_tiles,
        warps,
        warps_m: sizes.tile.warps_m,
        warps_p: sizes.tile.warps_p,
        warps_k: sizes.tile.warps_k,
        chunks: sizes.chunks,
        all_chunks,
        quads,
        rows: sizes.rows,
        row_len: sizes.row_len,
        plane: sizes.plane,
        first_column: sizes.aligned_pad_left - shape.padding.left,
        x_vector: sizes.x_vector,
        x_type,
        x_elements,
        items: sizes.items,
        positions: sizes.rows * sizes.row_len / sizes.x_vector,
        all_items,
        checks_items: sizes.items * threads != all_items,
        checks_c: step.columns == 1 && (checks_group_c || all_chunks * 4 * quads != groups.c),
        checks_each_c: !groups.c.is_multiple_of(4) || !shape.c.is_multiple_of(4),
        checks_pixel: !pixels.is_multiple_of(MMA_N),
        stages: sizes.tile.stages,
        refills_stages: sizes.tile.cluster > 1 || sizes.chunks > sizes.tile.stages,
        m_chunk_weights,
        chunk_weights,
        lo_weights: MMA_M * MMA_K / 2,
        weight_copies: WeightCopies::new(chunk_weights, threads),
        warp_max_at: sizes.tile.stages * chunk_weights
            + quads * sizes.plane * 2 * sizes.split_terms,
        steps: order,
        hi_lo: sizes.split_terms == 2,
        split_products: match sizes.split_terms {
            2 if sizes.separate_accumulators() => &[
                ["cross_terms", "lo", "hi"],
                ["partial", "hi", "hi"],
                ["cross_terms", "hi", "lo"],
            ],
            2 => &[
                ["partial", "lo", "hi"],
                ["partial", "hi", "lo"],
                ["partial", "hi", "hi"],
            ],
            _ => &[["sum", "hi", "hi"]],
        },
        separate_accumulators: sizes.separate_accumulators(),
        to_pair: to_pair(problem.precision, scales_input),
        mma: mma_function(problem.precision),
        scaled: !bf16,
        writes_nhwc: problem.writes_16_bit_nhwc(),
        pairs: StoredPairs::of([problem.input.dtype, problem.output.dtype]),
        scales_input,
        dequant_scale_at: layout.weight_len() - layout.dequant_scale_len(),
        sums: sizes.sums.context(problem, sizes.staged),
        fused_ops,
    });
    KernelBlueprint {
        role: convolution::role(false),
        template: "kernel/implicit_gemm.cu",
        context,
        grid: sizes.sums.grid(problem),
        block: [threads, 1, 1],
        cluster: [1, 1, sizes.tile.cluster],
        shared_bytes: 4 * sizes.shared_floats,
        pdl: true,
        device: match problem.precision == Precision::Fp16 {
            true => &FP16_DEVICE_PARTS[usize::from(sizes.tile.cluster == 1)..],
            false => device_parts(problem.precision, sizes.tile.cluster > 1),
        },
        args: without_nhwc_strides(convolution::args(problem, false), &Problem::Conv(*problem)),
        work: sizes.work(problem, Problem::Conv(*problem).bytes() as f64),
    }
}

/// The fused operations; sums of operands with a hi/lo split lack what tensor cores have truncated.
fn fused_ops(
    problem: &ConvProblem,
    sizes: &ImplicitGemmGeometry,
    layout: &WeightLayout,
    order: &StepOrder,
) -> FusedOpsContext {
    let fused_ops = FusedOpsContext::new(problem, layout, false);
    let sum = match sizes.separate_accumulators() {
        true => PartialSum::OnlyLarge,
        false => PartialSum::Interleaved,
    };
    match sizes.split_terms {
        2 => fused_ops.truncated(truncated(order.promotion_interval(), sum)),
        _ => fused_ops,
    }
}
