//! `mma_nhwc`: a convolution of activations in fp16 or bf16 NHWC as an implicit matrix product by `mma.sync`, on every GPU from sm_80 on.
//!
//! A block computes a rectangle of output pixels of some output channels. For a chunk of input channels it copies what all filter taps read
//! to shared memory once, pixel by pixel, 16 bytes at a time, so that nothing passes through registers. Matrix loads (`ldmatrix`) take rows of
//! eight channels from any eight pixels, which makes a filter tap a fixed distance. Pixels are swizzled, so that loads of adjacent pixels have
//! no bank conflicts. Weights are packed in the order of the tensor cores' registers.
//!
//! A stage of the pipeline has the weights of some filter taps for a chunk. The input of a chunk is copied together with its first weights.
//!
//! Small groups are merged up to the 16 channels of an MMA tile, as in `implicit_gemm`. A block may have several merged groups, whose warps read
//! their channels of the same pixels: it then copies up to 128 contiguous bytes, where one group has 32.

mod geometry;
mod kernel;
mod tile_space;
mod work;

use super::info::SchemeInfo;
use super::merged_groups::MergedGroups;
use super::tensor_core::supports_mma;
use super::tiling::{fastest, offer_fastest, supports_grouped_tiling};
use super::wgmma::multiplies_nhwc;
use super::{
    Blueprint, LaunchWork, Scheme, Tile, TileField, TileSearch, UnitWork, convolution, tile_numbers,
};
use crate::gpu::Gpu;
use crate::ir::{ConvProblem, Precision, Problem};
use geometry::MmaNhwcGeometry;

/// See the [module](self).
pub struct MmaNhwc;

tile_numbers! {
    /// A tile of the [module](self)'s scheme.
    struct MmaNhwcTile {
        /// Output rows of a block.
        th: "h",
        /// Output columns of a block.
        tw: "w",
        /// MMA tiles of a warp along the output channels (16 channels each).
        m_tiles: "m",
        /// Warps along the output channels.
        warps_m: "wm",
        /// Warps along the pixels.
        warps_p: "wp",
        /// Channel groups of one chunk (16 channels each).
        chunk_groups: "cg",
        /// Merged groups of a block, each of a row of warps along the output channels.
        block_groups: "bg",
        /// Filter taps of one stage: all, those of a row, or one.
        taps: "t",
        /// Pipeline stages (shared-memory buffers) of the packed weights.
        stages: "s",
    }
}

impl Scheme for MmaNhwc {
    fn name(&self) -> &'static str {
        "mma_nhwc"
    }

    fn info(&self) -> SchemeInfo {
        SchemeInfo {
            precisions: &[Precision::Fp16, Precision::Bf16],
            ..SchemeInfo::own(
                "convolutions whose activations are in fp16 NHWC (`activations: fp16`) or bf16 NHWC, without prologue; grouped ones if a \
                 group, or several merged ones, have a multiple of 8 input channels and of 8 output channels",
            )
        }
    }

    /// Where warpgroups can compute the problem, they are nearly always faster, by less than the predicted times are wrong.
    fn is_considered(&self, problem: &Problem, gpu: &Gpu) -> bool {
        let by_warpgroups = gpu.has_wgmma() && multiplies_nhwc(problem);
        self.is_default() && !by_warpgroups
    }

    fn tile_fields(&self) -> &'static [TileField] {
        MmaNhwcTile::FIELDS
    }

    fn tiles(&self, problem: &Problem, gpu: &Gpu) -> Vec<Tile> {
        let kept = fastest(tile_space::tiles(problem, gpu));
        kept.into_iter().map(Tile::from).collect()
    }

    fn unpruned_tiles(&self, problem: &Problem, gpu: &Gpu) -> Vec<Tile> {
        let all = tile_space::tiles(problem, gpu).into_iter();
        all.map(|(_, tile)| tile.into()).collect()
    }

    fn search(&self, problem: &Problem, search: &mut TileSearch<'_>) {
        let all = tile_space::tiles(problem, search.gpu());
        offer_fastest(self, problem, all, search);
    }

    fn supports(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> bool {
        let supported = problem.conv().filter(|conv| supports_problem(conv));
        supported.is_some_and(|conv| MmaNhwcGeometry::from_tile(conv, tile, gpu).is_some())
    }

    fn work(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> UnitWork {
        let problem = convolution::expect_conv(problem);
        UnitWork {
            launches: vec![LaunchWork {
                role: convolution::role(false),
                work: MmaNhwcGeometry::of_supported(problem, tile, gpu).work(problem, gpu),
            }],
            zeroed_bytes: None,
        }
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> Blueprint {
        let problem = convolution::expect_conv(problem);
        let sizes = MmaNhwcGeometry::of_supported(problem, tile, gpu);
        let layout = kernel::layout(problem, &sizes);
        let kernel = kernel::kernel(problem, &sizes, &layout, gpu);
        convolution::blueprint(problem, 1, kernel, layout)
    }
}

/// Whether the scheme can compute a problem.
fn supports_problem(problem: &ConvProblem) -> bool {
    let shape = &problem.shape;
    let groups = MergedGroups::for_shape(shape);
    let has_runs = [shape.c, shape.n, groups.c, groups.n]
        .into_iter()
        .all(|channels| problem.input.fits_channels(channels));
    let is_depthwise = shape.groups > 1 && shape.groups == shape.c;
    problem.precision.nhwc_format() == Some(problem.input.dense())
        && problem.output.dense() == problem.input.dense()
        && problem.prologue.is_none()
        && has_runs
        && !is_depthwise
        && supports_grouped_tiling(problem)
        && supports_mma(problem, groups.c, shape.r * shape.s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::gpu;
    use crate::plan::{Planner, plan_problem, problem_of_label};

    /// The scheme that the planner chooses for a problem on a GPU; `None` if there is none.
    fn chosen(label: &str, gpu_name: &str) -> Option<&'static str> {
        let problem = problem_of_label(label).expect(label);
        let mut planner = Planner::new(gpu(gpu_name).unwrap());
        let unit = plan_problem(&mut planner, "test", "layer", &problem, None, None);
        unit.ok().map(|unit| unit.scheme)
    }

    #[test]
    fn every_gpu_with_mma_reads_16_bit_nhwc_and_hopper_its_groups() {
        for dtype in ["fp16_nhwc16", "bf16_nhwcbf16"] {
            let dense = format!("conv_b8_c64_n64_h28_w28_k3x3_p1_bias_relu_{dtype}");
            let grouped = format!("conv_b8_c128_n128_h28_w28_k3x3_p1_g32_bias_relu_{dtype}");
            let narrow = format!("conv_b8_c24_n144_h28_w28_k1x1_bias_relu_{dtype}");
            for label in [&dense, &grouped, &narrow] {
                assert_eq!(chosen(label, "a100"), Some("mma_nhwc"), "{label}");
                assert_eq!(chosen(label, "rtx4090"), Some("mma_nhwc"), "{label}");
                assert_eq!(chosen(label, "rtx2080ti"), None, "{label}");
            }
            assert_eq!(chosen(&dense, "h200"), Some("wgmma_nhwc"));
            assert_eq!(chosen(&grouped, "h200"), Some("mma_nhwc"));
            assert_eq!(chosen(&narrow, "h200"), Some("mma_nhwc"));
        }
    }

    #[test]
    fn gpus_without_mma_support_no_tile() {
        let label = "conv_b8_c64_n64_h28_w28_k3x3_p1_relu_fp16_nhwc16";
        let problem = problem_of_label(label).unwrap();
        let [h200, v100] = ["h200", "v100"].map(|name| gpu(name).unwrap());
        let tiles = MmaNhwc.tiles(&problem, h200);
        assert!(!tiles.is_empty() && MmaNhwc.tiles(&problem, v100).is_empty());
        assert!(
            tiles
                .iter()
                .all(|tile| MmaNhwc.supports(&problem, tile, h200))
        );
        assert!(
            !tiles
                .iter()
                .any(|tile| MmaNhwc.supports(&problem, tile, v100))
        );
    }
}
