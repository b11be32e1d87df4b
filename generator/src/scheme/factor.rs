//! Factors of a fused launch: convolutions that a block computes one after the other, each as a matrix product by the tensor cores. They are the
//! factors of a Tucker layer, or convolutions of a dense step or an inverted residual, which have one chunk each. This file has one factor, and how
//! its product is divided among the warps.

mod arrangement;
mod block;
mod context;
mod rectangle;
mod weight_layout;

use super::step_order::ChunkSteps;
use super::tensor_core::{MMA_M, MMA_N, separate_accumulators};
use arrangement::Arrangement;
pub(super) use arrangement::{Arrangements, FactorProduct};
pub(super) use block::{BlockResources, copies_late};
pub(super) use context::FactorContext;
pub(super) use rectangle::{Rectangle, RectangleContext, all_of};
use serde::Serialize;
pub(super) use weight_layout::{dim, lanes, pointwise};

/// The matrix product of a factor in a block: `rows` output channels by `columns` pixels, over K steps of 16 terms.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Factor {
    /// Output channels.
    pub(super) rows: u32,
    /// MMA tiles of a warp: of 16 output channels, and of 8 pixels.
    #[serde(rename = "m")]
    pub(super) m_tiles: u32,
    #[serde(rename = "p")]
    pub(super) p_tiles: u32,
    /// Number of warps along the channels, the pixels and K.
    pub(super) warps_m: u32,
    pub(super) warps_p: u32,
    pub(super) warps_k: u32,
    /// Whether some warps of the block have no work.
    pub(super) has_idle_warps: bool,
    /// Chunks of the weights, and K steps of one chunk.
    pub(super) chunks: u32,
    pub(super) chunk_steps: u32,
    #[serde(skip)]
    pub(super) steps: ChunkSteps,
    /// Packed values of a chunk, and of 16 output channels of a chunk.
    pub(super) chunk_weights: u32,
    pub(super) tile_weights: u32,
    /// Pixels for which the warps hold accumulators, and the pitch in floats of the partial sums of one output channel in shared memory.
    pub(super) columns: u32,
    pub(super) partial_pitch: u32,
    /// Whether each hi/lo product has a separate accumulator. With few tiles the dependent MMAs of one step would wait for each other.
    pub(super) separate_accumulators: bool,
    /// Offset of the chunks in shared memory, if every chunk has its own, and the number of chunks of the factors before.
    pub(super) shared_at: u32,
    pub(super) first_chunk: u32,
    /// Number of MMAs, and estimated clocks of a warp.
    #[serde(skip)]
    pub(super) mma_count: u32,
    #[serde(skip)]
    pub(super) latency_clocks: f64,
}

impl Factor {
    /// A factor in `chunks` chunks. `b` are the distances of a chunk's groups, rows and columns in the staged input. `None` if no warp can
    /// hold its accumulators.
    pub(super) fn new(
        arrangements: &mut Arrangements,
        product: FactorProduct,
        chunks: u32,
        b: [u32; 3],
    ) -> Option<Self> {
        let FactorProduct {
            tiles: [m_tiles, _],
            counts,
            warps,
            split_terms,
            ..
        } = product;
        let Arrangement {
            m_tiles: m,
            p_tiles: p,
            warps_m,
            warps_p,
            warps_k,
            latency_clocks,
        } = arrangements.fastest(product)?;
        let chunk_steps = counts.iter().product::<u32>();
        let columns = warps_p * p * MMA_N;
        let tile_weights = chunk_steps * 128 * split_terms;
        Some(Self {
            rows: MMA_M * m_tiles,
            m_tiles: m,
            p_tiles: p,
            warps_m,
            warps_p,
            warps_k,
            has_idle_warps: warps_m * warps_p * warps_k < warps,
            chunks,
            chunk_steps,
            steps: ChunkSteps {
                counts,
                a: [counts[1] * counts[2], counts[2], 1].map(|steps| steps * 128 * split_terms),
                b,
                warps: warps_k,
                split_terms,
            },
            chunk_weights: m_tiles * tile_weights,
            tile_weights,
            columns,
            // A warp stores eight rows of channels and two pixels of each lane: the padding maps them to different banks.
            partial_pitch: (columns + 23) / 32 * 32 + 8,
            separate_accumulators: separate_accumulators(m * p, split_terms),
            shared_at: 0,
            first_chunk: 0,
            mma_count: m_tiles * columns / MMA_N * chunks * chunk_steps * (2 * split_terms - 1),
            latency_clocks,
        })
    }

    /// Packed values of all chunks.
    pub(super) fn weights(&self) -> u32 {
        self.chunks * self.chunk_weights
    }

    /// Floats of shared memory for the partial sums of all warps.
    pub(super) fn partials(&self) -> u32 {
        self.warps_k * self.rows * self.partial_pitch
    }
}
