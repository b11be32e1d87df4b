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

mod estimate;
mod factor;
mod kernel;
mod sizes;

use super::implicit_gemm::tile_shapes;
use super::info::SchemeInfo;
use super::tensor_core::{MMA_K, divisors};
use super::tiling::{RoughTime, fastest, supports_tiling};
use super::{Blueprint, LaunchWork, Scheme, Tile, TileField, UnitWork, tile_numbers};
use crate::gpu::Gpu;
use crate::ir::{MAX_ELEMENTS, Precision, Problem, TuckerProblem};
use kernel::{kernel, layouts};
use sizes::{TuckerFusedGeometry, core_problem};
use tdc_runtime::WeightLayout;

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

/// Pairs of `max_warps_k` and `chunk_kib` that are tried.
const WARPS_K_AND_CHUNK_KIB: [[u32; 2]; 8] = [
    [0, 128],
    [0, MAX_CHUNK_KIB],
    [1, 128],
    [1, MAX_CHUNK_KIB],
    [2, MAX_CHUNK_KIB],
    [16, 64],
    [16, 128],
    [16, MAX_CHUNK_KIB],
];

/// The pairs that need the least shared memory: complete sums in registers, or small chunks.
const SMALLEST: [[u32; 2]; 2] = [[1, 128], [16, 64]];

/// Maximum of `chunk_kib`: a larger chunk does not fit in addition to the other data of a block.
const MAX_CHUNK_KIB: u32 = 224;

/// Every tile that fits a GPU, with its rough time. Empty if the GPU supports only the kernel's fallback. `prunes_bases` leaves out
/// clusters and rectangles that are slow with the smallest chunks.
fn rated_tiles(problem: &Problem, gpu: &Gpu, prunes_bases: bool) -> Vec<(f64, TuckerFusedTile)> {
    let Problem::Tucker(problem) = problem else {
        return Vec::new();
    };
    if !gpu.has_mma() || !supports_problem(problem) {
        return Vec::new();
    }
    let core = &problem.core;
    let groups = problem.first.map_or(1, |c| c.div_ceil(MMA_K));
    let tile = |base: [u32; 7], [max_warps_k, chunk_kib]: [u32; 2]| {
        let [th, tw, cluster, blocks_n, d2_splits, warps, chunk_groups] = base;
        let tile = TuckerFusedTile {
            th,
            tw,
            cluster,
            blocks_n,
            d2_splits,
            warps,
            max_warps_k,
            chunk_groups,
            chunk_kib,
        };
        Some((TuckerFusedGeometry::new(problem, tile, gpu)?, tile))
    };
    // Each base is rated with the first pair of `SMALLEST` that fits. The fastest bases are then tried with all pairs.
    let rough = RoughTime::new(gpu);
    let mut bases = Vec::new();
    for (th, tw) in tile_shapes(core.out_h(), core.out_w(), 256) {
        for [cluster, blocks_n, d2_splits] in clusters(gpu.max_cluster()) {
            for warps in [4, 6, 8, 12, 16] {
                // The two largest chunks that the threads can load.
                let most = divisors(groups, &[1, 2, 3, 4, 6, 8, 12, 16, 32]);
                let largest_first = most.collect::<Vec<_>>().into_iter().rev();
                let fitting = largest_first.filter_map(|chunk_groups| {
                    let base = [th, tw, cluster, blocks_n, d2_splits, warps, chunk_groups];
                    let (sizes, _) = SMALLEST.iter().find_map(|&numbers| tile(base, numbers))?;
                    Some((rough.of(&sizes.work(problem, gpu)), base))
                });
                bases.extend(fitting.take(2));
            }
        }
    }
    let mut found = Vec::new();
    let bases = match prunes_bases {
        true => fastest(bases),
        false => bases.into_iter().map(|(_, base)| base).collect(),
    };
    for base in bases {
        let mut known = Vec::new();
        for (sizes, tile) in WARPS_K_AND_CHUNK_KIB
            .iter()
            .filter_map(|&numbers| tile(base, numbers))
        {
            // A larger chunk limit than there are chunks, or a larger warp limit than K can be split over, gives the same kernel.
            let shares: Vec<_> = sizes.factors().map(|factor| factor.warps_k).collect();
            let chunks = (sizes.core.chunks, sizes.last.chunks);
            let whole = [
                sizes.first_in_registers,
                sizes.core_sent_from_registers,
                sizes.core_in_registers,
                sizes.last_in_registers,
            ];
            let kernel = (whole, chunks, shares);
            if !known.contains(&kernel) {
                known.push(kernel);
                found.push((rough.of(&sizes.work(problem, gpu)), tile));
            }
        }
    }
    found
}

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
                role: "kernel",
                work: TuckerFusedGeometry::of_supported(problem, tile, gpu).work(problem, gpu),
            }],
            zeroed_bytes: None,
        }
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> Blueprint {
        let problem = expect_tucker(problem);
        let sizes = TuckerFusedGeometry::of_supported(problem, tile, gpu);
        let layouts = layouts(problem, &sizes);
        let kernel = kernel(problem, sizes, &layouts, gpu);
        let mut layouts = layouts.into_iter();
        Blueprint {
            kernels: vec![kernel],
            zeroed: None,
            workspace_bytes: 0,
            weights: layouts.next().unwrap_or(WeightLayout::NONE),
            extra_weight_layouts: layouts.collect(),
        }
    }
}

/// The possible clusters: the number of blocks, `blocks_n` and `d2_splits`.
fn clusters(max_cluster: u32) -> Vec<[u32; 3]> {
    const PARTS: &[u32] = &[1, 2, 3, 4, 5, 6, 7, 8];
    let mut found = Vec::new();
    for cluster in 1..=max_cluster {
        for blocks_n in divisors(cluster, PARTS) {
            let parts = divisors(cluster, PARTS);
            found.extend(parts.map(|d2_splits| [cluster, blocks_n, d2_splits]));
        }
    }
    found
}

/// The Tucker layer of a problem that is known to be one.
fn expect_tucker(problem: &Problem) -> &TuckerProblem {
    match problem {
        Problem::Tucker(problem) => problem,
        _ => unreachable!("tucker_fused has tiles for Tucker layers only"),
    }
}

/// Whether the scheme supports a problem, including its precision; see [`implicit_gemm`](super::implicit_gemm). bf16, whose values are not
/// scaled, is supported for single convolutions only.
fn supports_problem(problem: &TuckerProblem) -> bool {
    let core = &problem.core;
    // The number of weights, padded to complete tiles, must fit in an int.
    let padded = |channels: u32| u64::from(channels) + 512;
    let c = problem.first.unwrap_or(core.c);
    let weights = padded(c) * padded(core.c)
        + padded(core.c) * padded(core.n) * u64::from(core.r) * u64::from(core.s)
        + padded(core.n) * padded(problem.n)
        + problem
            .next
            .map_or(0, |next| padded(problem.n) * padded(next.n));
    supports_tiling(&core_problem(problem))
        && problem.precision != Precision::Bf16
        && c.min(core.c).min(core.n).min(problem.n) >= 8
        && c.max(core.n).max(problem.n) <= 1 << 13
        && problem
            .next
            .is_none_or(|next| (8..=1 << 13).contains(&next.n))
        && Problem::Tucker(*problem).y().len() >= 256
        && weights <= MAX_ELEMENTS
}
