//! `global_pool`: maximum or average of each channel, with one warp for each channel, or for 32 channels in the NHWC formats, reduced by a
//! butterfly of shuffles.

use super::info::SchemeInfo;
use super::stored_pairs::{StoredPairs, device_parts};
use super::{
    Blueprint, KernelBlueprint, Scheme, Tile, TileField, batch_stride_args, context, tile_numbers,
    without_nhwc_strides,
};
use crate::cost::KernelWork;
use crate::gpu::Gpu;
use crate::ir::{Format, Layout, Problem};
use serde::Serialize;
use tdc_runtime::{Arg, WeightLayout};

/// See the [module](self).
pub struct GlobalPool;

tile_numbers! {
    /// A tile of the [module](self)'s scheme.
    struct GlobalPoolTile {
        /// Warps of a block, one a channel.
        warps: "wt",
    }
}

#[derive(Serialize)]
struct GlobalPoolContext {
    c: u32,
    pixels: u64,
    warps: u32,
    /// Channels of all images of the batch.
    channels: u64,
    batched: bool,
    checks_channel: bool,
    max: bool,
    batch: u32,
    /// In NHWC: warps of an image, and whether the last one has fewer channels than the others.
    channel_warps: u32,
    checks_group: bool,
    /// Two numbers for each value; runs from hi to lo.
    split: bool,
    plane: u64,
    #[serde(flatten)]
    pairs: StoredPairs,
}

/// Channels of a warp in NHWC.
const NHWC_CHANNELS: u32 = 32;

impl Scheme for GlobalPool {
    fn name(&self) -> &'static str {
        "global_pool"
    }

    fn info(&self) -> SchemeInfo {
        SchemeInfo::own("global maximum and average pooling")
    }

    fn tile_fields(&self) -> &'static [TileField] {
        GlobalPoolTile::FIELDS
    }

    fn tiles(&self, problem: &Problem, _gpu: &Gpu) -> Vec<Tile> {
        match problem {
            Problem::GlobalPool(_) => [1, 2, 4, 8]
                .map(|warps| GlobalPoolTile { warps }.into())
                .to_vec(),
            _ => Vec::new(),
        }
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile, _gpu: &Gpu) -> Blueprint {
        let Problem::GlobalPool(p) = problem else {
            unreachable!("global_pool has tiles for global pooling only");
        };
        let GlobalPoolTile { warps } = GlobalPoolTile::from_tile(tile).expect("a supported tile");
        let is_nhwc = p.input.layout == Layout::Nhwc;
        let split = p.input == Format::SPLIT_NHWC;
        let dtypes = [p.input.dtype, problem.kind().output().format.dtype];
        let channels_of_warp = if is_nhwc { NHWC_CHANNELS } else { 1 };
        let channel_warps = p.x.c.div_ceil(channels_of_warp);
        let channels = u64::from(p.x.batch) * u64::from(channel_warps);
        let blocks = channels.div_ceil(u64::from(warps));
        let mut args = vec![Arg::X, Arg::Y];
        args.extend(batch_stride_args(p.x.batch, false));
        let args = without_nhwc_strides(args, problem);
        Blueprint {
            kernels: vec![KernelBlueprint {
                role: "kernel",
                template: match is_nhwc {
                    true => "kernel/global_pool_nhwc.cu",
                    false => "kernel/global_pool.cu",
                },
                context: context(&GlobalPoolContext {
                    c: p.x.c,
                    pixels: p.x.pixels(),
                    warps,
                    channels,
                    batched: p.x.batch > 1,
                    checks_channel: !channels.is_multiple_of(u64::from(warps)),
                    max: p.max,
                    batch: p.x.batch,
                    channel_warps,
                    checks_group: !p.x.c.is_multiple_of(channels_of_warp),
                    split,
                    plane: p.x.len() / u64::from(Format::RUN_CHANNELS),
                    pairs: StoredPairs::of(dtypes),
                }),
                grid: [blocks as u32, 1, 1],
                block: [32, warps, 1],
                cluster: [1; 3],
                shared_bytes: 0,
                pdl: true,
                device: device_parts(dtypes),
                args,
                work: KernelWork {
                    blocks,
                    threads: 32 * warps,
                    registers: 24,
                    shared_bytes: 0,
                    flops: problem.flops() as f64,
                    fma_fraction: 0.1,
                    l2_bytes: problem.bytes() as f64,
                    dram_bytes: problem.bytes() as f64,
                    l2_round_trips: 3.2
                        + p.x.pixels() as f64 / if is_nhwc { 8.0 } else { 32.0 } / 4.0,
                    ..KernelWork::default()
                },
            }],
            zeroed: None,
            workspace_bytes: 0,
            weights: WeightLayout::NONE,
            extra_weight_layouts: Vec::new(),
        }
    }
}
