//! `tucker_fused`: the factors of a Tucker layer, 1x1, R x S core and 1x1, in one launch; or the last two behind the first one's.
//!
//! The products are those of [`implicit_gemm`](super::implicit_gemm): on the tensor cores, values split in two scaled fp16 numbers,
//! sums of [`PROMOTION_INTERVAL`](super::tensor_core::PROMOTION_INTERVAL) steps added in fp32. What lies between the factors stays on the chip. A cluster of blocks computes a rectangle
//! of the output, all channels of it:
//!
//! 1. Each block has a share of the D1 channels. It computes them from all input channels at every position that the core reads,
//!    so what neighbouring rectangles both read is computed twice, and keeps them in its shared memory.
//! 2. It multiplies them with its part of the core: a share of the sum of all D2 channels of the rectangle.
//! 3. The blocks exchange their shares. With `v` = 1 each finishes all D2 channels of some pixels; else `v` blocks add up a part of
//!    the channels each, for the same pixels, and tell each other.
//! 4. Each multiplies with its part of the last factor and stores.
//! 5. Where the problem goes on with the first factor of the layer behind, each rounds what it has stored and multiplies it with its
//!    rows of that factor. Blocks that have the same pixels exchange those sums too, a part of the channels each.
//!
//! Sums that one warp has the whole of are rounded, sent or stored straight from its registers; `k` is how many warps may share one,
//! and with 0 all but those that go to other blocks pass through shared memory, which leaves less to each warp. Those of the last
//! factor are always whole where the launch goes on, and the chunks have places of their own there.
//!
//! So no two blocks of a cluster read the same weights of the first factor or the core, and with `v` blocks to a group of pixels
//! each reads one in `v` of the last factor's. With `u` above 1 a share of the D1 channels belongs to `u` blocks, which all compute it, and
//! each multiplies it with a part of the core's output channels: fewer sums to exchange, and more blocks than D1 has shares.
//!
//! Chunks of weights are on their way in the order of their use from before the launch ahead has ended, each to a place of its own, or
//! through a ring of buffers where shared memory cannot hold them all. What comes later takes the room of weights and inputs that have
//! been used.

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

/// Warps at most that share a sum, and KiB of a chunk at most, that are tried together.
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

/// What asks for the least room: whole sums in registers, or small chunks.
const SMALLEST: [[u32; 2]; 2] = [[1, 128], [16, 64]];

/// KiB of a chunk at most: no more fits beside what else a block keeps in shared memory.
const MAX_CHUNK_KIB: u32 = 224;

/// Every tile that fits a GPU, with its rough time; none if the GPU has only the kernel's fallback. `prunes_bases` leaves out clusters and
/// rectangles that are slow with the smallest chunks.
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
    // Each with the first of the least that fits; then those that promise most with all sharers and chunks.
    let rough = RoughTime::new(gpu);
    let mut bases = Vec::new();
    for (th, tw) in tile_shapes(core.out_h(), core.out_w(), 256) {
        for [cluster, blocks_n, d2_splits] in clusters(gpu.max_cluster()) {
            for warps in [4, 6, 8, 12, 16] {
                // Of the chunks that threads can load, the two largest.
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
            // With larger chunks than there are, or more shares, it would be the same kernel.
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

/// What a cluster can be: its blocks, those that finish the same pixels, and parts of the core's output channels.
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

/// The Tucker layer in a problem that the scheme was given.
fn expect_tucker(problem: &Problem) -> &TuckerProblem {
    match problem {
        Problem::Tucker(problem) => problem,
        _ => unreachable!("tucker_fused has tiles for Tucker layers only"),
    }
}

/// Whether the scheme can compute a problem, and as precisely as it must be; see [`implicit_gemm`](super::implicit_gemm). bf16,
/// whose numbers are not scaled, is left to single convolutions.
fn supports_problem(problem: &TuckerProblem) -> bool {
    let core = &problem.core;
    // Padded to whole tiles, the weights must still be counted by an int.
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
