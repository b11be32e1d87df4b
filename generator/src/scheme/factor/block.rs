//! What a block of a launch of several convolutions takes of an SM.

use crate::gpu::{FIRST_CLUSTER_GPU, Gpu, MAX_REGISTERS};

/// A block.
#[derive(Debug, Clone, Copy)]
pub(in crate::scheme) struct BlockResources {
    /// Warps.
    pub(in crate::scheme) warps: u32,
    /// Estimated registers of a thread.
    pub(in crate::scheme) registers: u32,
    /// Floats of shared memory.
    pub(in crate::scheme) shared_floats: u32,
}

impl BlockResources {
    /// Threads.
    pub(in crate::scheme) fn threads(&self) -> u32 {
        32 * self.warps
    }

    /// Whether a block fits on an SM, of this GPU and of the first one with clusters.
    pub(in crate::scheme) fn fits(&self, gpu: &Gpu) -> bool {
        let shared = gpu.shared_per_block.min(FIRST_CLUSTER_GPU.shared_per_block);
        self.registers * self.threads() <= gpu.registers_per_sm
            && self.registers <= MAX_REGISTERS
            && self.shared_floats <= shared / 4
    }

    /// Resident blocks of an SM.
    pub(in crate::scheme) fn blocks_per_sm(&self, gpu: &Gpu) -> u32 {
        (gpu.shared_per_sm / (4 * self.shared_floats + gpu.shared_reserved))
            .min(gpu.threads_per_sm / self.threads())
            .min(gpu.registers_per_sm / (self.registers * self.threads()))
            .max(1)
    }

    /// Items of each thread if all threads have `all`.
    pub(in crate::scheme) fn items(&self, all: u32) -> u32 {
        all.div_ceil(self.threads())
    }
}

/// Whether the copies of the weights that are needed last start after the loads of the input. If the blocks of a launch leave few SMs to the
/// successor, its blocks cannot start early, and nothing hides the time until the copies have been issued.
pub(in crate::scheme) fn copies_late(blocks: u64) -> bool {
    2 * blocks > u64::from(FIRST_CLUSTER_GPU.sms)
}
