//! `wgmma_nhwc`: the same product for an input in fp16, bf16 or split NHWC, with both operands in shared memory.
//!
//! Nothing is converted: loader warps copy the input asynchronously, 16 bytes at a time, several chunks ahead. Products read it straight
//! from shared memory, 64 consecutive rows at a time, so rows of the product are not the output's pixels but the [cells] of a grid that
//! has zeros between rows and images. What a filter tap reads is then a fixed distance away, and a tile is a run of cells, wherever it
//! begins and ends. The price is the cells without an output: one column and one row of 15 for a 14x14 image and a 3x3 filter.
//!
//! If tiles are too few for all SMs, the blocks of a cluster divide the input channels. Each then adds the partial sums of some rows.
//!
//! If the buffers hold all weights of a tile of output channels, a block copies them once for all of its tiles.
//!
//! Of a split input the products of precision fp32 read hi and lo, and partial sums of at most
//! [`PROMOTION_INTERVAL`](crate::scheme::tensor_core::PROMOTION_INTERVAL) K steps are added in fp32. Those of precision tf32 and fp16 read
//! hi only: its 11 bits are what these precisions keep. The scale of a split output must be known before the output is: it follows from a bound, the
//! number of products of a sum times the largest weight and the largest magnitude of the input, which the input's header tells.

mod cells;
mod converted;
mod gather;
mod geometry;
mod kernel;
mod prepared;
mod projected;
mod stem;
mod tile_space;
mod work;

use super::{multiplies, writes_supported_format};
use crate::gpu::Gpu;
use crate::ir::{ConvProblem, Format, Precision, Problem, never_grows};
use crate::scheme::convolution;
use crate::scheme::info::SchemeInfo;
use crate::scheme::tensor_core::{MMA_K, split_terms};
use crate::scheme::tiling::{fastest, offer_fastest};
use crate::scheme::wgmma::kernel::layout;
use crate::scheme::{
    Blueprint, LaunchWork, Scheme, Tile, TileField, TileSearch, UnitWork, tile_numbers,
};
pub use converted::Converted;
use geometry::NhwcGeometry;
use kernel::{Input, kernel};
pub use prepared::Prepared;
pub use projected::Projected;
pub use stem::Stem;
use tile_space::{improving_tiles, supported, tiles};

/// See the [module](self).
pub struct WgmmaNhwc;

tile_numbers! {
    /// A tile of the [module](self)'s scheme.
    struct WgmmaNhwcTile {
        /// Consumer warpgroups, with 64 cells of a tile each.
        warpgroups: "wg",
        /// Output channels of a block.
        tn: "n",
        /// Channel groups of one chunk (16 channels each). A group has a K step for each filter tap.
        chunk_groups: "cg",
        /// Pipeline stages (shared-memory buffers) of the packed weights.
        stages: "s",
        /// Pipeline stages of the input: chunks.
        input_stages: "is",
        /// Warpgroups of producers: a warp that copies weights, and warps that copy the input.
        producers: "pg",
        /// Tiles that a block computes one after the other.
        block_tiles: "bt",
        /// Blocks of a cluster, which divide the input channels.
        cluster: "cl",
    }
}

impl Scheme for WgmmaNhwc {
    fn name(&self) -> &'static str {
        "wgmma_nhwc"
    }

    fn info(&self) -> SchemeInfo {
        SchemeInfo {
            precisions: &[
                Precision::Fp32,
                Precision::Tf32,
                Precision::Fp16,
                Precision::Bf16,
            ],
            ..SchemeInfo::own(
                "convolutions of one group with a multiple of 16 input channels whose input is in fp16 NHWC (`activations: fp16`), bf16 NHWC or split NHWC, on Hopper GPUs",
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
        let gpu = search.gpu();
        if let Some(conv) = supported(problem, gpu) {
            let all = improving_tiles(conv, search, 0.0);
            offer_fastest(self, problem, all, search);
        }
    }

    fn supports(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> bool {
        let supported = problem.conv().filter(|conv| supports_problem(conv));
        supported.is_some_and(|conv| NhwcGeometry::from_tile(conv, tile, gpu).is_some())
    }

    fn work(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> UnitWork {
        let problem = convolution::expect_conv(problem);
        UnitWork {
            launches: vec![LaunchWork {
                role: convolution::role(false),
                work: NhwcGeometry::of_supported(problem, tile, gpu).work(problem, gpu),
            }],
            zeroed_bytes: None,
        }
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> Blueprint {
        let problem = convolution::expect_conv(problem);
        let sizes = NhwcGeometry::of_supported(problem, tile, gpu);
        let layout = layout(problem, sizes.tile.tn, sizes.tile.chunk_groups);
        let kernel = kernel(problem, &sizes, &layout, Input::Given, gpu);
        convolution::blueprint(problem, 1, kernel, layout)
    }
}

/// Whether `wgmma_nhwc` can compute a problem on a Hopper GPU.
pub fn multiplies_nhwc(problem: &Problem) -> bool {
    problem.conv().is_some_and(supports_problem)
}

/// Whether the scheme can compute a problem.
fn supports_problem(problem: &ConvProblem) -> bool {
    let reads_and_writes = match problem.input.dense() {
        Format::FP16_NHWC | Format::BF16_NHWC => {
            problem.precision.nhwc_format() == Some(problem.input.dense())
                && writes_supported_format(problem)
        }
        Format::SPLIT_NHWC => {
            problem.precision != Precision::Bf16
                && (problem.output == Format::default() || supports_split_output(problem))
        }
        _ => false,
    };
    reads_and_writes
        && problem.prologue.is_none()
        && problem.shape.c.is_multiple_of(MMA_K)
        && multiplies(problem)
}

/// Whether an output in split NHWC has a bound that does not depend on its values.
fn supports_split_output(problem: &ConvProblem) -> bool {
    problem.writes_split_nhwc()
        && problem.output.fits_channels(problem.shape.n)
        && never_grows(problem.epilogue.activation)
}

/// Terms of each operand of the products: hi and lo of a split input in fp32, else one number.
fn terms(problem: &ConvProblem) -> u32 {
    match problem.input {
        Format::SPLIT_NHWC => split_terms(problem.precision),
        _ => 1,
    }
}
