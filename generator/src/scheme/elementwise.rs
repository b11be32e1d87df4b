//! `elementwise`: additions, differences, products, activations, PReLU, scale_shift, copies and channel shuffles that are not fused with a
//! convolution, with one thread for each element.

use super::info::SchemeInfo;
use super::{
    Blueprint, DevicePart, KernelBlueprint, Scheme, Tile, TileField, activation_function,
    batch_stride_args, context, tile_numbers,
};
use crate::cost::KernelWork;
use crate::gpu::Gpu;
use crate::ir::{BinaryOp, Elementwise, Problem};
use serde::Serialize;
use tdc_runtime::{Arg, WeightLayout};

/// See the [module](self).
pub struct ElementwiseScheme;

tile_numbers! {
    /// A tile of the [module](self)'s scheme.
    struct ElementwiseTile {
        /// Threads of a block.
        threads: "t",
    }
}

#[derive(Serialize)]
struct ElementwiseContext {
    c: u32,
    pixels: u64,
    threads: u32,
    len: u64,
    image_len: u64,
    batched: bool,
    checks_len: bool,
    /// The assignment operator of an op on two tensors.
    operator: Option<&'static str>,
    /// Whether the second tensor has one element for each image and channel.
    gate: bool,
    scale_shift: bool,
    /// Whether negative elements are multiplied by a slope of their channel.
    prelu: bool,
    /// Groups of a channel shuffle, and channels of a group; 0 if there is none.
    groups: u32,
    group_channels: u32,
    activation: Option<String>,
    residual: bool,
}

impl Scheme for ElementwiseScheme {
    fn name(&self) -> &'static str {
        "elementwise"
    }

    fn info(&self) -> SchemeInfo {
        SchemeInfo::own(
            "additions, differences, products, activations, PReLU, scale_shift, copies and channel shuffles",
        )
    }

    fn tile_fields(&self) -> &'static [TileField] {
        ElementwiseTile::FIELDS
    }

    fn tiles(&self, problem: &Problem, _gpu: &Gpu) -> Vec<Tile> {
        match problem {
            Problem::Elementwise(_) => [64, 128, 256]
                .map(|threads| ElementwiseTile { threads }.into())
                .to_vec(),
            _ => Vec::new(),
        }
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile, _gpu: &Gpu) -> Blueprint {
        let Problem::Elementwise(p) = problem else {
            unreachable!("elementwise has tiles for maps only");
        };
        let ElementwiseTile { threads } =
            ElementwiseTile::from_tile(tile).expect("a supported tile");
        let len = p.x.len();
        let blocks = len.div_ceil(u64::from(threads));
        let operator = match p.function {
            Elementwise::Binary(BinaryOp::Add, _) => Some("+="),
            Elementwise::Binary(BinaryOp::Sub, _) => Some("-="),
            Elementwise::Binary(BinaryOp::Mul | BinaryOp::Gate, _) => Some("*="),
            _ => None,
        };
        let groups = match p.function {
            Elementwise::Shuffle { groups } => groups,
            _ => 0,
        };
        let residual = operator.is_some();
        let scale_shift = problem.scale_shift_channels() > 0;
        let mut args = vec![Arg::X];
        args.extend(residual.then_some(Arg::Residual));
        let prelu = p.function == Elementwise::PRelu;
        args.extend((scale_shift || prelu).then_some(Arg::Packed));
        args.push(Arg::Y);
        args.extend(batch_stride_args(p.x.batch, residual));
        Blueprint {
            kernels: vec![KernelBlueprint {
                role: "kernel",
                template: "kernel/elementwise.cu",
                context: context(&ElementwiseContext {
                    c: p.x.c,
                    pixels: p.x.pixels(),
                    threads,
                    len,
                    image_len: p.x.image_len(),
                    batched: p.x.batch > 1,
                    checks_len: !len.is_multiple_of(u64::from(threads)),
                    operator,
                    gate: matches!(p.function, Elementwise::Binary(BinaryOp::Gate, _)),
                    scale_shift,
                    prelu,
                    groups,
                    group_channels: p.x.c.checked_div(groups).unwrap_or(0),
                    activation: activation_function(p.function.activation()),
                    residual,
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
                    registers: 20,
                    shared_bytes: 0,
                    flops: len as f64,
                    fma_fraction: 0.1,
                    l2_bytes: problem.bytes() as f64,
                    dram_bytes: problem.bytes() as f64,
                    l2_round_trips: 1.5,
                    ..KernelWork::default()
                },
            }],
            zeroed: None,
            workspace_bytes: 0,
            weights: match prelu {
                true => WeightLayout::oihw([p.x.c, 1, 1, 1]),
                false => WeightLayout::NONE.with_prologue(problem.scale_shift_channels()),
            },
            extra_weight_layouts: Vec::new(),
        }
    }
}
