//! The tile space, and a lower bound of the predicted times of its parts.

use super::geometry::{MAX_SHARED, TuckerFusedGeometry, core_problem};
use super::work::{exchanges, moved_sectors, visible_weights};
use super::{MAX_CHUNK_KIB, TuckerFusedTile};
use crate::cost::{KernelWork, kernel_us, occupancy, resident_blocks};
use crate::gpu::Gpu;
use crate::ir::{MAX_ELEMENTS, Precision, Problem, TuckerProblem};
use crate::scheme::factor::{Arrangements, FactorProduct};
use crate::scheme::implicit_gemm::tile_shapes;
use crate::scheme::tensor_core::{
    MMA_K, MMA_M, MMA_N, divisors, products, quad_plane, split_terms,
};
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

/// Packed weights of an MMA tile, for each term.
const MMA_TILE_WEIGHTS: u32 = 128;

/// Warps of a block that are tried, ascending.
const WARPS: [u32; 5] = [4, 6, 8, 12, 16];

/// The tiles with the same pixels and cluster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ClusterGroup {
    th: u32,
    tw: u32,
    cluster: u32,
    blocks_n: u32,
    d2_splits: u32,
}

/// The tiles of a [`ClusterGroup`] with the same warps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TileGroup {
    of_cluster: ClusterGroup,
    warps: u32,
}

/// The pixels of a [`ClusterGroup`].
#[derive(Clone, Copy)]
struct Pixels {
    /// That a block stages.
    positions: u32,
    /// That the cluster computes.
    computed: u32,
    /// That a block finishes.
    finished: u32,
}

impl Pixels {
    /// Whether blocks of `warps` warps have a thread for each.
    fn fit(&self, warps: u32) -> bool {
        self.positions.max(self.finished) <= 32 * warps
    }
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

    /// Its pixels; `None` if the cluster has more blocks than the core has channels.
    fn pixels(self, problem: &TuckerProblem) -> Option<Pixels> {
        let core = &problem.core;
        let reach = |axis: usize, tile: u32, taps: u32| {
            (tile - 1) * core.stride[axis] + (taps - 1) * core.dilation[axis] + 1
        };
        let positions = reach(0, self.th, core.r) * reach(1, self.tw, core.s);
        let computed = (self.th * self.tw).next_multiple_of(MMA_N);
        let finished = (computed / MMA_N).div_ceil(self.cluster / self.blocks_n) * MMA_N;
        let d1_groups = core.c.div_ceil(MMA_K);
        let d1_splits = self.cluster / self.d2_splits;
        let all_blocks_have_channels = (d1_splits - 1) * d1_groups.div_ceil(d1_splits) < d1_groups
            && core.n.div_ceil(MMA_M).is_multiple_of(self.d2_splits);
        all_blocks_have_channels.then_some(Pixels {
            positions,
            computed,
            finished,
        })
    }

    /// MMA tiles of the weights that a block multiplies with: of the layer's first factor, core and last factor.
    fn weight_tiles(self, problem: &TuckerProblem) -> [u32; 3] {
        let core = &problem.core;
        let d1_groups = core.c.div_ceil(MMA_K);
        let block_d1_groups = d1_groups.div_ceil(self.cluster / self.d2_splits);
        let d2_tiles = core.n.div_ceil(MMA_M);
        let n_tiles = problem.n.div_ceil(MMA_M).div_ceil(self.blocks_n);
        let first_groups = problem.first.map_or(0, |c| c.div_ceil(MMA_K));
        [
            block_d1_groups * first_groups,
            d2_tiles / self.d2_splits * core.r * core.s * block_d1_groups,
            n_tiles * d2_tiles,
        ]
    }

    /// Bytes of shared memory that its tiles with a chunk size need at least. Larger chunks need more.
    fn least_shared_bytes(self, problem: &TuckerProblem, pixels: Pixels, chunk_groups: u32) -> u32 {
        let Pixels {
            positions,
            finished,
            ..
        } = pixels;
        let core = &problem.core;
        let split_terms = split_terms(problem.precision);
        let d1_groups = core.c.div_ceil(MMA_K);
        let block_d1_groups = d1_groups.div_ceil(self.cluster / self.d2_splits);
        let d2_tiles = core.n.div_ceil(MMA_M);
        let block_d2_tiles = d2_tiles / self.d2_splits;
        let n_tiles = problem.n.div_ceil(MMA_M).div_ceil(self.blocks_n);
        let first_groups = problem.first.map_or(0, |c| c.div_ceil(MMA_K));
        let first_chunk = first_groups.min(chunk_groups);
        let is_cluster = self.cluster > 1;

        // For the whole run of a block: the core's input, and sums from other blocks.
        let quads = |groups: u32| 2 * split_terms * groups * MMA_K / 4;
        let core_input = quads(block_d1_groups) * quad_plane(positions, split_terms);
        let received = self.cluster * (MMA_M * d2_tiles).div_ceil(self.blocks_n) * finished;
        let received = if is_cluster { received } else { 0 };

        // For a time: the staged input, and the output of the core or, with the next factor, of the layer.
        let staged = quads(first_chunk) * quad_plane(positions, split_terms);
        let rows = MMA_M * problem.next.map_or(d2_tiles, |_| d2_tiles.max(n_tiles));
        let converted = 2 * split_terms * (rows / 4) * quad_plane(finished, split_terms);
        let sums = MMA_M * d2_tiles * finished;
        let output = if is_cluster {
            converted.max(sums)
        } else {
            converted
        };

        // Weights, of which the output replaces those of the factors before it. In a cluster the core's stay, because other blocks
        // may send before this one has finished. A tile with chunks that replace each other has two stages at least.
        let floats = |mma_tiles: u32| MMA_TILE_WEIGHTS * split_terms * mma_tiles;
        let [first, of_core, last] = self.weight_tiles(problem);
        let kept = if is_cluster { last + of_core } else { last };
        let all = first + of_core + last;
        let resident = (floats(all) + staged).max(floats(kept) + output);
        let largest_chunk = (block_d1_groups * first_chunk)
            .max(block_d2_tiles * core.s)
            .max(n_tiles);
        let streamed = floats(2 * largest_chunk) + staged.max(output);
        let all_resident = self.d2_splits > 1 || problem.next.is_some();
        let weights = if all_resident {
            resident
        } else {
            resident.min(streamed)
        };
        // Large factors have more bytes than a number of 32 bits holds, and fit nowhere.
        weights
            .saturating_add(core_input + received)
            .saturating_mul(4)
    }

    /// A lower bound of the predicted times of its tiles with these numbers of warps (ascending), microseconds; infinite if it has none.
    /// Each term is that of the best of these numbers. `dram_bytes` are those of the problem.
    ///
    /// It is the time of a launch with one chunk of weights for each factor and as many blocks on an SM as are best. `co_resident_block`
    /// are the clocks that each other block on its SM adds to a block, and `latency_clocks` is a lower bound of the estimated clocks of a
    /// factor, whatever its chunks.
    fn lower_bound_us(
        self,
        warps: &[u32],
        problem: &TuckerProblem,
        dram_bytes: f64,
        gpu: &Gpu,
        co_resident_block: f64,
        mut latency_clocks: impl FnMut(FactorProduct) -> f64,
    ) -> f64 {
        let Some(pixels) = self.pixels(problem) else {
            return f64::INFINITY;
        };
        let warps = &warps[warps.partition_point(|&warps| !pixels.fit(warps))..];
        let (Some(&fewest), Some(&most)) = (warps.first(), warps.last()) else {
            return f64::INFINITY;
        };
        let shared = self.least_shared_bytes(problem, pixels, 1);
        if shared > MAX_SHARED.min(gpu.shared_per_block) {
            return f64::INFINITY;
        }
        let Pixels {
            positions,
            computed,
            finished,
        } = pixels;
        let core = &problem.core;
        let model = gpu.cost_model().tucker_fused(products(problem.precision));
        let d1_splits = self.cluster / self.d2_splits;
        let block_d1_groups = core.c.div_ceil(MMA_K).div_ceil(d1_splits);
        let d2_tiles = core.n.div_ceil(MMA_M);
        let n_tiles = problem.n.div_ceil(MMA_M).div_ceil(self.blocks_n);
        let split_terms = split_terms(problem.precision);
        let product = |m_tiles: u32, pixels: u32, counts: [u32; 3]| FactorProduct {
            tiles: [m_tiles, pixels.div_ceil(MMA_N)],
            counts,
            steps: counts.iter().product(),
            warps: most,
            max_warps_k: most,
            split_terms,
        };
        let groups = problem.first.map(|c| c.div_ceil(MMA_K));
        let first = groups.map(|groups| product(block_d1_groups, positions, [groups, 1, 1]));
        let core_counts = [block_d1_groups, core.r, core.s];
        let core_and_last = [
            product(d2_tiles / self.d2_splits, computed, core_counts),
            product(n_tiles, finished, [d2_tiles, 1, 1]),
        ];
        let next = problem
            .next
            .map(|next| product(next.n.div_ceil(MMA_M), finished, [n_tiles, 1, 1]));
        let (mut clocks, mut products) = (0.0, 0.0);
        for factor in first.into_iter().chain(core_and_last).chain(next) {
            let needs_more =
                |&warps: &u32| FactorProduct { warps, ..factor }.needs_more_registers();
            if warps.iter().all(needs_more) {
                return f64::INFINITY;
            }
            clocks += latency_clocks(factor);
            products += factor.mma_count();
        }
        let own_factors = f64::from(2 + u32::from(first.is_some()));
        let pointwise = own_factors - 2.0 + f64::from(u32::from(next.is_some()));
        let quads = groups.unwrap_or(block_d1_groups) * MMA_K / 4;
        // A position's quads are divided among its loaders, and all warps load.
        let staged = |&warps: &u32| f64::from(warps * quads) / f64::from(32 * warps / positions);
        let staged = warps.iter().map(staged).fold(f64::INFINITY, f64::min);
        let rows = core.out_h().div_ceil(self.th);
        let tiles = u64::from(rows) * u64::from(core.out_w().div_ceil(self.tw));
        let blocks = tiles * u64::from(core.batch) * u64::from(self.cluster);
        let weight_tiles: u32 = self.weight_tiles(problem).iter().sum();
        let weights = MMA_TILE_WEIGHTS * split_terms * weight_tiles;
        let exchanged = (MMA_M * d2_tiles).div_ceil(self.blocks_n) * finished * d1_splits;
        let latency = model.steps * clocks
            + model.pointwise_factor * pointwise
            + model.chunk * own_factors
            + model.exchange * exchanges(self.cluster, self.blocks_n, next.is_some())
            + model.exchanged_value * f64::from(exchanged)
            + model.weight * visible_weights(problem, weights, blocks, gpu)
            + model.warp * f64::from(fewest);
        let rows_of_block = f64::from(MMA_M * n_tiles * self.blocks_n) / f64::from(self.cluster);
        let sectors = moved_sectors(problem, [self.th, self.tw], rows_of_block);
        let busiest = (blocks as f64 / resident_blocks(self.cluster, 1.0, gpu)).ceil();
        let work = KernelWork {
            blocks,
            threads: 32 * fewest,
            shared_bytes: shared,
            flops: 256.0 * blocks as f64 * model.staged_load * staged,
            fma_fraction: 1.0,
            l2_bytes: 32.0 * model.stored_sector * blocks as f64 * sectors,
            mma: model.product * blocks as f64 * products,
            dram_bytes,
            cluster: self.cluster,
            pdl: true,
            ..KernelWork::default()
        };
        // The waves are in the latency.
        let resident = f64::from(occupancy(&work, gpu).blocks_per_sm.max(1));
        let waves = (busiest / busiest.min(resident)).ceil();
        let work = KernelWork {
            latency_clocks: latency_of_waves(latency, busiest, resident, co_resident_block) / waves,
            ..work
        };
        kernel_us(&work, gpu)
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
        let pixels = self.of_cluster.pixels(problem);
        let Some(pixels) = pixels.filter(|pixels| pixels.fit(self.warps)) else {
            return Vec::new();
        };
        let least_shared = |chunk_groups| {
            let of_cluster = self.of_cluster;
            of_cluster.least_shared_bytes(problem, pixels, chunk_groups)
        };
        let limit = MAX_SHARED.min(gpu.shared_per_block);
        let fitting = largest_first.filter(|&chunk_groups| {
            if least_shared(chunk_groups) > limit {
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

/// Lower bounds of the predicted times of the groups of a problem.
pub(super) struct Bounds<'a> {
    problem: &'a TuckerProblem,
    gpu: &'a Gpu,
    /// Bytes moved to and from device memory.
    pub(super) dram_bytes: f64,
    co_resident_block: f64,
    /// The arrangements of warps that were needed so far.
    pub(super) arrangements: Arrangements,
}

impl<'a> Bounds<'a> {
    /// The model counts the co-resident blocks of a tile by its estimated registers. If kernels are known to have others
    /// (`knows_registers`), more blocks may be resident at no cost.
    pub(super) fn new(problem: &'a TuckerProblem, gpu: &'a Gpu, knows_registers: bool) -> Self {
        Self {
            problem,
            gpu,
            dram_bytes: Problem::Tucker(*problem).bytes() as f64,
            co_resident_block: match knows_registers {
                true => 0.0,
                false => {
                    let model = gpu.cost_model();
                    model
                        .tucker_fused(products(problem.precision))
                        .co_resident_block
                }
            },
            arrangements: Arrangements::default(),
        }
    }

    /// A bound of all groups of a cluster group, microseconds.
    pub(super) fn of_cluster_us(&self, group: ClusterGroup) -> f64 {
        self.of_warps_us(group, &WARPS)
    }

    /// A bound that is cheap to compute, microseconds.
    pub(super) fn quick_us(&self, group: TileGroup) -> f64 {
        self.of_warps_us(group.of_cluster, &[group.warps])
    }

    fn of_warps_us(&self, group: ClusterGroup, warps: &[u32]) -> f64 {
        let clocks = |factor: FactorProduct| factor.least_latency_clocks();
        let Self {
            problem,
            gpu,
            dram_bytes,
            co_resident_block,
            ..
        } = *self;
        group.lower_bound_us(warps, problem, dram_bytes, gpu, co_resident_block, clocks)
    }

    /// A tighter bound, by the fastest arrangement of the warps of each factor, microseconds.
    pub(super) fn us(&mut self, group: TileGroup) -> f64 {
        let arrangements = &mut self.arrangements;
        let mut clocks_of = |factor: FactorProduct, max_warps_k: u32| {
            let fastest = arrangements.fastest(FactorProduct {
                max_warps_k,
                ..factor
            });
            fastest.map_or(f64::INFINITY, |fastest| fastest.latency_clocks)
        };
        // Without a limit along K, sums pass through shared memory, which all warps add. This can be faster.
        let clocks =
            |factor: FactorProduct| clocks_of(factor, factor.warps).min(clocks_of(factor, 0));
        group.of_cluster.lower_bound_us(
            &[group.warps],
            self.problem,
            self.dram_bytes,
            self.gpu,
            self.co_resident_block,
            clocks,
        )
    }
}

/// The least latency of `busiest` blocks on an SM that holds at most `most` at a time: of all waves, if a block alone takes `latency`, and
/// each other block on the SM adds `co_resident`.
fn latency_of_waves(latency: f64, busiest: f64, most: f64, co_resident: f64) -> f64 {
    let mut least = f64::INFINITY;
    let mut resident = 1.0;
    while resident <= busiest.min(most) {
        let wave = latency + co_resident * (resident - 1.0);
        least = least.min(wave * (busiest / resident).ceil());
        resident += 1.0;
    }
    least
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
fn all_groups(problem: &TuckerProblem, gpu: &Gpu) -> impl Iterator<Item = TileGroup> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::gpu;
    use crate::ir::{Epilogue, NextFactor};
    use tdc_runtime::{ConvShape, Padding};

    fn problem(first: Option<u32>, core: ConvShape, n: u32, next: Option<u32>) -> TuckerProblem {
        TuckerProblem {
            core: ConvShape {
                padding: Padding::all(core.r / 2),
                ..core
            },
            first,
            n,
            prologue: None,
            epilogue: Epilogue {
                residual: true,
                ..Epilogue::default()
            },
            next: next.map(|n| NextFactor {
                n,
                stores_layer_output: true,
            }),
            precision: Precision::Fp32,
        }
    }

    /// Weights of more bytes than a number of 32 bits holds fit no block.
    #[test]
    fn the_largest_layers_have_no_tiles() {
        let h200 = gpu("h200").unwrap();
        let core = ConvShape::new(8192, 8192, 14, 14, 5, 5);
        let largest = problem(None, core, 64, Some(64));
        assert!(supports_problem(&largest));
        let bounds = Bounds::new(&largest, h200, false);
        let groups = ClusterGroup::all(&largest, h200);
        assert!(!groups.is_empty());
        for group in groups {
            assert_eq!(bounds.of_cluster_us(group), f64::INFINITY);
        }
    }

    /// No tile is faster than the bounds of its group, with estimated registers and with fewer.
    #[test]
    fn bounds_are_not_above_predicted_times() {
        let strided = ConvShape {
            batch: 2,
            stride: [2, 2],
            ..ConvShape::new(31, 112, 20, 20, 5, 5)
        };
        let problems = [
            // A tile whose sums pass through shared memory is faster than the arrangement with sums in registers.
            problem(Some(29), strided, 61, None),
            problem(Some(64), ConvShape::new(64, 32, 28, 28, 3, 3), 64, None),
            problem(None, ConvShape::new(97, 160, 14, 14, 3, 3), 200, None),
            problem(Some(96), ConvShape::new(48, 48, 14, 14, 3, 3), 80, Some(33)),
        ];
        let h200 = gpu("h200").unwrap();
        let mut tiles = 0;
        for problem in &problems {
            for knows_registers in [false, true] {
                let mut bounds = Bounds::new(problem, h200, knows_registers);
                for group in all_groups(problem, h200).step_by(7) {
                    let quick = bounds.quick_us(group);
                    let of_cluster = bounds.of_cluster_us(group.of_cluster);
                    let bound = of_cluster.max(quick).max(bounds.us(group));
                    let dram_bytes = bounds.dram_bytes;
                    let arrangements = &mut bounds.arrangements;
                    for chunk_groups in group.chunk_groups(problem, h200, arrangements) {
                        for sizes in group.tiles(chunk_groups, problem, h200, arrangements) {
                            let work = sizes.work(problem, dram_bytes, h200);
                            let registers = match knows_registers {
                                true => work.registers * 3 / 5,
                                false => work.registers,
                            };
                            let us = kernel_us(&KernelWork { registers, ..work }, h200);
                            let tile = sizes.tile;
                            assert!(bound <= us * (1.0 + 1e-9), "{tile:?}: {bound}, {us}");
                            tiles += 1;
                        }
                    }
                }
            }
        }
        assert!(tiles > 1000, "{tiles}");
    }
}
