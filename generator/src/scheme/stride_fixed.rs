//! `stride_fixed`: the stride-fixed block method for convolutions of several channels (stride-fixed paper, section 3.2).
//!
//! A block computes M' filters on W'x pixels. A round processes one segment of each filter: S bytes, which are S/4 consecutive taps in the
//! order channel, row, column; segments can start and end within a channel. A round also loads the lines of the input map that the
//! segment's taps read. There are W'y of them, each for one row of the filter in one channel. The next segment and its lines are prefetched
//! while one is computed. Since S is fixed and small, M' can be large. That gives many products for each value that is loaded: `S/4 M' W'x`
//! in a round, which should be N_FMA or more (step 3). The published tile has S of 32 or 64 bytes, M' = 64 and W'x = 128, with 512 threads
//! of one pixel and 16 filters each: `n64h1w128sb32rn16rp1`.
//!
//! Gaps and errors of the text, and their treatment here:
//!
//! - W'y = ceil(S / 4K) (step 4) is correct for segments that start with a line. A segment that starts within a line can need one line
//!   more. The buffers have space for it, and a line that two segments share is loaded for both.
//! - Step 4 counts the pixels W'y W'x without the factor of 4 bytes.
//! - The W'x pixels may be in several rows, h rows of w pixels. Otherwise a small image would leave most of a block idle.
//! - Filters are packed so that the segments of M' filters are contiguous in memory. In the original's order each segment is a separate
//!   memory transaction, which is the reason for its lower bound of 32 bytes for S.

use super::convolution::{self, FusedOpsContext};
use super::info::{PublishedTiles, SchemeInfo};
use super::tiling::{supports_tiling, vector_type};
use super::{
    Blueprint, DevicePart, KernelBlueprint, MAX_GRID, Scheme, Tile, TileField,
    blocks_per_sm_by_registers, candidates_up_to, context, tile_numbers,
};
use crate::cost::KernelWork;
use crate::gpu::Gpu;
use crate::ir::{ConvProblem, MAX_ELEMENTS, Problem};
use serde::Serialize;
use tdc_runtime::{Axis, Filter, LayoutDim, Padding, Transform, WeightLayout};

/// See the [module](self).
pub struct StrideFixed;

tile_numbers! {
    /// A tile of the [module](self)'s scheme.
    struct StrideFixedTile {
        /// Output channels of a block (M' of the paper).
        tn: "n",
        /// Output rows of a block.
        th: "h",
        /// Output columns of a block (W'x of the paper is th x tw).
        tw: "w",
        /// Bytes of one segment of a filter (S of the paper).
        segment_bytes: "sb",
        /// Output channels of a thread.
        rn: "rn",
        /// Pixels of a thread.
        rp: "rp",
    }
}

#[derive(Serialize)]
struct StrideFixedContext {
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
    tn: u32,
    th: u32,
    tw: u32,
    rn: u32,
    rp: u32,
    threads: u32,
    /// Threads along the pixels, which is also the distance of a thread's pixels.
    threads_p: u32,
    min_blocks: u32,
    tiles_w: u32,
    tiles: u32,
    /// Taps of a segment, taps of a filter, and the number of rounds.
    segment_taps: u32,
    taps: u32,
    rounds: u32,
    /// Lines of a round, each with `columns` values in every row of the tile.
    lines: u32,
    columns: u32,
    /// Distance from one buffer of the lines to the next.
    map_stride: u32,
    x_vector: u32,
    /// Whether every segment starts with a line, so that no two segments share one.
    aligned: bool,
    weight_vector: u32,
    weight_type: &'static str,
    checks_n: bool,
    checks_taps: bool,
    checks_h: bool,
    checks_w: bool,
    checks_border: bool,
    #[serde(flatten)]
    fused_ops: FusedOpsContext,
}

/// A tile with the sizes that follow from it.
struct StrideFixedGeometry {
    tile: StrideFixedTile,
    /// Taps of a segment.
    segment_taps: u32,
    threads: u32,
    lines: u32,
    columns: u32,
    map_stride: u32,
    vector_x: bool,
    shared_bytes: u32,
}

impl StrideFixedGeometry {
    /// `None` if the tile is not valid, or not for this problem.
    fn new(problem: &ConvProblem, tile: StrideFixedTile, gpu: &Gpu) -> Option<Self> {
        let StrideFixedTile {
            tn,
            th,
            tw,
            segment_bytes,
            rn,
            rp,
        } = tile;
        // Bounds first, because a config can contain any number.
        if tile
            .numbers()
            .iter()
            .any(|number| !(1..=256).contains(number))
            || !segment_bytes.is_multiple_of(16)
            || rn * rp > 128
            || !tn.is_multiple_of(rn.max(4))
            || !(th * tw).is_multiple_of(rp)
        {
            return None;
        }
        let shape = &problem.shape;
        let segment_taps = segment_bytes / 4;
        let threads = tn / rn * (th * tw / rp);
        let [_, columns] = shape.input_window([1, tw]);
        let vector_x = shape.batch == 1
            && shape.w.is_multiple_of(4)
            && (tw * shape.stride[1]).is_multiple_of(4)
            && shape.padding.left == 0;
        let columns = columns.next_multiple_of(if vector_x { 4 } else { 1 });
        let lines = lines(segment_taps, shape.s);
        // At most 64 lines of 256 rows and 2^13 columns, which is far from overflow.
        let map_stride = (lines * th * columns).next_multiple_of(4);
        let shared_bytes = 2 * 4 * (map_stride + segment_taps * tn);
        let taps = u64::from(shape.c) * u64::from(shape.r * shape.s);
        let packed = taps * u64::from(shape.n.next_multiple_of(tn));
        let tiles_h = u64::from(shape.out_h().div_ceil(th));
        let blocks = tiles_h * u64::from(shape.out_w().div_ceil(tw)) * u64::from(shape.batch);
        let fits = (32..=512).contains(&threads)
            && threads.is_multiple_of(32)
            && shared_bytes <= gpu.shared_per_block
            && packed <= MAX_ELEMENTS
            && blocks <= MAX_ELEMENTS
            && shape.n.div_ceil(tn) <= MAX_GRID;
        fits.then_some(Self {
            tile,
            segment_taps,
            threads,
            lines,
            columns,
            map_stride,
            vector_x,
            shared_bytes,
        })
    }

    fn from_tile(problem: &ConvProblem, tile: &Tile, gpu: &Gpu) -> Option<Self> {
        Self::new(problem, StrideFixedTile::from_tile(tile)?, gpu)
    }

    /// The geometry of a supported tile.
    fn of_supported(problem: &ConvProblem, tile: &Tile, gpu: &Gpu) -> Self {
        Self::from_tile(problem, tile, gpu).expect("a supported tile")
    }
}

/// Maximum number of lines of a filter with `columns` columns that a segment reads: W'y, for segments that start anywhere in a line.
fn lines(segment_taps: u32, columns: u32) -> u32 {
    let starts = (0..columns).map(|round| round * segment_taps % columns);
    let touched = starts.map(|start| (start + segment_taps).div_ceil(columns));
    touched.max().unwrap_or(1)
}

impl Scheme for StrideFixed {
    fn name(&self) -> &'static str {
        "stride_fixed"
    }

    fn info(&self) -> SchemeInfo {
        SchemeInfo {
            published_tiles: Some(PublishedTiles::StrideFixed),
            ..SchemeInfo::published(
                "stride-fixed paper, section 3.2",
                "convolutions of one group without prologue",
            )
        }
    }

    fn tile_fields(&self) -> &'static [TileField] {
        StrideFixedTile::FIELDS
    }

    fn tiles(&self, problem: &Problem, gpu: &Gpu) -> Vec<Tile> {
        let Some(problem) = problem.nchw_conv() else {
            return Vec::new();
        };
        if !supports_problem(problem) {
            return Vec::new();
        }
        let shape = &problem.shape;
        let mut tiles = Vec::new();
        for tn in candidates_up_to(shape.n, &[16, 32, 64, 128]) {
            for tw in candidates_up_to(shape.out_w(), &[8, 16, 32, 64, 128, 256]) {
                for th in candidates_up_to(shape.out_h(), &[1, 2, 4, 8, 16]) {
                    for segment_bytes in [32, 64] {
                        for rn in [4, 8, 16] {
                            for rp in [1, 2, 4, 8] {
                                let tile = StrideFixedTile {
                                    tn,
                                    th,
                                    tw,
                                    segment_bytes,
                                    rn,
                                    rp,
                                };
                                if StrideFixedGeometry::new(problem, tile, gpu).is_some() {
                                    tiles.push(tile.into());
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
        let Some(problem) = problem.nchw_conv() else {
            return false;
        };
        supports_problem(problem) && StrideFixedGeometry::from_tile(problem, tile, gpu).is_some()
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> Blueprint {
        let problem = convolution::expect_conv(problem);
        let sizes = StrideFixedGeometry::of_supported(problem, tile, gpu);
        let layout = layout(problem, &sizes);
        let kernel = kernel(problem, &sizes, &layout);
        convolution::blueprint(problem, 1, kernel, layout)
    }
}

/// Whether the scheme supports a problem. Staging is by asynchronous copies, so a prologue is not supported.
fn supports_problem(problem: &ConvProblem) -> bool {
    supports_tiling(problem) && problem.prologue.is_none()
}

/// `[O/M'][I][R][S][O%M']`: the taps of M' filters are consecutive.
fn layout(problem: &ConvProblem, sizes: &StrideFixedGeometry) -> WeightLayout {
    let shape = &problem.shape;
    let dim = |axis, count, step| LayoutDim { axis, count, step };
    WeightLayout {
        source: problem.shape.weight(),
        dims: vec![
            dim(Axis::O, shape.n.div_ceil(sizes.tile.tn), sizes.tile.tn),
            dim(Axis::I, shape.c, 1),
            dim(Axis::R, shape.r, 1),
            dim(Axis::S, shape.s, 1),
            dim(Axis::O, sizes.tile.tn, 1),
        ]
        .into(),
        filter: Filter::Taps,
        transform: Transform::None,
        prologue_channels: 0,
    }
}

fn kernel(
    problem: &ConvProblem,
    sizes: &StrideFixedGeometry,
    layout: &WeightLayout,
) -> KernelBlueprint {
    let shape = &problem.shape;
    let (out_h, out_w) = (shape.out_h(), shape.out_w());
    let (th, tw) = (sizes.tile.th, sizes.tile.tw);
    let tiles_w = out_w.div_ceil(tw);
    let tiles = out_h.div_ceil(th) * tiles_w;
    let taps = shape.c * shape.r * shape.s;
    let rounds = taps.div_ceil(sizes.segment_taps);
    let sums = sizes.tile.rn * sizes.tile.rp;
    let registers = sums + sizes.tile.rn + 2 * sizes.tile.rp + 28;
    let weight_vector = if sizes.tile.rn.is_multiple_of(4) {
        4
    } else {
        1
    };
    let grid = [tiles * shape.batch, shape.n.div_ceil(sizes.tile.tn), 1];
    let context = context(&StrideFixedContext {
        c: shape.c,
        h: shape.h,
        w: shape.w,
        n: shape.n,
        out_h,
        out_w,
        r: shape.r,
        s: shape.s,
        stride_h: shape.stride[0],
        stride_w: shape.stride[1],
        pad_top: shape.padding.top,
        pad_left: shape.padding.left,
        dilation_h: shape.dilation[0],
        dilation_w: shape.dilation[1],
        tn: sizes.tile.tn,
        th,
        tw,
        rn: sizes.tile.rn,
        rp: sizes.tile.rp,
        threads: sizes.threads,
        threads_p: th * tw / sizes.tile.rp,
        min_blocks: blocks_per_sm_by_registers(sizes.threads, registers),
        tiles_w,
        tiles,
        segment_taps: sizes.segment_taps,
        taps,
        rounds,
        lines: sizes.lines,
        columns: sizes.columns,
        map_stride: sizes.map_stride,
        x_vector: if sizes.vector_x { 4 } else { 1 },
        aligned: sizes.segment_taps.is_multiple_of(shape.s),
        weight_vector,
        weight_type: vector_type(weight_vector).0,
        checks_n: !shape.n.is_multiple_of(sizes.tile.tn),
        checks_taps: !taps.is_multiple_of(sizes.segment_taps),
        checks_h: !out_h.is_multiple_of(th),
        checks_w: !out_w.is_multiple_of(tw),
        checks_border: shape.padding != Padding::default()
            || !out_h.is_multiple_of(th)
            || !out_w.is_multiple_of(tw)
            || sizes.vector_x,
        fused_ops: FusedOpsContext::new(problem, layout, false),
    });
    let blocks = u64::from(grid[0]) * u64::from(grid[1]);
    let fmas = f64::from(sums);
    let outputs = f64::from(sizes.tile.tn * th * tw);
    let staged = f64::from(sizes.lines * th * sizes.columns + sizes.segment_taps * sizes.tile.tn);
    KernelBlueprint {
        role: convolution::role(false),
        template: "kernel/stride_fixed.cu",
        context,
        grid,
        block: [sizes.threads, 1, 1],
        cluster: [1; 3],
        shared_bytes: sizes.shared_bytes,
        pdl: true,
        device: &[
            DevicePart::DynamicShared,
            DevicePart::AsyncCopy,
            DevicePart::Pdl,
        ],
        args: convolution::args(problem, false),
        work: KernelWork {
            blocks,
            threads: sizes.threads,
            registers,
            shared_bytes: sizes.shared_bytes,
            flops: 2.0 * outputs * f64::from(rounds * sizes.segment_taps) * blocks as f64,
            // In addition to the multiply-adds of a tap: reads of shared memory, and the address of the next tap.
            fma_fraction: fmas
                / (fmas + 2.0 * f64::from(sizes.tile.rn.div_ceil(4) + sizes.tile.rp) + 4.0),
            l2_bytes: 4.0 * (staged * f64::from(rounds) + outputs) * blocks as f64,
            dram_bytes: Problem::Conv(*problem).bytes() as f64,
            l2_round_trips: 1.5 + 0.5 * f64::from(rounds),
            pdl: true,
            ..KernelWork::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_touches_a_line_more_where_it_begins_within_one() {
        // 1x1: each tap is a line. 3x3 and 32 bytes: taps 8..16 start at the last column of a line.
        assert_eq!(lines(8, 1), 8);
        assert_eq!(lines(8, 3), 4);
        assert_eq!(lines(16, 3), 6);
        assert_eq!(lines(8, 5), 3);
        assert_eq!(lines(8, 8), 1);
        assert_eq!(lines(16, 7), 4);
    }
}
