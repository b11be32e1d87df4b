//! `tdc` and `tdc_rows`: TDC's kernels for the core convolution (TDC paper, section 5.2, Listing 2, and its published code).
//!
//! A block stages a tile of the input, TC channels deep, in shared memory at once, with a single barrier. A thread computes TH x TW outputs
//! of one output channel in registers. It reads each staged value once and uses it for every tap of the filter; all threads of a warp read
//! the same value. The filter's layout is CRSN, so that adjacent threads read adjacent weights.
//!
//! - `tdc`, the printed kernel: a block covers one TH x TW tile, with one thread for each of the N output channels.
//! - `tdc_rows`, the kernel of the published code's later versions: a block covers TH rows over the complete width, with N * ceil(W / TW)
//!   threads.
//!
//! The sum over the channels is split over ceil(C / TC) blocks. A second launch adds their partial sums in a fixed order. With `reduce:
//! atomic`, as published, float atomics add them to a zeroed output.
//!
//! On an H200 `direct` is faster than both, with sums in a fixed order, on 17 of the 18 core shapes (docs/results/h200.md).
//!
//! Corrections of Listing 2: `y_out > TH` lets one row and column too many through (`>=` here). The index of the output has a stray
//! `H*W*N`, and writes HWN (NCHW here, as in all schemes but `tvm`). One thread for each channel limits N to 1024 (here several blocks
//! split the channels). The number of blocks is `H/TH`, which omits the last rows if TH does not divide H.
//!
//! Extensions: any filter, stride, dilation, padding and batch; prologue and epilogue. H and W of the tile are those of the output.

use super::convolution::{self, FusedOpsContext};
use super::info::{PublishedTiles, SchemeInfo};
use super::{
    Blueprint, DevicePart, KernelBlueprint, MAX_GRID, Scheme, Tile, TileField, Zeroed,
    candidates_up_to, context, reduction, tile_numbers,
};
use crate::cost::KernelWork;
use crate::gpu::{Gpu, MAX_REGISTERS, MAX_THREADS, REGISTERS_PER_BLOCK};
use crate::ir::{ConvProblem, Epilogue, MAX_ELEMENTS, Problem, Reduce};
use serde::Serialize;
use tdc_runtime::{Arg, Axis, ConvShape, Filter, LayoutDim, Padding, Transform, WeightLayout};

/// See the [module](self).
pub struct Tdc;

/// See the [module](self).
pub struct TdcRows;

tile_numbers! {
    /// A tile of the [module](self)'s scheme.
    struct TdcTile {
        /// Output rows of a block, all of them in each thread (TH of the paper).
        th: "h",
        /// Output columns of a tile (TW of the paper): of a block in tdc, of a thread in tdc_rows.
        tw: "w",
        /// Input channels of a block (TC of the paper).
        tc: "c",
    }
}

/// The tile space of the published scripts: TH and TW up to this,
const MAX_TILE: u32 = 12;
/// and these TC.
const TILE_C: [u32; 5] = [1, 2, 4, 8, 16];

/// Bytes of static shared memory that a block can have on every GPU.
const MAX_SHARED: u32 = 48 * 1024;

/// The loops over a tile and the filter are unrolled up to this number of multiply-adds.
const MAX_UNROLLED: u32 = 4096;

/// Registers of a thread in addition to its accumulators and weights.
const OTHER_REGISTERS: u32 = 24;

const INFO: SchemeInfo = SchemeInfo {
    atomic: true,
    published_tiles: Some(PublishedTiles::Tdc),
    ..SchemeInfo::published(
        "TDC paper, section 5.2, Listing 2",
        "convolutions of one group with filters of moderate size",
    )
};

impl Scheme for Tdc {
    fn name(&self) -> &'static str {
        "tdc"
    }

    fn info(&self) -> SchemeInfo {
        INFO
    }

    fn tile_fields(&self) -> &'static [TileField] {
        TdcTile::FIELDS
    }

    fn tiles(&self, problem: &Problem, _gpu: &Gpu) -> Vec<Tile> {
        tiles(problem, false)
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> Blueprint {
        blueprint(problem, tile, false, gpu)
    }
}

impl Scheme for TdcRows {
    fn name(&self) -> &'static str {
        "tdc_rows"
    }

    fn info(&self) -> SchemeInfo {
        INFO
    }

    fn tile_fields(&self) -> &'static [TileField] {
        TdcTile::FIELDS
    }

    fn tiles(&self, problem: &Problem, _gpu: &Gpu) -> Vec<Tile> {
        tiles(problem, true)
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> Blueprint {
        blueprint(problem, tile, true, gpu)
    }
}

/// A tile with the sizes that follow from it.
struct TdcGeometry {
    th: u32,
    tw: u32,
    tc: u32,
    /// Tiles of the output, vertically and horizontally.
    tiles_h: u32,
    tiles_w: u32,
    /// Horizontally adjacent tiles of a block.
    block_tiles_w: u32,
    /// Output channels of a block, and blocks along the channels.
    block_n: u32,
    blocks_n: u32,
    threads: u32,
    /// Input rows and columns that a block reads, and columns that a thread reads.
    rows: u32,
    columns: u32,
    thread_columns: u32,
    splits: u32,
}

impl TdcGeometry {
    fn new(shape: &ConvShape, [th, tw, tc]: [u32; 3], whole_rows: bool) -> Self {
        let tiles_h = shape.out_h().div_ceil(th);
        let tiles_w = shape.out_w().div_ceil(tw);
        let block_tiles_w = if whole_rows { tiles_w } else { 1 };
        let fewest = shape.n.div_ceil((MAX_THREADS / block_tiles_w).max(1));
        let block_n = shape.n.div_ceil(fewest);
        let [rows, columns] = shape.input_window([th, tw * block_tiles_w]);
        let [_, thread_columns] = shape.input_window([th, tw]);
        Self {
            th,
            tw,
            tc,
            tiles_h,
            tiles_w,
            block_tiles_w,
            block_n,
            blocks_n: shape.n.div_ceil(block_n),
            threads: (block_n * block_tiles_w).next_multiple_of(32),
            rows,
            columns,
            thread_columns,
            splits: shape.c.div_ceil(tc),
        }
    }

    fn of_supported(shape: &ConvShape, tile: &Tile, whole_rows: bool) -> Self {
        let TdcTile { th, tw, tc } = TdcTile::from_tile(tile).expect("a supported tile");
        Self::new(shape, [th, tw, tc], whole_rows)
    }

    /// Bytes of the staged input.
    fn shared_bytes(&self) -> u64 {
        let staged = u64::from(self.rows) * u64::from(self.columns);
        staged.saturating_mul(4 * u64::from(self.tc))
    }

    /// Number of channels whose weights are read together, limited by registers and code size.
    fn unrolled_channels(&self, shape: &ConvShape) -> u32 {
        let taps = shape.r * shape.s;
        let sums = self.th * self.tw;
        let registers = registers_of(self.threads).saturating_sub(sums + OTHER_REGISTERS);
        let channels = (registers / taps).min(64 / taps).min(1024 / (sums * taps));
        channels.clamp(1, self.tc)
    }

    fn fits(&self, shape: &ConvShape) -> bool {
        let sums = u64::from(self.th * self.tw);
        let taps = u64::from(shape.r) * u64::from(shape.s);
        self.block_tiles_w <= MAX_THREADS
            && self.shared_bytes() <= u64::from(MAX_SHARED)
            && sums * taps <= u64::from(MAX_UNROLLED)
            && sums + taps + u64::from(OTHER_REGISTERS) <= u64::from(registers_of(self.threads))
            && self.splits <= MAX_GRID
            && self.blocks_n <= MAX_GRID
            && u64::from(self.splits) * shape.output_len() <= MAX_ELEMENTS
    }
}

/// Maximum registers of a thread in a block of `threads` threads.
fn registers_of(threads: u32) -> u32 {
    (REGISTERS_PER_BLOCK / threads).min(MAX_REGISTERS)
}

fn tiles(problem: &Problem, whole_rows: bool) -> Vec<Tile> {
    let Some(problem) = problem.nchw_conv() else {
        return Vec::new();
    };
    let shape = &problem.shape;
    if shape.groups > 1 {
        return Vec::new();
    }
    let mut tiles = Vec::new();
    for th in 1..=shape.out_h().min(MAX_TILE) {
        for tw in 1..=shape.out_w().min(MAX_TILE) {
            for tc in candidates_up_to(shape.c, &TILE_C) {
                let tc = tc.min(shape.c);
                if TdcGeometry::new(shape, [th, tw, tc], whole_rows).fits(shape) {
                    tiles.push(TdcTile { th, tw, tc }.into());
                }
            }
        }
    }
    tiles.dedup();
    tiles
}

/// `[I][R][S][O]`, the paper's CRSN.
fn layout(problem: &ConvProblem) -> WeightLayout {
    let shape = &problem.shape;
    let dim = |axis, count| LayoutDim {
        axis,
        count,
        step: 1,
    };
    WeightLayout {
        source: problem.shape.weight(),
        dims: vec![
            dim(Axis::I, shape.c),
            dim(Axis::R, shape.r),
            dim(Axis::S, shape.s),
            dim(Axis::O, shape.n),
        ]
        .into(),
        filter: Filter::Taps,
        transform: Transform::None,
        prologue_channels: Problem::Conv(*problem).scale_shift_channels(),
    }
}

fn blueprint(problem: &Problem, tile: &Tile, whole_rows: bool, gpu: &Gpu) -> Blueprint {
    let problem = convolution::expect_conv(problem);
    let shape = &problem.shape;
    let sizes = TdcGeometry::of_supported(shape, tile, whole_rows);
    let layout = layout(problem);
    let split = sizes.splits > 1;
    if !split || problem.reduce == Reduce::Ordered {
        let args = convolution::args(problem, split);
        let kernel = main_kernel(problem, &sizes, &layout, args, false, gpu);
        return convolution::blueprint(problem, sizes.splits, kernel, layout);
    }
    // The partial sums are added in the output itself, or in the workspace if a second launch has to apply the epilogue.
    let bytes = 4 * shape.output_len();
    let in_place = problem.epilogue == Epilogue::default() && shape.batch == 1;
    let mut args = convolution::args(problem, true);
    let (target, workspace_bytes) = if in_place {
        args = vec![Arg::X, Arg::Packed, Arg::Y];
        (Arg::Y, 0)
    } else {
        (Arg::Workspace { offset: 0 }, bytes)
    };
    let mut kernels = vec![main_kernel(problem, &sizes, &layout, args, true, gpu)];
    if !in_place {
        kernels.push(reduction::kernel(problem, 1));
    }
    Blueprint {
        kernels,
        zeroed: Some(Zeroed { target, bytes }),
        workspace_bytes,
        weights: layout,
        extra_weight_layouts: Vec::new(),
    }
}

#[derive(Serialize)]
struct TdcContext {
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
    th: u32,
    tw: u32,
    tc: u32,
    rows: u32,
    columns: u32,
    thread_columns: u32,
    /// Whether a thread adds each staged value to all outputs that it contributes to. With strides and dilations few values contribute to
    /// several outputs, and each output gathers its own values.
    scatters: bool,
    /// Tiles of an image counted in blocks: all of them, and those of a row.
    block_tiles: u32,
    block_tiles_of_row: u32,
    block_tiles_w: u32,
    block_n: u32,
    blocks_n: u32,
    /// Threads that have work.
    active_threads: u32,
    staged: u32,
    unrolled_channels: u32,
    splits: u32,
    atomic: bool,
    in_place: bool,
    checks_border: bool,
    checks_c: bool,
    checks_n: bool,
    checks_thread: bool,
    checks_row: bool,
    checks_column: bool,
    #[serde(flatten)]
    fused_ops: FusedOpsContext,
}

fn main_kernel(
    problem: &ConvProblem,
    sizes: &TdcGeometry,
    layout: &WeightLayout,
    args: Vec<Arg>,
    atomic: bool,
    gpu: &Gpu,
) -> KernelBlueprint {
    let shape = &problem.shape;
    let split = sizes.splits > 1;
    let (out_h, out_w) = (shape.out_h(), shape.out_w());
    let blocks_of_row = sizes.tiles_w / sizes.block_tiles_w;
    let active_threads = sizes.block_n * sizes.block_tiles_w;
    let context = context(&TdcContext {
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
        th: sizes.th,
        tw: sizes.tw,
        tc: sizes.tc,
        rows: sizes.rows,
        columns: sizes.columns,
        thread_columns: sizes.thread_columns,
        scatters: shape.stride == [1, 1] && shape.dilation == [1, 1],
        block_tiles: sizes.tiles_h * blocks_of_row,
        block_tiles_of_row: blocks_of_row,
        block_tiles_w: sizes.block_tiles_w,
        block_n: sizes.block_n,
        blocks_n: sizes.blocks_n,
        active_threads,
        staged: sizes.tc * sizes.rows * sizes.columns,
        unrolled_channels: sizes.unrolled_channels(shape),
        splits: sizes.splits,
        atomic,
        in_place: args.contains(&Arg::Y),
        checks_border: shape.padding != Padding::default()
            || !out_h.is_multiple_of(sizes.th)
            || !out_w.is_multiple_of(sizes.tw),
        checks_c: !shape.c.is_multiple_of(sizes.tc),
        checks_n: !shape.n.is_multiple_of(sizes.block_n),
        checks_thread: active_threads != sizes.threads,
        checks_row: !out_h.is_multiple_of(sizes.th),
        checks_column: !out_w.is_multiple_of(sizes.tw),
        fused_ops: FusedOpsContext::new(problem, layout, split),
    });
    let grid = [
        sizes.tiles_h * blocks_of_row * shape.batch,
        sizes.blocks_n,
        sizes.splits,
    ];
    KernelBlueprint {
        role: convolution::role(split),
        template: "kernel/tdc.cu",
        context,
        grid,
        block: [sizes.threads, 1, 1],
        cluster: [1; 3],
        shared_bytes: 0,
        pdl: true,
        device: &[DevicePart::Pdl],
        args,
        work: work(problem, sizes, grid, atomic, gpu),
    }
}

fn work(
    problem: &ConvProblem,
    sizes: &TdcGeometry,
    grid: [u32; 3],
    atomic: bool,
    gpu: &Gpu,
) -> KernelWork {
    /// Bytes that a store of 4 bytes moves if the threads of a warp do not store adjacent values.
    const SECTOR: f64 = 32.0;
    let shape = &problem.shape;
    let blocks = grid.iter().map(|&size| u64::from(size)).product::<u64>();
    let taps = f64::from(shape.r * shape.s);
    let sums = f64::from(sizes.th * sizes.tw);
    let channels = f64::from(sizes.tc);
    let values = f64::from(sizes.rows * sizes.thread_columns);
    let fmas = sums * taps;
    let threads = f64::from(sizes.threads);
    let staged = channels * f64::from(sizes.rows) * f64::from(sizes.columns);
    let stored_bytes = if atomic {
        gpu.cost_model().other.tdc_atomic_bytes * sums
    } else {
        SECTOR * f64::from(sizes.th) * (f64::from(sizes.tw) / 8.0).ceil()
    };
    KernelWork {
        blocks,
        threads: sizes.threads,
        registers: OTHER_REGISTERS
            + sizes.th * sizes.tw
            + shape.r * shape.s * sizes.unrolled_channels(shape),
        shared_bytes: sizes.shared_bytes() as u32,
        flops: 2.0 * fmas * channels * threads * blocks as f64,
        // A staged value and a weight are read once for all their products.
        fma_fraction: fmas / (fmas + 2.0 * values + 2.0 * taps),
        l2_bytes: (4.0 * staged
            + 4.0 * channels * taps * f64::from(sizes.block_n)
            + stored_bytes * threads)
            * blocks as f64,
        dram_bytes: Problem::Conv(*problem).bytes() as f64,
        // The tile, then the weights of `unrolled_channels` channels at a time.
        l2_round_trips: 2.0 + (channels / f64::from(sizes.unrolled_channels(shape))).ceil(),
        ..KernelWork::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::gpu;

    fn conv(shape: ConvShape) -> Problem {
        Problem::Conv(ConvProblem::new(shape))
    }

    /// Blocks of 1024 threads, one output channel each, would exceed a grid of 65535.
    #[test]
    fn a_grid_has_its_limits() {
        let h200 = gpu("h200").unwrap();
        let problem = conv(ConvShape::new(1, 66000, 1, 8000, 1, 1));
        for scheme in [&Tdc as &dyn Scheme, &TdcRows] {
            for tile in scheme.tiles(&problem, h200) {
                for kernel in scheme.blueprint(&problem, &tile, h200).kernels {
                    let [_, y, z] = kernel.grid;
                    assert!(y <= 65535 && z <= 65535, "{} {tile:?}", scheme.name());
                }
            }
        }
    }

    /// 2^30 input rows and columns under one output: their number of bytes overflows a u64.
    #[test]
    fn a_tile_of_exabytes_does_not_fit() {
        let h200 = gpu("h200").unwrap();
        let problem = conv(ConvShape {
            padding: Padding::all(1 << 29),
            dilation: [(1 << 30) - 1; 2],
            ..ConvShape::new(4, 8, 1, 1, 2, 2)
        });
        assert_eq!(Tdc.tiles(&problem, h200), []);
        assert_eq!(TdcRows.tiles(&problem, h200), []);
    }
}
