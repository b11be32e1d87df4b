//! `elementwise`: additions, ReLU, affine maps and copies that no convolution could take over, one thread an element.

use super::{Blueprint, DevicePart, KernelBlueprint, Scheme, Tile, context, stride_args};
use crate::cost::KernelWork;
use crate::ir::{Elementwise, Problem};
use serde::Serialize;
use tdc_runtime::{Arg, WeightLayout};

/// See the [module](self).
pub struct ElementwiseScheme;

#[derive(Serialize)]
struct Context {
    c: u32,
    pixels: u64,
    threads: u32,
    len: u64,
    image_len: u64,
    batched: bool,
    checks_len: bool,
    add: bool,
    affine: bool,
    relu: bool,
    residual: bool,
}

impl Scheme for ElementwiseScheme {
    fn name(&self) -> &'static str {
        "elementwise"
    }

    fn tile_names(&self) -> &'static [&'static str] {
        &["t"]
    }

    fn tiles(&self, problem: &Problem) -> Vec<Tile> {
        match problem {
            Problem::Elementwise(_) => [64, 128, 256].map(|threads| Tile(vec![threads])).to_vec(),
            _ => Vec::new(),
        }
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile) -> Blueprint {
        let Problem::Elementwise(p) = problem else {
            unreachable!("elementwise has tiles for maps only");
        };
        let threads = tile.0[0];
        let len = p.x.len();
        let blocks = len.div_ceil(u64::from(threads));
        let add = matches!(p.function, Elementwise::Add { .. });
        let affine = problem.affine_channels() > 0;
        let relu = match p.function {
            Elementwise::Add { relu } | Elementwise::ScaleShift { relu } => relu,
            Elementwise::Relu => true,
            Elementwise::Copy => false,
        };
        let mut args = vec![Arg::X];
        args.extend(add.then_some(Arg::Residual));
        args.extend(affine.then_some(Arg::Packed));
        args.push(Arg::Y);
        args.extend(stride_args(p.x.batch, add));
        Blueprint {
            kernels: vec![KernelBlueprint {
                role: "kernel",
                template: "kernel/elementwise.cu",
                context: context(&Context {
                    c: p.x.c,
                    pixels: p.x.pixels(),
                    threads,
                    len,
                    image_len: p.x.image_len(),
                    batched: p.x.batch > 1,
                    checks_len: !len.is_multiple_of(u64::from(threads)),
                    add,
                    affine,
                    relu,
                    residual: add,
                }),
                grid: [blocks as u32, 1, 1],
                block: [threads, 1, 1],
                cluster: [1; 3],
                shared_bytes: 0,
                overlaps: true,
                device: &[DevicePart::Overlap],
                args,
                work: KernelWork {
                    blocks,
                    threads,
                    registers: 20,
                    shared_bytes: 0,
                    flops: len as f64,
                    fma_share: 0.1,
                    l2_bytes: problem.bytes() as f64,
                    dram_bytes: problem.bytes() as f64,
                    trips: 1.5,
                    ..KernelWork::default()
                },
            }],
            zeroed: None,
            workspace_bytes: 0,
            weights: WeightLayout::NONE.with_prologue(problem.affine_channels()),
            more_weights: Vec::new(),
        }
    }
}
