#ifndef TDC_SATURATED_FP16
#define TDC_SATURATED_FP16
// Rounds two floats to the nearest fp16 values, the first in the lower 16 bits. Magnitudes above 65504, the
// largest fp16 value, become 65504. NaN stays NaN.
[[maybe_unused]] static __device__ __forceinline__ unsigned
tdc_to_saturated_fp16x2(float first, float second) {
#if __CUDA_ARCH__ >= 800 && 100 * __CUDACC_VER_MAJOR__ + __CUDACC_VER_MINOR__ >= 1201
    unsigned halves;
    asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(halves) : "f"(second), "f"(first));
    return halves;
#elif __CUDA_ARCH__ >= 800
    // CUDA 11.8 and 12.0 have PTX 7.8 and 8.0, without `satfinite` for fp16.
    unsigned halves = tdc_to_fp16x2(first, second);
    asm("min.NaN.f16x2 %0, %0, %1;" : "+r"(halves) : "r"(0x7bff7bffu));
    asm("max.NaN.f16x2 %0, %0, %1;" : "+r"(halves) : "r"(0xfbfffbffu));
    return halves;
#else
    first = first != first ? first : fminf(fmaxf(first, -65504.0f), 65504.0f);
    second = second != second ? second : fminf(fmaxf(second, -65504.0f), 65504.0f);
    return tdc_to_fp16x2(first, second);
#endif
}
#endif
