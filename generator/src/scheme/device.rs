//! Parts of the device header: device functions that kernels of several schemes use.

/// A part of the device header. The variants are in the order of the parts in the header: a part uses only parts before it. The
/// source of each part, in `templates/device`, describes its functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DevicePart {
    /// `TDC_DYNAMIC_SHARED(type, name)` declares a kernel's dynamic shared memory.
    DynamicShared,
    /// `tdc_copy_async4`, `tdc_copy_async16`, `tdc_commit_copies`, `tdc_wait_copies`: asynchronous copies to shared memory.
    AsyncCopy,
    /// `tdc_init_copy_barriers`, `tdc_bulk_copy`, `tdc_wait_bulk_copy`: bulk copies to shared memory. Uses `AsyncCopy`.
    BulkCopy,
    /// `tdc_has_clusters`, `tdc_cluster_sync` and its halves, `tdc_cluster_shared`, `tdc_store_async` with the functions that
    /// count its bytes: blocks that access each other's shared memory.
    Cluster,
    /// `tdc_prefetch_l2`: a cache line on its way to L2.
    Prefetch,
    /// `tdc_pdl_wait_and_trigger` and its two halves: programmatic dependent launch.
    Pdl,
    /// `tdc_to_fp16x2`, `tdc_fp16x2_low`, `tdc_fp16x2_high`, `tdc_warp_max`: pairs of fp16 numbers, and the largest value of a
    /// warp for their quantisation scale.
    Fp16,
    /// `tdc_to_saturated_fp16x2`: pairs of fp16 numbers of limited magnitude. Uses `Fp16`.
    SaturatedFp16,
    /// `tdc_split_scale`, `tdc_split_max`, `tdc_to_split` and others: tensors of two fp16 numbers for each value, with a header. Uses
    /// `Fp16`.
    SplitTensor,
    /// `tdc_to_bf16x2`, `tdc_bf16x2_low`, `tdc_bf16x2_high`: pairs of bf16 numbers.
    Bf16,
    /// `tdc_max_fp16x2`: the larger ones of two pairs. Uses `Fp16`.
    MaxFp16,
    /// `tdc_max_bf16x2`: the same of bf16 numbers. Uses `Bf16`.
    MaxBf16,
    /// `tdc_mma_tf32`, `tdc_mma_f16`, `tdc_mma_bf16`: products of small matrices by a warp (`mma.sync`).
    Mma,
    /// `tdc_split_tf32`: a float as the sum of two tf32 numbers.
    SplitTf32,
    /// `tdc_convert_quad`, `tdc_mma_step`, `tdc_accumulate_scaled`: K steps, with or without a hi/lo split in fp16. Uses `Fp16`
    /// and `Mma`.
    MmaSteps,
    /// `tdc_dequantize_rows`, `tdc_convert_accumulators`: accumulators as operands of the next product (back-to-back MMA). Uses
    /// `Fp16` and `MmaSteps`.
    AccumulatorOperands,
    /// `tdc_init_phases`, `tdc_arrive`, `tdc_wait_phase`, `tdc_copy_and_arrive`, `tdc_prefetch_to_l2`, `tdc_named_barrier`: pipelines
    /// between warps of different roles.
    Pipeline,
    /// `tdc_wgmma` with its fence, commit and wait: asynchronous products of a warpgroup. Uses `Mma`.
    Wgmma,
    /// `tdc_swizzled`: rows in shared memory without bank conflicts.
    Swizzle,
    /// `tdc_load_matrices`: operands of `Mma` from rows in shared memory (`ldmatrix`).
    LoadMatrices,
    /// `tdc_wgmma_shared`, `tdc_uniform`, `tdc_fence_async_proxy`: the same with both operands in shared memory. Uses `Wgmma` and `Swizzle`.
    WgmmaShared,
}
