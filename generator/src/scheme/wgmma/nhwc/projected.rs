//! `wgmma_projected`: the last convolution of a residual block together with the block's projection shortcut.
//!
//! The sums are those of a 1x1 convolution of both inputs, concatenated. So tiles, weights and products are those of
//! [`wgmma_nhwc`](super) for that convolution. Only the loaders know of two inputs: the first chunks are of one, the others of the other.
//! The shortcut's output, which is as large as the block's, is neither stored nor loaded.

use super::geometry::NhwcGeometry;
use super::kernel::{Input, kernel};
use super::tile_space::tiles_of;
use super::{WgmmaNhwcTile, supports_problem, terms};
use crate::gpu::Gpu;
use crate::ir::{Precision, Problem, ProjectedProblem};
use crate::scheme::info::SchemeInfo;
use crate::scheme::tensor_core::MMA_K;
use crate::scheme::tiling::{fastest, offer_fastest};
use crate::scheme::wgmma::kernel::layout;
use crate::scheme::{
    Blueprint, LaunchWork, Scheme, Tile, TileField, TileSearch, UnitWork, convolution,
};

/// See the [module](self).
pub struct Projected;

impl Scheme for Projected {
    fn name(&self) -> &'static str {
        "wgmma_projected"
    }

    fn info(&self) -> SchemeInfo {
        SchemeInfo {
            precisions: &[Precision::Fp32, Precision::Fp16, Precision::Bf16],
            ..SchemeInfo::own(
                "1x1 convolutions with the projection shortcut that is added to them, both of a multiple of 16 input channels in fp16 NHWC (`activations: fp16`), bf16 NHWC or split NHWC, on Hopper GPUs",
            )
        }
    }

    fn tile_fields(&self) -> &'static [TileField] {
        WgmmaNhwcTile::FIELDS
    }

    fn tiles(&self, problem: &Problem, gpu: &Gpu) -> Vec<Tile> {
        let kept = fastest(tiles(problem, gpu));
        kept.into_iter().map(Tile::from).collect()
    }

    fn unpruned_tiles(&self, problem: &Problem, gpu: &Gpu) -> Vec<Tile> {
        let all = tiles(problem, gpu).into_iter();
        all.map(|(_, tile)| tile.into()).collect()
    }

    fn search(&self, problem: &Problem, search: &mut TileSearch<'_>) {
        let all = tiles(problem, search.gpu());
        offer_fastest(self, problem, all, search);
    }

    fn supports(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> bool {
        supported(problem).is_some_and(|problem| {
            let sizes = NhwcGeometry::from_tile(&problem.concatenated(), tile, gpu);
            sizes.is_some_and(|sizes| divides_inputs(problem, &sizes.tile))
        })
    }

    /// The concatenation has as many bytes as the pixels that are read.
    fn work(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> UnitWork {
        let concatenated = expect_projected(problem).concatenated();
        let sizes = NhwcGeometry::of_supported(&concatenated, tile, gpu);
        UnitWork {
            launches: vec![LaunchWork {
                role: convolution::role(false),
                work: sizes.work(&concatenated, gpu),
            }],
            zeroed_bytes: None,
        }
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> Blueprint {
        let problem = expect_projected(problem);
        let concatenated = problem.concatenated();
        let sizes = NhwcGeometry::of_supported(&concatenated, tile, gpu);
        let layout = layout(&concatenated, sizes.tile.tn, sizes.tile.chunk_groups);
        let kernel = kernel(
            &concatenated,
            &sizes,
            &layout,
            Input::Projected(problem),
            gpu,
        );
        convolution::blueprint(&concatenated, 1, kernel, layout)
    }
}

/// The problem if the scheme supports it.
fn supported(problem: &Problem) -> Option<&ProjectedProblem> {
    let Problem::Projected(problem) = problem else {
        return None;
    };
    let concatenated = problem.concatenated();
    let channels = [problem.x.c, problem.shortcut.image[0]];
    // A sum of products of two split tensors changes its scale, which partial sums allow.
    let adds_partial_sums = problem.format.is_16_bit_nhwc() || terms(&concatenated) == 2;
    let is_supported = supports_problem(&concatenated)
        && channels.iter().all(|c| c.is_multiple_of(MMA_K))
        && adds_partial_sums;
    is_supported.then_some(problem)
}

/// Whether no chunk has channels of both inputs.
fn divides_inputs(problem: &ProjectedProblem, tile: &WgmmaNhwcTile) -> bool {
    problem.x.c.is_multiple_of(tile.chunk_groups * MMA_K)
}

/// The tiles that fit the GPU, with their predicted times.
fn tiles(problem: &Problem, gpu: &Gpu) -> Vec<(f64, WgmmaNhwcTile)> {
    let supported = supported(problem).filter(|_| gpu.has_wgmma());
    supported.map_or_else(Vec::new, |problem| {
        let mut tiles = tiles_of(&problem.concatenated(), gpu);
        tiles.retain(|(_, tile)| divides_inputs(problem, tile));
        tiles
    })
}

fn expect_projected(problem: &Problem) -> &ProjectedProblem {
    match problem {
        Problem::Projected(problem) => problem,
        _ => unreachable!("wgmma_projected has tiles for projection shortcuts only"),
    }
}
