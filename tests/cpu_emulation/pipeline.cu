// A warp-specialised product: one warp copies the weights of a step to a ring of buffers, a warpgroup multiplies.
// Operands are small integers, so that all sums are exact.

constexpr int STEPS = 6, STAGES = 2, N = 32;
constexpr int STEP_FLOATS = 2 * N * 4;  // two runs of eight 16-bit numbers for each column

[[maybe_unused]] static __device__ float a_value(int row, int k) { return static_cast<float>((2 * row + k) % 5 - 2); }
[[maybe_unused]] static __device__ float b_value(int k, int column) { return static_cast<float>((3 * k + 5 * column) % 7 - 3); }

// The packed columns of all steps.
extern "C" __global__ void pack_columns(unsigned* packed) {
    for (int i = static_cast<int>(threadIdx.x); i < STEPS * STEP_FLOATS; i += static_cast<int>(blockDim.x)) {
        const int step = i / STEP_FLOATS, run = i / (4 * N) % 2, column = i / 4 % N, pair = i % 4;
        const int k = 16 * step + 8 * run + 2 * pair;
        packed[i] = tdc_to_fp16x2(b_value(k, column), b_value(k + 1, column));
    }
}

extern "C" __global__ void ring_products(const float* packed, float* d) {
    TDC_DYNAMIC_SHARED(float, shared);
    float* const full = shared + STAGES * STEP_FLOATS;
    float* const empty = full + 2 * STAGES;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            tdc_init_phases(full + 2 * i, 1);
            tdc_init_phases(empty + 2 * i, 4);
        }
    }
    __syncthreads();
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    if (warp == 4) {
        for (int step = 0; step < STEPS; ++step) {
            const int stage = step % STAGES;
            if (step >= STAGES) tdc_wait_phase(empty + 2 * stage, static_cast<unsigned>(step / STAGES - 1));
            tdc_copy_and_arrive(shared + stage * STEP_FLOATS, packed + step * STEP_FLOATS, STEP_FLOATS, full + 2 * stage);
        }
        return;
    }
    float sum[N / 2] = {};
    unsigned a[2][4];
    for (int step = 0; step < STEPS; ++step) {
        const int stage = step % STAGES;
        tdc_wait_phase(full + 2 * stage, static_cast<unsigned>(step / STAGES));
        for (int i = 0; i < 4; ++i) {
            const int row = 16 * warp + lane / 4 + i % 2 * 8, k = 16 * step + lane % 4 * 2 + i / 2 * 8;
            a[step % 2][i] = tdc_to_fp16x2(a_value(row, k), a_value(row, k + 1));
        }
        tdc_wgmma_fence();
        tdc_wgmma<N, false>(sum, a[step % 2], shared + stage * STEP_FLOATS, N, true);
        tdc_wgmma_commit();
        tdc_wgmma_wait<0>();  // the buffer may be filled again
        if (lane == 0) tdc_arrive(empty + 2 * stage);
    }
    for (int i = 0; i < N / 2; ++i) {
        const int row = 16 * warp + lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
        d[row * N + column] = sum[i];
    }
}

// One warp copies stages of 16 bytes for each lane, another one sums them.
extern "C" __global__ void ring_copies(const float* from, float* out) {
    TDC_DYNAMIC_SHARED(float, shared);
    constexpr int COPIED = 128;  // floats of a stage
    float* const full = shared + STAGES * COPIED;
    float* const empty = full + 2 * STAGES;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            tdc_init_phases(full + 2 * i, 32);
            tdc_init_phases(empty + 2 * i, 1);
        }
    }
    __syncthreads();
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    if (warp == 1) {
        for (int step = 0; step < STEPS; ++step) {
            const int stage = step % STAGES;
            if (step >= STAGES) tdc_wait_phase(empty + 2 * stage, static_cast<unsigned>(step / STAGES - 1));
            tdc_copy_async16(shared + stage * COPIED + 4 * lane, from + step * COPIED + 4 * lane);
            tdc_arrive_when_copied(full + 2 * stage);
        }
        tdc_wait_copies<0>();
        return;
    }
    float sum = 0.0f;
    for (int step = 0; step < STEPS; ++step) {
        const int stage = step % STAGES;
        tdc_wait_phase(full + 2 * stage, static_cast<unsigned>(step / STAGES));
        for (int i = 0; i < 4; ++i) sum += shared[stage * COPIED + 32 * i + lane];
        __syncwarp();
        if (lane == 0) tdc_arrive(empty + 2 * stage);
    }
    out[lane] = sum;
}

// Products whose rows threads have copied to shared memory, swizzled in rows of 64 columns. A row of a is a row of the
// image: the filter tap `tap` reads the rows from `tap` on.
extern "C" __global__ void products_of_copies(const float* image, const float* packed, float* d) {
    TDC_SWIZZLED_SHARED(float, shared);
    constexpr int ROWS = 67, ROW_RUNS = 8;
    float* const columns = shared + 4 * ROWS * ROW_RUNS;
    float* const full = columns + STEP_FLOATS;
    if (threadIdx.x == 0) {
        tdc_init_phases(full, 32);
        tdc_init_phases(full + 2, 1);
    }
    __syncthreads();
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    if (warp == 4) {
        for (int run = lane; run < ROWS * ROW_RUNS; run += 32) {
            tdc_copy_async16(shared + 4 * tdc_swizzled<ROW_RUNS>(run), image + 4 * run);
        }
        tdc_arrive_when_copied(full);
        tdc_wait_copies<0>();
        tdc_copy_and_arrive(columns, packed, STEP_FLOATS, full + 2);
        return;
    }
    tdc_wait_phase(full, 0);
    tdc_fence_async_proxy();
    tdc_wait_phase(full + 2, 0);
    float sum[N / 2];
    tdc_wgmma_fence();
    tdc_wgmma_shared<N, ROW_RUNS>(sum, shared, 3 * ROW_RUNS + 4, ROWS * ROW_RUNS, N, false);
    tdc_wgmma_commit();
    tdc_wgmma_wait<0>();
    for (int i = 0; i < N / 2; ++i) {
        const int row = 16 * warp + lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
        d[row * N + column] = sum[i];
    }
}

// The first two warps exchange values at a barrier of their own, while the third one never arrives anywhere.
extern "C" __global__ void two_warps_meet(float* out) {
    TDC_DYNAMIC_SHARED(float, shared);
    const int i = static_cast<int>(threadIdx.x);
    if (i >= 64) return;
    shared[i] = static_cast<float>(i);
    tdc_named_barrier(1, 64);
    out[i] = shared[63 - i];
}

extern "C" __global__ void named_barrier_of_too_many(float* out) {
    if (threadIdx.x < 64) tdc_named_barrier(1, 96);
    out[threadIdx.x] = 1.0f;
}

extern "C" __global__ void phase_without_arrivals(float* out) {
    TDC_DYNAMIC_SHARED(float, shared);
    if (threadIdx.x == 0) tdc_init_phases(shared, 32);
    __syncthreads();
    tdc_wait_phase(shared, 0);
    out[threadIdx.x] = 1.0f;
}

extern "C" __global__ void phase_of_two_rounds_ago(float* out) {
    TDC_DYNAMIC_SHARED(float, shared);
    if (threadIdx.x == 0) tdc_init_phases(shared, 1);
    __syncthreads();
    for (int i = 0; i < 3; ++i) {
        if (threadIdx.x == 0) tdc_arrive(shared);
        __syncthreads();
    }
    tdc_wait_phase(shared, 0);
    out[threadIdx.x] = 1.0f;
}

extern "C" __global__ void phase_that_was_not_initialised(float* out) {
    TDC_DYNAMIC_SHARED(float, shared);
    tdc_wait_phase(shared, 0);
    out[threadIdx.x] = 1.0f;
}

extern "C" __global__ void arrival_beyond_the_phase(float* out) {
    TDC_DYNAMIC_SHARED(float, shared);
    if (threadIdx.x == 0) {
        tdc_init_phases(shared, 1);
        tdc_copy_and_arrive(shared + 4, out, 4, shared);
        tdc_arrive(shared);
    }
}

extern "C" __global__ void prefetch_from_within_16_bytes(float* out) {
    if (threadIdx.x == 0) tdc_prefetch_to_l2(out + 1, 4);
}

extern "C" __global__ void prefetch_of_12_bytes(float* out) {
    if (threadIdx.x == 0) tdc_prefetch_to_l2(out, 3);
}
