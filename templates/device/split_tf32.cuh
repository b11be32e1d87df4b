#ifndef TDC_SPLIT_TF32
#define TDC_SPLIT_TF32
// A float as the sum of two tf32 numbers for tdc_mma_tf32, with 22 of its bits: the first is the nearest, the second the nearest
// to what that left, in the upper 19 bits. Adding half of the last of them rounds, since the exponent takes the carry.
[[maybe_unused]] static __device__ __forceinline__ void tdc_split_tf32(float value, unsigned& hi, unsigned& lo) {
    hi = (__float_as_uint(value) + 0x1000u) & 0xffffe000u;
    lo = __float_as_uint(value - __uint_as_float(hi)) + 0x1000u;
}
#endif
