//! The shared memory of a block. All data have memory of their own.

use crate::scheme::shared_offsets::{BARRIER_FLOATS, SharedOffsets};

/// Bulk copies of weights, each with an mbarrier: those of the first convolution, and of the 1x1 convolution.
pub(super) const WEIGHT_COPIES: u32 = 2;

/// Buffers for the largest magnitudes of the warps: of the input, of the concatenation, and of the new channels. Without clusters a block has
/// several slices of each, so there are two in turn.
const MAX_BUFFERS: u32 = 6;

/// Offsets in shared memory, in floats.
pub(super) struct SharedMemory {
    pub(super) growth_weights_at: u32,
    pub(super) pointwise_weights_at: u32,
    pub(super) input_at: u32,
    pub(super) before_at: u32,
    pub(super) grown_at: u32,
    /// Partial sums of the block's new channels: of its warps, or from the blocks of the cluster. Their sums, as operands in fp32.
    pub(super) grown_sums_at: u32,
    pub(super) new_values_at: u32,
    /// Partial sums of the 1x1 convolution: of the block's warps, or from the blocks of the cluster.
    pub(super) received_at: u32,
    pub(super) warp_max_at: u32,
    pub(super) grown_barrier_at: u32,
    pub(super) sums_barrier_at: u32,
    pub(super) copy_barriers_at: u32,
    /// All floats.
    pub(super) floats: u32,
}

/// Floats of the data in shared memory.
pub(super) struct Contents {
    pub(super) growth_weights: u32,
    pub(super) pointwise_weights: u32,
    pub(super) input: u32,
    pub(super) before: u32,
    pub(super) grown: u32,
    pub(super) grown_sums: u32,
    pub(super) new_values: u32,
    pub(super) received: u32,
    pub(super) warps: u32,
}

impl SharedMemory {
    pub(super) fn new(contents: &Contents) -> Self {
        let mut offsets = SharedOffsets::default();
        let mut place = |floats: u32| offsets.place(floats);
        let mut memory = Self {
            growth_weights_at: place(contents.growth_weights),
            pointwise_weights_at: place(contents.pointwise_weights),
            input_at: place(contents.input),
            before_at: place(contents.before),
            grown_at: place(contents.grown),
            grown_sums_at: place(contents.grown_sums),
            new_values_at: place(contents.new_values),
            received_at: place(contents.received),
            warp_max_at: place(MAX_BUFFERS * contents.warps),
            grown_barrier_at: place(BARRIER_FLOATS),
            sums_barrier_at: place(BARRIER_FLOATS),
            copy_barriers_at: place(WEIGHT_COPIES * BARRIER_FLOATS),
            floats: 0,
        };
        memory.floats = offsets.floats();
        memory
    }
}
