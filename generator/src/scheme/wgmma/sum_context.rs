//! How a sum is divided, for the templates.

use serde::Serialize;

/// Bulk prefetches are of multiples of 16 bytes.
const PREFETCH_WORDS: u32 = 4;

/// The most weights that blocks bring to L2, 16 MB. More would displace the input, or other weights before they are read.
const MAX_PREFETCHED: u32 = 4 << 20;

/// The sum of a tile in chunks of channels, these in K steps. Weights are counted in 32-bit words.
#[derive(Serialize)]
pub(super) struct SumContext {
    pub(super) chunks: u32,
    /// K steps of a chunk, and of a stage of weights.
    pub(super) steps: u32,
    pub(super) stage_steps: u32,
    /// Stages of weights of a tile, and buffers for them.
    pub(super) tile_stages: u32,
    pub(super) stages: u32,
    /// The buffers hold all weights of a tile.
    pub(super) keeps_weights: bool,
    pub(super) step_weights: u32,
    pub(super) stage_weights: u32,
    /// Of all tiles, and the part of them that a block brings to L2; 0 if none does.
    pub(super) packed_weights: u32,
    pub(super) prefetched: u32,
}

impl SumContext {
    /// For `stages` buffers and a grid of blocks: tiles of output channels, then of pixels.
    pub(super) fn new(
        chunks: u32,
        [steps, stage_steps]: [u32; 2],
        step_weights: u32,
        stages: u32,
        grid: [u32; 3],
    ) -> Self {
        let tile_stages = chunks * (steps / stage_steps);
        let stage_weights = stage_steps * step_weights;
        let packed_weights = grid[0] * tile_stages * stage_weights;
        let keeps_weights = tile_stages <= stages;
        let prefetched = match !keeps_weights && packed_weights <= MAX_PREFETCHED {
            true => packed_weights.div_ceil(grid[0] * grid[1]),
            false => 0,
        };
        Self {
            chunks,
            steps,
            stage_steps,
            tile_stages,
            stages,
            keeps_weights,
            step_weights,
            stage_weights,
            packed_weights,
            prefetched: prefetched.next_multiple_of(PREFETCH_WORDS),
        }
    }
}
