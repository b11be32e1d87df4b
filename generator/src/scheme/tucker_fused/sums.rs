//! Where the warps' sums of each factor go: to the next step from registers, or through shared memory.

use super::TuckerFusedTile;
use super::cluster_split::ClusterSplit;
use super::factors::Factors;
use crate::scheme::factor::Factor;

/// Whether the warps convert sums of the first factor, send or convert sums of the core, and store sums of the last factor from registers.
/// They do if each warp holds complete sums.
pub(super) struct Sums {
    pub(super) first_in_registers: bool,
    pub(super) core_sent_from_registers: bool,
    pub(super) core_in_registers: bool,
    pub(super) last_in_registers: bool,
}

impl Sums {
    pub(super) fn new(tile: &TuckerFusedTile, split: &ClusterSplit, factors: &Factors) -> Self {
        let in_registers = |factor: &Factor| tile.max_warps_k > 0 && factor.warps_k == 1;
        let core = &factors.core;
        Self {
            first_in_registers: factors.first.as_ref().is_some_and(in_registers),
            // The accumulators of the warps cover all pixels of the cluster, so every pixel is sent.
            core_sent_from_registers: tile.cluster > 1
                && core.warps_k == 1
                && core.columns >= split.cluster_pixels,
            core_in_registers: tile.cluster == 1 && in_registers(core),
            last_in_registers: factors.next.is_some() || in_registers(&factors.last),
        }
    }

    /// Whether partial sums of the core pass through shared memory.
    pub(super) fn has_core_partials(&self) -> bool {
        !self.core_sent_from_registers && !self.core_in_registers
    }

    /// Floats of shared memory for the partial sums of the first factor.
    pub(super) fn first_partials(&self, factors: &Factors) -> u32 {
        match &factors.first {
            Some(first) if !self.first_in_registers => first.partials(),
            _ => 0,
        }
    }

    /// Floats for those of the core.
    pub(super) fn core_partials(&self, factors: &Factors) -> u32 {
        match self.has_core_partials() {
            true => factors.core.partials(),
            false => 0,
        }
    }

    /// Floats for those of the last factor.
    pub(super) fn last_partials(&self, factors: &Factors) -> u32 {
        match self.last_in_registers {
            true => 0,
            false => factors.last.partials(),
        }
    }
}
