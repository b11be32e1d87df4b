#ifndef TDC_ACCUMULATOR_OPERANDS
#define TDC_ACCUMULATOR_OPERANDS
// Back-to-back MMA: the accumulators of tdc_mma_step() become operands of the next product in registers.
// Rows become terms, columns stay. Of each 16 rows, lane l gets rows 2 t, 2 t + 1, 2 t + 8 and 2 t + 9 of
// column l / 4, with t = l % 4: the order of that product's packed weights.

// Multiplies accumulators by the dequantisation scales of their rows, which begin with that of the lane's
// first row. Returns the largest magnitude.
template <int M, int P>
[[maybe_unused]] static __device__ __forceinline__ float
tdc_dequantize_rows(float (&sum)[M][P][4], const float* dequant_scales) {
    float max_abs = 0.0f;
#pragma unroll
    for (int i = 0; i < 4 * M * P; ++i) {
        float& value = sum[i / (4 * P)][i / 4 % P][i % 4];
        value *= dequant_scales[i / (4 * P) * 16 + i / 2 % 2 * 8];
        max_abs = fmaxf(max_abs, fabsf(value));
    }
    return max_abs;
}

// Transposes an 8x8 tile. Each lane has two adjacent columns of a row before, and two adjacent rows of a
// column after.
[[maybe_unused]] static __device__ __forceinline__ unsigned tdc_transpose_fp16x2(unsigned pair) {
#if __CUDA_ARCH__ >= 750
    unsigned exchanged;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(exchanged) : "r"(pair));
    return exchanged;
#else
    const int lane = threadIdx.x % 32, column = lane / 4, row = lane % 4 * 2;
    const unsigned first = __shfl_sync(0xffffffffu, pair, row * 4 + column / 2);
    const unsigned second = __shfl_sync(0xffffffffu, pair, row * 4 + 4 + column / 2);
    return column % 2 == 0 ? (first & 0xffffu) | second << 16 : first >> 16 | (second & 0xffff0000u);
#endif
}

[[maybe_unused]] static __device__ __forceinline__ uint2 tdc_transpose_quad(uint2 quad) {
    return make_uint2(tdc_transpose_fp16x2(quad.x), tdc_transpose_fp16x2(quad.y));
}

[[maybe_unused]] static __device__ __forceinline__ uint4 tdc_transpose_quad(uint4 quad) {
    return make_uint4(tdc_transpose_fp16x2(quad.x), tdc_transpose_fp16x2(quad.y),
                      tdc_transpose_fp16x2(quad.z), tdc_transpose_fp16x2(quad.w));
}

// Scales and rounds accumulators and stores those of the lane's column, if it is one of the first
// `columns`. `to` is the address of the lane's element in the first tile; rows of elements are `plane`
// apart.
template <class Quad, int M, int P>
[[maybe_unused]] static __device__ __forceinline__ void
tdc_convert_accumulators(Quad* to, int plane, int columns, const float (&sum)[M][P][4], float scale) {
#pragma unroll
    for (int i = 0; i < M * P; ++i) {
        Quad quad;
        tdc_convert_quad(quad, sum[i / P][i % P], scale);
        quad = tdc_transpose_quad(quad);
        if (i % P * 8 < columns) to[i / P * 4 * plane + i % P * 8] = quad;
    }
}
#endif
