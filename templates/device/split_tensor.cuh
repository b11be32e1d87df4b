#ifndef TDC_SPLIT_TENSOR
#define TDC_SPLIT_TENSOR
// A tensor in split NHWC stores each value as the sum of two fp16 numbers, hi and lo, times a power of two that
// all values share, its scale. In memory: a header, hi of all values, lo of all values, the latter two in NHWC
// and in runs of eight numbers, 16 bytes. Words of the header:
//   0     scale
//   1     number of maxima
//   4...  maxima, and zeros up to a multiple of four: no value has a larger magnitude than the largest of them
// A kernel must know the scale before it knows its outputs. It takes it from a bound of their magnitude. A block of
// a convolution writes the largest magnitude of its outputs, from which the next kernel computes such a bound.
[[maybe_unused]] constexpr int TDC_SPLIT_HEADER_RUNS = 256, TDC_SPLIT_FIRST_MAX = 4;

[[maybe_unused]] static __device__ __forceinline__ float tdc_split_scale(const uint4* tensor) {
    return *reinterpret_cast<const float*>(tensor);
}

// The largest of the maxima, for all lanes of a warp, which call it together. A lane loads its maxima at once:
// a wait for the L2 cache takes longer than the rest.
[[maybe_unused]] static __device__ __forceinline__ float tdc_split_max(const uint4* tensor) {
    constexpr int LOADS = TDC_SPLIT_HEADER_RUNS / 32;
    const int maxima = reinterpret_cast<const int*>(tensor)[1];
    const float4* const first = reinterpret_cast<const float4*>(tensor) + TDC_SPLIT_FIRST_MAX / 4;
    float4 loaded[LOADS];
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
        const int run = 32 * i + threadIdx.x % 32;
        loaded[i] = 4 * run < maxima ? first[run] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    float largest = 0.0f;
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
        largest = fmaxf(largest, fmaxf(fmaxf(loaded[i].x, loaded[i].y), fmaxf(loaded[i].z, loaded[i].w)));
    }
    return tdc_warp_max(largest);
}

// The scale for values whose magnitude is at most `bound`. Divided by it, they are below 2^15.
[[maybe_unused]] static __device__ __forceinline__ float tdc_split_scale_for(float bound) {
    constexpr int FLOAT_FRACTION_BITS = 23, SCALED_EXPONENT = 14;
    constexpr int MIN_EXPONENT = 15, MAX_EXPONENT = 254;  // biased: the scale and its inverse are normal
    const int exponent = static_cast<int>(__float_as_uint(bound) >> FLOAT_FRACTION_BITS);
    const int clamped = min(max(exponent, MIN_EXPONENT), MAX_EXPONENT);
    return __uint_as_float(static_cast<unsigned>(clamped - SCALED_EXPONENT) << FLOAT_FRACTION_BITS);
}

// Hi and lo of two values that were divided by the scale.
[[maybe_unused]] static __device__ __forceinline__ void
tdc_to_split(float first, float second, unsigned& hi, unsigned& lo) {
    hi = tdc_to_fp16x2(first, second);
    lo = tdc_to_fp16x2(first - tdc_fp16x2_low(hi), second - tdc_fp16x2_high(hi));
}

[[maybe_unused]] static __device__ __forceinline__ void tdc_write_split_max(uint4* tensor, int i, float value) {
    reinterpret_cast<float*>(tensor)[TDC_SPLIT_FIRST_MAX + i] = value;
}

// Of a tensor that has as many maxima, which others write.
[[maybe_unused]] static __device__ __forceinline__ void
tdc_write_split_header(uint4* tensor, float scale, int maxima) {
    *reinterpret_cast<float*>(tensor) = scale;
    reinterpret_cast<int*>(tensor)[1] = maxima;
    for (int i = maxima; i % 4 > 0; ++i) tdc_write_split_max(tensor, i, 0.0f);
}
#endif
