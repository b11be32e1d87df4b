//! `cp_fused`: a CP layer in one launch as it was published (CP paper, Algorithm 2).
//!
//! A group of threads of a warp computes one pixel. Its threads stride over the input channels, `S_TILE` apart. For each channel a thread
//! sums the window times the two filters, a vector of `rank` values in registers, and adds it multiplied by the channel's row of the first
//! factor (lines 3 to 11). Every output channel is then an inner product of that vector with the channel's row of the last factor, summed
//! over the group (lines 12 to 19).
//!
//! No intermediate result is stored in memory, but the filters multiply every input channel: `S H W` products of vectors for a pixel,
//! compared with `S + H + W` if the channels are contracted first. [`cp_chain`](super::cp_chain) does that.

use super::convolution::{self, FusedOpsContext};
use super::cp::{self, factor_ranges, layouts, rank_pitch, supports_fused_cp};
use super::info::SchemeInfo;
use super::{
    Blueprint, DevicePart, KernelBlueprint, Scheme, Tile, TileField, candidates_up_to, context,
    tile_numbers,
};
use crate::cost::KernelWork;
use crate::gpu::{Gpu, MAX_REGISTERS};
use crate::ir::{CpProblem, Problem};
use serde::Serialize;
use tdc_runtime::WeightLayout;

/// See the [module](self).
pub struct CpFused;

tile_numbers! {
    /// A tile of the [module](self)'s scheme.
    struct CpFusedTile {
        /// Output rows of a block.
        th: "h",
        /// Output columns of a block.
        tw: "w",
        /// Threads that split the channel sum of one pixel (S_TILE of the paper).
        threads_k: "xk",
    }
}

#[derive(Serialize)]
struct CpFusedContext {
    c: u32,
    h: u32,
    w: u32,
    n: u32,
    out_h: u32,
    out_w: u32,
    r: u32,
    s: u32,
    stride_h: u32,
    stride_w: u32,
    pad_top: u32,
    pad_left: u32,
    dilation_h: u32,
    dilation_w: u32,
    rank: u32,
    rank_pitch: u32,
    th: u32,
    tw: u32,
    threads_k: u32,
    tiles: u32,
    tiles_w: u32,
    /// Whether the filter has few enough taps to unroll the loops over them.
    unrolls: bool,
    vertical_at: usize,
    horizontal_at: usize,
    last_at: usize,
    #[serde(flatten)]
    fused_ops: FusedOpsContext,
}

/// Tiles of an image, and of a row of tiles.
fn tiles(problem: &CpProblem, [th, tw]: [u32; 2]) -> [u32; 2] {
    let shape = &problem.conv.shape;
    let tiles_w = shape.out_w().div_ceil(tw);
    [shape.out_h().div_ceil(th) * tiles_w, tiles_w]
}

/// The work of a launch, for the cost model.
fn work(problem: &CpProblem, tile: &Tile) -> KernelWork {
    let CpFusedTile { th, tw, threads_k } = CpFusedTile::from_tile(tile).expect("a supported tile");
    let (shape, rank) = (&problem.conv.shape, problem.rank);
    let [all_tiles, _] = tiles(problem, [th, tw]);
    let blocks = u64::from(all_tiles) * u64::from(shape.batch);
    let threads = th * tw * threads_k;
    let (rank_f, taps) = (f64::from(rank), f64::from(shape.r * shape.s));
    let channels = f64::from(shape.c.div_ceil(threads_k));
    // Instructions of a thread: a tap has a load and two products of vectors; an output has one product and the reduction over the group.
    let tap = 4.0 + 2.5 * rank_f;
    let output = 6.0 + 1.5 * rank_f + 3.0 * f64::from(threads_k.ilog2());
    let issue = channels * (taps * tap + rank_f) + f64::from(shape.n) * output;
    let input_size = shape.input_window([th, tw]).map(f64::from);
    let values = f64::from(shape.c) * input_size[0] * input_size[1] + f64::from(shape.n * th * tw);
    KernelWork {
        blocks,
        threads,
        registers: (2 * rank + 40).min(MAX_REGISTERS),
        flops: 2.0 * f64::from(threads) * blocks as f64 * issue,
        fma_fraction: 1.0,
        l2_bytes: 4.0 * blocks as f64 * values,
        dram_bytes: Problem::Cp(*problem).bytes() as f64,
        l2_round_trips: 2.0 + channels * f64::from(shape.r),
        pdl: true,
        ..KernelWork::default()
    }
}

impl Scheme for CpFused {
    fn name(&self) -> &'static str {
        "cp_fused"
    }

    fn info(&self) -> SchemeInfo {
        SchemeInfo {
            fuses_factors: true,
            ..SchemeInfo::published("CP paper, Algorithm 2", "CP layers of rank 32 at most")
        }
    }

    fn tile_fields(&self) -> &'static [TileField] {
        CpFusedTile::FIELDS
    }

    fn tiles(&self, problem: &Problem, _gpu: &Gpu) -> Vec<Tile> {
        let Problem::Cp(problem) = problem else {
            return Vec::new();
        };
        let shape = &problem.conv.shape;
        if !supports_fused_cp(problem) {
            return Vec::new();
        }
        let mut found = Vec::new();
        for th in candidates_up_to(shape.out_h(), &[1, 2, 4, 8, 16]) {
            for tw in candidates_up_to(shape.out_w(), &[4, 8, 16, 32]) {
                for threads_k in candidates_up_to(shape.c, &[1, 2, 4, 8, 16, 32]) {
                    let threads = th * tw * threads_k;
                    // Complete warps, so that all lanes take part in the shuffles of the reduction.
                    if threads.is_multiple_of(32) && threads <= 512 {
                        found.push(CpFusedTile { th, tw, threads_k }.into());
                    }
                }
            }
        }
        found
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile, _gpu: &Gpu) -> Blueprint {
        let problem = cp::expect_cp(problem);
        let layouts = layouts(problem, problem.conv.shape.n);
        let kernel = kernel(problem, tile, &layouts);
        let [first, others @ ..] = layouts;
        Blueprint {
            extra_weight_layouts: others.to_vec(),
            ..convolution::blueprint(&problem.conv, 1, kernel, first)
        }
    }
}

fn kernel(problem: &CpProblem, tile: &Tile, layouts: &[WeightLayout; 4]) -> KernelBlueprint {
    let CpFusedTile { th, tw, threads_k } = CpFusedTile::from_tile(tile).expect("a supported tile");
    let shape = &problem.conv.shape;
    let [tiles, tiles_w] = tiles(problem, [th, tw]);
    let [_, vertical, horizontal, last] = factor_ranges(layouts);
    KernelBlueprint {
        role: convolution::role(false),
        template: "kernel/cp_fused.cu",
        context: context(&CpFusedContext {
            c: shape.c,
            h: shape.h,
            w: shape.w,
            n: shape.n,
            out_h: shape.out_h(),
            out_w: shape.out_w(),
            r: shape.r,
            s: shape.s,
            stride_h: shape.stride[0],
            stride_w: shape.stride[1],
            pad_top: shape.padding.top,
            pad_left: shape.padding.left,
            dilation_h: shape.dilation[0],
            dilation_w: shape.dilation[1],
            rank: problem.rank,
            rank_pitch: rank_pitch(problem.rank),
            th,
            tw,
            threads_k,
            tiles,
            tiles_w,
            unrolls: shape.r * shape.s * problem.rank <= 256,
            vertical_at: vertical[0],
            horizontal_at: horizontal[0],
            last_at: last[0],
            fused_ops: FusedOpsContext::new(&problem.conv, &layouts[0], false),
        }),
        grid: [tiles, shape.batch, 1],
        block: [th * tw * threads_k, 1, 1],
        cluster: [1; 3],
        shared_bytes: 0,
        pdl: true,
        device: &[DevicePart::Pdl],
        args: convolution::args(&problem.conv, false),
        work: work(problem, tile),
    }
}
