//! Conversion between fp32 NCHW and the NHWC formats of 16-bit numbers, and from these to fp32 NHWC.

use crate::cost::KernelWork;
use crate::ir::{ConvertProblem, DType, Format, Layout, Problem};
use crate::scheme::stored_pairs::{StoredPairs, device_parts};
use crate::scheme::{KernelBlueprint, LaunchWork, MAX_GRID, context, split_maxima};
use serde::Serialize;
use tdc_runtime::Arg;

/// Threads of a block. Each has eight channels of a pixel in NHWC.
pub(super) const THREADS: u32 = 256;

/// Pixels of a block, 128 bytes in NCHW, and groups of eight channels, 128 bytes in NHWC.
const TILE_PIXELS: u32 = 32;
const TILE_GROUPS: u32 = THREADS / TILE_PIXELS;

#[derive(Serialize)]
struct ConvertNhwcContext {
    c: u32,
    pixels: u64,
    batched: bool,
    to_nhwc: bool,
    /// NHWC is written to the workspace, else to the output.
    to_workspace: bool,
    /// Two numbers for each value; runs from hi to lo.
    split: bool,
    plane: u64,
    /// Runs from one pixel in NHWC to the next.
    pixel_runs: u32,
    #[serde(flatten)]
    pairs: StoredPairs,
    /// Runs of all images.
    len: u64,
    checks_len: bool,
    tile_pixels: u32,
    tile_groups: u32,
    /// Channels that the block moves at once in NCHW.
    rows: u32,
    checks_pixel: bool,
    checks_group: bool,
}

/// Whether one of the formats is NHWC.
pub(super) fn is_conversion(problem: &ConvertProblem) -> bool {
    [problem.from, problem.to]
        .iter()
        .any(|format| format.layout == Layout::Nhwc)
}

/// Whether the grid has enough blocks.
pub(in crate::scheme) fn fits(problem: &ConvertProblem) -> bool {
    let [_, y, z] = grid(problem);
    y.max(z) <= MAX_GRID
}

fn grid(problem: &ConvertProblem) -> [u32; 3] {
    let x = &problem.x;
    if keeps_order(problem) {
        return [runs(problem).div_ceil(THREADS.into()) as u32, 1, 1];
    }
    [
        (x.h * x.w).div_ceil(TILE_PIXELS),
        x.c.div_ceil(8 * TILE_GROUPS),
        x.batch,
    ]
}

/// The kernels in order: to split NHWC, the largest magnitude must be known first. The result is the output, or in the workspace.
pub(in crate::scheme) fn kernels(problem: &ConvertProblem, to: Arg) -> Vec<KernelBlueprint> {
    let maxima = is_to_split(problem).then(|| split_maxima::kernel(problem.x, to));
    maxima.into_iter().chain([kernel(problem, to)]).collect()
}

/// The work of their launches, with their roles.
pub(in crate::scheme) fn work(problem: &ConvertProblem) -> Vec<LaunchWork> {
    let maxima = is_to_split(problem).then(|| LaunchWork {
        role: split_maxima::ROLE,
        work: split_maxima::work(problem.x),
    });
    let conversion = LaunchWork {
        role: ROLE,
        work: kernel_work(problem),
    };
    maxima.into_iter().chain([conversion]).collect()
}

/// Role of the kernel that converts as a part of a convolution.
const ROLE: &str = "convert";

fn is_to_split(problem: &ConvertProblem) -> bool {
    problem.to == Format::SPLIT_NHWC
}

/// Whether only the type of the elements changes, not their order.
fn keeps_order(problem: &ConvertProblem) -> bool {
    !problem.has_view() && (problem.x.pixels() == 1 || is_to_fp32_nhwc(problem))
}

/// Whether both formats are NHWC: all images are one run of elements.
fn is_to_fp32_nhwc(problem: &ConvertProblem) -> bool {
    problem.to == Format::fp32(Layout::Nhwc)
}

/// Runs of eight channels of a tensor.
fn runs(problem: &ConvertProblem) -> u64 {
    problem.x.len() / u64::from(Format::RUN_CHANNELS)
}

fn kernel(problem: &ConvertProblem, to: Arg) -> KernelBlueprint {
    let x = &problem.x;
    let to_nhwc = problem.to.dtype != DType::Fp32;
    let dtypes = [problem.from.dtype, problem.to.dtype];
    let split = dtypes.contains(&DType::Split);
    let batched = x.batch > 1 && !is_to_fp32_nhwc(problem);
    let mut args = vec![Arg::X, to];
    if batched {
        args.push(match to_nhwc {
            true => Arg::XBatchStride,
            false => Arg::YBatchStride,
        });
    }
    KernelBlueprint {
        role: match to {
            Arg::Y => "kernel",
            _ => ROLE,
        },
        template: match keeps_order(problem) {
            true => "kernel/convert_runs.cu",
            false => "kernel/convert_nhwc.cu",
        },
        context: context(&ConvertNhwcContext {
            c: x.c,
            pixels: x.pixels(),
            batched,
            to_nhwc,
            to_workspace: to != Arg::Y,
            split,
            plane: runs(problem),
            pixel_runs: match to_nhwc {
                true => problem.to.pixel_runs(x.c),
                false => problem.from.pixel_runs(x.c),
            },
            pairs: StoredPairs::of(dtypes),
            len: runs(problem),
            checks_len: !runs(problem).is_multiple_of(THREADS.into()),
            tile_pixels: TILE_PIXELS,
            tile_groups: TILE_GROUPS,
            rows: THREADS / TILE_PIXELS,
            checks_pixel: !x.pixels().is_multiple_of(u64::from(TILE_PIXELS)),
            checks_group: !x.c.is_multiple_of(8 * TILE_GROUPS),
        }),
        grid: grid(problem),
        block: [THREADS, 1, 1],
        cluster: [1; 3],
        shared_bytes: 0,
        pdl: true,
        device: device_parts(dtypes),
        args,
        work: kernel_work(problem),
    }
}

fn kernel_work(problem: &ConvertProblem) -> KernelWork {
    let bytes = Problem::Convert(*problem).bytes() as f64;
    let shared_bytes = match keeps_order(problem) {
        true => 0,
        false => 4 * 8 * TILE_GROUPS * (TILE_PIXELS + 1),
    };
    KernelWork {
        blocks: grid(problem).iter().map(|&size| u64::from(size)).product(),
        threads: THREADS,
        registers: 32,
        shared_bytes,
        flops: problem.x.len() as f64,
        fma_fraction: 0.05,
        l2_bytes: bytes,
        dram_bytes: bytes,
        l2_round_trips: match is_to_split(problem) {
            // After the maxima are written: their number, the maxima, and the scale for all threads.
            true => 10.0,
            false => 1.5,
        },
        ..KernelWork::default()
    }
}
