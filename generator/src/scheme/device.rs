//! Parts of the device prelude: functions that kernels of several schemes share.

/// A part of the device prelude, in the order in which parts stand before the kernels that use them. Each stands by itself but the last; its
/// text, in `templates/device`, says what its functions do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DevicePart {
    /// `TDC_DYNAMIC_SHARED(type, name)` declares a kernel's dynamic shared memory.
    DynamicShared,
    /// `tdc_copy_async4`, `tdc_copy_async16`, `tdc_commit_copies`, `tdc_wait_copies`: copies to shared memory beside the arithmetic.
    AsyncCopy,
    /// `tdc_init_copy_barriers`, `tdc_bulk_copy`, `tdc_wait_bulk_copy`: copies of many values at once. Uses the part before.
    BulkCopy,
    /// `tdc_has_clusters`, `tdc_cluster_sync` and its halves, `tdc_cluster_shared`: blocks that read each other's shared memory.
    Cluster,
    /// `tdc_pdl_wait_and_trigger` and its two halves: launches that overlap.
    Pdl,
    /// `tdc_to_fp16x2`, `tdc_fp16x2_low`, `tdc_fp16x2_high`, `tdc_warp_max`: pairs of fp16 numbers and what scales them.
    Fp16,
    /// `tdc_to_bf16x2`: pairs of bf16 numbers.
    Bf16,
    /// `tdc_mma_tf32`, `tdc_mma_f16`, `tdc_mma_bf16`: products of small matrices by a warp.
    Mma,
    /// `tdc_split_tf32`: a float as the sum of two tf32 numbers.
    SplitTf32,
    /// `tdc_convert_quad`, `tdc_mma_step`, `tdc_accumulate_scaled`: products of values split in fp16 numbers. Uses `Fp16` and `Mma`.
    MmaSteps,
    /// `tdc_dequantize_rows`, `tdc_convert_accumulators`: sums as terms of the next product. Uses `Fp16` and `MmaSteps`.
    AccumulatorOperands,
}
