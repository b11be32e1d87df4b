//! `depthwise`: a convolution with as many groups as input channels, in fp32.
//!
//! There is no sum over channels to divide, so memory and latency determine the time. A thread computes a strip, RH rows of RW
//! adjacent pixels, of all output channels that read one input channel. Each input row that it loads is used for every output row
//! that reads it, and the filter stays in registers. The loads of a strip are independent of each other and in flight at once, up
//! to 128 of them. Strips are numbered along columns, then rows, then channels. So adjacent threads read adjacent memory, input
//! that several strips read comes from the L1 cache, and a block has several channels if images are small.

use super::convolution::{self, FusedOpsContext};
use super::info::SchemeInfo;
use super::tiling::vector_type;
use super::{
    Blueprint, DevicePart, KernelBlueprint, Scheme, Tile, TileField, candidates_up_to, context,
    tile_numbers,
};
use crate::cost::KernelWork;
use crate::gpu::Gpu;
use crate::ir::{Activation, ConvProblem, MAX_ELEMENTS, Problem, Reduce};
use serde::Serialize;
use tdc_runtime::{Axis, Filter, LayoutDim, Transform, WeightLayout};

/// See the [module](self).
pub struct Depthwise;

tile_numbers! {
    /// A tile of the [module](self)'s scheme.
    struct DepthwiseTile {
        /// Output rows of a thread.
        rh: "rh",
        /// Output columns of a thread.
        rw: "rw",
        /// Threads of a block.
        threads: "t",
    }
}

/// Maximum number of output channels of an input channel: a thread holds the sums of all of them.
const MAX_MULTIPLIER: u32 = 4;

/// Maximum number of multiply-adds to which a thread's loops are unrolled.
const MAX_UNROLLED: u32 = 2048;

/// Maximum number of input values that a thread loads before it uses them; they are in registers.
const MAX_LOADED: u32 = 128;

#[derive(Serialize)]
struct DepthwiseContext {
    h: u32,
    w: u32,
    out_h: u32,
    out_w: u32,
    r: u32,
    s: u32,
    stride_h: u32,
    stride_w: u32,
    pad_top: u32,
    /// Loaded columns to the left of the strip's first column, and the first of the loaded columns that is read.
    aligned_pad_left: u32,
    first_column: u32,
    dilation_h: u32,
    dilation_w: u32,
    filter_pitch: u32,
    multiplier: u32,
    rh: u32,
    rw: u32,
    /// Strips of a row, of a channel, of an image.
    strips_w: u32,
    strips: u32,
    all_strips: u32,
    /// Blocks of an image.
    blocks: u32,
    checks_thread: bool,
    checks_row: bool,
    checks_column: bool,
    /// Input rows that a strip reads, and the distance of two of them.
    rows: u32,
    row_step: u32,
    columns: u32,
    /// Rows that are loaded together before they are used, and whether the last group of rows may be smaller.
    loaded_rows: u32,
    checks_loaded: bool,
    x_vector: u32,
    x_type: &'static str,
    x_zero: &'static str,
    x_elements: &'static [&'static str],
    y_vector: u32,
    y_type: &'static str,
    y_elements: &'static [&'static str],
    #[serde(flatten)]
    fused_ops: FusedOpsContext,
}

/// A tile and the sizes that follow from it for a problem.
struct DepthwiseGeometry {
    tile: DepthwiseTile,
    multiplier: u32,
    strips_w: u32,
    strips: u32,
    all_strips: u32,
    blocks: u32,
    rows: u32,
    row_step: u32,
    columns: u32,
    aligned_pad_left: u32,
    x_vector: u32,
    y_vector: u32,
    loaded_rows: u32,
    registers: u32,
}

impl DepthwiseGeometry {
    /// `None` if a thread would need too many instructions or registers. The scheme must support the problem
    /// ([`supports_problem`]).
    fn new(problem: &ConvProblem, tile: DepthwiseTile) -> Option<Self> {
        let DepthwiseTile { rh, rw, threads } = tile;
        let shape = &problem.shape;
        let multiplier = shape.n / shape.groups;
        let strips_w = shape.out_w().div_ceil(rw);
        let strips = shape.out_h().div_ceil(rh) * strips_w;
        let all_strips = strips * shape.c;
        let [rows_under, columns_under] = shape.input_window([rh, rw]);
        // A single output row reads input rows at the distance of the dilation only.
        let (rows, row_step) = match rh {
            1 => (shape.r, shape.dilation[0]),
            _ => (rows_under, 1),
        };
        // For vector loads, rows and strips start at multiples of the vector length. There is only one image then, because the
        // batch stride may be any number.
        let x_vector = vector_len(problem, [shape.w, rw * shape.stride[1]]);
        let aligned_pad_left = shape.padding.left.next_multiple_of(x_vector);
        let columns =
            (aligned_pad_left - shape.padding.left + columns_under).next_multiple_of(x_vector);
        let row_fmas = multiplier * rw * shape.s;
        let read = columns_under.min(rw * shape.s);
        let loaded_rows = (MAX_LOADED / read)
            .min(MAX_UNROLLED / row_fmas)
            .clamp(1, rows);
        let outputs = multiplier * rh * rw;
        // Fitted to the compiler's register counts: sums, inputs, a row of the filter, and addresses.
        let registers = 8 + outputs + loaded_rows * read + 9 * multiplier * shape.s;
        let fmas = u64::from(row_fmas) * u64::from(rh) * u64::from(shape.r);
        let fits = columns <= 128
            && row_fmas <= MAX_UNROLLED
            && outputs <= 64
            && registers <= 200
            // With several output rows per thread all loops are unrolled.
            && (rh == 1 || loaded_rows == rows && fmas <= u64::from(MAX_UNROLLED));
        fits.then(|| Self {
            tile,
            multiplier,
            strips_w,
            strips,
            all_strips,
            blocks: all_strips.div_ceil(threads),
            rows,
            row_step,
            columns,
            aligned_pad_left,
            x_vector,
            y_vector: vector_len(problem, [shape.out_w(), rw]),
            loaded_rows,
            registers,
        })
    }

    /// Work of the launch, for the cost model.
    fn work(&self, problem: &ConvProblem, gpu: &Gpu) -> KernelWork {
        let line = gpu.cost_model().other.depthwise_cache_line;
        let shape = &problem.shape;
        let blocks = f64::from(self.blocks) * f64::from(shape.batch);
        let outputs = self.multiplier * self.tile.rh * self.tile.rw;
        // The strips of adjacent lanes are `apart` floats apart: a load or store of the warp touches this number of cache lines
        // (32 floats), at most 32.
        let lines = |apart: u32| f64::from(apart.min(32)) * line;
        let loads = f64::from(self.rows)
            * f64::from((self.columns / self.x_vector).min(self.tile.rw * shape.s));
        let stores = f64::from(outputs / self.y_vector);
        let tensors = if problem.epilogue.residual { 2.0 } else { 1.0 };
        let filter = f64::from(self.multiplier * shape.r) * f64::from(filter_pitch(shape.s) / 4);
        let has_epilogue = problem.epilogue.bias || problem.epilogue.activation != Activation::None;
        let issue = 80.0
            + loads * (5.0 + lines(self.tile.rw * shape.stride[1]))
            + filter * (2.0 + line)
            + f64::from(outputs * shape.s) * f64::from(shape.r)
            + tensors * stores * (2.0 + lines(self.tile.rw))
            + 2.0 * f64::from(outputs);
        // Input that a block reads: rows of one channel, or entire channels.
        let channel = f64::from(shape.h) * f64::from(shape.w);
        let seen = if self.tile.threads >= self.strips {
            f64::from(self.tile.threads) / f64::from(self.strips) * channel
        } else {
            let rows = self.tile.threads.div_ceil(self.strips_w) * self.tile.rh;
            f64::from(shape.input_window([rows, 1])[0].min(shape.h)) * f64::from(shape.w)
        };
        // Stores with gaps between the threads of a warp write only parts of sectors (8 floats).
        let gaps = f64::from(self.tile.rw.min(8)) / f64::from(self.y_vector);
        let written = f64::from(self.tile.threads) * f64::from(outputs) * gaps;
        KernelWork {
            blocks: u64::from(self.blocks) * u64::from(shape.batch),
            threads: self.tile.threads,
            registers: self.registers,
            // Warp instructions, counted as multiply-adds.
            flops: 2.0 * f64::from(self.tile.threads) * blocks * issue,
            fma_fraction: 1.0,
            l2_bytes: 4.0 * blocks * (seen + tensors * written),
            dram_bytes: Problem::Conv(*problem).bytes() as f64,
            l2_round_trips: 1.0 + f64::from(self.rows.div_ceil(self.loaded_rows)),
            // Fitted to 41 layers of MobileNet-v2, MobileNet-v3-large and EfficientNet-B0 on an H200.
            last_round_trips: if has_epilogue { 2.8 } else { 1.6 },
            pdl: true,
            ..KernelWork::default()
        }
    }
}

/// Length of vector loads or stores in floats, if rows and strips have these sizes.
fn vector_len(problem: &ConvProblem, sizes: [u32; 2]) -> u32 {
    let aligned =
        |len: &u32| problem.shape.batch == 1 && sizes.iter().all(|size| size.is_multiple_of(*len));
    [4, 2].into_iter().find(aligned).unwrap_or(1)
}

/// Values of a packed filter row: a multiple of four, for `float4` loads.
fn filter_pitch(s: u32) -> u32 {
    s.next_multiple_of(4)
}

/// Whether the scheme can compute a problem. The limits keep sizes far from overflow.
fn supports_problem(problem: &ConvProblem) -> bool {
    const MAX_SIZE: u32 = 1 << 20;
    let shape = &problem.shape;
    let padding = shape.padding;
    let sizes = [
        shape.h,
        shape.w,
        padding.top,
        padding.left,
        padding.bottom,
        padding.right,
    ]
    .into_iter();
    problem.reduce == Reduce::Ordered
        && shape.groups == shape.c
        && shape.n / shape.groups <= MAX_MULTIPLIER
        && sizes.chain(shape.dilation).all(|size| size <= MAX_SIZE)
        && shape.stride[0].max(shape.stride[1]) <= 16
        && shape.r.max(shape.s) <= 128
        && layout(problem).len() as u64 <= MAX_ELEMENTS
}

impl Scheme for Depthwise {
    fn name(&self) -> &'static str {
        "depthwise"
    }

    fn info(&self) -> SchemeInfo {
        SchemeInfo::own("convolutions with as many groups as input channels")
    }

    fn tile_fields(&self) -> &'static [TileField] {
        DepthwiseTile::FIELDS
    }

    fn tiles(&self, problem: &Problem, _gpu: &Gpu) -> Vec<Tile> {
        let Some(problem) = problem.nchw_conv() else {
            return Vec::new();
        };
        if !supports_problem(problem) {
            return Vec::new();
        }
        let mut tiles = Vec::new();
        for rh in candidates_up_to(problem.shape.out_h(), &[1, 2, 4, 7, 8, 14]) {
            for rw in candidates_up_to(problem.shape.out_w(), &[1, 2, 4, 8]) {
                for threads in [64, 128, 256] {
                    let tile = DepthwiseTile { rh, rw, threads };
                    if DepthwiseGeometry::new(problem, tile).is_some() {
                        tiles.push(tile.into());
                    }
                }
            }
        }
        tiles
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> Blueprint {
        let problem = convolution::expect_conv(problem);
        let tile = DepthwiseTile::from_tile(tile).expect("a supported tile");
        let sizes = DepthwiseGeometry::new(problem, tile).expect("a supported tile");
        let layout = layout(problem);
        let kernel = kernel(problem, &sizes, &layout, gpu);
        convolution::blueprint(problem, 1, kernel, layout)
    }
}

/// `[O][R][S]`, each row padded to complete `float4` vectors.
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
            dim(Axis::O, shape.n),
            dim(Axis::R, shape.r),
            dim(Axis::S, filter_pitch(shape.s)),
        ]
        .into(),
        filter: Filter::Taps,
        transform: Transform::None,
        prologue_channels: Problem::Conv(*problem).scale_shift_channels(),
    }
}

fn kernel(
    problem: &ConvProblem,
    sizes: &DepthwiseGeometry,
    layout: &WeightLayout,
    gpu: &Gpu,
) -> KernelBlueprint {
    let shape = &problem.shape;
    let (x_type, x_elements) = vector_type(sizes.x_vector);
    let (y_type, y_elements) = vector_type(sizes.y_vector);
    let context = context(&DepthwiseContext {
        h: shape.h,
        w: shape.w,
        out_h: shape.out_h(),
        out_w: shape.out_w(),
        r: shape.r,
        s: shape.s,
        stride_h: shape.stride[0],
        stride_w: shape.stride[1],
        pad_top: shape.padding.top,
        aligned_pad_left: sizes.aligned_pad_left,
        first_column: sizes.aligned_pad_left - shape.padding.left,
        dilation_h: shape.dilation[0],
        dilation_w: shape.dilation[1],
        filter_pitch: filter_pitch(shape.s),
        multiplier: sizes.multiplier,
        rh: sizes.tile.rh,
        rw: sizes.tile.rw,
        strips_w: sizes.strips_w,
        strips: sizes.strips,
        all_strips: sizes.all_strips,
        blocks: sizes.blocks,
        checks_thread: !sizes.all_strips.is_multiple_of(sizes.tile.threads),
        checks_row: !shape.out_h().is_multiple_of(sizes.tile.rh),
        checks_column: !shape.out_w().is_multiple_of(sizes.tile.rw),
        rows: sizes.rows,
        row_step: sizes.row_step,
        columns: sizes.columns,
        loaded_rows: sizes.loaded_rows,
        checks_loaded: !sizes.rows.is_multiple_of(sizes.loaded_rows),
        x_vector: sizes.x_vector,
        x_type,
        x_zero: match sizes.x_vector {
            4 => "make_float4(0.0f, 0.0f, 0.0f, 0.0f)",
            2 => "make_float2(0.0f, 0.0f)",
            _ => "0.0f",
        },
        x_elements,
        y_vector: sizes.y_vector,
        y_type,
        y_elements,
        fused_ops: FusedOpsContext::new(problem, layout, false),
    });
    KernelBlueprint {
        role: convolution::role(false),
        template: "kernel/depthwise.cu",
        context,
        grid: [sizes.blocks * shape.batch, 1, 1],
        block: [sizes.tile.threads, 1, 1],
        cluster: [1; 3],
        shared_bytes: 0,
        pdl: true,
        device: &[DevicePart::Pdl],
        args: convolution::args(problem, false),
        work: sizes.work(problem, gpu),
    }
}
