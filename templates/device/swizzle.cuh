#ifndef TDC_SWIZZLE
#define TDC_SWIZZLE
// The place of a run of 16 bytes in rows of ROW_RUNS runs (2, 4 or 8), counted from a multiple of 128 bytes: within
// 128 bytes, so that eight runs of a column, and eight of a row, have no bank conflicts.
template <int ROW_RUNS>
[[maybe_unused]] static __device__ __forceinline__ int tdc_swizzled(int run) {
    return run ^ (run >> 3 & (ROW_RUNS - 1));
}
#endif
