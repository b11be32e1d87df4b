#ifndef TDC_CROSSED_SUMS
#define TDC_CROSSED_SUMS
// As tdc_add_step(), with a sum for each of the three products: where a warp has few tiles, those of a step need not wait for
// each other.
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
#endif
