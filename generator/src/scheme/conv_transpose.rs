//! `conv_transpose`: one thread computes one output pixel of several output channels of a transposed convolution: the sum over the taps that
//! reach it from a pixel of the input.
//!
//! All threads of a block have the same output channels, so that those with the same taps read the same weights.

use super::info::SchemeInfo;
use super::{
    Blueprint, DevicePart, KernelBlueprint, MAX_GRID, Scheme, Tile, TileField, activation_function,
    batch_stride_args, candidates_up_to, context, tile_numbers,
};
use crate::cost::KernelWork;
use crate::gpu::Gpu;
use crate::ir::{ConvTransposeProblem, MAX_ELEMENTS, Problem};
use serde::Serialize;
use tdc_runtime::{Arg, Axis, Filter, LayoutDim, Transform, WeightLayout};

/// See the [module](self).
pub struct ConvTranspose;

tile_numbers! {
    /// A tile of the [module](self)'s scheme.
    struct ConvTransposeTile {
        /// Output pixels of a block, one a thread.
        tp: "p",
        /// Output channels of a thread.
        rn: "rn",
    }
}

#[derive(Serialize)]
struct ConvTransposeContext {
    /// Input channels of a group.
    c: u32,
    h: u32,
    w: u32,
    n: u32,
    out_w: u32,
    pixels: u64,
    r: u32,
    s: u32,
    stride_h: u32,
    stride_w: u32,
    pad_top: u32,
    pad_left: u32,
    dilation_h: u32,
    dilation_w: u32,
    /// Output channels of a group; 0 if there is only one group.
    n_per_group: u32,
    tp: u32,
    rn: u32,
    threads: u32,
    pixel_tiles: u32,
    batched: bool,
    checks_pixel: bool,
    checks_n: bool,
    bias: bool,
    activation: Option<String>,
}

impl Scheme for ConvTranspose {
    fn name(&self) -> &'static str {
        "conv_transpose"
    }

    fn info(&self) -> SchemeInfo {
        SchemeInfo::own("transposed convolutions")
    }

    fn tile_fields(&self) -> &'static [TileField] {
        ConvTransposeTile::FIELDS
    }

    fn tiles(&self, problem: &Problem, _gpu: &Gpu) -> Vec<Tile> {
        let Problem::ConvTranspose(p) = problem else {
            return Vec::new();
        };
        let pixels = u32::try_from(problem.y().pixels()).unwrap_or(u32::MAX);
        let n_per_group = p.shape.n / p.shape.groups;
        let mut tiles = Vec::new();
        for tp in candidates_up_to(pixels, &[32, 64, 128, 256]) {
            for rn in candidates_up_to(n_per_group, &[1, 2, 4, 8]) {
                // A thread's channels stay within one group.
                let is_whole = p.shape.groups == 1 || n_per_group.is_multiple_of(rn);
                let fits = p.shape.n.div_ceil(rn) <= MAX_GRID
                    && layout(p, rn).len() as u64 <= MAX_ELEMENTS;
                if is_whole && fits {
                    tiles.push(ConvTransposeTile { tp, rn }.into());
                }
            }
        }
        tiles
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile, _gpu: &Gpu) -> Blueprint {
        let Problem::ConvTranspose(p) = problem else {
            unreachable!("conv_transpose has tiles for transposed convolutions only");
        };
        let ConvTransposeTile { tp, rn } =
            ConvTransposeTile::from_tile(tile).expect("a supported tile");
        let (shape, y) = (&p.shape, problem.y());
        let c = shape.c / shape.groups;
        let pixels = y.pixels();
        let pixel_tiles = pixels.div_ceil(u64::from(tp)) as u32;
        let mut args = vec![Arg::X, Arg::Packed];
        args.extend(p.epilogue.bias.then_some(Arg::Bias));
        args.push(Arg::Y);
        args.extend(batch_stride_args(shape.batch, false));
        let grid = [pixel_tiles * shape.batch, shape.n.div_ceil(rn), 1];
        Blueprint {
            kernels: vec![KernelBlueprint {
                role: "kernel",
                template: "kernel/conv_transpose.cu",
                context: context(&ConvTransposeContext {
                    c,
                    h: shape.h,
                    w: shape.w,
                    n: shape.n,
                    out_w: y.w,
                    pixels,
                    r: shape.r,
                    s: shape.s,
                    stride_h: shape.stride[0],
                    stride_w: shape.stride[1],
                    pad_top: shape.padding.top,
                    pad_left: shape.padding.left,
                    dilation_h: shape.dilation[0],
                    dilation_w: shape.dilation[1],
                    n_per_group: match shape.groups {
                        1 => 0,
                        groups => shape.n / groups,
                    },
                    tp,
                    rn,
                    threads: tp,
                    pixel_tiles,
                    batched: shape.batch > 1,
                    checks_pixel: !pixels.is_multiple_of(u64::from(tp)),
                    checks_n: !shape.n.is_multiple_of(rn),
                    bias: p.epilogue.bias,
                    activation: activation_function(p.epilogue.activation),
                }),
                grid,
                block: [tp, 1, 1],
                cluster: [1; 3],
                shared_bytes: 0,
                pdl: true,
                device: &[DevicePart::Pdl],
                args,
                work: work(p, tp, rn, grid),
            }],
            zeroed: None,
            workspace_bytes: 0,
            weights: layout(p, rn),
            extra_weight_layouts: Vec::new(),
        }
    }
}

/// `[O/RN][R][S][I][O%RN]`: a thread reads the weights of a tap one after the other.
fn layout(problem: &ConvTransposeProblem, rn: u32) -> WeightLayout {
    let shape = &problem.shape;
    let dim = |axis, count, step| LayoutDim { axis, count, step };
    WeightLayout {
        source: shape.weight(),
        dims: vec![
            dim(Axis::O, shape.n.div_ceil(rn), rn),
            dim(Axis::R, shape.r, 1),
            dim(Axis::S, shape.s, 1),
            dim(Axis::I, shape.c / shape.groups, 1),
            dim(Axis::O, rn, 1),
        ]
        .into(),
        filter: Filter::Taps,
        transform: Transform::None,
        prologue_channels: 0,
    }
}

/// Work of the launch, for the cost model.
fn work(problem: &ConvTransposeProblem, tp: u32, rn: u32, grid: [u32; 3]) -> KernelWork {
    let shape = &problem.shape;
    let blocks = u64::from(grid[0]) * u64::from(grid[1]);
    let c = f64::from(shape.c / shape.groups);
    // Of the taps each `stride`-th reaches a pixel, but the others in a row of threads do so as well.
    let rows = f64::from(shape.r.div_ceil(shape.stride[0]));
    let steps = rows * f64::from(shape.s) * c;
    let products = steps * f64::from(rn);
    let loads = 1.0 + (f64::from(rn) / 4.0).ceil();
    let threads = f64::from(tp);
    KernelWork {
        blocks,
        threads: tp,
        registers: 40 + 2 * rn,
        shared_bytes: 0,
        flops: 2.0 * products * threads * blocks as f64,
        fma_fraction: products / (steps * (f64::from(rn) + 2.0 * loads + 1.0)),
        l2_bytes: 4.0 * (products + threads * c) * blocks as f64,
        dram_bytes: Problem::ConvTranspose(*problem).bytes() as f64,
        l2_round_trips: 2.0 + steps / 8.0,
        unpipelined: true,
        ..KernelWork::default()
    }
}
