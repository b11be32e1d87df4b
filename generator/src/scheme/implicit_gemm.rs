//! `implicit_gemm`: a convolution as a matrix product on the tensor cores, in any precision.
//!
//! Output channels are rows, output pixels are columns, and the sum runs over the filter's taps and groups of 16 input channels;
//! the matrix of shifted inputs is never built. fp32 is split in two fp16 numbers, what rounding to the first leaves being the
//! second, and three products of four are added up: 22 bits of each operand. In tf32 and fp16 the first number is enough: its
//! 11 bits are those of tf32. Powers of two keep fp16 in range, one for each output channel of the weights, found when they
//! are packed, and one for each staged chunk of the input, found as it is loaded; in tf32 it is that of the largest value so far,
//! which the sums follow. So the error is relative to the largest value of a tile, and an infinite input spoils its whole tile. In
//! fp16 inputs have the range of fp16 and need no scale, in bf16, whose range is that of fp32, weights need none either.
//!
//! A block stages the input tile of a chunk of channels as halves, its weights by asynchronous copies that begin before the
//! launch ahead has ended. Warps split output channels, pixels and the sum; blocks of a cluster split the sum further. Shares
//! are added through shared memory in a fixed order. Tensor cores cut sums off instead of rounding: after [`PROMOTION_INTERVAL`](super::tensor_core::PROMOTION_INTERVAL) steps a
//! partial sum is added in fp32, which keeps the error within twice that of a plain fp32 sum. With operands of one part nobody
//! would see it, and the tensor cores add up everything.
//!
//! What is staged of a pixel is an element of four channels, and one load gives a lane its operands of a step: which channels its
//! registers stand for is a matter of how the weights are packed. Where a step finds its operands is known when the text is made,
//! but for what depends on the warp: an address found step by step would take longer than the products.
//!
//! The 16 terms of a step are 16 channels of a pixel. The first layers of networks have three: there a step's terms are four
//! pixels side by side, of one element each, and filters are packed with zeros behind their rows ([`Step`]).

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
    Blueprint, KernelBlueprint, LaunchWork, MAX_GRID, Scheme, Tile, TileField, UnitWork, context,
    tile_numbers,
};
use crate::cost::{KernelWork, TiledWork};
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

/// Tiles of sums that a warp holds at most, over the parts of a value: 16 channels of 8 pixels each, four registers. With two parts
/// each is there twice, as a sum in fp32 and as one of the tensor cores.
const MAX_SUMS: u32 = 32;

/// Tiles of sums at most for the smaller products to have a sum of their own.
const MAX_SEPARATE_TILES: u32 = 2;

/// What the 16 terms of a step are: so many channels, of so many pixels side by side.
#[derive(Debug, Clone, Copy)]
struct KStep {
    channels: u32,
    columns: u32,
}

impl KStep {
    /// Channels of the narrowest inputs, and the most of what is one element: with fewer or more the step would be mostly padding.
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

    /// Steps of a chunk of so many groups of channels: of the groups, rows of the filter, its columns.
    fn counts(self, chunk_groups: u32, shape: &ConvShape) -> [u32; 3] {
        [chunk_groups, shape.r, shape.s.div_ceil(self.columns)]
    }

    /// Shares of a chunk's steps that warps are tried with.
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
    /// The terms of a step are columns, of one element each.
    few_channels: bool,
    stride_h: u32,
    stride_w: u32,
    pad_top: u32,
    /// Columns between a tile's first and the first that is staged.
    aligned_pad_left: u32,
    dilation_w: u32,
    m_tiles: u32,
    p_tiles: u32,
    warps: u32,
    warps_m: u32,
    warps_p: u32,
    warps_k: u32,
    chunks: u32,
    /// Chunks of the whole sum.
    all_chunks: u32,
    quads: u32,
    rows: u32,
    row_len: u32,
    plane: u32,
    /// Where the first staged column that a pixel reads lies.
    first_column: u32,
    x_vector: u32,
    x_type: &'static str,
    x_elements: &'static [&'static str],
    items: u32,
    /// Loads of a plane, and of all planes.
    positions: u32,
    all_items: u32,
    checks_items: bool,
    checks_c: bool,
    checks_each_c: bool,
    checks_pixel: bool,
    stages: u32,
    refills_stages: bool,
    /// Packed values of a chunk for 16 output channels and for a block.
    m_chunk_weights: u32,
    chunk_weights: u32,
    #[serde(flatten)]
    weight_copies: WeightCopies,
    warp_max_at: u32,
    #[serde(flatten)]
    steps: StepOrder,
    hi_lo: bool,
    /// Sum and operands of each product, smallest first.
    split_products: &'static [[&'static str; 3]],
    /// The smaller products have a sum of their own: with few sums those of a step would wait for each other.
    separate_accumulators: bool,
    /// Functions of the prelude: a pair of values rounded, and the product of matrices.
    to_pair: &'static str,
    mma: &'static str,
    /// The weights are scaled, and sums scaled back.
    scaled: bool,
    /// So is the input.
    scales_input: bool,
    dequant_scale_at: usize,
    #[serde(flatten)]
    sums: BlockOutputContext,
    #[serde(flatten)]
    fused_ops: FusedOpsContext,
}

/// A tile's numbers with what follows from them.
struct ImplicitGemmGeometry {
    tile: ImplicitGemmTile,
    p_tiles: u32,
    chunks: u32,
    rows: u32,
    row_len: u32,
    plane: u32,
    /// Columns that are loaded at once, and how many are staged left of those that the padding needs.
    x_vector: u32,
    aligned_pad_left: u32,
    items: u32,
    sums: BlockOutput,
    /// Floats of shared memory that are staged, and all.
    staged: u32,
    shared_floats: u32,
    /// Of a thread, guessed.
    registers: RegisterEstimate,
    blocks: u64,
    /// Parts that a value is split into.
    split_terms: u32,
}

/// What the registers of a thread hold.
struct RegisterModel {
    m_tiles: u32,
    p_tiles: u32,
    /// Steps of a chunk: groups of channels, rows and columns of the filter.
    counts: [u32; 3],
    warps_k: u32,
    chunks: u32,
    /// Values that are loaded ahead, and the places that they come from.
    loaded: u32,
    items: u32,
    prologue: bool,
}

impl RegisterModel {
    /// With two parts. Fitted to what NVRTC 13.0 took for 5800 tiles on sm_90: right in the median, 11 % off in the root mean square.
    /// (Tiles with the same of all these numbers differ by 7 %.)
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

    /// One chain of a single chunk: sums, and operands of all steps, which nothing keeps the compiler from asking for ahead. With more
    /// tiles of sums there are more products for the first of them to wait for.
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

    /// Chains of steps that are added up one after the other, of so many steps of a warp in a chunk.
    fn several_intervals(&self, warp_steps: [u32; 3]) -> u32 {
        let steps: u32 = warp_steps.iter().product();
        let tiles = self.m_tiles * self.p_tiles;
        let sums = 4 * tiles;
        // Partial ones take the same again and, with several steps at once, half as much more.
        let partial = if steps == 1 { sums / 2 } else { sums * 3 / 2 };
        let separate = if tiles <= MAX_SEPARATE_TILES { sums } else { 0 };
        // Operands of a step, and of those behind it as far as the compiler reads ahead.
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

    /// With one part, where the compiler was asked for hundreds of tiles; on the safe side.
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
    /// `None` where the numbers do not fit each other or the problem.
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
            // Eight rows of channels, two pixels of each lane: in different banks.
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
            // Few of those that are let pass spill, and few of those that would not are left out.
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

    /// Of a supported tile.
    fn of_supported(problem: &ConvProblem, tile: &Tile, gpu: &Gpu) -> Self {
        Self::from_tile(problem, tile, gpu).expect("a supported tile")
    }

    fn tn(&self) -> u32 {
        MMA_M * self.tile.m_tiles * self.tile.warps_m
    }

    fn warps(&self) -> u32 {
        self.tile.warps_m * self.tile.warps_p * self.tile.warps_k
    }

    /// Steps of a chunk: of groups of channels, rows of the filter, its columns.
    fn counts(&self, problem: &ConvProblem) -> [u32; 3] {
        KStep::for_shape(&problem.shape).counts(self.tile.chunk_groups, &problem.shape)
    }

    /// Times four channels of a chunk.
    fn quads(&self, problem: &ConvProblem) -> u32 {
        self.tile.chunk_groups * KStep::for_shape(&problem.shape).channels / 4
    }

    /// Packed values of a chunk for 16 output channels.
    fn m_chunk_weights(&self, problem: &ConvProblem) -> u32 {
        self.counts(problem).iter().product::<u32>() * 128 * self.split_terms
    }

    /// For the estimate.
    fn work(&self, problem: &ConvProblem) -> KernelWork {
        let shape = &problem.shape;
        let threads = 32 * self.warps();
        let few_channels = KStep::for_shape(shape).columns > 1;
        let counts = self.counts(problem);
        let split = split_steps_over_warps(counts, self.tile.warps_k).unwrap_or([1; 3]);
        let warp_steps = [0, 1, 2].map(|axis| counts[axis] / split[axis]);
        let [m_tiles, p_tiles, split_terms] =
            [self.tile.m_tiles, self.p_tiles, self.split_terms].map(f64::from);
        let products = m_tiles * p_tiles * (2.0 * split_terms - 1.0);
        let (adding, chained) = match self.split_terms {
            2 if self.separate_accumulators() => (8.0 * m_tiles * p_tiles, 2.0),
            2 => (4.0 * m_tiles * p_tiles, 3.0),
            _ => (0.0, 1.0),
        };
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
        let quads = self.quads(problem);
        let elements = quads * self.rows * self.row_len;
        let chunk_weights = self.tile.m_tiles * self.tile.warps_m * self.m_chunk_weights(problem);
        let places = self.rows * self.row_len / self.x_vector;
        // A warp's load is 32 pixels of one channel, or eight vectors of each of four.
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
        // Pixels that lie apart fall on each other's banks, unless what lies between them is read as well.
        let read_apart = match few_channels {
            true => 1.0,
            false => f64::from(shape.stride[1].min(4)),
        };
        // Columns of vectors do so in pairs, those of one channel group all.
        let staged_apart = match (few_channels, self.x_vector) {
            (true, columns) => f64::from(columns),
            (false, columns) => f64::from(columns.min(2)),
        };
        KernelWork {
            blocks: self.blocks,
            threads,
            registers: self.registers.allocated,
            shared_bytes: 4 * self.shared_floats,
            dram_bytes: Problem::Conv(*problem).bytes() as f64,
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
                mma_per_step: products,
                dependent_mma: chained,
                instructions_per_step: m_tiles * split_terms
                    + p_tiles
                    + products
                    + adding / f64::from(promotion_interval),
                wavefronts_per_step: 4.0 * m_tiles * split_terms
                    + p_tiles * 2.0 * split_terms * read_apart,
                positions: f64::from(self.items),
                loads_per_position: loads,
                values_per_position: f64::from(4 * self.x_vector),
                divisions_per_position: index_divisions(places, self.row_len / self.x_vector),
                cache_lines: traffic.lines,
                staged_wavefronts: f64::from(elements * self.split_terms) / 16.0 * staged_apart,
                input_bytes: traffic.bytes,
                weight_bytes: f64::from(4 * chunk_weights),
                accumulators: 4.0 * m_tiles * p_tiles,
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

    /// Whether the smaller products have a sum of their own.
    fn separate_accumulators(&self) -> bool {
        self.split_terms == 2 && self.tile.m_tiles * self.p_tiles <= MAX_SEPARATE_TILES
    }
}

/// Every tile that fits a GPU, with its rough time; none if the GPU has only the kernel's fallback.
fn rated_tiles(problem: &Problem, gpu: &Gpu) -> Vec<(f64, ImplicitGemmTile)> {
    let Some(problem) = problem.nchw_conv() else {
        return Vec::new();
    };
    if !gpu.has_mma() || !supports_problem(problem) {
        return Vec::new();
    }
    let shape = &problem.shape;
    let (out_h, out_w) = (shape.out_h(), shape.out_w());
    let step = KStep::for_shape(shape);
    let all_groups = shape.c.div_ceil(step.channels);
    let rough = RoughTime::new(gpu);
    let mut found = Vec::new();
    let split_terms = split_terms(problem.precision);
    for (th, tw) in tile_shapes(out_h, out_w, 512 / split_terms) {
        let pixel_tiles = (th * tw).div_ceil(MMA_N);
        for (m_tiles, warps_m) in channel_tiles(shape.n, 5 - split_terms) {
            for warps_p in divisors(pixel_tiles, &[1, 2, 4, 7, 8]) {
                let sums = m_tiles * pixel_tiles / warps_p * split_terms;
                if warps_m * warps_p > MAX_WARPS || sums > MAX_SUMS {
                    continue;
                }
                for cluster in 1..=gpu.max_cluster() {
                    for chunk_groups in [1, 2, 3, 4, 5, 6, 8] {
                        let Some(chunks) = chunks(all_groups, cluster, chunk_groups) else {
                            continue;
                        };
                        for &warps_k in step.warps_k() {
                            for stages in stages(chunks) {
                                let tile = ImplicitGemmTile {
                                    th,
                                    tw,
                                    m_tiles,
                                    warps_m,
                                    warps_p,
                                    warps_k,
                                    cluster,
                                    chunk_groups,
                                    stages,
                                };
                                if let Some(sizes) = ImplicitGemmGeometry::new(problem, tile, gpu)
                                    && sizes.warps() > 1
                                    && !sizes.registers.spills
                                {
                                    found.push((rough.of(&sizes.work(problem)), tile));
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    found
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
                work: ImplicitGemmGeometry::of_supported(problem, tile, gpu).work(problem),
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

/// Whether the scheme can compute a problem, and as precisely as it must be.
fn supports_problem(problem: &ConvProblem) -> bool {
    let shape = &problem.shape;
    let step = KStep::for_shape(shape);
    let enough = shape.c >= MMA_K / 2 || KStep::FEW_CHANNELS.contains(&shape.c);
    let taps = shape.r * shape.s.next_multiple_of(step.columns);
    supports_tiling(problem) && enough && supports_mma(problem, taps)
}

/// Heights and widths of output tiles of so many pixels at most that waste few: whole rows, halves of them, and small rectangles.
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

/// `[O/TN][I/chunk][TN/16][chunk/16][R][S]` of 16x16 matrices, each as the tensor cores' lanes hold it, in numbers of 16 bits: what
/// a block stages of a chunk lies in one piece. With few channels `[O/TN][TN/16][R][S/4]`, where the matrices' columns are four
/// columns of the filter.
fn layout(problem: &ConvProblem, sizes: &ImplicitGemmGeometry) -> WeightLayout {
    let shape = &problem.shape;
    let dim = |axis, count, step| LayoutDim { axis, count, step };
    let tn = sizes.tn();
    let step = KStep::for_shape(shape);
    let [chunk_groups, rows, columns] = sizes.counts(problem);
    // Which of a step's elements a lane holds.
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
            // A lane: a row, and four channels; its registers: two of them, the row eight rows on, the two others.
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
    /// Rows and columns.
    input: [u32; 2],
    /// Columns that are loaded at once.
    x_vector: u32,
    /// Columns that are staged left of the output tile's first, so that what is loaded at once is aligned.
    aligned_pad_left: u32,
    /// What all threads load: so many columns of four channels.
    items: u32,
}

impl Staging {
    /// With the widest loads that give most threads something to do.
    fn new(problem: &ConvProblem, tile: [u32; 2], quads: u32, threads: u32) -> Self {
        let shape = &problem.shape;
        let reach = |axis: usize, taps: u32| {
            (tile[axis] - 1) * shape.stride[axis] + (taps - 1) * shape.dilation[axis] + 1
        };
        // What lies behind a filter's row is multiplied with zeros.
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

/// Whether the loop over so many steps of a warp in a chunk is unrolled, each with products for so many tiles. A single chunk of fp32
/// is worth longer text: nothing else hides the loads that a round of the loop begins with. (On an H200 160,96,28,28 by
/// `h4w28m1wm2wp2wk2cl5cg2s1` takes 4.75 us so, 6.08 in a loop, and layers with 7x7 filters a sixth less.) Of several chunks each is a
/// round of the loop around, and longer text was a little slower.
fn unrolls_steps_of_chunk(chunks: u32, steps: u32, tiles: u32, split_terms: u32) -> bool {
    /// Products of matrices at most.
    const OF_SINGLE: u32 = 384;
    unrolls(steps, tiles, split_terms)
        || split_terms == 2 && chunks == 1 && 3 * steps * tiles <= OF_SINGLE
}

/// Chunks of so many groups of channels, of those that there are, that each block of a cluster takes; `None` where a block would
/// have none but padding, or more than an eighth of all that is computed would be padding. (Without any, channels such as 16 x 31
/// could hardly be split.)
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
        work: sizes.work(problem),
    }
}
