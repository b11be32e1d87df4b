//! Schemes that prepare an input of another format: kernels write a tensor to the workspace, from which the kernel of
//! [`wgmma_nhwc`](super) reads it.

use super::geometry::NhwcGeometry;
use super::kernel::{Input, kernel};
use super::tile_space::{improving_tiles, tiles_of};
use super::{WgmmaNhwcTile, supports_split_output};
use crate::cost::kernel_us;
use crate::gpu::Gpu;
use crate::ir::{ConvProblem, Format, Precision, Problem, ProblemKind};
use crate::scheme::info::SchemeInfo;
use crate::scheme::tiling::{fastest, offer_fastest};
use crate::scheme::wgmma::writes_supported_format;
use crate::scheme::{
    Blueprint, KernelBlueprint, LaunchWork, Scheme, Tile, TileField, TileSearch, UnitWork,
    convolution,
};
use tdc_runtime::{Arg, WeightLayout};

/// How an input is prepared.
pub trait Preparation: Sync {
    /// Name of the scheme.
    const NAME: &'static str;

    /// The problems that the scheme supports, for the reference.
    const PROBLEMS: &'static str;

    /// Whether it reads the input's format, and the scheme can apply the prologue.
    fn reads(&self, problem: &ConvProblem) -> bool {
        problem.input == Format::default() && problem.prologue.is_none()
    }

    /// The convolution of the prepared input; `None` if an input cannot be prepared.
    fn prepared(&self, problem: &ConvProblem) -> Option<ConvProblem>;

    /// The kernels that prepare the input, which they write to `to`.
    /// `layout` is that of the unit's weights, in which scale and shift of the prologue follow.
    fn kernels(
        &self,
        problem: &ConvProblem,
        layout: &WeightLayout,
        to: Arg,
    ) -> Vec<KernelBlueprint>;

    /// The work of their launches.
    fn work(&self, problem: &ConvProblem) -> Vec<LaunchWork>;

    /// The weights of the prepared convolution, made from those of the problem, for tiles of `tn` output channels and chunks of
    /// `chunk_groups` groups of channels.
    fn layout(&self, problem: &ConvProblem, tn: u32, chunk_groups: u32) -> WeightLayout;
}

/// The scheme of a [`Preparation`].
pub struct Prepared<P>(pub P);

impl<P: Preparation> Prepared<P> {
    fn supported(&self, problem: &Problem) -> Option<ConvProblem> {
        let problem = problem.conv()?;
        let is_supported = self.0.reads(problem)
            && (writes_supported_format(problem) || supports_split_output(problem));
        let keeps_range = |prepared: &ConvProblem| {
            problem.precision != Precision::Bf16 || prepared.input != Format::SPLIT_NHWC
        };
        let prepared = self.0.prepared(problem).filter(keeps_range);
        prepared.filter(|_| is_supported)
    }

    fn all_tiles(&self, problem: &Problem, gpu: &Gpu) -> Vec<(f64, WgmmaNhwcTile)> {
        let supported = self.supported(problem).filter(|_| gpu.has_wgmma());
        supported.map_or_else(Vec::new, |prepared| tiles_of(&prepared, gpu))
    }
}

impl<P: Preparation> Scheme for Prepared<P> {
    fn name(&self) -> &'static str {
        P::NAME
    }

    fn info(&self) -> SchemeInfo {
        SchemeInfo {
            precisions: &[
                Precision::Fp32,
                Precision::Tf32,
                Precision::Fp16,
                Precision::Bf16,
            ],
            ..SchemeInfo::own(P::PROBLEMS)
        }
    }

    fn tile_fields(&self) -> &'static [TileField] {
        WgmmaNhwcTile::FIELDS
    }

    fn tiles(&self, problem: &Problem, gpu: &Gpu) -> Vec<Tile> {
        let kept = fastest(self.all_tiles(problem, gpu));
        kept.into_iter().map(Tile::from).collect()
    }

    fn unpruned_tiles(&self, problem: &Problem, gpu: &Gpu) -> Vec<Tile> {
        let all = self.all_tiles(problem, gpu).into_iter();
        all.map(|(_, tile)| tile.into()).collect()
    }

    fn search(&self, problem: &Problem, search: &mut TileSearch<'_>) {
        let gpu = search.gpu();
        let Some(prepared) = self.supported(problem).filter(|_| gpu.has_wgmma()) else {
            return;
        };
        // With any tile, the kernels that prepare the input take this time.
        let before = self.0.work(convolution::expect_conv(problem)).into_iter();
        let before_us: f64 = before.map(|launch| kernel_us(&launch.work, gpu)).sum();
        let all = improving_tiles(&prepared, search, before_us);
        offer_fastest(self, problem, all, search);
    }

    fn supports(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> bool {
        self.supported(problem)
            .is_some_and(|prepared| NhwcGeometry::from_tile(&prepared, tile, gpu).is_some())
    }

    fn work(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> UnitWork {
        let (conv, prepared, sizes) = self.parts(problem, tile, gpu);
        let kernel = LaunchWork {
            role: convolution::role(false),
            work: sizes.work(&prepared, gpu),
        };
        let before = self.0.work(conv).into_iter();
        UnitWork {
            launches: before.chain([kernel]).collect(),
            zeroed_bytes: None,
        }
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> Blueprint {
        const WORKSPACE: Arg = Arg::Workspace { offset: 0 };
        let (conv, prepared, sizes) = self.parts(problem, tile, gpu);
        let tile = &sizes.tile;
        let layout = self.0.layout(conv, tile.tn, tile.chunk_groups);
        let kernel = kernel(&prepared, &sizes, &layout, Input::Prepared(WORKSPACE), gpu);
        let before = self.0.kernels(conv, &layout, WORKSPACE).into_iter();
        let blueprint = convolution::blueprint(conv, 1, kernel, layout);
        Blueprint {
            kernels: before.chain(blueprint.kernels).collect(),
            workspace_bytes: ProblemKind::input(&prepared).bytes(),
            ..blueprint
        }
    }
}

impl<P: Preparation> Prepared<P> {
    /// The convolution of a supported problem, that of the prepared input, and the sizes of a supported tile.
    fn parts<'a>(
        &self,
        problem: &'a Problem,
        tile: &Tile,
        gpu: &Gpu,
    ) -> (&'a ConvProblem, ConvProblem, NhwcGeometry) {
        let prepared = self.supported(problem).expect("a supported convolution");
        let sizes = NhwcGeometry::of_supported(&prepared, tile, gpu);
        (convolution::expect_conv(problem), prepared, sizes)
    }
}

/// The format in which an input is prepared: 16-bit numbers only where they are allowed for the output too.
pub(super) fn prepared_format(problem: &ConvProblem) -> Format {
    let of_output = |&format: &Format| format == problem.output.dense();
    problem
        .precision
        .nhwc_format()
        .filter(of_output)
        .unwrap_or(Format::SPLIT_NHWC)
}
