// Warp functions and atomics. Every kernel is launched with one block.

// out[f][thread]: every shuffle with full and with smaller width. 64 threads.
extern "C" __global__ void shuffles(int* out) {
    const int thread = threadIdx.x;
    const int value = 100 + thread;
    out[0 * 64 + thread] = __shfl_sync(0xffffffffu, value, 5);
    out[1 * 64 + thread] = __shfl_sync(0xffffffffu, value, 9, 8);
    out[2 * 64 + thread] = __shfl_up_sync(0xffffffffu, value, 3);
    out[3 * 64 + thread] = __shfl_up_sync(0xffffffffu, value, 3, 16);
    out[4 * 64 + thread] = __shfl_down_sync(0xffffffffu, value, 2);
    out[5 * 64 + thread] = __shfl_down_sync(0xffffffffu, value, 2, 4);
    out[6 * 64 + thread] = __shfl_xor_sync(0xffffffffu, value, 16);
    out[7 * 64 + thread] = __shfl_xor_sync(0xffffffffu, value, 4, 4);
    // The two halves of a warp, separately and a different number of times.
    int sum = value;
    const bool low = thread % 32 < 16;
    const unsigned half = low ? 0x0000ffffu : 0xffff0000u;
    for (int step = low ? 8 : 2; step > 0; step /= 2) {
        sum += __shfl_xor_sync(half, sum, step);
    }
    out[8 * 64 + thread] = sum;
    // 48 bits survive the way.
    const long long wide = __shfl_sync(0xffffffffu, (static_cast<long long>(thread) << 40) + 7, 31);
    out[9 * 64 + thread] = static_cast<int>(wide >> 40);
}

// The last warp has 8 lanes, and lanes 4 to 7 of every warp have exited before the votes. 40 threads.
extern "C" __global__ void votes(unsigned* out) {
    const unsigned lane = threadIdx.x % 32;
    if (lane >= 4 && lane < 8) {
        return;
    }
    out[0 * 40 + threadIdx.x] = __ballot_sync(0xffffffffu, lane % 3 == 0);
    out[1 * 40 + threadIdx.x] = __any_sync(0xffffffffu, lane == 2);
    out[2 * 40 + threadIdx.x] = __any_sync(0xffffffffu, lane == 5);
    out[3 * 40 + threadIdx.x] = __all_sync(0xffffffffu, lane < 4 || lane > 7);
    out[4 * 40 + threadIdx.x] = __all_sync(0xffffffffu, lane != 3);
}

// 96 threads.
extern "C" __global__ void block_votes(int* out) {
    const int thread = threadIdx.x;
    out[0 * 96 + thread] = __syncthreads_count(thread % 5 == 0);
    out[1 * 96 + thread] = __syncthreads_or(thread == 95);
    out[2 * 96 + thread] = __syncthreads_or(0);
    out[3 * 96 + thread] = __syncthreads_and(thread < 96);
    out[4 * 96 + thread] = __syncthreads_and(thread != 17);
}

// Many blocks.
extern "C" __global__ void atomics(float* sum, int* count, unsigned* limit, int* largest, int* smallest) {
    const int thread = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(sum, 0.5f);
    atomicAdd(count, thread);
    atomicInc(limit, 6);
    atomicMax(largest, thread);
    atomicMin(smallest, -thread);
}

// Shows the effect of a missing __syncwarp: lanes pass a value on through shared memory.
extern "C" __global__ void pass_to_next_lane(int* out) {
    __shared__ int value[32];
    value[threadIdx.x] = threadIdx.x;
    __syncwarp();  // all values are there
    out[threadIdx.x] = value[(threadIdx.x + 1) % 32];
}
