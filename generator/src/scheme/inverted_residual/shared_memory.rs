//! The shared memory of a block. All data have memory of their own.

use crate::scheme::shared_offsets::{BARRIER_FLOATS, SharedOffsets};

/// Bulk copies of weights, each with an mbarrier: those of the expansion, of the depthwise convolution, and of the projection.
pub(super) const WEIGHT_COPIES: u32 = 3;

/// Offsets in shared memory, in floats.
pub(super) struct SharedMemory {
    pub(super) expand_weights_at: u32,
    pub(super) depthwise_weights_at: u32,
    pub(super) project_weights_at: u32,
    pub(super) input_at: u32,
    pub(super) expanded_at: u32,
    pub(super) filtered_at: u32,
    /// Partial sums from the blocks of the cluster.
    pub(super) received_at: u32,
    /// For each expanded channel of the block: dequantisation scale and bias of the expansion, bias of the depthwise convolution.
    pub(super) channel_values_at: u32,
    pub(super) warp_max_at: u32,
    pub(super) sums_barrier_at: u32,
    pub(super) copy_barriers_at: u32,
    /// All floats.
    pub(super) floats: u32,
}

/// Floats of the data in shared memory.
pub(super) struct Contents {
    pub(super) expand_weights: u32,
    pub(super) depthwise_weights: u32,
    pub(super) project_weights: u32,
    pub(super) input: u32,
    pub(super) expanded: u32,
    pub(super) filtered: u32,
    pub(super) received: u32,
    pub(super) slice: u32,
    pub(super) warps: u32,
}

impl SharedMemory {
    pub(super) fn new(contents: &Contents) -> Self {
        let mut offsets = SharedOffsets::default();
        let mut place = |floats: u32| offsets.place(floats);
        let mut memory = Self {
            expand_weights_at: place(contents.expand_weights),
            depthwise_weights_at: place(contents.depthwise_weights),
            project_weights_at: place(contents.project_weights),
            input_at: place(contents.input),
            expanded_at: place(contents.expanded),
            filtered_at: place(contents.filtered),
            received_at: place(contents.received),
            channel_values_at: place(3 * contents.slice),
            // Of the input and of the filtered values.
            warp_max_at: place(2 * contents.warps),
            sums_barrier_at: place(BARRIER_FLOATS),
            copy_barriers_at: place(WEIGHT_COPIES * BARRIER_FLOATS),
            floats: 0,
        };
        memory.floats = offsets.floats();
        memory
    }
}
