#ifndef TDC_FP16
#define TDC_FP16
// Pairs of fp16 values in a register, the first in the lower 16 bits.

// Rounds two floats to the nearest fp16 values.
[[maybe_unused]] static __device__ __forceinline__ unsigned tdc_to_fp16x2(float first, float second) {
    unsigned halves;
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(halves) : "f"(second), "f"(first));
#else
    asm("{ .reg .f16 lower, upper; cvt.rn.f16.f32 lower, %1; cvt.rn.f16.f32 upper, %2; "
        "mov.b32 %0, {lower, upper}; }"
        : "=r"(halves)
        : "f"(first), "f"(second));
#endif
    return halves;
}

[[maybe_unused]] static __device__ __forceinline__ float tdc_fp16x2_low(unsigned halves) {
    float value;
    asm("{ .reg .f16 lower, upper; mov.b32 {lower, upper}, %1; cvt.f32.f16 %0, lower; }"
        : "=f"(value)
        : "r"(halves));
    return value;
}

[[maybe_unused]] static __device__ __forceinline__ float tdc_fp16x2_high(unsigned halves) {
    float value;
    asm("{ .reg .f16 lower, upper; mov.b32 {lower, upper}, %1; cvt.f32.f16 %0, upper; }"
        : "=f"(value)
        : "r"(halves));
    return value;
}

// The largest of the values of a warp's lanes, none of which is negative or NaN.
[[maybe_unused]] static __device__ __forceinline__ float tdc_warp_max(float value) {
#if __CUDA_ARCH__ >= 800
    return __uint_as_float(__reduce_max_sync(0xffffffffu, __float_as_uint(value)));
#else
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, offset));
    }
    return value;
#endif
}
#endif
