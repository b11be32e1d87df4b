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

use super::block_sums::{MAX_SHARED, most_promising, promise};
use super::convolution::{self, ConvEnds};
use super::cp::{self, blocks, layouts, rank_row, suits};
use super::{Blueprint, DevicePart, KernelBlueprint, LaunchWork, Scheme, Tile, UnitWork, context};
use crate::cost::KernelWork;
use crate::ir::{CpProblem, Problem};
use serde::Serialize;
use tdc_runtime::WeightLayout;

/// See the [module](self).
pub struct CpChain;

/// Pixels of a row that a thread filters at once at most. An odd number: neighbouring threads, so many values apart, read from
/// different banks.
const RUN: u32 = 5;

/// Rows of a column that a thread filters at once at most.
const COLUMN_RUN: u32 = 8;

/// Loads of a thread on their way at once, if its registers suffice.
const LOADS: u32 = 32;

/// Positions that a thread contracts at once at most, and their sums: what it reads of the first factor serves all of them.
const MAX_AT_ONCE: u32 = 4;
const MAX_SUMS: u32 = 32;

/// Multiply-adds that loops are unrolled to at most.
const MAX_UNROLLED: u32 = 256;

/// Positions, and values of the rank or channels, of a product of the tensor cores; the channels of one are steps of a sum.
const PRODUCT: [u32; 2] = [16, 8];

/// Steps whose loads are on their way at once at most, and that add to one partial sum: the tensor cores round towards zero.
const MAX_STEPS: u32 = 6;

/// Vectors of the rank that a thread keeps for the last factor at most, in registers.
const MAX_VECTORS: u32 = 64;

/// A tile's numbers with what follows from them.
struct Sizes {
    tile_h: u32,
    tile_w: u32,
    parts: u32,
    threads: u32,
    groups: u32,
    pixels: u32,
    /// Whether the tensor cores multiply.
    mma: bool,
    /// Positions of the input that a thread contracts (or times that a warp does for all rows of a product), so many of them at
    /// once, and channels (or steps) whose loads are on their way at once.
    places: u32,
    at_once: u32,
    loads: u32,
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
    middle_row: u32,
    lanes: u32,
    slices: u32,
    /// Places in shared memory, in floats.
    vertical_at: u32,
    horizontal_at: u32,
    last_at: u32,
    affine_at: u32,
    bias_at: u32,
    inner_at: u32,
    middle_at: u32,
    out_at: u32,
    shared_floats: u32,
    registers: u32,
}

/// What reading 128 bytes of shared memory costs, in instructions of a multiprocessor.
const READ: f64 = 4.0;

/// What a warp does for the first and the last factor, in its instructions.
struct OuterWork {
    staged: f64,
    stored: f64,
    /// Products of the tensor cores of a block.
    mma: f64,
    /// Times that loads go out, a few at once.
    trips: f64,
}

impl Sizes {
    /// `None` where the numbers do not fit each other or the problem.
    fn new(problem: &CpProblem, tile: &[u32]) -> Option<Self> {
        let &[tile_h, tile_w, parts, threads, groups, pixels, m] = tile else {
            return None;
        };
        let mma = m == PRODUCT[0];
        let shape = &problem.conv.shape;
        let rank = problem.rank;
        if tile.contains(&0)
            || tile_h.max(tile_w) > 256
            || parts > shape.n
            || !threads.is_multiple_of(32)
            || threads > 1024
            || !threads.is_multiple_of(groups)
            || groups > shape.c
            || !(m == 1 || mma)
            || mma
                && !(pixels <= 2
                    && rank.is_multiple_of(PRODUCT[1])
                    && threads.is_multiple_of(32 * groups))
            || pixels.checked_mul(rank)? > MAX_VECTORS
        {
            return None;
        }
        let tiles_w = shape.out_w().div_ceil(tile_w);
        let tiles = [shape.out_h().div_ceil(tile_h) * tiles_w, tiles_w];
        let n_together = if mma { PRODUCT[1] } else { 4 };
        let n = shape.n.div_ceil(parts).next_multiple_of(n_together);
        if (parts - 1) * n >= shape.n || tiles[0].checked_mul(shape.batch)? > 1 << 30 {
            return None;
        }
        let [rows, columns] = shape.inputs_under([tile_h, tile_w]);
        let column_run = (1..=COLUMN_RUN.min(tile_h))
            .rev()
            .find(|&run| tile_h.is_multiple_of(run))?;
        let run = RUN.min(tile_w);
        let runs = tile_w.div_ceil(run);
        let [_, middle_row] = shape.inputs_under([1, runs * run]);
        let lanes = match mma {
            true => (tile_h * tile_w).div_ceil(pixels * PRODUCT[0]) * 32,
            false => (tile_h * tile_w).div_ceil(pixels),
        };
        if lanes > threads {
            return None;
        }
        let slices = threads / lanes;
        let warps = threads / 32;
        let row = rank_row(rank);
        let positions = rows.checked_mul(columns)?;
        let inner = (groups * rank).checked_mul(positions)?;
        if inner > MAX_SHARED / 4 {
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
        let affine_at = place(problem.conv.prologue.map_or(0, |_| 2 * shape.c));
        let bias_at = place(if problem.conv.epilogue.bias { n } else { 0 });
        let inner_at = place(inner);
        let middle_at = place(rank * tile_h * middle_row);
        let out_at = place(match mma {
            true => warps * PRODUCT[1] * (pixels * PRODUCT[0] + 4),
            false => 0,
        });
        let (places, at_once, loads, staging, outputs);
        if mma {
            places = positions.div_ceil(PRODUCT[0]).div_ceil(warps / groups);
            at_once = 1;
            loads = shape.c.div_ceil(PRODUCT[1]).div_ceil(groups).min(MAX_STEPS);
            staging = 4 * loads + rank / PRODUCT[1] * 12 + 45;
            outputs = pixels * (rank + 12) + rank / 2 + 30;
        } else {
            places = positions.div_ceil(threads / groups);
            at_once = places.min(MAX_AT_ONCE).min(MAX_SUMS / rank).max(1);
            let wanted = |loads: u32| row + at_once * (loads + 3 + rank) - rank + 33;
            loads = (1..=(LOADS / at_once).min(shape.c.div_ceil(groups)))
                .rev()
                .find(|&loads| wanted(loads) * threads <= 65536)?;
            staging = wanted(loads);
            outputs = pixels * rank + 4 * pixels + row + 24;
        }
        let registers = staging.max(outputs).max(column_run + shape.r + 30);
        let fits = end <= MAX_SHARED / 4 && registers <= 200 && registers * threads <= 65536;
        fits.then_some(Self {
            tile_h,
            tile_w,
            parts,
            threads,
            groups,
            pixels,
            mma,
            places,
            at_once,
            loads,
            n,
            tiles,
            rows,
            columns,
            row,
            column_run,
            column_runs: tile_h / column_run,
            run,
            runs,
            middle_row,
            lanes,
            slices,
            vertical_at,
            horizontal_at,
            last_at,
            affine_at,
            bias_at,
            inner_at,
            middle_at,
            out_at,
            shared_floats: end,
            registers,
        })
    }

    fn of(problem: &CpProblem, tile: &Tile) -> Self {
        Self::new(problem, &tile.0).expect("a tile out of the scheme's own space")
    }

    /// What a warp does for the first and the last factor.
    fn outer_work(&self, problem: &CpProblem) -> OuterWork {
        let rank = f64::from(problem.rank);
        let tensors = self.tensors(problem);
        let pixels = f64::from(self.pixels);
        let channels = problem.conv.shape.c.div_ceil(self.groups);
        let places = f64::from(self.places);
        if self.mma {
            let [together, step] = PRODUCT;
            let values = rank / f64::from(step);
            let steps = channels.div_ceil(step);
            // A lane loads four values of a step and splits them, as it does with what it reads of the factors.
            let staged = f64::from(steps) * (48.0 + values * (11.0 + 4.0 * READ));
            let rows_of_store = 32.0 / f64::from((self.pixels * together).min(self.tile_w));
            let outputs = f64::from((self.n / step).div_ceil(self.slices));
            let positions = self.rows * self.columns;
            let products = |positions: u32, columns: u32| {
                3.0 * values * f64::from(positions.div_ceil(together) * columns)
            };
            return OuterWork {
                staged: places * (staged + 40.0 + 4.0 * values * (1.0 + READ)),
                stored: 20.0
                    + pixels * rank / 2.0 * (4.0 + READ)
                    + outputs
                        * (4.0
                            + values * (8.0 + 2.0 * READ)
                            + pixels
                                * (3.0 * values
                                    + 4.0 * (8.0 + 2.0 * READ + tensors * (4.0 + rows_of_store)))),
                mma: products(positions, problem.conv.shape.c.div_ceil(step))
                    + products(self.tile_h * self.tile_w, self.n / step),
                trips: places * f64::from(steps.div_ceil(self.loads)),
            };
        }
        let vectors = f64::from(self.row.div_ceil(4));
        let rounds = self.places.div_ceil(self.at_once);
        // Rows that the threads of a warp store at once.
        let rows_of_store = 32.0 / f64::from(self.lanes.min(32).min(self.tile_w));
        let outputs = f64::from(self.n.div_ceil(self.slices));
        OuterWork {
            staged: f64::from(self.places * channels) * (6.0 + rank)
                + f64::from(rounds * channels) * READ * vectors
                + places * (20.0 + (1.0 + READ) * rank),
            stored: 20.0
                + READ * pixels * rank
                + outputs
                    * (4.0
                        + READ * vectors
                        + pixels * (rank + tensors * (2.0 + rows_of_store) + 2.0)),
            mma: 0.0,
            trips: f64::from(rounds * channels.div_ceil(self.loads)),
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
    fn work(&self, problem: &CpProblem) -> KernelWork {
        let shape = &problem.conv.shape;
        let blocks = u64::from(self.tiles[0]) * u64::from(self.parts) * u64::from(shape.batch);
        let threads = self.threads;
        let warps = f64::from(threads.div_ceil(32));
        let rounds = |items: u32| f64::from(items.div_ceil(threads));
        let outer = self.outer_work(problem);
        let positions = self.rows * self.columns;
        let gathered = match self.groups {
            1 => 0.0,
            groups => rounds(problem.rank * positions) * (4.0 + READ * f64::from(groups + 1)),
        };
        let filter = |items: u32, run: u32, taps: u32, stride: u32, dilation: u32| {
            let read =
                ((run - 1) * stride + (taps - 1) * dilation + 1).min(run * taps) + taps + run;
            rounds(items) * (15.0 + f64::from(run * taps) + READ * f64::from(read))
        };
        let vertical = filter(
            problem.rank * self.column_runs * self.columns,
            self.column_run,
            shape.r,
            shape.stride[0],
            shape.dilation[0],
        );
        let horizontal = filter(
            problem.rank * self.tile_h * self.runs,
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
                * sectors(self.tile_h, self.tile_w, shape.out_w());
        KernelWork {
            blocks,
            threads,
            registers: self.registers,
            shared_bytes: 4 * self.shared_floats,
            // Warp instructions as multiply-adds.
            flops: 64.0 * blocks as f64 * warps * issue,
            fma_share: 1.0,
            mma: blocks as f64 * outer.mma,
            l2_bytes: 4.0 * blocks as f64 * values,
            dram_bytes: Problem::Cp(*problem).bytes() as f64,
            trips: 2.0,
            // Loads go out a few at a time; what a block waits for is that and its barriers.
            clocks: 1000.0 + 700.0 * outer.trips,
            overlaps: true,
            ..KernelWork::default()
        }
    }
}

impl Scheme for CpChain {
    fn name(&self) -> &'static str {
        "cp_chain"
    }

    fn tile_names(&self) -> &'static [&'static str] {
        &["h", "w", "z", "t", "g", "p", "m"]
    }

    fn joins_factors(&self) -> bool {
        true
    }

    fn tiles(&self, problem: &Problem) -> Vec<Tile> {
        let Problem::Cp(problem) = problem else {
            return Vec::new();
        };
        if !suits(problem) {
            return Vec::new();
        }
        /// Pixels, and positions of a product.
        const LAST: [(u32, u32); 5] = [(1, 1), (2, 1), (4, 1), (1, PRODUCT[0]), (2, PRODUCT[0])];
        let shape = &problem.conv.shape;
        let (out_h, out_w) = (shape.out_h(), shape.out_w());
        let mut found = Vec::new();
        for tile_w in widths(out_w) {
            for tile_h in [1, 2, 3, 4, 6, 8, 12, 16, 32]
                .into_iter()
                .filter(|&h| h <= out_h)
            {
                for parts in [1, 2, 3, 4, 6, 8, 12, 16] {
                    for threads in [128, 256, 320, 384, 512] {
                        for groups in [1, 2, 4, 8, 16, 32] {
                            for (pixels, m) in LAST {
                                let tile = [tile_h, tile_w, parts, threads, groups, pixels, m];
                                if let Some(sizes) = Sizes::new(problem, &tile) {
                                    found.push((promise(&sizes.work(problem)), tile));
                                }
                            }
                        }
                    }
                }
            }
        }
        most_promising(found)
    }

    fn takes(&self, problem: &Problem, tile: &Tile) -> bool {
        matches!(problem, Problem::Cp(problem) if suits(problem) && Sizes::new(problem, &tile.0).is_some())
    }

    fn work(&self, problem: &Problem, tile: &Tile) -> UnitWork {
        let problem = cp::of(problem);
        UnitWork {
            launches: vec![LaunchWork {
                role: convolution::role(false),
                work: Sizes::of(problem, tile).work(problem),
            }],
            zeroed_bytes: None,
        }
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile) -> Blueprint {
        let problem = cp::of(problem);
        let sizes = Sizes::of(problem, tile);
        let layouts = layouts(problem, sizes.parts * sizes.n);
        let kernel = kernel(problem, &sizes, &layouts);
        let [first, others @ ..] = layouts;
        Blueprint {
            more_weights: others.to_vec(),
            ..convolution::blueprint(&problem.conv, 1, kernel, first)
        }
    }
}

/// Widths of tiles: the whole output, or parts of it that waste little.
fn widths(out_w: u32) -> Vec<u32> {
    let parts = (1..=8).map(|parts| out_w.div_ceil(parts));
    let mut found: Vec<u32> = parts
        .chain([8, 16, 32, 64])
        .filter(|&w| w <= out_w.min(64))
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

#[derive(Serialize)]
struct Context {
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
    rank_row: u32,
    tile_h: u32,
    tile_w: u32,
    tile_n: u32,
    /// Blocks that the output channels are split over, and whether the last has fewer of them.
    parts: u32,
    checks_n: bool,
    /// Whether a tile may lie outside the output.
    checks_row: bool,
    checks_column: bool,
    tiles_w: u32,
    rows: u32,
    columns: u32,
    groups: u32,
    lanes: u32,
    /// Whether the tensor cores multiply; warps of a group, and whether the last step lacks channels.
    mma: bool,
    warps: u32,
    checks_c: bool,
    /// Whether a lane has its part of the first factor in registers, split, before it waits for the input.
    splits_ahead: bool,
    /// Positions of a thread, so many of them at once, and channels or steps whose loads are on their way at once.
    places: u32,
    at_once: u32,
    loads: u32,
    column_run: u32,
    column_runs: u32,
    run: u32,
    runs: u32,
    middle_row: u32,
    pixels: u32,
    pixel_lanes: u32,
    slices: u32,
    idle_slices: bool,
    checks_pixels: bool,
    unrolls_column: bool,
    unrolls_row: bool,
    /// Blocks of the packed parameters: where they begin there and in shared memory, and their values.
    blocks: Vec<[usize; 3]>,
    vertical_at: u32,
    horizontal_at: u32,
    last_at: u32,
    affine_at: u32,
    bias_at: u32,
    inner_at: u32,
    middle_at: u32,
    out_at: u32,
    /// A row of the last factor as vectors: their type, their number, their elements.
    vector: &'static str,
    vectors: u32,
    elements: &'static [&'static str],
    #[serde(flatten)]
    ends: ConvEnds,
}

fn kernel(problem: &CpProblem, sizes: &Sizes, layouts: &[WeightLayout; 4]) -> KernelBlueprint {
    let shape = &problem.conv.shape;
    let (out_h, out_w) = (shape.out_h(), shape.out_w());
    let [tiles, tiles_w] = sizes.tiles;
    let threads = sizes.threads;
    let lanes = threads / sizes.groups;
    let vector_len = sizes.row.min(4);
    let (vector, elements) = super::block_sums::vector(vector_len);
    // Of the last factor, which is packed for all blocks, one needs its own rows.
    let own_rows = (sizes.n * sizes.row) as usize;
    // Input channels that a group of warps loads at once.
    let steps = sizes.loads * PRODUCT[1];
    let places = [0, sizes.vertical_at, sizes.horizontal_at, sizes.last_at];
    let copied = blocks(layouts).into_iter().zip(places);
    let mut copied: Vec<_> = copied
        .map(|([at, len], to)| [at, to as usize, len])
        .collect();
    copied[3][2] = own_rows;
    // The last factor begins elsewhere for each part of the output channels; else what lies side by side is one piece.
    let joined = if sizes.parts == 1 { 4 } else { 3 };
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
        context: context(&Context {
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
            rank_row: sizes.row,
            tile_h: sizes.tile_h,
            tile_w: sizes.tile_w,
            tile_n: sizes.n,
            parts: sizes.parts,
            checks_n: sizes.parts * sizes.n != shape.n,
            checks_row: !out_h.is_multiple_of(sizes.tile_h),
            checks_column: !out_w.is_multiple_of(sizes.tile_w),
            tiles_w,
            rows: sizes.rows,
            columns: sizes.columns,
            groups: sizes.groups,
            lanes,
            mma: sizes.mma,
            warps: lanes / 32,
            checks_c: !shape.c.is_multiple_of(steps),
            splits_ahead: sizes.mma
                && (steps * (sizes.groups - 1) + 1..=steps * sizes.groups).contains(&shape.c),
            places: sizes.places,
            at_once: sizes.at_once,
            loads: sizes.loads,
            column_run: sizes.column_run,
            column_runs: sizes.column_runs,
            run: sizes.run,
            runs: sizes.runs,
            middle_row: sizes.middle_row,
            pixels: sizes.pixels,
            pixel_lanes: sizes.lanes,
            slices: sizes.slices,
            idle_slices: sizes.slices * sizes.lanes != threads,
            checks_pixels: {
                let lanes = match sizes.mma {
                    true => sizes.lanes / 32 * PRODUCT[0],
                    false => sizes.lanes,
                };
                lanes * sizes.pixels != sizes.tile_h * sizes.tile_w
            },
            unrolls_column: shape.r * sizes.column_run <= MAX_UNROLLED,
            unrolls_row: shape.s * sizes.run <= MAX_UNROLLED,
            blocks: pieces,
            vertical_at: sizes.vertical_at,
            horizontal_at: sizes.horizontal_at,
            last_at: sizes.last_at,
            affine_at: sizes.affine_at,
            bias_at: sizes.bias_at,
            inner_at: sizes.inner_at,
            middle_at: sizes.middle_at,
            out_at: sizes.out_at,
            vector,
            vectors: sizes.row / vector_len,
            elements,
            ends: ConvEnds::new(&problem.conv, &layouts[0], false),
        }),
        grid: [tiles, sizes.parts, shape.batch],
        block: [threads, 1, 1],
        cluster: [1; 3],
        shared_bytes: 4 * sizes.shared_floats,
        overlaps: true,
        device: if sizes.mma {
            &[
                DevicePart::DynamicShared,
                DevicePart::AsyncCopy,
                DevicePart::Overlap,
                DevicePart::Mma,
                DevicePart::SplitTf32,
            ]
        } else {
            &[
                DevicePart::DynamicShared,
                DevicePart::AsyncCopy,
                DevicePart::Overlap,
            ]
        },
        args: convolution::args(&problem.conv, false),
        work: sizes.work(problem),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{ConvProblem, Epilogue, Precision, Reduce, Tolerance};
    use tdc_runtime::ConvShape;

    #[test]
    fn threads_of_a_large_block_load_less_at_once() {
        let problem = CpProblem {
            conv: ConvProblem {
                shape: ConvShape::new(48, 20, 33, 32, 3, 3),
                prologue: None,
                epilogue: Epilogue::default(),
                reduce: Reduce::default(),
                precision: Precision::default(),
                tolerance: Tolerance::default(),
            },
            rank: 4,
        };
        let sizes = |threads| Sizes::new(&problem, &[8, 31, 1, threads, 1, 1, 1]).unwrap();
        assert!(sizes(1024).registers * 1024 <= 65536);
        assert!(sizes(1024).loads < sizes(512).loads);
    }
}
