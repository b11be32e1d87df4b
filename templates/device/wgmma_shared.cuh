#ifndef TDC_WGMMA_SHARED
#define TDC_WGMMA_SHARED
// Products as by tdc_wgmma(), whose a is in shared memory as well. The memory is declared by
// TDC_SWIZZLED_SHARED and counted in runs of 16 bytes, eight 16-bit numbers, from its beginning: row r of the
// first operand is the runs a + ROW_RUNS r and a + ROW_RUNS r + 1, column n of the second one the runs b + n and
// b + n + pitch. ROW_RUNS is 2, 4 or 8, so that a row of memory has the columns of 1, 2 or 4 products. Run i of
// the first operand is stored where tdc_swizzled<ROW_RUNS>(i) says, so that products read rows, and copies write
// them, without bank conflicts. a and b are the same in all lanes of a warp, and the compiler
// must know that (tdc_uniform()): it then keeps descriptors in uniform registers. Else it moves each one there,
// which takes longer than a product.
//
// Products read shared memory through the asynchronous proxy. What stores or tdc_copy_async16() wrote is
// visible to them after tdc_fence_async_proxy(), called by those who have waited for it.
[[maybe_unused]] static __device__ __forceinline__ int tdc_uniform(int value) {
    return __shfl_sync(0xffffffffu, value, 0);
}

// Declares a pointer to the block's dynamic shared memory, aligned to the period of the swizzle.
#define TDC_SWIZZLED_SHARED(type, name)                                      \
    extern __shared__ __align__(1024) unsigned char tdc_swizzled_shared[]; \
    type* const name = reinterpret_cast<type*>(tdc_swizzled_shared)

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
[[maybe_unused]] static __device__ __forceinline__ void tdc_fence_async_proxy() {
    asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
}

#define TDC_WGMMA_SHARED_32(type)                                                            \
    asm volatile("{ .reg .pred accumulates; setp.ne.b32 accumulates, %18, 0; "               \
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type " {"            \
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"      \
                 "}, %16, %17, accumulates, 1, 1, 0, 0; }"                                   \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),   \
                   "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), \
                   "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])                        \
                 : "l"(a_descriptor), "l"(b_descriptor), "r"(static_cast<int>(accumulates))  \
                 : "memory")

#define TDC_WGMMA_SHARED_64(type)                                                                 \
    asm volatile("{ .reg .pred accumulates; setp.ne.b32 accumulates, %34, 0; "                    \
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {"                 \
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "         \
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31" \
                 "}, %32, %33, accumulates, 1, 1, 0, 0; }"                                        \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),        \
                   "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),      \
                   "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]),  \
                   "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),  \
                   "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),  \
                   "+f"(d[30]), "+f"(d[31])                                                       \
                 : "l"(a_descriptor), "l"(b_descriptor), "r"(static_cast<int>(accumulates))       \
                 : "memory")

#define TDC_WGMMA_SHARED_128(type)                                                                  \
    asm volatile("{ .reg .pred accumulates; setp.ne.b32 accumulates, %66, 0; "                      \
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {"                  \
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"   \
                 "}, %64, %65, accumulates, 1, 1, 0, 0; }"                                          \
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
                 : "l"(a_descriptor), "l"(b_descriptor), "r"(static_cast<int>(accumulates))         \
                 : "memory")

// Descriptors of the operands, whose lower words differ by numbers of runs.
template <int ROW_RUNS>
[[maybe_unused]] static __device__ __forceinline__ unsigned long long tdc_wgmma_a_descriptor(unsigned run) {
    constexpr unsigned SWIZZLE = ROW_RUNS == 8 ? 1 : ROW_RUNS == 4 ? 2 : 3;
    constexpr unsigned GROUP_RUNS = 8 * ROW_RUNS;  // rows are in groups of eight
    constexpr unsigned long long UPPER = GROUP_RUNS | SWIZZLE << 30;
    return UPPER << 32 | (run + (1u << 16));
}

[[maybe_unused]] static __device__ __forceinline__ unsigned long long
tdc_wgmma_b_descriptor(unsigned run, unsigned pitch) {
    constexpr unsigned long long GROUP_RUNS = 8;  // columns as well
    return GROUP_RUNS << 32 | (run + (pitch << 16));
}

template <int N, int ROW_RUNS, bool BF16 = false>
[[maybe_unused]] static __device__ __forceinline__ void
tdc_wgmma_shared(float (&d)[N / 2], const float* shared, int a, int b, int pitch, bool accumulates) {
    // In a cluster the upper bits of an address tell the block; a descriptor has no room for them.
    const unsigned first_run = (static_cast<unsigned>(__cvta_generic_to_shared(shared)) & 0x3ffffu) / 16;
    const unsigned long long a_descriptor = tdc_wgmma_a_descriptor<ROW_RUNS>(first_run + a);
    const unsigned long long b_descriptor = tdc_wgmma_b_descriptor(first_run + b, pitch);
    if constexpr (N == 32 && BF16) {
        TDC_WGMMA_SHARED_32("bf16");
    } else if constexpr (N == 32) {
        TDC_WGMMA_SHARED_32("f16");
    } else if constexpr (N == 64 && BF16) {
        TDC_WGMMA_SHARED_64("bf16");
    } else if constexpr (N == 64) {
        TDC_WGMMA_SHARED_64("f16");
    } else if constexpr (BF16) {
        TDC_WGMMA_SHARED_128("bf16");
    } else {
        TDC_WGMMA_SHARED_128("f16");
    }
}
#undef TDC_WGMMA_SHARED_32
#undef TDC_WGMMA_SHARED_64
#undef TDC_WGMMA_SHARED_128
#else
[[maybe_unused]] static __device__ __forceinline__ void tdc_fence_async_proxy() {}

template <int N, int ROW_RUNS, bool BF16 = false>
[[maybe_unused]] static __device__ __forceinline__ void
tdc_wgmma_shared(float (&d)[N / 2], const float* shared, int a, int b, int pitch, bool accumulates) {
    const int row = threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
    unsigned a_registers[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int run = tdc_swizzled<ROW_RUNS>(a + (row + i % 2 * 8) * ROW_RUNS + i / 2);
        a_registers[i] = reinterpret_cast<const unsigned*>(shared)[4 * run + threadIdx.x % 4];
    }
    tdc_wgmma<N, BF16>(d, a_registers, shared + 4 * b, pitch, accumulates);
}
#endif
#endif
