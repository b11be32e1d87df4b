//! `dense_step`: the last convolution of a dense layer and the 1x1 convolution that starts the next one, in one launch.
//!
//! A cluster of blocks computes all channels of a rectangle of pixels. The 1x1 convolution reads no other pixels, so nothing is computed
//! twice. The blocks divide the input channels of both convolutions, and exchange partial sums after each:
//!
//! 1. Each block loads its slice of the first convolution's input, at the positions that the rectangle's filters read, and its channels of the
//!    concatenation at the rectangle's pixels. It applies the prologue to the latter, converts both to fp16 operands, sums its slice of
//!    the first convolution, and sends each partial sum to the block that adds it.
//! 2. While these are on their way, it multiplies its channels of the concatenation with their columns of the 1x1 convolution.
//! 3. It adds the partial sums of its new channels and appends them to the concatenation. They are input channels of the 1x1 convolution too:
//!    it multiplies them with their columns.
//! 4. The blocks exchange the partial sums of the 1x1 convolution. Each adds them for a slice of the N channels, and stores these.
//!
//! The quads of the concatenation, four channels each, are dealt to the blocks in turn, the new ones after those before. So the packed weights
//! of a block need no gap between both.
//!
//! The arithmetic is that of [`tucker_fused`](super::tucker_fused), with the correction of what tensor cores truncate. In tf32, fp16 and bf16
//! operands are scaled and rounded to one fp16 number.
//! All weights of a block have memory of their own. Their copies start before the predecessor kernel has ended; those of the 1x1 convolution
//! start after the loads of the input if the launch has many blocks.

mod channels;
mod context;
mod geometry;
mod products;
mod shared_memory;
mod tile_space;
mod weight_layouts;
mod work;

use super::info::SchemeInfo;
use super::tiling::fastest;
use super::{
    Blueprint, DevicePart, KernelBlueprint, LaunchWork, Scheme, Tile, TileField, UnitWork,
    batch_stride_args, context as json, tile_numbers,
};
use crate::gpu::Gpu;
use crate::ir::{DenseStepProblem, Precision, Problem};
use context::Context;
use geometry::Geometry;
use tdc_runtime::{Arg, WeightLayout};
use tile_space::rated_tiles;
use weight_layouts::layouts;

/// See the [module](self).
pub struct DenseStep;

tile_numbers! {
    /// A tile of the [module](self)'s scheme.
    pub(super) struct DenseStepTile {
        /// Output rows of a cluster.
        th: "h",
        /// Output columns of a cluster.
        tw: "w",
        /// Blocks of a cluster, which divide the channels.
        cluster: "cl",
        /// Warps of a block.
        warps: "wt",
        /// Groups of warps: with one all warps compute both convolutions, with two each half computes one of them at the same time.
        warp_groups: "gr",
    }
}

/// The role of the launch.
const ROLE: &str = "kernel";

impl Scheme for DenseStep {
    fn name(&self) -> &'static str {
        "dense_step"
    }

    fn info(&self) -> SchemeInfo {
        SchemeInfo {
            precisions: &[
                Precision::Fp32,
                Precision::Tf32,
                Precision::Fp16,
                Precision::Bf16,
            ],
            ..SchemeInfo::own("the steps of DenseNet's blocks")
        }
    }

    fn tile_fields(&self) -> &'static [TileField] {
        DenseStepTile::FIELDS
    }

    fn tiles(&self, problem: &Problem, gpu: &Gpu) -> Vec<Tile> {
        let Problem::DenseStep(problem) = problem else {
            return Vec::new();
        };
        let kept = fastest(rated_tiles(problem, gpu));
        kept.into_iter().map(Tile::from).collect()
    }

    fn unpruned_tiles(&self, problem: &Problem, gpu: &Gpu) -> Vec<Tile> {
        let Problem::DenseStep(problem) = problem else {
            return Vec::new();
        };
        let all = rated_tiles(problem, gpu).into_iter();
        all.map(|(_, tile)| tile.into()).collect()
    }

    fn supports(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> bool {
        let Problem::DenseStep(problem) = problem else {
            return false;
        };
        Geometry::from_tile(problem, tile, gpu).is_some()
    }

    fn work(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> UnitWork {
        let problem = expect_dense_step(problem);
        UnitWork {
            launches: vec![LaunchWork {
                role: ROLE,
                work: Geometry::of_supported(problem, tile, gpu).work(problem, gpu),
            }],
            zeroed_bytes: None,
        }
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> Blueprint {
        let problem = expect_dense_step(problem);
        let sizes = Geometry::of_supported(problem, tile, gpu);
        let layouts = layouts(problem, &sizes);
        let kernel = kernel(problem, &sizes, &layouts, gpu);
        Blueprint::new(vec![kernel], layouts)
    }
}

fn kernel(
    problem: &DenseStepProblem,
    sizes: &Geometry,
    layouts: &[WeightLayout],
    gpu: &Gpu,
) -> KernelBlueprint {
    let (batch, cluster) = (problem.growth.batch, sizes.tile.cluster);
    let mut args = vec![Arg::X, Arg::Packed];
    args.extend(problem.epilogue.bias.then_some(Arg::Bias));
    args.extend([Arg::Concatenation, Arg::Y]);
    args.extend(batch_stride_args(batch, true));
    let [tiles, _] = sizes.rectangle.tiles();
    KernelBlueprint {
        role: ROLE,
        template: "kernel/dense_step.cu",
        grid: [tiles * batch, 1, cluster],
        block: [32 * sizes.tile.warps, 1, 1],
        cluster: [1, 1, cluster],
        shared_bytes: 4 * sizes.memory.floats,
        pdl: true,
        // The first part is needed only with clusters.
        device: &DEVICE[usize::from(cluster == 1)..],
        args,
        work: sizes.work(problem, gpu),
        context: json(&Context::new(problem, sizes, layouts)),
    }
}

const DEVICE: &[DevicePart] = &[
    DevicePart::Cluster,
    DevicePart::DynamicShared,
    DevicePart::AsyncCopy,
    DevicePart::BulkCopy,
    DevicePart::Pdl,
    DevicePart::Fp16,
    DevicePart::Mma,
    DevicePart::MmaSteps,
];

/// The dense step of a problem that is known to be one.
fn expect_dense_step(problem: &Problem) -> &DenseStepProblem {
    match problem {
        Problem::DenseStep(problem) => problem,
        _ => unreachable!("dense_step has tiles for dense steps only"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::gpu;
    use crate::plan::problem_of_label;

    #[test]
    fn sizes_beyond_the_limits_have_no_tile() {
        let h200 = gpu("h200").unwrap();
        for (label, is_supported) in [
            ("c16_grow7_before32_n16_h9_w9_k11x11_p5_concat", true),
            (
                "c128_grow32_before624_n128_h14_w14_k3x3_p1_concat_prologuerelu_bias_relu",
                true,
            ),
            // Quads of the concatenation are four of its channels before, or new ones.
            ("c16_grow8_before18_n16_h9_w9_k3x3_p1_concat", false),
            ("c16_grow8_before16_n16_h9_w9_k13x13_p6_concat", false),
            ("c8192_grow8_before8192_n8192_h9_w9_k3x3_p1_concat", false),
        ] {
            let problem = problem_of_label(&format!("densestep_{label}")).expect(label);
            let tiles = DenseStep.unpruned_tiles(&problem, h200);
            assert_eq!(!tiles.is_empty(), is_supported, "{label}");
            for numbers in [
                [256, 256, 1, 1, 1],
                [256, 256, 8, 16, 1],
                [0, 4, 1, 4, 1],
                [2, 4, 9, 4, 1],
                [2, 4, 2, 4, 3],
                [2, 4, 1, 8, 2],
            ] {
                let tile = Tile(numbers.to_vec());
                assert!(!DenseStep.supports(&problem, &tile, h200), "{label}");
            }
        }
    }
}
