//! `normalize`: an input in the caller's format to fp32 NCHW, with one thread for each element.

use super::info::SchemeInfo;
use super::per_element::{Elements, PerElementKernel, PerElementTile};
use super::{Blueprint, Scheme, Tile, TileField};
use crate::cost::KernelWork;
use crate::gpu::Gpu;
use crate::ir::{Format, Layout, Problem};
use serde::Serialize;
use tdc_runtime::{Arg, WeightLayout};

/// See the [module](self).
pub struct Normalize;

#[derive(Serialize)]
struct NormalizeContext {
    c: u32,
    pixels: u64,
    #[serde(flatten)]
    elements: Elements,
    /// Channels of a pixel are adjacent.
    from_nhwc: bool,
    /// Images of an fp32 NCHW tensor may be apart; any other tensor is dense.
    has_stride: bool,
}

impl Scheme for Normalize {
    fn name(&self) -> &'static str {
        "normalize"
    }

    fn info(&self) -> SchemeInfo {
        SchemeInfo::own("inputs in uint8 or NHWC, or with `mean` or `std`")
    }

    fn tile_fields(&self) -> &'static [TileField] {
        PerElementTile::FIELDS
    }

    fn tiles(&self, problem: &Problem, _gpu: &Gpu) -> Vec<Tile> {
        match problem {
            Problem::Normalize(_) => PerElementTile::with_threads([64, 128, 256]),
            _ => Vec::new(),
        }
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile, _gpu: &Gpu) -> Blueprint {
        let Problem::Normalize(p) = problem else {
            unreachable!("normalize has tiles for normalisations only");
        };
        let elements = Elements::new(problem, tile);
        let has_stride = p.from == Format::default();
        let kernel = PerElementKernel {
            template: "kernel/normalize.cu",
            context: &NormalizeContext {
                c: p.x.c,
                pixels: p.x.pixels(),
                elements,
                from_nhwc: p.from.layout == Layout::Nhwc,
                has_stride: has_stride && p.x.batch > 1,
            },
            inputs: vec![Arg::X, Arg::Packed],
            weights: WeightLayout::NONE.with_prologue(p.x.c),
            work: KernelWork {
                registers: 20,
                flops: p.x.len() as f64,
                ..elements.work(problem)
            },
        };
        let mut blueprint = kernel.blueprint(problem, &elements);
        let args = &mut blueprint.kernels[0].args;
        args.retain(|&arg| has_stride || arg != Arg::XBatchStride);
        blueprint
    }
}
