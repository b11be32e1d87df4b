//! `lrn`: local response normalisation, with one thread for each element.

use super::info::SchemeInfo;
use super::{
    Blueprint, DevicePart, KernelBlueprint, Scheme, Tile, TileField, batch_stride_args, context,
    tile_numbers,
};
use crate::cost::KernelWork;
use crate::gpu::Gpu;
use crate::ir::Problem;
use serde::Serialize;
use tdc_runtime::{Arg, WeightLayout};

/// See the [module](self).
pub struct Lrn;

tile_numbers! {
    /// A tile of the [module](self)'s scheme.
    struct LrnTile {
        /// Threads of a block.
        threads: "t",
    }
}

#[derive(Serialize)]
struct LrnContext {
    c: u32,
    pixels: u64,
    threads: u32,
    len: u64,
    image_len: u64,
    batched: bool,
    checks_len: bool,
    /// Channels of a window before and after its own, at most all of them.
    before: u32,
    after: u32,
    /// `alpha / size`, `k` and `beta` as literals.
    scale: String,
    k: String,
    beta: String,
}

impl Scheme for Lrn {
    fn name(&self) -> &'static str {
        "lrn"
    }

    fn info(&self) -> SchemeInfo {
        SchemeInfo::own("local response normalisation")
    }

    fn tile_fields(&self) -> &'static [TileField] {
        LrnTile::FIELDS
    }

    fn tiles(&self, problem: &Problem, _gpu: &Gpu) -> Vec<Tile> {
        match problem {
            Problem::Lrn(_) => [64, 128, 256]
                .map(|threads| LrnTile { threads }.into())
                .to_vec(),
            _ => Vec::new(),
        }
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile, _gpu: &Gpu) -> Blueprint {
        let Problem::Lrn(p) = problem else {
            unreachable!("lrn has tiles for local response normalisation only");
        };
        let LrnTile { threads } = LrnTile::from_tile(tile).expect("a supported tile");
        let len = p.x.len();
        let blocks = len.div_ceil(u64::from(threads));
        let window = p.lrn.size.min(p.x.c);
        let mut args = vec![Arg::X, Arg::Y];
        args.extend(batch_stride_args(p.x.batch, false));
        let literal = |number: f32| format!("{number:e}f");
        let scale = f64::from(p.lrn.alpha.get()) / f64::from(p.lrn.size);
        Blueprint {
            kernels: vec![KernelBlueprint {
                role: "kernel",
                template: "kernel/lrn.cu",
                context: context(&LrnContext {
                    c: p.x.c,
                    pixels: p.x.pixels(),
                    threads,
                    len,
                    image_len: p.x.image_len(),
                    batched: p.x.batch > 1,
                    checks_len: !len.is_multiple_of(u64::from(threads)),
                    before: p.lrn.before().min(p.x.c),
                    after: p.lrn.after().min(p.x.c),
                    scale: literal(scale as f32),
                    k: literal(p.lrn.k.get()),
                    beta: literal(p.lrn.beta.get()),
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
                    fma_fraction: 0.5,
                    // Each element is read by all windows that have it.
                    l2_bytes: problem.bytes() as f64 * (1.0 + f64::from(window)) / 2.0,
                    dram_bytes: problem.bytes() as f64,
                    l2_round_trips: 1.5 + f64::from(window) / 4.0,
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
