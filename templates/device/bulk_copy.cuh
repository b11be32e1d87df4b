#ifndef TDC_BULK_COPY
#define TDC_BULK_COPY
// Bulk copies from global to shared memory: from sm_90 on cp.async.bulk by one thread, before by all
// threads. All threads of a block call the functions, with the same arguments; both addresses and the size
// are multiples of 16 bytes.
//
// A copy has an mbarrier, 8 bytes of shared memory, aligned, one of the `count` that
// tdc_init_copy_barriers() initialises. It may serve another copy after the wait for the first. A
// __syncthreads() is needed between starting a copy, or initialising, and the wait.
//
// tdc_wait_bulk_copy<PENDING>() also waits for the calling thread's asynchronous copies: from sm_90 on for
// all of them; before, a bulk copy is one group of these, and it waits for all groups except the latest
// PENDING. `parity` is that of the number of copies that the mbarrier served before.

[[maybe_unused]] static __device__ __forceinline__ void tdc_init_copy_barriers(float* barriers, int count) {
#if __CUDA_ARCH__ >= 900
    if (threadIdx.x == 0) {
        for (int i = 0; i < count; ++i) {
            const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(barriers + 2 * i));
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" : : "r"(at) : "memory");
        }
        asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
    }
#else
    static_cast<void>(barriers);
    static_cast<void>(count);
#endif
}

[[maybe_unused]] static __device__ __forceinline__ void
tdc_bulk_copy(float* shared, const float* global, int floats, float* barrier) {
#if __CUDA_ARCH__ >= 900
    if (threadIdx.x == 0) {
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
    static_cast<void>(barrier);
    for (int i = threadIdx.x * 4; i < floats; i += blockDim.x * 4) tdc_copy_async16(shared + i, global + i);
    tdc_commit_copies();
#endif
}

template <int PENDING>
[[maybe_unused]] static __device__ __forceinline__ void tdc_wait_bulk_copy(float* barrier, int parity) {
#if __CUDA_ARCH__ >= 900
    tdc_wait_copies<0>();
    const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(barrier));
    unsigned done;
    do {
        asm volatile("{ .reg .pred done; "
                     "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 done, [%1], %2; "
                     "selp.u32 %0, 1, 0, done; }"
                     : "=r"(done)
                     : "r"(at), "r"(parity)
                     : "memory");
    } while (done == 0);
#else
    static_cast<void>(barrier);
    static_cast<void>(parity);
    tdc_wait_copies<PENDING>();
    __syncthreads();
#endif
}
#endif
