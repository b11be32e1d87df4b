#ifndef TDC_BF16
#define TDC_BF16
// Pairs of bf16 values, the upper 16 bits of floats, in a register, the first in the lower 16 bits.

// Rounds two floats to the nearest bf16 values.
[[maybe_unused]] static __device__ __forceinline__ unsigned tdc_to_bf16x2(float first, float second) {
#if __CUDA_ARCH__ >= 800
    unsigned pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
#else
    // Ties to even; all NaNs become the same one.
    const auto rounded = [](float value) {
        const unsigned bits = __float_as_uint(value);
        return value == value ? (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16 : 0x7fffu;
    };
    return rounded(second) << 16 | rounded(first);
#endif
}

[[maybe_unused]] static __device__ __forceinline__ float tdc_bf16x2_low(unsigned pair) {
    return __uint_as_float(pair << 16);
}

[[maybe_unused]] static __device__ __forceinline__ float tdc_bf16x2_high(unsigned pair) {
    return __uint_as_float(pair & 0xffff0000u);
}
#endif
