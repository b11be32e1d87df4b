#ifndef TDC_STEPS
#define TDC_STEPS
// Steps of a warp's part of a matrix product: M tiles of 16 rows of `a` by P tiles of 8 columns of `b`, 16 terms of each sum in a
// step. Values are fp16 numbers, two in a row of terms to a register; in a uint2 the second one has what rounding to the first
// left, and three of the four products are added, smallest first.

// The fp16 numbers of two values.
[[maybe_unused]] static __device__ __forceinline__ void tdc_set_pair(unsigned& pair, float first, float second) {
    pair = tdc_to_halves(first, second);
}

[[maybe_unused]] static __device__ __forceinline__ void tdc_set_pair(uint2& pair, float first, float second) {
    pair.x = tdc_to_halves(first, second);
    pair.y = tdc_to_halves(first - tdc_lower_half(pair.x), second - tdc_upper_half(pair.x));
}

[[maybe_unused]] static __device__ __forceinline__ void tdc_load_four(unsigned (&registers)[4], const float* from) {
    const uint4 four = *reinterpret_cast<const uint4*>(from);
    registers[0] = four.x, registers[1] = four.y, registers[2] = four.z, registers[3] = four.w;
}

// Adds the products of a step. `a` is the lane's place in the first tile of packed weights, `tile` the distance to the next; lane
// l reads pairs l % 4 and, `half` further on, 4 + l % 4 of `b`, in tile p at at[p].
template <int M, int P>
static __device__ __forceinline__ void
tdc_add_step(float (&sum)[M][P][4], const float* a, int tile, const unsigned* b, const int (&at)[P], int half) {
    unsigned rows[M][4], columns[P][2];
#pragma unroll
    for (int m = 0; m < M; ++m) tdc_load_four(rows[m], a + m * tile);
#pragma unroll
    for (int p = 0; p < P; ++p) columns[p][0] = b[at[p]], columns[p][1] = b[at[p] + half];
#pragma unroll
    for (int p = 0; p < P; ++p) {
#pragma unroll
        for (int m = 0; m < M; ++m) tdc_mma_f16(sum[m][p], rows[m], columns[p]);
    }
}

template <int M, int P>
static __device__ __forceinline__ void
tdc_add_step(float (&sum)[M][P][4], const float* a, int tile, const uint2* b, const int (&at)[P], int half) {
    unsigned rows[M][4], rows_left[M][4], columns[P][2], columns_left[P][2];
#pragma unroll
    for (int m = 0; m < M; ++m) {
        tdc_load_four(rows[m], a + m * tile);
        tdc_load_four(rows_left[m], a + m * tile + 128);
    }
#pragma unroll
    for (int p = 0; p < P; ++p) {
        const uint2 first = b[at[p]], second = b[at[p] + half];
        columns[p][0] = first.x, columns[p][1] = second.x;
        columns_left[p][0] = first.y, columns_left[p][1] = second.y;
    }
#pragma unroll
    for (int p = 0; p < P; ++p) {
#pragma unroll
        for (int m = 0; m < M; ++m) tdc_mma_f16(sum[m][p], rows_left[m], columns[p]);
    }
#pragma unroll
    for (int p = 0; p < P; ++p) {
#pragma unroll
        for (int m = 0; m < M; ++m) tdc_mma_f16(sum[m][p], rows[m], columns_left[p]);
    }
#pragma unroll
    for (int p = 0; p < P; ++p) {
#pragma unroll
        for (int m = 0; m < M; ++m) tdc_mma_f16(sum[m][p], rows[m], columns[p]);
    }
}

// Adds a partial sum, scaled back, in fp32: the tensor cores cut off what falls below the sum that they add to.
template <int M, int P>
static __device__ __forceinline__ void
tdc_add_scaled(float (&sum)[M][P][4], const float (&part)[M][P][4], float unscale) {
#pragma unroll
    for (int i = 0; i < 4 * M * P; ++i) {
        float& total = sum[i / (4 * P)][i / 4 % P][i % 4];
        total = fmaf(part[i / (4 * P)][i / 4 % P][i % 4], unscale, total);
    }
}
#endif
