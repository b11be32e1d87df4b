// Clusters of blocks. Tests remove a statement to prove that the violation is detected.

// Clusters of 2x2x1 blocks of 32 threads: each block sums the values of the others in its cluster, weighted
// by their ranks.
extern "C" __global__ void cluster_sums(const float* x, float* y) {
    TDC_DYNAMIC_SHARED(float, tile);
    const unsigned rank = blockIdx.x % 2 + blockIdx.y % 2 * 2;
    const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    tile[threadIdx.x] = x[block * 32 + threadIdx.x];
    __syncthreads();
    tdc_cluster_sync();  // all tiles are there
    float sum = 0.0f;
    for (unsigned i = 1; i < 4; ++i) {
        sum += i * tdc_cluster_shared(tile, (rank + i) % 4)[31 - threadIdx.x];
    }
    tdc_cluster_sync();  // all tiles have been read
    y[block * 32 + threadIdx.x] = sum;
}

// Reads through an address that was computed before, possibly from a block that has exited.
extern "C" __global__ void reads_too_late(const float* x, float* y) {
    TDC_DYNAMIC_SHARED(float, tile);
    tile[threadIdx.x] = x[threadIdx.x];
    const float* other = tdc_cluster_shared(tile, 1 - blockIdx.x % 2);
    tdc_cluster_sync();
    y[blockIdx.x * 32 + threadIdx.x] = other[threadIdx.x];
}

// Blocks run independently between arrive and wait.
extern "C" __global__ void halves(const float* x, float* y) {
    TDC_DYNAMIC_SHARED(float, tile);
    tile[threadIdx.x] = x[threadIdx.x] + blockIdx.x;
    __syncthreads();
    tdc_cluster_arrive();
    float sum = tile[31 - threadIdx.x];
    if (blockIdx.x % 2 == 1) {
        __syncthreads();
    }
    tdc_cluster_wait();
    sum += tdc_cluster_shared(tile, 1 - blockIdx.x % 2)[threadIdx.x];
    tdc_cluster_arrive();
    y[blockIdx.x * 32 + threadIdx.x] = sum;
    tdc_cluster_wait();
}

extern "C" __global__ void waits_only(const float*, float*) { tdc_cluster_wait(); }

extern "C" __global__ void arrives_twice(const float*, float*) {
    tdc_cluster_arrive();
    tdc_cluster_arrive();
}

extern "C" __global__ void arrives_only(const float*, float*) { tdc_cluster_arrive(); }

extern "C" __global__ void block_leaves(const float*, float*) {
    if (blockIdx.x % 2 == 1) {
        return;
    }
    tdc_cluster_sync();
}

extern "C" __global__ void threads_leave(const float*, float*) {
    if (threadIdx.x >= 16) {
        return;
    }
    tdc_cluster_sync();
}

extern "C" __global__ void two_barriers(const float*, float*) {
    if (threadIdx.x >= 16) {
        __syncthreads();
    }
    tdc_cluster_sync();
}

extern "C" __global__ void no_such_block(const float*, float* y) {
    TDC_DYNAMIC_SHARED(float, tile);
    *y = *tdc_cluster_shared(tile, 2);
}

extern "C" __global__ void not_shared(const float* x, float* y) { *y = *tdc_cluster_shared(x, 1); }

// Static shared memory belongs to an OS thread, so two blocks cannot each have their own.
extern "C" __global__ void static_shared(const float* x, float* y) {
    __shared__ float tile[32];
    tile[threadIdx.x] = x[threadIdx.x];
    tdc_cluster_sync();
    y[blockIdx.x * 32 + threadIdx.x] = tile[threadIdx.x];
}

// Clusters of two blocks of 32 threads: each receives the other's values and its own, with counted stores.
extern "C" __global__ void exchange(const float* x, float* y) {
    TDC_DYNAMIC_SHARED(float, tile);
    float* const arrivals = tile + 64;
    const unsigned rank = blockIdx.x % 2;
    if (threadIdx.x == 0) tdc_expect_bytes(arrivals, 256);
    tdc_cluster_arrive_relaxed();
    const float value = x[blockIdx.x * 32 + threadIdx.x];
    tdc_cluster_wait();  // both have begun
    tdc_store_async(tile + rank * 32 + threadIdx.x, arrivals, rank, 2.0f * value);
    tdc_store_async(tile + rank * 32 + threadIdx.x, arrivals, 1 - rank, value);
    tdc_wait_bytes(arrivals);
    y[blockIdx.x * 32 + threadIdx.x] = tile[threadIdx.x] - tile[32 + threadIdx.x];
}

// The first of two blocks resumes when it has the bytes that it sends itself; the second waits for bytes that
// the first sends after that.
extern "C" __global__ void relay(const float* x, float* y) {
    TDC_DYNAMIC_SHARED(float, tile);
    float* const arrivals = tile + 64;
    const unsigned rank = blockIdx.x % 2;
    if (threadIdx.x == 0) tdc_expect_bytes(arrivals, 128);
    tdc_cluster_arrive_relaxed();
    tdc_cluster_wait();  // both have begun
    if (rank == 0) tdc_store_async(tile + 31 - threadIdx.x, arrivals, 0, x[blockIdx.x * 32 + threadIdx.x]);
    tdc_wait_bytes(arrivals);
    const float value = tile[threadIdx.x];
    if (rank == 0) tdc_store_async(tile + threadIdx.x, arrivals, 1, value + 1.0f);
    y[blockIdx.x * 32 + threadIdx.x] = value;
}

// Two thirds of the threads of the first warp wait, in a branch. The second warp sends to the other block. In the first block it
// then waits at a named barrier with the first warp, in the second block it leaves.
extern "C" __global__ void roles(const float* x, float* y) {
    TDC_DYNAMIC_SHARED(float, tile);
    float* const arrivals = tile + 64;
    const unsigned rank = blockIdx.x % 2, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) tdc_expect_bytes(arrivals, 128);
    tdc_cluster_arrive_relaxed();
    tdc_cluster_wait();  // both have begun
    if (threadIdx.x < 32) {
        float value = 1.0f;
        if (lane % 3 != 1) {
            tdc_wait_bytes(arrivals);
            value = tile[lane];
        }
        y[blockIdx.x * 32 + lane] = value;
        if (rank == 0) tdc_named_barrier(1, 64);
    } else {
        tdc_store_async(tile + lane, arrivals, 1 - rank, x[blockIdx.x * 32 + lane]);
        if (rank == 0) tdc_named_barrier(1, 64);
    }
}

// One lane sends nothing.
extern "C" __global__ void sends_too_little(const float*, float*) {
    TDC_DYNAMIC_SHARED(float, tile);
    if (threadIdx.x == 0) tdc_expect_bytes(tile + 64, 128);
    tdc_cluster_arrive_relaxed();
    tdc_cluster_wait();
    if (threadIdx.x < 31) tdc_store_async(tile + threadIdx.x, tile + 64, 0, 1.0f);
    tdc_wait_bytes(tile + 64);
}

extern "C" __global__ void sends_between_vectors(const float*, float*) {
    TDC_DYNAMIC_SHARED(float, tile);
    tdc_cluster_arrive_relaxed();
    tdc_cluster_wait();
    tdc_store_async(tile + 1, tile + 64, 0, make_float2(1.0f, 2.0f));
}
