//! The templates of generated code, embedded.

macro_rules! templates {
    ($($name:literal),* $(,)?) => {
        /// Name and text of every template.
        pub const FILES: &[(&str, &str)] = &[$(($name, include_str!(concat!($name, ".tera")))),*];
    };
}

templates![
    "folder/activation.cuh",
    "folder/device.cuh",
    "kernel/block_position.cu",
    "kernel/channel_norm.cu",
    "kernel/channel_norm/reduce.cu",
    "kernel/conv_transpose.cu",
    "kernel/convert.cu",
    "kernel/copy_weights_of_chunk.cu",
    "kernel/copy_epilogue.cu",
    "kernel/prefetch_weights.cu",
    "kernel/cp_chain.cu",
    "kernel/cp_first_mma.cu",
    "kernel/cp_fused.cu",
    "kernel/cp_last_mma.cu",
    "kernel/dense_step.cu",
    "kernel/dense_step/channels.cu",
    "kernel/dense_step/growth.cu",
    "kernel/dense_step/grown.cu",
    "kernel/dense_step/input.cu",
    "kernel/dense_step/pointwise.cu",
    "kernel/dense_step/weights.cu",
    "kernel/depthwise.cu",
    "kernel/depthwise_nhwc.cu",
    "kernel/direct.cu",
    "kernel/direct_tiled.cu",
    "kernel/elementwise.cu",
    "kernel/epilogue.cu",
    "kernel/mma_nhwc.cu",
    "kernel/global_pool.cu",
    "kernel/implicit_gemm.cu",
    "kernel/input_stationary.cu",
    "kernel/inverted_residual.cu",
    "kernel/inverted_residual/depthwise.cu",
    "kernel/inverted_residual/expand.cu",
    "kernel/inverted_residual/input.cu",
    "kernel/inverted_residual/project.cu",
    "kernel/inverted_residual/weights.cu",
    "kernel/linear.cu",
    "kernel/load_chunk.cu",
    "kernel/lrn.cu",
    "kernel/normalize.cu",
    "kernel/pad.cu",
    "kernel/pointwise.cu",
    "kernel/pool.cu",
    "kernel/reduce.cu",
    "kernel/resize.cu",
    "kernel/refill_weights.cu",
    "kernel/quantize_scale.cu",
    "kernel/single_channel.cu",
    "kernel/store_nhwc.cu",
    "kernel/store_output.cu",
    "kernel/reduce_and_store.cu",
    "kernel/squeeze.cu",
    "kernel/excite.cu",
    "kernel/stride_fixed.cu",
    "kernel/tdc.cu",
    "kernel/tucker_fused.cu",
    "kernel/tucker_fused/await_chunk.cu",
    "kernel/tucker_fused/cluster.cu",
    "kernel/tucker_fused/copy_weights.cu",
    "kernel/tucker_fused/core.cu",
    "kernel/tucker_fused/core_output.cu",
    "kernel/tucker_fused/core_partials.cu",
    "kernel/tucker_fused/exchange.cu",
    "kernel/tucker_fused/first.cu",
    "kernel/tucker_fused/input.cu",
    "kernel/tucker_fused/last.cu",
    "kernel/tucker_fused/multiply_chunk.cu",
    "kernel/tucker_fused/next.cu",
    "kernel/tucker_fused/output_items.cu",
    "kernel/tucker_fused/resident_weights.cu",
    "kernel/tucker_fused/scales.cu",
    "kernel/tucker_fused/send_sums.cu",
    "kernel/tucker_fused/shared_memory.cu",
    "kernel/tucker_fused/store_output.cu",
    "kernel/tucker_fused/weight_ring.cu",
    "kernel/tucker_fused/without_clusters.cu",
    "kernel/tvm.cu",
    "kernel/wgmma.cu",
    "kernel/wgmma/add_partial_sums.cu",
    "kernel/wgmma/convert_input.cu",
    "kernel/wgmma/copy_cells.cu",
    "kernel/wgmma/copy_chunks.cu",
    "kernel/wgmma/copy_residual.cu",
    "kernel/wgmma/find_outputs_nhwc.cu",
    "kernel/wgmma/output_of_cell.cu",
    "kernel/wgmma/prefetch_weights.cu",
    "kernel/wgmma/scale_outputs.cu",
    "kernel/wgmma/store_nchw.cu",
    "kernel/wgmma/store_nhwc.cu",
    "kernel/wgmma/tile_origin.cu",
    "kernel/wgmma_nhwc.cu",
    "kernel/convert_nhwc.cu",
    "kernel/convert_runs.cu",
    "kernel/convert_elements.cu",
    "kernel/convert_output.cu",
    "kernel/factor/mma_steps.cu",
    "kernel/factor/output.cu",
    "kernel/factor/position.cu",
    "kernel/factor/quantization.cu",
    "kernel/factor/warp_position.cu",
    "kernel/gather_pixels.cu",
    "kernel/split_maxima.cu",
    "kernel/global_pool_nhwc.cu",
    "kernel/pool_max_pairs.cu",
    "kernel/pool_nhwc.cu",
    "kernel/pool_run.cu",
    "kernel/pool_split_header.cu",
    "kernel/pool_store.cu",
    "kernel/pool_strips.cu",
    "kernel/window_size.cu",
    "kernel/winograd.cu",
    "layers/CMakeLists.txt",
    "layers/README.md",
    "layers/main.cu",
    "network/CMakeLists.txt",
    "network/README.md",
    "network/main.cu",
    "network/main/failures.cu",
    "network/main/help.cu",
    "network/main/layers.cu",
    "network/main/options.cu",
    "network/main/run.cu",
    "network/main/session.cu",
    "network/main/tensor_files.cu",
    "network/main/top_values.cu",
    "network/network.cu",
    "network/driver/batch_schedule.cu",
    "network/driver/branches.cu",
    "network/driver/c_interface.cu",
    "network/driver/check_device.cu",
    "network/driver/check_tensors.cu",
    "network/driver/choose_variant.cu",
    "network/driver/constants.cu",
    "network/driver/copy_layer_output.cu",
    "network/driver/device_block.cu",
    "network/driver/failures.cu",
    "network/driver/file_content.cu",
    "network/driver/fp16_value.cu",
    "network/driver/bf16_value.cu",
    "network/driver/headers.cu",
    "network/driver/layer_access.cu",
    "network/driver/plan_tables.cu",
    "network/driver/preconditions.cu",
    "network/driver/random_values.cu",
    "network/driver/random_weights.cu",
    "network/driver/run.cu",
    "network/driver/run_batch.cu",
    "network/driver/run_plan.cu",
    "network/driver/single_tensors.cu",
    "network/driver/stored_value.cu",
    "network/driver/table_types.cu",
    "network/driver/upload_weights.cu",
    "network/driver/use_weights.cu",
    "network/driver/variant_list.cu",
    "network/driver/variant_tables.cu",
    "network/driver/weight_sections.cu",
    "network/driver/weights.cu",
    "network/network.h",
    "network/header/c_interface.h",
    "network/header/network.h",
    "network/header/status.h",
    "network/header/tensor_info.h",
    "network/header/weights.h",
    "network/network.py",
    "unit/unit.cu",
    "unit/unit.h",
];

/// The page of a rank choice.
pub const COMPRESSION_REPORT: &str = include_str!("report/compression.html.tera");

/// The page of times of a network.
pub const NETWORK_TIMES_REPORT: &str = include_str!("report/network_times.html.tera");

/// The Python script that runs a network in PyTorch.
pub const TORCH_BENCH: &str = include_str!("torch/bench.py");

/// The parts of the device prelude. Their braces would look like an engine's own: they are placed as they are.
pub mod device {
    /// Asynchronous copies to shared memory.
    pub const ASYNC_COPY: &str = include_str!("device/async_copy.cuh");
    /// Copies of chunks by the copy engine.
    pub const BULK_COPY: &str = include_str!("device/bulk_copy.cuh");
    /// Pairs of bf16 numbers.
    pub const BF16: &str = include_str!("device/bf16.cuh");
    /// Clusters of blocks.
    pub const CLUSTER: &str = include_str!("device/cluster.cuh");
    /// Dynamic shared memory.
    pub const DYNAMIC_SHARED: &str = include_str!("device/dynamic_shared.cuh");
    /// Pairs of fp16 numbers.
    pub const FP16: &str = include_str!("device/fp16.cuh");
    /// Matrix products of a warp.
    pub const MMA: &str = include_str!("device/mma.cuh");
    /// Sums as terms of the next product.
    pub const ACCUMULATOR_OPERANDS: &str = include_str!("device/accumulator_operands.cuh");
    /// Rounding to fp16 with limited magnitude.
    pub const SATURATED_FP16: &str = include_str!("device/saturated_fp16.cuh");
    /// The larger ones of two pairs of fp16 numbers.
    pub const MAX_FP16: &str = include_str!("device/max_fp16.cuh");
    /// The larger ones of two pairs of bf16 numbers.
    pub const MAX_BF16: &str = include_str!("device/max_bf16.cuh");
    /// Tensors of two fp16 numbers for each value.
    pub const SPLIT_TENSOR: &str = include_str!("device/split_tensor.cuh");
    /// A float as the sum of two tf32 numbers.
    pub const SPLIT_TF32: &str = include_str!("device/split_tf32.cuh");
    /// Steps of a matrix product of split values.
    pub const MMA_STEPS: &str = include_str!("device/mma_steps.cuh");
    /// Weights on their way to L2.
    pub const PREFETCH: &str = include_str!("device/prefetch.cuh");
    /// Launches that overlap.
    pub const PDL: &str = include_str!("device/pdl.cuh");
    /// Barriers between warps of different roles.
    pub const PIPELINE: &str = include_str!("device/pipeline.cuh");
    /// Matrix products of a warpgroup.
    pub const WGMMA: &str = include_str!("device/wgmma.cuh");
    /// Swizzled rows in shared memory.
    pub const SWIZZLE: &str = include_str!("device/swizzle.cuh");
    /// Loads of 8x8 matrices.
    pub const LOAD_MATRICES: &str = include_str!("device/load_matrices.cuh");
    /// Matrix products of a warpgroup with both operands in shared memory.
    pub const WGMMA_SHARED: &str = include_str!("device/wgmma_shared.cuh");
}
