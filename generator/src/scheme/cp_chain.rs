//! `cp_chain`: a CP layer in one launch, factor by factor, in fp32.
//!
//! A block computes a rectangle of pixels of some output channels. The order of the factors is that of the CP paper, eq. 7, which is also
//! the cheapest one for the layers of its Table 1 (`tdc-gen sequence`):
//!
//! 1. The first factor: the input channels are contracted at every position that the filters read, to a vector of `rank` values, which is
//!    zero outside the image. A thread computes several positions at once. Groups of threads split the channels and add their partial sums.
//!    Positions that adjacent blocks both read are computed by both.
//! 2. The vertical factor: the vertical filter of each rank.
//! 3. The horizontal factor: the horizontal filter of each rank.
//! 4. The last factor: every output is an inner product of a pixel's vector, in registers, with the channel's row of the last factor.
//!
//! The first and the last factor are matrix products, computed by the fp32 lanes (`mma_m` 1) or by the tensor cores (`mma_m` 16). At rank
//! 16 the lanes need longer to read a factor than to multiply with it: a thread reads a complete row for one or a few pixels, but a warp
//! reads a fragment for 16 pixels at once. On the tensor cores each operand is the sum of two tf32 numbers, and three of the four products
//! are added, as `implicit_gemm` does with two fp16 numbers, but without scales.
//!
//! Intermediate results stay in shared memory. So do the factors, whose copies start before the predecessor kernel has ended. This scheme
//! computes `S + H + W` products of vectors for a pixel, compared with `S H W` in Algorithm 2 ([`cp_fused`](super::cp_fused)).

use super::convolution::{self, FusedOpsContext};
use super::cp::{self, factor_ranges, layouts, rank_pitch, supports_fused_cp};
use super::info::SchemeInfo;
use super::shared_offsets::SharedOffsets;
use super::tiling::{RoughTime, fastest};
use super::{
    Blueprint, DevicePart, KernelBlueprint, LaunchWork, Scheme, Tile, TileField, TileSearch,
    UnitWork, context, tile_numbers,
};
use crate::cost::{KernelWork, kernel_us};
use crate::gpu::{Gpu, MAX_THREADS, REGISTERS_PER_BLOCK};
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

/// Maximum number of pixels of a row that a thread filters at once. It is odd, because adjacent threads read values at this distance, which
/// are then in different banks.
const RUN: u32 = 5;

/// Maximum number of rows of a column that a thread filters at once.
const COLUMN_RUN: u32 = 8;

/// Maximum number of loads of a thread in flight, if its registers suffice.
const MAX_LOADS_IN_FLIGHT: u32 = 32;

/// Maximum number of positions that a thread contracts at once, and of their accumulators. All of them use the same values of the first
/// factor, which are read once.
const MAX_POSITIONS_AT_ONCE: u32 = 4;
const MAX_SUMS: u32 = 32;

/// Loops are unrolled up to this number of multiply-adds.
const MAX_UNROLLED: u32 = 256;

/// Positions of an MMA, and its values of the rank or channels. The channels of an MMA are one K step.
const MMA_SHAPE: [u32; 2] = [16, 8];

/// Maximum number of K steps whose loads are in flight together, and that are added to one partial accumulator: tensor cores truncate.
const MAX_STEPS: u32 = 6;

/// Maximum number of values of the rank that a thread keeps in registers for the last factor.
const MAX_VECTORS: u32 = 64;

/// A tile with the sizes that follow from it.
struct CpChainGeometry {
    tile: CpChainTile,
    /// Whether the tensor cores compute the first and the last factor.
    mma: bool,
    /// Positions of the input that a thread contracts (with tensor cores: groups of 16 positions of a warp), the number of them at once,
    /// and the channels (or K steps) whose loads are in flight together.
    positions_per_thread: u32,
    positions_at_once: u32,
    loads_in_flight: u32,
    /// Output channels of a block, padded.
    n: u32,
    tiles: [u32; 2],
    rows: u32,
    columns: u32,
    row: u32,
    /// Rows of a column, and pixels of a row, that a thread filters at once, and the number of such runs.
    column_run: u32,
    column_runs: u32,
    run: u32,
    runs: u32,
    /// Pitch of a row after the vertical filter, including values that only the last run reads.
    middle_pitch: u32,
    lanes: u32,
    threads_n: u32,
    /// Offsets in shared memory, in floats.
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

/// Work for the first and the last factor: `staged` and `stored` in instructions of a warp.
struct FactorGemmWork {
    staged: f64,
    stored: f64,
    /// MMAs of a block.
    mma: f64,
    /// Number of times that a group of loads is issued and waited for.
    l2_round_trips: f64,
}

impl CpChainGeometry {
    /// `None` if the tile is not valid, or not for this problem.
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
            || threads > MAX_THREADS
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
        let mut offsets = SharedOffsets::default();
        let mut place = |floats: u32| offsets.place(floats);
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
                .find(|&loads_in_flight| {
                    wanted(loads_in_flight) * threads <= REGISTERS_PER_BLOCK
                })?;
            staging = wanted(loads_in_flight);
            outputs = rp * rank + 4 * rp + row + 24;
        }
        let registers = staging.max(outputs).max(column_run + shape.r + 30);
        let shared_floats = offsets.floats();
        let fits = shared_floats <= gpu.shared_per_block / 4
            && registers <= 200
            && registers * threads <= REGISTERS_PER_BLOCK;
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
            shared_floats,
            registers,
        })
    }

    fn from_tile(problem: &CpProblem, tile: &Tile, gpu: &Gpu) -> Option<Self> {
        Self::new(problem, CpChainTile::from_tile(tile)?, gpu)
    }

    /// The geometry of a supported tile.
    fn of_supported(problem: &CpProblem, tile: &Tile, gpu: &Gpu) -> Self {
        Self::from_tile(problem, tile, gpu).expect("a supported tile")
    }

    /// Work for the first and the last factor.
    fn factor_gemm_work(&self, problem: &CpProblem, shared_read: f64) -> FactorGemmWork {
        let rank = f64::from(problem.rank);
        let tensors = tensors(problem);
        let rp = f64::from(self.tile.rp);
        let channels = problem.conv.shape.c.div_ceil(self.tile.threads_k);
        let positions_per_thread = f64::from(self.positions_per_thread);
        if self.mma {
            let [together, step] = MMA_SHAPE;
            let values = rank / f64::from(step);
            let steps = channels.div_ceil(step);
            // A lane loads four values of a K step and splits them into hi and lo, and splits the values of the factors too.
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

    /// The work of the vertical and of the horizontal factor.
    fn filters(&self, problem: &CpProblem) -> [FilterWork; 2] {
        let shape = &problem.conv.shape;
        [
            FilterWork {
                items: problem.rank * self.column_runs * self.columns,
                run: self.column_run,
                taps: shape.r,
                stride: shape.stride[0],
                dilation: shape.dilation[0],
            },
            FilterWork {
                items: problem.rank * self.tile.th * self.runs,
                run: self.run,
                taps: shape.s,
                stride: shape.stride[1],
                dilation: shape.dilation[1],
            },
        ]
    }

    /// The work of a launch, for the cost model. `dram_bytes` are those of the problem.
    fn work(&self, problem: &CpProblem, dram_bytes: f64, gpu: &Gpu) -> KernelWork {
        let shape = &problem.conv.shape;
        let blocks =
            u64::from(self.tiles[0]) * u64::from(self.tile.blocks_n) * u64::from(shape.batch);
        let threads = self.tile.threads;
        let warps = f64::from(threads.div_ceil(32));
        let rounds = |items: u32| f64::from(items.div_ceil(threads));
        let model = &gpu.cost_model().cp_chain;
        let shared_read = model.shared_read;
        let outer = self.factor_gemm_work(problem, shared_read);
        let positions = self.rows * self.columns;
        let gathered = match self.tile.threads_k {
            1 => 0.0,
            threads_k => {
                rounds(problem.rank * positions) * (4.0 + shared_read * f64::from(threads_k + 1))
            }
        };
        let [vertical, horizontal] = self
            .filters(problem)
            .map(|filter| rounds(filter.items) * filter.instructions(shared_read));
        let issue = outer.staged + gathered + vertical + horizontal + outer.stored + 100.0;
        KernelWork {
            blocks,
            threads,
            registers: self.registers,
            shared_bytes: 4 * self.shared_floats,
            // Warp instructions as multiply-adds.
            flops: 64.0 * blocks as f64 * warps * issue,
            fma_fraction: 1.0,
            mma: blocks as f64 * outer.mma,
            l2_bytes: 4.0
                * blocks as f64
                * l2_values(
                    problem,
                    [self.tile.th, self.tile.tw],
                    [self.rows, self.columns],
                    self.n,
                ),
            dram_bytes,
            l2_round_trips: 2.0,
            // Loads are issued in small groups. A block waits for each group, and at its barriers.
            latency_clocks: model.block_latency + model.load_latency * outer.l2_round_trips,
            pdl: true,
            ..KernelWork::default()
        }
    }
}

/// Values that a block moves through L2, those that complete sectors included: `n` output channels of `th` x `tw` pixels, which need
/// `rows` x `columns` of the input, and the factors.
fn l2_values(problem: &CpProblem, [th, tw]: [u32; 2], [rows, columns]: [u32; 2], n: u32) -> f64 {
    let shape = &problem.conv.shape;
    // Rows are moved in complete sectors of 32 bytes and can start anywhere in one. Rows of the same length as the output's are one
    // contiguous range. A sector that is written partially costs twice.
    let sectors = |rows: u32, row: u32, whole: u32| match (row == whole, whole % 8 + row % 8) {
        (_, 0) if whole > 0 => f64::from(rows * row),
        (true, _) => f64::from(rows * row + 14),
        (false, _) if whole > 0 => f64::from(rows) * f64::from(row + 14),
        (false, _) => f64::from(rows) * f64::from(row + 7),
    };
    f64::from(shape.c) * sectors(rows, columns, 0)
        + f64::from(shape.c + n) * f64::from(rank_pitch(problem.rank))
        + tensors(problem) * f64::from(n.min(shape.n)) * sectors(th, tw, shape.out_w())
}

/// Number of tensors of the output's size that are read or written.
fn tensors(problem: &CpProblem) -> f64 {
    if problem.conv.epilogue.residual {
        2.0
    } else {
        1.0
    }
}

/// The runs of outputs that threads compute with the vertical or the horizontal factor.
struct FilterWork {
    /// Runs of a block.
    items: u32,
    /// Outputs of a run.
    run: u32,
    taps: u32,
    stride: u32,
    dilation: u32,
}

impl FilterWork {
    /// Instructions of a thread for a run.
    fn instructions(&self, shared_read: f64) -> f64 {
        let Self {
            run,
            taps,
            stride,
            dilation,
            ..
        } = *self;
        let read = ((run - 1) * stride + (taps - 1) * dilation + 1).min(run * taps) + taps + run;
        15.0 + f64::from(run * taps) + shared_read * f64::from(read)
    }
}

/// The tiles with the same pixels and output channels of a block.
#[derive(Clone, Copy)]
struct TileGroup {
    th: u32,
    tw: u32,
    blocks_n: u32,
}

impl TileGroup {
    /// Every group of a problem; empty if the scheme does not support it.
    fn all(problem: &CpProblem) -> Vec<Self> {
        if !supports_fused_cp(problem) {
            return Vec::new();
        }
        let shape = &problem.conv.shape;
        let mut found = Vec::new();
        for tw in tile_widths(shape.out_w()) {
            let heights = [1, 2, 3, 4, 6, 8, 12, 16, 32].into_iter();
            for th in heights.filter(|&th| th <= shape.out_h()) {
                found.extend([1, 2, 3, 4, 6, 8, 12, 16].map(|blocks_n| Self { th, tw, blocks_n }));
            }
        }
        found
    }

    /// Its tiles that fit the GPU.
    fn tiles(self, problem: &CpProblem, gpu: &Gpu) -> impl Iterator<Item = CpChainGeometry> {
        /// `rp` and `mma_m`.
        const LAST: [(u32, u32); 5] =
            [(1, 1), (2, 1), (4, 1), (1, MMA_SHAPE[0]), (2, MMA_SHAPE[0])];
        let Self { th, tw, blocks_n } = self;
        let tiles = [128, 256, 320, 384, 512]
            .into_iter()
            .flat_map(move |threads| {
                [1, 2, 4, 8, 16, 32].into_iter().flat_map(move |threads_k| {
                    LAST.into_iter().map(move |(rp, mma_m)| CpChainTile {
                        th,
                        tw,
                        blocks_n,
                        threads,
                        threads_k,
                        rp,
                        mma_m,
                    })
                })
            });
        tiles
            .filter(|tile| tile.mma_m == 1 || gpu.has_mma())
            .filter_map(|tile| CpChainGeometry::new(problem, tile, gpu))
    }

    /// A lower bound of the predicted times of its tiles, microseconds. `dram_bytes` are those of the problem.
    ///
    /// It is the time of a launch with full warps, one load that the first factor waits for, and no products on the tensor cores. The first
    /// and the last factor have the instructions of whichever is cheaper, fp32 lanes or tensor cores.
    fn lower_bound_us(self, problem: &CpProblem, dram_bytes: f64, gpu: &Gpu) -> f64 {
        let shape = &problem.conv.shape;
        let Self { th, tw, blocks_n } = self;
        let model = &gpu.cost_model().cp_chain;
        let rank = f64::from(problem.rank);
        let [rows, columns] = shape.input_window([th, tw]);
        let n = shape.n.div_ceil(blocks_n);
        let tiles = u64::from(shape.out_h().div_ceil(th)) * u64::from(shape.out_w().div_ceil(tw));
        let blocks = tiles * u64::from(blocks_n) * u64::from(shape.batch);
        // Warp instructions for a product of the factor's matrix, and of four values: of a pair of position and channel.
        let first = (6.0 + rank) / 32.0;
        let first_mma = (48.0 + rank / 8.0 * 11.0) / 128.0;
        let last = (rank + 2.0 * tensors(problem) + 2.0) / 32.0;
        let last_mma = (3.0 * rank / 8.0 + 32.0) / 128.0;
        let inputs = f64::from(shape.c) * f64::from(rows) * f64::from(columns);
        let outputs = f64::from(n) * f64::from(th * tw);
        // The shortest runs have the fewest instructions.
        let filters = f64::from(problem.rank)
            * (f64::from(th) * f64::from(columns) * f64::from(shape.r)
                + f64::from(th * tw) * f64::from(shape.s))
            / 32.0;
        let issue = inputs * first.min(first_mma) + outputs * last.min(last_mma) + filters;
        let values = l2_values(problem, [th, tw], [rows, columns], n);
        let work = KernelWork {
            blocks,
            threads: 128,
            flops: 64.0 * blocks as f64 * issue,
            fma_fraction: 1.0,
            l2_bytes: 4.0 * blocks as f64 * values,
            dram_bytes,
            l2_round_trips: 2.0,
            latency_clocks: model.block_latency + model.load_latency,
            pdl: true,
            ..KernelWork::default()
        };
        kernel_us(&work, gpu)
    }
}

/// Every tile that fits a GPU, with its rough time; empty if the problem is not a CP layer that the scheme supports.
fn rated_tiles(problem: &Problem, gpu: &Gpu) -> Vec<(f64, CpChainTile)> {
    let Problem::Cp(problem) = problem else {
        return Vec::new();
    };
    let rough = RoughTime::new(gpu);
    let dram_bytes = Problem::Cp(*problem).bytes() as f64;
    let groups = TileGroup::all(problem).into_iter();
    let tiles = groups.flat_map(|group| group.tiles(problem, gpu));
    tiles
        .map(|sizes| (rough.of(&sizes.work(problem, dram_bytes, gpu)), sizes.tile))
        .collect()
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

    fn search(&self, problem: &Problem, search: &mut TileSearch<'_>) {
        let Problem::Cp(problem) = problem else {
            return;
        };
        let gpu = search.gpu();
        let dram_bytes = Problem::Cp(*problem).bytes() as f64;
        let groups = TileGroup::all(problem).into_iter();
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
        matches!(problem, Problem::Cp(problem) if supports_fused_cp(problem) && CpChainGeometry::from_tile(problem, tile, gpu).is_some())
    }

    fn work(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> UnitWork {
        let problem = cp::expect_cp(problem);
        UnitWork {
            launches: vec![LaunchWork {
                role: convolution::role(false),
                work: CpChainGeometry::of_supported(problem, tile, gpu).work(
                    problem,
                    Problem::Cp(*problem).bytes() as f64,
                    gpu,
                ),
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

/// Widths of tiles: the complete output, or fractions of it that leave few threads idle.
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
    /// Blocks along the output channels, and whether the last one has fewer channels.
    blocks_n: u32,
    checks_n: bool,
    /// Whether a tile can extend beyond the output.
    checks_row: bool,
    checks_column: bool,
    tiles_w: u32,
    rows: u32,
    columns: u32,
    threads_k: u32,
    lanes: u32,
    /// Whether the tensor cores compute the first and the last factor; warps of a group; whether the last K step lacks channels.
    mma: bool,
    warps: u32,
    checks_c: bool,
    /// Whether a lane reads and splits its values of the first factor before the wait for the predecessor.
    splits_factor_early: bool,
    /// Positions of a thread, the number of them at once, and the channels or K steps whose loads are in flight together.
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
    /// Copies of the packed parameters: offset in the parameters, offset in shared memory, number of values.
    blocks: Vec<[usize; 3]>,
    vertical_at: u32,
    horizontal_at: u32,
    last_at: u32,
    prologue_at: u32,
    bias_at: u32,
    inner_at: u32,
    middle_at: u32,
    out_at: u32,
    /// A row of the last factor as vectors: their type, their number, and the names of their elements.
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
    // The last factor is packed for all blocks. A block needs only its own rows.
    let own_rows = (sizes.n * sizes.row) as usize;
    // Input channels that a group of warps loads at once.
    let steps = sizes.loads_in_flight * MMA_SHAPE[1];
    let destinations = [0, sizes.vertical_at, sizes.horizontal_at, sizes.last_at];
    let copied = factor_ranges(layouts).into_iter().zip(destinations);
    let mut copied: Vec<_> = copied
        .map(|([at, len], to)| [at, to as usize, len])
        .collect();
    copied[3][2] = own_rows;
    // The start of the last factor differs between blocks of different output channels. All other adjacent pieces are copied as one.
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
        work: sizes.work(problem, Problem::Cp(*problem).bytes() as f64, gpu),
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
        assert!(sizes(1024).registers * 1024 <= REGISTERS_PER_BLOCK);
        assert!(sizes(1024).loads_in_flight < sizes(512).loads_in_flight);
    }
}
