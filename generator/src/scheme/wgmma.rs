//! `wgmma`: a convolution with much work as a matrix product by Hopper's asynchronous tensor-core instructions.
//!
//! Rows of the product are output pixels, counted across the images of a batch; columns are output channels; K runs over the filter
//! taps and groups of 16 input channels. The im2col matrix is never built. The arithmetic of the precisions is that of
//! [`implicit_gemm`](super::implicit_gemm): in fp32 a hi/lo split into two fp16 numbers, in tf32 a scaled fp16 number, in fp16 and bf16 one
//! number.
//!
//! Warps have roles. One copies the packed weights of a few K steps at a time to a ring of buffers. Others load the input tile of a chunk of channels, convert it to 16-bit numbers, and store it in planes of eight channels, so that a pixel of a plane is 16 bytes:
//! the input of any filter tap, stride and dilation is then an offset. The consumer warpgroups take their rows of the product from there
//! to registers, because the positions of pixels are irregular, and the weights straight from shared memory. mbarriers tell when a buffer is
//! full or empty, so copies, conversion and products of different chunks, and of different tiles of a block, overlap.
//!
//! An output in fp16 NHWC is stored 16 bytes at a time. Inputs in fp16 NHWC have a scheme of their own: [`nhwc`].
//!
//! Tensor cores truncate sums instead of rounding. With a scaled input, partial sums of at most
//! [`PROMOTION_INTERVAL`](super::tensor_core::PROMOTION_INTERVAL) K steps are therefore added in fp32.

mod geometry;
mod kernel;
mod nhwc;
mod sum;
mod tile_space;
mod work;

use super::convolution;
use super::info::SchemeInfo;
use super::tensor_core::{MMA_K, supports_mma};
use super::tiling::{fastest, supports_tiling};
use super::{Blueprint, LaunchWork, Scheme, Tile, TileField, TileSearch, UnitWork, tile_numbers};
use crate::gpu::Gpu;
use crate::ir::{ConvProblem, Format, Precision, Problem};
use geometry::WgmmaGeometry;
use kernel::{kernel, layout};
pub use nhwc::{Converted, Prepared, Projected, Stem, WgmmaNhwc, multiplies_nhwc};
use tile_space::{Stages, supported, tiles, tiles_without_stages, with_stages};

/// See the [module](self).
pub struct Wgmma;

/// Warps of a warpgroup.
const WARPGROUP: u32 = 4;

/// Rows of the product of a warpgroup: output pixels.
const WGMMA_M: u32 = 64;

tile_numbers! {
    /// A tile of the [module](self)'s scheme.
    struct WgmmaTile {
        /// Output rows of a tile, counted across images.
        th: "h",
        /// Output columns of a tile.
        tw: "w",
        /// Output channels of a block.
        tn: "n",
        /// Consumer warpgroups, with 64 output pixels of a tile each.
        warpgroups: "wg",
        /// Channel groups of one chunk (16 channels each). A group has a K step for each filter tap.
        chunk_groups: "cg",
        /// Pipeline stages (shared-memory buffers) of the packed weights.
        stages: "s",
        /// Warpgroups of producers: a warp that copies weights, and warps that load and convert the input.
        producers: "pg",
        /// Chunks of the input that a producer holds in registers: with 2 the next one is loaded while one is converted.
        load_stages: "ls",
        /// Tiles that a block computes one after the other.
        block_tiles: "bt",
    }
}

impl Scheme for Wgmma {
    fn name(&self) -> &'static str {
        "wgmma"
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
                "convolutions of one group with at least 16 input channels and at least 8 output channels; on Hopper GPUs",
            )
        }
    }

    fn tile_fields(&self) -> &'static [TileField] {
        WgmmaTile::FIELDS
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
        let Some(conv) = supported(problem, gpu) else {
            return;
        };
        // With the registers that the compiler allocated, more blocks may be resident than predicted.
        let knows_registers = search.knows_registers();
        for tile in tiles_without_stages(conv, gpu) {
            if !knows_registers && !search.can_improve(tile.least_us(conv, gpu)) {
                continue;
            }
            for (us, tile) in with_stages(tile, Stages::Different, conv, gpu) {
                if knows_registers || search.can_improve(us) {
                    let tile = tile.into();
                    let work = self.work(problem, &tile, gpu);
                    search.offer(tile, &work);
                }
            }
        }
    }

    fn supports(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> bool {
        let supported = problem.conv().filter(|conv| supports_problem(conv));
        supported.is_some_and(|conv| WgmmaGeometry::from_tile(conv, tile, gpu).is_some())
    }

    fn work(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> UnitWork {
        let problem = convolution::expect_conv(problem);
        UnitWork {
            launches: vec![LaunchWork {
                role: convolution::role(false),
                work: WgmmaGeometry::of_supported(problem, tile, gpu).work(problem, gpu),
            }],
            zeroed_bytes: None,
        }
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> Blueprint {
        let problem = convolution::expect_conv(problem);
        let sizes = WgmmaGeometry::of_supported(problem, tile, gpu);
        let layout = layout(problem, sizes.tile.tn, sizes.tile.chunk_groups);
        let kernel = kernel(problem, &sizes, &layout, gpu);
        convolution::blueprint(problem, 1, kernel, layout)
    }
}

/// Whether the scheme can compute a problem with the formats and the precision that it requires.
fn supports_problem(problem: &ConvProblem) -> bool {
    problem.input == Format::default() && writes_supported_format(problem) && multiplies(problem)
}

/// Whether the output's format is one that epilogues store.
fn writes_supported_format(problem: &ConvProblem) -> bool {
    problem.output == Format::default()
        || problem.precision.nhwc_format() == Some(problem.output.dense())
            && problem.output.fits_channels(problem.shape.n)
}

/// Whether the convolution is a product that tensor cores compute.
fn multiplies(problem: &ConvProblem) -> bool {
    let shape = &problem.shape;
    supports_tiling(problem)
        && shape.c >= MMA_K
        && supports_mma(problem, shape.c, shape.r * shape.s)
}
