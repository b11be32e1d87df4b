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
//! are added through shared memory in a fixed order. Tensor cores cut sums off instead of rounding: after [`CHAIN`](super::matrix_product::CHAIN) steps a
//! partial sum is added in fp32, which keeps the error within twice that of a plain fp32 sum. With operands of one part nobody
//! would see it, and the tensor cores add up everything.
//!
//! What is staged of a pixel is an element of four channels, and one load gives a lane its operands of a step: which channels its
//! registers stand for is a matter of how the weights are packed. Where a step finds its operands is known when the text is made,
//! but for what depends on the warp: an address found step by step would take longer than the products.
//!
//! The 16 terms of a step are 16 channels of a pixel. The first layers of networks have three: there a step's terms are four
//! pixels side by side, of one element each, and filters are packed with zeros behind their rows ([`Step`]).

use super::block_sums::{
    BlockSums, ChunkCopies, InputTraffic, MAX_CLUSTER, MAX_SHARED, Registers, SumsContext,
    divisions, most_promising, promise, tiles_well, vector,
};
use super::convolution::{self, ConvEnds};
use super::matrix_product::{
    CHAIN, M_TILE, MAX_WARPS, P_TILE, STEP_CHANNELS, channel_tiles, device, divisors,
    multiplies_well, parts, quad_plane, weight_buffers,
};
use super::step_order::{ChunkSteps, StepOrder, chain, split_steps, unrolls};
use super::{Blueprint, KernelBlueprint, LaunchWork, MAX_GRID, Scheme, Tile, UnitWork, context};
use crate::cost::{KernelWork, TiledWork};
use crate::ir::{ConvProblem, Precision, Problem};
use serde::Serialize;
use std::ops::RangeInclusive;
use tdc_runtime::{Axis, ConvShape, Filter, LayoutDim, Transform, WeightLayout};

/// See the [module](self).
pub struct ImplicitGemm;

/// Tiles of sums that a warp holds at most, over the parts of a value: 16 channels of 8 pixels each, four registers. With two parts
/// each is there twice, as a sum in fp32 and as one of the tensor cores.
const MAX_SUMS: u32 = 32;

/// Tiles of sums at most for the smaller products to have a sum of their own.
const MAX_CROSSED: u32 = 2;

/// What the 16 terms of a step are: so many channels, of so many pixels side by side.
#[derive(Debug, Clone, Copy)]
struct Step {
    channels: u32,
    columns: u32,
}

impl Step {
    /// Channels of the narrowest inputs, and the most of what is one element: with fewer or more the step would be mostly padding.
    const FEW: RangeInclusive<u32> = 2..=4;

    fn of(shape: &ConvShape) -> Self {
        let columns = if Self::FEW.contains(&shape.c) { 4 } else { 1 };
        Self {
            channels: STEP_CHANNELS / columns,
            columns,
        }
    }

    /// Steps of a chunk of so many groups of channels: of the groups, rows of the filter, its columns.
    fn counts(self, groups: u32, shape: &ConvShape) -> [u32; 3] {
        [groups, shape.r, shape.s.div_ceil(self.columns)]
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
struct Context {
    c: u32,
    h: u32,
    w: u32,
    /// The terms of a step are columns, of one element each.
    few_channels: bool,
    stride_h: u32,
    stride_w: u32,
    pad_top: u32,
    /// Columns between a tile's first and the first that is staged.
    pad_x: u32,
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
    row: u32,
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
    odd_c: bool,
    checks_pixel: bool,
    weight_buffers: u32,
    refills: bool,
    /// Packed values of a chunk for 16 output channels and for a block.
    m_chunk_weights: u32,
    chunk_weights: u32,
    #[serde(flatten)]
    weight_copies: ChunkCopies,
    largest_at: u32,
    #[serde(flatten)]
    steps: StepOrder,
    split: bool,
    /// Sum and operands of each product, smallest first.
    products: &'static [[&'static str; 3]],
    /// The smaller products have a sum of their own: with few sums those of a step would wait for each other.
    crosses: bool,
    /// Functions of the prelude: a pair of values rounded, and the product of matrices.
    to_pair: &'static str,
    mma: &'static str,
    /// The weights are scaled, and sums scaled back.
    scaled: bool,
    /// So is the input.
    scales_input: bool,
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
    /// Columns that are loaded at once, and how many are staged left of those that the padding needs.
    x_vector: u32,
    margin: u32,
    items: u32,
    sums: BlockSums,
    /// Floats of shared memory that are staged, and all.
    staged: u32,
    shared_floats: u32,
    /// Of a thread, guessed.
    registers: Registers,
    blocks: u64,
    /// Parts that a value is split into.
    parts: u32,
}

/// What the registers of a thread hold.
struct Wants {
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

impl Wants {
    /// With two parts. Fitted to what NVRTC 13.0 took for 5800 tiles on sm_90: right in the median, 11 % off in the root mean square.
    /// (Tiles with the same of all these numbers differ by 7 %.)
    fn registers(&self) -> u32 {
        let split = split_steps(self.counts, self.warps_k).unwrap_or([1; 3]);
        let own = [0, 1, 2].map(|axis| self.counts[axis] / split[axis]);
        let steps = own.iter().product();
        let computing = if self.chunks == 1 && steps <= CHAIN {
            self.of_one_chain(steps)
        } else {
            self.of_chains(own)
        };
        computing.max(25 + self.loaded + self.items / 2)
    }

    /// One chain of a single chunk: sums, and operands of all steps, which nothing keeps the compiler from asking for ahead. With more
    /// tiles of sums there are more products for the first of them to wait for.
    fn of_one_chain(&self, steps: u32) -> u32 {
        let tiles = self.m_tiles * self.p_tiles;
        let ahead = if steps > 1 { 6 * tiles } else { 0 };
        let waiting = if steps > 2 {
            3 * tiles.saturating_sub(8)
        } else {
            0
        };
        let crossed = if tiles <= MAX_CROSSED { 5 * tiles } else { 0 };
        (26 + (9 * tiles + ahead + crossed) / 2 + waiting).saturating_sub(4 * self.m_tiles)
    }

    /// Chains of steps that are added up one after the other, of so many steps of a warp in a chunk.
    fn of_chains(&self, own: [u32; 3]) -> u32 {
        let steps: u32 = own.iter().product();
        let tiles = self.m_tiles * self.p_tiles;
        let sums = 4 * tiles;
        // Partial ones take the same again and, with several steps at once, half as much more.
        let partial = if steps == 1 { sums / 2 } else { sums * 3 / 2 };
        let crossed = if tiles <= MAX_CROSSED { sums } else { 0 };
        // Operands of a step, and of those behind it as far as the compiler reads ahead.
        let ahead = if unrolls_chunk(self.chunks, steps, tiles, 2) {
            steps.min(CHAIN)
        } else {
            chain(own, 2).iter().product()
        } - 1;
        let operands = (2 * self.m_tiles + 4 * self.p_tiles)
            + ahead * (2 * self.m_tiles + 3 * self.p_tiles) / 4;
        let next_chunk = if self.chunks > 1 {
            let factors = if self.prologue { 8 * self.items } else { 0 };
            self.loaded + 4 * self.items + factors
        } else {
            0
        };
        12 + sums + partial + crossed + operands + next_chunk
    }

    /// With one part, where the compiler was asked for hundreds of tiles; on the safe side.
    fn registers_of_one_part(&self) -> u32 {
        let sums_and_operands = 5 * self.m_tiles * self.p_tiles
            + 3 * self.m_tiles
            + 4 * self.p_tiles
            + self.loaded * 3 / 4;
        let addresses = if self.chunks > 1 { 12 * self.items } else { 0 };
        let prologue = if self.prologue { 8 * self.items } else { 0 };
        24 + sums_and_operands + addresses + prologue
    }
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
        let pixel_tiles = (tile_h * tile_w).div_ceil(P_TILE);
        let step = Step::of(shape);
        let chunks = chunks(shape.c.div_ceil(step.channels), cluster, groups)?;
        let counts = step.counts(groups, shape);
        if !pixel_tiles.is_multiple_of(warps_p) || split_steps(counts, warps_k).is_none() {
            return None;
        }
        let warps = warps_m * warps_p * warps_k;
        let p_tiles = pixel_tiles / warps_p;
        let parts = parts(problem.precision);
        if warps > MAX_WARPS
            || m_tiles * p_tiles * parts > MAX_SUMS
            || cluster > MAX_CLUSTER
            || weight_buffers > chunks
        {
            return None;
        }
        let threads = 32 * warps;
        let quads = groups * step.channels / 4;
        let staging = Staging::new(problem, [tile_h, tile_w], quads, threads);
        let [rows, row] = staging.input;
        if rows * row > 1 << 13 {
            return None;
        }
        let plane = quad_plane(rows * row, parts);
        let items = staging.items.div_ceil(threads);
        let chunk_weights = m_tiles * warps_m * counts.iter().product::<u32>() * 128 * parts;
        let staged = weight_buffers * chunk_weights + quads * plane * 2 * parts + 2 * warps;
        let tile_n = M_TILE * m_tiles * warps_m;
        let sums = BlockSums {
            tile: [tile_h, tile_w, tile_n],
            threads,
            cluster,
            shares: warps_k,
            // Eight rows of channels, two pixels of each lane: in different banks.
            partial_row: (pixel_tiles * P_TILE + 23) / 32 * 32 + 8,
        };
        let shared_floats = sums.shared_floats(problem, staged);
        let grid = sums.grid(problem);
        let loaded = items * 4 * staging.x_vector;
        let wants = Wants {
            m_tiles,
            p_tiles,
            counts,
            warps_k,
            chunks,
            loaded,
            items,
            prologue: problem.prologue.is_some(),
        };
        let registers = if parts == 2 {
            let most = Registers::most(threads);
            let wanted = wants.registers();
            // Few of those that are let pass spill, and few of those that would not are left out.
            Registers {
                held: wanted.min(most),
                spills: 10 * wanted > 9 * most,
            }
        } else {
            Registers::new(wants.registers_of_one_part(), threads)
        };
        let fits = loaded <= 64 && shared_floats <= MAX_SHARED / 4 && grid[1] <= MAX_GRID;
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
            x_vector: staging.x_vector,
            margin: staging.margin,
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

    /// Steps of a chunk: of groups of channels, rows of the filter, its columns.
    fn counts(&self, problem: &ConvProblem) -> [u32; 3] {
        Step::of(&problem.shape).counts(self.groups, &problem.shape)
    }

    /// Times four channels of a chunk.
    fn quads(&self, problem: &ConvProblem) -> u32 {
        self.groups * Step::of(&problem.shape).channels / 4
    }

    /// Packed values of a chunk for 16 output channels.
    fn m_chunk_weights(&self, problem: &ConvProblem) -> u32 {
        self.counts(problem).iter().product::<u32>() * 128 * self.parts
    }

    /// For the estimate.
    fn work(&self, problem: &ConvProblem) -> KernelWork {
        let shape = &problem.shape;
        let threads = 32 * self.warps();
        let few_channels = Step::of(shape).columns > 1;
        let counts = self.counts(problem);
        let split = split_steps(counts, self.warps_k).unwrap_or([1; 3]);
        let own = [0, 1, 2].map(|axis| counts[axis] / split[axis]);
        let [m_tiles, p_tiles, parts] = [self.m_tiles, self.p_tiles, self.parts].map(f64::from);
        let products = m_tiles * p_tiles * (2.0 * parts - 1.0);
        let (adding, chained) = match self.parts {
            2 if self.crosses() => (8.0 * m_tiles * p_tiles, 2.0),
            2 => (4.0 * m_tiles * p_tiles, 3.0),
            _ => (0.0, 1.0),
        };
        let steps = own.iter().product::<u32>();
        let chain = chain(own, self.parts).iter().product::<u32>();
        let unrolls = unrolls_chunk(self.chunks, steps, self.m_tiles * self.p_tiles, self.parts);
        let quads = self.quads(problem);
        let elements = quads * self.rows * self.row;
        let chunk_weights = self.m_tiles * self.warps_m * self.m_chunk_weights(problem);
        let places = self.rows * self.row / self.x_vector;
        // A warp's load is 32 pixels of one channel, or eight vectors of each of four.
        let of_channel = if self.x_vector > 1 && !few_channels {
            8
        } else {
            32
        };
        let traffic = InputTraffic::new(
            problem,
            [self.tile_h, self.tile_w],
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
            registers: self.registers.held,
            shared_bytes: 4 * self.shared_floats,
            dram_bytes: Problem::Conv(*problem).bytes() as f64,
            cluster: self.cluster,
            overlaps: true,
            tiled: Some(TiledWork {
                chunks: f64::from(self.chunks),
                refills: f64::from(self.chunks - self.weight_buffers),
                steps: f64::from(steps),
                runs: f64::from(if unrolls { 1 } else { steps / chain }),
                products,
                chained,
                instructions: m_tiles * parts + p_tiles + products + adding / f64::from(chain),
                wavefronts: 4.0 * m_tiles * parts + p_tiles * 2.0 * parts * read_apart,
                places: f64::from(self.items),
                loads,
                values: f64::from(4 * self.x_vector),
                divisions: divisions(places, self.row / self.x_vector),
                lines: traffic.lines,
                staged_wavefronts: f64::from(elements * self.parts) / 16.0 * staged_apart,
                input_bytes: traffic.bytes,
                weight_bytes: f64::from(4 * chunk_weights),
                sums: 4.0 * m_tiles * p_tiles,
                shares: f64::from(self.warps_k),
                rounds: f64::from(outputs.div_ceil(threads)),
                store_divisions: self.sums.store_divisions(problem),
                sent_bytes: self.sums.sent_bytes(),
                stored_sectors: self.sums.stored_sectors(problem),
                residual: problem.epilogue.residual,
            }),
            ..KernelWork::default()
        }
    }

    /// Whether the smaller products have a sum of their own.
    fn crosses(&self) -> bool {
        self.parts == 2 && self.m_tiles * self.p_tiles <= MAX_CROSSED
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
        let step = Step::of(shape);
        let all_groups = shape.c.div_ceil(step.channels);
        let mut found = Vec::new();
        let parts = parts(problem.precision);
        for (tile_h, tile_w) in rectangles(out_h, out_w, 512 / parts) {
            let pixel_tiles = (tile_h * tile_w).div_ceil(P_TILE);
            for (m_tiles, warps_m) in channel_tiles(shape.n, 5 - parts) {
                for warps_p in divisors(pixel_tiles, &[1, 2, 4, 7, 8]) {
                    let sums = m_tiles * pixel_tiles / warps_p * parts;
                    if warps_m * warps_p > MAX_WARPS || sums > MAX_SUMS {
                        continue;
                    }
                    for cluster in 1..=MAX_CLUSTER {
                        for groups in [1, 2, 3, 4, 5, 6, 8] {
                            let Some(chunks) = chunks(all_groups, cluster, groups) else {
                                continue;
                            };
                            for &warps_k in step.warps_k() {
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

/// Whether the scheme can compute a problem, and as precisely as it must be.
fn solves(problem: &ConvProblem) -> bool {
    let shape = &problem.shape;
    let step = Step::of(shape);
    let enough = shape.c >= STEP_CHANNELS / 2 || Step::FEW.contains(&shape.c);
    let taps = shape.r * shape.s.next_multiple_of(step.columns);
    tiles_well(problem) && enough && multiplies_well(problem, taps)
}

/// Heights and widths of output tiles of so many pixels at most that waste few: whole rows, halves of them, and small rectangles.
pub(super) fn rectangles(out_h: u32, out_w: u32, most: u32) -> Vec<(u32, u32)> {
    let mut found = Vec::new();
    for tile_w in [4, 7, 8, 14, 16, 28, 32, 56] {
        if tile_w > out_w.next_multiple_of(8).max(8) {
            continue;
        }
        for tile_h in [1, 2, 3, 4, 7, 8, 14, 16] {
            let pixels = tile_h * tile_w;
            if tile_h > out_h || !(4..=most).contains(&pixels) {
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

/// `[O/TN][I/chunk][TN/16][chunk/16][R][S]` of 16x16 matrices, each as the tensor cores' lanes hold it, in numbers of 16 bits: what
/// a block stages of a chunk lies in one piece. With few channels `[O/TN][TN/16][R][S/4]`, where the matrices' columns are four
/// columns of the filter.
fn layout(problem: &ConvProblem, sizes: &Sizes) -> WeightLayout {
    let shape = &problem.shape;
    let dim = |axis, count, step| LayoutDim { axis, count, step };
    let tile_n = sizes.tile_n();
    let step = Step::of(shape);
    let [groups, rows, columns] = sizes.counts(problem);
    // Which of a step's elements a lane holds.
    let elements = match step.columns {
        1 => dim(Axis::I, 4, 4),
        columns => dim(Axis::S, columns, 1),
    };
    WeightLayout {
        source: problem.shape.weight(),
        dims: vec![
            dim(Axis::O, shape.n.div_ceil(tile_n), tile_n),
            dim(
                Axis::I,
                sizes.chunks * sizes.cluster,
                sizes.groups * step.channels,
            ),
            dim(Axis::O, sizes.m_tiles * sizes.warps_m, M_TILE),
            dim(Axis::I, groups, step.channels),
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
            _ => Transform::Halves {
                run: M_TILE * STEP_CHANNELS,
                parts: sizes.parts,
            },
        },
        prologue_channels: Problem::Conv(*problem).affine_channels(),
    }
}

/// How the input tile of a chunk is loaded.
struct Staging {
    /// Rows and columns.
    input: [u32; 2],
    /// Columns that are loaded at once.
    x_vector: u32,
    /// Columns that are staged left of the output tile's first, so that what is loaded at once is aligned.
    margin: u32,
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
        let filter_row = shape.s.next_multiple_of(Step::of(shape).columns);
        let (rows, columns) = (reach(0, shape.r), reach(1, filter_row));
        let staging = |x_vector: u32| {
            let margin = shape.padding.left.next_multiple_of(x_vector);
            let row = (columns + margin - shape.padding.left).next_multiple_of(x_vector);
            Self {
                input: [rows, row],
                x_vector,
                margin,
                items: quads * rows * row / x_vector,
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
/// `h4w28m1a2b2k2z5c2s1` takes 4.75 us so, 6.08 in a loop, and layers with 7x7 filters a sixth less.) Of several chunks each is a
/// round of the loop around, and longer text was a little slower.
fn unrolls_chunk(chunks: u32, steps: u32, tiles: u32, parts: u32) -> bool {
    /// Products of matrices at most.
    const OF_SINGLE: u32 = 384;
    unrolls(steps, tiles, parts) || parts == 2 && chunks == 1 && 3 * steps * tiles <= OF_SINGLE
}

/// Chunks of so many groups of channels, of those that there are, that each block of a cluster takes; `None` where a block would
/// have none but padding, or more than an eighth of all that is computed would be padding. (Without any, channels such as 16 x 31
/// could hardly be split.)
fn chunks(all_groups: u32, cluster: u32, groups: u32) -> Option<u32> {
    let chunks = all_groups.div_ceil(cluster * groups);
    let of_block = chunks * groups;
    let fits = (cluster - 1) * of_block < all_groups
        && 8 * (cluster * of_block - all_groups) <= all_groups;
    fits.then_some(chunks)
}

fn kernel(problem: &ConvProblem, sizes: &Sizes, layout: &WeightLayout) -> KernelBlueprint {
    let shape = &problem.shape;
    let step = Step::of(shape);
    let warps = sizes.warps();
    let quads = sizes.quads(problem);
    let m_chunk_weights = sizes.m_chunk_weights(problem);
    let all_chunks = sizes.chunks * sizes.cluster;
    let chunk_weights = sizes.m_tiles * sizes.warps_m * m_chunk_weights;
    let pixels = sizes.tile_h * sizes.tile_w;
    let threads = 32 * warps;
    let (x_type, x_elements) = vector(sizes.x_vector);
    let all_items = quads * sizes.rows * sizes.row / sizes.x_vector;
    let counts = sizes.counts(problem);
    let steps = ChunkSteps {
        counts,
        a: [counts[1] * counts[2], counts[2], 1].map(|steps| steps * 128 * sizes.parts),
        b: [
            4 * sizes.plane,
            sizes.row * shape.dilation[0],
            step.columns * shape.dilation[1],
        ],
        warps: sizes.warps_k,
        parts: sizes.parts,
    };
    let bf16 = problem.precision == Precision::Bf16;
    let context = context(&Context {
        c: shape.c,
        h: shape.h,
        w: shape.w,
        few_channels: step.columns > 1,
        stride_h: shape.stride[0],
        stride_w: shape.stride[1],
        pad_top: shape.padding.top,
        pad_x: sizes.margin,
        dilation_w: shape.dilation[1],
        m_tiles: sizes.m_tiles,
        p_tiles: sizes.p_tiles,
        warps,
        warps_m: sizes.warps_m,
        warps_p: sizes.warps_p,
        warps_k: sizes.warps_k,
        chunks: sizes.chunks,
        all_chunks,
        quads,
        rows: sizes.rows,
        row: sizes.row,
        plane: sizes.plane,
        first_column: sizes.margin - shape.padding.left,
        x_vector: sizes.x_vector,
        x_type,
        x_elements,
        items: sizes.items,
        positions: sizes.rows * sizes.row / sizes.x_vector,
        all_items,
        checks_items: sizes.items * threads != all_items,
        checks_c: step.columns == 1 && all_chunks * 4 * quads != shape.c,
        odd_c: !shape.c.is_multiple_of(4),
        checks_pixel: !pixels.is_multiple_of(P_TILE),
        weight_buffers: sizes.weight_buffers,
        refills: sizes.cluster > 1 || sizes.chunks > sizes.weight_buffers,
        m_chunk_weights,
        chunk_weights,
        weight_copies: ChunkCopies::new(chunk_weights, threads),
        largest_at: sizes.weight_buffers * chunk_weights + quads * sizes.plane * 2 * sizes.parts,
        steps: StepOrder::new(
            steps,
            "warp_k",
            unrolls_chunk(
                sizes.chunks,
                counts.iter().product::<u32>() / sizes.warps_k,
                sizes.m_tiles * sizes.p_tiles,
                sizes.parts,
            ),
        ),
        split: sizes.parts == 2,
        products: match sizes.parts {
            2 if sizes.crosses() => &[
                ["cross", "left", "rounded"],
                ["part", "rounded", "rounded"],
                ["cross", "rounded", "left"],
            ],
            2 => &[
                ["part", "left", "rounded"],
                ["part", "rounded", "left"],
                ["part", "rounded", "rounded"],
            ],
            _ => &[["sum", "rounded", "rounded"]],
        },
        crosses: sizes.crosses(),
        to_pair: if bf16 { "tdc_to_bf16" } else { "tdc_to_halves" },
        mma: if bf16 { "tdc_mma_bf16" } else { "tdc_mma_f16" },
        scaled: !bf16,
        scales_input: matches!(problem.precision, Precision::Fp32 | Precision::Tf32),
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
        device: device(problem.precision, sizes.cluster > 1),
        args: convolution::args(problem, false),
        work: sizes.work(problem),
    }
}
