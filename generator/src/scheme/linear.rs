//! `linear`: a fully connected layer, with one warp for each output feature.
//!
//! The lanes of a warp read adjacent weights of a row, and add their partial sums by a butterfly of shuffles in a fixed order.

use super::info::SchemeInfo;
use super::{
    Blueprint, DevicePart, KernelBlueprint, Scheme, Tile, TileField, activation_function,
    batch_stride_args, context, tile_numbers,
};
use crate::cost::KernelWork;
use crate::gpu::Gpu;
use crate::ir::{MAX_ELEMENTS, Problem};
use serde::Serialize;
use tdc_runtime::{Arg, WeightLayout};

/// See the [module](self).
pub struct Linear;

tile_numbers! {
    /// A tile of the [module](self)'s scheme.
    struct LinearTile {
        /// Warps of a block, one an output feature.
        warps: "wt",
    }
}

#[derive(Serialize)]
struct LinearContext {
    c: u32,
    n: u32,
    warps: u32,
    row_blocks: u32,
    batched: bool,
    checks_n: bool,
    bias: bool,
    activation: Option<String>,
}

impl Scheme for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn info(&self) -> SchemeInfo {
        SchemeInfo::own("fully connected layers")
    }

    fn tile_fields(&self) -> &'static [TileField] {
        LinearTile::FIELDS
    }

    fn tiles(&self, problem: &Problem, _gpu: &Gpu) -> Vec<Tile> {
        match problem {
            Problem::Linear(p) if u64::from(p.batch) * u64::from(p.n) <= MAX_ELEMENTS => {
                [1, 2, 4, 8]
                    .map(|warps| LinearTile { warps }.into())
                    .to_vec()
            }
            _ => Vec::new(),
        }
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile, _gpu: &Gpu) -> Blueprint {
        let Problem::Linear(p) = problem else {
            unreachable!("linear has tiles for linear layers only");
        };
        let LinearTile { warps } = LinearTile::from_tile(tile).expect("a supported tile");
        let row_blocks = p.n.div_ceil(warps);
        let mut args = vec![Arg::X, Arg::Packed];
        args.extend(p.epilogue.bias.then_some(Arg::Bias));
        args.push(Arg::Y);
        args.extend(batch_stride_args(p.batch, false));
        let blocks = u64::from(row_blocks) * u64::from(p.batch);
        Blueprint {
            kernels: vec![KernelBlueprint {
                role: "kernel",
                template: "kernel/linear.cu",
                context: context(&LinearContext {
                    c: p.c,
                    n: p.n,
                    warps,
                    row_blocks,
                    batched: p.batch > 1,
                    checks_n: !p.n.is_multiple_of(warps),
                    bias: p.epilogue.bias,
                    activation: activation_function(p.epilogue.activation),
                }),
                grid: [row_blocks * p.batch, 1, 1],
                block: [32, warps, 1],
                cluster: [1; 3],
                shared_bytes: 0,
                pdl: true,
                device: &[DevicePart::Pdl],
                args,
                work: KernelWork {
                    blocks,
                    threads: 32 * warps,
                    registers: 48,
                    shared_bytes: 0,
                    flops: problem.flops() as f64,
                    fma_fraction: 0.2,
                    l2_bytes: 8.0 * f64::from(p.c) * f64::from(p.n) * f64::from(p.batch),
                    dram_bytes: problem.bytes() as f64,
                    l2_round_trips: 2.0 + f64::from(p.c.div_ceil(32)) / 8.0,
                    ..KernelWork::default()
                },
            }],
            zeroed: None,
            workspace_bytes: 0,
            weights: WeightLayout::oihw([p.n, p.c, 1, 1]),
            extra_weight_layouts: Vec::new(),
        }
    }
}
