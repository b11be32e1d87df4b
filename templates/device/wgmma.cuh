#ifndef TDC_WGMMA
#define TDC_WGMMA
// Asynchronous matrix products of a warpgroup (wgmma, sm_90a): d += a * b, where d is 64xN in fp32, a is
// 64x16 in registers and b is 16xN in shared memory; N is 32, 64 or 128. A warpgroup is four consecutive
// warps, the first of which has a number divisible by four; warp i of it has rows 16 i to 16 i + 15. With
// g = l / 4 and t = l % 4, lane l has:
//   d[4 j] to d[4 j + 3]  rows g, g, g + 8, g + 8 of columns c, c + 1, c, c + 1, where c = 8 j + 2 t
//   a                     rows g, g + 8, g, g + 8 of columns 2 t, 2 t, 2 t + 8, 2 t + 8, each with the next
//                         column in the upper 16 bits
// Column n of b is two runs of eight 16-bit numbers, at b + 4 n and b + 4 (n + pitch), 16 bytes each.
// If not `accumulates`, the previous value of d is ignored. All warps of the warpgroup take part.
//
// tdc_wgmma_fence() is called after registers were written and before the products that use them. Products
// between two calls of tdc_wgmma_commit() are a group. tdc_wgmma_wait<PENDING>() waits for all groups except
// the latest PENDING; until then a, b and d must not be changed, and d not read.
//
// The warps of a warpgroup may give registers up, or take over those that other warpgroups gave up: all of
// them call tdc_fewer_registers() or tdc_more_registers() with the registers of a thread, a multiple of 8.
//
// Other architectures multiply by mma.sync, one warp at a time; d is complete when tdc_wgmma() returns.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
[[maybe_unused]] static __device__ __forceinline__ void tdc_wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" : : : "memory");
}

[[maybe_unused]] static __device__ __forceinline__ void tdc_wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
}

template <int PENDING>
[[maybe_unused]] static __device__ __forceinline__ void tdc_wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(PENDING) : "memory");
}

template <int REGISTERS>
[[maybe_unused]] static __device__ __forceinline__ void tdc_fewer_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(REGISTERS));
}

template <int REGISTERS>
[[maybe_unused]] static __device__ __forceinline__ void tdc_more_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(REGISTERS));
}

#define TDC_WGMMA_32(type)                                                                   \
    asm volatile("{ .reg .pred accumulates; setp.ne.b32 accumulates, %21, 0; "               \
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type " {"            \
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"      \
                 "}, {%16, %17, %18, %19}, %20, accumulates, 1, 1, 0; }"                     \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),   \
                   "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), \
                   "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])                        \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(descriptor),              \
                   "r"(static_cast<int>(accumulates))                                        \
                 : "memory")

#define TDC_WGMMA_64(type)                                                                        \
    asm volatile("{ .reg .pred accumulates; setp.ne.b32 accumulates, %37, 0; "                    \
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {"                 \
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "         \
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31" \
                 "}, {%32, %33, %34, %35}, %36, accumulates, 1, 1, 0; }"                          \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),        \
                   "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),      \
                   "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]),  \
                   "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),  \
                   "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),  \
                   "+f"(d[30]), "+f"(d[31])                                                       \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(descriptor),                   \
                   "r"(static_cast<int>(accumulates))                                             \
                 : "memory")

#define TDC_WGMMA_128(type)                                                                         \
    asm volatile("{ .reg .pred accumulates; setp.ne.b32 accumulates, %69, 0; "                      \
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {"                  \
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"   \
                 "}, {%64, %65, %66, %67}, %68, accumulates, 1, 1, 0; }"                            \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),          \
                   "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),        \
                   "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]),    \
                   "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),    \
                   "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),    \
                   "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),    \
                   "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]),    \
                   "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),    \
                   "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]),    \
                   "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]),    \
                   "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])                               \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(descriptor),                     \
                   "r"(static_cast<int>(accumulates))                                               \
                 : "memory")

// The descriptor of b: core matrices of eight columns by 16 bytes, without swizzle.
[[maybe_unused]] static __device__ __forceinline__ unsigned long long
tdc_wgmma_descriptor(const float* b, int pitch) {
    const unsigned long long address = __cvta_generic_to_shared(b) & 0x3ffff;
    constexpr unsigned long long COLUMN_GROUP_BYTES = 128;
    return address >> 4 | static_cast<unsigned long long>(pitch) << 16 | COLUMN_GROUP_BYTES >> 4 << 32;
}

template <int N, bool BF16>
[[maybe_unused]] static __device__ __forceinline__ void
tdc_wgmma(float (&d)[N / 2], const unsigned (&a)[4], const float* b, int pitch, bool accumulates) {
    const unsigned long long descriptor = tdc_wgmma_descriptor(b, pitch);
    if constexpr (N == 32 && BF16) {
        TDC_WGMMA_32("bf16");
    } else if constexpr (N == 32) {
        TDC_WGMMA_32("f16");
    } else if constexpr (N == 64 && BF16) {
        TDC_WGMMA_64("bf16");
    } else if constexpr (N == 64) {
        TDC_WGMMA_64("f16");
    } else if constexpr (BF16) {
        TDC_WGMMA_128("bf16");
    } else {
        TDC_WGMMA_128("f16");
    }
}
#undef TDC_WGMMA_32
#undef TDC_WGMMA_64
#undef TDC_WGMMA_128
#else
[[maybe_unused]] static __device__ __forceinline__ void tdc_wgmma_fence() {}
[[maybe_unused]] static __device__ __forceinline__ void tdc_wgmma_commit() {}
template <int PENDING>
[[maybe_unused]] static __device__ __forceinline__ void tdc_wgmma_wait() {}
template <int REGISTERS>
[[maybe_unused]] static __device__ __forceinline__ void tdc_fewer_registers() {}
template <int REGISTERS>
[[maybe_unused]] static __device__ __forceinline__ void tdc_more_registers() {}

template <int N, bool BF16>
[[maybe_unused]] static __device__ __forceinline__ void
tdc_wgmma(float (&d)[N / 2], const unsigned (&a)[4], const float* b, int pitch, bool accumulates) {
    const int lane = threadIdx.x % 32;
    const unsigned* const column = reinterpret_cast<const unsigned*>(b) + lane;  // 4 words each
#pragma unroll
    for (int j = 0; j < N / 8; ++j) {
        const unsigned b_registers[2] = {column[32 * j], column[32 * j + 4 * pitch]};
        float tile[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) tile[i] = accumulates ? d[4 * j + i] : 0.0f;
        if constexpr (BF16) {
            tdc_mma_bf16(tile, a, b_registers);
        } else {
            tdc_mma_f16(tile, a, b_registers);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) d[4 * j + i] = tile[i];
    }
}
#endif
#endif
