//! `depthwise_nhwc`: a convolution with as many groups as channels, of activations in fp16, bf16 or split NHWC.
//!
//! A thread has a run of 4 or 8 adjacent channels. It computes strips, RH rows of RW adjacent pixels, one after the other; the filters of
//! its channels stay in registers, if they fit. Loads and stores of adjacent threads are adjacent. A block has adjacent strips, so that
//! input that several of them read comes from the L1 cache. Sums are in fp32.
//!
//! Weights are stored in fp16, or as hi and lo for a split input, times a power of two for each channel. From these powers of two follows
//! the bound that the scale of a split output needs, as in `wgmma_nhwc`.

use super::convolution::{self, FusedOpsContext};
use super::info::SchemeInfo;
use super::stored_pairs::{StoredPairs, device_parts};
use super::{
    Blueprint, DevicePart, KernelBlueprint, MAX_GRID, Scheme, Tile, TileField, candidates_up_to,
    context, tile_numbers, without_nhwc_strides,
};
use crate::cost::KernelWork;
use crate::gpu::Gpu;
use crate::ir::{
    ConvProblem, DType, Format, MAX_ELEMENTS, Precision, Problem, Reduce, never_grows,
};
use serde::Serialize;
use tdc_runtime::{Axis, Filter, LayoutDim, Transform, WeightLayout};

/// See the [module](self).
pub struct DepthwiseNhwc;

tile_numbers! {
    /// A tile of the [module](self)'s scheme.
    struct DepthwiseNhwcTile {
        /// Output rows of a strip.
        rh: "rh",
        /// Output columns of a strip.
        rw: "rw",
        /// Adjacent channels of a thread.
        channels: "v",
        /// Threads of a block with adjacent channels.
        run_threads: "rt",
        /// Threads of a block with adjacent strips.
        strip_threads: "st",
        /// Strips that a thread computes one after the other.
        block_strips: "bs",
    }
}

/// Maximum number of taps of a filter.
const MAX_TAPS: u32 = 49;

/// Maximum number of multiply-adds of a strip; its loops are unrolled.
const MAX_UNROLLED: u32 = 2560;

/// Maximum number of weights that a thread keeps in registers.
const MAX_KEPT: u32 = 100;

/// Maximum number of registers of a thread, as estimated.
const MAX_REGISTERS: u32 = 216;

#[derive(Serialize)]
struct DepthwiseNhwcContext {
    c: u32,
    h: u32,
    w: u32,
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
    rh: u32,
    rw: u32,
    channels: u32,
    run_threads: u32,
    strip_threads: u32,
    block_strips: u32,
    /// Strips of a row, of an image, of all images.
    strips_w: u32,
    strips: u32,
    all_strips: u32,
    /// Blocks side by side that share the channels.
    slabs: u32,
    checks_thread: bool,
    checks_strip_thread: bool,
    checks_run: bool,
    checks_row: bool,
    checks_column: bool,
    /// Input that a strip reads, and the distance of two rows and columns of it.
    rows: u32,
    row_step: u32,
    columns: u32,
    column_step: u32,
    keeps_weights: bool,
    /// The type of a run, its words with two channels each, zero, and the function that makes one.
    vector: &'static str,
    words: &'static [&'static str],
    zero: &'static str,
    make: &'static str,
    /// Input and output are split NHWC; runs from hi to lo.
    split: bool,
    #[serde(flatten)]
    pairs: StoredPairs,
    x_plane: u64,
    y_plane: u64,
    dequant_scale_at: usize,
    #[serde(flatten)]
    fused_ops: FusedOpsContext,
}

/// A tile and the sizes that follow from it for a problem.
struct DepthwiseNhwcGeometry {
    tile: DepthwiseNhwcTile,
    /// Runs of a pixel.
    runs: u32,
    slabs: u32,
    strips_w: u32,
    strips: u32,
    all_strips: u32,
    blocks: u32,
    rows: u32,
    row_step: u32,
    columns: u32,
    column_step: u32,
    keeps_weights: bool,
    registers: u32,
}

impl DepthwiseNhwcGeometry {
    /// `None` if a thread would need too many instructions or registers, or if a split output has too few maxima for the blocks. The
    /// scheme must support the problem ([`supports_problem`]).
    fn new(problem: &ConvProblem, tile: DepthwiseNhwcTile) -> Option<Self> {
        let shape = &problem.shape;
        let DepthwiseNhwcTile {
            rh, rw, channels, ..
        } = tile;
        let split = is_split(problem);
        let runs = shape.c / channels;
        let strips_w = shape.out_w().div_ceil(rw);
        let strips = shape.out_h().div_ceil(rh) * strips_w;
        let all_strips = strips * shape.batch;
        let window = shape.input_window([rh, rw]);
        // A single output row or column reads input at the distance of the dilation only.
        let [[rows, row_step], [columns, column_step]] = [0, 1].map(|axis| {
            let [outputs, taps] = [[rh, rw][axis], [shape.r, shape.s][axis]];
            match outputs {
                1 => [taps, shape.dilation[axis]],
                _ => [window[axis], 1],
            }
        });
        let taps = shape.r * shape.s;
        let keeps_weights = taps * channels <= MAX_KEPT;
        let weights = if keeps_weights { taps } else { shape.s } * channels;
        let row = columns * channels;
        // Sums, weights, a row of the input, and the words of another row that is on its way.
        let registers = 32 + rh * rw * channels + weights + row + if split { row } else { row / 2 };
        let slabs = runs.div_ceil(tile.run_threads);
        let blocks = all_strips.div_ceil(tile.strip_threads * tile.block_strips);
        let fits = taps * rh * rw * channels <= MAX_UNROLLED
            && registers <= MAX_REGISTERS
            && tile.run_threads * tile.strip_threads <= 512
            && slabs <= MAX_GRID
            && (!split || u64::from(blocks) * u64::from(slabs) <= u64::from(Format::SPLIT_MAXIMA));
        fits.then_some(Self {
            tile,
            runs,
            slabs,
            strips_w,
            strips,
            all_strips,
            blocks,
            rows,
            row_step,
            columns,
            column_step,
            keeps_weights,
            registers,
        })
    }

    /// Threads of a block: complete warps.
    fn threads(&self) -> u32 {
        (self.tile.run_threads * self.tile.strip_threads).next_multiple_of(32)
    }

    /// Work of the launch, for the cost model.
    fn work(&self, problem: &ConvProblem, gpu: &Gpu) -> KernelWork {
        let shape = &problem.shape;
        let model = gpu.cost_model().depthwise_nhwc;
        let tile = &self.tile;
        let terms = if is_split(problem) { 2.0 } else { 1.0 };
        let channels = f64::from(tile.channels);
        let outputs = f64::from(tile.rh * tile.rw);
        let taps = f64::from(shape.r * shape.s);
        let loaded = f64::from(self.rows * self.columns);
        // Instructions of a thread for a strip: loads of runs and their conversion, multiply-adds, the epilogue.
        let weights = taps * (2.0 + channels * (2.0 * terms));
        let strip = model.strip
            + loaded * (model.load * terms + channels * (2.0 * terms - 1.0))
            + outputs * taps * channels
            + outputs * (model.store * terms + channels * (3.0 * terms));
        let strips = f64::from(tile.block_strips);
        let issue = match self.keeps_weights {
            true => model.thread + weights + strips * strip,
            false => model.thread + strips * (strip + weights),
        };
        let blocks = f64::from(self.blocks) * f64::from(self.slabs);
        // Input that a block reads: rows of adjacent strips, which it loads once, or a part of a row.
        let block_strips = tile.strip_threads * tile.block_strips;
        let [strip_rows, strip_columns] = match block_strips.div_ceil(self.strips_w) {
            1 => [1, block_strips],
            rows => [rows, self.strips_w],
        };
        let [rows, columns] = shape.input_window([strip_rows * tile.rh, strip_columns * tile.rw]);
        let seen = f64::from(rows) * f64::from(columns.min(shape.w));
        let written = f64::from(block_strips) * outputs;
        let block_channels = channels * f64::from(tile.run_threads.min(self.runs));
        KernelWork {
            blocks: u64::from(self.blocks) * u64::from(self.slabs),
            threads: self.threads(),
            registers: self.registers,
            // Warp instructions, counted as multiply-adds.
            flops: 2.0 * f64::from(self.threads()) * blocks * issue,
            fma_fraction: 1.0,
            l2_bytes: 2.0 * terms * blocks * block_channels * (seen * model.reread + written),
            dram_bytes: Problem::Conv(*problem).bytes() as f64,
            l2_round_trips: model.round_trips
                + model.strip_round_trips * (strips - 1.0)
                // The scale of a split output follows from maxima.
                + (terms - 1.0),
            last_round_trips: 1.0,
            pdl: true,
            ..KernelWork::default()
        }
    }
}

/// Whether input and output are in split NHWC, not of 16-bit numbers.
fn is_split(problem: &ConvProblem) -> bool {
    problem.input == Format::SPLIT_NHWC
}

/// Whether the scheme can compute a problem. The limits keep sizes far from overflow.
fn supports_problem(problem: &ConvProblem) -> bool {
    const MAX_SIZE: u32 = 1 << 16;
    let shape = &problem.shape;
    let padding = shape.padding;
    let sizes = [
        shape.h,
        shape.w,
        padding.top,
        padding.left,
        padding.bottom,
        padding.right,
    ];
    let has_formats = match problem.input {
        Format::FP16_NHWC | Format::BF16_NHWC => {
            problem.precision.nhwc_format() == Some(problem.input)
        }
        Format::SPLIT_NHWC => {
            problem.precision != Precision::Bf16 && never_grows(problem.epilogue.activation)
        }
        _ => false,
    };
    has_formats
        && problem.output == problem.input
        && problem.input.fits_channels(shape.c)
        && problem.reduce == Reduce::Ordered
        && problem.prologue.is_none()
        && !problem.epilogue.residual
        && shape.groups == shape.c
        && shape.n == shape.c
        && sizes
            .into_iter()
            .chain(shape.dilation)
            .all(|size| size <= MAX_SIZE)
        && shape.stride[0].max(shape.stride[1]) <= 16
        && shape.r.max(shape.s) <= MAX_TAPS
        && shape.r * shape.s <= MAX_TAPS
        && shape.input_len().max(shape.output_len()) <= MAX_ELEMENTS
}

/// Numbers of adjacent channel runs that a block may have: all or a divisor, or 128 bytes of fp16 numbers.
fn run_threads(runs: u32, channels: u32) -> Vec<u32> {
    let line = (64 / channels).min(runs);
    let divisor = (1..=runs.min(32))
        .rev()
        .find(|&part| runs.is_multiple_of(part));
    let mut found: Vec<u32> = divisor
        .into_iter()
        .filter(|&part| part >= line / 2)
        .chain([line])
        .collect();
    found.dedup();
    found
}

/// The tiles of a supported problem.
fn tiles(problem: &ConvProblem) -> Vec<DepthwiseNhwcGeometry> {
    let shape = &problem.shape;
    let mut found = Vec::new();
    for rh in candidates_up_to(shape.out_h(), &[1, 2, 4, 7]) {
        for rw in candidates_up_to(shape.out_w(), &[1, 2, 4, 7]) {
            for channels in [4, 8] {
                for run_threads in run_threads(shape.c / channels, channels) {
                    for threads in [128, 256] {
                        for block_strips in [1, 2, 4, 8, 16, 32] {
                            let tile = DepthwiseNhwcTile {
                                rh,
                                rw,
                                channels,
                                run_threads,
                                strip_threads: (threads / run_threads).max(1),
                                block_strips,
                            };
                            found.extend(DepthwiseNhwcGeometry::new(problem, tile));
                        }
                    }
                }
            }
        }
    }
    found
}

impl Scheme for DepthwiseNhwc {
    fn name(&self) -> &'static str {
        "depthwise_nhwc"
    }

    fn info(&self) -> SchemeInfo {
        SchemeInfo {
            precisions: &[Precision::Fp16, Precision::Bf16],
            ..SchemeInfo::own(
                "convolutions with as many groups as input and output channels whose activations are in fp16 NHWC (`activations: fp16`), bf16 NHWC or split NHWC, without prologue and residual",
            )
        }
    }

    fn tile_fields(&self) -> &'static [TileField] {
        DepthwiseNhwcTile::FIELDS
    }

    fn tiles(&self, problem: &Problem, _gpu: &Gpu) -> Vec<Tile> {
        let supported = problem.conv().filter(|conv| supports_problem(conv));
        let all = supported.map(tiles).unwrap_or_default().into_iter();
        all.map(|sizes| sizes.tile.into()).collect()
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> Blueprint {
        let problem = convolution::expect_conv(problem);
        let tile = DepthwiseNhwcTile::from_tile(tile).expect("a supported tile");
        let sizes = DepthwiseNhwcGeometry::new(problem, tile).expect("a supported tile");
        let layout = layout(problem, tile.channels);
        let kernel = kernel(problem, &sizes, &layout, gpu);
        convolution::blueprint(problem, 1, kernel, layout)
    }
}

/// `[O/V][R][S][V]` for threads of V channels; of a split input hi of V channels, then lo.
fn layout(problem: &ConvProblem, channels: u32) -> WeightLayout {
    let shape = &problem.shape;
    let dim = |axis, count, step| LayoutDim { axis, count, step };
    WeightLayout {
        source: shape.weight(),
        dims: vec![
            dim(Axis::O, shape.n / channels, channels),
            dim(Axis::R, shape.r, 1),
            dim(Axis::S, shape.s, 1),
            dim(Axis::O, channels, 1),
        ]
        .into(),
        filter: Filter::Taps,
        transform: Transform::Fp16 {
            run: channels,
            terms: if is_split(problem) { 2 } else { 1 },
        },
        prologue_channels: 0,
    }
}

fn kernel(
    problem: &ConvProblem,
    sizes: &DepthwiseNhwcGeometry,
    layout: &WeightLayout,
    gpu: &Gpu,
) -> KernelBlueprint {
    let shape = &problem.shape;
    let tile = sizes.tile;
    let split = is_split(problem);
    let dtypes = [problem.input.dtype, problem.output.dtype];
    let checks_strip_thread = sizes.threads() != tile.run_threads * tile.strip_threads;
    let checks_run = !sizes.runs.is_multiple_of(tile.run_threads);
    let (vector, words, zero, make): (_, &[&str], _, _) = match tile.channels {
        4 => ("uint2", &["x", "y"], "make_uint2(0, 0)", "make_uint2"),
        _ => (
            "uint4",
            &["x", "y", "z", "w"],
            "make_uint4(0, 0, 0, 0)",
            "make_uint4",
        ),
    };
    let plane = |len: u64| len / u64::from(tile.channels);
    let context = context(&DepthwiseNhwcContext {
        c: shape.c,
        h: shape.h,
        w: shape.w,
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
        rh: tile.rh,
        rw: tile.rw,
        channels: tile.channels,
        run_threads: tile.run_threads,
        strip_threads: tile.strip_threads,
        block_strips: tile.block_strips,
        strips_w: sizes.strips_w,
        strips: sizes.strips,
        all_strips: sizes.all_strips,
        slabs: sizes.slabs,
        checks_thread: checks_strip_thread || checks_run,
        checks_strip_thread,
        checks_run,
        checks_row: !shape.out_h().is_multiple_of(tile.rh),
        checks_column: !shape.out_w().is_multiple_of(tile.rw),
        rows: sizes.rows,
        row_step: sizes.row_step,
        columns: sizes.columns,
        column_step: sizes.column_step,
        keeps_weights: sizes.keeps_weights,
        vector,
        words,
        zero,
        make,
        split,
        pairs: StoredPairs::of(dtypes),
        x_plane: plane(shape.input_len()),
        y_plane: plane(shape.output_len()),
        dequant_scale_at: layout.weight_len() - layout.dequant_scale_len(),
        fused_ops: FusedOpsContext::new(problem, layout, false),
    });
    KernelBlueprint {
        role: convolution::role(false),
        template: "kernel/depthwise_nhwc.cu",
        context,
        grid: [sizes.blocks, sizes.slabs, 1],
        block: [sizes.threads(), 1, 1],
        cluster: [1; 3],
        shared_bytes: 0,
        pdl: true,
        // Weights are fp16 numbers in any case.
        device: match problem.input.dtype {
            DType::Bf16 => &[DevicePart::Pdl, DevicePart::Fp16, DevicePart::Bf16],
            _ => device_parts(dtypes),
        },
        args: without_nhwc_strides(convolution::args(problem, false), &Problem::Conv(*problem)),
        work: sizes.work(problem, gpu),
    }
}
