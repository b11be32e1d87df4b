//! `inverted_residual`: the expansion (1x1), the depthwise convolution and the projection (1x1) of an inverted residual in one launch.
//!
//! Expanded values, of which there are several times as many as inputs and outputs, stay on the chip. A cluster of blocks computes all
//! channels of a rectangle of the output. The expanded channels are divided among its blocks. Because a depthwise convolution computes each
//! channel from that channel alone, a block needs nothing from the others until the end:
//!
//! 1. Each block loads all channels of the positions that the rectangle's filters read, and converts them to fp16 operands.
//! 2. It computes its slice of the expanded channels there, by the tensor cores, and keeps them in shared memory in fp32. Positions outside
//!    the image are zeros. Positions that adjacent rectangles both read are computed twice.
//! 3. It applies the depthwise filters to its slice, on the fp32 lanes, and converts the result to fp16 operands.
//! 4. It multiplies these with its columns of the projection. The result is a partial sum of all N channels of the rectangle.
//! 5. The blocks exchange partial sums. Each adds them for a slice of the N channels, and stores these.
//!
//! The arithmetic of the 1x1 convolutions is that of [`tucker_fused`](super::tucker_fused), with the correction of what tensor cores truncate.
//! In tf32, fp16 and bf16 operands are scaled and rounded to one fp16 number.
//! All weights of a block's slice have memory of their own. Their copies start before the predecessor kernel has ended; those that are needed
//! last start after the loads of the input if the launch has many blocks.

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
use crate::ir::{InvertedResidualProblem, Precision, Problem};
use context::Context;
use geometry::Geometry;
use tdc_runtime::{Arg, WeightLayout};
use tile_space::rated_tiles;
use weight_layouts::layouts;

/// See the [module](self).
pub struct InvertedResidual;

tile_numbers! {
    /// A tile of the [module](self)'s scheme.
    pub(super) struct InvertedResidualTile {
        /// Output rows of a cluster.
        th: "h",
        /// Output columns of a cluster.
        tw: "w",
        /// Blocks of a cluster, which divide the expanded channels.
        cluster: "cl",
        /// Warps of a block.
        warps: "wt",
    }
}

/// The role of the launch.
const ROLE: &str = "kernel";

impl Scheme for InvertedResidual {
    fn name(&self) -> &'static str {
        "inverted_residual"
    }

    fn info(&self) -> SchemeInfo {
        SchemeInfo {
            precisions: &[
                Precision::Fp32,
                Precision::Tf32,
                Precision::Fp16,
                Precision::Bf16,
            ],
            ..SchemeInfo::own("the three convolutions of inverted residuals")
        }
    }

    fn tile_fields(&self) -> &'static [TileField] {
        InvertedResidualTile::FIELDS
    }

    fn tiles(&self, problem: &Problem, gpu: &Gpu) -> Vec<Tile> {
        let Problem::InvertedResidual(problem) = problem else {
            return Vec::new();
        };
        let kept = fastest(rated_tiles(problem, gpu));
        kept.into_iter().map(Tile::from).collect()
    }

    fn unpruned_tiles(&self, problem: &Problem, gpu: &Gpu) -> Vec<Tile> {
        let Problem::InvertedResidual(problem) = problem else {
            return Vec::new();
        };
        let all = rated_tiles(problem, gpu).into_iter();
        all.map(|(_, tile)| tile.into()).collect()
    }

    fn supports(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> bool {
        let Problem::InvertedResidual(problem) = problem else {
            return false;
        };
        Geometry::from_tile(problem, tile, gpu).is_some()
    }

    fn work(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> UnitWork {
        let problem = expect_inverted_residual(problem);
        UnitWork {
            launches: vec![LaunchWork {
                role: ROLE,
                work: Geometry::of_supported(problem, tile, gpu).work(problem, gpu),
            }],
            zeroed_bytes: None,
        }
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> Blueprint {
        let problem = expect_inverted_residual(problem);
        let sizes = Geometry::of_supported(problem, tile, gpu);
        let layouts = layouts(problem, &sizes);
        let kernel = kernel(problem, &sizes, &layouts, gpu);
        Blueprint::new(vec![kernel], layouts)
    }
}

fn kernel(
    problem: &InvertedResidualProblem,
    sizes: &Geometry,
    layouts: &[WeightLayout],
    gpu: &Gpu,
) -> KernelBlueprint {
    let (batch, cluster) = (problem.depthwise.batch, sizes.tile.cluster);
    let epilogue = problem.project;
    let mut args = vec![Arg::X, Arg::Packed];
    args.extend(epilogue.bias.then_some(Arg::Bias));
    args.extend(epilogue.residual.then_some(Arg::Residual));
    args.push(Arg::Y);
    args.extend(batch_stride_args(batch, epilogue.residual));
    let [tiles, _] = sizes.rectangle.tiles();
    KernelBlueprint {
        role: ROLE,
        template: "kernel/inverted_residual.cu",
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

/// The inverted residual of a problem that is known to be one.
fn expect_inverted_residual(problem: &Problem) -> &InvertedResidualProblem {
    match problem {
        Problem::InvertedResidual(problem) => problem,
        _ => unreachable!("inverted_residual has tiles for inverted residuals only"),
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
            ("c16_e96_n16_h9_w9_k11x11_p5_depthwise_project", true),
            ("c16_e16_n16_h9_w9_k1025x1025_p512_depthwise_project", false),
            ("c16_e96_n16_h9_w9_k13x13_p6_depthwise_project", false),
            ("c16_e96_n16_h9_w9_k3x3_p1_depthwise_project_bf16", true),
            ("c8192_e8192_n8192_h9_w9_k3x3_p1_depthwise_project", false),
        ] {
            let problem = problem_of_label(&format!("invertedresidual_{label}")).expect(label);
            let tiles = InvertedResidual.unpruned_tiles(&problem, h200);
            assert_eq!(!tiles.is_empty(), is_supported, "{label}");
            for numbers in [
                [256, 256, 1, 1],
                [256, 256, 8, 16],
                [0, 4, 1, 4],
                [2, 4, 9, 4],
            ] {
                let tile = Tile(numbers.to_vec());
                assert!(!InvertedResidual.supports(&problem, &tile, h200), "{label}");
            }
        }
    }
}
