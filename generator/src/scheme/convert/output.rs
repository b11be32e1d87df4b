//! Conversion of fp32 NCHW to a format of a network's output that [`nhwc`] does not write: fp32 NHWC, 16-bit numbers in NCHW, and in
//! NHWC whose channels are no multiple of eight.

use super::nhwc;
use crate::cost::KernelWork;
use crate::ir::{ConvertProblem, DType, Format, Layout, Problem};
use crate::scheme::stored_pairs::{StoredPairs, device_parts};
use crate::scheme::{KernelBlueprint, context};
use serde::Serialize;
use tdc_runtime::Arg;

/// Threads of a block.
pub(super) const THREADS: u32 = 256;

/// The most channels of a block's tile: 128 bytes of a pixel in fp32.
const TILE_CHANNELS: u32 = 32;

/// The least and the most pixels of a block's tile: 128 and 512 bytes of a channel.
const TILE_PIXELS: [u32; 2] = [32, 128];

/// Whether the conversion is one of the [module](self)'s.
pub(super) fn is_conversion(problem: &ConvertProblem) -> bool {
    let has_runs = Format::FP16_NHWC.fits_channels(problem.x.c);
    problem.from == Format::default()
        && !problem.has_view()
        && match problem.to {
            to if to.is_16_bit_nhwc() => !has_runs || !nhwc::fits(problem),
            Format::FP16_NCHW | Format::BF16_NCHW => true,
            to => to == Format::fp32(Layout::Nhwc),
        }
}

#[derive(Serialize)]
struct ConvertOutputContext {
    threads: u32,
    c: u32,
    pixels: u64,
    /// Elements of an image.
    image_len: u64,
    /// Elements of all images.
    len: u64,
    batched: bool,
    /// The output has 16-bit numbers.
    to_16_bits: bool,
    #[serde(flatten)]
    pairs: StoredPairs,
    checks_len: bool,
    tile_channels: u32,
    tile_pixels: u32,
    channel_tiles: u32,
    pixel_tiles: u64,
    /// The condition for an element of the tile to be one of the image; `None` if all are.
    bounds: Option<&'static str>,
}

/// Whether only the type of the elements changes, not their order.
fn keeps_order(problem: &ConvertProblem) -> bool {
    let x = &problem.x;
    problem.to.layout == Layout::Nchw || x.pixels() == 1 || x.c == 1
}

pub(super) fn kernel(problem: &ConvertProblem) -> KernelBlueprint {
    let x = &problem.x;
    let keeps_order = keeps_order(problem);
    let dtypes = [problem.from.dtype, problem.to.dtype];
    let tile_channels = x.c.min(TILE_CHANNELS);
    let [least, most] = TILE_PIXELS;
    let tile_pixels = most.min(TILE_CHANNELS / tile_channels * least);
    let channel_tiles = x.c.div_ceil(tile_channels);
    let pixel_tiles = x.pixels().div_ceil(tile_pixels.into());
    let blocks = match keeps_order {
        true => x.len().div_ceil(THREADS.into()),
        false => u64::from(x.batch) * u64::from(channel_tiles) * pixel_tiles,
    };
    let bytes = Problem::Convert(*problem).bytes() as f64;
    let mut args = vec![Arg::X, Arg::Y];
    args.extend((x.batch > 1).then_some(Arg::XBatchStride));
    KernelBlueprint {
        role: "kernel",
        template: match keeps_order {
            true => "kernel/convert_elements.cu",
            false => "kernel/convert_output.cu",
        },
        context: context(&ConvertOutputContext {
            threads: THREADS,
            c: x.c,
            pixels: x.pixels(),
            image_len: x.image_len(),
            len: x.len(),
            batched: x.batch > 1,
            to_16_bits: problem.to.dtype != DType::Fp32,
            pairs: StoredPairs::of(dtypes),
            checks_len: !x.len().is_multiple_of(THREADS.into()),
            tile_channels,
            tile_pixels,
            channel_tiles,
            pixel_tiles,
            bounds: match (
                x.pixels().is_multiple_of(tile_pixels.into()),
                x.c.is_multiple_of(tile_channels),
            ) {
                (true, true) => None,
                (false, true) => Some("pixel0 + pixel < PIXELS"),
                (true, false) => Some("channel0 + channel < C"),
                (false, false) => Some("pixel0 + pixel < PIXELS && channel0 + channel < C"),
            },
        }),
        // No more blocks than elements, whose number fits an `int`.
        grid: [blocks as u32, 1, 1],
        block: [THREADS, 1, 1],
        cluster: [1; 3],
        shared_bytes: 0,
        pdl: true,
        device: device_parts(dtypes),
        args,
        work: KernelWork {
            blocks,
            threads: THREADS,
            registers: 32,
            shared_bytes: match keeps_order {
                true => 0,
                false => 4 * tile_channels * (tile_pixels + 1),
            },
            flops: x.len() as f64,
            fma_fraction: 0.05,
            l2_bytes: bytes,
            dram_bytes: bytes,
            l2_round_trips: 1.5,
            ..KernelWork::default()
        },
    }
}
