//! How the warps of a block divide a factor.

use crate::gpu::{FIRST_CLUSTER_GPU, MAX_REGISTERS};
use crate::scheme::step_order::split_steps_over_warps;
use crate::scheme::tensor_core::{MAX_SEPARATE_TILES, MMA_M, MMA_N, separate_accumulators};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// Accumulator tiles of a warp at most.
const MAX_SUMS: u32 = 16;

/// Clocks of an SM partition for an MMA; until its result can be added to; of the other instructions of a warp's K step; and to add and
/// store a value of a thread.
const MMA_ISSUE: f64 = 6.7;
const MMA_LATENCY: f64 = 39.0;
const STEP_LATENCY: f64 = 60.0;
const STORED_SUM: f64 = 6.0;

/// Most registers of a thread in a block of `warps` warps.
fn max_registers(warps: u32) -> u32 {
    (FIRST_CLUSTER_GPU.registers_per_sm / (32 * warps)).min(MAX_REGISTERS)
}

/// The matrix product of a factor in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::scheme) struct FactorProduct {
    /// MMA tiles along the output channels and along the pixels.
    pub(in crate::scheme) tiles: [u32; 2],
    /// K steps of a chunk: groups of channels, rows of the filter, columns of the filter.
    pub(in crate::scheme) counts: [u32; 3],
    /// K steps of all chunks.
    pub(in crate::scheme) steps: u32,
    /// Warps of the block.
    pub(in crate::scheme) warps: u32,
    /// Most warps that may split K, or 0 for any number.
    pub(in crate::scheme) max_warps_k: u32,
    /// 2 with a hi/lo split, else 1.
    pub(in crate::scheme) split_terms: u32,
}

/// How warps divide a [`FactorProduct`].
#[derive(Debug, Clone, Copy)]
pub(in crate::scheme) struct Arrangement {
    /// MMA tiles of a warp.
    pub(in crate::scheme) m_tiles: u32,
    pub(in crate::scheme) p_tiles: u32,
    /// Warps along the output channels, the pixels and K.
    pub(in crate::scheme) warps_m: u32,
    pub(in crate::scheme) warps_p: u32,
    pub(in crate::scheme) warps_k: u32,
    /// Estimated clocks of a block.
    pub(in crate::scheme) latency_clocks: f64,
}

/// The fastest arrangements that were computed before. Many tiles have a factor in common.
#[derive(Default)]
pub(in crate::scheme) struct Arrangements(
    HashMap<FactorProduct, Option<Arrangement>, BuildHasherDefault<ProductHasher>>,
);

/// A hash that is fast for a few small numbers: a search looks up tens of thousands of products.
#[derive(Default)]
struct ProductHasher(u64);

impl Hasher for ProductHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }

    fn write_u64(&mut self, number: u64) {
        // 2^64 over the golden ratio: the high bits depend on all numbers.
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Hash for FactorProduct {
    /// Two numbers at a time, without the lengths of arrays.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self {
            tiles: [m_tiles, p_tiles],
            counts: [groups, rows, columns],
            steps,
            warps,
            max_warps_k,
            split_terms,
        } = *self;
        for [low, high] in [
            [m_tiles, p_tiles],
            [groups, steps],
            [rows, columns],
            [warps, max_warps_k],
            [split_terms, 0],
        ] {
            state.write_u64(u64::from(low) | u64::from(high) << 32);
        }
    }
}

impl Arrangements {
    /// The arrangement with the least estimated clocks; `None` if no warp can hold its accumulators.
    pub(in crate::scheme) fn fastest(&mut self, product: FactorProduct) -> Option<Arrangement> {
        *self.0.entry(product).or_insert_with(|| product.fastest())
    }
}

impl FactorProduct {
    /// MMAs of a block, without idle lanes of warps.
    pub(in crate::scheme) fn mma_count(&self) -> f64 {
        let [m_tiles, p_tiles] = self.tiles;
        f64::from(m_tiles * p_tiles) * f64::from(self.steps) * f64::from(2 * self.split_terms - 1)
    }

    /// A lower bound of [`Arrangement::latency_clocks`], whatever the arrangement.
    pub(in crate::scheme) fn least_latency_clocks(&self) -> f64 {
        let [m_tiles, p_tiles] = self.tiles;
        let tiles = f64::from(m_tiles * p_tiles);
        let steps = f64::from(self.steps);
        let products = f64::from(2 * self.split_terms - 1);
        let warps = f64::from(self.warps);
        let product = MMA_ISSUE * products;
        // An SM partition issues the products of a quarter of the warps.
        let throughput = steps * tiles * product / 4.0;
        // A warp with few tiles waits for fewer dependent products, but takes more steps.
        let of_warp = |warp_tiles: f64, dependent: f64| {
            let step = (product * warp_tiles).max(MMA_LATENCY * dependent) + STEP_LATENCY;
            steps / warps * (tiles / warp_tiles).max(1.0) * step
        };
        let most = tiles.min(f64::from(MAX_SUMS));
        let few = most.min(f64::from(MAX_SEPARATE_TILES));
        let latency = of_warp(most, products).min(of_warp(few, 1.0));
        let sums = STORED_SUM * tiles * f64::from(MMA_M * MMA_N) / (32.0 * warps);
        throughput.max(latency) + sums
    }

    /// Whether the block's warps cannot hold the accumulators, whatever the arrangement. Cheap to compute; an arrangement may need more.
    pub(in crate::scheme) fn needs_more_registers(&self) -> bool {
        let [m_tiles, p_tiles] = self.tiles;
        let most = (max_registers(self.warps).saturating_sub(60) / 12).min(MAX_SUMS);
        m_tiles * p_tiles > most * self.warps
    }

    fn fastest(&self) -> Option<Arrangement> {
        let Self {
            tiles: [m_tiles, p_tiles],
            warps,
            ..
        } = *self;
        let limit_k = match self.max_warps_k {
            0 => warps,
            most => most,
        };
        let warps_k: Vec<u32> = (1..=warps.min(limit_k))
            .filter(|&warps_k| split_steps_over_warps(self.counts, warps_k).is_some())
            .collect();
        // The same on every GPU that has the tile.
        let most_registers = max_registers(warps);
        let mut best: Option<Arrangement> = None;
        for warps_m in (1..=warps.min(m_tiles)).filter(|&part| m_tiles.is_multiple_of(part)) {
            let m = m_tiles / warps_m;
            let fits = |p: &u32| 12 * m * p + 8 * m + 5 * p + 60 <= most_registers;
            for p in (1..=p_tiles.min(MAX_SUMS / m)).filter(fits) {
                let warps_p = p_tiles.div_ceil(p);
                let most = warps / (warps_m * warps_p);
                for &warps_k in warps_k.iter().take_while(|&&warps_k| warps_k <= most) {
                    let latency_clocks = self.latency_clocks([m, p], [warps_m, warps_p, warps_k]);
                    if best.is_none_or(|best| latency_clocks < best.latency_clocks) {
                        best = Some(Arrangement {
                            m_tiles: m,
                            p_tiles: p,
                            warps_m,
                            warps_p,
                            warps_k,
                            latency_clocks,
                        });
                    }
                }
            }
        }
        best
    }

    /// Estimated clocks of a block for a factor. A K step is bound by the instruction issue of an SM partition, by shared memory, or by the
    /// latency of one warp's dependent MMAs. The sum over the warps along K follows.
    fn latency_clocks(&self, [m, p]: [u32; 2], [warps_m, warps_p, warps_k]: [u32; 3]) -> f64 {
        let Self {
            steps,
            warps,
            max_warps_k,
            split_terms,
            ..
        } = *self;
        let products = f64::from(2 * split_terms - 1);
        let warps_used = warps_m * warps_p * warps_k;
        let beside = f64::from(warps_used.div_ceil(4));
        // Wavefronts of 128 bytes of shared memory; the SM does one per clock for all warps.
        let wavefronts = f64::from(4 * split_terms * m + 2 * split_terms * p);
        let loads = f64::from(split_terms * m + p);
        let tiles = f64::from(m * p);
        let issue = beside * (MMA_ISSUE * products * tiles + 3.0 * loads + 20.0);
        let shared = f64::from(warps_used) * wavefronts;
        let chained = if separate_accumulators(m * p, split_terms) {
            1.0
        } else {
            products
        };
        let alone = (MMA_ISSUE * products * tiles).max(MMA_LATENCY * chained) + STEP_LATENCY;
        let outputs = f64::from(m * warps_m * MMA_M * p * warps_p * MMA_N);
        let sums = match warps_k {
            // From the registers of the warps that hold them.
            1 if max_warps_k > 0 => STORED_SUM * outputs / f64::from(32 * warps_used),
            _ => STORED_SUM * f64::from(warps_k + 1) * outputs / f64::from(32 * warps),
        };
        f64::from(steps / warps_k) * issue.max(shared).max(alone) + sums
    }
}
