//! `implicit_gemm`: a convolution as a matrix product on the tensor cores, in any precision.
//!
//! Output channels are rows, output pixels are columns, and the sum runs over the filter's taps and groups of 16 input channels;
//! the matrix of shifted inputs is never built. fp32 is split in two fp16 numbers, what rounding to the first leaves being the
//! second, and three products of four are added up: 22 bits of each operand. In tf32 and fp16 the first number is enough: its
//! 11 bits are those of tf32. Powers of two keep fp16 in range, one for each output channel of the weights, found when they
//! are packed, and one for each staged chunk of the input, found as it is loaded. So the error is relative to the largest value of
//! a tile, and an infinite input spoils its whole tile. In bf16, whose range is that of fp32, nothing is scaled.
//!
//! A block stages the input tile of a chunk of channels as halves, its weights by asynchronous copies that begin before the
//! launch ahead has ended. Warps split output channels, pixels and the sum; blocks of a cluster split the sum further. Shares
//! are added through shared memory in a fixed order. Tensor cores cut sums off instead of rounding: after [`CHAIN`] steps a
//! partial sum is added in fp32, which keeps the error within twice that of a plain fp32 sum.

use super::block_sums::{BlockSums, MAX_CLUSTER, MAX_SHARED, most_promising, promise, tiles_well};
use super::convolution;
use super::matrix_product::{
    Blocking, CHAIN, MAX_WARPS, MatrixContext, P_TILE, STEP_CHANNELS, channel_tiles, device,
    divisors, multiplies_well, parts, weight_buffers,
};
use super::{Blueprint, KernelBlueprint, LaunchWork, MAX_GRID, Scheme, Tile, UnitWork, context};
use crate::gpu::KernelWork;
use crate::spec::{ConvProblem, Problem};
use serde::Serialize;
use tdc_runtime::{Filter, WeightLayout};

/// See the [module](self).
pub struct ImplicitGemm;

/// Tiles of sums that a warp holds at most: 16 channels of 8 pixels each, four registers.
const MAX_SUMS: u32 = 16;

#[derive(Serialize)]
struct Context {
    r: u32,
    s: u32,
    taps: u32,
    dilation_h: u32,
    dilation_w: u32,
    warps_p: u32,
    warps_k: u32,
    plane: u32,
    /// Where the first staged column that a pixel reads lies.
    first_column: u32,
    checks_pixel: bool,
    /// Steps that a warp takes of a chunk, and how many of them add to one partial sum.
    steps: u32,
    chain: u32,
    #[serde(flatten)]
    matrix: MatrixContext,
}

/// A tile's numbers with what follows from them.
struct Sizes {
    blocking: Blocking,
    warps_p: u32,
    warps_k: u32,
    plane: u32,
    sums: BlockSums,
    /// Floats of shared memory that are staged, and all.
    staged: u32,
    shared_floats: u32,
    /// Of a thread, guessed.
    registers: u32,
    blocks: u64,
    /// Parts that a value is split into.
    parts: u32,
}

impl Sizes {
    /// `None` where the numbers do not fit each other or the problem.
    fn new(problem: &ConvProblem, tile: &[u32]) -> Option<Self> {
        let &[
            tile_h,
            tile_w,
            m_tiles,
            warps_m,
            warps_p,
            warps_k,
            cluster,
            groups,
            weight_buffers,
        ] = tile
        else {
            return None;
        };
        if tile.contains(&0)
            || tile_h.max(tile_w) > 256
            || tile[2..].iter().any(|&number| number > 16)
        {
            return None;
        }
        let shape = &problem.shape;
        let chunks = Blocking::chunks(problem, cluster, groups)?;
        let pixel_tiles = (tile_h * tile_w).div_ceil(P_TILE);
        if !pixel_tiles.is_multiple_of(warps_p)
            || !(groups * shape.r * shape.s).is_multiple_of(warps_k)
        {
            return None;
        }
        let blocking = Blocking {
            tile_h,
            tile_w,
            m_tiles,
            p_tiles: pixel_tiles / warps_p,
            warps_m,
            warps: warps_m * warps_p * warps_k,
            cluster,
            groups,
            chunks,
            weight_buffers,
            filter: Filter::Taps,
        };
        let sums_of_warp = m_tiles * blocking.p_tiles;
        let [rows, row] = blocking.input_tile(problem);
        if blocking.warps > MAX_WARPS
            || sums_of_warp > MAX_SUMS
            || cluster > MAX_CLUSTER
            || weight_buffers > chunks
            || rows * row > 1 << 13
        {
            return None;
        }
        let parts = parts(problem.precision);
        // Four pairs of channels of a step fall into different banks: of the 32 words of 4 bytes the planes of a pair begin 8
        // apart, with two parts of the 16 of 8 bytes 4 apart.
        let banks = 32 / parts;
        let plane = (rows * row)
            .saturating_sub(banks / 4)
            .next_multiple_of(banks)
            + banks / 4;
        let staged = weight_buffers * blocking.chunk_weights(problem)
            + blocking.pairs() * plane * parts
            + 2 * blocking.warps;
        let sums = BlockSums {
            tile: [tile_h, tile_w, blocking.tile_n()],
            cluster,
            shares: warps_k,
            // Eight rows of channels, two pixels of each lane: in different banks.
            partial_row: (pixel_tiles * P_TILE + 23) / 32 * 32 + 8,
        };
        let shared_floats = sums.shared_floats(problem, staged);
        let grid = sums.grid(problem);
        // Registers: sums twice, operands, what is loaded ahead, addresses.
        let loaded = blocking.loaded(problem);
        let registers = 8 * sums_of_warp + 8 * m_tiles + 5 * blocking.p_tiles + loaded + 36;
        let fits = loaded <= 64
            && registers * blocking.threads() <= 65536
            && registers <= 255
            && shared_floats * 4 <= MAX_SHARED
            && grid[1] <= MAX_GRID;
        fits.then_some(Self {
            blocking,
            warps_p,
            warps_k,
            plane,
            sums,
            staged,
            shared_floats,
            registers,
            blocks: grid.iter().map(|&size| u64::from(size)).product(),
            parts,
        })
    }

    fn of(problem: &ConvProblem, tile: &Tile) -> Self {
        Self::new(problem, &tile.0).expect("a tile out of the scheme's own space")
    }

    /// Steps of a warp in one chunk.
    fn steps(&self, problem: &ConvProblem) -> u32 {
        self.blocking.groups * problem.shape.r * problem.shape.s / self.warps_k
    }

    /// For the estimate.
    fn work(&self, problem: &ConvProblem) -> KernelWork {
        let Blocking {
            m_tiles,
            p_tiles,
            warps,
            chunks,
            groups,
            ..
        } = self.blocking;
        let threads = self.blocking.threads();
        let steps = f64::from(chunks * self.steps(problem));
        let products = f64::from(m_tiles * p_tiles * (2 * self.parts - 1));
        let blocks = self.blocks as f64;
        let weights = f64::from(chunks * self.blocking.chunk_weights(problem));
        let [rows, row] = self.blocking.input_tile(problem);
        let values = f64::from(chunks * groups * STEP_CHANNELS) * f64::from(rows * row);
        let items = chunks * self.blocking.items(problem);
        let sums = f64::from(self.blocking.tile_n() * self.sums.partial_row);
        // Clocks that a warp holds its quarter of a multiprocessor, fitted to measured times: around the products, for what is
        // loaded, for the sums of a thread.
        let loads = f64::from(self.parts * m_tiles + 2 * self.parts * p_tiles);
        let step_issue = 3.0 * loads + 28.0;
        let vector_x = self.blocking.vector_x(problem);
        let staging = f64::from(items) * if vector_x { 112.0 } else { 56.0 };
        let thread_sums = sums / f64::from(threads);
        let reduction = 14.0 * thread_sums * f64::from(self.warps_k + 2);
        KernelWork {
            blocks: self.blocks,
            threads,
            registers: self.registers,
            shared_bytes: 4 * self.shared_floats,
            // Warp instructions as multiply-adds.
            flops: 64.0 * blocks * f64::from(warps) * (steps * step_issue + staging + reduction),
            fma_share: 1.0,
            mma: blocks * f64::from(warps) * steps * products,
            l2_bytes: 1.3 * 4.0 * blocks * (weights + values),
            dram_bytes: Problem::Conv(*problem).bytes() as f64,
            // The input comes from the level-2 cache once for each chunk; the later ones are loaded ahead.
            trips: 4.2 + 0.06 * f64::from(chunks),
            // A product's latency, and the barriers around staging and reduction.
            clocks: steps * f64::from(2 * self.parts - 1) * 24.0
                + 72.0 * f64::from(items)
                + 4.0 * thread_sums * f64::from(self.warps_k + 1),
            cluster: self.blocking.cluster,
            overlaps: true,
        }
    }
}

impl Scheme for ImplicitGemm {
    fn name(&self) -> &'static str {
        "implicit_gemm"
    }

    fn tile_names(&self) -> &'static [&'static str] {
        &["h", "w", "m", "a", "b", "k", "z", "c", "s"]
    }

    fn tiles(&self, problem: &Problem) -> Vec<Tile> {
        let Problem::Conv(problem) = problem else {
            return Vec::new();
        };
        if !solves(problem) {
            return Vec::new();
        }
        let shape = &problem.shape;
        let (out_h, out_w) = (shape.out_h(), shape.out_w());
        let (all_groups, taps) = (shape.c.div_ceil(STEP_CHANNELS), shape.r * shape.s);
        let mut found = Vec::new();
        for (tile_h, tile_w) in rectangles(out_h, out_w) {
            let pixel_tiles = (tile_h * tile_w).div_ceil(P_TILE);
            for (m_tiles, warps_m) in channel_tiles(shape.n, 3) {
                for warps_p in divisors(pixel_tiles, &[1, 2, 4, 7, 8]) {
                    if warps_m * warps_p > MAX_WARPS || m_tiles * pixel_tiles / warps_p > MAX_SUMS {
                        continue;
                    }
                    for cluster in divisors(all_groups, &[1, 2, 3, 4, 5, 6, 7, 8]) {
                        for groups in divisors(all_groups / cluster, &[1, 2, 3, 4, 5, 6, 8]) {
                            let chunks = all_groups / cluster / groups;
                            for warps_k in divisors(groups * taps, &[1, 2, 3, 4, 6, 8, 9, 12, 16]) {
                                for weight_buffers in weight_buffers(chunks) {
                                    let tile = [
                                        tile_h,
                                        tile_w,
                                        m_tiles,
                                        warps_m,
                                        warps_p,
                                        warps_k,
                                        cluster,
                                        groups,
                                        weight_buffers,
                                    ];
                                    if let Some(sizes) = Sizes::new(problem, &tile)
                                        && sizes.blocking.warps > 1
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
        let layout = sizes.blocking.layout(problem);
        let kernel = kernel(problem, &sizes, &layout);
        convolution::blueprint(problem, 1, kernel, layout)
    }
}

fn solves(problem: &ConvProblem) -> bool {
    let shape = &problem.shape;
    tiles_well(problem) && multiplies_well(problem, shape.r * shape.s)
}

/// Heights and widths of output tiles that waste few pixels: whole rows, halves of them, and small rectangles.
fn rectangles(out_h: u32, out_w: u32) -> Vec<(u32, u32)> {
    let mut found = Vec::new();
    for tile_w in [4, 7, 8, 14, 16, 28, 32, 56] {
        if tile_w > out_w.next_multiple_of(8).max(8) {
            continue;
        }
        for tile_h in [1, 2, 3, 4, 7, 8, 14, 16] {
            let pixels = tile_h * tile_w;
            if tile_h > out_h || !(4..=256).contains(&pixels) {
                continue;
            }
            let computed = u64::from(out_h.div_ceil(tile_h))
                * u64::from(out_w.div_ceil(tile_w))
                * u64::from(pixels.next_multiple_of(P_TILE));
            found.push((computed, (tile_h, tile_w)));
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

fn kernel(problem: &ConvProblem, sizes: &Sizes, layout: &WeightLayout) -> KernelBlueprint {
    let shape = &problem.shape;
    let blocking = &sizes.blocking;
    let steps = sizes.steps(problem);
    let chain = (1..=CHAIN).rev().find(|&chain| steps.is_multiple_of(chain));
    let context = context(&Context {
        r: shape.r,
        s: shape.s,
        taps: shape.r * shape.s,
        dilation_h: shape.dilation[0],
        dilation_w: shape.dilation[1],
        warps_p: sizes.warps_p,
        warps_k: sizes.warps_k,
        plane: sizes.plane,
        first_column: if blocking.vector_x(problem) {
            4 - shape.padding.left
        } else {
            0
        },
        checks_pixel: !(blocking.tile_h * blocking.tile_w).is_multiple_of(P_TILE),
        steps,
        chain: chain.unwrap_or(1),
        matrix: MatrixContext::new(problem, blocking, &sizes.sums, sizes.staged, 0, layout),
    });
    KernelBlueprint {
        role: convolution::role(false),
        template: "kernel/implicit_gemm.cu",
        context,
        grid: sizes.sums.grid(problem),
        block: [blocking.threads(), 1, 1],
        cluster: [1, 1, blocking.cluster],
        shared_bytes: 4 * sizes.shared_floats,
        overlaps: true,
        device: device(problem.precision, blocking.cluster > 1),
        args: convolution::args(problem, false),
        work: sizes.work(problem),
    }
}
