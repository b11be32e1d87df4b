//! `convert`: conversion between formats. It transposes pixels with channels (in HWCN also with images) in tiles through shared memory.

pub(super) mod nhwc;
mod output;

use super::info::SchemeInfo;
use super::{
    Blueprint, DevicePart, KernelBlueprint, Scheme, Tile, TileField, context, tile_numbers,
};
use crate::cost::KernelWork;
use crate::gpu::Gpu;
use crate::ir::{Layout, Problem};
use serde::Serialize;
use tdc_runtime::{Arg, WeightLayout};

/// See the [module](self).
pub struct Convert;

tile_numbers! {
    /// A tile of the [module](self)'s scheme.
    struct ConvertTile {
        /// Threads of a block.
        threads: "t",
    }
}

/// Size of a block's tile along the pixels, and along channels times images: each warp reads and writes 128 contiguous bytes.
const TILE: u32 = 32;

#[derive(Serialize)]
struct ConvertContext {
    batch: u32,
    c: u32,
    pixels: u64,
    /// Channels times images.
    columns: u64,
    to_hwcn: bool,
    tile: u32,
    /// Threads of a block, and rows of a tile that they move at once.
    threads: u32,
    rows: u32,
    /// Tiles along channels times images.
    column_tiles: u64,
    checks_pixel: bool,
    checks_column: bool,
}

impl Scheme for Convert {
    fn name(&self) -> &'static str {
        "convert"
    }

    fn info(&self) -> SchemeInfo {
        SchemeInfo::own(
            "conversions between fp32 NCHW and HWCN, fp16 NHWC, bf16 NHWC or split NHWC, and to the formats of outputs",
        )
    }

    fn tile_fields(&self) -> &'static [TileField] {
        ConvertTile::FIELDS
    }

    fn tiles(&self, problem: &Problem, _gpu: &Gpu) -> Vec<Tile> {
        match problem {
            Problem::Convert(p) => {
                let threads: &[u32] = match (output::is_conversion(p), nhwc::is_conversion(p)) {
                    (true, _) => &[output::THREADS],
                    (_, true) if nhwc::fits(p) => &[nhwc::THREADS],
                    (_, true) => &[],
                    _ => &[128, 256],
                };
                let tiles = threads.iter().map(|&threads| ConvertTile { threads });
                tiles.map(Tile::from).collect()
            }
            _ => Vec::new(),
        }
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile, _gpu: &Gpu) -> Blueprint {
        let Problem::Convert(p) = problem else {
            unreachable!("convert has tiles for conversions only");
        };
        if output::is_conversion(p) {
            return unweighted(vec![output::kernel(p)]);
        }
        if nhwc::is_conversion(p) {
            return unweighted(nhwc::kernels(p, Arg::Y));
        }
        let ConvertTile { threads } = ConvertTile::from_tile(tile).expect("a supported tile");
        let to_hwcn = p.to.layout == Layout::Hwcn;
        let pixels = p.x.pixels();
        let columns = u64::from(p.x.c) * u64::from(p.x.batch);
        let column_tiles = columns.div_ceil(u64::from(TILE));
        let blocks = pixels.div_ceil(u64::from(TILE)) * column_tiles;
        let mut args = vec![Arg::X, Arg::Y];
        if p.x.batch > 1 {
            args.push(if to_hwcn {
                Arg::XBatchStride
            } else {
                Arg::YBatchStride
            });
        }
        let kernel = KernelBlueprint {
            role: "kernel",
            template: "kernel/convert.cu",
            context: context(&ConvertContext {
                batch: p.x.batch,
                c: p.x.c,
                pixels,
                columns,
                to_hwcn,
                tile: TILE,
                threads,
                rows: threads / TILE,
                column_tiles,
                checks_pixel: !pixels.is_multiple_of(u64::from(TILE)),
                checks_column: !columns.is_multiple_of(u64::from(TILE)),
            }),
            // No more blocks than elements, whose number fits an `int`.
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
                shared_bytes: 4 * TILE * (TILE + 1),
                flops: p.x.len() as f64,
                fma_fraction: 0.05,
                l2_bytes: problem.bytes() as f64,
                dram_bytes: problem.bytes() as f64,
                l2_round_trips: 1.5,
                ..KernelWork::default()
            },
        };
        unweighted(vec![kernel])
    }
}

fn unweighted(kernels: Vec<KernelBlueprint>) -> Blueprint {
    Blueprint {
        kernels,
        zeroed: None,
        workspace_bytes: 0,
        weights: WeightLayout::NONE,
        extra_weight_layouts: Vec::new(),
    }
}
