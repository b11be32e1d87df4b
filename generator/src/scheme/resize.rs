//! `resize`: interpolation of images, with one thread for each output element.

use super::info::SchemeInfo;
use super::per_element::{Elements, PerElementKernel, PerElementTile};
use super::{Blueprint, Scheme, Tile, TileField};
use crate::cost::KernelWork;
use crate::gpu::Gpu;
use crate::ir::{AxisPlaces, Interpolation, Problem, ResizeProblem, Rounding};
use serde::Serialize;
use tdc_runtime::{Arg, WeightLayout};

/// See the [module](self).
pub struct Resize;

#[derive(Serialize)]
struct ResizeContext {
    c: u32,
    h: u32,
    w: u32,
    out_h: u32,
    out_w: u32,
    #[serde(flatten)]
    elements: Elements,
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
        PerElementTile::FIELDS
    }

    fn tiles(&self, problem: &Problem, _gpu: &Gpu) -> Vec<Tile> {
        match problem {
            Problem::Resize(_) => PerElementTile::with_threads([64, 128, 256]),
            _ => Vec::new(),
        }
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile, _gpu: &Gpu) -> Blueprint {
        let Problem::Resize(p) = problem else {
            unreachable!("resize has tiles for resizing only");
        };
        let elements = Elements::new(problem, tile);
        let y = problem.y();
        let kernel = PerElementKernel {
            template: "kernel/resize.cu",
            context: &ResizeContext {
                c: p.x.c,
                h: p.x.h,
                w: p.x.w,
                out_h: y.h,
                out_w: y.w,
                elements,
                bilinear: p.interpolation == Interpolation::Bilinear,
                row: rounded_places(p, 0),
                column: rounded_places(p, 1),
            },
            inputs: vec![Arg::X],
            weights: WeightLayout::NONE,
            work: KernelWork {
                registers: 32,
                ..elements.work(problem)
            },
        };
        kernel.blueprint(problem, &elements)
    }
}
