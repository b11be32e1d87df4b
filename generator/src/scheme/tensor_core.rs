//! Common parts of the schemes on the tensor cores. Rows of the matrix product are output channels, columns are pixels or
//! Winograd windows, and K runs over groups of 16 input channels. A block stages chunks of K: the weights by asynchronous copies,
//! packed in the fragment order of the tensor cores' lanes, and the input tile through registers.

use super::DevicePart;
use super::convolution::FusedOpsContext;
use super::tiling::{BlockOutput, BlockOutputContext, can_stage_float4, input_tile};
use crate::gpu::Products;
use crate::ir::{ConvProblem, MAX_ELEMENTS, Precision, Problem};
use serde::Serialize;
use tdc_runtime::{Axis, Filter, LayoutDim, Transform, WeightLayout};

/// Maximum number of K steps of a partial accumulator, limited because tensor cores truncate sums instead of rounding.
pub(super) const PROMOTION_INTERVAL: u32 = 6;

/// Which products a tensor core adds to one partial accumulator, of operands with a hi/lo split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PartialSum {
    /// Those of hi and hi; the small products have an accumulator of their own, or are added before.
    OnlyLarge,
    /// All three of each K step in turn.
    Interleaved,
}

/// The fraction of a sum that is missing on average, if its partial accumulators have the products of so many K steps.
///
/// Each product truncates what is below the last bit of the sum that it is added to, so sums are too small in magnitude. The error is small, but
/// has the same sign in all layers of a network, so an epilogue adds this fraction. Fitted to sums of 1 to 18 steps of random numbers on an H100,
/// where `mma.sync` and `wgmma` truncate alike: the mean is within 2 % of a straight line in the number of steps.
pub(super) fn truncated(steps: u32, sum: PartialSum) -> f64 {
    let steps = f64::from(steps);
    let last_bits = match sum {
        PartialSum::OnlyLarge => 0.19 + 0.138 * steps,
        PartialSum::Interleaved => 0.41 * steps - 0.08,
    };
    last_bits * f64::from(f32::EPSILON)
}

/// Terms of K in one MMA: the channels of a K step.
pub(super) const MMA_K: u32 = 16;

/// Rows of an MMA tile: output channels.
pub(super) const MMA_M: u32 = 16;

/// Columns of an MMA tile: pixels or windows.
pub(super) const MMA_N: u32 = 8;

/// Maximum number of warps of a block.
pub(super) const MAX_WARPS: u32 = 16;

/// Division of the work among blocks and warps.
pub(super) struct Blocking {
    /// Output rows and columns of a block.
    pub(super) th: u32,
    pub(super) tw: u32,
    /// MMA tiles of a warp, along the output channels and along the columns of the product.
    pub(super) m_tiles: u32,
    pub(super) p_tiles: u32,
    /// Warps of a block along the output channels, and in total.
    pub(super) warps_m: u32,
    pub(super) warps: u32,
    /// Blocks of a cluster, which split the input channels.
    pub(super) cluster: u32,
    /// Groups of 16 input channels of a chunk.
    pub(super) chunk_groups: u32,
    /// Chunks of a block.
    pub(super) chunks: u32,
    pub(super) stages: u32,
    /// How a filter is packed: its taps, or the points of its Winograd transform.
    pub(super) filter: Filter,
}

impl Blocking {
    /// Chunks of a block; `None` unless `cluster` times `chunk_groups` divides the number of channel groups.
    pub(super) fn chunks(problem: &ConvProblem, cluster: u32, chunk_groups: u32) -> Option<u32> {
        let all_groups = problem.shape.c.div_ceil(MMA_K);
        let split = cluster
            .checked_mul(chunk_groups)
            .filter(|&split| split > 0)?;
        all_groups
            .is_multiple_of(split)
            .then_some(all_groups / split)
    }

    pub(super) fn threads(&self) -> u32 {
        32 * self.warps
    }

    /// Output channels of a block.
    pub(super) fn tn(&self) -> u32 {
        MMA_M * self.m_tiles * self.warps_m
    }

    /// Channel pairs of a chunk.
    pub(super) fn pairs(&self) -> u32 {
        self.chunk_groups * MMA_K / 2
    }

    /// Packed values of a filter for one input channel: taps, or Winograd points.
    fn taps(&self, problem: &ConvProblem) -> u32 {
        match self.filter {
            Filter::Taps | Filter::MergedGroups { .. } => problem.shape.r * problem.shape.s,
            Filter::Winograd(winograd) => winograd.points() * winograd.points(),
        }
    }

    /// Packed weights of a chunk for 16 output channels, in 32-bit words.
    fn m_chunk_weights(&self, problem: &ConvProblem) -> u32 {
        self.chunk_groups * self.taps(problem) * step_weights(problem.precision)
    }

    /// Packed weights of a chunk for a block, in 32-bit words.
    pub(super) fn chunk_weights(&self, problem: &ConvProblem) -> u32 {
        self.m_tiles * self.warps_m * self.m_chunk_weights(problem)
    }

    /// Rows of the input tile, and columns that are loaded of each row.
    pub(super) fn input_tile(&self, problem: &ConvProblem) -> [u32; 2] {
        input_tile(problem, self.th, self.tw)
    }

    /// Whether the input is loaded four columns at a time.
    pub(super) fn vector_x(&self, problem: &ConvProblem) -> bool {
        can_stage_float4(problem, self.tw)
    }

    /// Load positions of a chunk's input: vectors, or single values, of a channel pair.
    fn all_items(&self, problem: &ConvProblem) -> u32 {
        let [rows, row] = self.input_tile(problem);
        let x_vector = if self.vector_x(problem) { 4 } else { 1 };
        self.pairs() * rows * row / x_vector
    }

    /// Load positions of a thread for a chunk's input.
    pub(super) fn items(&self, problem: &ConvProblem) -> u32 {
        self.all_items(problem).div_ceil(self.threads())
    }

    /// Registers of a thread for loaded input values.
    pub(super) fn loaded(&self, problem: &ConvProblem) -> u32 {
        self.items(problem) * if self.vector_x(problem) { 8 } else { 2 }
    }

    /// `[O/16][I/16][R][S]` of 16x16 matrices, each in the fragment order of the tensor cores' lanes, in 16-bit numbers.
    pub(super) fn layout(&self, problem: &ConvProblem) -> WeightLayout {
        let shape = &problem.shape;
        let dim = |axis, count, step| LayoutDim { axis, count, step };
        let [r, s] = match self.filter {
            Filter::Taps | Filter::MergedGroups { .. } => [shape.r, shape.s],
            Filter::Winograd(winograd) => [winograd.points(); 2],
        };
        let m_tiles = shape.n.div_ceil(self.tn()) * self.m_tiles * self.warps_m;
        WeightLayout {
            source: problem.shape.weight(),
            dims: vec![
                dim(Axis::O, m_tiles, MMA_M),
                dim(Axis::I, shape.c.div_ceil(MMA_K), MMA_K),
                dim(Axis::R, r, 1),
                dim(Axis::S, s, 1),
                // A lane has a row and a channel pair. Its four registers: the pair of the row and of the row eight rows further,
                // then the pair eight channels further of both rows.
                dim(Axis::O, 8, 1),
                dim(Axis::I, 4, 2),
                dim(Axis::I, 2, 8),
                dim(Axis::O, 2, 8),
                dim(Axis::I, 2, 1),
            ]
            .into(),
            filter: self.filter,
            transform: weight_transform(problem.precision, MMA_M * MMA_K),
            prologue_channels: Problem::Conv(*problem).scale_shift_channels(),
        }
    }
}

/// Context of the templates `kernel/prefetch_weights.cu`, `kernel/load_chunk.cu`, `kernel/quantize_scale.cu`,
/// `kernel/refill_weights.cu` and of those for the block position, the epilogue and the reduction; part of a scheme's context.
#[derive(Serialize)]
pub(super) struct GemmContext {
    c: u32,
    h: u32,
    w: u32,
    stride_h: u32,
    stride_w: u32,
    pad_top: u32,
    /// Loaded columns to the left of the output tile's first column.
    aligned_pad_left: u32,
    m_tiles: u32,
    p_tiles: u32,
    warps: u32,
    warps_m: u32,
    chunks: u32,
    /// Chunks of the complete sum, over all blocks of a cluster.
    all_chunks: u32,
    pairs: u32,
    rows: u32,
    row_len: u32,
    x_vector: u32,
    vector_x: bool,
    items: u32,
    checks_items: bool,
    checks_c: bool,
    checks_each_c: bool,
    stages: u32,
    /// Chunks whose weights are requested before the first load of the input.
    prefetched_chunks: u32,
    refills_stages: bool,
    /// Packed weights in 32-bit words: of a K step, of a chunk for 16 output channels, of all chunks for 16 output channels, and
    /// of a chunk for a block.
    step_weights: u32,
    m_chunk_weights: u32,
    m_weights: u32,
    chunk_weights: u32,
    /// Offset in shared memory, in floats, of the largest absolute input value per warp.
    warp_max_at: u32,
    /// Bits that the quantisation scale of the input leaves free for the growth by the input transform, which precedes rounding.
    growth_bits: u32,
    hi_lo: bool,
    /// Operands of each product, smallest first.
    split_products: &'static [[&'static str; 2]],
    /// Functions of the device header: conversion of a pair of values to 16 bits each, and the MMA.
    to_pair: &'static str,
    mma: &'static str,
    /// Operands are scaled, and sums are multiplied by the dequantisation scale.
    scaled: bool,
    dequant_scale_at: usize,
    #[serde(flatten)]
    sums: BlockOutputContext,
    #[serde(flatten)]
    fused_ops: FusedOpsContext,
}

impl GemmContext {
    /// For a block with `staged` floats of staging buffers. The last of them hold the largest absolute values per warp, for two
    /// chunks.
    pub(super) fn new(
        problem: &ConvProblem,
        blocking: &Blocking,
        sums: &BlockOutput,
        staged: u32,
        growth_bits: u32,
        layout: &WeightLayout,
    ) -> Self {
        let shape = &problem.shape;
        let [rows, row] = blocking.input_tile(problem);
        let vector_x = blocking.vector_x(problem);
        let items = blocking.items(problem);
        let all_chunks = blocking.chunks * blocking.cluster;
        let m_chunk_weights = blocking.m_chunk_weights(problem);
        let bf16 = problem.precision == Precision::Bf16;
        let hi_lo = split_terms(problem.precision) == 2;
        Self {
            c: shape.c,
            h: shape.h,
            w: shape.w,
            stride_h: shape.stride[0],
            stride_w: shape.stride[1],
            pad_top: shape.padding.top,
            aligned_pad_left: if vector_x { 4 } else { shape.padding.left },
            m_tiles: blocking.m_tiles,
            p_tiles: blocking.p_tiles,
            warps: blocking.warps,
            warps_m: blocking.warps_m,
            chunks: blocking.chunks,
            all_chunks,
            pairs: blocking.pairs(),
            rows,
            row_len: row,
            x_vector: if vector_x { 4 } else { 1 },
            vector_x,
            items,
            checks_items: items * blocking.threads() != blocking.all_items(problem),
            checks_c: !shape.c.is_multiple_of(MMA_K),
            checks_each_c: !shape.c.is_multiple_of(2),
            stages: blocking.stages,
            prefetched_chunks: match blocking.filter {
                Filter::Taps | Filter::MergedGroups { .. } => blocking.stages,
                // A filter has 16 or 36 points instead of 9 taps: the first chunk would wait for the weights of all stages.
                Filter::Winograd(_) => 1,
            },
            refills_stages: blocking.cluster > 1 || blocking.chunks > blocking.stages,
            step_weights: step_weights(problem.precision),
            m_chunk_weights,
            m_weights: all_chunks * m_chunk_weights,
            chunk_weights: blocking.chunk_weights(problem),
            warp_max_at: staged - 2 * blocking.warps,
            growth_bits,
            hi_lo,
            split_products: match hi_lo {
                true => &[["lo", "hi"], ["hi", "lo"], ["hi", "hi"]],
                false => &[["hi", "hi"]],
            },
            to_pair: to_pair(problem.precision, true),
            mma: if bf16 { "tdc_mma_bf16" } else { "tdc_mma_f16" },
            scaled: !bf16,
            dequant_scale_at: layout.weight_len() - layout.dequant_scale_len(),
            sums: sums.context(problem, staged),
            fused_ops: FusedOpsContext::new(problem, layout, false),
        }
    }
}

/// Maximum number of a warp's MMA tiles for which the cross terms of a hi/lo split have a separate accumulator: with more tiles there are
/// enough independent products.
pub(super) const MAX_SEPARATE_TILES: u32 = 2;

/// Whether the cross terms of a warp with `tiles` MMA tiles have a separate accumulator.
pub(super) fn separate_accumulators(tiles: u32, split_terms: u32) -> bool {
    split_terms == 2 && tiles <= MAX_SEPARATE_TILES
}

/// Terms of each operand: 2 with a hi/lo split, else 1.
pub(super) fn split_terms(precision: Precision) -> u32 {
    match precision {
        Precision::Fp32 => 2,
        Precision::Tf32 | Precision::Fp16 | Precision::Bf16 => 1,
    }
}

/// How products are computed with a precision, for the cost model.
pub(super) fn products(precision: Precision) -> Products {
    match precision {
        Precision::Fp32 => Products::Fp32,
        Precision::Tf32 => Products::Tf32,
        Precision::Fp16 | Precision::Bf16 => Products::Half,
    }
}

/// Distance of two channel quads in staged elements, if each has `elements` of them. The four quads of a K step, read for two or
/// four adjacent pixels, map to different banks. An element has 8 bytes per term, and a wavefront 128 bytes.
pub(super) fn quad_plane(elements: u32, split_terms: u32) -> u32 {
    let banks = 16 / split_terms;
    elements.saturating_sub(banks / 4).next_multiple_of(banks) + banks / 4
}

/// Packed 16x16 weights of a K step, in 32-bit words.
pub(super) fn step_weights(precision: Precision) -> u32 {
    step_weights_of(MMA_M, split_terms(precision))
}

/// Packed weights of a K step for `channels` output channels, in 32-bit words.
pub(super) fn step_weights_of(channels: u32, split_terms: u32) -> u32 {
    channels * MMA_K / 2 * split_terms
}

/// How weights that tensor cores multiply are stored; `run` numbers of hi are followed by as many of lo, if there are any.
pub(super) fn weight_transform(precision: Precision, run: u32) -> Transform {
    match precision {
        Precision::Bf16 => Transform::Bf16,
        _ => Transform::Fp16 {
            run,
            terms: split_terms(precision),
        },
    }
}

/// The device function that multiplies 16-bit numbers (`mma.sync`).
pub(super) fn mma_function(precision: Precision) -> &'static str {
    match precision {
        Precision::Bf16 => "tdc_mma_bf16",
        Precision::Fp32 | Precision::Tf32 | Precision::Fp16 => "tdc_mma_f16",
    }
}

/// Whether `implicit_gemm` and `wgmma` scale the input, and add partial sums in fp32.
pub(super) fn scales_input(precision: Precision) -> bool {
    matches!(precision, Precision::Fp32 | Precision::Tf32)
}

/// The device function that rounds two operands to 16-bit numbers. Only operands in `fp16` that are not `scaled` can be beyond the largest
/// fp16 number, which takes their place.
pub(super) fn to_pair(precision: Precision, scaled: bool) -> &'static str {
    match precision {
        Precision::Bf16 => "tdc_to_bf16x2",
        Precision::Fp16 if !scaled => "tdc_to_saturated_fp16x2",
        Precision::Fp32 | Precision::Tf32 | Precision::Fp16 => "tdc_to_fp16x2",
    }
}

/// Parts of the device header that the kernels use.
pub(super) fn device_parts(precision: Precision, clusters: bool) -> &'static [DevicePart] {
    const WITH_CLUSTERS: &[DevicePart] = &[
        DevicePart::Cluster,
        DevicePart::DynamicShared,
        DevicePart::AsyncCopy,
        DevicePart::Pdl,
        DevicePart::Fp16,
        DevicePart::Mma,
    ];
    const BF16_WITH_CLUSTERS: &[DevicePart] = &[
        DevicePart::Cluster,
        DevicePart::DynamicShared,
        DevicePart::AsyncCopy,
        DevicePart::Pdl,
        DevicePart::Bf16,
        DevicePart::Mma,
    ];
    let all = match precision {
        Precision::Bf16 => BF16_WITH_CLUSTERS,
        Precision::Fp32 | Precision::Tf32 | Precision::Fp16 => WITH_CLUSTERS,
    };
    if clusters { all } else { &all[1..] }
}

/// Whether a convolution with `taps` packed values per filter, for `c` input channels of a matrix product, can be computed with the precision that it requires. In fp32 the
/// errors of single outputs are a few times those of a plain sum. In the other precisions the bound is a few times the mean
/// error, and only the norm over many outputs stays below it reliably. Hence the minimum of 256 outputs.
pub(super) fn supports_mma(problem: &ConvProblem, c: u32, taps: u32) -> bool {
    let shape = &problem.shape;
    // The number of weights, padded to complete tiles, must fit an `int`.
    let weights = (u64::from(shape.n) + 4096) * (u64::from(c) + u64::from(MMA_K)) * u64::from(taps);
    shape.n >= 8 && shape.output_len() >= 256 && weights <= MAX_ELEMENTS
}

/// The candidates that divide `whole`.
pub(super) fn divisors(whole: u32, candidates: &'static [u32]) -> impl Iterator<Item = u32> {
    candidates
        .iter()
        .copied()
        .filter(move |&part| whole.is_multiple_of(part))
}

/// Numbers of stages for the weights of `chunks` chunks. With one stage for several chunks each would wait for its copies.
pub(super) fn stages(chunks: u32) -> impl Iterator<Item = u32> {
    [1, 2, 3, 4, 6]
        .into_iter()
        .filter(move |&buffers| buffers <= chunks && (buffers > 1 || chunks == 1))
}

/// Pairs of `m_tiles` (at most `most`) and `warps_m`. A block has no more MMA tiles along the output channels than are needed,
/// and padding adds at most a fifth to them.
pub(super) fn channel_tiles(n: u32, most: u32) -> Vec<(u32, u32)> {
    let needed = n.div_ceil(MMA_M);
    let mut found = Vec::new();
    for m_tiles in 1..=most {
        for warps_m in [1, 2, 3, 4, 6] {
            let tile = m_tiles * warps_m;
            if tile <= needed && needed.next_multiple_of(tile) * 5 <= needed * 6 {
                found.push((m_tiles, warps_m));
            }
        }
    }
    found
}
