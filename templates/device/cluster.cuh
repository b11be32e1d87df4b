#ifndef TDC_CLUSTER
#define TDC_CLUSTER
// Clusters: blocks of one launch that run at the same time and read each other's shared memory, from sm_90 on. Where
// tdc_has_clusters() is false the blocks stand alone and the other functions do nothing; the first block of what would be a
// cluster then does all the work and the others return. All threads of all blocks of a cluster take part in its barriers, and
// no block may return while another still reads its shared memory.

[[maybe_unused]] static __device__ __forceinline__ bool tdc_has_clusters() {
#if __CUDA_ARCH__ >= 900
    return true;
#else
    return false;
#endif
}

// The first half of a barrier: what the thread has written before is seen by whoever is past the second half.
[[maybe_unused]] static __device__ __forceinline__ void tdc_cluster_arrive() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;" : : : "memory");
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

// The place of `shared`, in the calling block's shared memory, in that of the cluster's block `rank`. Blocks are numbered as
// they lie in the grid, x first.
[[maybe_unused]] static __device__ __forceinline__ const float* tdc_cluster_shared(const float* shared, unsigned rank) {
#if __CUDA_ARCH__ >= 900
    const float* there;
    asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(shared), "r"(rank));
    return there;
#else
    static_cast<void>(rank);
    return shared;
#endif
}
#endif
