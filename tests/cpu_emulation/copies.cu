// Asynchronous copies. Tests remove or change a statement to prove that the violation is detected.

// The sum of every 64th value, by 64 threads through two stages of shared memory. Each thread adds values
// that a different thread has copied.
extern "C" __global__ void staged_sums(const float* x, float* y, int count) {
    __shared__ float stage[2][64];
    const int steps = (count + 63) / 64;
    tdc_copy_async4(&stage[0][threadIdx.x], x + min(static_cast<int>(threadIdx.x), count - 1), static_cast<int>(threadIdx.x) < count);
    tdc_commit_copies();
    float sum = 0.0f;
    for (int step = 0; step < steps; ++step) {
        const int next = (step + 1) * 64 + threadIdx.x;
        if (step + 1 < steps) {
            tdc_copy_async4(&stage[(step + 1) % 2][threadIdx.x], x + min(next, count - 1), next < count);
        }
        tdc_commit_copies();
        tdc_wait_copies<1>();  // this step's copies are there
        __syncthreads();  // and those of the other threads
        sum += stage[step % 2][63 - threadIdx.x];
        __syncthreads();  // the stage may be overwritten
    }
    y[threadIdx.x] = sum;
}

// Copies 16 bytes per thread; those of the last thread are zeros. 32 threads.
extern "C" __global__ void wide_copies(const float* x, float* y) {
    TDC_DYNAMIC_SHARED(float, tile);
    tdc_copy_async16(tile + 4 * threadIdx.x, x + 4 * threadIdx.x, threadIdx.x != 31);
    tdc_commit_copies();
    tdc_wait_copies<0>();
    __syncthreads();
    for (int i = 0; i < 4; ++i) {
        y[i * 32 + threadIdx.x] = tile[i * 32 + threadIdx.x];
    }
}

// Copies that are not committed are not waited for.
extern "C" __global__ void uncommitted_copy(const float* x, float* y) {
    __shared__ float tile[32];
    tdc_copy_async4(tile + threadIdx.x, x + threadIdx.x);
    tdc_wait_copies<0>();
    y[threadIdx.x] = tile[threadIdx.x];
}

extern "C" __global__ void misaligned_copy(const float* x, float* y) {
    __shared__ __align__(16) float tile[36];
    tdc_copy_async16(tile, x + 1);
    tdc_commit_copies();
    tdc_wait_copies<0>();
    y[threadIdx.x] = tile[threadIdx.x];
}

extern "C" __global__ void copy_to_global(const float* x, float* y) {
    tdc_copy_async4(y + threadIdx.x, x + threadIdx.x);
}

// Copies 8 chunks of 32 values through two buffers. 32 threads.
extern "C" __global__ void chunks(const float* x, float* y) {
    TDC_DYNAMIC_SHARED(float, stage);
    float* const barriers = stage + 64;
    tdc_init_copy_barriers(barriers, 2);
    for (int i = 0; i < 2; ++i) tdc_bulk_copy(stage + i * 32, x + i * 32, 32, barriers + 2 * i);
    __syncthreads();
    for (int i = 0; i < 8; ++i) {
        tdc_wait_bulk_copy<1>(barriers + i % 2 * 2, i / 2 % 2);
        y[i * 32 + threadIdx.x] = stage[i % 2 * 32 + 31 - threadIdx.x];
        __syncthreads();
        if (i + 2 < 8) tdc_bulk_copy(stage + i % 2 * 32, x + (i + 2) * 32, 32, barriers + i % 2 * 2);
        else tdc_commit_copies();
    }
}

extern "C" __global__ void misaligned_chunk(const float* x, float*) {
    __shared__ __align__(16) float tile[36];
    tdc_bulk_copy(tile, x, 30, tile + 32);
}

extern "C" __global__ void chunk_to_global(const float* x, float* y) {
    __shared__ __align__(16) float barrier[2];
    tdc_bulk_copy(y, x, 32, barrier);
}

extern "C" __global__ void chunk_not_begun(const float* x, float*) {
    __shared__ __align__(16) float tile[36];
    tdc_bulk_copy(tile, x, 32, tile + 32);
    __syncthreads();
    tdc_wait_bulk_copy<0>(tile + 32, 1);
}

extern "C" __global__ void chunk_not_awaited(const float* x, float*) {
    __shared__ __align__(16) float tile[68];
    tdc_bulk_copy(tile, x, 32, tile + 64);
    tdc_bulk_copy(tile + 32, x, 32, tile + 64);
}
