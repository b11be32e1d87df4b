// Follows all sections of the device header: kernels that use all of them, twice with different types, and
// one that uses none.

extern "C" __global__ void __launch_bounds__(128)
uses_all(const float* __restrict__ x, const float* __restrict__ packed, float* __restrict__ y) {
    TDC_DYNAMIC_SHARED(float, tile);
    const int i = threadIdx.x;
    tdc_copy_async4(tile + i, packed + i);
    tdc_copy_async4(tile + 128 + i, packed + i, i < 100);
    tdc_copy_async16(tile + 256 + 4 * i, packed + 4 * i);
    tdc_commit_copies();
    tdc_prefetch_l2(packed + 32 * i);
    tdc_pdl_wait_and_trigger();
    tdc_pdl_wait();
    tdc_pdl_trigger();
    tdc_copy_async16(tile + 768 + 4 * i, x + 4 * i, i < 100);
    tdc_commit_copies();
    tdc_wait_copies<1>();
    tdc_wait_copies<0>();
    __syncthreads();
    tdc_cluster_sync();
    const float* other = tdc_cluster_shared(tile, blockIdx.x % 2 ^ 1);
    float sums[4] = {tile[i], other[i], __ldg(x + i), tdc_has_clusters() ? 1.0f : 0.0f};
    const float largest = tdc_warp_max(fabsf(tile[i]));
    const unsigned halves = tdc_to_fp16x2(tile[i] - tdc_fp16x2_low(i), largest - tdc_fp16x2_high(i));
    const unsigned a[4] = {__float_as_uint(tile[i]), __float_as_uint(other[i + 128]), halves, tdc_to_bf16x2(tile[i], largest)};
    const unsigned b[2] = {tdc_max_bf16x2(__float_as_uint(tile[i + 256]), a[0]), tdc_max_fp16x2(halves, 6)};
    tdc_mma_tf32(sums, a, b);
    tdc_mma_f16(sums, a, b);
    tdc_mma_bf16(sums, a, b);
    sums[0] = tdc_warp_max(fabsf(sums[0])) + tdc_fp16x2_low(tdc_to_fp16x2(sums[1], sums[2])) + tdc_fp16x2_high(3u);
    if (i == 0) tdc_expect_bytes(tile + 2000, 28);
    tdc_cluster_arrive_relaxed();
    tdc_cluster_wait();
    tdc_store_async(tile + i, tile + 2000, 0, sums[0]);
    tdc_store_async(tile + 2 * i, tile + 2000, 0, make_float2(sums[0], sums[1]));
    tdc_store_async(tile + 4 * i, tile + 2000, 0, make_float4(sums[0], sums[1], sums[2], sums[3]));
    tdc_wait_bytes(tile + 2000);
    tdc_cluster_arrive();
    y[i] = sums[0] + sums[1] + sums[2] + sums[3];
    tdc_cluster_wait();
}

extern "C" __global__ void __launch_bounds__(128)
copies_chunks(const float* __restrict__ packed, float* __restrict__ y) {
    TDC_DYNAMIC_SHARED(float, tile);
    float* const barriers = tile + 1024;
    tdc_init_copy_barriers(barriers, 2);
    __syncthreads();
    tdc_bulk_copy(tile, packed, 512, barriers);
    tdc_bulk_copy(tile + 512, packed + 512, 512, barriers + 2);
    tdc_wait_bulk_copy<1>(barriers, 0);
    unsigned nearest, rest;
    tdc_split_tf32(tile[threadIdx.x], nearest, rest);
    tdc_wait_bulk_copy<0>(barriers + 2, 0);
    uint4 quad;
    tdc_convert_quad(quad, {tile[threadIdx.x], tile[512], tile[513], __uint_as_float(nearest)}, 2.0f);
    y[threadIdx.x] = tdc_fp16x2_low(quad.x ^ quad.z) + __uint_as_float(rest);
}

extern "C" __global__ void uses_another_type(int* y) {
    TDC_DYNAMIC_SHARED(int, tile);
    tile[threadIdx.x] = threadIdx.x;
    __syncthreads();
    y[threadIdx.x] = tile[threadIdx.x ^ 1];
}

extern "C" __global__ void uses_none(int* y) { *y = 1; }
