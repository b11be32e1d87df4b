//! `implicit_gemm`: a convolution as a matrix product on the tensor cores, in any precision.
//!
//! Rows of the product are output channels, columns are output pixels, and K runs over the filter taps and groups of 16 input
//! channels. The im2col matrix is never built.
//!
//! In fp32 each operand is split into two fp16 numbers (hi/lo split), and three of the four products are computed: 22 bits of
//! each operand. In tf32 and fp16 the hi part is enough: its 11 bits are those of tf32.
//!
//! Quantisation scales (powers of two) keep fp16 in range. The weights have one for each output channel, computed when they are
//! packed. The input has one for each staged chunk, computed as it is loaded. In tf32 the input's scale is that of the largest
//! value so far, and the accumulators are rescaled when it grows. So the error is relative to the largest value of a tile, and an
//! infinite input spoils its entire tile. In fp16 inputs have the range of fp16 and need no scale. In bf16, which has the range
//! of fp32, weights need none either.
//!
//! A block stages the input tile of a chunk of channels as 16-bit numbers. It loads the weights of the chunk by asynchronous
//! copies that start before the predecessor kernel has finished. Warps divide output channels, pixels and K; the blocks of a
//! cluster divide K further. Partial sums are added through shared memory in a fixed order.
//!
//! Tensor cores truncate sums instead of rounding. Therefore a partial accumulator of at most [`PROMOTION_INTERVAL`] K steps is
//! added to the accumulator in fp32, which keeps the error within twice that of a plain fp32 sum. Without a hi/lo split the
//! rounding of the operands dominates, and the tensor cores accumulate the entire sum.
//!
//! The staged input consists of channel quads. One load of a quad gives a lane its input operands of a K step; the order of
//! channels within a K step follows from the packed weights. The operand offsets of the K steps are constants of the generated
//! code, except for the offset of the warp: computing an address in every step would take longer than the products.
//!
//! The 16 terms of a K step are 16 channels of one pixel. The first layers of networks have three channels: there the terms of a
//! K step are four adjacent pixels with one channel quad each, and filter rows are padded with zeros when they are packed
//! ([`KStep`]).

use super::convolution::{self, FusedOpsContext};
use super::info::SchemeInfo;
use super::step_order::{
    ChunkSteps, StepOrder, promotion_interval, split_steps_over_warps, unrolls,
};
use super::tensor_core::{
    MAX_WARPS, MMA_K, MMA_M, MMA_N, PROMOTION_INTERVAL, channel_tiles, device_parts, divisors,
    quad_plane, split_terms, stages, supports_mma,
};
use super::tiling::{
    BlockOutput, BlockOutputContext, InputTraffic, RegisterEstimate, RoughTime, WeightCopies,
    fastest, index_divisions, supports_tiling, vector_type,
};
use super::{
    Blueprint, KernelBlueprint, LaunchWork, MAX_GRID, Scheme, Tile, TileField, TileSearch,
    UnitWork, context, tile_numbers,
};
use crate::cost::{KernelWork, TiledTotals, TiledWork};
use crate::gpu::{Gpu, PORTABLE_CLUSTER};
use crate::ir::{ConvProblem, Precision, Problem};
use serde::Serialize;
use std::ops::RangeInclusive;
use tdc_runtime::{Axis, ConvShape, Filter, LayoutDim, Transform, WeightLayout};

/// See the [module](self).
pub struct ImplicitGemm;

tile_numbers! {
    /// A tile of the [module](self)'s scheme.
    struct ImplicitGemmTile {
        /// Output rows of a block.
        th: "h",
        /// Output columns of a block.
        tw: "w",
        /// MMA tiles of a warp along the output channels (16 channels each).
        m_tiles: "m",
        /// Warps side by side along the output channels.
        warps_m: "wm",
        /// Warps side by side along the pixels.
        warps_p: "wp",
        /// Warps that split K (split-K inside the block).
        warps_k: "wk",
        /// Blocks of a cluster, which split the input channels.
        cluster: "cl",
        /// Channel groups of one chunk: one MMA K step each (16 channels; 4 with few channels).
        chunk_groups: "cg",
        /// Pipeline stages (shared-memory buffers) of the packed weights.
        stages: "s",
    }
}

/// Maximum number of a warp's MMA tiles times the terms of an operand. The accumulator of an MMA tile (16 channels x 8 pixels) takes
/// four registers of a lane. With a hi/lo split there are two: the fp32 accumulator and the partial accumulator.
const MAX_SUMS: u32 = 32;

/// Maximum number of a warp's MMA tiles for which the cross terms have a separate accumulator.
const MAX_SEPARATE_TILES: u32 = 2;

/// The 16 terms of a K step: `channels` channels of each of `columns` adjacent pixels.
#[derive(Debug, Clone, Copy)]
struct KStep {
    channels: u32,
    columns: u32,
}

impl KStep {
    /// Numbers of input channels for which a K step covers one channel quad of each of four columns. With 1 or with 5 to 7
    /// channels more than half of a K step would be padding; the scheme does not support them.
    const FEW_CHANNELS: RangeInclusive<u32> = 2..=4;

    fn for_shape(shape: &ConvShape) -> Self {
        let columns = if Self::FEW_CHANNELS.contains(&shape.c) {
            4
        } else {
            1
        };
        Self {
            channels: MMA_K / columns,
            columns,
        }
    }

    /// K steps of a chunk of `chunk_groups` channel groups: along channel groups, filter rows, and filter columns.
    fn counts(self, chunk_groups: u32, shape: &ConvShape) -> [u32; 3] {
        [chunk_groups, shape.r, shape.s.div_ceil(self.columns)]
    }

    /// Values of `warps_k` in the tile space.
    fn warps_k(self) -> &'static [u32] {
        match self.columns {
            1 => &[1, 2, 3, 4, 6, 8, 9, 12, 16],
            _ => &[1, 2, 3, 5, 6, 7, 10, 11, 14],
        }
    }
}

#[derive(Serialize)]
struct ImplicitGemmContext {
    c: u32,
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
    /// The input is scaled as well.
    scales_input: bool,
    dequant_scale_at: usize,
    #[serde(flatten)]
    sums: BlockOutputContext,
    #[serde(flatten)]
    fused_ops: FusedOpsContext,
}

/// A tile and the sizes that follow from it for a problem.
struct ImplicitGemmGeometry {
    tile: ImplicitGemmTile,
    p_tiles: u32,
    chunks: u32,
    rows: u32,
    row_len: u32,
    plane: u32,
    /// Columns of one load, and staged columns to the left of the output tile's first column.
    x_vector: u32,
    aligned_pad_left: u32,
    items: u32,
    sums: BlockOutput,
    /// Floats of shared memory: of the staging buffers, and in total.
    staged: u32,
    shared_floats: u32,
    /// Estimated registers of a thread.
    registers: RegisterEstimate,
    blocks: u64,
    /// Terms of each operand: 2 with a hi/lo split, else 1.
    split_terms: u32,
}

/// Inputs of the register estimate of a thread.
struct RegisterModel {
    m_tiles: u32,
    p_tiles: u32,
    /// K steps of a chunk along channel groups, filter rows and filter columns.
    counts: [u32; 3],
    warps_k: u32,
    chunks: u32,
    /// Input values that a thread loads for a chunk, and the positions from which it loads them.
    loaded: u32,
    items: u32,
    prologue: bool,
}

impl RegisterModel {
    /// Registers with a hi/lo split. Fitted to the register counts of NVRTC 13.0 for 5,800 tiles on sm_90: the median error is
    /// zero, the root mean square error is 11 %. (Tiles that agree in all these numbers differ by 7 %.)
    fn registers(&self) -> u32 {
        let split = split_steps_over_warps(self.counts, self.warps_k).unwrap_or([1; 3]);
        let warp_steps = [0, 1, 2].map(|axis| self.counts[axis] / split[axis]);
        let steps = warp_steps.iter().product();
        let computing = if self.chunks == 1 && steps <= PROMOTION_INTERVAL {
            self.single_interval(steps)
        } else {
            self.several_intervals(warp_steps)
        };
        computing.max(25 + self.loaded + self.items / 2)
    }

    /// A single chunk that is one promotion interval: accumulators and the operands of all K steps, because nothing keeps the
    /// compiler from loading all of them in advance. With more accumulator tiles, more products have to be issued before the
    /// first accumulator is complete.
    fn single_interval(&self, steps: u32) -> u32 {
        let tiles = self.m_tiles * self.p_tiles;
        let ahead = if steps > 1 { 6 * tiles } else { 0 };
        let waiting = if steps > 2 {
            3 * tiles.saturating_sub(8)
        } else {
            0
        };
        let separate = if tiles <= MAX_SEPARATE_TILES {
            5 * tiles
        } else {
            0
        };
        (26 + (9 * tiles + ahead + separate) / 2 + waiting).saturating_sub(4 * self.m_tiles)
    }

    /// Several promotion intervals in sequence; a warp has `warp_steps` K steps in a chunk.
    fn several_intervals(&self, warp_steps: [u32; 3]) -> u32 {
        let steps: u32 = warp_steps.iter().product();
        let tiles = self.m_tiles * self.p_tiles;
        let sums = 4 * tiles;
        // Partial accumulators and temporaries: half the registers of the accumulators with a single K step, one and a half times
        // as many with several.
        let partial = if steps == 1 { sums / 2 } else { sums * 3 / 2 };
        let separate = if tiles <= MAX_SEPARATE_TILES { sums } else { 0 };
        // Operands of a K step, and of the following ones as far as the compiler loads them in advance.
        let ahead = if unrolls_steps_of_chunk(self.chunks, steps, tiles, 2) {
            steps.min(PROMOTION_INTERVAL)
        } else {
            promotion_interval(warp_steps, 2).iter().product()
        } - 1;
        let operands = (2 * self.m_tiles + 4 * self.p_tiles)
            + ahead * (2 * self.m_tiles + 3 * self.p_tiles) / 4;
        let next_chunk = if self.chunks > 1 {
            let factors = if self.prologue { 8 * self.items } else { 0 };
            self.loaded + 4 * self.items + factors
        } else {
            0
        };
        12 + sums + partial + separate + operands + next_chunk
    }

    /// Registers without a hi/lo split. Compared with the compiler's counts for hundreds of tiles; the estimate is conservative.
    fn registers_without_split(&self) -> u32 {
        let sums_and_operands = 5 * self.m_tiles * self.p_tiles
            + 3 * self.m_tiles
            + 4 * self.p_tiles
            + self.loaded * 3 / 4;
        let addresses = if self.chunks > 1 { 12 * self.items } else { 0 };
        let prologue = if self.prologue { 8 * self.items } else { 0 };
        24 + sums_and_operands + addresses + prologue
    }
}

impl ImplicitGemmGeometry {
    /// `None` if the tile is invalid, or does not fit the problem or the GPU.
    fn new(problem: &ConvProblem, tile: ImplicitGemmTile, gpu: &Gpu) -> Option<Self> {
        let ImplicitGemmTile {
            th,
            tw,
            m_tiles,
            warps_m,
            warps_p,
            warps_k,
            cluster,
            chunk_groups,
            stages,
        } = tile;
        if tile.numbers().contains(&0)
            || th.max(tw) > 256
            || tile.numbers()[2..].iter().any(|&number| number > 16)
        {
            return None;
        }
        let shape = &problem.shape;
        let pixel_tiles = (th * tw).div_ceil(MMA_N);
        let step = KStep::for_shape(shape);
        let chunks = chunks(shape.c.div_ceil(step.channels), cluster, chunk_groups)?;
        let counts = step.counts(chunk_groups, shape);
        if !pixel_tiles.is_multiple_of(warps_p) || split_steps_over_warps(counts, warps_k).is_none()
        {
            return None;
        }
        let warps = warps_m * warps_p * warps_k;
        let p_tiles = pixel_tiles / warps_p;
        let split_terms = split_terms(problem.precision);
        if warps > MAX_WARPS
            || m_tiles * p_tiles * split_terms > MAX_SUMS
            || cluster > PORTABLE_CLUSTER
            || stages > chunks
        {
            return None;
        }
        let threads = 32 * warps;
        let quads = chunk_groups * step.channels / 4;
        let staging = Staging::new(problem, [th, tw], quads, threads);
        let [rows, row_len] = staging.input;
        if rows * row_len > 1 << 13 {
            return None;
        }
        let plane = quad_plane(rows * row_len, split_terms);
        let items = staging.items.div_ceil(threads);
        let chunk_weights = m_tiles * warps_m * counts.iter().product::<u32>() * 128 * split_terms;
        let staged = stages * chunk_weights + quads * plane * 2 * split_terms + 2 * warps;
        let tn = MMA_M * m_tiles * warps_m;
        let sums = BlockOutput {
            tile: [th, tw, tn],
            threads,
            cluster,
            k_splits: warps_k,
            // A pitch of 8 modulo 32: the lanes of a warp store eight channels, two pixels each, without bank conflicts.
            partial_pitch: (pixel_tiles * MMA_N + 23) / 32 * 32 + 8,
        };
        let shared_floats = sums.shared_floats(problem, staged);
        let grid = sums.grid(problem);
        let loaded = items * 4 * staging.x_vector;
        let register_model = RegisterModel {
            m_tiles,
            p_tiles,
            counts,
            warps_k,
            chunks,
            loaded,
            items,
            prologue: problem.prologue.is_some(),
        };
        let registers = if split_terms == 2 {
            let most = RegisterEstimate::max_per_thread(threads);
            let wanted = register_model.registers();
            // With this threshold few of the accepted tiles spill, and few of the rejected ones would not have spilled.
            RegisterEstimate {
                allocated: wanted.min(most),
                spills: 10 * wanted > 9 * most,
            }
        } else {
            RegisterEstimate::new(register_model.registers_without_split(), threads)
        };
        let fits = loaded <= 64 && shared_floats <= gpu.shared_per_block / 4 && grid[1] <= MAX_GRID;
        fits.then_some(Self {
            tile,
            p_tiles,
            chunks,
            rows,
            row_len,
            plane,
            x_vector: staging.x_vector,
            aligned_pad_left: staging.aligned_pad_left,
            items,
            sums,
            staged,
            shared_floats,
            registers,
            blocks: grid.iter().map(|&size| u64::from(size)).product(),
            split_terms,
        })
    }

    fn from_tile(problem: &ConvProblem, tile: &Tile, gpu: &Gpu) -> Option<Self> {
        Self::new(problem, ImplicitGemmTile::from_tile(tile)?, gpu)
    }

    /// The sizes of a supported tile.
    fn of_supported(problem: &ConvProblem, tile: &Tile, gpu: &Gpu) -> Self {
        Self::from_tile(problem, tile, gpu).expect("a supported tile")
    }

    fn tn(&self) -> u32 {
        MMA_M * self.tile.m_tiles * self.tile.warps_m
    }

    fn warps(&self) -> u32 {
        self.tile.warps_m * self.tile.warps_p * self.tile.warps_k
    }

    /// K steps of a chunk along channel groups, filter rows and filter columns.
    fn counts(&self, problem: &ConvProblem) -> [u32; 3] {
        KStep::for_shape(&problem.shape).counts(self.tile.chunk_groups, &problem.shape)
    }

    /// Channel quads of a chunk.
    fn quads(&self, problem: &ConvProblem) -> u32 {
        self.tile.chunk_groups * KStep::for_shape(&problem.shape).channels / 4
    }

    /// Packed weights of a chunk for 16 output channels, in 32-bit words.
    fn m_chunk_weights(&self, problem: &ConvProblem) -> u32 {
        self.counts(problem).iter().product::<u32>() * 128 * self.split_terms
    }

    /// Work of the launch, for the cost model. `dram_bytes` are those of the problem.
    fn work(&self, problem: &ConvProblem, dram_bytes: f64) -> KernelWork {
        let shape = &problem.shape;
        let threads = 32 * self.warps();
        let few_channels = KStep::for_shape(shape).columns > 1;
        let counts = self.counts(problem);
        let split = split_steps_over_warps(counts, self.tile.warps_k).unwrap_or([1; 3]);
        let warp_steps = [0, 1, 2].map(|axis| counts[axis] / split[axis]);
        let steps = warp_steps.iter().product::<u32>();
        let promotion_interval = promotion_interval(warp_steps, self.split_terms)
            .iter()
            .product::<u32>();
        let unrolls = unrolls_steps_of_chunk(
            self.chunks,
            steps,
            self.tile.m_tiles * self.p_tiles,
            self.split_terms,
        );
        let step = StepWork::new(problem, self.tile.m_tiles, self.p_tiles, promotion_interval);
        let quads = self.quads(problem);
        let elements = quads * self.rows * self.row_len;
        let chunk_weights = self.tile.m_tiles * self.tile.warps_m * self.m_chunk_weights(problem);
        let places = self.rows * self.row_len / self.x_vector;
        // A load of a warp covers 32 pixels of one channel, or eight vectors of each of four channels.
        let of_channel = if self.x_vector > 1 && !few_channels {
            8
        } else {
            32
        };
        let traffic = InputTraffic::new(
            problem,
            [self.tile.th, self.tile.tw],
            4 * quads,
            f64::from(4 * quads * places) / f64::from(of_channel),
        );
        let loads = if problem.prologue.is_some() {
            12.0
        } else {
            4.0
        };
        let (outputs, _) = self.sums.outputs(problem);
        // Writes of the columns of a vector conflict as well: two at a time, with few channels all of them.
        let staged_apart = match (few_channels, self.x_vector) {
            (true, columns) => f64::from(columns),
            (false, columns) => f64::from(columns.min(2)),
        };
        KernelWork {
            blocks: self.blocks,
            threads,
            registers: self.registers.allocated,
            shared_bytes: 4 * self.shared_floats,
            dram_bytes,
            cluster: self.tile.cluster,
            pdl: true,
            tiled: Some(TiledWork {
                chunks: f64::from(self.chunks),
                refilled_chunks: f64::from(self.chunks - self.tile.stages),
                k_steps: f64::from(steps),
                loops: f64::from(if unrolls {
                    1
                } else {
                    steps / promotion_interval
                }),
                mma_per_step: step.products,
                dependent_mma: step.dependent_products,
                instructions_per_step: step.instructions,
                wavefronts_per_step: step.wavefronts,
                positions: f64::from(self.items),
                loads_per_position: loads,
                values_per_position: f64::from(4 * self.x_vector),
                divisions_per_position: index_divisions(places, self.row_len / self.x_vector),
                cache_lines: traffic.lines,
                staged_wavefronts: f64::from(elements * self.split_terms) / 16.0 * staged_apart,
                input_bytes: traffic.bytes,
                weight_bytes: f64::from(4 * chunk_weights),
                accumulators: f64::from(4 * self.tile.m_tiles * self.p_tiles),
                partial_sums: f64::from(self.tile.warps_k),
                store_rounds: f64::from(outputs.div_ceil(threads)),
                store_divisions: self.sums.store_divisions(problem),
                sent_bytes: self.sums.sent_bytes(),
                stored_sectors: self.sums.stored_sectors(problem),
                residual: problem.epilogue.residual,
            }),
            ..KernelWork::default()
        }
    }

    /// Whether the cross terms have a separate accumulator.
    fn separate_accumulators(&self) -> bool {
        separate_accumulators(self.split_terms, self.tile.m_tiles * self.p_tiles)
    }
}

/// The tiles with the same output of a block, of its warps, and the same cluster size.
#[derive(Clone, Copy)]
struct TileGroup {
    th: u32,
    tw: u32,
    m_tiles: u32,
    warps_m: u32,
    warps_p: u32,
    cluster: u32,
}

impl TileGroup {
    /// Every group of a problem. Empty if the scheme does not support it, or the GPU runs only the kernel's fallback.
    fn all(problem: &ConvProblem, gpu: &Gpu) -> Vec<Self> {
        if !gpu.has_mma() || !supports_problem(problem) {
            return Vec::new();
        }
        let shape = &problem.shape;
        let split_terms = split_terms(problem.precision);
        let channel_tiles = channel_tiles(shape.n, 5 - split_terms);
        let mut found = Vec::new();
        for (th, tw) in tile_shapes(shape.out_h(), shape.out_w(), 512 / split_terms) {
            let pixel_tiles = (th * tw).div_ceil(MMA_N);
            for &(m_tiles, warps_m) in &channel_tiles {
                for warps_p in divisors(pixel_tiles, &[1, 2, 4, 7, 8]) {
                    let sums = m_tiles * pixel_tiles / warps_p * split_terms;
                    if warps_m * warps_p > MAX_WARPS || sums > MAX_SUMS {
                        continue;
                    }
                    found.extend((1..=gpu.max_cluster()).map(|cluster| Self {
                        th,
                        tw,
                        m_tiles,
                        warps_m,
                        warps_p,
                        cluster,
                    }));
                }
            }
        }
        found
    }

    /// Its tiles with a split that fit the GPU.
    fn tiles(
        self,
        split: Split,
        problem: &ConvProblem,
        gpu: &Gpu,
    ) -> impl Iterator<Item = ImplicitGemmGeometry> {
        let tiles = stages(split.chunks).map(move |stages| ImplicitGemmTile {
            th: self.th,
            tw: self.tw,
            m_tiles: self.m_tiles,
            warps_m: self.warps_m,
            warps_p: self.warps_p,
            warps_k: split.warps_k,
            cluster: self.cluster,
            chunk_groups: split.chunk_groups,
            stages,
        });
        tiles
            .filter_map(|tile| ImplicitGemmGeometry::new(problem, tile, gpu))
            .filter(|sizes| sizes.warps() > 1 && !sizes.registers.spills)
    }

    /// The least work of its tiles. `dram_bytes` are those of the problem.
    fn totals(self, problem: &ConvProblem, dram_bytes: f64) -> TiledTotals {
        let shape = &problem.shape;
        let step = KStep::for_shape(shape);
        let [groups, filter_rows, filter_columns] = step.counts(
            shape.c.div_ceil(step.channels).div_ceil(self.cluster),
            shape,
        );
        let steps = groups * filter_rows * filter_columns;
        let pixel_tiles = (self.th * self.tw).div_ceil(MMA_N);
        let step_work = StepWork::new(
            problem,
            self.m_tiles,
            pixel_tiles / self.warps_p,
            PROMOTION_INTERVAL,
        );
        let tn = MMA_M * self.m_tiles * self.warps_m;
        let reach = |axis: usize, tile: u32, taps: u32| {
            (tile - 1) * shape.stride[axis] + (taps - 1) * shape.dilation[axis] + 1
        };
        let rows = reach(0, self.th, shape.r);
        let columns = reach(1, self.tw, shape.s);
        // Staged elements of four channels, loaded by the widest vectors.
        let elements = f64::from(groups * step.channels / 4) * f64::from(rows * columns);
        let traffic = InputTraffic::new(problem, [self.th, self.tw], groups * step.channels, 0.0);
        let sums = BlockOutput {
            tile: [self.th, self.tw, tn],
            threads: 32 * self.warps_m * self.warps_p,
            cluster: self.cluster,
            k_splits: 1,
            partial_pitch: 0,
        };
        let (outputs, _) = sums.outputs(problem);
        let output_warps = self.warps_m * self.warps_p;
        let split_terms = split_terms(problem.precision);
        let weights = f64::from(self.m_tiles * self.warps_m) * f64::from(steps * 128 * split_terms);
        TiledTotals {
            blocks: sums
                .grid(problem)
                .iter()
                .map(|&size| u64::from(size))
                .product(),
            cluster: self.cluster,
            dram_bytes,
            outputs: f64::from(outputs),
            work: TiledWork {
                k_steps: f64::from(steps * output_warps),
                mma_per_step: step_work.products,
                dependent_mma: step_work.dependent_products,
                instructions_per_step: step_work.instructions,
                wavefronts_per_step: step_work.wavefronts,
                positions: elements / 4.0,
                loads_per_position: 4.0,
                values_per_position: 16.0,
                cache_lines: traffic.lines,
                staged_wavefronts: elements * f64::from(split_terms) / 16.0,
                input_bytes: traffic.bytes,
                weight_bytes: 4.0 * weights,
                accumulators: f64::from(4 * self.m_tiles * (pixel_tiles / self.warps_p)),
                sent_bytes: sums.sent_bytes(),
                stored_sectors: sums.stored_sectors(problem),
                residual: problem.epilogue.residual,
                ..TiledWork::default()
            },
        }
    }
}

/// Whether the cross terms of a warp with `tiles` MMA tiles have a separate accumulator.
fn separate_accumulators(split_terms: u32, tiles: u32) -> bool {
    split_terms == 2 && tiles <= MAX_SEPARATE_TILES
}

/// How the sum of a block is split.
#[derive(Clone, Copy)]
struct Split {
    /// Channel groups of a chunk.
    chunk_groups: u32,
    chunks: u32,
    warps_k: u32,
}

impl Split {
    /// The splits for each cluster size, from 1.
    fn all(problem: &ConvProblem, gpu: &Gpu) -> Vec<Vec<Self>> {
        let step = KStep::for_shape(&problem.shape);
        let all_groups = problem.shape.c.div_ceil(step.channels);
        let of_cluster = |cluster| {
            let mut found = Vec::new();
            for chunk_groups in [1, 2, 3, 4, 5, 6, 8] {
                let Some(chunks) = chunks(all_groups, cluster, chunk_groups) else {
                    continue;
                };
                let counts = step.counts(chunk_groups, &problem.shape);
                for &warps_k in step.warps_k() {
                    if split_steps_over_warps(counts, warps_k).is_some() {
                        found.push(Self {
                            chunk_groups,
                            chunks,
                            warps_k,
                        });
                    }
                }
            }
            found
        };
        (1..=gpu.max_cluster()).map(of_cluster).collect()
    }
}

/// The work of a warp's K step.
struct StepWork {
    /// MMA products, and those of them that depend on each other.
    products: f64,
    dependent_products: f64,
    instructions: f64,
    /// Shared-memory wavefronts of the operands.
    wavefronts: f64,
}

impl StepWork {
    /// Of a warp with `m_tiles` x `p_tiles` MMA tiles, which adds partial accumulators after every `promotion_interval` steps.
    fn new(problem: &ConvProblem, m_tiles: u32, p_tiles: u32, promotion_interval: u32) -> Self {
        let split_terms = split_terms(problem.precision);
        let separate = separate_accumulators(split_terms, m_tiles * p_tiles);
        let split_terms = f64::from(split_terms);
        let [m_tiles, p_tiles] = [m_tiles, p_tiles].map(f64::from);
        let products = m_tiles * p_tiles * (2.0 * split_terms - 1.0);
        let (adding, dependent_products) = match (split_terms > 1.0, separate) {
            (true, true) => (8.0 * m_tiles * p_tiles, 2.0),
            (true, false) => (4.0 * m_tiles * p_tiles, 3.0),
            (false, _) => (0.0, 1.0),
        };
        // With a stride, reads of neighbouring pixels conflict in shared-memory banks. With few channels they do not, because the
        // pixels in between are read as well.
        let conflicts = match KStep::for_shape(&problem.shape).columns {
            1 => f64::from(problem.shape.stride[1].min(4)),
            _ => 1.0,
        };
        Self {
            products,
            dependent_products,
            instructions: m_tiles * split_terms
                + p_tiles
                + products
                + adding / f64::from(promotion_interval),
            wavefronts: 4.0 * m_tiles * split_terms + p_tiles * 2.0 * split_terms * conflicts,
        }
    }
}

/// Every tile that fits the GPU, with its rough time.
fn rated_tiles(problem: &Problem, gpu: &Gpu) -> Vec<(f64, ImplicitGemmTile)> {
    let Some(problem) = problem.nchw_conv() else {
        return Vec::new();
    };
    let rough = RoughTime::new(gpu);
    let dram_bytes = Problem::Conv(*problem).bytes() as f64;
    let groups = TileGroup::all(problem, gpu).into_iter();
    let splits = Split::all(problem, gpu);
    let tiles = groups.flat_map(|group| {
        let splits = splits[group.cluster as usize - 1].iter();
        splits.flat_map(move |&split| group.tiles(split, problem, gpu))
    });
    tiles
        .map(|sizes| (rough.of(&sizes.work(problem, dram_bytes)), sizes.tile))
        .collect()
}

impl Scheme for ImplicitGemm {
    fn name(&self) -> &'static str {
        "implicit_gemm"
    }

    fn info(&self) -> SchemeInfo {
        SchemeInfo {
            precisions: &[
                Precision::Fp32,
                Precision::Tf32,
                Precision::Fp16,
                Precision::Bf16,
            ],
            ..SchemeInfo::own(
                "convolutions of one group with 2 to 4, or at least 8, input channels and at least 8 output channels",
            )
        }
    }

    fn tile_fields(&self) -> &'static [TileField] {
        ImplicitGemmTile::FIELDS
    }

    fn tiles(&self, problem: &Problem, gpu: &Gpu) -> Vec<Tile> {
        let kept = fastest(rated_tiles(problem, gpu));
        kept.into_iter().map(Tile::from).collect()
    }

    fn unpruned_tiles(&self, problem: &Problem, gpu: &Gpu) -> Vec<Tile> {
        let all = rated_tiles(problem, gpu).into_iter();
        all.map(|(_, tile)| tile.into()).collect()
    }

    fn search(&self, problem: &Problem, search: &mut TileSearch<'_>) {
        let Some(problem) = problem.nchw_conv() else {
            return;
        };
        let gpu = search.gpu();
        let dram_bytes = Problem::Conv(*problem).bytes() as f64;
        let groups = TileGroup::all(problem, gpu).into_iter();
        let groups = groups.map(|group| {
            let bound = group.totals(problem, dram_bytes).bound(gpu);
            let warps = [group.warps_m * group.warps_p, MAX_WARPS];
            (bound.us(1, warps), (group, bound))
        });
        let splits = Split::all(problem, gpu);
        search.best_first(groups.collect(), |search, (group, bound)| {
            let output_warps = group.warps_m * group.warps_p;
            for split in &splits[group.cluster as usize - 1] {
                let warps = output_warps * split.warps_k;
                if warps > MAX_WARPS || !search.can_improve(bound.us(split.chunks, [warps; 2])) {
                    continue;
                }
                for sizes in group.tiles(*split, problem, gpu) {
                    let work = sizes.work(problem, dram_bytes);
                    search.offer_launch(sizes.tile, convolution::role(false), work);
                }
            }
        });
    }

    fn supports(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> bool {
        let Some(problem) = problem.nchw_conv() else {
            return false;
        };
        supports_problem(problem) && ImplicitGemmGeometry::from_tile(problem, tile, gpu).is_some()
    }

    fn work(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> UnitWork {
        let problem = convolution::expect_conv(problem);
        UnitWork {
            launches: vec![LaunchWork {
                role: convolution::role(false),
                work: ImplicitGemmGeometry::of_supported(problem, tile, gpu)
                    .work(problem, Problem::Conv(*problem).bytes() as f64),
            }],
            zeroed_bytes: None,
        }
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> Blueprint {
        let problem = convolution::expect_conv(problem);
        let sizes = ImplicitGemmGeometry::of_supported(problem, tile, gpu);
        let layout = layout(problem, &sizes);
        let kernel = kernel(problem, &sizes, &layout);
        convolution::blueprint(problem, 1, kernel, layout)
    }
}

/// Whether the scheme can compute a problem with the precision that it requires.
fn supports_problem(problem: &ConvProblem) -> bool {
    let shape = &problem.shape;
    let step = KStep::for_shape(shape);
    let enough = shape.c >= MMA_K / 2 || KStep::FEW_CHANNELS.contains(&shape.c);
    let taps = shape.r * shape.s.next_multiple_of(step.columns);
    supports_tiling(problem) && enough && supports_mma(problem, taps)
}

/// Heights and widths of output tiles of at most `most` pixels that waste few of them: entire rows, halves of rows, and small
/// rectangles.
pub(super) fn tile_shapes(out_h: u32, out_w: u32, most: u32) -> Vec<(u32, u32)> {
    let mut found = Vec::new();
    for tw in [4, 7, 8, 14, 16, 28, 32, 56] {
        if tw > out_w.next_multiple_of(8).max(8) {
            continue;
        }
        for th in [1, 2, 3, 4, 7, 8, 14, 16] {
            let pixels = th * tw;
            if th > out_h || !(4..=most).contains(&pixels) {
                continue;
            }
            let computed = u64::from(out_h.div_ceil(th))
                * u64::from(out_w.div_ceil(tw))
                * u64::from(pixels.next_multiple_of(MMA_N));
            found.push((computed, (th, tw)));
        }
    }
    let least = found
        .iter()
        .map(|&(computed, _)| computed)
        .min()
        .unwrap_or(0);
    found
        .into_iter()
        .filter(|&(computed, _)| computed * 10 <= least * 16)
        .map(|(_, tile)| tile)
        .collect()
}

/// `[O/TN][I/chunk][TN/16][chunk/16][R][S]` of 16x16 matrices, each in the fragment order of the tensor cores' lanes, in 16-bit
/// numbers. The weights that a block stages for a chunk are contiguous. With few channels `[O/TN][TN/16][R][S/4]`; the K side of
/// each matrix is then one channel quad of four filter columns.
fn layout(problem: &ConvProblem, sizes: &ImplicitGemmGeometry) -> WeightLayout {
    let shape = &problem.shape;
    let dim = |axis, count, step| LayoutDim { axis, count, step };
    let tn = sizes.tn();
    let step = KStep::for_shape(shape);
    let [chunk_groups, rows, columns] = sizes.counts(problem);
    // Elements of a K step along K, one for each of four lanes: channel quads, or filter columns if there are few channels.
    let elements = match step.columns {
        1 => dim(Axis::I, 4, 4),
        columns => dim(Axis::S, columns, 1),
    };
    WeightLayout {
        source: problem.shape.weight(),
        dims: vec![
            dim(Axis::O, shape.n.div_ceil(tn), tn),
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
        ]
        .into(),
        filter: Filter::Taps,
        transform: match problem.precision {
            Precision::Bf16 => Transform::Bf16,
            _ => Transform::Fp16 {
                run: MMA_M * MMA_K,
                terms: sizes.split_terms,
            },
        },
        prologue_channels: Problem::Conv(*problem).scale_shift_channels(),
    }
}

/// How the input tile of a chunk is loaded.
struct Staging {
    /// Rows and columns of the input tile.
    input: [u32; 2],
    /// Columns of one load.
    x_vector: u32,
    /// Staged columns to the left of the output tile's first column; a multiple of `x_vector` to keep loads aligned.
    aligned_pad_left: u32,
    /// Load positions of all threads: `x_vector` columns of four channels each.
    items: u32,
}

impl Staging {
    /// Doubles the width of the loads while the narrower ones occupy more than half of the threads.
    fn new(problem: &ConvProblem, tile: [u32; 2], quads: u32, threads: u32) -> Self {
        let shape = &problem.shape;
        let reach = |axis: usize, taps: u32| {
            (tile[axis] - 1) * shape.stride[axis] + (taps - 1) * shape.dilation[axis] + 1
        };
        // Taps after the end of a filter row have zero weights.
        let filter_row = shape.s.next_multiple_of(KStep::for_shape(shape).columns);
        let (rows, columns) = (reach(0, shape.r), reach(1, filter_row));
        let staging = |x_vector: u32| {
            let aligned_pad_left = shape.padding.left.next_multiple_of(x_vector);
            let row_len =
                (columns + aligned_pad_left - shape.padding.left).next_multiple_of(x_vector);
            Self {
                input: [rows, row_len],
                x_vector,
                aligned_pad_left,
                items: quads * rows * row_len / x_vector,
            }
        };
        let aligned = |x_vector: u32| {
            shape.batch == 1
                && shape.w.is_multiple_of(x_vector)
                && (tile[1] * shape.stride[1]).is_multiple_of(x_vector)
        };
        let mut found = staging(1);
        for x_vector in [2, 4] {
            if aligned(x_vector) && 2 * found.items > threads {
                found = staging(x_vector);
            }
        }
        found
    }
}

/// Whether the loop over `steps` K steps of a warp in a chunk is unrolled; each has products for `tiles` MMA tiles. A single
/// chunk in fp32 is worth more code, because nothing else hides the loads at the start of a loop iteration. (On an H200
/// 160,96,28,28 by `h4w28m1wm2wp2wk2cl5cg2s1` takes 4.75 us unrolled and 6.08 us in a loop; layers with 7x7 filters take a sixth
/// less time.) Several chunks are iterations of the chunk loop, and more code was slightly slower.
fn unrolls_steps_of_chunk(chunks: u32, steps: u32, tiles: u32, split_terms: u32) -> bool {
    /// Maximum number of unrolled `mma.sync` instructions of a single chunk.
    const OF_SINGLE: u32 = 384;
    unrolls(steps, tiles, split_terms)
        || split_terms == 2 && chunks == 1 && 3 * steps * tiles <= OF_SINGLE
}

/// Chunks of each block of a cluster, with `chunk_groups` of the `all_groups` channel groups in a chunk. `None` if a block would
/// have only padding, or if the padding would exceed an eighth of the channel groups. (If no padding were allowed, channel counts
/// such as 16 x 31 could hardly be split.)
fn chunks(all_groups: u32, cluster: u32, chunk_groups: u32) -> Option<u32> {
    let chunks = all_groups.div_ceil(cluster * chunk_groups);
    let of_block = chunks * chunk_groups;
    let fits = (cluster - 1) * of_block < all_groups
        && 8 * (cluster * of_block - all_groups) <= all_groups;
    fits.then_some(chunks)
}

fn kernel(
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
    let bf16 = problem.precision == Precision::Bf16;
    let context = context(&ImplicitGemmContext {
        c: shape.c,
        h: shape.h,
        w: shape.w,
        few_channels: step.columns > 1,
        stride_h: shape.stride[0],
        stride_w: shape.stride[1],
        pad_top: shape.padding.top,
        aligned_pad_left: sizes.aligned_pad_left,
        dilation_w: shape.dilation[1],
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
        checks_c: step.columns == 1 && all_chunks * 4 * quads != shape.c,
        checks_each_c: !shape.c.is_multiple_of(4),
        checks_pixel: !pixels.is_multiple_of(MMA_N),
        stages: sizes.tile.stages,
        refills_stages: sizes.tile.cluster > 1 || sizes.chunks > sizes.tile.stages,
        m_chunk_weights,
        chunk_weights,
        weight_copies: WeightCopies::new(chunk_weights, threads),
        warp_max_at: sizes.tile.stages * chunk_weights
            + quads * sizes.plane * 2 * sizes.split_terms,
        steps: StepOrder::new(
            steps,
            "warp_k",
            unrolls_steps_of_chunk(
                sizes.chunks,
                counts.iter().product::<u32>() / sizes.tile.warps_k,
                sizes.tile.m_tiles * sizes.p_tiles,
                sizes.split_terms,
            ),
        ),
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
        to_pair: if bf16 {
            "tdc_to_bf16x2"
        } else {
            "tdc_to_fp16x2"
        },
        mma: if bf16 { "tdc_mma_bf16" } else { "tdc_mma_f16" },
        scaled: !bf16,
        scales_input: matches!(problem.precision, Precision::Fp32 | Precision::Tf32),
        dequant_scale_at: layout.weight_len() - layout.dequant_scale_len(),
        sums: sizes.sums.context(problem, sizes.staged),
        fused_ops: FusedOpsContext::new(problem, layout, false),
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
        device: device_parts(problem.precision, sizes.tile.cluster > 1),
        args: convolution::args(problem, false),
        work: sizes.work(problem, Problem::Conv(*problem).bytes() as f64),
    }
}
