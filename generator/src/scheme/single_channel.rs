//! `single_channel`: convolutions of one input channel (stride-fixed paper, sections 2.2 and 3.1).
//!
//! The sizes of the input map and the filters decide which of them a block keeps on the chip. It processes the other one in pieces; the
//! next piece is prefetched while one is computed. There are two cases. Eqs. 4-6: a block keeps a slice of the filters and processes the
//! rows of the map in P pieces, each with the R - 1 additional rows that the filters read. Eqs. 7-9: a block keeps a slice of the rows and
//! processes the filters in Q pieces. The paper chooses `P`, `Q` and the slices by the equations of section 3.1, with two blocks of 512
//! threads on each SM; `tiles: paper` does the same (see [`plan`](crate::plan)). Such a tile can also be set explicitly.
//!
//! Extensions: any stride, padding, dilation and batch. Rows are those of the output. Filters are packed tap by tap, so that a piece of
//! them is contiguous in memory.

use super::convolution::{self, FusedOpsContext};
use super::info::{PublishedTiles, SchemeInfo};
use super::tiling::{supports_tiling, vector_type};
use super::{
    Blueprint, DevicePart, KernelBlueprint, MAX_GRID, Scheme, Tile, TileField,
    blocks_per_sm_by_registers, candidates_up_to, context, tile_numbers,
};
use crate::cost::KernelWork;
use crate::gpu::{Gpu, MAX_THREADS};
use crate::ir::{ConvProblem, MAX_ELEMENTS, Problem};
use serde::Serialize;
use tdc_runtime::{Axis, Filter, LayoutDim, Transform, WeightLayout};

/// See the [module](self).
pub struct SingleChannel;

tile_numbers! {
    /// A tile of the [module](self)'s scheme.
    struct SingleChannelTile {
        /// Output channels of a piece.
        tn: "n",
        /// Output rows of a piece.
        th: "h",
        /// Pieces of the map that a block goes through (P of the paper).
        map_pieces: "pm",
        /// Pieces of the filters (Q of the paper).
        filter_pieces: "pf",
        /// Output channels of a thread at once.
        rn: "rn",
        /// Pixels of a thread at once.
        rp: "rp",
        /// Threads of a block.
        threads: "t",
    }
}

#[derive(Serialize)]
struct SingleChannelContext {
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
    map_pieces: u32,
    filter_pieces: u32,
    pieces: u32,
    rn: u32,
    rp: u32,
    threads: u32,
    min_blocks: u32,
    /// Input rows that a piece reads, and staged columns of each row.
    rows: u32,
    columns: u32,
    /// Distance from one buffer of the map to the next.
    map_stride: u32,
    x_vector: u32,
    filter_values: u32,
    blocks_h: u32,
    /// Work of a thread in a piece: groups of pixels of a row, groups of pixels of a piece, and these times the groups of filters.
    pixel_groups_w: u32,
    pixel_groups: u32,
    items: u32,
    /// Distance of a thread's pixels. They are adjacent if they are stored as a vector; otherwise the pixels of adjacent threads are
    /// adjacent. `group_step` is the distance of adjacent threads.
    pixel_step: u32,
    group_step: u32,
    weight_vector: u32,
    weight_type: &'static str,
    y_vector: u32,
    y_type: &'static str,
    y_elements: &'static [&'static str],
    checks_n: bool,
    checks_h: bool,
    checks_w: bool,
    unroll: bool,
    #[serde(flatten)]
    fused_ops: FusedOpsContext,
}

/// A tile with the sizes that follow from it.
struct SingleChannelGeometry {
    tile: SingleChannelTile,
    rows: u32,
    columns: u32,
    map_stride: u32,
    vector_x: bool,
    shared_bytes: u32,
}

impl SingleChannelGeometry {
    /// `None` if the tile is not valid, or not for this problem.
    fn new(problem: &ConvProblem, tile: SingleChannelTile, gpu: &Gpu) -> Option<Self> {
        let SingleChannelTile {
            tn,
            th,
            map_pieces,
            filter_pieces,
            rn,
            rp,
            threads,
        } = tile;
        // Bounds first, because a config can contain any number.
        if tile
            .numbers()
            .iter()
            .any(|number| !(1..=4096).contains(number))
            || !(32..=MAX_THREADS).contains(&threads)
            || !threads.is_multiple_of(32)
            || rn * rp > 64
            || !tn.is_multiple_of(rn.max(4))
            || (map_pieces > 1 && filter_pieces > 1)
        {
            return None;
        }
        let shape = &problem.shape;
        // Every piece must have work; the last one can have less than the others.
        if u64::from(th) * u64::from(map_pieces - 1) >= u64::from(shape.out_h())
            || u64::from(tn) * u64::from(filter_pieces - 1) >= u64::from(shape.n)
        {
            return None;
        }
        let [rows, columns] = shape.input_window([th, shape.out_w()]);
        let vector_x = shape.batch == 1 && shape.w.is_multiple_of(4) && shape.padding.left == 0;
        let columns = u64::from(columns).next_multiple_of(if vector_x { 4 } else { 1 });
        let map_buffers = map_pieces.min(2);
        let filter_buffers = filter_pieces.min(2);
        let map = (u64::from(rows) * columns).next_multiple_of(4);
        let filters = u64::from(shape.r * shape.s) * u64::from(tn);
        let shared = 4 * (u64::from(map_buffers) * map + u64::from(filter_buffers) * filters);
        let blocks_n = shape.n.div_ceil(tn * filter_pieces);
        let packed = u64::from(blocks_n) * u64::from(filter_pieces) * filters;
        let items = u64::from(tn) * u64::from(th) * u64::from(shape.out_w());
        let fits = shared <= u64::from(gpu.shared_per_block)
            && blocks_n <= MAX_GRID
            && packed.max(items) <= MAX_ELEMENTS;
        fits.then_some(Self {
            tile,
            rows,
            columns: columns as u32,
            map_stride: map as u32,
            vector_x,
            shared_bytes: shared as u32,
        })
    }

    fn from_tile(problem: &ConvProblem, tile: &Tile, gpu: &Gpu) -> Option<Self> {
        Self::new(problem, SingleChannelTile::from_tile(tile)?, gpu)
    }

    /// The geometry of a supported tile.
    fn of_supported(problem: &ConvProblem, tile: &Tile, gpu: &Gpu) -> Self {
        Self::from_tile(problem, tile, gpu).expect("a supported tile")
    }

    fn blocks_n(&self, problem: &ConvProblem) -> u32 {
        problem
            .shape
            .n
            .div_ceil(self.tile.tn * self.tile.filter_pieces)
    }

    fn blocks_h(&self, problem: &ConvProblem) -> u32 {
        problem
            .shape
            .out_h()
            .div_ceil(self.tile.th * self.tile.map_pieces)
    }
}

impl Scheme for SingleChannel {
    fn name(&self) -> &'static str {
        "single_channel"
    }

    fn info(&self) -> SchemeInfo {
        SchemeInfo {
            published_tiles: Some(PublishedTiles::SingleChannel),
            ..SchemeInfo::published(
                "stride-fixed paper, section 3.1",
                "convolutions of one input channel without prologue",
            )
        }
    }

    fn tile_fields(&self) -> &'static [TileField] {
        SingleChannelTile::FIELDS
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
        for tn in candidates_up_to(shape.n, &[4, 8, 16, 32, 64]) {
            for th in candidates_up_to(shape.out_h(), &[1, 2, 4, 8, 16]) {
                for [map_pieces, filter_pieces] in [[1, 1], [2, 1], [4, 1], [1, 2], [1, 4]] {
                    for [rn, rp] in [[1, 4], [4, 1], [4, 4], [8, 4]] {
                        for threads in [128, 256, 512] {
                            let tile = SingleChannelTile {
                                tn,
                                th,
                                map_pieces,
                                filter_pieces,
                                rn,
                                rp,
                                threads,
                            };
                            if SingleChannelGeometry::new(problem, tile, gpu).is_some() {
                                tiles.push(tile.into());
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
        supports_problem(problem) && SingleChannelGeometry::from_tile(problem, tile, gpu).is_some()
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> Blueprint {
        let problem = convolution::expect_conv(problem);
        let sizes = SingleChannelGeometry::of_supported(problem, tile, gpu);
        let layout = layout(problem, &sizes);
        let kernel = kernel(problem, &sizes, &layout);
        convolution::blueprint(problem, 1, kernel, layout)
    }
}

/// Whether the scheme supports a problem. Staging is by asynchronous copies, so a prologue is not supported.
fn supports_problem(problem: &ConvProblem) -> bool {
    supports_tiling(problem) && problem.shape.c == 1 && problem.prologue.is_none()
}

/// `[O/TN][R][S][O%TN]`: the filters of a piece are contiguous.
fn layout(problem: &ConvProblem, sizes: &SingleChannelGeometry) -> WeightLayout {
    let shape = &problem.shape;
    let dim = |axis, count, step| LayoutDim { axis, count, step };
    WeightLayout {
        source: problem.shape.weight(),
        dims: vec![
            dim(
                Axis::O,
                sizes.blocks_n(problem) * sizes.tile.filter_pieces,
                sizes.tile.tn,
            ),
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
    sizes: &SingleChannelGeometry,
    layout: &WeightLayout,
) -> KernelBlueprint {
    let shape = &problem.shape;
    let (out_h, out_w) = (shape.out_h(), shape.out_w());
    let (tn, th) = (sizes.tile.tn, sizes.tile.th);
    let pieces = sizes.tile.map_pieces * sizes.tile.filter_pieces;
    let pixel_groups_w = out_w.div_ceil(sizes.tile.rp);
    let vector_y = shape.batch == 1 && out_w.is_multiple_of(4) && sizes.tile.rp.is_multiple_of(4);
    let (pixel_step, group_step) = match vector_y {
        true => (1, sizes.tile.rp),
        false => (pixel_groups_w, 1),
    };
    let y_vector = if vector_y { 4 } else { 1 };
    let weight_vector = if sizes.tile.rn.is_multiple_of(4) {
        4
    } else {
        1
    };
    let (y_type, y_elements) = vector_type(y_vector);
    let sums = sizes.tile.rn * sizes.tile.rp;
    let registers = sums + sizes.tile.rn + sizes.tile.rp + 32;
    let blocks_h = sizes.blocks_h(problem);
    let grid = [blocks_h * shape.batch, sizes.blocks_n(problem), 1];
    let items = tn / sizes.tile.rn * th * pixel_groups_w;
    let taps = shape.r * shape.s;
    let context = context(&SingleChannelContext {
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
        tn,
        th,
        map_pieces: sizes.tile.map_pieces,
        filter_pieces: sizes.tile.filter_pieces,
        pieces,
        rn: sizes.tile.rn,
        rp: sizes.tile.rp,
        threads: sizes.tile.threads,
        min_blocks: blocks_per_sm_by_registers(sizes.tile.threads, registers),
        rows: sizes.rows,
        columns: sizes.columns,
        map_stride: sizes.map_stride,
        x_vector: if sizes.vector_x { 4 } else { 1 },
        filter_values: taps * tn,
        blocks_h,
        pixel_groups_w,
        pixel_groups: th * pixel_groups_w,
        items,
        pixel_step,
        group_step,
        weight_vector,
        weight_type: vector_type(weight_vector).0,
        y_vector,
        y_type,
        y_elements,
        checks_n: !shape.n.is_multiple_of(tn * sizes.tile.filter_pieces),
        checks_h: !out_h.is_multiple_of(th * sizes.tile.map_pieces),
        checks_w: !out_w.is_multiple_of(sizes.tile.rp),
        unroll: sums * taps <= 1024,
        fused_ops: FusedOpsContext::new(problem, layout, false),
    });
    let blocks = u64::from(grid[0]) * u64::from(grid[1]);
    let fmas = f64::from(sums * taps);
    let rounds = f64::from(items.div_ceil(sizes.tile.threads)) * f64::from(pieces);
    let staged =
        sizes.rows * sizes.columns * sizes.tile.map_pieces + taps * tn * sizes.tile.filter_pieces;
    let outputs = f64::from(tn * th) * f64::from(pieces) * f64::from(out_w);
    KernelBlueprint {
        role: convolution::role(false),
        template: "kernel/single_channel.cu",
        context,
        grid,
        block: [sizes.tile.threads, 1, 1],
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
            threads: sizes.tile.threads,
            registers,
            shared_bytes: sizes.shared_bytes,
            flops: 2.0 * fmas * rounds * f64::from(sizes.tile.threads) * blocks as f64,
            fma_fraction: fmas
                / (fmas + 2.0 * f64::from(taps * (sizes.tile.rn / 4 + sizes.tile.rp)) + 12.0),
            l2_bytes: 4.0 * (f64::from(staged) + outputs) * blocks as f64,
            dram_bytes: Problem::Conv(*problem).bytes() as f64,
            l2_round_trips: 1.5 + 0.5 * f64::from(pieces),
            pdl: true,
            ..KernelWork::default()
        },
    }
}
