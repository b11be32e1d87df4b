//! `resize`: interpolation of images, with one thread for each output element.

use super::info::SchemeInfo;
use super::{
    Blueprint, DevicePart, KernelBlueprint, Scheme, Tile, TileField, batch_stride_args, context,
    tile_numbers,
};
use crate::cost::KernelWork;
use crate::gpu::Gpu;
use crate::ir::{AxisPlaces, Interpolation, Problem, ResizeProblem, Rounding};
use serde::Serialize;
use tdc_runtime::{Arg, WeightLayout};

/// See the [module](self).
pub struct Resize;

tile_numbers! {
    /// A tile of the [module](self)'s scheme.
    struct ResizeTile {
        /// Threads of a block.
        threads: "t",
    }
}

#[derive(Serialize)]
struct ResizeContext {
    c: u32,
    h: u32,
    w: u32,
    out_h: u32,
    out_w: u32,
    threads: u32,
    len: u64,
    image_len: u64,
    batched: bool,
    checks_len: bool,
    bilinear: bool,
    row: AxisPlaces,
    column: AxisPlaces,
}

/// The places of the pixels that are read, the fraction of which is dropped: those of `problem` rounded, or for bilinear interpolation as
/// they are.
fn rounded_places(problem: &ResizeProblem, axis: usize) -> AxisPlaces {
    let AxisPlaces {
        scale,
        shift,
        divisor,
    } = problem.places(axis);
    let twice = |rest: i64| AxisPlaces {
        scale: 2 * scale,
        shift: 2 * shift + rest,
        divisor: 2 * divisor,
    };
    match problem.interpolation {
        // ceil(p - 1/2) and floor(p + 1/2).
        Interpolation::Nearest(Rounding::PreferFloor) => twice(divisor - 1),
        Interpolation::Nearest(Rounding::PreferCeil) => twice(divisor),
        Interpolation::Nearest(Rounding::Ceil) => AxisPlaces {
            scale,
            shift: shift + divisor - 1,
            divisor,
        },
        Interpolation::Nearest(Rounding::Floor) | Interpolation::Bilinear => AxisPlaces {
            scale,
            shift,
            divisor,
        },
    }
}

impl Scheme for Resize {
    fn name(&self) -> &'static str {
        "resize"
    }

    fn info(&self) -> SchemeInfo {
        SchemeInfo::own("nearest and bilinear interpolation of images")
    }

    fn tile_fields(&self) -> &'static [TileField] {
        ResizeTile::FIELDS
    }

    fn tiles(&self, problem: &Problem, _gpu: &Gpu) -> Vec<Tile> {
        match problem {
            Problem::Resize(_) => [64, 128, 256]
                .map(|threads| ResizeTile { threads }.into())
                .to_vec(),
            _ => Vec::new(),
        }
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile, _gpu: &Gpu) -> Blueprint {
        let Problem::Resize(p) = problem else {
            unreachable!("resize has tiles for resizing only");
        };
        let ResizeTile { threads } = ResizeTile::from_tile(tile).expect("a supported tile");
        let y = problem.y();
        let blocks = y.len().div_ceil(u64::from(threads));
        let mut args = vec![Arg::X, Arg::Y];
        args.extend(batch_stride_args(p.x.batch, false));
        Blueprint {
            kernels: vec![KernelBlueprint {
                role: "kernel",
                template: "kernel/resize.cu",
                context: context(&ResizeContext {
                    c: p.x.c,
                    h: p.x.h,
                    w: p.x.w,
                    out_h: y.h,
                    out_w: y.w,
                    threads,
                    len: y.len(),
                    image_len: y.image_len(),
                    batched: p.x.batch > 1,
                    checks_len: !y.len().is_multiple_of(u64::from(threads)),
                    bilinear: p.interpolation == Interpolation::Bilinear,
                    row: rounded_places(p, 0),
                    column: rounded_places(p, 1),
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
