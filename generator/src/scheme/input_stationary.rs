//! `input_stationary`: convolutions of one input channel, in fp32.
//!
//! With one channel there is little to load. The input of all pixels of a thread fits in its registers, and writing the outputs
//! takes most of the time. So a thread loads the input of a few pixels once and keeps it. It then loops over the filters, four at
//! a time; all lanes of a warp read the same weights from shared memory. Pixels are numbered through the rows of an output
//! channel, and the groups of a thread consist of adjacent ones: a warp stores complete cache lines, regardless of where rows
//! end.

use super::convolution::{self, FusedOpsContext};
use super::info::SchemeInfo;
use super::tiling::{supports_tiling, vector_type};
use super::{
    Blueprint, DevicePart, KernelBlueprint, MAX_GRID, Scheme, Tile, TileField,
    blocks_per_sm_by_registers, candidates_up_to, context, tile_numbers,
};
use crate::cost::KernelWork;
use crate::gpu::{Gpu, MAX_THREADS, REGISTERS_PER_BLOCK};
use crate::ir::{ConvProblem, MAX_ELEMENTS, Problem};
use serde::Serialize;
use tdc_runtime::{Axis, Filter, LayoutDim, Padding, Transform, WeightLayout};

/// See the [module](self).
pub struct InputStationary;

tile_numbers! {
    /// A tile of the [module](self)'s scheme.
    struct InputStationaryTile {
        /// Output channels of a block.
        tn: "n",
        /// Pixels of one vector store: 1, 2 or 4.
        vector_p: "vp",
        /// Such vectors of a thread.
        thread_vectors: "tv",
        /// Threads of a block.
        threads: "t",
    }
}

/// Filters that a thread computes at once: a vector has the same tap of each.
const FILTERS: u32 = 4;

/// Maximum number of taps of a filter. With more, the inputs leave no registers for several pixels: for 41x3 and 1x80 `direct_tiled` takes
/// two thirds to three quarters of the time of this scheme.
const MAX_TAPS: u32 = 64;

/// Maximum number of multiply-adds of the loop over the taps, which is unrolled completely because the inputs are in registers.
const MAX_UNROLLED: u32 = 2048;

/// Length in floats from which on outputs are written with streaming stores (`__stcs`). Such outputs exceed the L2 of current
/// GPUs, so the next kernel would not find them there. On an H200, 134 MB took 31.2 us with streaming stores and 33.4 us with
/// plain ones.
const STREAMING_MIN_LEN: u64 = 1 << 24;

#[derive(Serialize)]
struct InputStationaryContext {
    h: u32,
    w: u32,
    n: u32,
    out_w: u32,
    pixels: u32,
    r: u32,
    s: u32,
    stride_h: u32,
    stride_w: u32,
    pad_top: u32,
    /// Loaded columns to the left of a run's first column, and the first of the loaded columns that is read.
    aligned_pad_left: u32,
    first_column: u32,
    dilation_h: u32,
    dilation_w: u32,
    tn: u32,
    vector_p: u32,
    thread_vectors: u32,
    run: u32,
    columns: u32,
    threads: u32,
    min_blocks: u32,
    /// Blocks of an image for one slice of the output channels.
    blocks: u32,
    checks_inside: bool,
    checks_pixels: bool,
    checks_n: bool,
    streaming_stores: bool,
    x_vector: u32,
    x_type: &'static str,
    x_zero: &'static str,
    x_elements: &'static [&'static str],
    y_type: &'static str,
    y_elements: &'static [&'static str],
    #[serde(flatten)]
    fused_ops: FusedOpsContext,
}

/// A tile and the sizes that follow from it for a problem.
struct InputStationaryGeometry {
    tile: InputStationaryTile,
    /// Pixels of an output channel.
    pixels: u32,
    /// Adjacent pixels of a group that are always in one row.
    run: u32,
    columns: u32,
    aligned_pad_left: u32,
    x_vector: u32,
    blocks_n: u32,
    blocks: u32,
    registers: u32,
}

impl InputStationaryGeometry {
    /// `None` if the tile is invalid, does not fit the problem or the GPU, or if a thread would need too many registers. The
    /// scheme must support the problem ([`supports_problem`]).
    fn new(problem: &ConvProblem, tile: InputStationaryTile, gpu: &Gpu) -> Option<Self> {
        let InputStationaryTile {
            tn,
            vector_p,
            thread_vectors,
            threads,
        } = tile;
        let shape = &problem.shape;
        let taps = shape.r * shape.s;
        if !tn.is_multiple_of(FILTERS)
            || !(FILTERS..=1 << 12).contains(&tn)
            || !matches!(vector_p, 1 | 2 | 4)
            || !(1..=16).contains(&thread_vectors)
            || !(32..=MAX_THREADS).contains(&threads)
            || !threads.is_multiple_of(32)
        {
            return None;
        }
        let pixels = u32::try_from(u64::from(shape.out_h()) * u64::from(shape.out_w())).ok()?;
        // Vectors need a single image, because the batch stride may be any number.
        if !pixels.is_multiple_of(vector_p) || vector_p > 1 && shape.batch > 1 {
            return None;
        }
        let divides = |number: u32, sizes: &[u32]| sizes.iter().all(|s| s.is_multiple_of(number));
        let run = [4, 2, 1]
            .into_iter()
            .find(|&run| divides(run, &[vector_p, shape.out_w()]))?;
        let x_vector = match shape.batch {
            1 => [4, 2, 1]
                .into_iter()
                .find(|&len| divides(len, &[shape.w, run * shape.stride[1]]))?,
            _ => 1,
        };
        let [_, seen] = shape.input_window([1, run]);
        let aligned_pad_left = shape.padding.left.next_multiple_of(x_vector);
        let columns = (aligned_pad_left - shape.padding.left + seen).next_multiple_of(x_vector);
        let kept = thread_vectors * vector_p / run * shape.r * seen.min(run * shape.s);
        let sums = FILTERS * thread_vectors * vector_p;
        let registers = kept + sums + 24;
        let per_block = thread_vectors * vector_p * threads;
        let blocks = pixels.div_ceil(per_block);
        let blocks_n = shape.n.div_ceil(tn);
        let fits = registers <= 168
            && registers * threads <= REGISTERS_PER_BLOCK
            && columns <= 128
            && sums * taps <= MAX_UNROLLED
            && 4 * tn * taps <= gpu.shared_per_block
            && blocks_n <= MAX_GRID
            && u64::from(blocks_n) * u64::from(tn * taps) <= MAX_ELEMENTS
            && u64::from(blocks) * u64::from(per_block) < 1 << 31
            && u64::from(blocks) * u64::from(shape.batch) < 1 << 31;
        fits.then_some(Self {
            tile,
            pixels,
            run,
            columns,
            aligned_pad_left,
            x_vector,
            blocks_n,
            blocks,
            registers,
        })
    }

    fn from_tile(problem: &ConvProblem, tile: &Tile, gpu: &Gpu) -> Option<Self> {
        Self::new(problem, InputStationaryTile::from_tile(tile)?, gpu)
    }

    /// The sizes of a supported tile.
    fn of_supported(problem: &ConvProblem, tile: &Tile, gpu: &Gpu) -> Self {
        Self::from_tile(problem, tile, gpu).expect("a supported tile")
    }

    /// Work of the launch, for the cost model.
    fn work(&self, problem: &ConvProblem, gpu: &Gpu) -> KernelWork {
        let shape = &problem.shape;
        let blocks = u64::from(self.blocks) * u64::from(self.blocks_n) * u64::from(shape.batch);
        let taps = f64::from(shape.r * shape.s);
        let outputs = f64::from(self.tile.tn * self.tile.thread_vectors * self.tile.vector_p);
        let runs = f64::from(self.tile.thread_vectors * self.tile.vector_p / self.run);
        let tensors = if problem.epilogue.residual { 2.0 } else { 1.0 };
        let loads = runs * f64::from(shape.r * (self.columns / self.x_vector));
        // Instructions of a thread: loads, possibly with border checks; the loop over the filters, in which reading a vector
        // takes as long as eight instructions; stores.
        let model = &gpu.cost_model().input_stationary;
        let load = if shape.padding == Padding::default() {
            model.load
        } else {
            model.padded_load
        };
        let issue = model.thread
            + runs * model.run
            + loads * load
            + outputs * taps
            + f64::from(self.tile.tn / FILTERS) * (model.filter_vector + model.tap * taps)
            + tensors * outputs / f64::from(self.tile.vector_p) * model.store;
        let bytes = f64::from(self.tile.threads)
            * (tensors * outputs + runs * f64::from(shape.r * self.columns))
            + f64::from(self.tile.tn) * taps;
        KernelWork {
            blocks,
            threads: self.tile.threads,
            registers: self.registers,
            shared_bytes: 4 * self.tile.tn * shape.r * shape.s,
            // Warp instructions, counted as multiply-adds.
            flops: 2.0 * f64::from(self.tile.threads) * blocks as f64 * issue,
            fma_fraction: 1.0,
            l2_bytes: 4.0 * blocks as f64 * bytes,
            dram_bytes: Problem::Conv(*problem).bytes() as f64,
            l2_round_trips: model.l2_round_trips,
            pdl: true,
            ..KernelWork::default()
        }
    }
}

impl Scheme for InputStationary {
    fn name(&self) -> &'static str {
        "input_stationary"
    }

    fn info(&self) -> SchemeInfo {
        SchemeInfo::own("convolutions of one input channel with at most 64 taps and no prologue")
    }

    fn tile_fields(&self) -> &'static [TileField] {
        InputStationaryTile::FIELDS
    }

    fn tiles(&self, problem: &Problem, gpu: &Gpu) -> Vec<Tile> {
        let Some(problem) = problem.nchw_conv() else {
            return Vec::new();
        };
        if !supports_problem(problem) {
            return Vec::new();
        }
        let mut tiles = Vec::new();
        for tn in candidates_up_to(problem.shape.n, &[4, 8, 16, 32, 64, 128]) {
            for vector_p in [4, 2, 1] {
                for thread_vectors in [1, 2, 4, 8] {
                    // The first tile wins ties of predicted time, and 128 threads are rarely a bad choice.
                    for threads in [128, 64, 256, 512] {
                        let tile = InputStationaryTile {
                            tn,
                            vector_p,
                            thread_vectors,
                            threads,
                        };
                        if InputStationaryGeometry::new(problem, tile, gpu).is_some() {
                            tiles.push(tile.into());
                        }
                    }
                }
            }
        }
        tiles
    }

    fn supports(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> bool {
        problem.nchw_conv().is_some_and(|problem| {
            supports_problem(problem)
                && InputStationaryGeometry::from_tile(problem, tile, gpu).is_some()
        })
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> Blueprint {
        let problem = convolution::expect_conv(problem);
        let sizes = InputStationaryGeometry::of_supported(problem, tile, gpu);
        let layout = layout(problem, &sizes);
        let kernel = kernel(problem, &sizes, &layout, gpu);
        convolution::blueprint(problem, 1, kernel, layout)
    }
}

/// Whether the scheme can compute a problem.
fn supports_problem(problem: &ConvProblem) -> bool {
    let shape = &problem.shape;
    supports_tiling(problem)
        && shape.c == 1
        && shape.r * shape.s <= MAX_TAPS
        && problem.prologue.is_none()
}

/// `[O/4][R][S][O%4]`: a vector has the same tap of the four filters that a thread computes at once.
fn layout(problem: &ConvProblem, sizes: &InputStationaryGeometry) -> WeightLayout {
    let shape = &problem.shape;
    let dim = |axis, count, step| LayoutDim { axis, count, step };
    WeightLayout {
        source: shape.weight(),
        dims: vec![
            dim(Axis::O, sizes.blocks_n * sizes.tile.tn / FILTERS, FILTERS),
            dim(Axis::R, shape.r, 1),
            dim(Axis::S, shape.s, 1),
            dim(Axis::O, FILTERS, 1),
        ]
        .into(),
        filter: Filter::Taps,
        transform: Transform::None,
        prologue_channels: 0,
    }
}

fn kernel(
    problem: &ConvProblem,
    sizes: &InputStationaryGeometry,
    layout: &WeightLayout,
    gpu: &Gpu,
) -> KernelBlueprint {
    let shape = &problem.shape;
    let (x_type, x_elements) = vector_type(sizes.x_vector);
    let (y_type, y_elements) = vector_type(sizes.tile.vector_p);
    let threads = sizes.tile.threads;
    let context = context(&InputStationaryContext {
        h: shape.h,
        w: shape.w,
        n: shape.n,
        out_w: shape.out_w(),
        pixels: sizes.pixels,
        r: shape.r,
        s: shape.s,
        stride_h: shape.stride[0],
        stride_w: shape.stride[1],
        pad_top: shape.padding.top,
        aligned_pad_left: sizes.aligned_pad_left,
        first_column: sizes.aligned_pad_left - shape.padding.left,
        dilation_h: shape.dilation[0],
        dilation_w: shape.dilation[1],
        tn: sizes.tile.tn,
        vector_p: sizes.tile.vector_p,
        thread_vectors: sizes.tile.thread_vectors,
        run: sizes.run,
        columns: sizes.columns,
        threads,
        min_blocks: blocks_per_sm_by_registers(threads, sizes.registers),
        blocks: sizes.blocks,
        checks_inside: shape.padding != Padding::default(),
        checks_pixels: !sizes
            .pixels
            .is_multiple_of(sizes.tile.thread_vectors * sizes.tile.vector_p * threads),
        checks_n: !shape.n.is_multiple_of(sizes.tile.tn),
        streaming_stores: shape.output_len() >= STREAMING_MIN_LEN,
        x_vector: sizes.x_vector,
        x_type,
        x_zero: match sizes.x_vector {
            4 => "make_float4(0.0f, 0.0f, 0.0f, 0.0f)",
            2 => "make_float2(0.0f, 0.0f)",
            _ => "0.0f",
        },
        x_elements,
        y_type,
        y_elements,
        fused_ops: FusedOpsContext::new(problem, layout, false),
    });
    let work = sizes.work(problem, gpu);
    KernelBlueprint {
        role: convolution::role(false),
        template: "kernel/input_stationary.cu",
        context,
        grid: [sizes.blocks * shape.batch, sizes.blocks_n, 1],
        block: [threads, 1, 1],
        cluster: [1; 3],
        shared_bytes: work.shared_bytes,
        pdl: true,
        device: &[
            DevicePart::DynamicShared,
            DevicePart::AsyncCopy,
            DevicePart::Pdl,
        ],
        args: convolution::args(problem, false),
        work,
    }
}
