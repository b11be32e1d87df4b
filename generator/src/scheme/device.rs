//! Parts of the device prelude: functions that kernels of several schemes share.

/// A part of the device prelude, in the order in which parts stand before the kernels that use them. Each stands by itself but the last; its
/// text, in `templates/device`, says what its functions do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DevicePart {
    /// `TDC_DYNAMIC_SHARED(type, name)` declares a kernel's dynamic shared memory.
    DynamicShared,
    /// `tdc_copy_async4`, `tdc_copy_async16`, `tdc_commit_copies`, `tdc_wait_copies`: copies to shared memory beside the arithmetic.
    AsyncCopy,
    /// `tdc_begin_chunks`, `tdc_copy_chunk`, `tdc_await_chunk`: copies of many values at once. Uses the part before.
    ChunkCopy,
    /// `tdc_has_clusters`, `tdc_cluster_sync` and its halves, `tdc_cluster_shared`: blocks that read each other's shared memory.
    Cluster,
    /// `tdc_wait_for_inputs` and its two halves: launches that overlap.
    Overlap,
    /// `tdc_to_halves`, `tdc_lower_half`, `tdc_upper_half`, `tdc_warp_largest`: pairs of fp16 numbers and what scales them.
    Half,
    /// `tdc_to_bf16`: pairs of bf16 numbers.
    Bf16,
    /// `tdc_mma_tf32`, `tdc_mma_f16`, `tdc_mma_bf16`: products of small matrices by a warp.
    Mma,
    /// `tdc_split_tf32`: a float as the sum of two tf32 numbers.
    SplitTf32,
    /// `tdc_set_pair`, `tdc_add_step`, `tdc_add_scaled`: products of values split in fp16 numbers. Uses `Half` and `Mma`.
    Steps,
    /// `tdc_scale_rows`, `tdc_round_sums`: sums as terms of the next product. Uses `Half` and `Steps`.
    RoundedSums,
}
