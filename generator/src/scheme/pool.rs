//! `pool`: maximum or average over windows, with one thread for each output element.

use super::info::SchemeInfo;
use super::{
    Blueprint, DevicePart, KernelBlueprint, Scheme, Tile, TileField, batch_stride_args, context,
    tile_numbers,
};
use crate::cost::KernelWork;
use crate::gpu::Gpu;
use crate::ir::{PoolKind, Problem};
use serde::Serialize;
use tdc_runtime::{Arg, WeightLayout};

/// See the [module](self).
pub struct Pool;

tile_numbers! {
    /// A tile of the [module](self)'s scheme.
    struct PoolTile {
        /// Threads of a block.
        threads: "t",
    }
}

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
    threads: u32,
    len: u64,
    image_len: u64,
    batched: bool,
    checks_len: bool,
    max: bool,
    count_include_pad: bool,
    /// The loop over a window is unrolled, so that its loads are in flight together.
    unrolls: bool,
}

/// Maximum number of elements of a window whose loop is unrolled.
const MAX_UNROLLED: u64 = 64;

impl Scheme for Pool {
    fn name(&self) -> &'static str {
        "pool"
    }

    fn info(&self) -> SchemeInfo {
        SchemeInfo::own("maximum and average pooling")
    }

    fn tile_fields(&self) -> &'static [TileField] {
        PoolTile::FIELDS
    }

    fn tiles(&self, problem: &Problem, _gpu: &Gpu) -> Vec<Tile> {
        match problem {
            Problem::Pool(_) => [64, 128, 256, 512]
                .map(|threads| PoolTile { threads }.into())
                .to_vec(),
            _ => Vec::new(),
        }
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile, _gpu: &Gpu) -> Blueprint {
        let Problem::Pool(p) = problem else {
            unreachable!("pool has tiles for pooling only");
        };
        let PoolTile { threads } = PoolTile::from_tile(tile).expect("a supported tile");
        let y = problem.y();
        let blocks = y.len().div_ceil(u64::from(threads));
        let pad = p.padding;
        let mut args = vec![Arg::X, Arg::Y];
        args.extend(batch_stride_args(p.x.batch, false));
        Blueprint {
            kernels: vec![KernelBlueprint {
                role: "kernel",
                template: "kernel/pool.cu",
                context: context(&PoolContext {
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
                    threads,
                    len: y.len(),
                    image_len: y.image_len(),
                    batched: p.x.batch > 1,
                    checks_len: !y.len().is_multiple_of(u64::from(threads)),
                    max: p.kind == PoolKind::Max,
                    count_include_pad: p.kind
                        == PoolKind::Avg {
                            count_include_pad: true,
                        },
                    unrolls: u64::from(p.kernel[0]) * u64::from(p.kernel[1]) <= MAX_UNROLLED,
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
                    registers: 32,
                    shared_bytes: 0,
                    flops: problem.flops() as f64,
                    fma_fraction: 0.1,
                    l2_bytes: problem.bytes() as f64,
                    dram_bytes: problem.bytes() as f64,
                    l2_round_trips: 2.0,
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
