#ifndef TDC_MMA_STEPS
#define TDC_MMA_STEPS
// K steps of a warp's MMA tiles: M tiles of 16 rows of `a` by P tiles of 8 columns of `b`; a step sums 16
// terms. An element of `b` is a quad: four terms as fp16 values, two in a register. A uint4 is a hi/lo
// split: the hi parts, then the lo parts. Of its four products lo * lo is left out, and the smallest are
// added first.

// Four values, scaled and rounded to fp16.
[[maybe_unused]] static __device__ __forceinline__ void
tdc_convert_quad(uint2& quad, const float (&values)[4], float scale) {
    quad.x = tdc_to_fp16x2(values[0] * scale, values[1] * scale);
    quad.y = tdc_to_fp16x2(values[2] * scale, values[3] * scale);
}

[[maybe_unused]] static __device__ __forceinline__ void
tdc_convert_quad(uint4& quad, const float (&values)[4], float scale) {
    const float a = values[0] * scale, b = values[1] * scale, c = values[2] * scale, d = values[3] * scale;
    const unsigned ab = tdc_to_fp16x2(a, b), cd = tdc_to_fp16x2(c, d);
    const unsigned ab_lo = tdc_to_fp16x2(a - tdc_fp16x2_low(ab), b - tdc_fp16x2_high(ab));
    const unsigned cd_lo = tdc_to_fp16x2(c - tdc_fp16x2_low(cd), d - tdc_fp16x2_high(cd));
    quad = make_uint4(ab, cd, ab_lo, cd_lo);
}

[[maybe_unused]] static __device__ __forceinline__ void
tdc_load_fragment(unsigned (&registers)[4], const float* from) {
    const uint4 four = *reinterpret_cast<const uint4*>(from);
    registers[0] = four.x, registers[1] = four.y, registers[2] = four.z, registers[3] = four.w;
}

// Adds the products of a step. `a` is the lane's address in the first tile of packed weights, `tile` the
// distance to the next one; the lane's terms of tile p are b[at[p]].
template <int M, int P>
static __device__ __forceinline__ void
tdc_mma_step(float (&sum)[M][P][4], const float* a, int tile, const uint2* b, const int (&at)[P]) {
    unsigned rows[M][4], columns[P][2];
#pragma unroll
    for (int m = 0; m < M; ++m) tdc_load_fragment(rows[m], a + m * tile);
#pragma unroll
    for (int p = 0; p < P; ++p) {
        const uint2 quad = b[at[p]];
        columns[p][0] = quad.x, columns[p][1] = quad.y;
    }
#pragma unroll
    for (int p = 0; p < P; ++p) {
#pragma unroll
        for (int m = 0; m < M; ++m) tdc_mma_f16(sum[m][p], rows[m], columns[p]);
    }
}

template <int M, int P>
static __device__ __forceinline__ void
tdc_mma_step(float (&sum)[M][P][4], const float* a, int tile, const uint4* b, const int (&at)[P]) {
    unsigned rows[M][4], rows_lo[M][4], columns[P][2], columns_lo[P][2];
#pragma unroll
    for (int m = 0; m < M; ++m) {
        tdc_load_fragment(rows[m], a + m * tile);
        tdc_load_fragment(rows_lo[m], a + m * tile + 128);
    }
#pragma unroll
    for (int p = 0; p < P; ++p) {
        const uint4 quad = b[at[p]];
        columns[p][0] = quad.x, columns[p][1] = quad.y;
        columns_lo[p][0] = quad.z, columns_lo[p][1] = quad.w;
    }
#pragma unroll
    for (int p = 0; p < P; ++p) {
#pragma unroll
        for (int m = 0; m < M; ++m) tdc_mma_f16(sum[m][p], rows_lo[m], columns[p]);
    }
#pragma unroll
    for (int p = 0; p < P; ++p) {
#pragma unroll
        for (int m = 0; m < M; ++m) tdc_mma_f16(sum[m][p], rows[m], columns_lo[p]);
    }
#pragma unroll
    for (int p = 0; p < P; ++p) {
#pragma unroll
        for (int m = 0; m < M; ++m) tdc_mma_f16(sum[m][p], rows[m], columns[p]);
    }
}

// With separate accumulators for the three products, so that they do not depend on each other: for warps
// with few tiles.
template <int M, int P>
static __device__ __forceinline__ void
tdc_mma_step(float (&sum)[M][P][4], float (&lo_hi_sum)[M][P][4], float (&hi_lo_sum)[M][P][4],
             const float* a, int tile, const uint4* b, const int (&at)[P]) {
    unsigned rows[M][4], rows_lo[M][4];
#pragma unroll
    for (int m = 0; m < M; ++m) {
        tdc_load_fragment(rows[m], a + m * tile);
        tdc_load_fragment(rows_lo[m], a + m * tile + 128);
    }
#pragma unroll
    for (int p = 0; p < P; ++p) {
        const uint4 quad = b[at[p]];
        const unsigned columns[2] = {quad.x, quad.y}, columns_lo[2] = {quad.z, quad.w};
#pragma unroll
        for (int m = 0; m < M; ++m) {
            tdc_mma_f16(lo_hi_sum[m][p], rows_lo[m], columns);
            tdc_mma_f16(hi_lo_sum[m][p], rows[m], columns_lo);
            tdc_mma_f16(sum[m][p], rows[m], columns);
        }
    }
}

// Promotion: multiplies partial accumulators by the dequantisation scale and adds them in fp32, because
// tensor cores truncate instead of rounding.
template <int M, int P>
static __device__ __forceinline__ void
tdc_accumulate_scaled(float (&sum)[M][P][4], const float (&partial)[M][P][4], float dequant_scale) {
#pragma unroll
    for (int i = 0; i < 4 * M * P; ++i) {
        float& accumulator = sum[i / (4 * P)][i / 4 % P][i % 4];
        accumulator = fmaf(partial[i / (4 * P)][i / 4 % P][i % 4], dequant_scale, accumulator);
    }
}

// The lane's accumulators of two adjacent columns in tile p, and in a row of a half of 16 rows: halves 2 m
// and 2 m + 1 are those of tile m.
template <int M, int P>
static __device__ __forceinline__ float* tdc_accumulator_pair(float (&sum)[M][P][4], int half, int p) {
    return sum[half / 2][p] + half % 2 * 2;
}

// Stores accumulators: `to` is the lane's address in the first tile, `row` the distance of rows in floats.
template <int M, int P>
static __device__ __forceinline__ void
tdc_store_accumulators(float* to, int row, const float (&sum)[M][P][4]) {
#pragma unroll
    for (int i = 0; i < M * P; ++i) {
        const int m = i / P, p = i % P;
        float* const tile = to + m * 16 * row + p * 8;
        *reinterpret_cast<float2*>(tile) = make_float2(sum[m][p][0], sum[m][p][1]);
        *reinterpret_cast<float2*>(tile + 8 * row) = make_float2(sum[m][p][2], sum[m][p][3]);
    }
}
#endif
