//! How the blocks of a cluster divide a rectangle of the output.

use super::TuckerFusedTile;
use crate::ir::TuckerProblem;
use crate::scheme::tensor_core::{MMA_K, MMA_M, MMA_N};

/// What each block of a cluster computes.
pub(super) struct ClusterSplit {
    /// Slices of D1, and groups of 16 channels of a slice.
    pub(super) d1_splits: u32,
    pub(super) block_d1_groups: u32,
    /// MMA tiles of the core's output channels that a block computes, and all output channels, padded.
    pub(super) block_d2_tiles: u32,
    pub(super) d2_rows: u32,
    /// Channels that a block reduces: of the core's output, and of the next factor's.
    pub(super) d2_rows_per_block: u32,
    pub(super) next_rows_per_block: u32,
    /// MMA tiles of the layer's output channels that a block computes.
    pub(super) block_n_tiles: u32,
    /// Pixels that a block finishes, and pixels of the cluster.
    pub(super) block_pixels: u32,
    pub(super) cluster_pixels: u32,
}

impl ClusterSplit {
    /// `None` if a block would have no channels.
    pub(super) fn new(problem: &TuckerProblem, tile: &TuckerFusedTile) -> Option<Self> {
        let core = &problem.core;
        let (d1_groups, d2_tiles) = (core.c.div_ceil(MMA_K), core.n.div_ceil(MMA_M));
        let d1_splits = tile.cluster / tile.d2_splits;
        let block_d1_groups = d1_groups.div_ceil(d1_splits);
        if (d1_splits - 1) * block_d1_groups >= d1_groups
            || !d2_tiles.is_multiple_of(tile.d2_splits)
        {
            return None;
        }
        let d2_rows = MMA_M * d2_tiles;
        let next_rows = problem
            .next
            .map_or(0, |next| next.n.next_multiple_of(MMA_M));
        let pixel_tiles = (tile.th * tile.tw).div_ceil(MMA_N);
        let pixel_splits = tile.cluster / tile.blocks_n;
        let block_pixels = pixel_tiles.div_ceil(pixel_splits) * MMA_N;
        Some(Self {
            d1_splits,
            block_d1_groups,
            block_d2_tiles: d2_tiles / tile.d2_splits,
            d2_rows,
            d2_rows_per_block: d2_rows.div_ceil(tile.blocks_n),
            next_rows_per_block: next_rows.div_ceil(tile.blocks_n),
            block_n_tiles: problem.n.div_ceil(MMA_M).div_ceil(tile.blocks_n),
            block_pixels,
            cluster_pixels: block_pixels * pixel_splits,
        })
    }

    /// Channel quads of the first factor's output in a block.
    pub(super) fn first_quads(&self) -> u32 {
        self.block_d1_groups * MMA_K / 4
    }
}
