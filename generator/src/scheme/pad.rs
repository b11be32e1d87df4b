//! `pad`: rows and columns around images, with one thread for each output element.

use super::info::SchemeInfo;
use super::{
    Blueprint, DevicePart, KernelBlueprint, Scheme, Tile, TileField, batch_stride_args, context,
    tile_numbers,
};
use crate::cost::KernelWork;
use crate::gpu::Gpu;
use crate::ir::{PadMode, Problem};
use serde::Serialize;
use tdc_runtime::{Arg, WeightLayout};

/// See the [module](self).
pub struct Pad;

tile_numbers! {
    /// A tile of the [module](self)'s scheme.
    struct PadTile {
        /// Threads of a block.
        threads: "t",
    }
}

#[derive(Serialize)]
struct PadContext {
    c: u32,
    h: u32,
    w: u32,
    out_h: u32,
    out_w: u32,
    pad_top: u32,
    pad_left: u32,
    threads: u32,
    len: u64,
    image_len: u64,
    batched: bool,
    checks_len: bool,
    reflect: bool,
    /// The constant around the images as a literal.
    constant: Option<String>,
}

impl Scheme for Pad {
    fn name(&self) -> &'static str {
        "pad"
    }

    fn info(&self) -> SchemeInfo {
        SchemeInfo::own("padding of images by a constant, their edge or their reflection")
    }

    fn tile_fields(&self) -> &'static [TileField] {
        PadTile::FIELDS
    }

    fn tiles(&self, problem: &Problem, _gpu: &Gpu) -> Vec<Tile> {
        match problem {
            Problem::Pad(_) => [64, 128, 256]
                .map(|threads| PadTile { threads }.into())
                .to_vec(),
            _ => Vec::new(),
        }
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile, _gpu: &Gpu) -> Blueprint {
        let Problem::Pad(p) = problem else {
            unreachable!("pad has tiles for padding only");
        };
        let PadTile { threads } = PadTile::from_tile(tile).expect("a supported tile");
        let y = problem.y();
        let blocks = y.len().div_ceil(u64::from(threads));
        let mut args = vec![Arg::X, Arg::Y];
        args.extend(batch_stride_args(p.x.batch, false));
        Blueprint {
            kernels: vec![KernelBlueprint {
                role: "kernel",
                template: "kernel/pad.cu",
                context: context(&PadContext {
                    c: p.x.c,
                    h: p.x.h,
                    w: p.x.w,
                    out_h: y.h,
                    out_w: y.w,
                    pad_top: p.padding.top,
                    pad_left: p.padding.left,
                    threads,
                    len: y.len(),
                    image_len: y.image_len(),
                    batched: p.x.batch > 1,
                    checks_len: !y.len().is_multiple_of(u64::from(threads)),
                    reflect: p.mode == PadMode::Reflect,
                    constant: match p.mode {
                        PadMode::Constant(value) => Some(format!("{:e}f", value.get())),
                        PadMode::Reflect | PadMode::Edge => None,
                    },
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
                    registers: 24,
                    shared_bytes: 0,
                    flops: problem.flops() as f64,
                    fma_fraction: 0.1,
                    l2_bytes: problem.bytes() as f64,
                    dram_bytes: problem.bytes() as f64,
                    l2_round_trips: 1.5,
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
