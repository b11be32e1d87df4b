//! The tile space.

use super::block_part::BlockPart;
use super::geometry::{MAX_SHARED, TuckerFusedGeometry, core_problem};
use super::{MAX_CHUNK_KIB, TuckerFusedTile};
use crate::cost::KernelWork;
use crate::gpu::Gpu;
use crate::ir::{MAX_ELEMENTS, Precision, Problem, TuckerProblem};
use crate::scheme::factor::Arrangements;
use crate::scheme::implicit_gemm::tile_shapes;
use crate::scheme::tensor_core::{MMA_K, divisors, products};
use crate::scheme::tiling::{RoughTime, fastest, supports_tiling};

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

/// Warps of a block that are tried, ascending.
pub(super) const WARPS: [u32; 5] = [4, 6, 8, 12, 16];

/// The tiles with the same pixels and cluster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ClusterGroup {
    pub(super) th: u32,
    pub(super) tw: u32,
    pub(super) cluster: u32,
    pub(super) blocks_n: u32,
    pub(super) d2_splits: u32,
}

/// The tiles of a [`ClusterGroup`] with the same warps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TileGroup {
    pub(super) of_cluster: ClusterGroup,
    pub(super) warps: u32,
}

impl ClusterGroup {
    /// Every group of a problem. Empty if the scheme does not support it, or the GPU supports only the kernel's fallback.
    pub(super) fn all(problem: &TuckerProblem, gpu: &Gpu) -> Vec<Self> {
        if !gpu.has_mma() || !supports_problem(problem) {
            return Vec::new();
        }
        let core = &problem.core;
        let clusters = clusters(gpu.max_cluster());
        let mut found = Vec::new();
        for (th, tw) in tile_shapes(core.out_h(), core.out_w(), 256) {
            for &[cluster, blocks_n, d2_splits] in &clusters {
                found.push(Self {
                    th,
                    tw,
                    cluster,
                    blocks_n,
                    d2_splits,
                });
            }
        }
        found
    }

    /// Its groups.
    pub(super) fn groups(self) -> [TileGroup; WARPS.len()] {
        WARPS.map(|warps| TileGroup {
            of_cluster: self,
            warps,
        })
    }
}

impl TileGroup {
    /// The tile with the last three numbers; `None` if it does not fit.
    fn tile(
        self,
        chunk_groups: u32,
        [max_warps_k, chunk_kib]: [u32; 2],
        problem: &TuckerProblem,
        gpu: &Gpu,
        arrangements: &mut Arrangements,
    ) -> Option<TuckerFusedGeometry> {
        let Self { of_cluster, warps } = self;
        let ClusterGroup {
            th,
            tw,
            cluster,
            blocks_n,
            d2_splits,
        } = of_cluster;
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
        TuckerFusedGeometry::new(problem, tile, gpu, arrangements)
    }

    /// The tile with the least shared memory.
    fn smallest(
        self,
        chunk_groups: u32,
        problem: &TuckerProblem,
        gpu: &Gpu,
        arrangements: &mut Arrangements,
    ) -> Option<TuckerFusedGeometry> {
        let mut tiles = SMALLEST.iter();
        tiles.find_map(|&numbers| self.tile(chunk_groups, numbers, problem, gpu, arrangements))
    }

    /// The sizes of a chunk of the first factor that are tried, in channel groups: the two largest that the block's threads can load.
    pub(super) fn chunk_groups(
        self,
        problem: &TuckerProblem,
        gpu: &Gpu,
        arrangements: &mut Arrangements,
    ) -> Vec<u32> {
        let groups = problem.first.map_or(1, |c| c.div_ceil(MMA_K));
        let candidates: Vec<u32> = divisors(groups, &[1, 2, 3, 4, 6, 8, 12, 16, 32]).collect();
        let largest_first = candidates.into_iter().rev();
        let part = BlockPart::new(self.of_cluster, problem);
        let Some(part) = part.filter(|part| part.fits(self.warps)) else {
            return Vec::new();
        };
        let limit = MAX_SHARED.min(gpu.shared_per_block);
        let fitting = largest_first.filter(|&chunk_groups| {
            if part.least_shared_bytes(problem, chunk_groups) > limit {
                return false;
            }
            let smallest = self.smallest(chunk_groups, problem, gpu, arrangements);
            smallest.is_some()
        });
        fitting.take(2).collect()
    }

    /// Its tiles with a chunk size. A larger limit of warps or chunks may give the same kernel; the first tile of each kernel is kept.
    pub(super) fn tiles(
        self,
        chunk_groups: u32,
        problem: &TuckerProblem,
        gpu: &Gpu,
        arrangements: &mut Arrangements,
    ) -> Vec<TuckerFusedGeometry> {
        let mut kernels = Vec::new();
        let mut found = Vec::new();
        for numbers in WARPS_K_AND_CHUNK_KIB {
            let Some(sizes) = self.tile(chunk_groups, numbers, problem, gpu, arrangements) else {
                continue;
            };
            let kernel = sizes.kernel_identity();
            if !kernels.contains(&kernel) {
                kernels.push(kernel);
                found.push(sizes);
            }
        }
        found
    }
}

/// Every tile that fits a GPU, with its rough time. Empty if the GPU supports only the kernel's fallback. `prunes_groups` leaves out
/// groups and chunk sizes that are slow with the least shared memory.
pub(super) fn rated_tiles(
    problem: &Problem,
    gpu: &Gpu,
    prunes_groups: bool,
) -> Vec<(f64, TuckerFusedTile)> {
    let Problem::Tucker(problem) = problem else {
        return Vec::new();
    };
    let rough = RoughTime::new(gpu);
    let dram_bytes = Problem::Tucker(*problem).bytes() as f64;
    let model = gpu.cost_model().tucker_fused(products(problem.precision));
    let rough_us = |sizes: &TuckerFusedGeometry| {
        let work = sizes.work(problem, dram_bytes, gpu);
        // The rough time has its own clocks of the instructions around an MMA.
        rough.of(&KernelWork {
            mma: work.mma / model.product,
            ..work
        })
    };
    let arrangements = &mut Arrangements::default();
    let mut groups = Vec::new();
    for group in all_groups(problem, gpu) {
        for chunk_groups in group.chunk_groups(problem, gpu, arrangements) {
            if let Some(sizes) = group.smallest(chunk_groups, problem, gpu, arrangements) {
                groups.push((rough_us(&sizes), (group, chunk_groups)));
            }
        }
    }
    let groups = match prunes_groups {
        true => fastest(groups),
        false => groups.into_iter().map(|(_, group)| group).collect(),
    };
    let mut found = Vec::new();
    for (group, chunk_groups) in groups {
        for sizes in group.tiles(chunk_groups, problem, gpu, arrangements) {
            found.push((rough_us(&sizes), sizes.tile));
        }
    }
    found
}

/// Every group of a problem.
pub(super) fn all_groups(problem: &TuckerProblem, gpu: &Gpu) -> impl Iterator<Item = TileGroup> {
    let groups = ClusterGroup::all(problem, gpu).into_iter();
    groups.flat_map(ClusterGroup::groups)
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

/// Whether the scheme supports a problem, including its precision; see [`implicit_gemm`](crate::scheme::implicit_gemm). bf16, whose values are not
/// scaled, is supported for single convolutions only.
pub(super) fn supports_problem(problem: &TuckerProblem) -> bool {
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
