//! `pointwise`: a 1x1 convolution as the matrix product `Y[n, pixel] = W[n, c] X[c, pixel]`, tiled through shared memory.
//!
//! It supports one group, no padding, any stride and batch. A block computes TN output channels x TP pixels in steps of TC input
//! channels; a thread holds RN x RP of the sums in registers. Long sums with small outputs are split over blocks as in `direct`.

use super::convolution::{self, FusedOpsContext};
use super::info::SchemeInfo;
use super::reduction::SPLIT_COUNTS;
use super::{
    Blueprint, DevicePart, KernelBlueprint, MAX_GRID, Scheme, Tile, TileField, UnitWork,
    candidates_up_to, context, tile_numbers,
};
use crate::cost::KernelWork;
use crate::gpu::Gpu;
use crate::ir::{ConvProblem, MAX_ELEMENTS, Problem, Reduce};
use serde::Serialize;
use tdc_runtime::{Axis, Filter, LayoutDim, Padding, Transform, WeightLayout};

/// See the [module](self).
pub struct Pointwise;

tile_numbers! {
    /// A tile of the [module](self)'s scheme.
    struct PointwiseTile {
        /// Output channels of a block.
        tn: "n",
        /// Output pixels of a block.
        tp: "p",
        /// Input channels of a step.
        tc: "c",
        /// Output channels of a thread.
        rn: "rn",
        /// Pixels of a thread.
        rp: "rp",
        /// Split-K over the grid: partial sums in the workspace, added by a second kernel.
        splits: "sk",
    }
}

#[derive(Serialize)]
struct PointwiseContext {
    c: u32,
    h: u32,
    w: u32,
    n: u32,
    out_w: u32,
    pixels: u32,
    stride_h: u32,
    stride_w: u32,
    strided: bool,
    tn: u32,
    tp: u32,
    tc: u32,
    rn: u32,
    rp: u32,
    threads: u32,
    /// Threads along the pixels; also the distance of a thread's pixels.
    threads_p: u32,
    pixel_tiles: u32,
    /// Weights of a step in `float4`, input values of a step, and input channels padded to complete steps.
    weight_vectors: u32,
    input_elements: u32,
    padded_c: u32,
    /// Input channels of a split, a multiple of TC; 0 if they are not split.
    split_c: u32,
    checks_pixel: bool,
    checks_n: bool,
    checks_c: bool,
    checks_split: bool,
    #[serde(flatten)]
    fused_ops: FusedOpsContext,
}

impl PointwiseTile {
    fn threads(&self) -> u32 {
        (self.tn / self.rn) * (self.tp / self.rp)
    }

    /// Input channels of one split: a multiple of TC.
    fn split_c(&self, c: u32) -> u32 {
        c.div_ceil(self.splits).next_multiple_of(self.tc)
    }
}

impl Scheme for Pointwise {
    fn name(&self) -> &'static str {
        "pointwise"
    }

    fn info(&self) -> SchemeInfo {
        SchemeInfo::own("1x1 convolutions of one group without padding")
    }

    fn tile_fields(&self) -> &'static [TileField] {
        PointwiseTile::FIELDS
    }

    fn tiles(&self, problem: &Problem, _gpu: &Gpu) -> Vec<Tile> {
        let Some(problem) = problem.nchw_conv() else {
            return Vec::new();
        };
        let shape = &problem.shape;
        if (shape.r, shape.s, shape.groups) != (1, 1, 1)
            || shape.padding != Padding::default()
            || problem.reduce != Reduce::Ordered
        {
            return Vec::new();
        }
        let pixels = shape.out_h() * shape.out_w();
        let mut tiles = Vec::new();
        for tn in candidates_up_to(shape.n, &[16, 32, 64]) {
            for tp in candidates_up_to(pixels, &[16, 32, 64]) {
                for tc in candidates_up_to(shape.c, &[8, 16, 32]) {
                    for (rn, rp) in [(4, 1), (4, 2), (4, 4), (8, 4)] {
                        for splits in SPLIT_COUNTS {
                            let sizes = PointwiseTile {
                                tn,
                                tp,
                                tc,
                                rn,
                                rp,
                                splits,
                            };
                            if fits(problem, &sizes) {
                                tiles.push(sizes.into());
                            }
                        }
                    }
                }
            }
        }
        tiles
    }

    fn work(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> UnitWork {
        let problem = convolution::expect_conv(problem);
        let sizes = PointwiseTile::from_tile(tile).expect("a supported tile");
        convolution::unit_work(problem, sizes.splits, work(problem, &sizes, gpu))
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> Blueprint {
        let problem = convolution::expect_conv(problem);
        let sizes = PointwiseTile::from_tile(tile).expect("a supported tile");
        let layout = layout(problem, &sizes);
        let kernel = main_kernel(problem, &sizes, &layout, gpu);
        convolution::blueprint(problem, sizes.splits, kernel, layout)
    }
}

fn fits(problem: &ConvProblem, sizes: &PointwiseTile) -> bool {
    let shape = &problem.shape;
    let threads = sizes.threads();
    let last_split_has_work =
        u64::from(sizes.split_c(shape.c)) * u64::from(sizes.splits - 1) < u64::from(shape.c);
    (32..=256).contains(&threads)
        && threads.is_multiple_of(32)
        && last_split_has_work
        && u64::from(sizes.splits) * shape.output_len() <= MAX_ELEMENTS
        && layout(problem, sizes).len() as u64 <= MAX_ELEMENTS
        && shape.n.div_ceil(sizes.tn) <= MAX_GRID
}

/// `[O/TN][I padded to TC][O%TN]`: the weight tile of one step is contiguous.
fn layout(problem: &ConvProblem, sizes: &PointwiseTile) -> WeightLayout {
    let shape = &problem.shape;
    let dim = |axis, count, step| LayoutDim { axis, count, step };
    WeightLayout {
        source: problem.shape.weight(),
        dims: vec![
            dim(Axis::O, shape.n.div_ceil(sizes.tn), sizes.tn),
            dim(Axis::I, shape.c.next_multiple_of(sizes.tc), 1),
            dim(Axis::O, sizes.tn, 1),
        ]
        .into(),
        filter: Filter::Taps,
        transform: Transform::None,
        prologue_channels: Problem::Conv(*problem).scale_shift_channels(),
    }
}

fn main_kernel(
    problem: &ConvProblem,
    sizes: &PointwiseTile,
    layout: &WeightLayout,
    gpu: &Gpu,
) -> KernelBlueprint {
    let shape = &problem.shape;
    let pixels = shape.out_h() * shape.out_w();
    let threads = sizes.threads();
    let split = sizes.splits > 1;
    let split_c = sizes.split_c(shape.c);
    let padded_c = shape.c.next_multiple_of(sizes.tc);
    let pixel_tiles = pixels.div_ceil(sizes.tp);
    let context = context(&PointwiseContext {
        c: shape.c,
        h: shape.h,
        w: shape.w,
        n: shape.n,
        out_w: shape.out_w(),
        pixels,
        stride_h: shape.stride[0],
        stride_w: shape.stride[1],
        strided: shape.stride != [1, 1],
        tn: sizes.tn,
        tp: sizes.tp,
        tc: sizes.tc,
        rn: sizes.rn,
        rp: sizes.rp,
        threads,
        threads_p: sizes.tp / sizes.rp,
        pixel_tiles,
        weight_vectors: sizes.tc * sizes.tn / 4,
        input_elements: sizes.tc * sizes.tp,
        padded_c,
        split_c: if split { split_c } else { 0 },
        checks_pixel: !pixels.is_multiple_of(sizes.tp),
        checks_n: !shape.n.is_multiple_of(sizes.tn),
        checks_c: !shape.c.is_multiple_of(sizes.tc),
        checks_split: !padded_c.is_multiple_of(split_c),
        fused_ops: FusedOpsContext::new(problem, layout, split),
    });
    KernelBlueprint {
        role: convolution::role(split),
        template: "kernel/pointwise.cu",
        context,
        grid: grid(problem, sizes),
        block: [threads, 1, 1],
        cluster: [1; 3],
        shared_bytes: 0,
        pdl: true,
        device: &[DevicePart::Pdl],
        args: convolution::args(problem, split),
        work: work(problem, sizes, gpu),
    }
}

/// Blocks in each dimension: pixel tiles of all images, channel tiles, splits.
fn grid(problem: &ConvProblem, sizes: &PointwiseTile) -> [u32; 3] {
    let shape = &problem.shape;
    let pixels = shape.out_h() * shape.out_w();
    [
        pixels.div_ceil(sizes.tp) * shape.batch,
        shape.n.div_ceil(sizes.tn),
        sizes.splits,
    ]
}

/// Work of the launch, for the cost model.
fn work(problem: &ConvProblem, sizes: &PointwiseTile, gpu: &Gpu) -> KernelWork {
    let shape = &problem.shape;
    let threads = sizes.threads();
    let split_c = sizes.split_c(shape.c);
    let padded_c = shape.c.next_multiple_of(sizes.tc);
    let grid = grid(problem, sizes);
    let blocks = grid.iter().map(|&size| u64::from(size)).product::<u64>();
    let tile_flops =
        2.0 * f64::from(sizes.tn) * f64::from(sizes.tp) * f64::from(split_c.min(padded_c));
    let steps = f64::from(split_c.min(padded_c) / sizes.tc);
    let fmas = f64::from(sizes.rn * sizes.rp);
    KernelWork {
        blocks,
        threads,
        registers: 56 + sizes.rn * sizes.rp,
        shared_bytes: 4 * sizes.tc * (sizes.tn + sizes.tp),
        flops: tile_flops * blocks as f64,
        // Loads from shared memory in addition to the multiply-adds: vectors of weights, single pixels.
        fma_fraction: fmas / (fmas + 2.0 * f64::from(sizes.rn / 4 + sizes.rp)),
        l2_bytes: 4.0
            * f64::from(sizes.tn + sizes.tp)
            * f64::from(split_c.min(padded_c))
            * blocks as f64,
        dram_bytes: Problem::Conv(*problem).bytes() as f64,
        // Each step loads its tiles between two barriers.
        l2_round_trips: 1.0 + gpu.cost_model().other.pointwise_step_round_trips * steps,
        unpipelined: true,
        ..KernelWork::default()
    }
}
