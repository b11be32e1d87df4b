//! The search for the tile with the least predicted time.

use super::{Tile, UnitWork};
use crate::cost::{KernelWork, kernel_us, tiled_terms};
use crate::gpu::Gpu;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// The registers that the compiler allocated for a kernel of a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownRegisters {
    /// The unit's tile.
    pub tile: Tile,
    /// As [`KernelBlueprint::role`](super::KernelBlueprint::role).
    pub role: String,
    /// Registers of a thread.
    pub registers: u32,
}

/// Searches the tiles of one scheme for one problem.
pub struct TileSearch<'a> {
    gpu: &'a Gpu,
    known_registers: &'a [KnownRegisters],
    limit_us: f64,
    /// The lower bound of the group that is being visited.
    group_bound_us: f64,
    best: Option<(f64, Tile)>,
}

impl<'a> TileSearch<'a> {
    /// A search for tiles with a predicted time below `limit_us`. Kernels in `known_registers` have those registers instead of the
    /// estimated ones.
    pub fn new(gpu: &'a Gpu, known_registers: &'a [KnownRegisters], limit_us: f64) -> Self {
        Self {
            gpu,
            known_registers,
            limit_us,
            group_bound_us: 0.0,
            best: None,
        }
    }

    /// The GPU.
    pub fn gpu(&self) -> &'a Gpu {
        self.gpu
    }

    /// Whether some kernels have registers other than the estimated ones.
    pub(super) fn knows_registers(&self) -> bool {
        !self.known_registers.is_empty()
    }

    /// The tile with the least predicted time, microseconds, of those that were offered; `None` if none is below the limit.
    pub fn best(self) -> Option<(f64, Tile)> {
        self.best
    }

    /// Whether tiles whose predicted times are at least `bound_us` may replace the best one.
    pub(super) fn can_improve(&self, bound_us: f64) -> bool {
        let limit = match &self.best {
            Some((us, _)) => *us,
            None => self.limit_us,
        };
        is_at_most(bound_us, limit)
    }

    /// Offers a tile. Among tiles with equal times the first one wins.
    pub(super) fn offer(&mut self, tile: Tile, work: &UnitWork) {
        let us = work.us_with(self.gpu, |launch| {
            with_registers(launch.work, self.known(&tile, launch.role))
        });
        let limit = self.best.as_ref().map_or(self.limit_us, |(us, _)| *us);
        if us < limit {
            self.best = Some((us, tile));
        }
    }

    /// Offers a tile of a unit with a single launch, in any order: among tiles with equal times that with the smallest numbers wins.
    pub(super) fn offer_launch<T: Copy + Into<Tile>>(
        &mut self,
        tile: T,
        role: &str,
        work: KernelWork,
    ) {
        let work = match self.known_registers {
            [] => work,
            _ => with_registers(work, self.known(&tile.into(), role)),
        };
        if let Some(tiled) = &work.tiled {
            // Faster to compute than the predicted time, and never above it.
            let model = self.gpu.cost_model().tiled(work.products);
            let model = model.with_infinity_norm();
            let bound = tiled_terms(&work, tiled, self.gpu, &model).us();
            if !self.can_improve(bound) {
                return;
            }
        }
        let us = kernel_us(&work, self.gpu);
        debug_assert!(
            self.group_bound_us <= us * (1.0 + 1e-9),
            "{:?} takes {us} us, less than the bound of its group, {}",
            tile.into(),
            self.group_bound_us
        );
        let better = match &self.best {
            Some((best_us, best)) => us < *best_us || us == *best_us && tile.into() < *best,
            None => us < self.limit_us,
        };
        if better {
            self.best = Some((us, tile.into()));
        }
    }

    /// Goes through `groups` of tiles, those with the least lower bound of their predicted times first, until no other group can
    /// improve the best tile. `offer_tiles` offers the tiles of one.
    pub(super) fn best_first<G>(
        &mut self,
        groups: Vec<(f64, G)>,
        mut offer_tiles: impl FnMut(&mut Self, &G),
    ) {
        // Few of the groups are visited, so they are not sorted.
        let bounds = groups.iter().map(|(bound, _)| *bound).enumerate();
        let finite = bounds.filter(|(_, bound)| bound.is_finite());
        let mut order: BinaryHeap<Reverse<(TotalOrder, usize)>> = finite
            .map(|(index, bound)| Reverse((TotalOrder(bound), index)))
            .collect();
        while let Some(Reverse((TotalOrder(bound), index))) = order.pop() {
            if !self.can_improve(bound) {
                break;
            }
            self.group_bound_us = bound;
            offer_tiles(self, &groups[index].1);
        }
    }

    fn known(&self, tile: &Tile, role: &str) -> Option<u32> {
        let mut known = self.known_registers.iter();
        known
            .find(|known| known.tile == *tile && known.role == role)
            .map(|known| known.registers)
    }
}

/// Whether tiles with this lower bound may take at most `us`. Bounds are rounded otherwise than predictions. A group without tiles has an
/// infinite bound.
pub(super) fn is_at_most(bound_us: f64, us: f64) -> bool {
    bound_us.is_finite() && bound_us * (1.0 - 1e-9) <= us
}

/// A number with a total order.
#[derive(Clone, Copy)]
struct TotalOrder(f64);

impl Ord for TotalOrder {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for TotalOrder {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for TotalOrder {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for TotalOrder {}

fn with_registers(work: KernelWork, known: Option<u32>) -> KernelWork {
    KernelWork {
        registers: known.unwrap_or(work.registers),
        ..work
    }
}
