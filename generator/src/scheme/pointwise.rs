//! `pointwise`: a 1x1 convolution as the matrix product `Y[n, pixel] = W[n, c] X[c, pixel]`, tiled through shared memory.
//!
//! Serves one group, no padding, any stride and batch. A block computes TN output channels x TP pixels in steps of TK input
//! channels, a thread RN x RP of them in registers. Long sums on small outputs are split over blocks as in `direct`.

use super::convolution::{self, ConvEnds};
use super::reduction::MAX_SPLITS;
use super::{Blueprint, DevicePart, KernelBlueprint, MAX_GRID, Scheme, Tile, context, up_to};
use crate::cost::KernelWork;
use crate::ir::{ConvProblem, MAX_ELEMENTS, Problem, Reduce};
use serde::Serialize;
use tdc_runtime::{Axis, Filter, LayoutDim, Padding, Transform, WeightLayout};

/// See the [module](self).
pub struct Pointwise;

#[derive(Serialize)]
struct Context {
    c: u32,
    h: u32,
    w: u32,
    n: u32,
    out_w: u32,
    pixels: u32,
    stride_h: u32,
    stride_w: u32,
    strided: bool,
    tile_n: u32,
    tile_p: u32,
    tile_k: u32,
    reg_n: u32,
    reg_p: u32,
    threads: u32,
    /// Threads along the pixels, and how far apart a thread's pixels are.
    threads_p: u32,
    pixel_tiles: u32,
    /// Elements of a weight tile in float4, and of all weight tiles of one row of blocks.
    weight_vectors: u32,
    input_elements: u32,
    padded_c: u32,
    /// Input channels of a split, a multiple of TK; 0 when they are not split.
    split_c: u32,
    checks_pixel: bool,
    checks_n: bool,
    checks_c: bool,
    checks_split: bool,
    #[serde(flatten)]
    ends: ConvEnds,
}

struct Sizes {
    tile_n: u32,
    tile_p: u32,
    tile_k: u32,
    reg_n: u32,
    reg_p: u32,
    splits: u32,
}

impl Sizes {
    fn of(tile: &Tile) -> Self {
        let [tile_n, tile_p, tile_k, reg_n, reg_p, splits] = tile.0[..] else {
            unreachable!("a pointwise tile has six numbers");
        };
        Self {
            tile_n,
            tile_p,
            tile_k,
            reg_n,
            reg_p,
            splits,
        }
    }

    fn threads(&self) -> u32 {
        (self.tile_n / self.reg_n) * (self.tile_p / self.reg_p)
    }

    /// Input channels of one split: a multiple of TK.
    fn split_c(&self, c: u32) -> u32 {
        c.div_ceil(self.splits).next_multiple_of(self.tile_k)
    }
}

impl Scheme for Pointwise {
    fn name(&self) -> &'static str {
        "pointwise"
    }

    fn tile_names(&self) -> &'static [&'static str] {
        &["n", "p", "c", "rn", "rp", "k"]
    }

    fn tiles(&self, problem: &Problem) -> Vec<Tile> {
        let Problem::Conv(problem) = problem else {
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
        for tile_n in up_to(shape.n, &[16, 32, 64]) {
            for tile_p in up_to(pixels, &[16, 32, 64]) {
                for tile_k in up_to(shape.c, &[8, 16, 32]) {
                    for (reg_n, reg_p) in [(4, 1), (4, 2), (4, 4), (8, 4)] {
                        for splits in MAX_SPLITS {
                            let sizes = Sizes {
                                tile_n,
                                tile_p,
                                tile_k,
                                reg_n,
                                reg_p,
                                splits,
                            };
                            if fits(problem, &sizes) {
                                tiles
                                    .push(Tile(vec![tile_n, tile_p, tile_k, reg_n, reg_p, splits]));
                            }
                        }
                    }
                }
            }
        }
        tiles
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile) -> Blueprint {
        let problem = convolution::of(problem);
        let sizes = Sizes::of(tile);
        let layout = layout(problem, &sizes);
        let kernel = main_kernel(problem, &sizes, &layout);
        convolution::blueprint(problem, sizes.splits, kernel, layout)
    }
}

fn fits(problem: &ConvProblem, sizes: &Sizes) -> bool {
    let shape = &problem.shape;
    let threads = sizes.threads();
    let last_split_has_work =
        u64::from(sizes.split_c(shape.c)) * u64::from(sizes.splits - 1) < u64::from(shape.c);
    (32..=256).contains(&threads)
        && threads.is_multiple_of(32)
        && last_split_has_work
        && u64::from(sizes.splits) * shape.output_len() <= MAX_ELEMENTS
        && layout(problem, sizes).len() as u64 <= MAX_ELEMENTS
        && shape.n.div_ceil(sizes.tile_n) <= MAX_GRID
}

/// `[O/TN][I padded to TK][O%TN]`: the weight tile of one step is one run of memory.
fn layout(problem: &ConvProblem, sizes: &Sizes) -> WeightLayout {
    let shape = &problem.shape;
    let dim = |axis, count, step| LayoutDim { axis, count, step };
    WeightLayout {
        source: problem.shape.weight(),
        dims: vec![
            dim(Axis::O, shape.n.div_ceil(sizes.tile_n), sizes.tile_n),
            dim(Axis::I, shape.c.next_multiple_of(sizes.tile_k), 1),
            dim(Axis::O, sizes.tile_n, 1),
        ]
        .into(),
        filter: Filter::Taps,
        transform: Transform::None,
        prologue_channels: Problem::Conv(*problem).affine_channels(),
    }
}

fn main_kernel(problem: &ConvProblem, sizes: &Sizes, layout: &WeightLayout) -> KernelBlueprint {
    let shape = &problem.shape;
    let pixels = shape.out_h() * shape.out_w();
    let threads = sizes.threads();
    let split = sizes.splits > 1;
    let split_c = sizes.split_c(shape.c);
    let padded_c = shape.c.next_multiple_of(sizes.tile_k);
    let pixel_tiles = pixels.div_ceil(sizes.tile_p);
    let context = context(&Context {
        c: shape.c,
        h: shape.h,
        w: shape.w,
        n: shape.n,
        out_w: shape.out_w(),
        pixels,
        stride_h: shape.stride[0],
        stride_w: shape.stride[1],
        strided: shape.stride != [1, 1],
        tile_n: sizes.tile_n,
        tile_p: sizes.tile_p,
        tile_k: sizes.tile_k,
        reg_n: sizes.reg_n,
        reg_p: sizes.reg_p,
        threads,
        threads_p: sizes.tile_p / sizes.reg_p,
        pixel_tiles,
        weight_vectors: sizes.tile_k * sizes.tile_n / 4,
        input_elements: sizes.tile_k * sizes.tile_p,
        padded_c,
        split_c: if split { split_c } else { 0 },
        checks_pixel: !pixels.is_multiple_of(sizes.tile_p),
        checks_n: !shape.n.is_multiple_of(sizes.tile_n),
        checks_c: !shape.c.is_multiple_of(sizes.tile_k),
        checks_split: !padded_c.is_multiple_of(split_c),
        ends: ConvEnds::new(problem, layout, split),
    });
    let grid = [
        pixel_tiles * shape.batch,
        shape.n.div_ceil(sizes.tile_n),
        sizes.splits,
    ];
    let blocks = grid.iter().map(|&size| u64::from(size)).product::<u64>();
    let tile_flops =
        2.0 * f64::from(sizes.tile_n) * f64::from(sizes.tile_p) * f64::from(split_c.min(padded_c));
    let steps = f64::from(split_c.min(padded_c) / sizes.tile_k);
    let fmas = f64::from(sizes.reg_n * sizes.reg_p);
    KernelBlueprint {
        role: convolution::role(split),
        template: "kernel/pointwise.cu",
        context,
        grid,
        block: [threads, 1, 1],
        cluster: [1; 3],
        shared_bytes: 0,
        overlaps: true,
        device: &[DevicePart::Overlap],
        args: convolution::args(problem, split),
        work: KernelWork {
            blocks,
            threads,
            registers: 56 + sizes.reg_n * sizes.reg_p,
            shared_bytes: 4 * sizes.tile_k * (sizes.tile_n + sizes.tile_p),
            flops: tile_flops * blocks as f64,
            // Shared loads beside the multiply-adds: vectors of weights, single pixels.
            fma_share: fmas / (fmas + 2.0 * f64::from(sizes.reg_n / 4 + sizes.reg_p)),
            l2_bytes: 4.0
                * f64::from(sizes.tile_n + sizes.tile_p)
                * f64::from(split_c.min(padded_c))
                * blocks as f64,
            dram_bytes: Problem::Conv(*problem).bytes() as f64,
            // Each step loads a tile behind a barrier.
            trips: 1.0 + 1.3 * steps,
            alternates: true,
            ..KernelWork::default()
        },
    }
}
