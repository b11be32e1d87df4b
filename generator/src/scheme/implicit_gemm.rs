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

use super::block_sums::{
    BlockSums, MAX_CLUSTER, MAX_SHARED, SumsContext, input_tile, most_promising, promise,
    stages_vectors, tiles_well,
};
use super::convolution::{self, ConvEnds};
use super::{
    Blueprint, DevicePart, KernelBlueprint, LaunchWork, MAX_GRID, Scheme, Tile, UnitWork, context,
};
use crate::gpu::KernelWork;
use crate::spec::{ConvProblem, MAX_ELEMENTS, Precision, Problem};
use serde::Serialize;
use tdc_runtime::{Axis, LayoutDim, Transform, WeightLayout};

/// See the [module](self).
pub struct ImplicitGemm;

/// Steps of the tensor cores that add to one partial sum at most.
pub(super) const CHAIN: u32 = 6;

/// Channels of a step.
pub(super) const STEP_CHANNELS: u32 = 16;

/// Rows of a matrix product, of output channels.
pub(super) const M_TILE: u32 = 16;

/// Columns of a matrix product, of pixels.
pub(super) const P_TILE: u32 = 8;

/// Warps of a block at most.
pub(super) const MAX_WARPS: u32 = 16;

/// Tiles of sums that a warp holds at most: 16 channels of 8 pixels each, four registers.
const MAX_SUMS: u32 = 16;

#[derive(Serialize)]
struct Context {
    c: u32,
    h: u32,
    w: u32,
    r: u32,
    s: u32,
    taps: u32,
    stride_h: u32,
    stride_w: u32,
    pad_top: u32,
    /// Columns between a tile's first and the first that is staged.
    pad_x: u32,
    dilation_h: u32,
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
    pairs: u32,
    rows: u32,
    row: u32,
    plane: u32,
    /// Where the first staged column that a pixel reads lies.
    first_column: u32,
    x_vector: u32,
    vector_x: bool,
    items: u32,
    checks_items: bool,
    checks_c: bool,
    odd_c: bool,
    checks_pixel: bool,
    weight_buffers: u32,
    refills: bool,
    /// Packed values of a step, of a chunk for 16 output channels, of all chunks for them, and of a chunk for a block.
    step_weights: u32,
    m_chunk_weights: u32,
    m_weights: u32,
    chunk_weights: u32,
    largest_at: u32,
    /// Steps that a warp takes of a chunk, and how many of them add to one partial sum.
    steps: u32,
    chain: u32,
    split: bool,
    /// Operands of each product, smallest first.
    products: &'static [[&'static str; 2]],
    /// Functions of the prelude: a pair of values rounded, and the product of matrices.
    to_pair: &'static str,
    mma: &'static str,
    /// Operands are scaled, and sums scaled back.
    scaled: bool,
    unscale_at: usize,
    #[serde(flatten)]
    sums: SumsContext,
    #[serde(flatten)]
    ends: ConvEnds,
}

/// A tile's numbers with what follows from them.
struct Sizes {
    tile_h: u32,
    tile_w: u32,
    m_tiles: u32,
    warps_m: u32,
    warps_p: u32,
    warps_k: u32,
    cluster: u32,
    /// Groups of 16 input channels of a chunk.
    groups: u32,
    weight_buffers: u32,
    p_tiles: u32,
    chunks: u32,
    rows: u32,
    row: u32,
    plane: u32,
    vector_x: bool,
    items: u32,
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

/// Parts of the prelude that the kernel uses; the first only with clusters.
const DEVICE_WITH_CLUSTERS: &[DevicePart] = &[
    DevicePart::Cluster,
    DevicePart::DynamicShared,
    DevicePart::AsyncCopy,
    DevicePart::Overlap,
    DevicePart::Half,
    DevicePart::Mma,
];

/// The same in bf16.
const BF16_DEVICE_WITH_CLUSTERS: &[DevicePart] = &[
    DevicePart::Cluster,
    DevicePart::DynamicShared,
    DevicePart::AsyncCopy,
    DevicePart::Overlap,
    DevicePart::Bf16,
    DevicePart::Mma,
];

/// Numbers of 16 bits that stand for a value.
pub(super) fn parts(precision: Precision) -> u32 {
    match precision {
        Precision::Fp32 => 2,
        Precision::Tf32 | Precision::Fp16 | Precision::Bf16 => 1,
    }
}

/// Values between the staged pairs of channels, where each has so many: the four pairs of a step fall into different banks. Of the
/// 32 words of 4 bytes the planes of a pair begin 8 apart, with two parts of the 16 of 8 bytes 4 apart.
pub(super) fn plane(values: u32, parts: u32) -> u32 {
    let banks = 32 / parts;
    values.saturating_sub(banks / 4).next_multiple_of(banks) + banks / 4
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
        let all_groups = shape.c.div_ceil(STEP_CHANNELS);
        let fits = |whole: u32, part: u32| part > 0 && whole.is_multiple_of(part);
        let pixel_tiles = (tile_h * tile_w).div_ceil(P_TILE);
        if !fits(all_groups, cluster)
            || !fits(all_groups / cluster, groups)
            || !fits(pixel_tiles, warps_p)
            || !fits(groups * shape.r * shape.s, warps_k)
        {
            return None;
        }
        let warps = warps_m * warps_p * warps_k;
        let (p_tiles, chunks) = (pixel_tiles / warps_p, all_groups / cluster / groups);
        if warps > MAX_WARPS
            || m_tiles * p_tiles > MAX_SUMS
            || cluster > MAX_CLUSTER
            || weight_buffers > chunks
        {
            return None;
        }
        let vector_x = stages_vectors(problem, tile_w);
        let [rows, row] = input_tile(problem, tile_h, tile_w);
        if rows * row > 1 << 13 {
            return None;
        }
        let parts = parts(problem.precision);
        let plane = plane(rows * row, parts);
        let pairs = groups * STEP_CHANNELS / 2;
        let threads = 32 * warps;
        let items = (pairs * rows * row / if vector_x { 4 } else { 1 }).div_ceil(threads);
        let step_weights = 128 * parts;
        let chunk_weights = m_tiles * warps_m * groups * shape.r * shape.s * step_weights;
        let staged = weight_buffers * chunk_weights + pairs * plane * parts + 2 * warps;
        let tile_n = M_TILE * m_tiles * warps_m;
        let sums = BlockSums {
            tile: [tile_h, tile_w, tile_n],
            cluster,
            shares: warps_k,
            // Eight rows of channels, two pixels of each lane: in different banks.
            partial_row: (pixel_tiles * P_TILE + 23) / 32 * 32 + 8,
        };
        let shared_floats = sums.shared_floats(problem, staged);
        let grid = sums.grid(problem);
        // Registers: sums twice, operands, what is loaded ahead, addresses.
        let loaded = items * if vector_x { 8 } else { 2 };
        let registers = 8 * m_tiles * p_tiles + 8 * m_tiles + 5 * p_tiles + loaded + 36;
        let fits = loaded <= 64
            && registers * threads <= 65536
            && registers <= 255
            && shared_floats * 4 <= MAX_SHARED
            && grid[1] <= MAX_GRID;
        fits.then_some(Self {
            tile_h,
            tile_w,
            m_tiles,
            warps_m,
            warps_p,
            warps_k,
            cluster,
            groups,
            weight_buffers,
            p_tiles,
            chunks,
            rows,
            row,
            plane,
            vector_x,
            items,
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

    fn tile_n(&self) -> u32 {
        M_TILE * self.m_tiles * self.warps_m
    }

    fn warps(&self) -> u32 {
        self.warps_m * self.warps_p * self.warps_k
    }

    /// Steps of a warp in one chunk.
    fn steps(&self, problem: &ConvProblem) -> u32 {
        self.groups * problem.shape.r * problem.shape.s / self.warps_k
    }

    /// For the estimate.
    fn work(&self, problem: &ConvProblem) -> KernelWork {
        let shape = &problem.shape;
        let (warps, threads) = (self.warps(), 32 * self.warps());
        let steps = f64::from(self.chunks * self.steps(problem));
        let products = f64::from(self.m_tiles * self.p_tiles * (2 * self.parts - 1));
        let blocks = self.blocks as f64;
        let weights =
            f64::from(self.chunks * self.groups * shape.r * shape.s * self.m_tiles * self.warps_m)
                * f64::from(128 * self.parts);
        let values =
            f64::from(self.chunks * self.groups * STEP_CHANNELS) * f64::from(self.rows * self.row);
        let sums = f64::from(self.tile_n() * self.sums.partial_row);
        // Clocks that a warp holds its quarter of a multiprocessor, fitted to measured times: around the products, for what is
        // loaded, for the sums of a thread.
        let loads = f64::from(self.parts * self.m_tiles + 2 * self.parts * self.p_tiles);
        let step_issue = 3.0 * loads + 28.0;
        let staging =
            f64::from(self.chunks * self.items) * if self.vector_x { 112.0 } else { 56.0 };
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
            trips: 4.2 + 0.06 * f64::from(self.chunks),
            // A product's latency, and the barriers around staging and reduction.
            clocks: steps * f64::from(2 * self.parts - 1) * 24.0
                + 72.0 * f64::from(self.chunks * self.items)
                + 4.0 * thread_sums * f64::from(self.warps_k + 1),
            cluster: self.cluster,
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
            for (m_tiles, warps_m) in channel_tiles(shape.n) {
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
                                        && sizes.warps() > 1
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

/// Whether the scheme can compute a problem, and as precisely as it must be: in fp32 the errors of single outputs are a few times
/// those of a plain sum, in the others the bound is a few times the mean error, and only over many outputs is the error of their
/// norm sure to stay below it. With fewer channels than half a tile the tensor cores would mostly multiply padding besides.
fn solves(problem: &ConvProblem) -> bool {
    let shape = &problem.shape;
    // Padded to whole tiles, the weights must still be counted by an int.
    let weights = (u64::from(shape.n) + 4096)
        * (u64::from(shape.c) + u64::from(STEP_CHANNELS))
        * u64::from(shape.r)
        * u64::from(shape.s);
    tiles_well(problem)
        && shape.n >= 8
        && shape.c >= 8
        && shape.output_len() >= 256
        && weights <= MAX_ELEMENTS
}

/// Those of some numbers that divide another one.
pub(super) fn divisors(whole: u32, candidates: &'static [u32]) -> impl Iterator<Item = u32> {
    candidates
        .iter()
        .copied()
        .filter(move |&part| whole.is_multiple_of(part))
}

/// Numbers of buffers for the weights of so many chunks: with one for several chunks each would wait for its copies.
fn weight_buffers(chunks: u32) -> impl Iterator<Item = u32> {
    [1, 2, 3, 4, 6]
        .into_iter()
        .filter(move |&buffers| buffers <= chunks && (buffers > 1 || chunks == 1))
}

/// Heights and widths of output tiles that waste few pixels: whole rows, halves of them, and small rectangles.
pub(super) fn rectangles(out_h: u32, out_w: u32) -> Vec<(u32, u32)> {
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

/// Tiles of 16 output channels a warp and warps beside each other, none of which lies wholly in the padding.
fn channel_tiles(n: u32) -> Vec<(u32, u32)> {
    let needed = n.div_ceil(M_TILE);
    let mut found = Vec::new();
    for m_tiles in 1..=3 {
        for warps_m in [1, 2, 3, 4, 6] {
            let tile = m_tiles * warps_m;
            if tile <= needed && needed.next_multiple_of(tile) * 5 <= needed * 6 {
                found.push((m_tiles, warps_m));
            }
        }
    }
    found
}

/// `[O/16][I/16][R][S]` of 16x16 matrices, each as the tensor cores' lanes hold it, in numbers of 16 bits.
fn layout(problem: &ConvProblem, sizes: &Sizes) -> WeightLayout {
    let shape = &problem.shape;
    let dim = |axis, count, step| LayoutDim { axis, count, step };
    let m_tiles = shape.n.div_ceil(sizes.tile_n()) * sizes.m_tiles * sizes.warps_m;
    WeightLayout {
        source: problem.shape.weight(),
        dims: vec![
            dim(Axis::O, m_tiles, M_TILE),
            dim(Axis::I, shape.c.div_ceil(STEP_CHANNELS), STEP_CHANNELS),
            dim(Axis::R, shape.r, 1),
            dim(Axis::S, shape.s, 1),
            // A lane: a row, and a pair of channels; its registers: the pair eight channels on, the row eight rows on.
            dim(Axis::O, 8, 1),
            dim(Axis::I, 4, 2),
            dim(Axis::I, 2, 8),
            dim(Axis::O, 2, 8),
            dim(Axis::I, 2, 1),
        ]
        .into(),
        transform: match problem.precision {
            Precision::Bf16 => Transform::Bf16,
            _ => Transform::Halves {
                run: M_TILE * STEP_CHANNELS,
                parts: sizes.parts,
            },
        },
        prologue_channels: Problem::Conv(*problem).affine_channels(),
    }
}

fn kernel(problem: &ConvProblem, sizes: &Sizes, layout: &WeightLayout) -> KernelBlueprint {
    let shape = &problem.shape;
    let taps = shape.r * shape.s;
    let warps = sizes.warps();
    let pairs = sizes.groups * STEP_CHANNELS / 2;
    let step_weights = 128 * sizes.parts;
    let m_chunk_weights = sizes.groups * taps * step_weights;
    let all_chunks = sizes.chunks * sizes.cluster;
    let chunk_weights = sizes.m_tiles * sizes.warps_m * m_chunk_weights;
    let pixels = sizes.tile_h * sizes.tile_w;
    let steps = sizes.steps(problem);
    let chain = (1..=CHAIN).rev().find(|&chain| steps.is_multiple_of(chain));
    let threads = 32 * warps;
    let x_vector = if sizes.vector_x { 4 } else { 1 };
    let pad_left = shape.padding.left;
    let bf16 = problem.precision == Precision::Bf16;
    let device = if bf16 {
        BF16_DEVICE_WITH_CLUSTERS
    } else {
        DEVICE_WITH_CLUSTERS
    };
    let context = context(&Context {
        c: shape.c,
        h: shape.h,
        w: shape.w,
        r: shape.r,
        s: shape.s,
        taps,
        stride_h: shape.stride[0],
        stride_w: shape.stride[1],
        pad_top: shape.padding.top,
        pad_x: if sizes.vector_x { 4 } else { pad_left },
        dilation_h: shape.dilation[0],
        dilation_w: shape.dilation[1],
        m_tiles: sizes.m_tiles,
        p_tiles: sizes.p_tiles,
        warps,
        warps_m: sizes.warps_m,
        warps_p: sizes.warps_p,
        warps_k: sizes.warps_k,
        chunks: sizes.chunks,
        all_chunks,
        pairs,
        rows: sizes.rows,
        row: sizes.row,
        plane: sizes.plane,
        first_column: if sizes.vector_x { 4 - pad_left } else { 0 },
        x_vector,
        vector_x: sizes.vector_x,
        items: sizes.items,
        checks_items: sizes.items * threads != pairs * sizes.rows * sizes.row / x_vector,
        checks_c: !shape.c.is_multiple_of(STEP_CHANNELS),
        odd_c: !shape.c.is_multiple_of(2),
        checks_pixel: !pixels.is_multiple_of(P_TILE),
        weight_buffers: sizes.weight_buffers,
        refills: sizes.cluster > 1 || sizes.chunks > sizes.weight_buffers,
        step_weights,
        m_chunk_weights,
        m_weights: all_chunks * m_chunk_weights,
        chunk_weights,
        largest_at: sizes.weight_buffers * chunk_weights + pairs * sizes.plane * sizes.parts,
        steps,
        chain: chain.unwrap_or(1),
        split: sizes.parts == 2,
        products: match sizes.parts {
            2 => &[
                ["left", "rounded"],
                ["rounded", "left"],
                ["rounded", "rounded"],
            ],
            _ => &[["rounded", "rounded"]],
        },
        to_pair: if bf16 { "tdc_to_bf16" } else { "tdc_to_halves" },
        mma: if bf16 { "tdc_mma_bf16" } else { "tdc_mma_f16" },
        scaled: !bf16,
        unscale_at: layout.weight_len() - layout.unscale_len(),
        sums: sizes.sums.context(problem, sizes.staged),
        ends: ConvEnds::new(problem, layout, false),
    });
    KernelBlueprint {
        role: convolution::role(false),
        template: "kernel/implicit_gemm.cu",
        context,
        grid: sizes.sums.grid(problem),
        block: [threads, 1, 1],
        cluster: [1, 1, sizes.cluster],
        shared_bytes: 4 * sizes.shared_floats,
        overlaps: true,
        device: if sizes.cluster > 1 {
            device
        } else {
            &device[1..]
        },
        args: convolution::args(problem, false),
        work: sizes.work(problem),
    }
}
