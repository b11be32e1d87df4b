//! What the schemes on the tensor cores share: output channels are rows of a matrix product, pixels or windows are columns, and
//! the sum runs over groups of 16 input channels. A block stages chunks of the sum: its weights, packed as the tensor cores' lanes
//! hold them, by asynchronous copies, and the input tile through registers.

use super::DevicePart;
use super::convolution::FusedOpsContext;
use super::tiling::{BlockOutput, BlockOutputContext, can_stage_float4, input_tile};
use crate::ir::{ConvProblem, MAX_ELEMENTS, Precision, Problem};
use serde::Serialize;
use tdc_runtime::{Axis, Filter, LayoutDim, Transform, WeightLayout};

/// Steps of the tensor cores that add to one partial sum at most: they cut sums off instead of rounding.
pub(super) const PROMOTION_INTERVAL: u32 = 6;

/// Channels of a step.
pub(super) const MMA_K: u32 = 16;

/// Rows of a matrix product, of output channels.
pub(super) const MMA_M: u32 = 16;

/// Columns of a matrix product.
pub(super) const MMA_N: u32 = 8;

/// Warps of a block at most.
pub(super) const MAX_WARPS: u32 = 16;

/// How a block and its warps share the work.
pub(super) struct Blocking {
    /// Output rows and columns of a block.
    pub(super) th: u32,
    pub(super) tw: u32,
    /// Tiles of a warp: of output channels, and of columns of the product.
    pub(super) m_tiles: u32,
    pub(super) p_tiles: u32,
    /// Warps beside each other over output channels, and all.
    pub(super) warps_m: u32,
    pub(super) warps: u32,
    /// Blocks over which the input channels are split.
    pub(super) cluster: u32,
    /// Groups of 16 input channels of a chunk.
    pub(super) chunk_groups: u32,
    /// Chunks of a block.
    pub(super) chunks: u32,
    pub(super) stages: u32,
    /// What is packed of each filter.
    pub(super) filter: Filter,
}

impl Blocking {
    /// Chunks when a cluster and groups divide the channels; `None` when they do not.
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

    /// Pairs of channels of a chunk.
    pub(super) fn pairs(&self) -> u32 {
        self.chunk_groups * MMA_K / 2
    }

    /// Weights of a filter in the sum over one channel.
    fn taps(&self, problem: &ConvProblem) -> u32 {
        match self.filter {
            Filter::Taps => problem.shape.r * problem.shape.s,
            Filter::Winograd(winograd) => winograd.points() * winograd.points(),
        }
    }

    /// Packed values of a chunk for 16 output channels.
    fn m_chunk_weights(&self, problem: &ConvProblem) -> u32 {
        self.chunk_groups * self.taps(problem) * step_weights(problem.precision)
    }

    /// Packed values of a chunk for a block.
    pub(super) fn chunk_weights(&self, problem: &ConvProblem) -> u32 {
        self.m_tiles * self.warps_m * self.m_chunk_weights(problem)
    }

    /// Rows of the input tile, and values that are loaded of each.
    pub(super) fn input_tile(&self, problem: &ConvProblem) -> [u32; 2] {
        input_tile(problem, self.th, self.tw)
    }

    /// Whether the input is loaded four columns at a time.
    pub(super) fn vector_x(&self, problem: &ConvProblem) -> bool {
        can_stage_float4(problem, self.tw)
    }

    /// Values of a chunk of the input over those that are loaded at once, of two channels.
    fn all_items(&self, problem: &ConvProblem) -> u32 {
        let [rows, row] = self.input_tile(problem);
        let x_vector = if self.vector_x(problem) { 4 } else { 1 };
        self.pairs() * rows * row / x_vector
    }

    /// Loads of a thread for a chunk of the input.
    pub(super) fn items(&self, problem: &ConvProblem) -> u32 {
        self.all_items(problem).div_ceil(self.threads())
    }

    /// Registers that hold what a thread has loaded.
    pub(super) fn loaded(&self, problem: &ConvProblem) -> u32 {
        self.items(problem) * if self.vector_x(problem) { 8 } else { 2 }
    }

    /// `[O/16][I/16][R][S]` of 16x16 matrices, each as the tensor cores' lanes hold it, in numbers of 16 bits.
    pub(super) fn layout(&self, problem: &ConvProblem) -> WeightLayout {
        let shape = &problem.shape;
        let dim = |axis, count, step| LayoutDim { axis, count, step };
        let [r, s] = match self.filter {
            Filter::Taps => [shape.r, shape.s],
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
                // A lane: a row, and a pair of channels; its registers: the pair eight channels on, the row eight rows on.
                dim(Axis::O, 8, 1),
                dim(Axis::I, 4, 2),
                dim(Axis::I, 2, 8),
                dim(Axis::O, 2, 8),
                dim(Axis::I, 2, 1),
            ]
            .into(),
            filter: self.filter,
            transform: match problem.precision {
                Precision::Bf16 => Transform::Bf16,
                _ => Transform::Fp16 {
                    run: MMA_M * MMA_K,
                    terms: split_terms(problem.precision),
                },
            },
            prologue_channels: Problem::Conv(*problem).scale_shift_channels(),
        }
    }
}

/// How the templates see it: `kernel/prefetch_weights.cu`, `kernel/load_chunk.cu`, `kernel/quantize_scale.cu`,
/// `kernel/refill_weights.cu` and those around the sums; part of a scheme's context.
#[derive(Serialize)]
pub(super) struct GemmContext {
    c: u32,
    h: u32,
    w: u32,
    stride_h: u32,
    stride_w: u32,
    pad_top: u32,
    /// Columns between a tile's first and the first that is loaded.
    aligned_pad_left: u32,
    m_tiles: u32,
    p_tiles: u32,
    warps: u32,
    warps_m: u32,
    chunks: u32,
    /// Chunks of the whole sum.
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
    /// Chunks whose weights are copied ahead of the first load of the input.
    prefetched_chunks: u32,
    refills_stages: bool,
    /// Packed values of a step, of a chunk for 16 output channels, of all chunks for them, and of a chunk for a block.
    step_weights: u32,
    m_chunk_weights: u32,
    m_weights: u32,
    chunk_weights: u32,
    /// Where the magnitudes that warps have loaded lie in shared memory, in floats.
    warp_max_at: u32,
    /// Bits that the input's scale leaves for what becomes of it before it is rounded.
    growth_bits: u32,
    hi_lo: bool,
    /// Operands of each product, smallest first.
    split_products: &'static [[&'static str; 2]],
    /// Functions of the prelude: a pair of values rounded, and the product of matrices.
    to_pair: &'static str,
    mma: &'static str,
    /// Operands are scaled, and sums scaled back.
    scaled: bool,
    dequant_scale_at: usize,
    #[serde(flatten)]
    sums: BlockOutputContext,
    #[serde(flatten)]
    fused_ops: FusedOpsContext,
}

impl GemmContext {
    /// For a block that stages so many floats, the last of them the magnitudes of its warps for two chunks.
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
                Filter::Taps => blocking.stages,
                // Points are nearly twice the weights: the first chunk would wait for them all.
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
            to_pair: if bf16 {
                "tdc_to_bf16x2"
            } else {
                "tdc_to_fp16x2"
            },
            mma: if bf16 { "tdc_mma_bf16" } else { "tdc_mma_f16" },
            scaled: !bf16,
            dequant_scale_at: layout.weight_len() - layout.dequant_scale_len(),
            sums: sums.context(problem, staged),
            fused_ops: FusedOpsContext::new(problem, layout, false),
        }
    }
}

/// Numbers of 16 bits that stand for a value.
pub(super) fn split_terms(precision: Precision) -> u32 {
    match precision {
        Precision::Fp32 => 2,
        Precision::Tf32 | Precision::Fp16 | Precision::Bf16 => 1,
    }
}

/// Elements between those of four channels, where each of these planes has so many. The four planes of a step, with two pixels side
/// by side or four, fall into different banks: there are 128 bytes of banks for elements of 8 bytes each part.
pub(super) fn quad_plane(elements: u32, split_terms: u32) -> u32 {
    let banks = 16 / split_terms;
    elements.saturating_sub(banks / 4).next_multiple_of(banks) + banks / 4
}

/// Packed values of 16x16 weights.
fn step_weights(precision: Precision) -> u32 {
    MMA_M * MMA_K / 2 * split_terms(precision)
}

/// Parts of the prelude that the kernels use.
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

/// Whether a convolution whose packed filters have so many `taps` can be computed, and as precisely as it must be: in fp32 the
/// errors of single outputs are a few times those of a plain sum, in the others the bound is a few times the mean error, and only
/// over many outputs is the error of their norm sure to stay below it.
pub(super) fn supports_mma(problem: &ConvProblem, taps: u32) -> bool {
    let shape = &problem.shape;
    // Padded to whole tiles, the weights must still be counted by an int.
    let weights =
        (u64::from(shape.n) + 4096) * (u64::from(shape.c) + u64::from(MMA_K)) * u64::from(taps);
    shape.n >= 8 && shape.output_len() >= 256 && weights <= MAX_ELEMENTS
}

/// Those of some numbers that divide another one.
pub(super) fn divisors(whole: u32, candidates: &'static [u32]) -> impl Iterator<Item = u32> {
    candidates
        .iter()
        .copied()
        .filter(move |&part| whole.is_multiple_of(part))
}

/// Numbers of buffers for the weights of so many chunks: with one for several chunks each would wait for its copies.
pub(super) fn stages(chunks: u32) -> impl Iterator<Item = u32> {
    [1, 2, 3, 4, 6]
        .into_iter()
        .filter(move |&buffers| buffers <= chunks && (buffers > 1 || chunks == 1))
}

/// Up to `most` tiles of 16 output channels a warp and warps beside each other, none of which lies wholly in the padding.
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
