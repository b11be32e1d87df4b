//! `lrn`: local response normalisation, with one thread for each element.

use super::info::SchemeInfo;
use super::per_element::{Elements, PerElementKernel, PerElementTile};
use super::{Blueprint, Scheme, Tile, TileField};
use crate::cost::KernelWork;
use crate::gpu::Gpu;
use crate::ir::Problem;
use serde::Serialize;
use tdc_runtime::{Arg, WeightLayout};

/// See the [module](self).
pub struct Lrn;

#[derive(Serialize)]
struct LrnContext {
    c: u32,
    pixels: u64,
    #[serde(flatten)]
    elements: Elements,
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
        PerElementTile::FIELDS
    }

    fn tiles(&self, problem: &Problem, _gpu: &Gpu) -> Vec<Tile> {
        match problem {
            Problem::Lrn(_) => PerElementTile::with_threads([64, 128, 256]),
            _ => Vec::new(),
        }
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile, _gpu: &Gpu) -> Blueprint {
        let Problem::Lrn(p) = problem else {
            unreachable!("lrn has tiles for local response normalisation only");
        };
        let elements = Elements::new(problem, tile);
        let window = p.lrn.size.min(p.x.c);
        let literal = |number: f32| format!("{number:e}f");
        let scale = f64::from(p.lrn.alpha.get()) / f64::from(p.lrn.size);
        let kernel = PerElementKernel {
            template: "kernel/lrn.cu",
            context: &LrnContext {
                c: p.x.c,
                pixels: p.x.pixels(),
                elements,
                before: p.lrn.before().min(p.x.c),
                after: p.lrn.after().min(p.x.c),
                scale: literal(scale as f32),
                k: literal(p.lrn.k.get()),
                beta: literal(p.lrn.beta.get()),
            },
            inputs: vec![Arg::X],
            weights: WeightLayout::NONE,
            work: KernelWork {
                registers: 32,
                fma_fraction: 0.5,
                // Each element is read by all windows that have it.
                l2_bytes: problem.bytes() as f64 * (1.0 + f64::from(window)) / 2.0,
                l2_round_trips: 1.5 + f64::from(window) / 4.0,
                ..elements.work(problem)
            },
        };
        kernel.blueprint(problem, &elements)
    }
}
