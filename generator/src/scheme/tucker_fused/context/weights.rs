//! Copies of weights and scales.

use crate::scheme::shared_offsets::BARRIER_FLOATS;
use crate::scheme::tucker_fused::geometry::TuckerFusedGeometry;
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct WeightsContext {
    weights_resident: bool,
    /// Buffers of the ring, and floats of each.
    stages: u32,
    stage_floats: u32,
    /// Chunks of the layer's factors, and mbarriers if every chunk has its own.
    chunks: u32,
    copy_barriers: u32,
    barrier_floats: u32,
    /// Chunks whose copies start before the wait for the predecessor, and whether other chunks follow.
    prefetched_chunks: u32,
    has_late_chunks: bool,
    /// Later groups of copies that may be in flight when the kernel waits for a chunk.
    pending_copies: u32,
    /// Dequantisation scales in shared memory: the offsets of those of the core, the last and the next factor, and the number of those
    /// of the layer's factors.
    core_scales_at: u32,
    last_scales_at: u32,
    next_scales_at: u32,
    scale_floats: u32,
}

impl WeightsContext {
    pub(super) fn new(sizes: &TuckerFusedGeometry) -> Self {
        let (weights, factors, tile) = (&sizes.memory.weights, &sizes.factors, &sizes.tile);
        let chunks = factors.chunks();
        let prefetched_chunks = sizes.prefetched_chunks();
        let first_rows = factors.first.as_ref().map_or(0, |first| first.rows);
        let core_scales_at = sizes.split.d1_splits * first_rows;
        let last_scales_at = core_scales_at + sizes.split.d2_rows;
        let n_rows = tile.blocks_n * factors.last.rows;
        Self {
            weights_resident: weights.resident,
            stages: weights.stages,
            stage_floats: weights.stage_floats,
            chunks,
            copy_barriers: chunks + u32::from(factors.next.is_some()),
            barrier_floats: BARRIER_FLOATS,
            prefetched_chunks,
            has_late_chunks: prefetched_chunks < chunks,
            // Without clusters one block copies the chunks of several ranks, so groups cannot be counted.
            pending_copies: if tile.cluster > 1 { 0 } else { chunks - 1 },
            core_scales_at,
            last_scales_at,
            next_scales_at: last_scales_at + 2 * n_rows,
            scale_floats: last_scales_at + n_rows,
        }
    }
}
