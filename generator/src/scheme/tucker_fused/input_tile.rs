//! The input tile of a cluster, and how a block's threads load it.

use super::TuckerFusedTile;
use super::cluster_split::ClusterSplit;
use crate::ir::TuckerProblem;
use crate::scheme::tensor_core::{MMA_K, quad_plane, split_terms};

/// Channel quads that a thread loads for a chunk, at most.
const MAX_ITEMS: u32 = 16;

/// Channel quads that a thread loads at once, at most, if several chunks are loaded together.
const MAX_LOADS: u32 = 14;

/// The input tile. A thread loads channel quads of one position.
pub(super) struct InputTile {
    pub(super) rows: u32,
    pub(super) row_len: u32,
    /// Channel quads that are staged at once, and the distance of two in shared memory.
    pub(super) quads: u32,
    pub(super) plane: u32,
    /// Threads that load one position, and channel quads of each.
    pub(super) loaders: u32,
    pub(super) items: u32,
}

impl InputTile {
    /// `None` if the block has too few threads for it.
    pub(super) fn new(
        problem: &TuckerProblem,
        tile: &TuckerFusedTile,
        split: &ClusterSplit,
    ) -> Option<Self> {
        let core = &problem.core;
        let reach = |axis: usize, outputs: u32, taps: u32| {
            (outputs - 1) * core.stride[axis] + (taps - 1) * core.dilation[axis] + 1
        };
        let (rows, row_len) = (reach(0, tile.th, core.r), reach(1, tile.tw, core.s));
        let (positions, threads) = (rows * row_len, 32 * tile.warps);
        if positions.max(split.block_pixels) > threads {
            return None;
        }
        let groups = problem
            .first
            .map_or(split.block_d1_groups, |_| tile.chunk_groups);
        let quads = groups * MMA_K / 4;
        let loaders = threads / positions;
        let items = quads.div_ceil(loaders);
        (items <= MAX_ITEMS).then_some(Self {
            rows,
            row_len,
            quads,
            plane: quad_plane(positions, split_terms(problem.precision)),
            loaders,
            items,
        })
    }

    pub(super) fn positions(&self) -> u32 {
        self.rows * self.row_len
    }

    /// Chunks that are loaded together, if the input has `chunks`: all or one.
    pub(super) fn chunks_per_load(&self, chunks: u32) -> u32 {
        match chunks * self.items <= MAX_LOADS {
            true => chunks,
            false => 1,
        }
    }
}
