#ifndef TDC_ASYNC_COPY
#define TDC_ASYNC_COPY
// Asynchronous copies from global to shared memory (cp.async), from sm_80 on; plain copies before.
// tdc_commit_copies() ends a group of copies. tdc_wait_copies<PENDING>() waits for the calling thread's
// groups except the latest PENDING; other threads may read the copied values after a barrier that follows
// it. If `inside` is false, zeros are written and `global` is not read, but must be a valid address. Both
// addresses are aligned to the 4 or 16 bytes of the copy.

[[maybe_unused]] static __device__ __forceinline__ void
tdc_copy_async4(float* shared, const float* global, bool inside) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :
                 : "r"(static_cast<unsigned>(__cvta_generic_to_shared(shared))),
                   "l"(__cvta_generic_to_global(global)), "r"(inside ? 4 : 0)
                 : "memory");
#else
    *shared = inside ? *global : 0.0f;
#endif
}

[[maybe_unused]] static __device__ __forceinline__ void tdc_copy_async4(float* shared, const float* global) {
    tdc_copy_async4(shared, global, true);
}

[[maybe_unused]] static __device__ __forceinline__ void
tdc_copy_async16(float* shared, const float* global, bool inside) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(static_cast<unsigned>(__cvta_generic_to_shared(shared))),
                   "l"(__cvta_generic_to_global(global)), "r"(inside ? 16 : 0)
                 : "memory");
#else
    const float4 zeros = {0.0f, 0.0f, 0.0f, 0.0f};
    *reinterpret_cast<float4*>(shared) = inside ? *reinterpret_cast<const float4*>(global) : zeros;
#endif
}

[[maybe_unused]] static __device__ __forceinline__ void tdc_copy_async16(float* shared, const float* global) {
    tdc_copy_async16(shared, global, true);
}

[[maybe_unused]] static __device__ __forceinline__ void tdc_commit_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" : : : "memory");
#endif
}

template <int PENDING>
[[maybe_unused]] static __device__ __forceinline__ void tdc_wait_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" : : "n"(PENDING) : "memory");
#endif
}
#endif
