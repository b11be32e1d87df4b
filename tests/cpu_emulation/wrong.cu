// Kernels with one error each.

extern "C" __global__ void reads_uninitialised_static(float* out) {
    __shared__ float tile[32];
    if (threadIdx.x != 7) {
        tile[threadIdx.x] = 1.0f;
    }
    __syncthreads();
    out[blockIdx.x * 32 + threadIdx.x] = tile[threadIdx.x];
}

extern "C" __global__ void reads_uninitialised_dynamic(float* out) {
    TDC_DYNAMIC_SHARED(float, tile);
    if (threadIdx.x != 7) {
        tile[threadIdx.x] = 1.0f;
    }
    __syncthreads();
    out[blockIdx.x * 32 + threadIdx.x] = tile[threadIdx.x];
}

extern "C" __global__ void writes_past_dynamic_shared(float* out) {
    TDC_DYNAMIC_SHARED(float, tile);
    tile[threadIdx.x + 1] = 1.0f;
    __syncthreads();
    out[threadIdx.x] = tile[threadIdx.x];
}

// In block (2,1,0) half of the threads exit before the barrier.
extern "C" __global__ void leaves_before_barrier(float* out) {
    if (blockIdx.x == 2 && blockIdx.y == 1 && threadIdx.x >= 16) {
        return;
    }
    __syncthreads();
    out[threadIdx.x] = 1.0f;
}

extern "C" __global__ void different_barriers(float* out) {
    if (threadIdx.x < 16) {
        __syncthreads();
    } else {
        __syncthreads();
    }
    out[threadIdx.x] = 1.0f;
}

// Half of the warp waits for the other half, which waits for the first at the barrier.
extern "C" __global__ void deadlock(float* out) {
    if (threadIdx.x < 16) {
        __syncwarp(0xffffffffu);
    }
    __syncthreads();
    out[threadIdx.x] = 1.0f;
}

extern "C" __global__ void mask_without_caller(float* out) {
    out[threadIdx.x] = __shfl_sync(0x0000ffffu, 1.0f, 0);
}

extern "C" __global__ void shuffle_from_absent_lane(float* out) {
    if (threadIdx.x < 16) {
        out[threadIdx.x] = __shfl_sync(0x0000ffffu, 1.0f, 20);
    }
}

// The result depends on the order of threads: the last write wins.
extern "C" __global__ void last_writer(int* out) {
    out[blockIdx.x] = threadIdx.x;
    __syncthreads();
    out[gridDim.x + blockIdx.x] = threadIdx.x;
}

// For runs that must succeed after a failed one.
extern "C" __global__ void good(float* out) {
    __syncthreads();
    out[threadIdx.x] = 1.0f;
}

// More than the stack of a thread can hold.
__attribute__((noinline)) static __device__ float big_frame_value() {
    volatile char frame[80 << 10];
    for (int i = 0; i < (80 << 10); ++i) {
        frame[i] = static_cast<char>(i);
    }
    return frame[threadIdx.x];
}

extern "C" __global__ void big_frame(float* out) {
    out[threadIdx.x] = big_frame_value();
}

// One thread overflows while the others wait at a barrier, with frames on their own stacks.
extern "C" __global__ void big_frame_beside_waiting_threads(float* out) {
    __syncthreads();
    if (threadIdx.x == 500) {
        out[threadIdx.x] = big_frame_value();
    }
    __syncthreads();
    if (threadIdx.x != 500) {
        out[threadIdx.x] = 1.0f;
    }
}
