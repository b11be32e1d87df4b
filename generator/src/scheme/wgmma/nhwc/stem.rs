//! `wgmma_stem`: the first layer of a network, with at most four channels, as a product of [folded](super::fold) pixels.
//!
//! A kernel folds the image, and that of [`wgmma_nhwc`](super) reads the folded one, which is in the workspace. If its scale depends on the
//! input, another kernel finds the largest magnitude first.

use super::fold::{Fold, fold_kernel, fold_work};
use super::geometry::NhwcGeometry;
use super::kernel::kernel;
use super::tile_space::{fastest_few, tiles_of};
use super::{WgmmaNhwcTile, supports_split_output};
use crate::gpu::Gpu;
use crate::ir::{ConvProblem, Format, Precision, Problem, ProblemKind};
use crate::scheme::info::SchemeInfo;
use crate::scheme::tiling::fastest;
use crate::scheme::wgmma::{DEFAULT_BATCH, writes_supported_format};
use crate::scheme::{
    Blueprint, LaunchWork, Scheme, Tile, TileField, TileSearch, UnitWork, convolution, split_maxima,
};
use tdc_runtime::Arg;

/// See the [module](self).
pub struct WgmmaStem;

impl Scheme for WgmmaStem {
    fn name(&self) -> &'static str {
        "wgmma_stem"
    }

    fn info(&self) -> SchemeInfo {
        SchemeInfo {
            precisions: &[Precision::Fp32, Precision::Tf32, Precision::Fp16],
            ..SchemeInfo::own(
                "convolutions with at most four input channels and a stride of 1 or 2; on Hopper GPUs, from 8 images on",
            )
        }
    }

    fn is_default_for(&self, problem: &Problem) -> bool {
        problem
            .conv()
            .is_some_and(|conv| conv.shape.batch >= DEFAULT_BATCH)
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
        let gpu = search.gpu();
        for (_, tile) in fastest_few(tiles(problem, gpu)) {
            let tile = tile.into();
            let work = self.work(problem, &tile, gpu);
            search.offer(tile, &work);
        }
    }

    fn supports(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> bool {
        let supported = problem.conv().and_then(supported_fold);
        let tile = WgmmaNhwcTile::from_tile(tile);
        supported
            .zip(tile)
            .is_some_and(|((_, folded), tile)| NhwcGeometry::new(&folded, tile, gpu).is_some())
    }

    fn work(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> UnitWork {
        let problem = convolution::expect_conv(problem);
        let (fold, folded, sizes) = geometry(problem, tile, gpu);
        let launch = |role, work| LaunchWork { role, work };
        let input = ProblemKind::input(problem).shape;
        let maxima =
            is_scaled(&folded).then(|| launch(split_maxima::ROLE, split_maxima::work(input)));
        let folding = launch(super::fold::ROLE, fold_work(&fold, problem));
        let kernel = launch(convolution::role(false), sizes.work(&folded, gpu));
        UnitWork {
            launches: maxima.into_iter().chain([folding, kernel]).collect(),
            zeroed_bytes: None,
        }
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> Blueprint {
        const WORKSPACE: Arg = Arg::Workspace { offset: 0 };
        let problem = convolution::expect_conv(problem);
        let (fold, folded, sizes) = geometry(problem, tile, gpu);
        let layout = fold.layout(problem, sizes.tile.tn);
        let input = ProblemKind::input(problem).shape;
        let maxima = is_scaled(&folded).then(|| split_maxima::kernel(input, WORKSPACE));
        let folding = fold_kernel(&fold, problem, WORKSPACE);
        let kernel = kernel(&folded, &sizes, &layout, WORKSPACE, gpu);
        let blueprint = convolution::blueprint(problem, 1, kernel, layout);
        let before = maxima.into_iter().chain([folding]);
        Blueprint {
            kernels: before.chain(blueprint.kernels).collect(),
            workspace_bytes: ProblemKind::input(&folded).bytes(),
            ..blueprint
        }
    }
}

/// How the scheme folds a convolution, and the folded one; `None` if it does not support the convolution.
fn supported_fold(problem: &ConvProblem) -> Option<(Fold, ConvProblem)> {
    let fold = Fold::new(problem)?;
    let writes = writes_supported_format(problem) || supports_split_output(problem);
    writes.then(|| (fold, fold.folded(problem)))
}

fn tiles(problem: &Problem, gpu: &Gpu) -> Vec<(f64, WgmmaNhwcTile)> {
    let supported = problem.conv().and_then(supported_fold);
    let supported = supported.filter(|_| gpu.has_wgmma());
    supported.map_or_else(Vec::new, |(_, folded)| tiles_of(&folded, gpu))
}

/// How a supported convolution is folded, the folded one, and the sizes of a supported tile.
fn geometry(problem: &ConvProblem, tile: &Tile, gpu: &Gpu) -> (Fold, ConvProblem, NhwcGeometry) {
    let (fold, folded) = supported_fold(problem).expect("a supported convolution");
    let sizes = NhwcGeometry::of_supported(&folded, tile, gpu);
    (fold, folded, sizes)
}

/// Whether the input has a scale.
fn is_scaled(folded: &ConvProblem) -> bool {
    folded.input == Format::SPLIT_NHWC
}
