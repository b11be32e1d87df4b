//! Common parts of the tiled schemes. A block computes a rectangle of output pixels of some output channels. Its threads hold
//! partial sums, which are reduced in shared memory, or in that of a cluster, before they are stored.

use super::{Scheme, Tile, TileSearch};
use crate::cost::{KernelWork, tiled_terms};
use crate::gpu::{Gpu, MAX_REGISTERS, PORTABLE_CLUSTER, REGISTERS_PER_BLOCK, RoughConstants};
use crate::ir::{ConvProblem, Format, Problem, Reduce};
use serde::Serialize;

/// Maximum number of tiles of a problem after pruning to those with the least rough time.
const MAX_TILES: usize = 1000;

/// The estimated registers of a thread.
#[derive(Debug, Clone, Copy)]
pub(super) struct RegisterEstimate {
    /// Estimated allocation, limited to the maximum for the block size.
    pub(super) allocated: u32,
    /// Whether the demand exceeds the maximum so much that the kernel would probably spill. The compiler often manages with a
    /// fifth less than the demand.
    pub(super) spills: bool,
}

impl RegisterEstimate {
    /// For a thread that needs `wanted` registers, in a block of `threads` threads.
    pub(super) fn new(wanted: u32, threads: u32) -> Self {
        let most = Self::max_per_thread(threads);
        Self {
            allocated: wanted.min(most),
            spills: 4 * wanted > 5 * most,
        }
    }

    /// The maximum number of registers of a thread in a block of `threads` threads.
    pub(super) fn max_per_thread(threads: u32) -> u32 {
        // Threads get registers in units of eight.
        (REGISTERS_PER_BLOCK / threads.next_multiple_of(32) / 8 * 8).min(MAX_REGISTERS)
    }
}

/// Computes the rough time, by which tile spaces are pruned: in microseconds for tiled kernels, in clocks of an SM for other
/// kernels. Times of the two kinds are never compared.
pub(super) struct RoughTime<'a> {
    gpu: &'a Gpu,
    other: &'a RoughConstants,
    /// SMs that clusters of any size can use.
    sms: u64,
}

impl<'a> RoughTime<'a> {
    /// For a GPU.
    pub(super) fn new(gpu: &'a Gpu) -> Self {
        Self {
            gpu,
            other: &gpu.cost_model().rough,
            sms: u64::from(gpu.sms / PORTABLE_CLUSTER * PORTABLE_CLUSTER),
        }
    }

    /// The rough time of a launch.
    pub(super) fn of(&self, work: &KernelWork) -> f64 {
        if let Some(tiled) = &work.tiled {
            // Precise enough for pruning.
            let model = self.gpu.cost_model().tiled(work.products);
            return tiled_terms(work, tiled, self.gpu, &model.with_infinity_norm()).us();
        }
        let model = self.other;
        let busiest = work.blocks.div_ceil(self.sms) as f64 / work.blocks as f64;
        let mma = work.mma * busiest * model.mma;
        let issue = work.flops / (2.0 * f64::from(self.gpu.fp32_lanes)) * busiest;
        let bytes = work.l2_bytes * busiest / model.l2_bytes_per_clock;
        let exchange = if work.cluster > 1 {
            model.exchange
        } else {
            0.0
        };
        work.latency_clocks
            + model.l2_round_trip * work.l2_round_trips
            + mma.max(issue)
            + bytes
            + exchange
    }
}

/// The [`MAX_TILES`] tiles with the least rough times, in ascending order of their numbers.
pub(super) fn fastest<T: Ord>(mut rated: Vec<(f64, T)>) -> Vec<T> {
    if rated.len() > MAX_TILES {
        rated.select_nth_unstable_by(MAX_TILES, |a, b| {
            a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1))
        });
        rated.truncate(MAX_TILES);
    }
    let mut tiles: Vec<T> = rated.into_iter().map(|(_, tile)| tile).collect();
    tiles.sort_unstable();
    tiles
}

/// Offers a search the tiles of a scheme with the least of their predicted times, which the search computes as well.
pub(super) fn offer_fastest<T: Into<Tile>>(
    scheme: &dyn Scheme,
    problem: &Problem,
    mut all: Vec<(f64, T)>,
    search: &mut TileSearch<'_>,
) {
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    all.truncate(8);
    for (_, tile) in all {
        let tile = tile.into();
        let work = scheme.work(problem, &tile, search.gpu());
        search.offer(tile, &work);
    }
}

/// The outputs that a block computes.
pub(super) struct BlockOutput {
    /// Output rows, columns and channels of a block.
    pub(super) tile: [u32; 3],
    /// Output channels of the group, or of the groups, of a block, all of them if there is one group; the last group may have fewer. Tiles of output channels do not
    /// cross the end of a group.
    pub(super) group_n: u32,
    /// Threads of a block.
    pub(super) threads: u32,
    /// Blocks of a cluster, which split the input channels.
    pub(super) cluster: u32,
    /// Partial sums of each output in a block (split-K inside the block).
    pub(super) k_splits: u32,
    /// Rows of the partial sums in shared memory: output channels, or pixels if the output is fp16 or bf16 NHWC.
    pub(super) partial_rows: u32,
    /// Distance of those rows, in floats.
    pub(super) partial_pitch: u32,
}

/// Context of the templates `kernel/block_position.cu`, `kernel/reduce_and_store.cu` and `kernel/store_nhwc.cu`; part of a scheme's context.
#[derive(Serialize)]
pub(super) struct BlockOutputContext {
    out_h: u32,
    out_w: u32,
    th: u32,
    tw: u32,
    tn: u32,
    tiles: u32,
    tiles_w: u32,
    cluster: u32,
    k_splits: u32,
    partial_rows: u32,
    partial_pitch: u32,
    /// Offsets in shared memory, in floats: of the dequantisation scales and biases, of the partial sums that the blocks of the
    /// cluster send, and of the mbarrier of the exchange.
    epilogue_at: u32,
    received_at: u32,
    exchange_barrier_at: u32,
    /// Output vectors that each block of a cluster reduces and stores.
    rank_outputs: u32,
    /// Runs from one pixel of an output in NHWC to the next.
    y_pixel_runs: u32,
    n: u32,
    /// Whether a tile may have channels after the end of its group, or of the output.
    checks_n: bool,
    /// There are several groups. Output channels of a group, tiles of them, and whether the last group has fewer.
    grouped: bool,
    group_n: u32,
    tiles_n: u32,
    checks_group_n: bool,
    y_vector: u32,
    y_type: &'static str,
    y_elements: &'static [&'static str],
    outputs: u32,
    /// Output vectors of a pixel if the output is fp16 or bf16 NHWC.
    runs: u32,
    /// Rounds in which each thread stores one output vector.
    rounds: u32,
    pixel_vectors: u32,
    /// The condition under which an output vector is outside of the output; empty if none is.
    outside: String,
}

/// The CUDA type of a vector of `len` floats, and the suffixes of its elements.
pub(super) fn vector_type(len: u32) -> (&'static str, &'static [&'static str]) {
    match len {
        4 => ("float4", &[".x", ".y", ".z", ".w"]),
        2 => ("float2", &[".x", ".y"]),
        _ => ("float", &[""]),
    }
}

/// Whether the tiled schemes can compute a problem: one group, sums in a fixed order.
pub(super) fn supports_tiling(problem: &ConvProblem) -> bool {
    problem.shape.groups == 1 && supports_grouped_tiling(problem)
}

/// The same for a scheme that supports groups. The limits keep tile sizes far from overflow.
pub(super) fn supports_grouped_tiling(problem: &ConvProblem) -> bool {
    let shape = &problem.shape;
    let reach = |taps: u32, dilation: u32| u64::from(taps - 1) * u64::from(dilation);
    problem.reduce == Reduce::Ordered
        && u64::from(shape.r) * u64::from(shape.s) <= 128
        && shape.c <= 1 << 16
        && reach(shape.r, shape.dilation[0]).max(reach(shape.s, shape.dilation[1])) <= 1 << 10
        && shape.stride[0].max(shape.stride[1]) <= 16
}

/// Whether rows of the input can be staged four columns at a time: rows and tiles start and end at multiples of 16 bytes.
pub(super) fn can_stage_float4(problem: &ConvProblem, tw: u32) -> bool {
    let shape = &problem.shape;
    shape.batch == 1
        && shape.w.is_multiple_of(4)
        && tw.is_multiple_of(4)
        && shape.stride[1] == 1
        && shape.padding.left <= 4
}

/// Rows and columns of the input tile of an output tile. If four columns are loaded at a time, the first column is four columns
/// left of the output tile's first one, and rows end at a multiple of 16 bytes.
pub(super) fn input_tile(problem: &ConvProblem, th: u32, tw: u32) -> [u32; 2] {
    let shape = &problem.shape;
    let [reach_h, reach_w] =
        [(shape.r, 0), (shape.s, 1)].map(|(taps, axis)| (taps - 1) * shape.dilation[axis]);
    let rows = (th - 1) * shape.stride[0] + reach_h + 1;
    let columns = if can_stage_float4(problem, tw) {
        (4 + tw + reach_w.saturating_sub(shape.padding.left)).next_multiple_of(4)
    } else {
        (tw - 1) * shape.stride[1] + reach_w + 1
    };
    [rows, columns]
}

/// L2 traffic of an input tile, for the cost model.
pub(super) struct InputTraffic {
    /// Bytes of all sectors that contain values of it.
    pub(super) bytes: f64,
    /// Cache lines that the loads of the warps touch.
    pub(super) lines: f64,
}

impl InputTraffic {
    /// Traffic of the input tile of an output tile with `channels` input channels. `cuts` is the number of additional pieces
    /// because a warp's load ends within a row. Rows as wide as the image are contiguous.
    pub(super) fn new(problem: &ConvProblem, tile: [u32; 2], channels: u32, cuts: f64) -> Self {
        /// Bytes of a cache line; mean number of bytes by which the sectors of a run exceed the run if it starts anywhere.
        const LINE: f64 = 128.0;
        const BEYOND: f64 = 28.0;

        let shape = &problem.shape;
        let reach = |axis: usize, taps: u32, most: u32| {
            let all = (tile[axis] - 1) * shape.stride[axis] + (taps - 1) * shape.dilation[axis] + 1;
            f64::from(all.min(most))
        };
        let (rows, row) = (reach(0, shape.r, shape.h), reach(1, shape.s, shape.w));
        let channels = f64::from(channels);
        let bytes = 4.0 * channels * rows * row;
        let runs = if row >= f64::from(shape.w) {
            channels
        } else {
            channels * rows
        };
        let pieces = channels * rows + cuts;
        Self {
            bytes: bytes + runs * BEYOND,
            lines: pieces + bytes / LINE,
        }
    }
}

/// Divisions by numbers other than powers of two that compute the row and column of a position. There are `places` positions,
/// `row` of them in each row.
pub(super) fn index_divisions(places: u32, row: u32) -> f64 {
    let counts = |size: u32| f64::from(u8::from(!size.is_power_of_two()));
    counts(places) + if places > row { counts(row) } else { 0.0 }
}

/// Context of the template `kernel/copy_weights_of_chunk.cu`; part of a scheme's context.
#[derive(Serialize)]
pub(super) struct WeightCopies {
    /// Copies of 16 bytes by each thread. If the last one does not occupy all threads, `last_copies` of them do it.
    copies: u32,
    checks_copies: bool,
    last_copies: u32,
}

impl WeightCopies {
    /// Copies of `floats` floats, a multiple of four.
    pub(super) fn new(floats: u32, threads: u32) -> Self {
        let copies = floats / 4;
        Self {
            copies: copies.div_ceil(threads),
            checks_copies: !copies.is_multiple_of(threads),
            last_copies: copies % threads,
        }
    }
}

impl BlockOutput {
    /// Floats of shared memory of a block with `staged` floats of staging buffers. The partial sums reuse the memory of the
    /// staging buffers. Then follow the dequantisation scales and biases of the channels, then the partial sums that the blocks
    /// of a cluster send.
    pub(super) fn shared_floats(&self, problem: &ConvProblem, staged: u32) -> u32 {
        let received = if self.cluster > 1 {
            let y_vector = self.y_vector(problem);
            (self.cluster * self.rank_outputs(y_vector) * y_vector).next_multiple_of(4)
        } else {
            0
        };
        // Followed by the mbarrier of the exchange.
        self.received_at(staged) + received + 4
    }

    fn epilogue_at(&self, staged: u32) -> u32 {
        let partials = self.k_splits * self.partial_rows * self.partial_pitch;
        staged.max(partials).next_multiple_of(4)
    }

    fn received_at(&self, staged: u32) -> u32 {
        (self.epilogue_at(staged) + 2 * self.tile[2]).next_multiple_of(4)
    }

    /// Output vectors that each block of a cluster reduces and stores.
    fn rank_outputs(&self, y_vector: u32) -> u32 {
        let [th, tw, tn] = self.tile;
        (tn * th * tw / y_vector).div_ceil(self.cluster)
    }

    /// Outputs of a vector, which are stored at once. In NCHW they are pixels of a channel, and either vectors do not cross the end of a
    /// row, or rows are contiguous; in 16-bit NHWC they are channels of a pixel.
    pub(super) fn y_vector(&self, problem: &ConvProblem) -> u32 {
        if problem.writes_16_bit_nhwc() {
            return Format::RUN_CHANNELS;
        }
        let shape = &problem.shape;
        let [th, tw, _] = self.tile;
        let (out_h, out_w) = (shape.out_h(), shape.out_w());
        let aligned = |vector: u32| {
            shape.batch == 1
                && (out_w.is_multiple_of(vector) && tw.is_multiple_of(vector)
                    || tw == out_w
                        && out_h.is_multiple_of(th)
                        && (th * tw).is_multiple_of(vector)
                        && (out_h * out_w).is_multiple_of(vector))
        };
        [4, 2].into_iter().find(|&len| aligned(len)).unwrap_or(1)
    }

    /// Output vectors of a block, and outputs of a vector.
    pub(super) fn outputs(&self, problem: &ConvProblem) -> (u32, u32) {
        let y_vector = self.y_vector(problem);
        (self.tile.iter().product::<u32>() / y_vector, y_vector)
    }

    /// Sectors of 32 bytes that a block of a cluster stores, and reads of a residual. Sectors that the tile covers only partly at
    /// the ends of its rows count in full.
    pub(super) fn stored_sectors(&self, problem: &ConvProblem) -> f64 {
        const SECTOR: u32 = 32;
        let [th, tw, tn] = self.tile;
        let (out_h, out_w) = (problem.shape.out_h(), problem.shape.out_w());
        let bytes = |rows: u32, columns: u32| 4 * u64::from(rows) * u64::from(columns);
        // Number of contiguous runs, bytes of a run, and the distances in bytes at which runs can start.
        let (runs, run, apart) = if problem.writes_16_bit_nhwc() {
            let of_pixel = |channels: u32| problem.output.dtype.bytes() * u64::from(channels);
            let n = problem.shape.n;
            (
                th.min(out_h) * tw.min(out_w),
                of_pixel(tn.min(n)),
                [of_pixel(tn), of_pixel(n)],
            )
        } else if tw >= out_w {
            let rows = th.min(out_h);
            (
                tn,
                bytes(rows, out_w),
                [bytes(th, out_w), bytes(out_h, out_w)],
            )
        } else {
            let rows = th.min(out_h);
            (tn * rows, bytes(1, tw), [bytes(1, tw), bytes(1, out_w)])
        };
        let aligned = apart.map(|bytes| 1 << bytes.trailing_zeros().min(SECTOR.trailing_zeros()));
        let beyond = SECTOR - aligned[0].min(aligned[1]);
        let tensors = if problem.epilogue.residual { 2 } else { 1 };
        f64::from(tensors * runs) * (run + u64::from(beyond)) as f64
            / f64::from(SECTOR * self.cluster)
    }

    /// Bytes of partial sums that a block of a cluster sends to the others.
    pub(super) fn sent_bytes(&self) -> f64 {
        let outputs: u32 = self.tile.iter().product();
        4.0 * f64::from(outputs) * f64::from(self.cluster - 1) / f64::from(self.cluster)
    }

    /// Divisions by numbers other than powers of two that compute the positions of a thread's outputs. In a cluster they are
    /// computed once for the partial sums that it sends, and once for the outputs that it stores.
    pub(super) fn store_divisions(&self, problem: &ConvProblem) -> f64 {
        let [th, tw, _] = self.tile;
        let (outputs, y_vector) = self.outputs(problem);
        let rounds = |outputs: u32| f64::from(outputs.div_ceil(self.threads));
        let pixels = th * tw;
        let of_pixel = index_divisions(pixels, tw);
        if self.cluster == 1 {
            return rounds(outputs) * of_pixel;
        }
        let rank_outputs = self.rank_outputs(y_vector);
        rounds(outputs)
            * (index_divisions(pixels, pixels) + index_divisions(rank_outputs, rank_outputs))
            + rounds(rank_outputs) * of_pixel
    }

    /// Tiles of an image, and of one row of tiles.
    pub(super) fn tiles(&self, problem: &ConvProblem) -> [u32; 2] {
        let [th, tw, _] = self.tile;
        let tiles_w = problem.shape.out_w().div_ceil(tw);
        [problem.shape.out_h().div_ceil(th) * tiles_w, tiles_w]
    }

    /// Tiles of the output channels of a group.
    fn tiles_n(&self) -> u32 {
        self.group_n.div_ceil(self.tile[2])
    }

    /// Blocks of the grid: tiles of all images, tiles of the output channels, blocks of a cluster.
    pub(super) fn grid(&self, problem: &ConvProblem) -> [u32; 3] {
        let [tiles, _] = self.tiles(problem);
        [
            tiles * problem.shape.batch,
            problem.shape.n.div_ceil(self.group_n) * self.tiles_n(),
            self.cluster,
        ]
    }

    /// Context for a block with `staged` floats of staging buffers.
    pub(super) fn context(&self, problem: &ConvProblem, staged: u32) -> BlockOutputContext {
        let shape = &problem.shape;
        let [th, tw, tn] = self.tile;
        let (out_h, out_w) = (shape.out_h(), shape.out_w());
        let [tiles, tiles_w] = self.tiles(problem);
        let pixels = th * tw;
        let y_vector = self.y_vector(problem);
        // A vector of channels in 16-bit NHWC consists of two vectors of partial sums.
        let (y_type, y_elements) = vector_type(y_vector.min(4));
        let mut outside = Vec::new();
        if !out_h.is_multiple_of(th) {
            outside.push("row >= OUT_H".to_owned());
        }
        if !out_w.is_multiple_of(tw) {
            outside.push("column >= OUT_W".to_owned());
        }
        let checks_n = !shape.n.is_multiple_of(self.group_n) || !self.group_n.is_multiple_of(tn);
        let groups = shape.n.div_ceil(self.group_n);
        match (checks_n, groups) {
            (false, _) => {}
            (true, 1) => outside.push(format!("n0 + n >= {}", shape.n)),
            (true, _) => outside.push("n0 + n >= end_n".to_owned()),
        }
        BlockOutputContext {
            out_h,
            out_w,
            th,
            tw,
            tn,
            tiles,
            tiles_w,
            cluster: self.cluster,
            k_splits: self.k_splits,
            partial_rows: self.partial_rows,
            partial_pitch: self.partial_pitch,
            epilogue_at: self.epilogue_at(staged),
            received_at: self.received_at(staged),
            exchange_barrier_at: self.shared_floats(problem, staged) - 4,
            rank_outputs: self.rank_outputs(y_vector),
            y_pixel_runs: problem.output.pixel_runs(shape.n),
            n: shape.n,
            checks_n,
            grouped: groups > 1,
            group_n: self.group_n,
            tiles_n: self.tiles_n(),
            checks_group_n: !shape.n.is_multiple_of(self.group_n),
            y_vector,
            y_type,
            y_elements,
            outputs: tn * pixels / y_vector,
            runs: tn / y_vector,
            rounds: (tn * pixels / y_vector).div_ceil(self.threads),
            pixel_vectors: pixels / y_vector,
            outside: outside.join(" || "),
        }
    }
}
