//! `channel_norm`: normalisation over the channels of each pixel. A block has a few pixels; for each of them some threads go through the
//! channels. Lanes of a warp add their results by shuffles, warps in shared memory. A thread keeps the values of its channels in registers
//! unless there are too many.

use super::info::SchemeInfo;
use super::{
    Blueprint, DevicePart, KernelBlueprint, Scheme, Tile, TileField, batch_stride_args, context,
    tile_numbers,
};
use crate::cost::KernelWork;
use crate::gpu::Gpu;
use crate::ir::{ChannelNorm as Norm, Problem};
use serde::Serialize;
use tdc_runtime::{Arg, WeightLayout};

/// Maximum number of channels of a thread whose values, and the scales and shifts of a layer norm, are kept in registers.
const MAX_KEPT: u32 = 24;

/// See the [module](self).
pub struct ChannelNorm;

tile_numbers! {
    /// A tile of the [module](self)'s scheme.
    struct ChannelNormTile {
        /// Pixels of a block.
        tp: "p",
        /// Threads that go through the channels of a pixel.
        threads_k: "xk",
    }
}

#[derive(Serialize)]
struct ChannelNormContext {
    c: u32,
    pixels: u64,
    /// Pixels of all images of the batch.
    all_pixels: u64,
    tp: u32,
    threads_k: u32,
    threads: u32,
    /// Channels of a thread.
    values: u32,
    /// Their values are kept in registers.
    kept: bool,
    batched: bool,
    checks_pixel: bool,
    /// The last of a thread's channels may be beyond the last one.
    checks_channel: bool,
    softmax: bool,
    layer_norm: bool,
    l2: bool,
    /// As a literal.
    eps: String,
}

impl Scheme for ChannelNorm {
    fn name(&self) -> &'static str {
        "channel_norm"
    }

    fn info(&self) -> SchemeInfo {
        SchemeInfo::own("softmax, layer norm and L2 norm over the channels of each pixel")
    }

    fn tile_fields(&self) -> &'static [TileField] {
        ChannelNormTile::FIELDS
    }

    fn tiles(&self, problem: &Problem, _gpu: &Gpu) -> Vec<Tile> {
        let Problem::ChannelNorm(_) = problem else {
            return Vec::new();
        };
        let tile = |(tp, threads_k)| ChannelNormTile { tp, threads_k }.into();
        // At least half a sector of eight pixels at a time, unless there are fewer.
        [
            (1, 32),
            (1, 128),
            (1, 256),
            (4, 32),
            (4, 64),
            (4, 128),
            (8, 16),
            (8, 32),
            (8, 64),
            (16, 16),
            (16, 32),
            (32, 4),
            (32, 8),
            (32, 16),
        ]
        .map(tile)
        .to_vec()
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile, _gpu: &Gpu) -> Blueprint {
        let Problem::ChannelNorm(p) = problem else {
            unreachable!("channel_norm has tiles for normalisations only");
        };
        let ChannelNormTile { tp, threads_k } =
            ChannelNormTile::from_tile(tile).expect("a supported tile");
        let threads = tp * threads_k;
        let all_pixels = u64::from(p.x.batch) * p.x.pixels();
        let blocks = all_pixels.div_ceil(u64::from(tp));
        let has_parameters = problem.scale_shift_channels() > 0;
        let mut args = vec![Arg::X];
        args.extend(has_parameters.then_some(Arg::Packed));
        args.push(Arg::Y);
        args.extend(batch_stride_args(p.x.batch, false));
        let eps = match p.norm {
            Norm::LayerNorm { eps } | Norm::L2 { eps } => format!("{:e}f", eps.get()),
            Norm::Softmax => String::new(),
        };
        let reductions = match p.norm {
            Norm::Softmax | Norm::LayerNorm { .. } => 2.0,
            Norm::L2 { .. } => 1.0,
        };
        let values = p.x.c.div_ceil(threads_k);
        let kept = values <= MAX_KEPT;
        // A load moves a sector of eight floats, of which a block uses its pixels. Parts of sectors are also stored more slowly.
        let waste = match tp {
            ..8 => (1.5 * f64::from(8 / tp)).min(p.x.pixels() as f64),
            _ => 1.0,
        };
        Blueprint {
            kernels: vec![KernelBlueprint {
                role: "kernel",
                template: "kernel/channel_norm.cu",
                context: context(&ChannelNormContext {
                    c: p.x.c,
                    pixels: p.x.pixels(),
                    all_pixels,
                    tp,
                    threads_k,
                    threads,
                    values,
                    kept,
                    batched: p.x.batch > 1,
                    checks_pixel: !all_pixels.is_multiple_of(u64::from(tp)),
                    checks_channel: !p.x.c.is_multiple_of(threads_k),
                    softmax: p.norm == Norm::Softmax,
                    layer_norm: matches!(p.norm, Norm::LayerNorm { .. }),
                    l2: matches!(p.norm, Norm::L2 { .. }),
                    eps,
                }),
                grid: [blocks as u32, 1, 1],
                block: [threads, 1, 1],
                cluster: [1; 3],
                shared_bytes: 0,
                pdl: true,
                device: &[DevicePart::Pdl],
                args,
                work: KernelWork {
                    blocks,
                    threads,
                    registers: if kept { 24 + 3 * values } else { 32 },
                    // Two numbers of each warp and pixel.
                    shared_bytes: 8 * (threads / 32) * tp,
                    flops: problem.flops() as f64,
                    fma_fraction: 0.1,
                    l2_bytes: waste * problem.bytes() as f64,
                    dram_bytes: problem.bytes() as f64,
                    l2_round_trips: 2.0
                        + reductions * (0.1 + 0.03 * f64::from(threads / 32))
                        // Values are loaded at once into registers, else a few at a time in each pass.
                        + match kept {
                            true => f64::from(values) / 64.0,
                            false => (1.0 + reductions) * f64::from(values) / 3.0,
                        },
                    ..KernelWork::default()
                },
            }],
            zeroed: None,
            workspace_bytes: 0,
            weights: WeightLayout::NONE.with_prologue(problem.scale_shift_channels()),
            extra_weight_layouts: Vec::new(),
        }
    }
}
