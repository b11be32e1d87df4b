//! `tucker_fused`: all factors of a Tucker layer (1x1, R x S core, 1x1) in one launch, or its core and last factor in one launch.
//!
//! The arithmetic is that of [`implicit_gemm`](super::implicit_gemm): tensor cores multiply values that are split in two scaled fp16
//! numbers, and partial accumulators of [`PROMOTION_INTERVAL`](super::tensor_core::PROMOTION_INTERVAL) K steps are added in fp32.
//! Intermediate results stay on the chip. A cluster of blocks computes all channels of a rectangle of the output:
//!
//! 1. Each block computes a slice of the D1 channels from all input channels, at every position that the core reads, and keeps it in shared
//!    memory. Positions that adjacent rectangles both read are computed twice.
//! 2. Each block multiplies its slice with the core's weights for it. The result is a partial sum of the D2 channels of the rectangle.
//! 3. The blocks exchange partial sums. If `blocks_n` is 1, each block adds all D2 channels of a part of the pixels. Otherwise groups of
//!    `blocks_n` blocks have the same pixels: each block adds a slice of the channels and sends the sums to the others of its group.
//! 4. Each block multiplies with its rows of the last factor and stores the output.
//! 5. If the next layer's first factor is fused, each block converts its output to fp16 operands and multiplies them with the columns of
//!    that factor that belong to its channels. Blocks with the same pixels exchange these partial sums too, and each adds a slice of the
//!    channels.
//!
//! If one warp holds complete sums, they are converted, sent or stored from its registers. `max_warps_k` is the largest number of warps
//! that may split a sum. If it is 0, the number is not limited, and all sums pass through shared memory except those that are sent to other
//! blocks; that leaves fewer terms to each warp. If the next layer's first factor is fused, the sums of the last factor are always complete
//! in one warp, and every chunk of weights has its own shared memory.
//!
//! No two blocks of a cluster read the same weights of the first factor or the core. With `blocks_n` blocks for the same pixels, each reads
//! one in `blocks_n` of the last factor's weights. If `d2_splits` is above 1, `d2_splits` blocks all compute the same slice of the D1
//! channels, and each multiplies it with a slice of the core's output channels. That leaves fewer partial sums to exchange, and allows more
//! blocks than D1 has slices.
//!
//! Weights are copied in chunks, in the order of their use. The copies start before the predecessor kernel has ended. Each chunk has its
//! own shared memory, or the chunks pass through a ring of buffers if shared memory cannot hold them all. Later data reuse the memory of
//! weights and inputs that are no longer needed.

mod block_part;
mod bound;
mod cluster_split;
mod context;
mod factors;
mod geometry;
mod input_tile;
mod kernel;
mod shared_memory;
mod sums;
mod tile_space;
mod weight_layouts;
mod work;

use super::info::SchemeInfo;
use super::tiling::fastest;
use super::{Blueprint, LaunchWork, Scheme, Tile, TileField, TileSearch, UnitWork, tile_numbers};
use crate::gpu::Gpu;
use crate::ir::{Precision, Problem, TuckerProblem};
use bound::Bounds;
use geometry::TuckerFusedGeometry;
use kernel::kernel;
use tile_space::{ClusterGroup, rated_tiles, supports_problem};
use weight_layouts::layouts;

/// See the [module](self).
pub struct TuckerFused;

tile_numbers! {
    /// A tile of the [module](self)'s scheme.
    pub(super) struct TuckerFusedTile {
        /// Output rows of a cluster.
        th: "h",
        /// Output columns of a cluster.
        tw: "w",
        /// Blocks of a cluster.
        cluster: "cl",
        /// Blocks of the cluster that have the same pixels and split the output channels.
        blocks_n: "bn",
        /// Splits of the core's output channels (D2) over the blocks.
        d2_splits: "ds",
        /// Warps of a block.
        warps: "wt",
        /// Most warps that may split K of one factor; 0: no limit, and sums always pass through shared memory.
        max_warps_k: "mk",
        /// Groups of 16 input channels of a chunk of the first factor.
        chunk_groups: "cg",
        /// Most KiB of weights in a chunk.
        chunk_kib: "kb",
    }
}

/// The role of the launch.
const ROLE: &str = "kernel";

/// Maximum of `chunk_kib`: a larger chunk does not fit in addition to the other data of a block.
const MAX_CHUNK_KIB: u32 = 224;

impl Scheme for TuckerFused {
    fn name(&self) -> &'static str {
        "tucker_fused"
    }

    fn info(&self) -> SchemeInfo {
        SchemeInfo {
            fuses_factors: true,
            precisions: &[Precision::Fp32, Precision::Tf32, Precision::Fp16],
            ..SchemeInfo::own("Tucker layers, or their last two factors")
        }
    }

    fn tile_fields(&self) -> &'static [TileField] {
        TuckerFusedTile::FIELDS
    }

    fn tiles(&self, problem: &Problem, gpu: &Gpu) -> Vec<Tile> {
        let kept = fastest(rated_tiles(problem, gpu, true));
        kept.into_iter().map(Tile::from).collect()
    }

    fn unpruned_tiles(&self, problem: &Problem, gpu: &Gpu) -> Vec<Tile> {
        let all = rated_tiles(problem, gpu, false).into_iter();
        all.map(|(_, tile)| tile.into()).collect()
    }

    fn search(&self, problem: &Problem, search: &mut TileSearch<'_>) {
        let Problem::Tucker(problem) = problem else {
            return;
        };
        let gpu = search.gpu();
        let mut bounds = Bounds::new(problem, gpu, search.knows_registers());
        let of_clusters = ClusterGroup::all(problem, gpu).into_iter();
        let of_clusters = of_clusters.map(|group| (bounds.of_cluster_us(group), group));
        search.best_first(of_clusters.collect(), |search, of_cluster| {
            let groups = of_cluster.groups().into_iter();
            let groups = groups.map(|group| (bounds.quick_us(group), group));
            search.best_first(groups.collect(), |search, &group| {
                if !search.can_improve(bounds.us(group)) {
                    return;
                }
                let (dram_bytes, arrangements) = (bounds.dram_bytes(), &mut bounds.arrangements);
                for chunk_groups in group.chunk_groups(problem, gpu, arrangements) {
                    for sizes in group.tiles(chunk_groups, problem, gpu, arrangements) {
                        let work = sizes.work(problem, dram_bytes, gpu);
                        search.offer_launch(sizes.tile, ROLE, work);
                    }
                }
            });
        });
    }

    fn supports(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> bool {
        let Problem::Tucker(problem) = problem else {
            return false;
        };
        supports_problem(problem) && TuckerFusedGeometry::from_tile(problem, tile, gpu).is_some()
    }

    fn work(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> UnitWork {
        let problem = expect_tucker(problem);
        UnitWork {
            launches: vec![LaunchWork {
                role: ROLE,
                work: TuckerFusedGeometry::of_supported(problem, tile, gpu).work(
                    problem,
                    Problem::Tucker(*problem).bytes() as f64,
                    gpu,
                ),
            }],
            zeroed_bytes: None,
        }
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> Blueprint {
        let problem = expect_tucker(problem);
        let sizes = TuckerFusedGeometry::of_supported(problem, tile, gpu);
        let layouts = layouts(problem, &sizes);
        let kernel = kernel(problem, &sizes, &layouts, gpu);
        Blueprint::new(vec![kernel], layouts)
    }
}

/// The Tucker layer of a problem that is known to be one.
fn expect_tucker(problem: &Problem) -> &TuckerProblem {
    match problem {
        Problem::Tucker(problem) => problem,
        _ => unreachable!("tucker_fused has tiles for Tucker layers only"),
    }
}
