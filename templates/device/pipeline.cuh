#ifndef TDC_PIPELINE
#define TDC_PIPELINE
// Barriers of a pipeline whose warps have different roles (warp specialisation): producers fill the buffers
// of a ring, consumers empty them. A barrier is 8 bytes of shared memory, aligned: an mbarrier from sm_90 on,
// before that two counters. Its phases are counted from 0; a phase is complete after `arrivals` arrivals.
//
// One thread initialises a barrier, followed by a __syncthreads(). A thread waits for phases in order and is
// never more than one phase ahead or behind. What threads wrote before they arrived is visible to those that
// have waited.

[[maybe_unused]] static __device__ __forceinline__ void tdc_init_phases(float* barrier, unsigned arrivals) {
#if __CUDA_ARCH__ >= 900
    const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(barrier));
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(at), "r"(arrivals) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
#else
    unsigned* const counters = reinterpret_cast<unsigned*>(barrier);
    counters[0] = 0;
    counters[1] = arrivals;
#endif
}

[[maybe_unused]] static __device__ __forceinline__ void tdc_arrive(float* barrier) {
#if __CUDA_ARCH__ >= 900
    const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(barrier));
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" : : "r"(at) : "memory");
#else
    __threadfence_block();
    atomicAdd(reinterpret_cast<unsigned*>(barrier), 1u);
#endif
}

[[maybe_unused]] static __device__ __forceinline__ void tdc_wait_phase(float* barrier, unsigned phase) {
#if __CUDA_ARCH__ >= 900
    const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(barrier));
    unsigned done;
    do {
        asm volatile("{ .reg .pred done; "
                     "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 done, [%1], %2; "
                     "selp.u32 %0, 1, 0, done; }"
                     : "=r"(done)
                     : "r"(at), "r"(phase & 1u)
                     : "memory");
    } while (done == 0);
#else
    const volatile unsigned* const counters = reinterpret_cast<const volatile unsigned*>(barrier);
    while (counters[0] < (phase + 1) * counters[1]) {
    }
    __threadfence_block();
#endif
}

// A copy from global to shared memory by one warp. It arrives once at the barrier, when it is complete. Both
// addresses and the size are multiples of 16 bytes. The copy engine writes the data from sm_90 on.
[[maybe_unused]] static __device__ __forceinline__ void
tdc_copy_and_arrive(float* shared, const float* global, int floats, float* barrier) {
    const int lane = threadIdx.x % 32;
#if __CUDA_ARCH__ >= 900
    if (lane == 0) {
        const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(barrier));
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                     :
                     : "r"(at), "r"(4 * floats)
                     : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                     :
                     : "r"(static_cast<unsigned>(__cvta_generic_to_shared(shared))),
                       "l"(__cvta_generic_to_global(global)), "r"(4 * floats), "r"(at)
                     : "memory");
    }
#else
    for (int i = 4 * lane; i < floats; i += 128) {
        *reinterpret_cast<float4*>(shared + i) = *reinterpret_cast<const float4*>(global + i);
    }
    __syncwarp();
    if (lane == 0) tdc_arrive(barrier);
#endif
}

// Brings global memory to L2, where later copies find it. One thread calls it, and nothing waits for it.
// Address and size are multiples of 16 bytes. Does nothing before sm_90.
[[maybe_unused]] static __device__ __forceinline__ void tdc_prefetch_to_l2(const float* global, int floats) {
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;"
                 :
                 : "l"(__cvta_generic_to_global(global)), "r"(4 * floats)
                 : "memory");
#else
    static_cast<void>(global);
    static_cast<void>(floats);
#endif
}

// Arrives at a barrier when all asynchronous copies that the calling thread has started are complete.
[[maybe_unused]] static __device__ __forceinline__ void tdc_arrive_when_copied(float* barrier) {
#if __CUDA_ARCH__ >= 900
    const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(barrier));
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" : : "r"(at) : "memory");
#else
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" : : : "memory");
#endif
    tdc_arrive(barrier);
#endif
}

// A barrier of the `threads` threads, complete warps, that call it with the same `id` (1 to 15).
[[maybe_unused]] static __device__ __forceinline__ void tdc_named_barrier(int id, int threads) {
    asm volatile("bar.sync %0, %1;" : : "r"(id), "r"(threads) : "memory");
}
#endif
