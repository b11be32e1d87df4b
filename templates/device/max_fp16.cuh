#ifndef TDC_MAX_FP16
#define TDC_MAX_FP16
// The larger ones of two pairs of fp16 values; NaN if one of the two is NaN.
[[maybe_unused]] static __device__ __forceinline__ unsigned tdc_max_fp16x2(unsigned a, unsigned b) {
#if __CUDA_ARCH__ >= 800
    unsigned larger;
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
    return larger;
#else
    const auto larger = [](float x, float y) { return x > y || x != x ? x : y; };
    return tdc_to_fp16x2(larger(tdc_fp16x2_low(a), tdc_fp16x2_low(b)),
                         larger(tdc_fp16x2_high(a), tdc_fp16x2_high(b)));
#endif
}
#endif
