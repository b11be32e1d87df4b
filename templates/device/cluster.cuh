#ifndef TDC_CLUSTER
#define TDC_CLUSTER
// Clusters: blocks that run at the same time and access each other's shared memory, from sm_90 on. If
// tdc_has_clusters() is false, the other functions do nothing; the first block of each group of `cluster
// size` blocks then does all the work and the others return. All threads of all blocks of a cluster take
// part in its barriers. A block must have started before another one accesses its shared memory, and must
// not return before all others have finished with it.

[[maybe_unused]] static __device__ __forceinline__ bool tdc_has_clusters() {
#if __CUDA_ARCH__ >= 900
    return true;
#else
    return false;
#endif
}

// The first half of a barrier: earlier writes of the thread are visible to threads that have passed the
// second half.
[[maybe_unused]] static __device__ __forceinline__ void tdc_cluster_arrive() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;" : : : "memory");
#endif
}

// The first half of a barrier that orders no memory accesses: it only shows that the thread has started.
[[maybe_unused]] static __device__ __forceinline__ void tdc_cluster_arrive_relaxed() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" : : : "memory");
#endif
}

// The second half: waits until all threads of the cluster have arrived.
[[maybe_unused]] static __device__ __forceinline__ void tdc_cluster_wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire.aligned;" : : : "memory");
#endif
}

// A barrier of all threads of all blocks of the cluster.
[[maybe_unused]] static __device__ __forceinline__ void tdc_cluster_sync() {
    tdc_cluster_arrive();
    tdc_cluster_wait();
}

// The address in the shared memory of the block with cluster rank `rank` that corresponds to `shared` in
// the calling block's. Ranks follow the order of blocks in the grid, x first.
[[maybe_unused]] static __device__ __forceinline__ const float*
tdc_cluster_shared(const float* shared, unsigned rank) {
#if __CUDA_ARCH__ >= 900
    const float* there;
    asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(shared), "r"(rank));
    return there;
#else
    static_cast<void>(rank);
    return shared;
#endif
}

[[maybe_unused]] static __device__ __forceinline__ float* tdc_cluster_shared(float* shared, unsigned rank) {
    return const_cast<float*>(tdc_cluster_shared(const_cast<const float*>(shared), rank));
}

// An exchange of values among the blocks of a cluster. One thread of each block calls tdc_expect_bytes()
// with the number of bytes that the block will receive, those from its own threads included, before
// tdc_cluster_arrive_relaxed(). After the tdc_cluster_wait() that follows, all threads may send to the
// address that corresponds to `to` in the block with rank `rank`; tdc_wait_bytes() returns when all bytes
// have arrived. `barrier` is an mbarrier, 8 bytes of shared memory, aligned, used once. Without clusters a
// block sends to itself.
[[maybe_unused]] static __device__ __forceinline__ void tdc_expect_bytes(float* barrier, unsigned bytes) {
#if __CUDA_ARCH__ >= 900
    const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(barrier));
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" : : "r"(at) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" : : "r"(at), "r"(bytes) : "memory");
#else
    static_cast<void>(barrier);
    static_cast<void>(bytes);
#endif
}

#if __CUDA_ARCH__ >= 900
// The address that corresponds to `shared` in the block with rank `rank`, in the shared::cluster state space.
[[maybe_unused]] static __device__ __forceinline__ unsigned
tdc_cluster_address(const float* shared, unsigned rank) {
    unsigned there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;"
        : "=r"(there)
        : "r"(static_cast<unsigned>(__cvta_generic_to_shared(shared))), "r"(rank));
    return there;
}
#endif

[[maybe_unused]] static __device__ __forceinline__ void
tdc_store_async(float* to, float* barrier, unsigned rank, float value) {
#if __CUDA_ARCH__ >= 900
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];"
                 :
                 : "r"(tdc_cluster_address(to, rank)), "f"(value), "r"(tdc_cluster_address(barrier, rank))
                 : "memory");
#else
    static_cast<void>(barrier);
    static_cast<void>(rank);
    *to = value;
#endif
}

[[maybe_unused]] static __device__ __forceinline__ void
tdc_store_async(float* to, float* barrier, unsigned rank, float2 value) {
#if __CUDA_ARCH__ >= 900
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];"
                 :
                 : "r"(tdc_cluster_address(to, rank)), "f"(value.x), "f"(value.y),
                   "r"(tdc_cluster_address(barrier, rank))
                 : "memory");
#else
    static_cast<void>(barrier);
    static_cast<void>(rank);
    *reinterpret_cast<float2*>(to) = value;
#endif
}

[[maybe_unused]] static __device__ __forceinline__ void
tdc_store_async(float* to, float* barrier, unsigned rank, float4 value) {
#if __CUDA_ARCH__ >= 900
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];"
                 :
                 : "r"(tdc_cluster_address(to, rank)), "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w),
                   "r"(tdc_cluster_address(barrier, rank))
                 : "memory");
#else
    static_cast<void>(barrier);
    static_cast<void>(rank);
    *reinterpret_cast<float4*>(to) = value;
#endif
}

[[maybe_unused]] static __device__ __forceinline__ void tdc_wait_bytes(float* barrier) {
#if __CUDA_ARCH__ >= 900
    const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(barrier));
    unsigned done;
    do {
        asm volatile("{ .reg .pred done; "
                     "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%1], 0; "
                     "selp.u32 %0, 1, 0, done; }"
                     : "=r"(done)
                     : "r"(at)
                     : "memory");
    } while (done == 0);
#else
    static_cast<void>(barrier);
    __syncthreads();
#endif
}
#endif
