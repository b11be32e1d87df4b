//! `stride_fixed`: the stride-fixed block method for convolutions of several channels (stride-fixed paper, section 3.2).
//!
//! A block computes M' filters on W'x pixels. A round works on one segment of each filter: S bytes, S/4 taps one behind the other in
//! the order channel, row, column, whatever channel they begin and end in. With it come the lines of the map that the segment's
//! taps read, W'y of them, each one channel's one row of the filter. The next segment and its lines are prefetched while one is
//! computed. Since S is fixed, and small, M' can be large: many products for each value that is loaded, `S/4 M' W'x` a round,
//! which should be N_FMA or more (step 3). Published are S of 32 or 64 bytes, M' = 64 and W'x = 128, with 512 threads of one pixel
//! and 16 filters each: tile `n64h1w128sb32rn16rp1`.
//!
//! What the text leaves open or prints wrongly, and what is done here:
//!
//! - W'y = ceil(S / 4K) (step 4) holds for segments that begin with a line. One that begins within a line can reach one line more;
//!   there is room for it, and a line that two segments share is fetched for both.
//! - Step 4 counts the pixels W'y W'x without their 4 bytes.
//! - W'x pixels may lie in several rows, h of w, or a small image would leave most of a block idle.
//! - Filters are packed so that the segments of M' filters are one run of memory. In the original's order each segment is a
//!   transaction of its own, which is what bounds S from below by 32 bytes.

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
    /// Threads along the pixels: a thread's pixels lie so far apart.
    threads_p: u32,
    min_blocks: u32,
    tiles_w: u32,
    tiles: u32,
    /// Taps of a segment, of a filter, and rounds.
    segment_taps: u32,
    taps: u32,
    rounds: u32,
    /// Lines of a round, and values of each: tile rows of so many columns.
    lines: u32,
    columns: u32,
    /// From one buffer of them to the next.
    map_stride: u32,
    x_vector: u32,
    /// Whether every segment begins with a line, and no two share one.
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

/// A tile's numbers with what follows from them.
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
    /// `None` where the numbers do not fit each other or the problem.
    fn new(problem: &ConvProblem, tile: StrideFixedTile, gpu: &Gpu) -> Option<Self> {
        let StrideFixedTile {
            tn,
            th,
            tw,
            segment_bytes,
            rn,
            rp,
        } = tile;
        // Each number by itself first: a config may name any.
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
        // At most 64 lines of 256 rows and 2^13 columns: far from overflow.
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

    /// Of a supported tile.
    fn of_supported(problem: &ConvProblem, tile: &Tile, gpu: &Gpu) -> Self {
        Self::from_tile(problem, tile, gpu).expect("a supported tile")
    }
}

/// Lines of a filter of so many columns that a segment can touch: W'y, for segments that begin anywhere in a line.
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

/// Whether the scheme can compute a problem: what is staged is not changed on its way.
fn supports_problem(problem: &ConvProblem) -> bool {
    supports_tiling(problem) && problem.prologue.is_none()
}

/// `[O/M'][I][R][S][O%M']`: the taps of M' filters one behind the other.
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
            // Beside the multiply-adds of a tap: reads of shared memory, and where the next tap lies.
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
        // 1x1: a line a tap. 3x3 and 32 bytes: taps 8..16 begin at the last column of a line.
        assert_eq!(lines(8, 1), 8);
        assert_eq!(lines(8, 3), 4);
        assert_eq!(lines(16, 3), 6);
        assert_eq!(lines(8, 5), 3);
        assert_eq!(lines(8, 8), 1);
        assert_eq!(lines(16, 7), 4);
    }
}
