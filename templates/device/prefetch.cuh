#ifndef TDC_PREFETCH
#define TDC_PREFETCH
// Brings the cache line of a global address to L2. It is a hint: nothing waits for it.
[[maybe_unused]] static __device__ __forceinline__ void tdc_prefetch_l2(const void* global) {
#if __CUDA_ARCH__
    asm volatile("prefetch.global.L2 [%0];" : : "l"(__cvta_generic_to_global(global)));
#endif
}
#endif
