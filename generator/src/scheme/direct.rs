//! `direct`: one thread computes one output pixel of several output channels, directly from the definition of a convolution.
//!
//! It is the fallback for every convolution: any filter, stride, dilation, padding, groups and batch. Adjacent threads read
//! adjacent pixels. All threads of a warp read the same weights, those of a tile of output channels. If the output is too small
//! to fill a GPU, the input channels are split over blocks, and a second launch adds the partial sums in a fixed order.

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
use tdc_runtime::{Axis, ConvShape, Filter, LayoutDim, Padding, Transform, WeightLayout};

/// See the [module](self).
pub struct Direct;

tile_numbers! {
    /// A tile of the [module](self)'s scheme.
    struct DirectTile {
        /// Output pixels of a block, one a thread.
        tp: "p",
        /// Output channels of a thread.
        rn: "rn",
        /// Threads along the output channels.
        threads_n: "xn",
        /// Split-K over the grid: partial sums in the workspace, added by a second kernel.
        splits: "sk",
    }
}

/// Maximum number of multiply-adds to which the two filter loops are unrolled.
const MAX_UNROLLED: u32 = 1024;

#[derive(Serialize)]
struct DirectContext {
    c: u32,
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
    pad_left: u32,
    dilation_h: u32,
    dilation_w: u32,
    /// Output channels of a group; 0 if there is only one group.
    n_per_group: u32,
    tp: u32,
    rn: u32,
    threads_n: u32,
    tiles: u32,
    pixel_tiles: u32,
    checks_pixel: bool,
    checks_tile: bool,
    checks_n: bool,
    checks_border: bool,
    unrolls: bool,
    /// Input channels of a split; 0 if they are not split.
    split_c: u32,
    checks_split: bool,
    #[serde(flatten)]
    fused_ops: FusedOpsContext,
}

impl Scheme for Direct {
    fn name(&self) -> &'static str {
        "direct"
    }

    fn info(&self) -> SchemeInfo {
        SchemeInfo::own("all convolutions with ordered sums")
    }

    fn tile_fields(&self) -> &'static [TileField] {
        DirectTile::FIELDS
    }

    fn tiles(&self, problem: &Problem, _gpu: &Gpu) -> Vec<Tile> {
        let Some(problem) = problem.nchw_conv() else {
            return Vec::new();
        };
        if problem.reduce != Reduce::Ordered {
            return Vec::new();
        }
        let shape = &problem.shape;
        let c = shape.c / shape.groups;
        let n_per_group = shape.n / shape.groups;
        let pixels = shape.out_h() * shape.out_w();
        let mut tiles = Vec::new();
        for tp in candidates_up_to(pixels, &[32, 64, 128]) {
            for rn in candidates_up_to(n_per_group, &[1, 2, 4, 8, 16]) {
                // A thread's channels stay within one group.
                if shape.groups > 1 && !n_per_group.is_multiple_of(rn) {
                    continue;
                }
                let channel_tiles = shape.n.div_ceil(rn);
                for threads_n in candidates_up_to(channel_tiles, &[1, 2, 4, 8]) {
                    if tp * threads_n > 256 || channel_tiles.div_ceil(threads_n) > MAX_GRID {
                        continue;
                    }
                    for splits in candidates_up_to(c, &SPLIT_COUNTS) {
                        let splits = splits.min(c);
                        // The last split must not be empty.
                        if c.div_ceil(splits) * (splits - 1) >= c {
                            continue;
                        }
                        let partials = u64::from(splits) * shape.output_len();
                        let packed = layout(problem, rn).len() as u64;
                        if partials <= MAX_ELEMENTS && packed <= MAX_ELEMENTS {
                            let tile = DirectTile {
                                tp,
                                rn,
                                threads_n,
                                splits,
                            };
                            tiles.push(tile.into());
                        }
                    }
                }
            }
        }
        tiles.dedup();
        tiles
    }

    fn work(&self, problem: &Problem, tile: &Tile, _gpu: &Gpu) -> UnitWork {
        let problem = convolution::expect_conv(problem);
        let sizes = DirectTile::from_tile(tile).expect("a supported tile");
        convolution::unit_work(problem, sizes.splits, work(problem, &sizes))
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile, _gpu: &Gpu) -> Blueprint {
        let problem = convolution::expect_conv(problem);
        let sizes = DirectTile::from_tile(tile).expect("a supported tile");
        let layout = layout(problem, sizes.rn);
        let kernel = main_kernel(problem, &sizes, &layout);
        convolution::blueprint(problem, sizes.splits, kernel, layout)
    }
}

/// `[O/RN][I][R][S][O%RN]`: the weights that a thread reads for one tap are contiguous.
fn layout(problem: &ConvProblem, rn: u32) -> WeightLayout {
    let shape = &problem.shape;
    let c = shape.c / shape.groups;
    let dim = |axis, count, step| LayoutDim { axis, count, step };
    WeightLayout {
        source: problem.shape.weight(),
        dims: vec![
            dim(Axis::O, shape.n.div_ceil(rn), rn),
            dim(Axis::I, c, 1),
            dim(Axis::R, shape.r, 1),
            dim(Axis::S, shape.s, 1),
            dim(Axis::O, rn, 1),
        ]
        .into(),
        filter: Filter::Taps,
        transform: Transform::None,
        prologue_channels: Problem::Conv(*problem).scale_shift_channels(),
    }
}

fn main_kernel(
    problem: &ConvProblem,
    sizes: &DirectTile,
    layout: &WeightLayout,
) -> KernelBlueprint {
    let shape = &problem.shape;
    let c = shape.c / shape.groups;
    let (out_h, out_w) = (shape.out_h(), shape.out_w());
    let pixels = out_h * out_w;
    let tiles = shape.n.div_ceil(sizes.rn);
    let splits = sizes.splits;
    let split_c = c.div_ceil(splits);
    let pixel_tiles = pixels.div_ceil(sizes.tp);
    let split = splits > 1;
    let taps = shape.r.saturating_mul(shape.s);
    let padding = shape.padding;
    let context = context(&DirectContext {
        c,
        h: shape.h,
        w: shape.w,
        n: shape.n,
        out_w,
        pixels,
        r: shape.r,
        s: shape.s,
        stride_h: shape.stride[0],
        stride_w: shape.stride[1],
        pad_top: padding.top,
        pad_left: padding.left,
        dilation_h: shape.dilation[0],
        dilation_w: shape.dilation[1],
        n_per_group: if shape.groups > 1 {
            shape.n / shape.groups
        } else {
            0
        },
        tp: sizes.tp,
        rn: sizes.rn,
        threads_n: sizes.threads_n,
        tiles,
        pixel_tiles,
        checks_pixel: !pixels.is_multiple_of(sizes.tp),
        checks_tile: !tiles.is_multiple_of(sizes.threads_n),
        checks_n: !shape.n.is_multiple_of(sizes.rn),
        checks_border: padding != Padding::default(),
        unrolls: taps.saturating_mul(sizes.rn) <= MAX_UNROLLED,
        split_c: if split { split_c } else { 0 },
        checks_split: !c.is_multiple_of(split_c),
        fused_ops: FusedOpsContext::new(problem, layout, split),
    });
    KernelBlueprint {
        role: convolution::role(split),
        template: "kernel/direct.cu",
        context,
        grid: grid(problem, sizes),
        block: [sizes.tp, sizes.threads_n, 1],
        cluster: [1; 3],
        shared_bytes: 0,
        pdl: true,
        device: &[DevicePart::Pdl],
        args: convolution::args(problem, split),
        work: work(problem, sizes),
    }
}

/// Blocks in each dimension: pixel tiles of all images, channel tiles, splits.
fn grid(problem: &ConvProblem, sizes: &DirectTile) -> [u32; 3] {
    let shape = &problem.shape;
    let pixels = shape.out_h() * shape.out_w();
    [
        pixels.div_ceil(sizes.tp) * shape.batch,
        shape.n.div_ceil(sizes.rn).div_ceil(sizes.threads_n),
        sizes.splits,
    ]
}

/// Additional cost of a tap's loads in a grouped convolution, in instructions. Fitted to 42 tiles of 14 problems on an H200: the root mean
/// square error is 32 %. With a stride a load reads more cache lines.
fn grouped_load_cost(shape: &ConvShape) -> f64 {
    match shape.groups {
        1 => 0.0,
        _ => 16.0 + 10.0 * f64::from(shape.stride[1].min(4) - 1),
    }
}

/// Work of the launch, for the cost model.
fn work(problem: &ConvProblem, sizes: &DirectTile) -> KernelWork {
    let shape = &problem.shape;
    let split_c = (shape.c / shape.groups).div_ceil(sizes.splits);
    let taps = shape.r.saturating_mul(shape.s);
    let grid = grid(problem, sizes);
    let blocks = grid.iter().map(|&size| u64::from(size)).product::<u64>();
    let threads = sizes.tp * sizes.threads_n;
    let macs_per_thread = f64::from(split_c) * f64::from(taps) * f64::from(sizes.rn);
    let loads_per_tap = 1.0 + (f64::from(sizes.rn) / 4.0).ceil();
    let tap_steps = f64::from(split_c) * f64::from(taps);
    // Loads and border checks are issued in addition to the multiply-adds; a load costs about two of them. Sums over a single
    // channel are so short that the instructions before and after the loop count.
    let outputs = f64::from(sizes.rn);
    let (fixed_instructions, stored_bytes) = match shape.c {
        1 => (100.0 + 12.0 * outputs, 4.0 * outputs * f64::from(threads)),
        _ => (0.0, 0.0),
    };
    let issue = tap_steps
        * (outputs + 2.0 * loads_per_tap + 3.0 + grouped_load_cost(&problem.shape))
        + fixed_instructions;
    let weight_bytes = macs_per_thread * f64::from(sizes.threads_n) * 4.0;
    let input_bytes = f64::from(sizes.tp)
        * (f64::from(shape.stride[0]) * f64::from(shape.stride[1])).min(f64::from(taps))
        * f64::from(split_c)
        * 4.0;
    KernelWork {
        blocks,
        threads,
        registers: 48 + 2 * sizes.rn,
        shared_bytes: 0,
        flops: 2.0 * macs_per_thread * f64::from(threads) * blocks as f64,
        fma_fraction: macs_per_thread / issue,
        l2_bytes: (weight_bytes + input_bytes + stored_bytes) * blocks as f64,
        dram_bytes: Problem::Conv(*problem).bytes() as f64,
        // Unrolled taps overlap their loads; about eight are in flight.
        l2_round_trips: 2.0 + tap_steps / 24.0,
        unpipelined: true,
        ..KernelWork::default()
    }
}
