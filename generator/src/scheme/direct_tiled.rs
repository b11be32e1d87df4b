//! `direct_tiled`: a convolution from its definition in fp32, with tiles in registers and in shared memory.
//!
//! A thread computes a few output channels of a few pixels side by side: each input value and each weight that it reads from shared
//! memory serves many multiply-adds. A block stages the input tile of a chunk of channels through registers, loading the next
//! chunk while it computes, and the chunk's weights by asynchronous copies that begin before the launch ahead has ended. Where
//! the output is too small to fill a GPU the sum is split over groups of threads and over the blocks of a cluster, and the shares
//! are added on chip in a fixed order.

use super::block_sums::{
    BlockSums, ChunkCopies, InputTraffic, MAX_CLUSTER, MAX_SHARED, Registers, SumsContext,
    divisions, input_tile, most_promising, promise, stages_vectors, tiles_well, vector,
};
use super::convolution::{self, ConvEnds};
use super::{
    Blueprint, DevicePart, KernelBlueprint, LaunchWork, MAX_GRID, Scheme, Tile, UnitWork, context,
};
use crate::cost::{KernelWork, TiledWork};
use crate::ir::{ConvProblem, MAX_ELEMENTS, Problem};
use serde::Serialize;
use tdc_runtime::{Axis, Filter, LayoutDim, Transform, WeightLayout};

/// See the [module](self).
pub struct DirectTiled;

/// Threads of a block at most.
const MAX_THREADS: u32 = 512;

/// Parts of the prelude that the kernel uses; the first only with clusters.
const DEVICE_WITH_CLUSTERS: &[DevicePart] = &[
    DevicePart::Cluster,
    DevicePart::DynamicShared,
    DevicePart::AsyncCopy,
    DevicePart::Overlap,
];

/// Multiply-adds that the loop over a thread's share is unrolled to, about.
const UNROLLED: u32 = 512;

#[derive(Serialize)]
struct Context {
    c: u32,
    h: u32,
    w: u32,
    r: u32,
    s: u32,
    stride_h: u32,
    stride_w: u32,
    pad_top: u32,
    /// Columns between a tile's first and the first that is staged.
    pad_x: u32,
    dilation_h: u32,
    dilation_w: u32,
    thread_n: u32,
    thread_p: u32,
    threads_n: u32,
    threads_p: u32,
    threads_w: u32,
    chunks: u32,
    /// Chunks of the whole sum.
    all_chunks: u32,
    tile_c: u32,
    rows: u32,
    row: u32,
    plane: u32,
    /// Where the first staged column that a pixel reads lies.
    first_column: u32,
    x_vector: u32,
    x_type: &'static str,
    x_elements: &'static [&'static str],
    vector_x: bool,
    items: u32,
    checks_items: bool,
    checks_c: bool,
    weight_buffers: u32,
    refills: bool,
    chunk_weights: u32,
    #[serde(flatten)]
    weight_copies: ChunkCopies,
    /// Steps of a thread in one chunk, and how often their loop is unrolled; 0 leaves that to the compiler.
    steps: u32,
    unroll: u32,
    /// Neighbouring input values that a thread reads for one row of the filter.
    reach: u32,
    scaled: bool,
    #[serde(flatten)]
    sums: SumsContext,
    #[serde(flatten)]
    ends: ConvEnds,
}

/// A tile's numbers with what follows from them.
struct Sizes {
    thread_n: u32,
    thread_p: u32,
    threads_n: u32,
    threads_w: u32,
    tile_c: u32,
    weight_buffers: u32,
    chunks: u32,
    rows: u32,
    row: u32,
    plane: u32,
    vector_x: bool,
    items: u32,
    reach: u32,
    chunk_weights: u32,
    sums: BlockSums,
    threads: u32,
    registers: Registers,
    /// Floats of shared memory that are staged, and all.
    staged: u32,
    shared_floats: u32,
    blocks: u64,
}

impl Sizes {
    /// `None` where the numbers do not fit each other or the problem.
    fn new(problem: &ConvProblem, tile: &[u32]) -> Option<Self> {
        let &[
            tile_h,
            tile_w,
            thread_n,
            thread_p,
            threads_n,
            shares,
            cluster,
            tile_c,
            weight_buffers,
        ] = tile
        else {
            return None;
        };
        // Each number by itself first: a config may name any.
        if tile.iter().any(|number| !(1..=256).contains(number))
            || tile_h * tile_w > 1024
            || thread_n * thread_p > 128
            || thread_n * threads_n > 256
            || weight_buffers > 16
        {
            return None;
        }
        let shape = &problem.shape;
        let tile_n = thread_n * threads_n;
        let threads_w = tile_w / thread_p;
        let threads = threads_n * threads_w * tile_h * shares;
        // The last block of a cluster has work, if less than the others.
        let chunks = shape.c.div_ceil(cluster * tile_c);
        if !tile_w.is_multiple_of(thread_p)
            || !(tile_c * shape.r).is_multiple_of(shares)
            || !(32..=MAX_THREADS).contains(&threads)
            || !tile_n.is_multiple_of(4)
            || cluster > MAX_CLUSTER
            || chunks * tile_c * (cluster - 1) >= shape.c
            || weight_buffers > chunks
        {
            return None;
        }
        let vector_x = stages_vectors(problem, tile_w);
        let [rows, row] = input_tile(problem, tile_h, tile_w);
        if rows * row > 1 << 13 {
            return None;
        }
        let plane = if vector_x {
            rows * row
        } else {
            (rows * row) | 1
        };
        let items = (tile_c * rows * row / if vector_x { 4 } else { 1 }).div_ceil(threads);
        let reach = (thread_p - 1) * shape.stride[1] + (shape.s - 1) * shape.dilation[1] + 1;
        let chunk_weights = tile_c * shape.r * shape.s * tile_n;
        let staged = weight_buffers * chunk_weights + (tile_c * plane).next_multiple_of(4);
        let sums = BlockSums {
            tile: [tile_h, tile_w, tile_n],
            threads,
            cluster,
            shares,
            partial_row: (tile_h * tile_w + 3) / 8 * 8 + 4,
        };
        let shared_floats = sums.shared_floats(problem, staged);
        let loaded = items * if vector_x { 4 } else { 1 };
        // Fitted to what the compiler takes for hundreds of tiles: sums, a row of the input, weights, what is loaded ahead, and where
        // it comes from if that is asked for more than once.
        let addresses = if cluster * chunks > 1 && !vector_x {
            4 * items
        } else {
            0
        };
        let wanted = thread_n * thread_p * 3 / 2 + 2 * (reach + thread_n + loaded) + addresses + 14;
        let registers = Registers::new(wanted, threads);
        let grid = sums.grid(problem);
        let fits = loaded <= 32 && shared_floats <= MAX_SHARED / 4 && grid[1] <= MAX_GRID;
        fits.then(|| Self {
            thread_n,
            thread_p,
            threads_n,
            threads_w,
            tile_c,
            weight_buffers,
            chunks,
            rows,
            row,
            plane,
            vector_x,
            items,
            reach,
            chunk_weights,
            threads,
            registers,
            staged,
            shared_floats,
            blocks: grid.iter().map(|&size| u64::from(size)).product(),
            sums,
        })
    }

    fn of(problem: &ConvProblem, tile: &Tile) -> Self {
        Self::new(problem, &tile.0).expect("a tile out of the scheme's own space")
    }

    /// Steps of a thread in one chunk: one channel, one row of the filter.
    fn steps(&self, problem: &ConvProblem) -> u32 {
        self.tile_c * problem.shape.r / self.sums.shares
    }

    /// For the estimate.
    fn work(&self, problem: &ConvProblem) -> KernelWork {
        let shape = &problem.shape;
        let fmas = f64::from(self.thread_n * self.thread_p * shape.s);
        let values = f64::from(self.reach.min(self.thread_p * shape.s));
        let weights = f64::from(shape.s * self.thread_n.div_ceil(4));
        let staged = f64::from(self.tile_c * self.rows * self.row);
        let (outputs, _) = self.sums.outputs(problem);
        let [tile_h, tile_w, _] = self.sums.tile;
        let x_vector = if self.vector_x { 4 } else { 1 };
        let places = self.tile_c * self.rows * self.row / x_vector;
        let traffic = InputTraffic::new(
            problem,
            [tile_h, tile_w],
            self.tile_c,
            f64::from(places) / 32.0,
        );
        let steps = f64::from(self.steps(problem));
        KernelWork {
            blocks: self.blocks,
            threads: self.threads,
            registers: self.registers.held,
            shared_bytes: 4 * self.shared_floats,
            dram_bytes: Problem::Conv(*problem).bytes() as f64,
            cluster: self.sums.cluster,
            overlaps: true,
            tiled: Some(TiledWork {
                chunks: f64::from(self.chunks),
                refills: f64::from(self.chunks - self.weight_buffers),
                steps,
                runs: (steps * fmas / f64::from(UNROLLED)).ceil(),
                products: 0.0,
                chained: 0.0,
                instructions: fmas + values + weights,
                // Pixels of a row lie apart, so that lanes fall on each other's banks.
                wavefronts: 2.0 * values + weights,
                places: f64::from(self.items),
                loads: if problem.prologue.is_some() { 3.0 } else { 1.0 },
                values: f64::from(x_vector),
                divisions: divisions(self.rows * self.row / x_vector, self.row / x_vector),
                lines: traffic.lines,
                staged_wavefronts: staged / 32.0,
                input_bytes: traffic.bytes,
                weight_bytes: f64::from(4 * self.chunk_weights),
                sums: f64::from(self.thread_n * self.thread_p),
                shares: f64::from(self.sums.shares),
                rounds: f64::from(outputs.div_ceil(self.threads)),
                store_divisions: self.sums.store_divisions(problem),
                sent_bytes: self.sums.sent_bytes(),
                stored_sectors: self.sums.stored_sectors(problem),
                residual: problem.epilogue.residual,
            }),
            ..KernelWork::default()
        }
    }
}

impl Scheme for DirectTiled {
    fn name(&self) -> &'static str {
        "direct_tiled"
    }

    fn tile_names(&self) -> &'static [&'static str] {
        &["h", "w", "n", "p", "g", "k", "z", "c", "s"]
    }

    fn tiles(&self, problem: &Problem) -> Vec<Tile> {
        let Problem::Conv(problem) = problem else {
            return Vec::new();
        };
        if !solves(problem) {
            return Vec::new();
        }
        let shape = &problem.shape;
        let mut found = Vec::new();
        for ([tile_h, tile_w], thread_p) in rectangles(shape.out_h(), shape.out_w()) {
            for thread_n in [2, 4, 8] {
                for threads_n in [1, 2, 3, 4, 8] {
                    let tile_n = thread_n * threads_n;
                    let threads = threads_n * (tile_w / thread_p) * tile_h;
                    if shape.n.next_multiple_of(tile_n) * 5 > shape.n.next_multiple_of(4) * 6 {
                        continue;
                    }
                    for shares in [1, 2, 4, 8, 12, 16, 24, 32] {
                        if !(32..=MAX_THREADS).contains(&(threads * shares)) {
                            continue;
                        }
                        for cluster in [1, 2, 3, 4, 6, 8] {
                            for tile_c in channels(shape.c.div_ceil(cluster)) {
                                let chunks = shape.c.div_ceil(cluster * tile_c);
                                if !(tile_c * shape.r).is_multiple_of(shares) {
                                    continue;
                                }
                                for weight_buffers in if chunks == 1 { 1..=1 } else { 2..=3 } {
                                    let tile = [
                                        tile_h,
                                        tile_w,
                                        thread_n,
                                        thread_p,
                                        threads_n,
                                        shares,
                                        cluster,
                                        tile_c,
                                        weight_buffers,
                                    ];
                                    if let Some(sizes) = Sizes::new(problem, &tile)
                                        && !sizes.registers.spills
                                    {
                                        found.push((promise(&sizes.work(problem)), tile));
                                    }
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
        let Problem::Conv(problem) = problem else {
            return false;
        };
        solves(problem) && Sizes::new(problem, &tile.0).is_some()
    }

    fn work(&self, problem: &Problem, tile: &Tile) -> UnitWork {
        let problem = convolution::of(problem);
        UnitWork {
            launches: vec![LaunchWork {
                role: convolution::role(false),
                work: Sizes::of(problem, tile).work(problem),
            }],
            zeroed_bytes: None,
        }
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile) -> Blueprint {
        let problem = convolution::of(problem);
        let sizes = Sizes::of(problem, tile);
        let layout = layout(problem, &sizes);
        let kernel = kernel(problem, &sizes, &layout);
        convolution::blueprint(problem, 1, kernel, layout)
    }
}

/// Whether the scheme can compute a problem: padded to whole tiles, the weights must still be counted by an int.
fn solves(problem: &ConvProblem) -> bool {
    let shape = &problem.shape;
    let weights = (u64::from(shape.n) + 256)
        * (u64::from(shape.c) + 2048)
        * u64::from(shape.r)
        * u64::from(shape.s);
    tiles_well(problem) && weights <= MAX_ELEMENTS
}

/// Output tiles that waste few pixels, each with the pixels of a thread.
fn rectangles(out_h: u32, out_w: u32) -> Vec<([u32; 2], u32)> {
    let mut found = Vec::new();
    for thread_p in [4, 7, 8] {
        for threads_w in [1, 2, 4, 8] {
            let tile_w = thread_p * threads_w;
            for tile_h in [1, 2, 4, 7, 8] {
                let wide = threads_w > 1 && tile_w >= out_w + thread_p;
                if wide || tile_h > out_h || tile_h * tile_w > 448 {
                    continue;
                }
                let computed = u64::from(out_h.div_ceil(tile_h) * tile_h)
                    * u64::from(out_w.div_ceil(tile_w) * tile_w);
                found.push((computed, ([tile_h, tile_w], thread_p)));
            }
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

/// Channels of a chunk: all of a block's, or a power of two of them.
fn channels(all: u32) -> Vec<u32> {
    let mut found: Vec<u32> = [4, 8, 16, 32, 64]
        .into_iter()
        .filter(|&c| c < all)
        .collect();
    found.extend((all <= 128).then_some(all));
    found
}

/// `[O/TN][I][R][S][O%TN]`, the input channels padded to whole chunks: what a block stages of a chunk lies in one piece.
fn layout(problem: &ConvProblem, sizes: &Sizes) -> WeightLayout {
    let shape = &problem.shape;
    let dim = |axis, count, step| LayoutDim { axis, count, step };
    let tile_n = sizes.sums.tile[2];
    WeightLayout {
        source: problem.shape.weight(),
        dims: vec![
            dim(Axis::O, shape.n.div_ceil(tile_n), tile_n),
            dim(Axis::I, sizes.sums.cluster * sizes.chunks * sizes.tile_c, 1),
            dim(Axis::R, shape.r, 1),
            dim(Axis::S, shape.s, 1),
            dim(Axis::O, tile_n, 1),
        ]
        .into(),
        filter: Filter::Taps,
        transform: Transform::None,
        prologue_channels: Problem::Conv(*problem).affine_channels(),
    }
}

fn kernel(problem: &ConvProblem, sizes: &Sizes, layout: &WeightLayout) -> KernelBlueprint {
    let shape = &problem.shape;
    let x_vector = if sizes.vector_x { 4 } else { 1 };
    let (x_type, x_elements) = vector(x_vector);
    let pad_left = shape.padding.left;
    let steps = sizes.steps(problem);
    let step_fmas = sizes.thread_n * sizes.thread_p * shape.s;
    let [tile_h, _, _] = sizes.sums.tile;
    let cluster = sizes.sums.cluster;
    let context = context(&Context {
        c: shape.c,
        h: shape.h,
        w: shape.w,
        r: shape.r,
        s: shape.s,
        stride_h: shape.stride[0],
        stride_w: shape.stride[1],
        pad_top: shape.padding.top,
        pad_x: if sizes.vector_x { 4 } else { pad_left },
        dilation_h: shape.dilation[0],
        dilation_w: shape.dilation[1],
        thread_n: sizes.thread_n,
        thread_p: sizes.thread_p,
        threads_n: sizes.threads_n,
        threads_p: sizes.threads_w * tile_h,
        threads_w: sizes.threads_w,
        chunks: sizes.chunks,
        all_chunks: sizes.chunks * cluster,
        tile_c: sizes.tile_c,
        rows: sizes.rows,
        row: sizes.row,
        plane: sizes.plane,
        first_column: if sizes.vector_x { 4 - pad_left } else { 0 },
        x_vector,
        x_type,
        x_elements,
        vector_x: sizes.vector_x,
        items: sizes.items,
        checks_items: sizes.items * sizes.threads * x_vector
            != sizes.tile_c * sizes.rows * sizes.row,
        checks_c: sizes.chunks * cluster * sizes.tile_c != shape.c,
        weight_buffers: sizes.weight_buffers,
        refills: cluster > 1 || sizes.chunks > sizes.weight_buffers,
        chunk_weights: sizes.chunk_weights,
        weight_copies: ChunkCopies::new(sizes.chunk_weights, sizes.threads),
        steps,
        unroll: (UNROLLED / step_fmas).clamp(1, steps),
        reach: sizes.reach,
        scaled: false,
        sums: sizes.sums.context(problem, sizes.staged),
        ends: ConvEnds::new(problem, layout, false),
    });
    KernelBlueprint {
        role: convolution::role(false),
        template: "kernel/direct_tiled.cu",
        context,
        grid: sizes.sums.grid(problem),
        block: [sizes.threads, 1, 1],
        cluster: [1, 1, cluster],
        shared_bytes: 4 * sizes.shared_floats,
        overlaps: true,
        device: if cluster > 1 {
            DEVICE_WITH_CLUSTERS
        } else {
            &DEVICE_WITH_CLUSTERS[1..]
        },
        args: convolution::args(problem, false),
        work: sizes.work(problem),
    }
}
