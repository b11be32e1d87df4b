//! How the sum of a tile is divided.

use serde::Serialize;

/// Bulk prefetches are of multiples of 16 bytes.
const PREFETCH_WORDS: u32 = 4;

/// The most weights that blocks bring to L2, 16 MB. More would displace the input, or other weights before they are read.
const MAX_PREFETCHED: u64 = 4 << 20;

/// The sum of a tile, or a block's part of it in a cluster: chunks of channels, each with K steps. Weights come in stages of K steps and are counted in 32-bit words.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sum {
    pub(super) chunks: u32,
    /// K steps of a chunk, and of a stage of weights.
    pub(super) steps: u32,
    pub(super) stage_steps: u32,
    /// Packed weights of a K step.
    pub(super) step_weights: u32,
    /// Buffers for stages of weights.
    pub(super) stages: u32,
}

impl Sum {
    /// Packed weights of a stage.
    pub(super) fn stage_weights(&self) -> u32 {
        self.stage_steps * self.step_weights
    }

    /// Stages of weights of a chunk.
    pub(super) fn chunk_stages(&self) -> u32 {
        self.steps / self.stage_steps
    }

    /// Stages of weights of a block's tile.
    pub(super) fn tile_stages(&self) -> u32 {
        self.chunks * self.chunk_stages()
    }

    /// Whether the buffers hold all weights of a block's tile.
    pub(super) fn keeps_weights(&self) -> bool {
        self.tile_stages() <= self.stages
    }
}

/// [`Sum`] for the templates.
#[derive(Serialize)]
pub(super) struct SumContext {
    chunks: u32,
    steps: u32,
    stage_steps: u32,
    tile_stages: u32,
    stages: u32,
    keeps_weights: bool,
    step_weights: u32,
    stage_weights: u32,
    /// Of all tiles, and the part of them that a block brings to L2; 0 if none does.
    packed_weights: u64,
    prefetched: u32,
}

impl SumContext {
    /// For a grid of blocks: tiles of output channels, each by the blocks of a cluster, then of pixels.
    pub(super) fn new(sum: Sum, [columns, rows, _]: [u32; 3]) -> Self {
        let tile_weights = u64::from(sum.tile_stages()) * u64::from(sum.stage_weights());
        let packed_weights = u64::from(columns) * tile_weights;
        let is_prefetched = !sum.keeps_weights() && packed_weights <= MAX_PREFETCHED;
        let part = packed_weights.div_ceil(u64::from(columns) * u64::from(rows));
        Self {
            chunks: sum.chunks,
            steps: sum.steps,
            stage_steps: sum.stage_steps,
            tile_stages: sum.tile_stages(),
            stages: sum.stages,
            keeps_weights: sum.keeps_weights(),
            step_weights: sum.step_weights,
            stage_weights: sum.stage_weights(),
            packed_weights,
            prefetched: match is_prefetched {
                // At most all weights.
                true => (part as u32).next_multiple_of(PREFETCH_WORDS),
                false => 0,
            },
        }
    }
}
