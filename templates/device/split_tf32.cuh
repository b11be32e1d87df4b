#ifndef TDC_SPLIT_TF32
#define TDC_SPLIT_TF32
// The hi/lo split of a float into two tf32 values for tdc_mma_tf32(), which keep 22 bits: hi = round(value)
// and lo = round(value - hi), in the upper 19 bits of a register. Adding half a unit of the last of these
// bits rounds, since a carry increments the exponent.
[[maybe_unused]] static __device__ __forceinline__ void
tdc_split_tf32(float value, unsigned& hi, unsigned& lo) {
    constexpr unsigned TF32_BITS = 0xffffe000u, HALF_UNIT = 0x1000u;
    hi = (__float_as_uint(value) + HALF_UNIT) & TF32_BITS;
    lo = __float_as_uint(value - __uint_as_float(hi)) + HALF_UNIT;
}
#endif
