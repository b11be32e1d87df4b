//! `direct_tiled`: a convolution from its definition in fp32, with tiles in registers and in shared memory.
//!
//! A thread computes a few output channels of a few adjacent pixels: each input value and each weight that it reads from shared
//! memory is used in several multiply-adds. A block stages the input tile of a chunk of channels through registers, and loads
//! that of the next chunk while it computes. It loads the weights of a chunk by asynchronous copies that start before the
//! predecessor kernel has finished. If the output is too small to fill a GPU, K is split over groups of threads and over the
//! blocks of a cluster. The partial sums are added on chip in a fixed order.

use super::convolution::{self, FusedOpsContext};
use super::info::SchemeInfo;
use super::tiling::{
    BlockOutput, BlockOutputContext, InputTraffic, RegisterEstimate, RoughTime, WeightCopies,
    can_stage_float4, fastest, index_divisions, input_tile, supports_tiling, vector_type,
};
use super::{
    Blueprint, DevicePart, KernelBlueprint, LaunchWork, MAX_GRID, Scheme, Tile, TileField,
    TileSearch, UnitWork, context, tile_numbers,
};
use crate::cost::{KernelWork, TiledTotals, TiledWork, fp32_issue_us};
use crate::gpu::{Gpu, PORTABLE_CLUSTER, Products};
use crate::ir::{ConvProblem, MAX_ELEMENTS, Problem};
use serde::Serialize;
use tdc_runtime::{Axis, Filter, LayoutDim, Transform, WeightLayout};

/// See the [module](self).
pub struct DirectTiled;

tile_numbers! {
    /// A tile of the [module](self)'s scheme.
    struct DirectTiledTile {
        /// Output rows of a block.
        th: "h",
        /// Output columns of a block.
        tw: "w",
        /// Output channels of a thread, in registers.
        rn: "rn",
        /// Neighbouring pixels of a thread, in registers.
        rp: "rp",
        /// Threads along the output channels.
        threads_n: "xn",
        /// Groups of threads that split K (split-K inside the block).
        threads_k: "xk",
        /// Blocks of a cluster, which split the input channels.
        cluster: "cl",
        /// Input channels of a chunk.
        tc: "c",
        /// Pipeline stages (shared-memory buffers) of the packed weights.
        stages: "s",
    }
}

/// Maximum number of threads of a block.
const MAX_THREADS: u32 = 512;

/// Parts of the device header that the kernel uses; the first one only with clusters.
const DEVICE_WITH_CLUSTERS: &[DevicePart] = &[
    DevicePart::Cluster,
    DevicePart::DynamicShared,
    DevicePart::AsyncCopy,
    DevicePart::Pdl,
];

/// Approximate number of multiply-adds to which the loop over a thread's steps is unrolled.
const UNROLLED: u32 = 512;

#[derive(Serialize)]
struct DirectTiledContext {
    c: u32,
    h: u32,
    w: u32,
    r: u32,
    s: u32,
    stride_h: u32,
    stride_w: u32,
    pad_top: u32,
    /// Staged columns to the left of the output tile's first column.
    aligned_pad_left: u32,
    dilation_h: u32,
    dilation_w: u32,
    rn: u32,
    rp: u32,
    threads_n: u32,
    threads_p: u32,
    threads_w: u32,
    chunks: u32,
    /// Chunks of the complete sum, over all blocks of a cluster.
    all_chunks: u32,
    tc: u32,
    rows: u32,
    row_len: u32,
    plane: u32,
    /// Index of the first staged column that an output pixel reads.
    first_column: u32,
    x_vector: u32,
    x_type: &'static str,
    x_elements: &'static [&'static str],
    vector_x: bool,
    items: u32,
    checks_items: bool,
    checks_c: bool,
    stages: u32,
    refills_stages: bool,
    chunk_weights: u32,
    #[serde(flatten)]
    weight_copies: WeightCopies,
    /// Steps of a thread in one chunk, and the unroll factor of their loop.
    steps: u32,
    unroll: u32,
    /// Adjacent input values that a thread reads for one row of the filter.
    window_len: u32,
    scaled: bool,
    #[serde(flatten)]
    sums: BlockOutputContext,
    #[serde(flatten)]
    fused_ops: FusedOpsContext,
}

/// A tile and the sizes that follow from it for a problem.
struct DirectTiledGeometry {
    tile: DirectTiledTile,
    threads_w: u32,
    chunks: u32,
    rows: u32,
    row_len: u32,
    plane: u32,
    vector_x: bool,
    items: u32,
    window_len: u32,
    chunk_weights: u32,
    sums: BlockOutput,
    threads: u32,
    registers: RegisterEstimate,
    /// Floats of shared memory: of the staging buffers, and in total.
    staged: u32,
    shared_floats: u32,
    blocks: u64,
}

impl DirectTiledGeometry {
    /// `None` if the tile is invalid, or does not fit the problem or the GPU.
    fn new(problem: &ConvProblem, tile: DirectTiledTile, gpu: &Gpu) -> Option<Self> {
        let DirectTiledTile {
            th,
            tw,
            rn,
            rp,
            threads_n,
            threads_k,
            cluster,
            tc,
            stages,
        } = tile;
        // The limits of single numbers come first: a config may set any number, and later products must not overflow.
        if tile
            .numbers()
            .iter()
            .any(|number| !(1..=256).contains(number))
            || th * tw > 1024
            || rn * rp > 128
            || rn * threads_n > 256
            || stages > 16
        {
            return None;
        }
        let shape = &problem.shape;
        let tn = rn * threads_n;
        let threads_w = tw / rp;
        let threads = threads_n * threads_w * th * threads_k;
        // Every block of a cluster has input channels, the last one possibly fewer than the others.
        let chunks = shape.c.div_ceil(cluster * tc);
        if !tw.is_multiple_of(rp)
            || !(tc * shape.r).is_multiple_of(threads_k)
            || !(32..=MAX_THREADS).contains(&threads)
            || !tn.is_multiple_of(4)
            || cluster > PORTABLE_CLUSTER
            || chunks * tc * (cluster - 1) >= shape.c
            || stages > chunks
        {
            return None;
        }
        let vector_x = can_stage_float4(problem, tw);
        let [rows, row_len] = input_tile(problem, th, tw);
        if rows * row_len > 1 << 13 {
            return None;
        }
        let plane = if vector_x {
            rows * row_len
        } else {
            (rows * row_len) | 1
        };
        let items = (tc * rows * row_len / if vector_x { 4 } else { 1 }).div_ceil(threads);
        let window_len = window_len(problem, rp);
        let chunk_weights = tc * shape.r * shape.s * tn;
        let staged = stages * chunk_weights + (tc * plane).next_multiple_of(4);
        let sums = BlockOutput {
            tile: [th, tw, tn],
            group_n: problem.shape.n,
            threads,
            cluster,
            k_splits: threads_k,
            partial_rows: tn,
            partial_pitch: (th * tw + 3) / 8 * 8 + 4,
        };
        let shared_floats = sums.shared_floats(problem, staged);
        let loaded = items * if vector_x { 4 } else { 1 };
        // Fitted to the compiler's register counts for hundreds of tiles: accumulators, a row of the input, weights, prefetched
        // values, and their addresses if there are several chunks.
        let addresses = if cluster * chunks > 1 && !vector_x {
            4 * items
        } else {
            0
        };
        let wanted = rn * rp * 3 / 2 + 2 * (window_len + rn + loaded) + addresses + 14;
        let registers = RegisterEstimate::new(wanted, threads);
        let grid = sums.grid(problem);
        let fits = loaded <= 32 && shared_floats <= gpu.shared_per_block / 4 && grid[1] <= MAX_GRID;
        fits.then(|| Self {
            tile,
            threads_w,
            chunks,
            rows,
            row_len,
            plane,
            vector_x,
            items,
            window_len,
            chunk_weights,
            threads,
            registers,
            staged,
            shared_floats,
            blocks: grid.iter().map(|&size| u64::from(size)).product(),
            sums,
        })
    }

    fn from_tile(problem: &ConvProblem, tile: &Tile, gpu: &Gpu) -> Option<Self> {
        Self::new(problem, DirectTiledTile::from_tile(tile)?, gpu)
    }

    /// The sizes of a supported tile.
    fn of_supported(problem: &ConvProblem, tile: &Tile, gpu: &Gpu) -> Self {
        Self::from_tile(problem, tile, gpu).expect("a supported tile")
    }

    /// Steps of a thread in one chunk; each is one channel and one row of the filter.
    fn steps(&self, problem: &ConvProblem) -> u32 {
        self.tile.tc * problem.shape.r / self.sums.k_splits
    }

    /// Work of the launch, for the cost model. `dram_bytes` are those of the problem.
    fn work(&self, problem: &ConvProblem, dram_bytes: f64) -> KernelWork {
        let step = StepWork::new(problem, self.tile.rn, self.tile.rp);
        let staged = f64::from(self.tile.tc * self.rows * self.row_len);
        let (outputs, _) = self.sums.outputs(problem);
        let [th, tw, _] = self.sums.tile;
        let x_vector = if self.vector_x { 4 } else { 1 };
        let places = self.tile.tc * self.rows * self.row_len / x_vector;
        let traffic = InputTraffic::new(problem, [th, tw], self.tile.tc, f64::from(places) / 32.0);
        let steps = f64::from(self.steps(problem));
        KernelWork {
            blocks: self.blocks,
            threads: self.threads,
            registers: self.registers.allocated,
            shared_bytes: 4 * self.shared_floats,
            dram_bytes,
            cluster: self.sums.cluster,
            pdl: true,
            products: Products::Fp32,
            tiled: Some(TiledWork {
                chunks: f64::from(self.chunks),
                refilled_chunks: f64::from(self.chunks - self.tile.stages),
                k_steps: steps,
                loops: (steps * step.fmas / f64::from(UNROLLED)).ceil(),
                mma_per_step: 0.0,
                dependent_mma: 0.0,
                instructions_per_step: step.instructions,
                wavefronts_per_step: step.wavefronts,
                positions: f64::from(self.items),
                loads_per_position: if problem.prologue.is_some() { 3.0 } else { 1.0 },
                values_per_position: f64::from(x_vector),
                divisions_per_position: index_divisions(
                    self.rows * self.row_len / x_vector,
                    self.row_len / x_vector,
                ),
                cache_lines: traffic.lines,
                staged_wavefronts: staged / 32.0,
                input_bytes: traffic.bytes,
                weight_bytes: f64::from(4 * self.chunk_weights),
                accumulators: f64::from(self.tile.rn * self.tile.rp),
                partial_sums: f64::from(self.sums.k_splits),
                store_rounds: f64::from(outputs.div_ceil(self.threads)),
                store_divisions: self.sums.store_divisions(problem),
                sent_bytes: self.sums.sent_bytes(),
                stored_sectors: self.sums.stored_sectors(problem),
                residual: problem.epilogue.residual,
            }),
            ..KernelWork::default()
        }
    }
}

/// The tiles with the same output of a block and of its threads, and the same cluster size.
#[derive(Clone, Copy)]
struct TileGroup {
    th: u32,
    tw: u32,
    rn: u32,
    rp: u32,
    threads_n: u32,
    cluster: u32,
}

impl TileGroup {
    /// Every group of a problem; empty if the scheme does not support it.
    fn all(problem: &ConvProblem, gpu: &Gpu) -> Vec<Self> {
        if !supports_problem(problem) {
            return Vec::new();
        }
        let shape = &problem.shape;
        let mut found = Vec::new();
        for ([th, tw], rp) in tile_shapes(shape.out_h(), shape.out_w()) {
            for rn in [2, 4, 8] {
                for threads_n in [1, 2, 3, 4, 8] {
                    let tn = rn * threads_n;
                    if shape.n.next_multiple_of(tn) * 5 > shape.n.next_multiple_of(4) * 6 {
                        continue;
                    }
                    let clusters = [1, 2, 3, 4, 6, 8].into_iter();
                    let clusters = clusters.filter(|&size| size <= gpu.max_cluster());
                    found.extend(clusters.map(|cluster| Self {
                        th,
                        tw,
                        rn,
                        rp,
                        threads_n,
                        cluster,
                    }));
                }
            }
        }
        found
    }

    /// Threads of a block that compute different outputs.
    fn output_threads(self) -> u32 {
        self.threads_n * (self.tw / self.rp) * self.th
    }

    /// Its tiles with a split that fit the GPU.
    fn tiles(
        self,
        split: Split,
        problem: &ConvProblem,
        gpu: &Gpu,
    ) -> impl Iterator<Item = DirectTiledGeometry> {
        let stages = if split.chunks == 1 { 1..=1 } else { 2..=3 };
        let tiles = stages.map(move |stages| DirectTiledTile {
            th: self.th,
            tw: self.tw,
            rn: self.rn,
            rp: self.rp,
            threads_n: self.threads_n,
            threads_k: split.threads_k,
            cluster: self.cluster,
            tc: split.tc,
            stages,
        });
        tiles
            .filter_map(|tile| DirectTiledGeometry::new(problem, tile, gpu))
            .filter(|sizes| !sizes.registers.spills)
    }

    /// The least work of its tiles. `dram_bytes` are those of the problem.
    fn totals(self, problem: &ConvProblem, dram_bytes: f64) -> TiledTotals {
        let shape = &problem.shape;
        let channels = shape.c.div_ceil(self.cluster);
        let step = StepWork::new(problem, self.rn, self.rp);
        let [rows, row_len] = input_tile(problem, self.th, self.tw);
        let x_vector = if can_stage_float4(problem, self.tw) {
            4
        } else {
            1
        };
        let staged = f64::from(channels) * f64::from(rows * row_len);
        let traffic = InputTraffic::new(problem, [self.th, self.tw], channels, 0.0);
        let output_threads = self.output_threads();
        let sums = BlockOutput {
            tile: [self.th, self.tw, self.rn * self.threads_n],
            group_n: problem.shape.n,
            threads: output_threads,
            cluster: self.cluster,
            k_splits: 1,
            partial_rows: 0,
            partial_pitch: 0,
        };
        let (outputs, _) = sums.outputs(problem);
        let steps = f64::from(channels * shape.r);
        let weights = steps * f64::from(shape.s * sums.tile[2]);
        TiledTotals {
            blocks: sums
                .grid(problem)
                .iter()
                .map(|&size| u64::from(size))
                .product(),
            cluster: self.cluster,
            dram_bytes,
            products: Products::Fp32,
            outputs: f64::from(outputs),
            work: TiledWork {
                // Threads of several steps share a warp if they compute few outputs.
                k_steps: steps * f64::from(output_threads) / 32.0,
                instructions_per_step: step.instructions,
                wavefronts_per_step: step.wavefronts,
                positions: staged / f64::from(x_vector),
                loads_per_position: 1.0,
                values_per_position: f64::from(x_vector),
                cache_lines: traffic.lines,
                staged_wavefronts: staged / 32.0,
                input_bytes: traffic.bytes,
                weight_bytes: 4.0 * weights,
                accumulators: f64::from(self.rn * self.rp),
                sent_bytes: sums.sent_bytes(),
                stored_sectors: sums.stored_sectors(problem),
                residual: problem.epilogue.residual,
                ..TiledWork::default()
            },
        }
    }
}

/// How the sum of a block is split.
#[derive(Clone, Copy)]
struct Split {
    /// Input channels of a chunk.
    tc: u32,
    chunks: u32,
    threads_k: u32,
}

impl Split {
    /// The splits for each cluster size, from 1.
    fn all(problem: &ConvProblem, gpu: &Gpu) -> Vec<Vec<Self>> {
        let shape = &problem.shape;
        let of_cluster = |cluster| {
            let mut found = Vec::new();
            for threads_k in [1, 2, 4, 8, 12, 16, 24, 32] {
                let chunks = chunk_channels(shape.c.div_ceil(cluster)).into_iter();
                let chunks = chunks.filter(|tc| (tc * shape.r).is_multiple_of(threads_k));
                found.extend(chunks.map(|tc| Self {
                    tc,
                    chunks: shape.c.div_ceil(cluster * tc),
                    threads_k,
                }));
            }
            found
        };
        (1..=gpu.max_cluster()).map(of_cluster).collect()
    }
}

/// The work of a warp's K step: one channel and one row of the filter.
struct StepWork {
    /// Multiply-adds of a thread.
    fmas: f64,
    instructions: f64,
    /// Shared-memory wavefronts of the operands.
    wavefronts: f64,
}

impl StepWork {
    /// Of threads that compute `rp` pixels of `rn` channels.
    fn new(problem: &ConvProblem, rn: u32, rp: u32) -> Self {
        let taps = problem.shape.s;
        let fmas = f64::from(rn * rp * taps);
        let values = f64::from(window_len(problem, rp).min(rp * taps));
        let weights = f64::from(taps * rn.div_ceil(4));
        Self {
            fmas,
            instructions: fmas + values + weights,
            // The pixels of adjacent threads are `rp` apart, which causes bank conflicts.
            wavefronts: 2.0 * values + weights,
        }
    }
}

/// Neighbouring input values that a thread reads for one row of the filter.
fn window_len(problem: &ConvProblem, rp: u32) -> u32 {
    let shape = &problem.shape;
    (rp - 1) * shape.stride[1] + (shape.s - 1) * shape.dilation[1] + 1
}

/// Every tile that fits the GPU, with its rough time.
fn rated_tiles(problem: &Problem, gpu: &Gpu) -> Vec<(f64, DirectTiledTile)> {
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

impl Scheme for DirectTiled {
    fn name(&self) -> &'static str {
        "direct_tiled"
    }

    fn info(&self) -> SchemeInfo {
        SchemeInfo::own("convolutions of one group")
    }

    fn tile_fields(&self) -> &'static [TileField] {
        DirectTiledTile::FIELDS
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
        // Every tile issues all multiply-adds on the fp32 lanes.
        if !search.can_improve(fp32_issue_us(problem.shape.flops(), gpu)) {
            return;
        }
        let dram_bytes = Problem::Conv(*problem).bytes() as f64;
        let groups = TileGroup::all(problem, gpu).into_iter();
        let groups = groups.map(|group| {
            let bound = group.totals(problem, dram_bytes).bound(gpu);
            let warps = [group.output_threads().div_ceil(32), MAX_THREADS / 32];
            (bound.us(1, warps), (group, bound))
        });
        let splits = Split::all(problem, gpu);
        search.best_first(groups.collect(), |search, (group, bound)| {
            for split in &splits[group.cluster as usize - 1] {
                let threads = group.output_threads() * split.threads_k;
                let warps = threads.div_ceil(32);
                if !(32..=MAX_THREADS).contains(&threads)
                    || !search.can_improve(bound.us(split.chunks, [warps; 2]))
                {
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
        supports_problem(problem) && DirectTiledGeometry::from_tile(problem, tile, gpu).is_some()
    }

    fn work(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> UnitWork {
        let problem = convolution::expect_conv(problem);
        UnitWork {
            launches: vec![LaunchWork {
                role: convolution::role(false),
                work: DirectTiledGeometry::of_supported(problem, tile, gpu)
                    .work(problem, Problem::Conv(*problem).bytes() as f64),
            }],
            zeroed_bytes: None,
        }
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> Blueprint {
        let problem = convolution::expect_conv(problem);
        let sizes = DirectTiledGeometry::of_supported(problem, tile, gpu);
        let layout = layout(problem, &sizes);
        let kernel = kernel(problem, &sizes, &layout);
        convolution::blueprint(problem, 1, kernel, layout)
    }
}

/// Whether the scheme can compute a problem. The number of weights, padded to complete tiles, must fit an `int`.
fn supports_problem(problem: &ConvProblem) -> bool {
    let shape = &problem.shape;
    let weights = (u64::from(shape.n) + 256)
        * (u64::from(shape.c) + 2048)
        * u64::from(shape.r)
        * u64::from(shape.s);
    supports_tiling(problem) && weights <= MAX_ELEMENTS
}

/// Output tiles that waste few pixels, each with the number of pixels of a thread.
fn tile_shapes(out_h: u32, out_w: u32) -> Vec<([u32; 2], u32)> {
    let mut found = Vec::new();
    for rp in [4, 7, 8] {
        for threads_w in [1, 2, 4, 8] {
            let tw = rp * threads_w;
            for th in [1, 2, 4, 7, 8] {
                let wide = threads_w > 1 && tw >= out_w + rp;
                if wide || th > out_h || th * tw > 448 {
                    continue;
                }
                let computed =
                    u64::from(out_h.div_ceil(th) * th) * u64::from(out_w.div_ceil(tw) * tw);
                found.push((computed, ([th, tw], rp)));
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

/// Candidates for the channels of a chunk: all channels of a block, or a power of two.
fn chunk_channels(all: u32) -> Vec<u32> {
    let mut found: Vec<u32> = [4, 8, 16, 32, 64]
        .into_iter()
        .filter(|&c| c < all)
        .collect();
    found.extend((all <= 128).then_some(all));
    found
}

/// `[O/TN][I][R][S][O%TN]`, with the input channels padded to complete chunks. The weights that a block stages for a chunk are
/// contiguous.
fn layout(problem: &ConvProblem, sizes: &DirectTiledGeometry) -> WeightLayout {
    let shape = &problem.shape;
    let dim = |axis, count, step| LayoutDim { axis, count, step };
    let tn = sizes.sums.tile[2];
    WeightLayout {
        source: problem.shape.weight(),
        dims: vec![
            dim(Axis::O, shape.n.div_ceil(tn), tn),
            dim(
                Axis::I,
                sizes.sums.cluster * sizes.chunks * sizes.tile.tc,
                1,
            ),
            dim(Axis::R, shape.r, 1),
            dim(Axis::S, shape.s, 1),
            dim(Axis::O, tn, 1),
        ]
        .into(),
        filter: Filter::Taps,
        transform: Transform::None,
        prologue_channels: Problem::Conv(*problem).scale_shift_channels(),
    }
}

fn kernel(
    problem: &ConvProblem,
    sizes: &DirectTiledGeometry,
    layout: &WeightLayout,
) -> KernelBlueprint {
    let shape = &problem.shape;
    let x_vector = if sizes.vector_x { 4 } else { 1 };
    let (x_type, x_elements) = vector_type(x_vector);
    let pad_left = shape.padding.left;
    let steps = sizes.steps(problem);
    let step_fmas = sizes.tile.rn * sizes.tile.rp * shape.s;
    let [th, _, _] = sizes.sums.tile;
    let cluster = sizes.sums.cluster;
    let context = context(&DirectTiledContext {
        c: shape.c,
        h: shape.h,
        w: shape.w,
        r: shape.r,
        s: shape.s,
        stride_h: shape.stride[0],
        stride_w: shape.stride[1],
        pad_top: shape.padding.top,
        aligned_pad_left: if sizes.vector_x { 4 } else { pad_left },
        dilation_h: shape.dilation[0],
        dilation_w: shape.dilation[1],
        rn: sizes.tile.rn,
        rp: sizes.tile.rp,
        threads_n: sizes.tile.threads_n,
        threads_p: sizes.threads_w * th,
        threads_w: sizes.threads_w,
        chunks: sizes.chunks,
        all_chunks: sizes.chunks * cluster,
        tc: sizes.tile.tc,
        rows: sizes.rows,
        row_len: sizes.row_len,
        plane: sizes.plane,
        first_column: if sizes.vector_x { 4 - pad_left } else { 0 },
        x_vector,
        x_type,
        x_elements,
        vector_x: sizes.vector_x,
        items: sizes.items,
        checks_items: sizes.items * sizes.threads * x_vector
            != sizes.tile.tc * sizes.rows * sizes.row_len,
        checks_c: sizes.chunks * cluster * sizes.tile.tc != shape.c,
        stages: sizes.tile.stages,
        refills_stages: cluster > 1 || sizes.chunks > sizes.tile.stages,
        chunk_weights: sizes.chunk_weights,
        weight_copies: WeightCopies::new(sizes.chunk_weights, sizes.threads),
        steps,
        unroll: (UNROLLED / step_fmas).clamp(1, steps),
        window_len: sizes.window_len,
        scaled: false,
        sums: sizes.sums.context(problem, sizes.staged),
        fused_ops: FusedOpsContext::new(problem, layout, false),
    });
    KernelBlueprint {
        role: convolution::role(false),
        template: "kernel/direct_tiled.cu",
        context,
        grid: sizes.sums.grid(problem),
        block: [sizes.threads, 1, 1],
        cluster: [1, 1, cluster],
        shared_bytes: 4 * sizes.shared_floats,
        pdl: true,
        device: if cluster > 1 {
            DEVICE_WITH_CLUSTERS
        } else {
            &DEVICE_WITH_CLUSTERS[1..]
        },
        args: convolution::args(problem, false),
        work: sizes.work(problem, Problem::Conv(*problem).bytes() as f64),
    }
}
