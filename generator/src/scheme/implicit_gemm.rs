//! `implicit_gemm`: a convolution as a matrix product on the tensor cores, in any precision.
//!
//! Rows of the product are output channels, columns are output pixels, and K runs over the filter taps and groups of 16 input
//! channels. The im2col matrix is never built.
//!
//! In fp32 each operand is split into two fp16 numbers (hi/lo split), and three of the four products are computed: 22 bits of
//! each operand. In tf32 and fp16 the hi part is enough: its 11 bits are those of tf32.
//!
//! Quantisation scales (powers of two) keep fp16 in range. The weights have one for each output channel, computed when they are
//! packed. The input has one for each staged chunk, computed as it is loaded. In tf32 the input's scale is that of the largest
//! value so far, and the accumulators are rescaled when it grows. So the error is relative to the largest value of a tile, and an
//! infinite input spoils its entire tile. With `precision: fp16` the input is not scaled: values beyond 65504 become 65504. With `precision: bf16`, which has
//! the range of fp32, weights are not scaled either.
//!
//! A block stages the input tile of a chunk of channels as 16-bit numbers. It loads the weights of the chunk by asynchronous
//! copies that start before the predecessor kernel has finished. Warps divide output channels, pixels and K; the blocks of a
//! cluster divide K further. Partial sums are added through shared memory in a fixed order.
//!
//! Tensor cores truncate sums instead of rounding. Therefore a partial accumulator of at most [`PROMOTION_INTERVAL`](super::tensor_core::PROMOTION_INTERVAL) K steps is
//! added to the accumulator in fp32, which keeps the error within twice that of a plain fp32 sum. Without a hi/lo split the
//! rounding of the operands dominates, and the tensor cores accumulate the entire sum.
//!
//! The staged input consists of channel quads. One load of a quad gives a lane its input operands of a K step; the order of
//! channels within a K step follows from the packed weights. The operand offsets of the K steps are constants of the generated
//! code, except for the offset of the warp: computing an address in every step would take longer than the products.
//!
//! A grouped convolution is one matrix product per group. Groups with few channels are merged to fill MMA tiles; the weights of a
//! merged group are a block-diagonal matrix ([`MergedGroups`]).
//!
//! An output in 16-bit NHWC is stored eight channels of a pixel at a time, 16 bytes.
//!
//! The 16 terms of a K step are 16 channels of one pixel. The first layers of networks have three channels: there the terms of a
//! K step are four adjacent pixels with one channel quad each, and filter rows are padded with zeros when they are packed
//! ([`KStep`]).

mod geometry;
mod k_step;
mod kernel;
mod registers;
mod tile_space;
mod work;

use super::convolution;
use super::info::SchemeInfo;
use super::merged_groups::MergedGroups;
use super::tensor_core::{MAX_WARPS, MMA_K, supports_mma};
use super::tiling::{fastest, supports_grouped_tiling};
use super::{Blueprint, LaunchWork, Scheme, Tile, TileField, TileSearch, UnitWork, tile_numbers};
use crate::gpu::Gpu;
use crate::ir::{ConvProblem, Format, Precision, Problem};
use geometry::ImplicitGemmGeometry;
use k_step::KStep;
use kernel::{kernel, layout};
pub(super) use tile_space::tile_shapes;
use tile_space::{Split, TileGroup, rated_tiles};

/// See the [module](self).
pub struct ImplicitGemm;

tile_numbers! {
    /// A tile of the [module](self)'s scheme.
    struct ImplicitGemmTile {
        /// Output rows of a block.
        th: "h",
        /// Output columns of a block.
        tw: "w",
        /// MMA tiles of a warp along the output channels (16 channels each).
        m_tiles: "m",
        /// Warps side by side along the output channels.
        warps_m: "wm",
        /// Warps side by side along the pixels.
        warps_p: "wp",
        /// Warps that split K (split-K inside the block).
        warps_k: "wk",
        /// Blocks of a cluster, which split the input channels.
        cluster: "cl",
        /// Channel groups of one chunk (16 channels each; 4 with few channels). A group has a K step for each filter tap.
        chunk_groups: "cg",
        /// Pipeline stages (shared-memory buffers) of the packed weights.
        stages: "s",
    }
}

impl Scheme for ImplicitGemm {
    fn name(&self) -> &'static str {
        "implicit_gemm"
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
                "convolutions with at least 8 output channels, and 2 to 4, or at least 8, input channels; grouped ones if a group, or several \
                 merged ones, have at least 8 input channels; the output may be fp16 or bf16 NHWC",
            )
        }
    }

    fn tile_fields(&self) -> &'static [TileField] {
        ImplicitGemmTile::FIELDS
    }

    fn tiles(&self, problem: &Problem, gpu: &Gpu) -> Vec<Tile> {
        let kept = fastest(rated_tiles(problem, gpu));
        kept.into_iter().map(Tile::from).collect()
    }

    fn unpruned_tiles(&self, problem: &Problem, gpu: &Gpu) -> Vec<Tile> {
        let all = rated_tiles(problem, gpu).into_iter();
        all.map(|(_, tile)| tile.into()).collect()
    }

    fn search(&self, problem: &Problem, search: &mut TileSearch<'_>) {
        let Some(problem) = problem.conv() else {
            return;
        };
        let gpu = search.gpu();
        let dram_bytes = Problem::Conv(*problem).bytes() as f64;
        let groups = TileGroup::all(problem, gpu).into_iter();
        let groups = groups.map(|group| {
            let bound = group.totals(problem, dram_bytes).bound(gpu);
            let warps = [group.warps_m * group.warps_p, MAX_WARPS];
            (bound.us(1, warps), (group, bound))
        });
        let splits = Split::all(problem, gpu);
        search.best_first(groups.collect(), |search, (group, bound)| {
            let output_warps = group.warps_m * group.warps_p;
            for split in &splits[group.cluster as usize - 1] {
                let warps = output_warps * split.warps_k;
                if warps > MAX_WARPS || !search.can_improve(bound.us(split.chunks, [warps; 2])) {
                    continue;
                }
                for sizes in group.tiles(*split, problem, gpu) {
                    let work = sizes.work(problem, dram_bytes);
                    search.offer_launch(sizes.tile, convolution::role(false), work);
                }
            }
        });
    }

    fn supports(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> bool {
        let Some(problem) = problem.conv() else {
            return false;
        };
        supports_problem(problem) && ImplicitGemmGeometry::from_tile(problem, tile, gpu).is_some()
    }

    fn work(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> UnitWork {
        let problem = convolution::expect_conv(problem);
        UnitWork {
            launches: vec![LaunchWork {
                role: convolution::role(false),
                work: ImplicitGemmGeometry::of_supported(problem, tile, gpu)
                    .work(problem, Problem::Conv(*problem).bytes() as f64),
            }],
            zeroed_bytes: None,
        }
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> Blueprint {
        let problem = convolution::expect_conv(problem);
        let sizes = ImplicitGemmGeometry::of_supported(problem, tile, gpu);
        let layout = layout(problem, &sizes);
        let kernel = kernel(problem, &sizes, &layout);
        convolution::blueprint(problem, 1, kernel, layout)
    }
}

/// Whether the scheme can compute a problem with the formats and the precision that it requires.
fn supports_problem(problem: &ConvProblem) -> bool {
    let shape = &problem.shape;
    let step = KStep::for_shape(shape);
    let groups = MergedGroups::for_shape(shape);
    let enough = groups.c >= MMA_K / 2 || step.columns > 1;
    let is_depthwise = shape.groups > 1 && shape.groups == shape.c;
    let writes = problem.output == Format::default()
        || problem.precision.nhwc_format() == Some(problem.output.dense())
            && [shape.n, groups.n]
                .into_iter()
                .all(|channels| problem.output.fits_channels(channels));
    // Only if tiling supports the filter is its number of taps small.
    supports_grouped_tiling(problem)
        && enough
        && !is_depthwise
        && problem.input == Format::default()
        && writes
        && supports_mma(
            problem,
            groups.c,
            shape.r * shape.s.next_multiple_of(step.columns),
        )
}
