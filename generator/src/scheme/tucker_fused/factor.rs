//! One factor in a block, and how its matrix product is divided among the warps.

use crate::scheme::step_order::{ChunkSteps, split_steps_over_warps};
use crate::scheme::tensor_core::{MMA_M, MMA_N};
use serde::Serialize;

/// Maximum number of MMA tiles that a warp accumulates.
const MAX_SUMS: u32 = 16;

/// Maximum number of MMA tiles of a warp for separate accumulators of the hi/lo products.
const MAX_SEPARATE_TILES: u32 = 2;

/// The matrix product of a factor in a block: `rows` output channels by `columns` pixels, over K steps of 16 terms.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Factor {
    /// Output channels.
    pub(super) rows: u32,
    /// MMA tiles of a warp: of 16 output channels, and of 8 pixels.
    pub(super) m_tiles: u32,
    pub(super) p_tiles: u32,
    /// Number of warps along the channels, the pixels and K.
    #[serde(skip)]
    pub(super) warps_m: u32,
    #[serde(skip)]
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
    pub(super) chunks_before: u32,
    /// Number of MMAs, and estimated clocks of a warp.
    #[serde(skip)]
    pub(super) mma_count: u32,
    #[serde(skip)]
    pub(super) latency_clocks: f64,
}

impl Factor {
    /// Divides the product among the warps with the least estimated clocks; `None` if no warp can hold its accumulators. `counts` are the K
    /// steps of a chunk: groups of channels, rows of the filter, columns of the filter. `b` are the distances of these in the staged input.
    /// At most `max_warps_k` warps split K, or any number if it is 0.
    pub(super) fn new(
        [m_tiles, p_tiles]: [u32; 2],
        chunks: u32,
        counts: [u32; 3],
        b: [u32; 3],
        [warps, max_warps_k]: [u32; 2],
        split_terms: u32,
    ) -> Option<Self> {
        let chunk_steps = counts.iter().product::<u32>();
        let mut best: Option<(f64, [u32; 5])> = None;
        for warps_m in (1..=warps.min(m_tiles)).filter(|&part| m_tiles.is_multiple_of(part)) {
            let m = m_tiles / warps_m;
            let fits = |p: &u32| 12 * m * p + 8 * m + 5 * p + 60 <= (65536 / (32 * warps)).min(255);
            for p in (1..=p_tiles.min(MAX_SUMS / m)).filter(fits) {
                let warps_p = p_tiles.div_ceil(p);
                let most = (warps / (warps_m * warps_p)).min(if max_warps_k == 0 {
                    warps
                } else {
                    max_warps_k
                });
                for warps_k in
                    (1..=most).filter(|&part| split_steps_over_warps(counts, part).is_some())
                {
                    let latency_clocks = latency_clocks(
                        [m, p],
                        [warps_m, warps_p, warps_k],
                        chunks * chunk_steps,
                        [warps, max_warps_k],
                        split_terms,
                    );
                    if best.is_none_or(|(least, _)| latency_clocks < least) {
                        best = Some((latency_clocks, [m, p, warps_m, warps_p, warps_k]));
                    }
                }
            }
        }
        let (latency_clocks, [m, p, warps_m, warps_p, warps_k]) = best?;
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
            chunks_before: 0,
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

/// Whether each hi/lo product of `tiles` MMA tiles has a separate accumulator.
fn separate_accumulators(tiles: u32, split_terms: u32) -> bool {
    split_terms == 2 && tiles <= MAX_SEPARATE_TILES
}

/// Estimated clocks of a block for a factor. A K step is bound by the instruction issue of an SM partition, by shared memory, or by the
/// latency of one warp's dependent MMAs. The sum over the warps along K follows.
fn latency_clocks(
    [m, p]: [u32; 2],
    [warps_m, warps_p, warps_k]: [u32; 3],
    steps: u32,
    [warps, max_warps_k]: [u32; 2],
    split_terms: u32,
) -> f64 {
    let products = f64::from(2 * split_terms - 1);
    let warps_used = warps_m * warps_p * warps_k;
    let beside = f64::from(warps_used.div_ceil(4));
    // Wavefronts of 128 bytes of shared memory; the SM does one per clock for all warps.
    let wavefronts = f64::from(4 * split_terms * m + 2 * split_terms * p);
    let loads = f64::from(split_terms * m + p);
    let tiles = f64::from(m * p);
    let issue = beside * (6.7 * products * tiles + 3.0 * loads + 20.0);
    let shared = f64::from(warps_used) * wavefronts;
    let chained = if separate_accumulators(m * p, split_terms) {
        1.0
    } else {
        products
    };
    let alone = (6.7 * products * tiles).max(39.0 * chained) + 60.0;
    let outputs = f64::from(m * warps_m * MMA_M * p * warps_p * MMA_N);
    let sums = match warps_k {
        // From the registers of the warps that hold them.
        1 if max_warps_k > 0 => 6.0 * outputs / f64::from(32 * warps_used),
        _ => 6.0 * f64::from(warps_k + 1) * outputs / f64::from(32 * warps),
    };
    f64::from(steps / warps_k) * issue.max(shared).max(alone) + sums
}
