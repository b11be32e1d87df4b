//! `winograd`: 3x3 convolutions by Winograd's minimal filtering F(m x m, 3 x 3) on the tensor cores (Lavin and Gray, section 4).
//!
//! A window of (m + 2) x (m + 2) inputs gives m x m outputs with one product per point, `A^T [(G g G^T) . (B^T d B)] A`: F(2x2)
//! needs 4 products for each output instead of 9, F(4x4) 2.25. For each point the products form a matrix product over the input
//! channels, output channels times windows. Its arithmetic is that of `implicit_gemm`: operands are rounded to scaled fp16
//! numbers, to two of them in fp32 (hi/lo split), or to bf16.
//!
//! One kernel computes everything except the filter transform, which is applied when the weights are packed. A block stages the
//! input tile of a chunk of channels. A warp computes one row of points for some output channels and windows. Each lane reads the
//! window rows that contribute to this row of points (two or more) and transforms them in fp32; the result is the lane's fragment
//! of the MMA operand. The output transform of columns is computed in registers. That of rows is a sum over warps and part of the
//! reduction in shared memory.
//!
//! Sums over channels are short: a partial accumulator has at most [`PROMOTION_INTERVAL`] K steps, and is then transformed and
//! added in fp32. The transforms cost accuracy. The table has relative errors in the L2 norm against float64 for random inputs
//! and C = 8 to 512, from an emulation of the truncation by tensor cores:
//!
//! | | fp32 | one fp16 number | bf16 |
//! |---|---|---|---|
//! | F(2x2) | 1.5e-7 to 4.4e-7 | 5.0e-4 | 4.1e-3 |
//! | F(4x4) | 1.0e-6 to 2.1e-6 | 3.3e-3 | 2.6e-2 |
//!
//! So F(2x2) is within the error bound of every precision, and F(4x4) within that of fp16. In other precisions F(4x4) needs a
//! `tolerance` that allows its error.

use super::convolution;
use super::info::{SchemeInfo, Source};
use super::tensor_core::{
    Blocking, GemmContext, MAX_WARPS, MMA_K, MMA_M, MMA_N, PROMOTION_INTERVAL, channel_tiles,
    device_parts, divisors, split_terms, stages, step_weights, supports_mma,
};
use super::tiling::{BlockOutput, RoughTime, fastest, input_tile, supports_tiling};
use super::{
    Blueprint, KernelBlueprint, LaunchWork, MAX_GRID, Scheme, Tile, TileField, TileSearch,
    UnitWork, context, tile_numbers,
};
use crate::cost::{KernelWork, kernel_us};
use crate::gpu::{Gpu, MAX_REGISTERS, PORTABLE_CLUSTER, REGISTERS_PER_BLOCK, WinogradConstants};
use crate::ir::{ConvProblem, Precision, Problem};
use serde::Serialize;
use tdc_runtime::{Filter, WeightLayout, Winograd};

/// See the [module](self).
pub struct WinogradScheme;

tile_numbers! {
    /// A tile of the [module](self)'s scheme.
    struct WinogradTile {
        /// The m of F(m x m, 3 x 3): outputs of a window along each axis, 2 or 4.
        winograd_m: "f",
        /// Output rows of a block.
        th: "h",
        /// Output columns of a block.
        tw: "w",
        /// MMA tiles of a warp along the output channels (16 channels each).
        m_tiles: "m",
        /// Warps side by side along the output channels.
        warps_m: "wm",
        /// Warps along the windows.
        warps_p: "wp",
        /// Warps that split K (split-K inside the block).
        warps_k: "wk",
        /// Blocks of a cluster, which split the input channels.
        cluster: "cl",
        /// Groups of 16 input channels of a chunk.
        chunk_groups: "cg",
        /// Pipeline stages (shared-memory buffers) of the packed weights.
        stages: "s",
    }
}

/// The input and output transforms of F(m x m, 3 x 3), which the kernel computes.
struct Transforms {
    /// B^T: one row per point, one column per input. The input of the last 1 in each row is added unscaled, the other inputs are
    /// multiplied by their coefficients.
    input: &'static [&'static [i8]],
    /// A^T: one row per output, one column per point.
    output: &'static [&'static [i8]],
    /// The growth bits: the base-2 logarithm, rounded up, of the square of the largest sum of magnitudes in a row of B^T.
    growth_bits: u32,
}

/// The matrices B^T and A^T that belong to the filter transform [`Winograd::filter`].
fn transforms(winograd: Winograd) -> Transforms {
    match winograd {
        Winograd::F2 => Transforms {
            input: &[
                &[1, 0, -1, 0],
                &[0, 1, 1, 0],
                &[0, -1, 1, 0],
                &[0, 1, 0, -1],
            ],
            output: &[&[1, 1, 1, 0], &[0, 1, -1, -1]],
            growth_bits: 2,
        },
        Winograd::F4 => Transforms {
            input: &[
                &[4, 0, -5, 0, 1, 0],
                &[0, -4, -4, 1, 1, 0],
                &[0, 4, -4, -1, 1, 0],
                &[0, -2, -1, 2, 1, 0],
                &[0, 2, -1, -2, 1, 0],
                &[0, 4, 0, -5, 0, 1],
            ],
            output: &[
                &[1, 1, 1, 1, 1, 0],
                &[0, 1, -1, 2, -2, 0],
                &[0, 1, 1, 4, 4, 0],
                &[0, 1, -1, 8, -8, 1],
            ],
            growth_bits: 7,
        },
    }
}

impl Transforms {
    /// Inputs that a point adds up, at most.
    fn terms(&self) -> usize {
        let terms = |row: &&[i8]| row.iter().filter(|&&factor| factor != 0).count();
        self.input.iter().map(terms).max().unwrap_or(0)
    }

    /// For each point, the input that is added unscaled.
    fn unit_rows(&self) -> Vec<usize> {
        let last_one = |row: &&[i8]| row.iter().rposition(|&factor| factor == 1);
        self.input.iter().filter_map(last_one).collect()
    }

    /// For each point, the other inputs with their coefficients. All lists have the same length; missing terms have the
    /// coefficient 0.
    fn scaled_rows(&self) -> Vec<Vec<(usize, i8)>> {
        let others = |(row, plain): (&&[i8], usize)| -> Vec<(usize, i8)> {
            let terms = row.iter().copied().enumerate();
            terms
                .filter(|&(input, factor)| factor != 0 && input != plain)
                .collect()
        };
        let mut found: Vec<_> = self
            .input
            .iter()
            .zip(self.unit_rows())
            .map(others)
            .collect();
        let most = found.iter().map(Vec::len).max().unwrap_or(0);
        for (terms, plain) in found.iter_mut().zip(self.unit_rows()) {
            terms.resize(most, (plain, 0));
        }
        found
    }
}

/// The sum of `factors` times named values as a CUDA expression in fp32. Values with factor 1 are added, those with factor -1
/// subtracted, and the others follow as fused multiply-adds. At least one factor is 1.
fn linear_combination(factors: &[i8], name: impl Fn(usize) -> String) -> String {
    let mut sum = String::new();
    for (sign, operator) in [(1, " + "), (-1, " - ")] {
        for index in (0..factors.len()).filter(|&index| factors[index] == sign) {
            if sum.is_empty() && sign == 1 {
                sum = name(index);
            } else {
                sum += &format!("{operator}{}", name(index));
            }
        }
    }
    for (index, &factor) in factors.iter().enumerate() {
        if factor.abs() > 1 {
            sum = format!("fmaf({factor}.0f, {}, {sum})", name(index));
        }
    }
    sum
}

/// A CUDA expression that selects the warp's entry of `values`, which has one for each row of points, by the variable
/// `point_row`.
fn select_by_point_row(values: &[String]) -> String {
    let count = |value: &&String| values.iter().filter(|other| other == value).count();
    let Some(usual) = values.iter().max_by_key(count) else {
        return String::new();
    };
    let others = values.iter().enumerate();
    let choices: String = others
        .filter(|&(_, value)| value != usual)
        .map(|(row, value)| format!("point_row == {row} ? {value} : "))
        .collect();
    choices + usual
}

#[derive(Serialize)]
struct WinogradContext {
    /// Outputs of a window, and points, along each axis.
    winograd_m: u32,
    points: u32,
    windows: u32,
    windows_w: u32,
    checks_window: bool,
    warps_p: u32,
    warps_k: u32,
    pitch: u32,
    plane: u32,
    /// Columns by which the staged input is shifted to align windows to 16 bytes, and the first window's column after the shift.
    column_offset: u32,
    first_window: u32,
    /// K steps of a warp in a chunk.
    steps: u32,
    /// Input transform of rows, for the warp's row of points.
    unit_row: String,
    scaled_rows: Vec<String>,
    row_coefficients: Vec<String>,
    /// Input transform of columns: expressions for both channels of a pair, for each point.
    column_transform: Vec<[String; 2]>,
    /// Output transform of columns: an expression for each output column, of the warp's partial accumulators.
    output_columns: Vec<String>,
    /// Output transform of rows: the coefficient of each output row, for the warp's row of points.
    output_row_coefficients: Vec<String>,
    #[serde(flatten)]
    matrix: GemmContext,
}

/// A tile and the sizes that follow from it for a problem.
struct WinogradGeometry {
    tile: WinogradTile,
    winograd: Winograd,
    blocking: Blocking,
    pitch: u32,
    plane: u32,
    sums: BlockOutput,
    /// Floats of shared memory: of the staging buffers, and in total.
    staged: u32,
    shared_floats: u32,
    /// Estimated registers of a thread.
    registers: u32,
    blocks: u64,
    /// Terms of each operand: 2 with a hi/lo split, else 1.
    split_terms: u32,
}

impl WinogradGeometry {
    /// `None` if the tile is invalid, or does not fit the problem or the GPU.
    fn new(problem: &ConvProblem, tile: WinogradTile, gpu: &Gpu) -> Option<Self> {
        let WinogradTile {
            winograd_m,
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
            || tile.numbers()[3..].iter().any(|&number| number > 16)
        {
            return None;
        }
        let winograd = supported_variants(problem).find(|winograd| winograd.m() == winograd_m)?;
        let points = winograd.points();
        let chunks = Blocking::chunks(problem, cluster, chunk_groups)?;
        let windows = (th / winograd_m) * (tw / winograd_m);
        let window_tiles = windows.div_ceil(MMA_N);
        if !th.is_multiple_of(winograd_m)
            || !tw.is_multiple_of(winograd_m)
            || !window_tiles.is_multiple_of(warps_p)
            || !chunk_groups.is_multiple_of(warps_k)
            || chunk_groups / warps_k > PROMOTION_INTERVAL
        {
            return None;
        }
        let blocking = Blocking {
            th,
            tw,
            m_tiles,
            p_tiles: window_tiles / warps_p,
            warps_m,
            warps: points * warps_m * warps_p * warps_k,
            cluster,
            chunk_groups,
            chunks,
            stages,
            filter: Filter::Winograd(winograd),
        };
        let [rows, row] = blocking.input_tile(problem);
        if blocking.warps > MAX_WARPS
            || cluster > PORTABLE_CLUSTER
            || stages > chunks
            || rows * row > 1 << 13
        {
            return None;
        }
        let split_terms = split_terms(problem.precision);
        // Rows start at multiples of 16 bytes. With F(2x2), reads of two adjacent windows from four channel pairs map to different
        // groups of four banks.
        let pitch = (row + column_offset(problem, &blocking)).next_multiple_of(2);
        let plane = (rows * pitch).saturating_sub(4).next_multiple_of(16) + 4;
        let staged = stages * blocking.chunk_weights(problem)
            + 2 * blocking.pairs() * plane
            + 2 * blocking.warps;
        let sums = BlockOutput {
            tile: [th, tw, blocking.tn()],
            group_n: problem.shape.n,
            threads: blocking.threads(),
            cluster,
            k_splits: (points - 1) * warps_k,
            partial_rows: blocking.tn(),
            partial_pitch: (th * tw + 23) / 32 * 32 + 8,
        };
        let shared_floats = sums.shared_floats(problem, staged);
        let grid = sums.grid(problem);
        // Registers: accumulators, operands, prefetched input values, addresses. An MMA tile has four partial accumulators for
        // each point. If a warp has one K step per chunk, points are transformed one after another, and it has four for each
        // output column. With several chunks, four accumulators for each output column are kept from chunk to chunk.
        let folded = if chunk_groups > warps_k {
            points
        } else {
            winograd_m
        };
        let kept = if chunks > 1 { winograd_m } else { 0 };
        let loaded = blocking.loaded(problem);
        let ahead = if chunks > 1 { loaded } else { 0 };
        let registers = 4 * m_tiles * blocking.p_tiles * (folded + kept)
            + split_terms * (2 * points + 1) * blocking.p_tiles
            + 4 * split_terms * m_tiles
            + ahead
            + 40;
        let fits = loaded <= 64
            && registers <= MAX_REGISTERS
            && registers * blocking.threads() <= REGISTERS_PER_BLOCK
            && shared_floats <= gpu.shared_per_block / 4
            && grid[1] <= MAX_GRID;
        fits.then_some(Self {
            tile,
            winograd,
            blocking,
            pitch,
            plane,
            sums,
            staged,
            shared_floats,
            // The compiler uses an eighth more when it unrolls.
            registers: (registers * 9 / 8).min(MAX_REGISTERS),
            blocks: grid.iter().map(|&size| u64::from(size)).product(),
            split_terms,
        })
    }

    fn from_tile(problem: &ConvProblem, tile: &Tile, gpu: &Gpu) -> Option<Self> {
        Self::new(problem, WinogradTile::from_tile(tile)?, gpu)
    }

    /// The sizes of a supported tile.
    fn of_supported(problem: &ConvProblem, tile: &Tile, gpu: &Gpu) -> Self {
        Self::from_tile(problem, tile, gpu).expect("a supported tile")
    }

    /// K steps of a warp in one chunk.
    fn steps(&self) -> u32 {
        self.blocking.chunk_groups / self.tile.warps_k
    }

    /// Work of the launch, for the cost model. `dram_bytes` are those of the problem.
    fn work(&self, problem: &ConvProblem, dram_bytes: f64, gpu: &Gpu) -> KernelWork {
        let Blocking {
            m_tiles,
            p_tiles,
            warps,
            chunks,
            chunk_groups,
            ..
        } = self.blocking;
        let model = &gpu.cost_model().winograd;
        let threads = self.blocking.threads();
        let step = StepWork::new(self.winograd, m_tiles, p_tiles, self.split_terms);
        let steps = f64::from(chunks * self.steps());
        let blocks = self.blocks as f64;
        let weights = f64::from(chunks * self.blocking.chunk_weights(problem));
        let [rows, row] = self.blocking.input_tile(problem);
        let values = f64::from(chunks * chunk_groups * MMA_K) * f64::from(rows * row);
        let items = chunks * self.blocking.items(problem);
        let sums = f64::from(self.blocking.tn() * self.sums.partial_pitch);
        // Issue clocks of a warp on its SM partition: for partial accumulators, for staging, and for the reduction of partial sums.
        let folds = f64::from(chunks * 4 * m_tiles * p_tiles) * 3.0 * step.points;
        let vector_x = self.blocking.vector_x(problem);
        let staging = f64::from(items) * if vector_x { 112.0 } else { 56.0 };
        let thread_sums = sums / f64::from(threads);
        let reduction = 14.0 * thread_sums * f64::from(self.sums.k_splits + 2);
        KernelWork {
            blocks: self.blocks,
            threads,
            registers: self.registers,
            shared_bytes: 4 * self.shared_floats,
            // Warp instructions, counted as multiply-adds.
            flops: 64.0
                * blocks
                * f64::from(warps)
                * (steps * step.issue + folds + staging + reduction),
            fma_fraction: 1.0,
            mma: blocks * f64::from(warps) * steps * step.products,
            l2_bytes: model.l2_traffic * 4.0 * blocks * (weights + values),
            dram_bytes,
            // Each chunk loads its input from L2; the loads of later chunks overlap with computation.
            l2_round_trips: model.l2_round_trips + model.chunk_round_trips * f64::from(chunks),
            // The latencies of a K step's reads, transforms and products, and of the barriers around staging and reduction.
            latency_clocks: steps * step.latency(model)
                + model.staging_latency * f64::from(items)
                + model.partial_sum_latency * thread_sums * f64::from(self.sums.k_splits + 1),
            cluster: self.blocking.cluster,
            pdl: true,
            ..KernelWork::default()
        }
    }
}

/// The tiles with the same output of a block and of its warps, and the same cluster size.
#[derive(Clone, Copy)]
struct TileGroup {
    winograd: Winograd,
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
        if !gpu.has_mma() {
            return Vec::new();
        }
        let shape = &problem.shape;
        let all_groups = shape.c.div_ceil(MMA_K);
        let mut found = Vec::new();
        for winograd in supported_variants(problem) {
            let winograd_m = winograd.m();
            for (th, tw) in tile_shapes(winograd_m, shape.out_h(), shape.out_w()) {
                let window_tiles = (th / winograd_m * (tw / winograd_m)).div_ceil(MMA_N);
                for (m_tiles, warps_m) in channel_tiles(shape.n, 4) {
                    for warps_p in divisors(window_tiles, &[1, 2, 3, 4]) {
                        let clusters = divisors(all_groups, &[1, 2, 3, 4, 5, 6, 7, 8]);
                        let clusters = clusters.filter(|&size| size <= gpu.max_cluster());
                        found.extend(clusters.map(|cluster| Self {
                            winograd,
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
        }
        found
    }

    /// Its tiles that fit the GPU.
    fn tiles(self, problem: &ConvProblem, gpu: &Gpu) -> impl Iterator<Item = WinogradGeometry> {
        let Self {
            winograd,
            th,
            tw,
            m_tiles,
            warps_m,
            warps_p,
            cluster,
        } = self;
        let block_groups = problem.shape.c.div_ceil(MMA_K) / cluster;
        let tiles = divisors(block_groups, &[1, 2, 3, 4, 5, 6]).flat_map(move |chunk_groups| {
            divisors(chunk_groups, &[1, 2, 3, 4]).flat_map(move |warps_k| {
                stages(block_groups / chunk_groups).map(move |stages| WinogradTile {
                    winograd_m: winograd.m(),
                    th,
                    tw,
                    m_tiles,
                    warps_m,
                    warps_p,
                    warps_k,
                    cluster,
                    chunk_groups,
                    stages,
                })
            })
        });
        tiles.filter_map(|tile| WinogradGeometry::new(problem, tile, gpu))
    }

    /// A lower bound of the predicted times of its tiles, microseconds: the time of a launch that has the transforms, products and
    /// traffic of all of them, no staging, the most warps along K, and room for as many blocks as an SM holds.
    fn lower_bound_us(self, problem: &ConvProblem, dram_bytes: f64, gpu: &Gpu) -> f64 {
        let shape = &problem.shape;
        let block_groups = shape.c.div_ceil(MMA_K) / self.cluster;
        let points = self.winograd.points();
        let windows = (self.th / self.winograd.m()) * (self.tw / self.winograd.m());
        let p_tiles = windows.div_ceil(MMA_N) / self.warps_p;
        let output_warps = points * self.warps_m * self.warps_p;
        let max_warps_k = (MAX_WARPS / output_warps).clamp(1, 4);
        let sums = BlockOutput {
            tile: [self.th, self.tw, MMA_M * self.m_tiles * self.warps_m],
            group_n: problem.shape.n,
            threads: 32 * output_warps,
            cluster: self.cluster,
            k_splits: 1,
            partial_rows: 0,
            partial_pitch: 0,
        };
        let blocks: u64 = sums
            .grid(problem)
            .iter()
            .map(|&size| u64::from(size))
            .product();
        let split_terms = split_terms(problem.precision);
        let step = StepWork::new(self.winograd, self.m_tiles, p_tiles, split_terms);
        let steps = f64::from(block_groups);
        let folds = f64::from(4 * self.m_tiles * p_tiles) * 3.0 * step.points;
        let [rows, row] = input_tile(problem, self.th, self.tw);
        let values = f64::from(block_groups * MMA_K) * f64::from(rows * row);
        let weights = f64::from(block_groups * self.m_tiles * self.warps_m)
            * f64::from(points * points * step_weights(problem.precision));
        let model = &gpu.cost_model().winograd;
        let block_warps = blocks as f64 * f64::from(output_warps);
        let work = KernelWork {
            blocks,
            threads: 32 * output_warps,
            flops: 64.0 * block_warps * (steps * step.issue + folds),
            fma_fraction: 1.0,
            mma: block_warps * steps * step.products,
            l2_bytes: model.l2_traffic * 4.0 * blocks as f64 * (weights + values),
            dram_bytes,
            l2_round_trips: model.l2_round_trips,
            latency_clocks: steps / f64::from(max_warps_k) * step.latency(model),
            cluster: self.cluster,
            pdl: true,
            ..KernelWork::default()
        };
        kernel_us(&work, gpu)
    }
}

/// The work of a warp's K step.
struct StepWork {
    /// MMA products.
    products: f64,
    /// Clocks that a warp occupies its SM partition with everything but the products.
    issue: f64,
    /// Points of the transform along one axis, and products of each that depend on each other.
    points: f64,
    dependent_products: f64,
}

impl StepWork {
    fn new(winograd: Winograd, m_tiles: u32, p_tiles: u32, split_terms: u32) -> Self {
        let points = f64::from(winograd.points());
        let terms = transforms(winograd).terms() as f64;
        let windows =
            points * f64::from(p_tiles) * (2.0 + 5.0 * terms + 6.0 * f64::from(split_terms));
        Self {
            products: points * f64::from(m_tiles * p_tiles * (2 * split_terms - 1)),
            issue: windows + 3.0 * points * f64::from(split_terms * m_tiles) + 28.0,
            points,
            dependent_products: f64::from(2 * split_terms - 1),
        }
    }

    /// Clocks of a step's reads, transforms and products.
    fn latency(&self, model: &WinogradConstants) -> f64 {
        model.step_latency + self.points * self.dependent_products * model.mma_latency
    }
}

/// Every tile that fits the GPU, with its rough time.
fn rated_tiles(problem: &Problem, gpu: &Gpu) -> Vec<(f64, WinogradTile)> {
    let Some(problem) = problem.nchw_conv() else {
        return Vec::new();
    };
    let rough = RoughTime::new(gpu);
    let dram_bytes = Problem::Conv(*problem).bytes() as f64;
    let groups = TileGroup::all(problem, gpu).into_iter();
    let tiles = groups.flat_map(|group| group.tiles(problem, gpu));
    tiles
        .map(|sizes| (rough.of(&sizes.work(problem, dram_bytes, gpu)), sizes.tile))
        .collect()
}

impl Scheme for WinogradScheme {
    fn name(&self) -> &'static str {
        "winograd"
    }

    fn info(&self) -> SchemeInfo {
        SchemeInfo {
            source: Source::Published(
                "Lavin and Gray, Fast Algorithms for Convolutional Neural Networks",
            ),
            precisions: &[
                Precision::Fp32,
                Precision::Tf32,
                Precision::Fp16,
                Precision::Bf16,
            ],
            ..SchemeInfo::own(
                "3x3 convolutions of one group, stride and dilation 1, if the tolerance allows it",
            )
        }
    }

    fn tile_fields(&self) -> &'static [TileField] {
        WinogradTile::FIELDS
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
        let groups = groups
            .map(|group| (group.lower_bound_us(problem, dram_bytes, gpu), group))
            .collect();
        search.best_first(groups, |search, group| {
            for sizes in group.tiles(problem, gpu) {
                let work = sizes.work(problem, dram_bytes, gpu);
                search.offer_launch(sizes.tile, convolution::role(false), work);
            }
        });
    }

    fn supports(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> bool {
        problem
            .nchw_conv()
            .is_some_and(|problem| WinogradGeometry::from_tile(problem, tile, gpu).is_some())
    }

    fn work(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> UnitWork {
        let problem = convolution::expect_conv(problem);
        UnitWork {
            launches: vec![LaunchWork {
                role: convolution::role(false),
                work: WinogradGeometry::of_supported(problem, tile, gpu).work(
                    problem,
                    Problem::Conv(*problem).bytes() as f64,
                    gpu,
                ),
            }],
            zeroed_bytes: None,
        }
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> Blueprint {
        let problem = convolution::expect_conv(problem);
        let sizes = WinogradGeometry::of_supported(problem, tile, gpu);
        let layout = sizes.blocking.layout(problem);
        let kernel = kernel(problem, &sizes, &layout, gpu);
        convolution::blueprint(problem, 1, kernel, layout)
    }
}

/// The largest relative error over the outputs of a layer: that of the [module](self)'s table, with a margin for other inputs.
fn error(winograd: Winograd, precision: Precision) -> f64 {
    match (winograd, precision) {
        (Winograd::F2, Precision::Fp32) => 6e-7,
        (Winograd::F2, Precision::Tf32 | Precision::Fp16) => 7e-4,
        (Winograd::F2, Precision::Bf16) => 6e-3,
        (Winograd::F4, Precision::Fp32) => 3e-6,
        (Winograd::F4, Precision::Tf32 | Precision::Fp16) => 4.5e-3,
        (Winograd::F4, Precision::Bf16) => 3.5e-2,
    }
}

/// The variants of the algorithm, F(2x2) and F(4x4), that compute a problem with the precision that it requires.
fn supported_variants(problem: &ConvProblem) -> impl Iterator<Item = Winograd> {
    let shape = &problem.shape;
    let fits = [shape.r, shape.s] == [3, 3]
        && shape.stride == [1, 1]
        && shape.dilation == [1, 1]
        // With fewer than 8 channels most of a K step would be padding.
        && shape.c >= MMA_K / 2
        && supports_tiling(problem);
    let (problem, precision) = (*problem, problem.precision);
    [Winograd::F2, Winograd::F4]
        .into_iter()
        .filter(move |&winograd| {
            let taps = winograd.points() * winograd.points();
            fits && supports_mma(&problem, problem.shape.c, taps)
                && error(winograd, precision) <= problem.tolerance()
        })
}

/// Heights and widths of output tiles that consist of complete windows and waste few of them.
fn tile_shapes(winograd_m: u32, out_h: u32, out_w: u32) -> Vec<(u32, u32)> {
    let windows = |outputs: u32| outputs.div_ceil(winograd_m);
    let mut found = Vec::new();
    for windows_w in [2u32, 3, 4, 5, 6, 7, 8, 14, 16, 28] {
        for windows_h in [1, 2, 3, 4, 5, 7, 8, 14] {
            let tiles = (windows_h * windows_w).div_ceil(MMA_N);
            if windows_w > windows(out_w).next_multiple_of(2)
                || windows_h > windows(out_h)
                || tiles > 16
            {
                continue;
            }
            let computed = u64::from(windows(out_h).div_ceil(windows_h))
                * u64::from(windows(out_w).div_ceil(windows_w))
                * u64::from(tiles);
            found.push((computed, (winograd_m * windows_h, winograd_m * windows_w)));
        }
    }
    let least = found
        .iter()
        .map(|&(computed, _)| computed)
        .min()
        .unwrap_or(0);
    found
        .into_iter()
        .filter(|&(computed, _)| computed * 10 <= least * 14)
        .map(|(_, tile)| tile)
        .collect()
}

/// Columns that are loaded to the left of the first column that the windows read, because vector loads are aligned.
fn first_column(problem: &ConvProblem, blocking: &Blocking) -> u32 {
    if blocking.vector_x(problem) {
        4 - problem.shape.padding.left
    } else {
        0
    }
}

/// Columns by which the staged input is shifted to align windows to 16 bytes, two columns of a channel pair.
fn column_offset(problem: &ConvProblem, blocking: &Blocking) -> u32 {
    first_column(problem, blocking) % 2
}

fn kernel(
    problem: &ConvProblem,
    sizes: &WinogradGeometry,
    layout: &WeightLayout,
    gpu: &Gpu,
) -> KernelBlueprint {
    let blocking = &sizes.blocking;
    let (winograd_m, points) = (sizes.winograd.m(), sizes.winograd.points());
    let (windows_h, windows_w) = (blocking.th / winograd_m, blocking.tw / winograd_m);
    let transforms = transforms(sizes.winograd);
    let column_offset = column_offset(problem, blocking);
    let rows: Vec<String> = transforms
        .unit_rows()
        .iter()
        .map(usize::to_string)
        .collect();
    let others = transforms.scaled_rows();
    // Expressions for the scaled rows of the warp's row of points, one for each term.
    let of_other = |value: &dyn Fn((usize, i8)) -> String| -> Vec<String> {
        (0..others[0].len())
            .map(|other| {
                let values: Vec<String> = others.iter().map(|terms| value(terms[other])).collect();
                select_by_point_row(&values)
            })
            .collect()
    };
    let column_transform =
        |row: &&[i8]| ["x", "y"].map(|e| linear_combination(row, |i| format!("d[{i}].{e}")));
    let factor = |factor: i8| format!("{factor}.0f");
    let context = context(&WinogradContext {
        winograd_m,
        points,
        windows: windows_h * windows_w,
        windows_w,
        checks_window: !(windows_h * windows_w).is_multiple_of(MMA_N),
        warps_p: sizes.tile.warps_p,
        warps_k: sizes.tile.warps_k,
        pitch: sizes.pitch,
        plane: sizes.plane,
        column_offset,
        first_window: first_column(problem, blocking) + column_offset,
        steps: sizes.steps(),
        unit_row: select_by_point_row(&rows),
        scaled_rows: of_other(&|(row, _)| row.to_string()),
        row_coefficients: of_other(&|(_, multiple)| factor(multiple)),
        column_transform: transforms.input.iter().map(column_transform).collect(),
        output_columns: transforms
            .output
            .iter()
            .map(|row| linear_combination(row, |point| format!("q[{point}]")))
            .collect(),
        output_row_coefficients: transforms
            .output
            .iter()
            .map(|row| {
                select_by_point_row(&row.iter().map(|&value| factor(value)).collect::<Vec<_>>())
            })
            .collect(),
        matrix: GemmContext::new(
            problem,
            blocking,
            &sizes.sums,
            sizes.staged,
            transforms.growth_bits,
            layout,
        ),
    });
    KernelBlueprint {
        role: convolution::role(false),
        template: "kernel/winograd.cu",
        context,
        grid: sizes.sums.grid(problem),
        block: [blocking.threads(), 1, 1],
        cluster: [1, 1, blocking.cluster],
        shared_bytes: 4 * sizes.shared_floats,
        pdl: true,
        device: device_parts(problem.precision, blocking.cluster > 1),
        args: convolution::args(problem, false),
        work: sizes.work(problem, Problem::Conv(*problem).bytes() as f64, gpu),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `A^T [(G g) . (B^T d)]` is the convolution of d with g, in integers. The test covers one axis, from which both follow.
    #[test]
    fn the_matrices_belong_together() {
        for winograd in [Winograd::F2, Winograd::F4] {
            let (filter, denominator) = winograd.filter();
            let transforms = transforms(winograd);
            let (winograd_m, points) = (winograd.m() as usize, winograd.points() as usize);
            let moved = |output: usize, tap: usize, input: usize| -> i32 {
                let points = filter.iter().zip(transforms.input).enumerate();
                let products = points.map(|(point, (g, b))| {
                    i32::from(transforms.output[output][point])
                        * i32::from(g[tap])
                        * i32::from(b[input])
                });
                products.sum()
            };
            for (output, tap, input) in
                (0..winograd_m * 3 * points).map(|i| (i / (3 * points), i / points % 3, i % points))
            {
                let expected = match input == output + tap {
                    true => i32::from(denominator),
                    false => 0,
                };
                let found = moved(output, tap, input);
                assert_eq!(found, expected, "{winograd:?} {output} {tap} {input}");
            }
            let largest = |row: &&[i8]| row.iter().map(|value| value.unsigned_abs() as u32).sum();
            let growth: u32 = transforms.input.iter().map(largest).max().unwrap();
            assert!(growth * growth <= 1 << transforms.growth_bits);
            assert!(growth * growth > 1 << (transforms.growth_bits - 1));
            // The first and the last row of points share a buffer of partial sums: they never contribute to the same output row.
            for (row, factors) in transforms.output.iter().enumerate() {
                assert_eq!(factors[0] != 0, row == 0);
                assert_eq!(factors[points - 1] != 0, row == winograd_m - 1);
            }
        }
    }

    #[test]
    fn expressions_are_written_as_by_hand() {
        let name = |index: usize| format!("d[{index}]");
        assert_eq!(linear_combination(&[1, 0, -1, 0], name), "d[0] - d[2]");
        assert_eq!(linear_combination(&[0, -1, 1, 0], name), "d[2] - d[1]");
        assert_eq!(
            linear_combination(&[4, 0, -5, 0, 1, 0], name),
            "fmaf(-5.0f, d[2], fmaf(4.0f, d[0], d[4]))"
        );
        let values = ["0", "2", "2", "1"].map(str::to_owned);
        assert_eq!(
            select_by_point_row(&values),
            "point_row == 0 ? 0 : point_row == 3 ? 1 : 2"
        );
        assert_eq!(select_by_point_row(&["1".to_owned(), "1".to_owned()]), "1");
    }
}
