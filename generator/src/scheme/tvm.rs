//! `tvm`: TVM's tutorial schedule of a convolution with a large batch, on HWCN activation tensors and RSCN weights.
//!
//! A block computes one pixel: TN output channels x TB images, a matrix product over the input channels of every tap of the filter. One
//! step brings TC input channels of one tap into shared memory: TC x TB values of the input and TC x TN weights. All threads load them
//! together in vectors ("cooperative fetching"). A thread computes V x V grids of the TN x TB sums of a block, TN/V and TB/V apart
//! ("virtual threads"). Adjacent threads then read adjacent vectors of shared memory, without bank conflicts. A thread keeps the values
//! that it has read in registers for all its products (AL, WL; the accumulators are BL).
//!
//! The published constants are block_factor 64, num_thread 8, vthread 2, step 8. They are the tile `n64b64xn8xb8v2c8s1`.
//!
//! Extensions: any batch, channels, stride, padding and dilation, with tails; prologue and epilogue; S buffers, which asynchronous copies
//! fill while another one is computed (S = 1 is the original: loads and arithmetic alternate without overlap). Because a block has one
//! pixel, a tap is in the padding for all of the block or for none of it. Such taps are skipped; the original multiplies zeros.
//!
//! It is the only scheme for this layout, and therefore a default scheme.

use super::convolution::{self, FusedOpsContext};
use super::info::SchemeInfo;
use super::tiling::{supports_tiling, vector_type};
use super::{
    Blueprint, DevicePart, KernelBlueprint, MAX_GRID, Scheme, Tile, TileField,
    blocks_per_sm_by_registers, candidates_up_to, context, tile_numbers,
};
use crate::cost::KernelWork;
use crate::gpu::Gpu;
use crate::ir::{ConvProblem, Layout, MAX_ELEMENTS, Problem};
use serde::Serialize;
use tdc_runtime::{Arg, Axis, Filter, LayoutDim, Padding, Transform, WeightLayout};

/// The convolution of a problem, if its activation tensors are HWCN.
fn hwcn_conv(problem: &Problem) -> Option<&ConvProblem> {
    let is_hwcn = |conv: &&ConvProblem| {
        [conv.input, conv.output].map(|format| format.layout) == [Layout::Hwcn; 2]
    };
    problem.conv().filter(is_hwcn)
}

/// See the [module](self).
pub struct Tvm;

tile_numbers! {
    /// A tile of the [module](self)'s scheme.
    struct TvmTile {
        /// Output channels of a block.
        tn: "n",
        /// Images of a block.
        tb: "b",
        /// Threads along the output channels.
        threads_n: "xn",
        /// Threads along the images.
        threads_b: "xb",
        /// Virtual threads (vthread) along each of the two.
        virtual_threads: "v",
        /// Input channels of a step.
        tc: "c",
        /// Shared-memory buffers; 1: no pipeline.
        stages: "s",
    }
}

/// Maximum number of accumulators of a thread: more leave too few registers for the operands.
const MAX_SUMS: u32 = 128;

#[derive(Serialize)]
struct TvmContext {
    c: u32,
    h: u32,
    w: u32,
    n: u32,
    batch: u32,
    out_w: u32,
    r: u32,
    s: u32,
    stride_h: u32,
    stride_w: u32,
    pad_top: u32,
    pad_left: u32,
    dilation_h: u32,
    dilation_w: u32,
    tn: u32,
    tb: u32,
    tc: u32,
    virtual_threads: u32,
    rn: u32,
    rb: u32,
    threads: u32,
    /// Warps of a block along the images.
    warps_b: u32,
    min_blocks: u32,
    stages: u32,
    chunks: u32,
    /// Padded sizes of the packed weights.
    padded_c: u32,
    padded_n: u32,
    checks_taps: bool,
    checks_c: bool,
    checks_n: bool,
    checks_batch: bool,
    /// Images that are loaded, and that are stored, at once.
    x_vector: u32,
    x_type: &'static str,
    x_elements: &'static [&'static str],
    y_vector: u32,
    y_type: &'static str,
    y_elements: &'static [&'static str],
    /// Vectors in which a thread reads weights and input values from shared memory.
    weight_vector: u32,
    weight_type: &'static str,
    value_vector: u32,
    value_type: &'static str,
    #[serde(flatten)]
    fused_ops: FusedOpsContext,
}

/// A tile with the sizes that follow from it.
struct TvmGeometry {
    tile: TvmTile,
    /// Output channels and images of a virtual thread.
    rn: u32,
    rb: u32,
    threads: u32,
    registers: u32,
    shared_bytes: u32,
    padded_c: u32,
    padded_n: u32,
}

impl TvmGeometry {
    /// `None` if the tile is not valid, or not for this problem.
    fn new(problem: &ConvProblem, tile: TvmTile, gpu: &Gpu) -> Option<Self> {
        let TvmTile {
            tn,
            tb,
            threads_n,
            threads_b,
            virtual_threads,
            tc,
            stages,
        } = tile;
        // Bounds first, because a config can contain any number.
        if tile
            .numbers()
            .iter()
            .any(|number| !(1..=256).contains(number))
            || !tn.is_multiple_of((threads_n * virtual_threads).max(4))
            || !tb.is_multiple_of((threads_b * virtual_threads).max(4))
            || virtual_threads > 4
            || tc > 64
            || stages > 8
        {
            return None;
        }
        let shape = &problem.shape;
        let rn = tn / threads_n / virtual_threads;
        let rb = tb / threads_b / virtual_threads;
        let threads = threads_n * threads_b;
        let sums = rn * rb * virtual_threads * virtual_threads;
        let padded_c = shape.c.next_multiple_of(tc);
        let padded_n = shape.n.next_multiple_of(tn);
        let weights = [shape.r, shape.s, padded_c, padded_n];
        let weights = weights.iter().map(|&size| u64::from(size)).product::<u64>();
        let shared_bytes = 4 * stages * tc * (tn + tb);
        // The lanes of a warp are 8 images wide and 4 channels high.
        let fits = threads_n.is_multiple_of(4)
            && threads_b.is_multiple_of(8)
            && threads <= 512
            && sums <= MAX_SUMS
            && shared_bytes <= gpu.shared_per_block
            && weights <= MAX_ELEMENTS
            && padded_n / tn <= MAX_GRID
            // The prologue is applied while a step is loaded through registers, not with asynchronous copies.
            && (problem.prologue.is_none() || stages == 1);
        fits.then(|| Self {
            tile,
            rn,
            rb,
            threads,
            registers: sums + 2 * virtual_threads * (rn + rb) + 24,
            shared_bytes,
            padded_c,
            padded_n,
        })
    }

    fn from_tile(problem: &ConvProblem, tile: &Tile, gpu: &Gpu) -> Option<Self> {
        Self::new(problem, TvmTile::from_tile(tile)?, gpu)
    }

    /// The geometry of a supported tile.
    fn of_supported(problem: &ConvProblem, tile: &Tile, gpu: &Gpu) -> Self {
        Self::from_tile(problem, tile, gpu).expect("a supported tile")
    }

    fn grid(&self, problem: &ConvProblem) -> [u32; 3] {
        let shape = &problem.shape;
        [
            shape.batch.div_ceil(self.tile.tb),
            self.padded_n / self.tile.tn,
            shape.out_h() * shape.out_w(),
        ]
    }
}

impl Scheme for Tvm {
    fn name(&self) -> &'static str {
        "tvm"
    }

    fn info(&self) -> SchemeInfo {
        SchemeInfo {
            is_default: true,
            layout: Layout::Hwcn,
            ..SchemeInfo::published(
                "TVM, conv2d tutorial for GPUs",
                "convolutions of one group stored as HWCN, up to 65535 output pixels",
            )
        }
    }

    fn tile_fields(&self) -> &'static [TileField] {
        TvmTile::FIELDS
    }

    fn tiles(&self, problem: &Problem, gpu: &Gpu) -> Vec<Tile> {
        let Some(problem) = hwcn_conv(problem) else {
            return Vec::new();
        };
        if !supports_problem(problem) {
            return Vec::new();
        }
        let shape = &problem.shape;
        let mut tiles = Vec::new();
        for tn in candidates_up_to(shape.n, &[16, 32, 64, 128]) {
            for tb in candidates_up_to(shape.batch, &[8, 16, 32, 64, 128]) {
                for threads_n in [4, 8, 16] {
                    for threads_b in [8, 16] {
                        for virtual_threads in [1, 2] {
                            for tc in candidates_up_to(shape.c, &[4, 8, 16, 32]) {
                                for stages in [1, 2, 3, 4] {
                                    let tile = TvmTile {
                                        tn,
                                        tb,
                                        threads_n,
                                        threads_b,
                                        virtual_threads,
                                        tc,
                                        stages,
                                    };
                                    if TvmGeometry::new(problem, tile, gpu).is_some() {
                                        tiles.push(tile.into());
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
        tiles
    }

    fn supports(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> bool {
        let Some(problem) = hwcn_conv(problem) else {
            return false;
        };
        supports_problem(problem) && TvmGeometry::from_tile(problem, tile, gpu).is_some()
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> Blueprint {
        let problem = convolution::expect_conv(problem);
        let sizes = TvmGeometry::of_supported(problem, tile, gpu);
        let layout = layout(problem, &sizes);
        let kernel = kernel(problem, &sizes, &layout, gpu);
        convolution::blueprint(problem, 1, kernel, layout)
    }
}

/// Whether the scheme supports a problem: the grid has a block for each pixel.
fn supports_problem(problem: &ConvProblem) -> bool {
    let shape = &problem.shape;
    let pixels = u64::from(shape.out_h()) * u64::from(shape.out_w());
    supports_tiling(problem) && pixels <= u64::from(MAX_GRID)
}

/// `[R][S][I][O]`, which the tutorial calls RSCN. Input channels are padded to complete steps and output channels to complete tiles.
fn layout(problem: &ConvProblem, sizes: &TvmGeometry) -> WeightLayout {
    let shape = &problem.shape;
    let dim = |axis, count| LayoutDim {
        axis,
        count,
        step: 1,
    };
    WeightLayout {
        source: problem.shape.weight(),
        dims: vec![
            dim(Axis::R, shape.r),
            dim(Axis::S, shape.s),
            dim(Axis::I, sizes.padded_c),
            dim(Axis::O, sizes.padded_n),
        ]
        .into(),
        filter: Filter::Taps,
        transform: Transform::None,
        prologue_channels: Problem::Conv(*problem).scale_shift_channels(),
    }
}

/// The largest vector length, 4, 2 or 1, that divides both numbers.
fn widest_vector(a: u32, b: u32) -> u32 {
    let divides = |&len: &u32| a.is_multiple_of(len) && b.is_multiple_of(len);
    [4, 2].into_iter().find(divides).unwrap_or(1)
}

fn kernel(
    problem: &ConvProblem,
    sizes: &TvmGeometry,
    layout: &WeightLayout,
    gpu: &Gpu,
) -> KernelBlueprint {
    let shape = &problem.shape;
    let epilogue = problem.epilogue;
    // Asynchronous copies are of 4 or 16 bytes.
    let x_vector = if shape.batch.is_multiple_of(4) { 4 } else { 1 };
    let y_vector = widest_vector(shape.batch, sizes.rb);
    let weight_vector = widest_vector(sizes.rn, 4);
    let value_vector = widest_vector(sizes.rb, 4);
    let (x_type, x_elements) = vector_type(x_vector);
    let (y_type, y_elements) = vector_type(y_vector);
    let grid = sizes.grid(problem);
    let context = context(&TvmContext {
        c: shape.c,
        h: shape.h,
        w: shape.w,
        n: shape.n,
        batch: shape.batch,
        out_w: shape.out_w(),
        r: shape.r,
        s: shape.s,
        stride_h: shape.stride[0],
        stride_w: shape.stride[1],
        pad_top: shape.padding.top,
        pad_left: shape.padding.left,
        dilation_h: shape.dilation[0],
        dilation_w: shape.dilation[1],
        tn: sizes.tile.tn,
        tb: sizes.tile.tb,
        tc: sizes.tile.tc,
        virtual_threads: sizes.tile.virtual_threads,
        rn: sizes.rn,
        rb: sizes.rb,
        threads: sizes.threads,
        warps_b: sizes.tile.threads_b / 8,
        min_blocks: blocks_per_sm_by_registers(sizes.threads, sizes.registers),
        stages: sizes.tile.stages,
        chunks: sizes.padded_c / sizes.tile.tc,
        padded_c: sizes.padded_c,
        padded_n: sizes.padded_n,
        checks_taps: shape.padding != Padding::default(),
        checks_c: sizes.padded_c != shape.c,
        checks_n: sizes.padded_n != shape.n,
        checks_batch: !shape.batch.is_multiple_of(sizes.tile.tb),
        x_vector,
        x_type,
        x_elements,
        y_vector,
        y_type,
        y_elements,
        weight_vector,
        weight_type: vector_type(weight_vector).0,
        value_vector,
        value_type: vector_type(value_vector).0,
        fused_ops: FusedOpsContext::new(problem, layout, false),
    });
    let mut args = vec![Arg::X, Arg::Packed];
    args.extend(epilogue.bias.then_some(Arg::Bias));
    args.extend(epilogue.residual.then_some(Arg::Residual));
    args.push(Arg::Y);
    KernelBlueprint {
        role: convolution::role(false),
        template: "kernel/tvm.cu",
        context,
        grid,
        block: [sizes.threads, 1, 1],
        cluster: [1; 3],
        shared_bytes: sizes.shared_bytes,
        pdl: true,
        device: if sizes.tile.stages > 1 {
            &[
                DevicePart::DynamicShared,
                DevicePart::AsyncCopy,
                DevicePart::Pdl,
            ]
        } else {
            &[DevicePart::DynamicShared, DevicePart::Pdl]
        },
        args,
        work: work(problem, sizes, grid, gpu),
    }
}

fn work(problem: &ConvProblem, sizes: &TvmGeometry, grid: [u32; 3], gpu: &Gpu) -> KernelWork {
    let shape = &problem.shape;
    let blocks = grid.iter().map(|&size| u64::from(size)).product::<u64>();
    let steps = f64::from(sizes.padded_c / sizes.tile.tc * shape.r * shape.s);
    let tile = f64::from(sizes.tile.tn) * f64::from(sizes.tile.tb);
    let fetched = f64::from(sizes.tile.tn + sizes.tile.tb) * f64::from(sizes.tile.tc) * steps;
    let v = sizes.tile.virtual_threads;
    let sums = f64::from(v * v * sizes.rn * sizes.rb);
    // Lanes that read runs longer than a vector have bank conflicts.
    let vectors = |run: u32, conflicts: u32| v * run.div_ceil(4) * conflicts;
    let read = vectors(sizes.rn, 1) + vectors(sizes.rb, sizes.rb.div_ceil(4));
    let fetches = ((sizes.tile.tn + sizes.tile.tb) * sizes.tile.tc / 4).div_ceil(sizes.threads);
    let tc = f64::from(sizes.tile.tc);
    // Without a pipeline every step waits for L2.
    let model = &gpu.cost_model().other;
    let waits = match sizes.tile.stages {
        1 => model.tvm_step_round_trips,
        _ => model.tvm_pipelined_step_round_trips,
    };
    KernelWork {
        blocks,
        threads: sizes.threads,
        registers: sizes.registers,
        shared_bytes: sizes.shared_bytes,
        flops: 2.0 * tile * f64::from(sizes.tile.tc) * steps * blocks as f64,
        fma_fraction: sums * tc
            / ((sums + 2.0 * f64::from(read)) * tc
                + model.tvm_load * f64::from(fetches)
                + model.tvm_step),
        l2_bytes: 4.0 * (fetched + tile) * blocks as f64,
        dram_bytes: Problem::Conv(*problem).bytes() as f64,
        l2_round_trips: 1.0 + waits * steps,
        pdl: true,
        ..KernelWork::default()
    }
}
