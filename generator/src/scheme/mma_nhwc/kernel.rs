//! The kernel: its weight layout, and the context of its template.

use super::geometry::MmaNhwcGeometry;
use crate::gpu::Gpu;
use crate::ir::{ConvProblem, Precision, Problem};
use crate::scheme::convolution::{self, FusedOpsContext};
use crate::scheme::stored_pairs::StoredPairs;
use crate::scheme::tensor_core::{MMA_K, MMA_M, MMA_N, mma_function, weight_transform};
use crate::scheme::tiling::BlockOutputContext;
use crate::scheme::{DevicePart, KernelBlueprint, context, without_nhwc_strides};
use serde::Serialize;
use tdc_runtime::{Axis, LayoutDim, WeightLayout};

#[derive(Serialize)]
struct MmaNhwcContext {
    /// Input channels of the merged groups of a block, and of all groups.
    c: u32,
    all_c: u32,
    /// Runs from one pixel of the input to the next.
    x_pixel_runs: u32,
    h: u32,
    w: u32,
    s: u32,
    stride_h: u32,
    stride_w: u32,
    pad_top: u32,
    pad_left: u32,
    dilation_h: u32,
    dilation_w: u32,
    mma_m: u32,
    half_m: u32,
    mma_n: u32,
    m_tiles: u32,
    p_tiles: u32,
    all_m_tiles: u32,
    warps: u32,
    warps_m: u32,
    warps_p: u32,
    threads: u32,
    merged: u32,
    block_groups: u32,
    chunks: u32,
    /// Filter taps of a stage, stages of a chunk and of the sum.
    taps: u32,
    chunk_stages: u32,
    steps: u32,
    stages: u32,
    prefetched: u32,
    /// Stages that may still be copied when one is needed.
    pending: u32,
    /// K steps of a filter tap.
    k_steps: u32,
    input_stages: u32,
    row_len: u32,
    pixel_runs: u32,
    input_runs: u32,
    /// Copies of input by a block and by a thread for a chunk.
    copies_of_chunk: u32,
    items: u32,
    checks_items: bool,
    /// Whether a chunk may have channels after the end of its group, or the last group has fewer.
    checks_c: bool,
    checks_group_c: bool,
    /// Whether an MMA tile may have pixels after those of the block.
    checks_pixel: bool,
    stage_weights: u32,
    /// Copies of weights by a thread for a stage.
    weight_copies: u32,
    checks_weights: bool,
    mma: &'static str,
    /// The weights are scaled, and sums are multiplied by the dequantisation scale.
    scaled: bool,
    dequant_scale_at: usize,
    #[serde(flatten)]
    pairs: StoredPairs,
    #[serde(flatten)]
    sums: BlockOutputContext,
    #[serde(flatten)]
    fused_ops: FusedOpsContext,
}

/// `[O/TN][I/chunk][R][S][TN/16][chunk/16]` of 16x16 matrices, each in the order of the tensor cores' lanes and registers, in 16-bit numbers.
/// The weights of a stage are contiguous. Several (merged) groups have such a block each.
pub(super) fn layout(problem: &ConvProblem, sizes: &MmaNhwcGeometry) -> WeightLayout {
    let shape = &problem.shape;
    let dim = |axis, count, step| LayoutDim { axis, count, step };
    let groups = sizes.groups;
    let group_dims = match shape.n.div_ceil(groups.n) {
        1 => vec![],
        count => vec![dim(Axis::O, count, groups.n)],
    };
    let m_tiles = sizes.all_m_tiles() / sizes.tile.block_groups;
    let tn = MMA_M * m_tiles;
    let chunk_groups = sizes.tile.chunk_groups;
    let dims = [
        dim(Axis::O, groups.n.div_ceil(tn), tn),
        dim(Axis::I, sizes.chunks, chunk_groups * MMA_K),
        dim(Axis::R, shape.r, 1),
        dim(Axis::S, shape.s, 1),
        dim(Axis::O, m_tiles, MMA_M),
        dim(Axis::I, chunk_groups, MMA_K),
        // A lane has a row and a channel pair. Its four registers: the pair of the row and of the row eight rows further, then
        // the pair eight channels further of both rows.
        dim(Axis::O, 8, 1),
        dim(Axis::I, 4, 2),
        dim(Axis::I, 2, 8),
        dim(Axis::O, 2, 8),
        dim(Axis::I, 2, 1),
    ];
    WeightLayout {
        source: shape.weight(),
        dims: group_dims.into_iter().chain(dims).collect(),
        filter: groups.filter(),
        transform: weight_transform(problem.precision, MMA_M * MMA_K),
        prologue_channels: 0,
    }
}

pub(super) fn kernel(
    problem: &ConvProblem,
    sizes: &MmaNhwcGeometry,
    layout: &WeightLayout,
    gpu: &Gpu,
) -> KernelBlueprint {
    KernelBlueprint {
        role: convolution::role(false),
        template: "kernel/mma_nhwc.cu",
        context: context(&MmaNhwcContext::new(problem, sizes, layout)),
        grid: sizes.sums.grid(problem),
        block: [sizes.threads(), 1, 1],
        cluster: [1; 3],
        shared_bytes: 4 * sizes.shared_floats,
        pdl: true,
        device: match problem.precision {
            Precision::Bf16 => BF16_DEVICE_PARTS,
            _ => DEVICE_PARTS,
        },
        args: without_nhwc_strides(convolution::args(problem, false), &Problem::Conv(*problem)),
        work: sizes.work(problem, gpu),
    }
}

const DEVICE_PARTS: &[DevicePart] = &[
    DevicePart::DynamicShared,
    DevicePart::AsyncCopy,
    DevicePart::Pdl,
    DevicePart::Fp16,
    DevicePart::SaturatedFp16,
    DevicePart::Mma,
    DevicePart::Swizzle,
    DevicePart::LoadMatrices,
];

const BF16_DEVICE_PARTS: &[DevicePart] = &[
    DevicePart::DynamicShared,
    DevicePart::AsyncCopy,
    DevicePart::Pdl,
    DevicePart::Bf16,
    DevicePart::Mma,
    DevicePart::Swizzle,
    DevicePart::LoadMatrices,
];

impl MmaNhwcContext {
    fn new(problem: &ConvProblem, sizes: &MmaNhwcGeometry, layout: &WeightLayout) -> Self {
        let shape = &problem.shape;
        let tile = &sizes.tile;
        let groups = sizes.groups;
        let weight_copies = sizes.stage_weights / 4;
        let checks_group_c = !shape.c.is_multiple_of(groups.c);
        let chunk_channels = tile.chunk_groups * MMA_K;
        Self {
            c: tile.block_groups * groups.c,
            all_c: shape.c,
            x_pixel_runs: problem.input.pixel_runs(shape.c),
            h: shape.h,
            w: shape.w,
            s: shape.s,
            stride_h: shape.stride[0],
            stride_w: shape.stride[1],
            pad_top: shape.padding.top,
            pad_left: shape.padding.left,
            dilation_h: shape.dilation[0],
            dilation_w: shape.dilation[1],
            mma_m: MMA_M,
            half_m: MMA_M / 2,
            mma_n: MMA_N,
            m_tiles: tile.m_tiles,
            p_tiles: sizes.p_tiles,
            all_m_tiles: sizes.all_m_tiles(),
            warps: sizes.threads() / 32,
            warps_m: tile.warps_m,
            warps_p: tile.warps_p,
            threads: sizes.threads(),
            merged: groups.merged,
            block_groups: tile.block_groups,
            chunks: sizes.chunks,
            taps: tile.taps,
            chunk_stages: sizes.chunk_stages,
            steps: sizes.steps,
            stages: tile.stages,
            prefetched: sizes.prefetched,
            pending: sizes.prefetched - 1,
            k_steps: tile.chunk_groups,
            input_stages: sizes.input_stages,
            row_len: sizes.row_len,
            pixel_runs: sizes.pixel_runs,
            input_runs: sizes.input_runs,
            copies_of_chunk: sizes.copies,
            items: sizes.items,
            checks_items: sizes.items * sizes.threads() != sizes.copies,
            checks_c: checks_group_c || !groups.c.is_multiple_of(chunk_channels),
            checks_group_c,
            checks_pixel: !(tile.th * tile.tw).is_multiple_of(sizes.p_tiles * tile.warps_p * MMA_N),
            stage_weights: sizes.stage_weights,
            weight_copies: weight_copies.div_ceil(sizes.threads()),
            checks_weights: !weight_copies.is_multiple_of(sizes.threads()),
            mma: mma_function(problem.precision),
            scaled: problem.precision != Precision::Bf16,
            dequant_scale_at: layout.weight_len() - layout.dequant_scale_len(),
            pairs: StoredPairs::of([problem.input.dtype, problem.output.dtype]),
            sums: sizes.sums.context(problem, sizes.staged),
            fused_ops: FusedOpsContext::new(problem, layout, false),
        }
    }
}
