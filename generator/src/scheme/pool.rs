//! `pool`: maximum or average over windows, with one thread for each output element. If the output is NHWC, a thread has eight channels of a
//! pixel, or of a [strip](strips) of adjacent pixels.

mod strips;

use super::info::SchemeInfo;
use super::per_element::{Elements, PerElementKernel, PerElementTile};
use super::stored_pairs::{StoredPairs, device_parts};
use super::{Blueprint, DevicePart, Scheme, Tile, TileField, without_nhwc_strides};
use crate::cost::KernelWork;
use crate::gpu::Gpu;
use crate::ir::{DType, Format, Layout, PoolKind, PoolProblem, Problem, TensorShape};
use serde::Serialize;
use tdc_runtime::{Arg, WeightLayout};

/// See the [module](self).
pub struct Pool;

#[derive(Serialize)]
struct PoolContext {
    c: u32,
    h: u32,
    w: u32,
    out_h: u32,
    out_w: u32,
    kernel_h: u32,
    kernel_w: u32,
    stride_h: u32,
    stride_w: u32,
    pad_top: u32,
    pad_left: u32,
    /// Input size with the padding at the bottom and right: the end of windows that count padding.
    padded_h: u64,
    padded_w: u64,
    dilation_h: u32,
    dilation_w: u32,
    #[serde(flatten)]
    elements: Elements,
    max: bool,
    count_include_pad: bool,
    /// The input is NHWC, as the output.
    reads_nhwc: bool,
    /// Both are split NHWC.
    split: bool,
    #[serde(flatten)]
    pairs: StoredPairs,
    /// Runs from hi to lo.
    x_plane: u64,
    y_plane: u64,
    /// Runs from one pixel of the input, and of the output, in NHWC to the next.
    x_pixel_runs: u32,
    y_pixel_runs: u32,
    /// Output pixels of a strip, strips of a row, and whether the last one has fewer pixels.
    columns: u32,
    strips: u32,
    checks_columns: bool,
    /// The loop over a window is unrolled, so that its loads are in flight together.
    unrolls: bool,
}

/// Maximum number of elements of a window whose loop is unrolled.
const MAX_UNROLLED: u64 = 64;

/// A split output needs the scale of a split input. Nothing transposes an NHWC input.
fn is_supported(problem: &PoolProblem) -> bool {
    let [input, output] = [problem.input, problem.output].map(Format::dense);
    input == output || input == Format::default() && output.is_16_bit_nhwc()
}

impl Scheme for Pool {
    fn name(&self) -> &'static str {
        "pool"
    }

    fn info(&self) -> SchemeInfo {
        SchemeInfo::own("maximum and average pooling")
    }

    fn tile_fields(&self) -> &'static [TileField] {
        PerElementTile::FIELDS
    }

    fn tiles(&self, problem: &Problem, _gpu: &Gpu) -> Vec<Tile> {
        match problem {
            Problem::Pool(p) if is_supported(p) => {
                PerElementTile::with_threads([64, 128, 256, 512])
            }
            _ => Vec::new(),
        }
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> Blueprint {
        let Problem::Pool(p) = problem else {
            unreachable!("pool has tiles for pooling only");
        };
        let [reads_nhwc, is_nhwc] = [p.input, p.output].map(|format| format.layout == Layout::Nhwc);
        // Maxima of 16-bit numbers need no conversion.
        let pairs_max = p.kind == PoolKind::Max && p.input.is_16_bit_nhwc();
        let split = p.output == Format::SPLIT_NHWC;
        let dtypes = [p.input.dtype, p.output.dtype];
        let plane = |shape: TensorShape| shape.len() / u64::from(Format::RUN_CHANNELS);
        let y = problem.y();
        let columns = strips::columns(p, gpu);
        let strips = y.w.div_ceil(columns);
        let elements = match is_nhwc {
            true => {
                let strips = TensorShape { w: strips, ..y };
                Elements::of(strips, tile, Format::RUN_CHANNELS)
            }
            false => Elements::new(problem, tile),
        };
        let pad = p.padding;
        let kernel = PerElementKernel {
            template: match is_nhwc {
                true if pairs_max => "kernel/pool_max_pairs.cu",
                true if columns > 1 => "kernel/pool_strips.cu",
                true => "kernel/pool_nhwc.cu",
                false => "kernel/pool.cu",
            },
            context: &PoolContext {
                c: p.x.c,
                h: p.x.h,
                w: p.x.w,
                out_h: y.h,
                out_w: y.w,
                kernel_h: p.kernel[0],
                kernel_w: p.kernel[1],
                stride_h: p.stride[0],
                stride_w: p.stride[1],
                pad_top: pad.top,
                pad_left: pad.left,
                padded_h: u64::from(p.x.h) + u64::from(pad.bottom),
                padded_w: u64::from(p.x.w) + u64::from(pad.right),
                dilation_h: p.dilation[0],
                dilation_w: p.dilation[1],
                elements,
                max: p.kind == PoolKind::Max,
                count_include_pad: p.kind
                    == PoolKind::Avg {
                        count_include_pad: true,
                    },
                reads_nhwc,
                split,
                pairs: StoredPairs::of(dtypes),
                x_plane: plane(p.x),
                y_plane: plane(y),
                x_pixel_runs: p.input.pixel_runs(p.x.c),
                y_pixel_runs: p.output.pixel_runs(y.c),
                columns,
                strips,
                checks_columns: !y.w.is_multiple_of(columns),
                unrolls: u64::from(p.kernel[0]) * u64::from(p.kernel[1]) <= MAX_UNROLLED,
            },
            inputs: vec![Arg::X],
            weights: WeightLayout::NONE,
            work: KernelWork {
                registers: 32 + 8 * (columns - 1),
                l2_round_trips: 2.0,
                flops: match columns {
                    1 => problem.flops() as f64,
                    _ => strips::flops(p, columns),
                },
                ..elements.work(problem)
            },
        };
        let mut blueprint = kernel.blueprint(problem, &elements);
        if is_nhwc {
            let kernel = &mut blueprint.kernels[0];
            kernel.device = match (pairs_max, p.input.dtype) {
                (true, DType::Bf16) => &[DevicePart::Pdl, DevicePart::Bf16, DevicePart::MaxBf16],
                (true, _) => &[DevicePart::Pdl, DevicePart::Fp16, DevicePart::MaxFp16],
                (false, _) => device_parts(dtypes),
            };
            kernel.args = without_nhwc_strides(std::mem::take(&mut kernel.args), problem);
        }
        blueprint
    }
}
