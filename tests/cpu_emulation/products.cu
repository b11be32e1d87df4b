// Products of small matrices by a warp; the operands are stored as the lanes hold them. 32 threads.

extern "C" __global__ void product(int kind, const unsigned* a, const unsigned* b, float* d) {
    const unsigned lane = threadIdx.x;
    unsigned rows[4], columns[2];
    float sums[4];
    for (int i = 0; i < 4; ++i) {
        rows[i] = a[4 * lane + i];
        sums[i] = d[4 * lane + i];
    }
    columns[0] = b[2 * lane];
    columns[1] = b[2 * lane + 1];
    if (kind == 0) {
        tdc_mma_tf32(sums, rows, columns);
    } else if (kind == 1) {
        tdc_mma_f16(sums, rows, columns);
    } else {
        tdc_mma_bf16(sums, rows, columns);
    }
    for (int i = 0; i < 4; ++i) {
        d[4 * lane + i] = sums[i];
    }
}

extern "C" __global__ void lane_returned(const float*, float* y) {
    float d[4] = {};
    const unsigned a[4] = {}, b[2] = {};
    if (threadIdx.x == 5) {
        return;
    }
    __syncwarp();  // it is gone
    tdc_mma_tf32(d, a, b);
    y[threadIdx.x] = d[0];
}

extern "C" __global__ void lane_elsewhere(const float*, float* y) {
    float d[4] = {};
    const unsigned a[4] = {}, b[2] = {};
    if (threadIdx.x != 5) {
        tdc_mma_tf32(d, a, b);
    }
    __syncthreads();
    y[threadIdx.x] = d[0];
}

extern "C" __global__ void small_warp(const float*, float* y) {
    float d[4] = {};
    const unsigned a[4] = {}, b[2] = {};
    tdc_mma_tf32(d, a, b);
    y[threadIdx.x] = d[0];
}
