//! Lower bounds of the predicted times of groups of tiles: no tile of a group is faster.

use super::block_part::{BlockPart, MMA_TILE_WEIGHTS};
use super::geometry::MAX_SHARED;
use super::tile_space::{ClusterGroup, TileGroup, WARPS};
use super::work::{exchanges, moved_sectors, visible_weights};
use crate::cost::{KernelWork, kernel_us, occupancy, resident_blocks};
use crate::gpu::{Gpu, TuckerFusedConstants};
use crate::ir::{Problem, TuckerProblem};
use crate::scheme::factor::{Arrangements, FactorProduct};
use crate::scheme::tensor_core::{MMA_K, MMA_M, MMA_N, products, split_terms};

/// Lower bounds of the predicted times of the groups of a problem.
pub(super) struct Bounds<'a> {
    launch: Launch<'a>,
    /// The arrangements of warps that were needed so far.
    pub(super) arrangements: Arrangements,
}

impl<'a> Bounds<'a> {
    /// The model counts the co-resident blocks of a tile by its estimated registers. If kernels are known to have others
    /// (`knows_registers`), more blocks may be resident at no cost.
    pub(super) fn new(problem: &'a TuckerProblem, gpu: &'a Gpu, knows_registers: bool) -> Self {
        let model = gpu.cost_model().tucker_fused(products(problem.precision));
        Self {
            launch: Launch {
                problem,
                gpu,
                model,
                dram_bytes: Problem::Tucker(*problem).bytes() as f64,
                co_resident_block: match knows_registers {
                    true => 0.0,
                    false => model.co_resident_block,
                },
            },
            arrangements: Arrangements::default(),
        }
    }

    /// Bytes that a launch moves to and from device memory.
    pub(super) fn dram_bytes(&self) -> f64 {
        self.launch.dram_bytes
    }

    /// A bound of all groups of a cluster group, microseconds.
    pub(super) fn of_cluster_us(&self, group: ClusterGroup) -> f64 {
        let clocks = |factor: FactorProduct| factor.least_latency_clocks();
        self.launch.least_us(group, &WARPS, clocks)
    }

    /// A bound that is cheap to compute, microseconds.
    pub(super) fn quick_us(&self, group: TileGroup) -> f64 {
        let clocks = |factor: FactorProduct| factor.least_latency_clocks();
        let warps = [group.warps];
        self.launch.least_us(group.of_cluster, &warps, clocks)
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
        let warps = [group.warps];
        self.launch.least_us(group.of_cluster, &warps, clocks)
    }
}

/// What all tiles of a problem have in common.
struct Launch<'a> {
    problem: &'a TuckerProblem,
    gpu: &'a Gpu,
    model: &'a TuckerFusedConstants,
    /// Bytes moved to and from device memory.
    dram_bytes: f64,
    /// Clocks that each other block on its SM adds to a block.
    co_resident_block: f64,
}

impl Launch<'_> {
    /// A lower bound of the predicted times of a group's tiles with these numbers of warps (ascending), microseconds; infinite if it has none.
    /// Each term is that of the best of these numbers.
    ///
    /// It is the time of a launch with one chunk of weights for each factor and as many blocks on an SM as are best. `clocks_of` gives a
    /// lower bound of the estimated clocks of a factor, whatever its chunks.
    fn least_us(
        &self,
        group: ClusterGroup,
        warps: &[u32],
        clocks_of: impl FnMut(FactorProduct) -> f64,
    ) -> f64 {
        let Self {
            problem,
            gpu,
            model,
            ..
        } = *self;
        let Some(part) = BlockPart::new(group, problem) else {
            return f64::INFINITY;
        };
        let warps = &warps[warps.partition_point(|&warps| !part.fits(warps))..];
        let Some(&fewest) = warps.first() else {
            return f64::INFINITY;
        };
        let shared_bytes = part.least_shared_bytes(problem, 1);
        if shared_bytes > MAX_SHARED.min(gpu.shared_per_block) {
            return f64::INFINITY;
        }
        let Some((clocks, mmas)) = self.clocks_and_mmas(&part, warps, clocks_of) else {
            return f64::INFINITY;
        };
        let core = &problem.core;
        let rows = core.out_h().div_ceil(group.th);
        let tiles = u64::from(rows) * u64::from(core.out_w().div_ceil(group.tw));
        let blocks = tiles * u64::from(core.batch) * u64::from(group.cluster);
        let latency = self.latency_clocks(group, &part, blocks, clocks, fewest);
        let channels = f64::from(MMA_M * part.n_tiles * group.blocks_n) / f64::from(group.cluster);
        let sectors = moved_sectors(problem, [group.th, group.tw], channels);
        let work = KernelWork {
            blocks,
            threads: 32 * fewest,
            shared_bytes,
            flops: 256.0 * blocks as f64 * model.staged_load * self.least_staged(&part, warps),
            fma_fraction: 1.0,
            l2_bytes: 32.0 * model.stored_sector * blocks as f64 * sectors,
            mma: model.product * blocks as f64 * mmas,
            dram_bytes: self.dram_bytes,
            cluster: group.cluster,
            pdl: true,
            ..KernelWork::default()
        };
        // The waves are in the latency.
        let busiest = (blocks as f64 / resident_blocks(group.cluster, 1.0, gpu)).ceil();
        let resident = f64::from(occupancy(&work, gpu).blocks_per_sm.max(1));
        let waves = (busiest / busiest.min(resident)).ceil();
        let of_waves = latency_of_waves(latency, busiest, resident, self.co_resident_block);
        let work = KernelWork {
            latency_clocks: of_waves / waves,
            ..work
        };
        kernel_us(&work, gpu)
    }

    /// The least clocks of the factors of a block, and their MMAs; `None` if a factor needs more registers than a thread has, with each of these
    /// numbers of warps.
    fn clocks_and_mmas(
        &self,
        part: &BlockPart,
        warps: &[u32],
        mut clocks_of: impl FnMut(FactorProduct) -> f64,
    ) -> Option<(f64, f64)> {
        let most = *warps.last()?;
        let (mut clocks, mut mmas) = (0.0, 0.0);
        for factor in self.factors(part, most).into_iter().flatten() {
            let needs_more =
                |&warps: &u32| FactorProduct { warps, ..factor }.needs_more_registers();
            if warps.iter().all(needs_more) {
                return None;
            }
            clocks += clocks_of(factor);
            mmas += factor.mma_count();
        }
        Some((clocks, mmas))
    }

    /// The products of a block of `warps` warps, each with one chunk of weights: first factor, core, last factor and the next layer's first.
    fn factors(&self, part: &BlockPart, warps: u32) -> [Option<FactorProduct>; 4] {
        let problem = self.problem;
        let product = |m_tiles: u32, pixels: u32, counts: [u32; 3]| FactorProduct {
            tiles: [m_tiles, pixels.div_ceil(MMA_N)],
            counts,
            steps: counts.iter().product(),
            warps,
            max_warps_k: warps,
            split_terms: split_terms(problem.precision),
        };
        let BlockPart {
            positions,
            computed,
            finished,
            ..
        } = *part;
        let of_first = |_| product(part.d1_groups, positions, [part.first_groups, 1, 1]);
        let core_counts = [part.d1_groups, problem.core.r, problem.core.s];
        let of_next = |n: u32| product(n.div_ceil(MMA_M), finished, [part.n_tiles, 1, 1]);
        [
            problem.first.map(of_first),
            Some(product(part.d2_tiles, computed, core_counts)),
            Some(product(part.n_tiles, finished, [part.all_d2_tiles, 1, 1])),
            problem.next.map(|next| of_next(next.n)),
        ]
    }

    /// Instructions that stage the input of a block, at least. A position's quads are divided among its loaders, and all warps load.
    fn least_staged(&self, part: &BlockPart, warps: &[u32]) -> f64 {
        let groups = match self.problem.first {
            Some(_) => part.first_groups,
            None => part.d1_groups,
        };
        let quads = groups * MMA_K / 4;
        let staged =
            |&warps: &u32| f64::from(warps * quads) / f64::from(32 * warps / part.positions);
        warps.iter().map(staged).fold(f64::INFINITY, f64::min)
    }

    /// The least latency of a block whose products take `clocks`, if no other block is on its SM.
    fn latency_clocks(
        &self,
        group: ClusterGroup,
        part: &BlockPart,
        blocks: u64,
        clocks: f64,
        warps: u32,
    ) -> f64 {
        let Self {
            problem,
            gpu,
            model,
            ..
        } = *self;
        let has_next = problem.next.is_some();
        let own_factors = f64::from(2 + u32::from(problem.first.is_some()));
        let pointwise = own_factors - 2.0 + f64::from(u32::from(has_next));
        let weight_tiles: u32 = part.weight_tiles(problem).iter().sum();
        let weights = MMA_TILE_WEIGHTS * split_terms(problem.precision) * weight_tiles;
        let exchanged = part.d2_rows() * part.finished * part.d1_splits;
        model.steps * clocks
            + model.pointwise_factor * pointwise
            + model.chunk * own_factors
            + model.exchange * exchanges(group.cluster, group.blocks_n, has_next)
            + model.exchanged_value * f64::from(exchanged)
            + model.weight * visible_weights(problem, weights, blocks, gpu)
            + model.warp * f64::from(warps)
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

#[cfg(test)]
mod tests {
    use super::super::tile_space::{all_groups, supports_problem};
    use super::*;
    use crate::gpu::gpu;
    use crate::ir::{Epilogue, NextFactor, Precision};
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
                    let dram_bytes = bounds.dram_bytes();
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
