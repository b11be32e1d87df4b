#ifndef TDC_STEPS
#define TDC_STEPS
// Steps of a warp's part of a matrix product: M tiles of 16 rows of `a` by P tiles of 8 columns of `b`, 16 terms of each sum in a
// step. An element of `b` is four terms as fp16 numbers, two to a register; a uint4 also has what rounding left, and three of the
// four products are added, smallest first.

// The fp16 numbers of four values, scaled.
[[maybe_unused]] static __device__ __forceinline__ void tdc_set_quad(uint2& quad, const float (&values)[4], float scale) {
    quad.x = tdc_to_halves(values[0] * scale, values[1] * scale);
    quad.y = tdc_to_halves(values[2] * scale, values[3] * scale);
}

[[maybe_unused]] static __device__ __forceinline__ void tdc_set_quad(uint4& quad, const float (&values)[4], float scale) {
    const float a = values[0] * scale, b = values[1] * scale, c = values[2] * scale, d = values[3] * scale;
    const unsigned ab = tdc_to_halves(a, b), cd = tdc_to_halves(c, d);
    const unsigned ab_left = tdc_to_halves(a - tdc_lower_half(ab), b - tdc_upper_half(ab));
    const unsigned cd_left = tdc_to_halves(c - tdc_lower_half(cd), d - tdc_upper_half(cd));
    quad = make_uint4(ab, cd, ab_left, cd_left);
}

[[maybe_unused]] static __device__ __forceinline__ void tdc_load_four(unsigned (&registers)[4], const float* from) {
    const uint4 four = *reinterpret_cast<const uint4*>(from);
    registers[0] = four.x, registers[1] = four.y, registers[2] = four.z, registers[3] = four.w;
}

// Adds the products of a step. `a` is the lane's place in the first tile of packed weights, `tile` the distance to the next; in
// tile p a lane's terms are the element at[p] of `b`.
template <int M, int P>
static __device__ __forceinline__ void
tdc_add_step(float (&sum)[M][P][4], const float* a, int tile, const uint2* b, const int (&at)[P]) {
    unsigned rows[M][4], columns[P][2];
#pragma unroll
    for (int m = 0; m < M; ++m) tdc_load_four(rows[m], a + m * tile);
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
tdc_add_step(float (&sum)[M][P][4], const float* a, int tile, const uint4* b, const int (&at)[P]) {
    unsigned rows[M][4], rows_left[M][4], columns[P][2], columns_left[P][2];
#pragma unroll
    for (int m = 0; m < M; ++m) {
        tdc_load_four(rows[m], a + m * tile);
        tdc_load_four(rows_left[m], a + m * tile + 128);
    }
#pragma unroll
    for (int p = 0; p < P; ++p) {
        const uint4 quad = b[at[p]];
        columns[p][0] = quad.x, columns[p][1] = quad.y;
        columns_left[p][0] = quad.z, columns_left[p][1] = quad.w;
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

// With a sum for each of the three products: where a warp has few tiles, those of a step need not wait for each other.
template <int M, int P>
static __device__ __forceinline__ void
tdc_add_step(float (&sum)[M][P][4], float (&left_rows)[M][P][4], float (&left_columns)[M][P][4], const float* a, int tile,
             const uint4* b, const int (&at)[P]) {
    unsigned rows[M][4], rows_left[M][4];
#pragma unroll
    for (int m = 0; m < M; ++m) {
        tdc_load_four(rows[m], a + m * tile);
        tdc_load_four(rows_left[m], a + m * tile + 128);
    }
#pragma unroll
    for (int p = 0; p < P; ++p) {
        const uint4 quad = b[at[p]];
        const unsigned columns[2] = {quad.x, quad.y}, columns_left[2] = {quad.z, quad.w};
#pragma unroll
        for (int m = 0; m < M; ++m) {
            tdc_mma_f16(left_rows[m][p], rows_left[m], columns);
            tdc_mma_f16(left_columns[m][p], rows[m], columns_left);
            tdc_mma_f16(sum[m][p], rows[m], columns);
        }
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

// Stores sums: `to` is the lane's place in the first tile, and rows are so many floats apart.
template <int M, int P>
static __device__ __forceinline__ void tdc_put_sums(float* to, int row, const float (&sum)[M][P][4]) {
#pragma unroll
    for (int i = 0; i < M * P; ++i) {
        const int m = i / P, p = i % P;
        float* const tile = to + m * 16 * row + p * 8;
        *reinterpret_cast<float2*>(tile) = make_float2(sum[m][p][0], sum[m][p][1]);
        *reinterpret_cast<float2*>(tile + 8 * row) = make_float2(sum[m][p][2], sum[m][p][3]);
    }
}
#endif
