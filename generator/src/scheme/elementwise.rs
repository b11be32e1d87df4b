//! `elementwise`: additions, differences, products, activations, PReLU, scale_shift, copies and channel shuffles that are not fused with a
//! convolution, with one thread for each element.

use super::info::SchemeInfo;
use super::per_element::{Elements, PerElementKernel, PerElementTile};
use super::{Blueprint, Scheme, Tile, TileField, activation_function};
use crate::cost::KernelWork;
use crate::gpu::Gpu;
use crate::ir::{BinaryOp, Elementwise, Problem};
use serde::Serialize;
use tdc_runtime::{Arg, WeightLayout};

/// See the [module](self).
pub struct ElementwiseScheme;

#[derive(Serialize)]
struct ElementwiseContext {
    c: u32,
    pixels: u64,
    #[serde(flatten)]
    elements: Elements,
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
        PerElementTile::FIELDS
    }

    fn tiles(&self, problem: &Problem, _gpu: &Gpu) -> Vec<Tile> {
        match problem {
            Problem::Elementwise(_) => PerElementTile::with_threads([64, 128, 256]),
            _ => Vec::new(),
        }
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile, _gpu: &Gpu) -> Blueprint {
        let Problem::Elementwise(p) = problem else {
            unreachable!("elementwise has tiles for maps only");
        };
        let elements = Elements::new(problem, tile);
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
        let mut inputs = vec![Arg::X];
        inputs.extend(residual.then_some(Arg::Residual));
        let prelu = p.function == Elementwise::PRelu;
        inputs.extend((scale_shift || prelu).then_some(Arg::Packed));
        let kernel = PerElementKernel {
            template: "kernel/elementwise.cu",
            context: &ElementwiseContext {
                c: p.x.c,
                pixels: p.x.pixels(),
                elements,
                operator,
                gate: matches!(p.function, Elementwise::Binary(BinaryOp::Gate, _)),
                scale_shift,
                prelu,
                groups,
                group_channels: p.x.c.checked_div(groups).unwrap_or(0),
                activation: activation_function(p.function.activation()),
                residual,
            },
            inputs,
            weights: match prelu {
                true => WeightLayout::oihw([p.x.c, 1, 1, 1]),
                false => WeightLayout::NONE.with_prologue(problem.scale_shift_channels()),
            },
            work: KernelWork {
                registers: 20,
                flops: p.x.len() as f64,
                ..elements.work(problem)
            },
        };
        kernel.blueprint(problem, &elements)
    }
}
