//! `pad`: rows and columns around images, with one thread for each output element.

use super::info::SchemeInfo;
use super::per_element::{Elements, PerElementKernel, PerElementTile};
use super::{Blueprint, Scheme, Tile, TileField};
use crate::cost::KernelWork;
use crate::gpu::Gpu;
use crate::ir::{PadMode, Problem};
use serde::Serialize;
use tdc_runtime::{Arg, WeightLayout};

/// See the [module](self).
pub struct Pad;

#[derive(Serialize)]
struct PadContext {
    c: u32,
    h: u32,
    w: u32,
    out_h: u32,
    out_w: u32,
    pad_top: u32,
    pad_left: u32,
    #[serde(flatten)]
    elements: Elements,
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
        PerElementTile::FIELDS
    }

    fn tiles(&self, problem: &Problem, _gpu: &Gpu) -> Vec<Tile> {
        match problem {
            Problem::Pad(_) => PerElementTile::with_threads([64, 128, 256]),
            _ => Vec::new(),
        }
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile, _gpu: &Gpu) -> Blueprint {
        let Problem::Pad(p) = problem else {
            unreachable!("pad has tiles for padding only");
        };
        let elements = Elements::new(problem, tile);
        let y = problem.y();
        let kernel = PerElementKernel {
            template: "kernel/pad.cu",
            context: &PadContext {
                c: p.x.c,
                h: p.x.h,
                w: p.x.w,
                out_h: y.h,
                out_w: y.w,
                pad_top: p.padding.top,
                pad_left: p.padding.left,
                elements,
                reflect: p.mode == PadMode::Reflect,
                constant: match p.mode {
                    PadMode::Constant(value) => Some(format!("{:e}f", value.get())),
                    PadMode::Reflect | PadMode::Edge => None,
                },
            },
            inputs: vec![Arg::X],
            weights: WeightLayout::NONE,
            work: KernelWork {
                registers: 24,
                ..elements.work(problem)
            },
        };
        kernel.blueprint(problem, &elements)
    }
}
