//! `cp_chain`: a CP layer in one launch, factor by factor, in fp32.
//!
//! A block computes a rectangle of pixels of some output channels, in the order of the CP paper, eq. 7, which is also the cheapest one
//! for the layers of its Table 1 (`tdc-gen sequence`):
//!
//! 1. The input channels are contracted at every position that the filters read: a vector of the rank each, zero outside the
//!    image. A thread does several positions at once; groups of threads share the channels and add up their sums. What
//!    neighbouring blocks read is computed by both.
//! 2. The vertical filter of each rank, then 3. the horizontal one.
//! 4. Every output is an inner product of a pixel's vector, in registers, with its channel's row of the last factor.
//!
//! The first and the last are matrix products, by the fp32 lanes (`m1`) or by the tensor cores (`m16`). At rank 16 reading a factor
//! takes the lanes longer than the products: a thread reads a whole row for a pixel or few, a warp of the others for 16 at once. Each
//! operand is then the sum of two tf32 numbers and three of the four products are added, as `implicit_gemm` does with two fp16
//! numbers, but without scales.
//!
//! What lies between stays in shared memory, with the factors, which are on their way there before the launch ahead has ended.
//! Against Algorithm 2 ([`cp_fused`](super::cp_fused)) this takes `S + H + W` products of a pixel where that takes
//! `S H W`.

use super::convolution::{self, FusedOpsContext};
use super::cp::{self, factor_ranges, layouts, rank_pitch, supports_fused_cp};
use super::info::SchemeInfo;
use super::tiling::{RoughTime, fastest};
use super::{
    Blueprint, DevicePart, KernelBlueprint, LaunchWork, Scheme, Tile, TileField, UnitWork, context,
    tile_numbers,
};
use crate::cost::{CostModel, KernelWork};
use crate::gpu::Gpu;
use crate::ir::{CpProblem, Problem};
use serde::Serialize;
use tdc_runtime::WeightLayout;

/// See the [module](self).
pub struct CpChain;

tile_numbers! {
    /// A tile of the [module](self)'s scheme.
    struct CpChainTile {
        /// Output rows of a block.
        th: "h",
        /// Output columns of a block.
        tw: "w",
        /// Blocks along the output channels.
        blocks_n: "bn",
        /// Threads of a block.
        threads: "t",
        /// Groups of threads that split the sum over the input channels.
        threads_k: "xk",
        /// Pixels of a thread (with mma_m 16: tiles of 16 pixels of a warp).
        rp: "rp",
        /// 1: fp32 lanes; 16: tensor cores (rows of an MMA).
        mma_m: "mm",
    }
}

/// Pixels of a row that a thread filters at once at most. An odd number: neighbouring threads, so many values apart, read from
/// different banks.
const RUN: u32 = 5;

/// Rows of a column that a thread filters at once at most.
const COLUMN_RUN: u32 = 8;

/// Loads of a thread on their way at once, if its registers suffice.
const MAX_LOADS_IN_FLIGHT: u32 = 32;

/// Positions that a thread contracts at once at most, and their sums: what it reads of the first factor serves all of them.
const MAX_POSITIONS_AT_ONCE: u32 = 4;
const MAX_SUMS: u32 = 32;

/// Multiply-adds that loops are unrolled to at most.
const MAX_UNROLLED: u32 = 256;

/// Positions, and values of the rank or channels, of a product of the tensor cores; the channels of one are steps of a sum.
const MMA_SHAPE: [u32; 2] = [16, 8];

/// Steps whose loads are on their way at once at most, and that add to one partial sum: the tensor cores round towards zero.
const MAX_STEPS: u32 = 6;

/// Vectors of the rank that a thread keeps for the last factor at most, in registers.
const MAX_VECTORS: u32 = 64;

/// A tile's numbers with what follows from them.
struct CpChainGeometry {
    tile: CpChainTile,
    /// Whether the tensor cores multiply.
    mma: bool,
    /// Positions of the input that a thread contracts (or times that a warp does for all rows of a product), so many of them at
    /// once, and channels (or steps) whose loads are on their way at once.
    positions_per_thread: u32,
    positions_at_once: u32,
    loads_in_flight: u32,
    /// Output channels of a block, with padding.
    n: u32,
    tiles: [u32; 2],
    rows: u32,
    columns: u32,
    row: u32,
    /// Rows of a column, and pixels of a row, that a thread filters at once, and how many such runs there are.
    column_run: u32,
    column_runs: u32,
    run: u32,
    runs: u32,
    /// Values of a row behind the vertical filter, with what only the last run reads.
    middle_pitch: u32,
    lanes: u32,
    threads_n: u32,
    /// Places in shared memory, in floats.
    vertical_at: u32,
    horizontal_at: u32,
    last_at: u32,
    prologue_at: u32,
    bias_at: u32,
    inner_at: u32,
    middle_at: u32,
    out_at: u32,
    shared_floats: u32,
    registers: u32,
}

/// What a warp does for the first and the last factor, in its instructions.
struct FactorGemmWork {
    staged: f64,
    stored: f64,
    /// Products of the tensor cores of a block.
    mma: f64,
    /// Times that loads go out, a few at once.
    l2_round_trips: f64,
}

impl CpChainGeometry {
    /// `None` where the numbers do not fit each other or the problem.
    fn new(problem: &CpProblem, tile: CpChainTile, gpu: &Gpu) -> Option<Self> {
        let CpChainTile {
            th,
            tw,
            blocks_n,
            threads,
            threads_k,
            rp,
            mma_m,
        } = tile;
        let mma = mma_m == MMA_SHAPE[0];
        let shape = &problem.conv.shape;
        let rank = problem.rank;
        if tile.numbers().contains(&0)
            || th.max(tw) > 256
            || blocks_n > shape.n
            || !threads.is_multiple_of(32)
            || threads > 1024
            || !threads.is_multiple_of(threads_k)
            || threads_k > shape.c
            || !(mma_m == 1 || mma)
            || mma
                && !(rp <= 2
                    && rank.is_multiple_of(MMA_SHAPE[1])
                    && threads.is_multiple_of(32 * threads_k))
            || rp.checked_mul(rank)? > MAX_VECTORS
        {
            return None;
        }
        let tiles_w = shape.out_w().div_ceil(tw);
        let tiles = [shape.out_h().div_ceil(th) * tiles_w, tiles_w];
        let n_together = if mma { MMA_SHAPE[1] } else { 4 };
        let n = shape.n.div_ceil(blocks_n).next_multiple_of(n_together);
        if (blocks_n - 1) * n >= shape.n || tiles[0].checked_mul(shape.batch)? > 1 << 30 {
            return None;
        }
        let [rows, columns] = shape.input_window([th, tw]);
        let column_run = (1..=COLUMN_RUN.min(th))
            .rev()
            .find(|&run| th.is_multiple_of(run))?;
        let run = RUN.min(tw);
        let runs = tw.div_ceil(run);
        let [_, middle_pitch] = shape.input_window([1, runs * run]);
        let lanes = match mma {
            true => (th * tw).div_ceil(rp * MMA_SHAPE[0]) * 32,
            false => (th * tw).div_ceil(rp),
        };
        if lanes > threads {
            return None;
        }
        let threads_n = threads / lanes;
        let warps = threads / 32;
        let row = rank_pitch(rank);
        let positions = rows.checked_mul(columns)?;
        let inner = (threads_k * rank).checked_mul(positions)?;
        if inner > gpu.shared_per_block / 4 {
            return None;
        }
        let mut end = 0;
        let mut place = |floats: u32| {
            let at = end;
            end = (end + floats).next_multiple_of(4);
            at
        };
        place(shape.c.next_multiple_of(4) * row);
        let vertical_at = place(shape.r.next_multiple_of(4) * row);
        let horizontal_at = place(shape.s.next_multiple_of(4) * row);
        let last_at = place(n * row);
        let prologue_at = place(problem.conv.prologue.map_or(0, |_| 2 * shape.c));
        let bias_at = place(if problem.conv.epilogue.bias { n } else { 0 });
        let inner_at = place(inner);
        let middle_at = place(rank * th * middle_pitch);
        let out_at = place(match mma {
            true => warps * MMA_SHAPE[1] * (rp * MMA_SHAPE[0] + 4),
            false => 0,
        });
        let (positions_per_thread, positions_at_once, loads_in_flight, staging, outputs);
        if mma {
            positions_per_thread = positions.div_ceil(MMA_SHAPE[0]).div_ceil(warps / threads_k);
            positions_at_once = 1;
            loads_in_flight = shape
                .c
                .div_ceil(MMA_SHAPE[1])
                .div_ceil(threads_k)
                .min(MAX_STEPS);
            staging = 4 * loads_in_flight + rank / MMA_SHAPE[1] * 12 + 45;
            outputs = rp * (rank + 12) + rank / 2 + 30;
        } else {
            positions_per_thread = positions.div_ceil(threads / threads_k);
            positions_at_once = positions_per_thread
                .min(MAX_POSITIONS_AT_ONCE)
                .min(MAX_SUMS / rank)
                .max(1);
            let wanted = |loads_in_flight: u32| {
                row + positions_at_once * (loads_in_flight + 3 + rank) - rank + 33
            };
            loads_in_flight = (1..=(MAX_LOADS_IN_FLIGHT / positions_at_once)
                .min(shape.c.div_ceil(threads_k)))
                .rev()
                .find(|&loads_in_flight| wanted(loads_in_flight) * threads <= 65536)?;
            staging = wanted(loads_in_flight);
            outputs = rp * rank + 4 * rp + row + 24;
        }
        let registers = staging.max(outputs).max(column_run + shape.r + 30);
        let fits =
            end <= gpu.shared_per_block / 4 && registers <= 200 && registers * threads <= 65536;
        fits.then_some(Self {
            tile,
            mma,
            positions_per_thread,
            positions_at_once,
            loads_in_flight,
            n,
            tiles,
            rows,
            columns,
            row,
            column_run,
            column_runs: th / column_run,
            run,
            runs,
            middle_pitch,
            lanes,
            threads_n,
            vertical_at,
            horizontal_at,
            last_at,
            prologue_at,
            bias_at,
            inner_at,
            middle_at,
            out_at,
            shared_floats: end,
            registers,
        })
    }

    fn from_tile(problem: &CpProblem, tile: &Tile, gpu: &Gpu) -> Option<Self> {
        Self::new(problem, CpChainTile::from_tile(tile)?, gpu)
    }

    /// Of a supported tile.
    fn of_supported(problem: &CpProblem, tile: &Tile, gpu: &Gpu) -> Self {
        Self::from_tile(problem, tile, gpu).expect("a supported tile")
    }

    /// What a warp does for the first and the last factor.
    fn factor_gemm_work(&self, problem: &CpProblem, shared_read: f64) -> FactorGemmWork {
        let rank = f64::from(problem.rank);
        let tensors = self.tensors(problem);
        let rp = f64::from(self.tile.rp);
        let channels = problem.conv.shape.c.div_ceil(self.tile.threads_k);
        let positions_per_thread = f64::from(self.positions_per_thread);
        if self.mma {
            let [together, step] = MMA_SHAPE;
            let values = rank / f64::from(step);
            let steps = channels.div_ceil(step);
            // A lane loads four values of a step and splits them, as it does with what it reads of the factors.
            let staged = f64::from(steps) * (48.0 + values * (11.0 + 4.0 * shared_read));
            let rows_of_store = 32.0 / f64::from((self.tile.rp * together).min(self.tile.tw));
            let outputs = f64::from((self.n / step).div_ceil(self.threads_n));
            let positions = self.rows * self.columns;
            let products = |positions: u32, columns: u32| {
                3.0 * values * f64::from(positions.div_ceil(together) * columns)
            };
            return FactorGemmWork {
                staged: positions_per_thread * (staged + 40.0 + 4.0 * values * (1.0 + shared_read)),
                stored: 20.0
                    + rp * rank / 2.0 * (4.0 + shared_read)
                    + outputs
                        * (4.0
                            + values * (8.0 + 2.0 * shared_read)
                            + rp * (3.0 * values
                                + 4.0
                                    * (8.0 + 2.0 * shared_read + tensors * (4.0 + rows_of_store)))),
                mma: products(positions, problem.conv.shape.c.div_ceil(step))
                    + products(self.tile.th * self.tile.tw, self.n / step),
                l2_round_trips: positions_per_thread
                    * f64::from(steps.div_ceil(self.loads_in_flight)),
            };
        }
        let vectors = f64::from(self.row.div_ceil(4));
        let rounds = self.positions_per_thread.div_ceil(self.positions_at_once);
        // Rows that the threads of a warp store at once.
        let rows_of_store = 32.0 / f64::from(self.lanes.min(32).min(self.tile.tw));
        let outputs = f64::from(self.n.div_ceil(self.threads_n));
        FactorGemmWork {
            staged: f64::from(self.positions_per_thread * channels) * (6.0 + rank)
                + f64::from(rounds * channels) * shared_read * vectors
                + positions_per_thread * (20.0 + (1.0 + shared_read) * rank),
            stored: 20.0
                + shared_read * rp * rank
                + outputs
                    * (4.0
                        + shared_read * vectors
                        + rp * (rank + tensors * (2.0 + rows_of_store) + 2.0)),
            mma: 0.0,
            l2_round_trips: f64::from(rounds * channels.div_ceil(self.loads_in_flight)),
        }
    }

    /// Tensors as large as the output that are read or written.
    fn tensors(&self, problem: &CpProblem) -> f64 {
        if problem.conv.epilogue.residual {
            2.0
        } else {
            1.0
        }
    }

    /// For the estimate.
    fn work(&self, problem: &CpProblem, gpu: &Gpu) -> KernelWork {
        let shape = &problem.conv.shape;
        let blocks =
            u64::from(self.tiles[0]) * u64::from(self.tile.blocks_n) * u64::from(shape.batch);
        let threads = self.tile.threads;
        let warps = f64::from(threads.div_ceil(32));
        let rounds = |items: u32| f64::from(items.div_ceil(threads));
        let model = &CostModel::for_gpu(gpu).cp_chain;
        let shared_read = model.shared_read;
        let outer = self.factor_gemm_work(problem, shared_read);
        let positions = self.rows * self.columns;
        let gathered = match self.tile.threads_k {
            1 => 0.0,
            threads_k => {
                rounds(problem.rank * positions) * (4.0 + shared_read * f64::from(threads_k + 1))
            }
        };
        let filter = |items: u32, run: u32, taps: u32, stride: u32, dilation: u32| {
            let read =
                ((run - 1) * stride + (taps - 1) * dilation + 1).min(run * taps) + taps + run;
            rounds(items) * (15.0 + f64::from(run * taps) + shared_read * f64::from(read))
        };
        let vertical = filter(
            problem.rank * self.column_runs * self.columns,
            self.column_run,
            shape.r,
            shape.stride[0],
            shape.dilation[0],
        );
        let horizontal = filter(
            problem.rank * self.tile.th * self.runs,
            self.run,
            shape.s,
            shape.stride[1],
            shape.dilation[1],
        );
        // Rows come and go in whole sectors of 32 bytes, in which they begin anywhere; rows as long as the output's are one piece.
        // Sectors that are written in parts cost twice.
        let sectors = |rows: u32, row: u32, whole: u32| match (row == whole, whole % 8 + row % 8) {
            (_, 0) if whole > 0 => f64::from(rows * row),
            (true, _) => f64::from(rows * row + 14),
            (false, _) if whole > 0 => f64::from(rows) * f64::from(row + 14),
            (false, _) => f64::from(rows) * f64::from(row + 7),
        };
        let issue = outer.staged + gathered + vertical + horizontal + outer.stored + 100.0;
        let values = f64::from(shape.c) * sectors(self.rows, self.columns, 0)
            + f64::from(shape.c + self.n) * f64::from(self.row)
            + self.tensors(problem)
                * f64::from(self.n.min(shape.n))
                * sectors(self.tile.th, self.tile.tw, shape.out_w());
        KernelWork {
            blocks,
            threads,
            registers: self.registers,
            shared_bytes: 4 * self.shared_floats,
            // Warp instructions as multiply-adds.
            flops: 64.0 * blocks as f64 * warps * issue,
            fma_fraction: 1.0,
            mma: blocks as f64 * outer.mma,
            l2_bytes: 4.0 * blocks as f64 * values,
            dram_bytes: Problem::Cp(*problem).bytes() as f64,
            l2_round_trips: 2.0,
            // Loads go out a few at a time; what a block waits for is that and its barriers.
            latency_clocks: model.block_latency + model.load_latency * outer.l2_round_trips,
            pdl: true,
            ..KernelWork::default()
        }
    }
}

/// Every tile that fits a GPU, with its rough time; none if the GPU has only the kernel's fallback.
fn rated_tiles(problem: &Problem, gpu: &Gpu) -> Vec<(f64, CpChainTile)> {
    let Problem::Cp(problem) = problem else {
        return Vec::new();
    };
    if !supports_fused_cp(problem) {
        return Vec::new();
    }
    /// Pixels, and positions of a product.
    const LAST: [(u32, u32); 5] = [(1, 1), (2, 1), (4, 1), (1, MMA_SHAPE[0]), (2, MMA_SHAPE[0])];
    let shape = &problem.conv.shape;
    let (out_h, out_w) = (shape.out_h(), shape.out_w());
    let rough = RoughTime::new(gpu);
    let mut found = Vec::new();
    for tw in tile_widths(out_w) {
        for th in [1, 2, 3, 4, 6, 8, 12, 16, 32]
            .into_iter()
            .filter(|&h| h <= out_h)
        {
            for blocks_n in [1, 2, 3, 4, 6, 8, 12, 16] {
                for threads in [128, 256, 320, 384, 512] {
                    for threads_k in [1, 2, 4, 8, 16, 32] {
                        for (rp, mma_m) in LAST {
                            if mma_m > 1 && !gpu.has_mma() {
                                continue;
                            }
                            let tile = CpChainTile {
                                th,
                                tw,
                                blocks_n,
                                threads,
                                threads_k,
                                rp,
                                mma_m,
                            };
                            if let Some(sizes) = CpChainGeometry::new(problem, tile, gpu) {
                                found.push((rough.of(&sizes.work(problem, gpu)), tile));
                            }
                        }
                    }
                }
            }
        }
    }
    found
}

impl Scheme for CpChain {
    fn name(&self) -> &'static str {
        "cp_chain"
    }

    fn info(&self) -> SchemeInfo {
        SchemeInfo {
            fuses_factors: true,
            ..SchemeInfo::own("CP layers of rank 32 at most")
        }
    }

    fn tile_fields(&self) -> &'static [TileField] {
        CpChainTile::FIELDS
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
        matches!(problem, Problem::Cp(problem) if supports_fused_cp(problem) && CpChainGeometry::from_tile(problem, tile, gpu).is_some())
    }

    fn work(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> UnitWork {
        let problem = cp::expect_cp(problem);
        UnitWork {
            launches: vec![LaunchWork {
                role: convolution::role(false),
                work: CpChainGeometry::of_supported(problem, tile, gpu).work(problem, gpu),
            }],
            zeroed_bytes: None,
        }
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> Blueprint {
        let problem = cp::expect_cp(problem);
        let sizes = CpChainGeometry::of_supported(problem, tile, gpu);
        let layouts = layouts(problem, sizes.tile.blocks_n * sizes.n);
        let kernel = kernel(problem, &sizes, &layouts, gpu);
        let [first, others @ ..] = layouts;
        Blueprint {
            extra_weight_layouts: others.to_vec(),
            ..convolution::blueprint(&problem.conv, 1, kernel, first)
        }
    }
}

/// Widths of tiles: the whole output, or parts of it that waste little.
fn tile_widths(out_w: u32) -> Vec<u32> {
    let fractions = (1..=8).map(|count| out_w.div_ceil(count));
    let mut found: Vec<u32> = fractions
        .chain([8, 16, 32, 64])
        .filter(|&w| w <= out_w.min(64))
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

#[derive(Serialize)]
struct CpChainContext {
    c: u32,
    h: u32,
    w: u32,
    n: u32,
    out_h: u32,
    out_w: u32,
    r: u32,
    s: u32,
    stride_h: u32,
    stride_w: u32,
    pad_top: u32,
    pad_left: u32,
    dilation_h: u32,
    dilation_w: u32,
    rank: u32,
    rank_pitch: u32,
    th: u32,
    tw: u32,
    tn: u32,
    /// Blocks that the output channels are split over, and whether the last has fewer of them.
    blocks_n: u32,
    checks_n: bool,
    /// Whether a tile may lie outside the output.
    checks_row: bool,
    checks_column: bool,
    tiles_w: u32,
    rows: u32,
    columns: u32,
    threads_k: u32,
    lanes: u32,
    /// Whether the tensor cores multiply; warps of a group, and whether the last step lacks channels.
    mma: bool,
    warps: u32,
    checks_c: bool,
    /// Whether a lane has its part of the first factor in registers, split, before it waits for the input.
    splits_factor_early: bool,
    /// Positions of a thread, so many of them at once, and channels or steps whose loads are on their way at once.
    positions_per_thread: u32,
    positions_at_once: u32,
    loads_in_flight: u32,
    column_run: u32,
    column_runs: u32,
    run: u32,
    runs: u32,
    middle_pitch: u32,
    rp: u32,
    pixel_lanes: u32,
    threads_n: u32,
    has_idle_threads: bool,
    checks_pixels: bool,
    unrolls_column: bool,
    unrolls_row: bool,
    /// Blocks of the packed parameters: where they begin there and in shared memory, and their values.
    blocks: Vec<[usize; 3]>,
    vertical_at: u32,
    horizontal_at: u32,
    last_at: u32,
    prologue_at: u32,
    bias_at: u32,
    inner_at: u32,
    middle_at: u32,
    out_at: u32,
    /// A row of the last factor as vectors: their type, their number, their elements.
    vector: &'static str,
    vectors: u32,
    elements: &'static [&'static str],
    #[serde(flatten)]
    fused_ops: FusedOpsContext,
}

fn kernel(
    problem: &CpProblem,
    sizes: &CpChainGeometry,
    layouts: &[WeightLayout; 4],
    gpu: &Gpu,
) -> KernelBlueprint {
    let shape = &problem.conv.shape;
    let (out_h, out_w) = (shape.out_h(), shape.out_w());
    let [tiles, tiles_w] = sizes.tiles;
    let threads = sizes.tile.threads;
    let lanes = threads / sizes.tile.threads_k;
    let vector_len = sizes.row.min(4);
    let (vector, elements) = super::tiling::vector_type(vector_len);
    // Of the last factor, which is packed for all blocks, one needs its own rows.
    let own_rows = (sizes.n * sizes.row) as usize;
    // Input channels that a group of warps loads at once.
    let steps = sizes.loads_in_flight * MMA_SHAPE[1];
    let destinations = [0, sizes.vertical_at, sizes.horizontal_at, sizes.last_at];
    let copied = factor_ranges(layouts).into_iter().zip(destinations);
    let mut copied: Vec<_> = copied
        .map(|([at, len], to)| [at, to as usize, len])
        .collect();
    copied[3][2] = own_rows;
    // The last factor begins elsewhere for each part of the output channels; else what lies side by side is one piece.
    let joined = if sizes.tile.blocks_n == 1 { 4 } else { 3 };
    let mut pieces: Vec<[usize; 3]> = Vec::new();
    for (i, piece) in copied.into_iter().enumerate() {
        match pieces.last_mut() {
            Some([at, to, len])
                if i < joined && [*at + *len, *to + *len] == [piece[0], piece[1]] =>
            {
                *len += piece[2];
            }
            _ => pieces.push(piece),
        }
    }
    KernelBlueprint {
        role: convolution::role(false),
        template: "kernel/cp_chain.cu",
        context: context(&CpChainContext {
            c: shape.c,
            h: shape.h,
            w: shape.w,
            n: shape.n,
            out_h,
            out_w,
            r: shape.r,
            s: shape.s,
            stride_h: shape.stride[0],
            stride_w: shape.stride[1],
            pad_top: shape.padding.top,
            pad_left: shape.padding.left,
            dilation_h: shape.dilation[0],
            dilation_w: shape.dilation[1],
            rank: problem.rank,
            rank_pitch: sizes.row,
            th: sizes.tile.th,
            tw: sizes.tile.tw,
            tn: sizes.n,
            blocks_n: sizes.tile.blocks_n,
            checks_n: sizes.tile.blocks_n * sizes.n != shape.n,
            checks_row: !out_h.is_multiple_of(sizes.tile.th),
            checks_column: !out_w.is_multiple_of(sizes.tile.tw),
            tiles_w,
            rows: sizes.rows,
            columns: sizes.columns,
            threads_k: sizes.tile.threads_k,
            lanes,
            mma: sizes.mma,
            warps: lanes / 32,
            checks_c: !shape.c.is_multiple_of(steps),
            splits_factor_early: sizes.mma
                && (steps * (sizes.tile.threads_k - 1) + 1..=steps * sizes.tile.threads_k)
                    .contains(&shape.c),
            positions_per_thread: sizes.positions_per_thread,
            positions_at_once: sizes.positions_at_once,
            loads_in_flight: sizes.loads_in_flight,
            column_run: sizes.column_run,
            column_runs: sizes.column_runs,
            run: sizes.run,
            runs: sizes.runs,
            middle_pitch: sizes.middle_pitch,
            rp: sizes.tile.rp,
            pixel_lanes: sizes.lanes,
            threads_n: sizes.threads_n,
            has_idle_threads: sizes.threads_n * sizes.lanes != threads,
            checks_pixels: {
                let lanes = match sizes.mma {
                    true => sizes.lanes / 32 * MMA_SHAPE[0],
                    false => sizes.lanes,
                };
                lanes * sizes.tile.rp != sizes.tile.th * sizes.tile.tw
            },
            unrolls_column: shape.r * sizes.column_run <= MAX_UNROLLED,
            unrolls_row: shape.s * sizes.run <= MAX_UNROLLED,
            blocks: pieces,
            vertical_at: sizes.vertical_at,
            horizontal_at: sizes.horizontal_at,
            last_at: sizes.last_at,
            prologue_at: sizes.prologue_at,
            bias_at: sizes.bias_at,
            inner_at: sizes.inner_at,
            middle_at: sizes.middle_at,
            out_at: sizes.out_at,
            vector,
            vectors: sizes.row / vector_len,
            elements,
            fused_ops: FusedOpsContext::new(&problem.conv, &layouts[0], false),
        }),
        grid: [tiles, sizes.tile.blocks_n, shape.batch],
        block: [threads, 1, 1],
        cluster: [1; 3],
        shared_bytes: 4 * sizes.shared_floats,
        pdl: true,
        device: if sizes.mma {
            &[
                DevicePart::DynamicShared,
                DevicePart::AsyncCopy,
                DevicePart::Pdl,
                DevicePart::Mma,
                DevicePart::SplitTf32,
            ]
        } else {
            &[
                DevicePart::DynamicShared,
                DevicePart::AsyncCopy,
                DevicePart::Pdl,
            ]
        },
        args: convolution::args(&problem.conv, false),
        work: sizes.work(problem, gpu),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::ConvProblem;
    use tdc_runtime::ConvShape;

    #[test]
    fn threads_of_a_large_block_load_less_at_once() {
        let problem = CpProblem {
            conv: ConvProblem::new(ConvShape::new(48, 20, 33, 32, 3, 3)),
            rank: 4,
        };
        let h200 = crate::gpu::gpu("h200").unwrap();
        let sizes = |threads| {
            let tile = CpChainTile {
                th: 8,
                tw: 31,
                blocks_n: 1,
                threads,
                threads_k: 1,
                rp: 1,
                mma_m: 1,
            };
            CpChainGeometry::new(&problem, tile, h200).unwrap()
        };
        assert!(sizes(1024).registers * 1024 <= 65536);
        assert!(sizes(1024).loads_in_flight < sizes(512).loads_in_flight);
    }
}
