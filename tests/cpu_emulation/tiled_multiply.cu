// c[m][n] = a[m][k] * b[k][n] through shared memory, for any sizes. Tests remove its barriers and writes one
// at a time.
extern "C" __global__ void __launch_bounds__(256)
tiled_multiply(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k) {
    __shared__ float a_tile[16][16];
    TDC_DYNAMIC_SHARED(float, b_tile);
    const int row = blockIdx.y * 16 + threadIdx.y;
    const int column = blockIdx.x * 16 + threadIdx.x;
    float sum = 0.0f;
    for (int k0 = 0; k0 < k; k0 += 16) {
        const int a_column = k0 + threadIdx.x;
        const int b_row = k0 + threadIdx.y;
        a_tile[threadIdx.y][threadIdx.x] = row < m && a_column < k ? a[row * k + a_column] : 0.0f;
        b_tile[threadIdx.y * 16 + threadIdx.x] = b_row < k && column < n ? b[b_row * n + column] : 0.0f;
        __syncthreads();  // the tiles are complete
        #pragma unroll
        for (int i = 0; i < 16; ++i) {
            sum = fmaf(a_tile[threadIdx.y][i], b_tile[i * 16 + threadIdx.x], sum);
        }
        __syncthreads();  // the tiles may be overwritten
    }
    if (row < m && column < n) {
        c[row * n + column] = sum;
    }
}
