//! What a block of a cluster computes, whatever its warps and chunks.

use super::tile_space::ClusterGroup;
use crate::ir::TuckerProblem;
use crate::scheme::tensor_core::{MMA_K, MMA_M, MMA_N, quad_plane, split_terms};

/// Packed weights of an MMA tile, for each term.
pub(super) const MMA_TILE_WEIGHTS: u32 = 128;

/// The part of a block in the tiles of a [`ClusterGroup`]. Groups (of [`MMA_K`]) and tiles (of [`MMA_M`]) both have 16 channels.
pub(super) struct BlockPart {
    /// Pixels that the block stages.
    pub(super) positions: u32,
    /// Pixels that the cluster computes.
    pub(super) computed: u32,
    /// Pixels that the block finishes.
    pub(super) finished: u32,
    /// Groups of the input channels; 0 without a first factor.
    pub(super) first_groups: u32,
    /// Groups of its D1 channels.
    pub(super) d1_groups: u32,
    /// Tiles of all D2 channels.
    pub(super) all_d2_tiles: u32,
    /// Tiles of its D2 channels.
    pub(super) d2_tiles: u32,
    /// Tiles of its output channels.
    pub(super) n_tiles: u32,
    /// Number of blocks among which the D1 channels are divided.
    pub(super) d1_splits: u32,
    cluster: u32,
    blocks_n: u32,
    d2_splits: u32,
}

impl BlockPart {
    /// `None` if the cluster has more blocks than the core has channels, or does not divide its D2 tiles equally.
    pub(super) fn new(group: ClusterGroup, problem: &TuckerProblem) -> Option<Self> {
        let ClusterGroup {
            th,
            tw,
            cluster,
            blocks_n,
            d2_splits,
        } = group;
        let core = &problem.core;
        let all_d1_groups = core.c.div_ceil(MMA_K);
        let all_d2_tiles = core.n.div_ceil(MMA_M);
        let d1_splits = cluster / d2_splits;
        let d1_groups = all_d1_groups.div_ceil(d1_splits);
        let all_blocks_have_channels =
            (d1_splits - 1) * d1_groups < all_d1_groups && all_d2_tiles.is_multiple_of(d2_splits);
        if !all_blocks_have_channels {
            return None;
        }
        let reach = |axis: usize, tile: u32, taps: u32| {
            (tile - 1) * core.stride[axis] + (taps - 1) * core.dilation[axis] + 1
        };
        let pixel_tiles = (th * tw).div_ceil(MMA_N);
        Some(Self {
            positions: reach(0, th, core.r) * reach(1, tw, core.s),
            computed: pixel_tiles * MMA_N,
            finished: pixel_tiles.div_ceil(cluster / blocks_n) * MMA_N,
            first_groups: problem.first.map_or(0, |c| c.div_ceil(MMA_K)),
            d1_groups,
            all_d2_tiles,
            d2_tiles: all_d2_tiles / d2_splits,
            n_tiles: problem.n.div_ceil(MMA_M).div_ceil(blocks_n),
            d1_splits,
            cluster,
            blocks_n,
            d2_splits,
        })
    }

    /// Whether blocks of `warps` warps have a thread for each pixel.
    pub(super) fn fits(&self, warps: u32) -> bool {
        self.positions.max(self.finished) <= 32 * warps
    }

    /// MMA tiles of the weights of the layer's first factor, core and last factor.
    pub(super) fn weight_tiles(&self, problem: &TuckerProblem) -> [u32; 3] {
        let core = &problem.core;
        [
            self.d1_groups * self.first_groups,
            self.d2_tiles * core.r * core.s * self.d1_groups,
            self.n_tiles * self.all_d2_tiles,
        ]
    }

    /// Channels of the core's output that the block reduces.
    pub(super) fn d2_rows(&self) -> u32 {
        (MMA_M * self.all_d2_tiles).div_ceil(self.blocks_n)
    }

    /// Bytes of shared memory that its tiles with a chunk size need at least. Larger chunks need more.
    pub(super) fn least_shared_bytes(&self, problem: &TuckerProblem, chunk_groups: u32) -> u32 {
        let split_terms = split_terms(problem.precision);
        let quads = |groups: u32| 2 * split_terms * groups * MMA_K / 4;
        // For the whole run of a block: the core's input, and sums from other blocks.
        let core_input = quads(self.d1_groups) * quad_plane(self.positions, split_terms);
        let received = match self.cluster {
            1 => 0,
            _ => self.cluster * self.d2_rows() * self.finished,
        };
        let first_chunk = self.first_groups.min(chunk_groups);
        let staged = quads(first_chunk) * quad_plane(self.positions, split_terms);
        // Large factors have more bytes than a number of 32 bits holds, and fit nowhere.
        self.least_temporary(problem, first_chunk, staged)
            .saturating_add(core_input + received)
            .saturating_mul(4)
    }

    /// How many 32-bit numbers, at least, are in shared memory for only a part of a block's run: weights, `staged` numbers of the input, and
    /// the output of the core or, with the next factor, of the layer.
    fn least_temporary(&self, problem: &TuckerProblem, first_chunk: u32, staged: u32) -> u32 {
        let split_terms = split_terms(problem.precision);
        let is_cluster = self.cluster > 1;
        let d2_tiles = self.all_d2_tiles;
        let rows = MMA_M
            * problem
                .next
                .map_or(d2_tiles, |_| d2_tiles.max(self.n_tiles));
        let converted = 2 * split_terms * (rows / 4) * quad_plane(self.finished, split_terms);
        let output = match is_cluster {
            true => converted.max(MMA_M * d2_tiles * self.finished),
            false => converted,
        };
        // The output replaces the weights of the factors before it. In a cluster the core's stay, because other blocks may send before this
        // one has finished. A tile with chunks that replace each other has two stages at least.
        let floats = |mma_tiles: u32| MMA_TILE_WEIGHTS * split_terms * mma_tiles;
        let [first, of_core, last] = self.weight_tiles(problem);
        let kept = if is_cluster { last + of_core } else { last };
        let resident = (floats(first + of_core + last) + staged).max(floats(kept) + output);
        if self.d2_splits > 1 || problem.next.is_some() {
            return resident;
        }
        let largest_chunk = (self.d1_groups * first_chunk)
            .max(self.d2_tiles * problem.core.s)
            .max(self.n_tiles);
        resident.min(floats(2 * largest_chunk) + staged.max(output))
    }
}
