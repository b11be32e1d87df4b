#ifndef TDC_MMA
#define TDC_MMA
// Matrix products by the tensor cores (mma.sync), from sm_80 on: d += a * b, where d is 16x8 in fp32, a is
// 16xK, b is Kx8. All 32 lanes of a warp take part. With g = l / 4 and t = l % 4, lane l has:
//   d                   rows g, g, g + 8, g + 8 of columns 2 t, 2 t + 1, 2 t, 2 t + 1
//   tf32 (K = 8)        a: rows g, g + 8, g, g + 8 of columns t, t, t + 4, t + 4;
//                       b: rows t, t + 4 of column g; the bits of floats, of which the upper 19 are used
//   f16, bf16 (K = 16)  a: rows g, g + 8, g, g + 8 of columns 2 t, 2 t, 2 t + 8, 2 t + 8;
//                       b: rows 2 t, 2 t + 8 of column g; each with the next column of a, or row of b, in the
//                       upper 16 bits
// Before sm_80 the lanes exchange operands and multiply in fp32: the same result, but slow.

#if __CUDA_ARCH__ >= 800
[[maybe_unused]] static __device__ __forceinline__ void
tdc_mma_tf32(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

[[maybe_unused]] static __device__ __forceinline__ void
tdc_mma_f16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

[[maybe_unused]] static __device__ __forceinline__ void
tdc_mma_bf16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#else
// Adds the products of one register of a and one of b to a sum.
struct tdc_tf32_product {
    static __device__ __forceinline__ float add(float sum, unsigned a, unsigned b) {
        return fmaf(__uint_as_float(a & 0xffffe000u), __uint_as_float(b & 0xffffe000u), sum);
    }
};

struct tdc_f16_product {
    static __device__ __forceinline__ float value(unsigned bits) {
        float value;
        asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(static_cast<unsigned short>(bits)));
        return value;
    }
    static __device__ __forceinline__ float add(float sum, unsigned a, unsigned b) {
        return fmaf(value(a >> 16), value(b >> 16), fmaf(value(a & 0xffffu), value(b & 0xffffu), sum));
    }
};

struct tdc_bf16_product {
    static __device__ __forceinline__ float add(float sum, unsigned a, unsigned b) {
        sum = fmaf(__uint_as_float(a << 16), __uint_as_float(b << 16), sum);
        return fmaf(__uint_as_float(a & 0xffff0000u), __uint_as_float(b & 0xffff0000u), sum);
    }
};

template <class Product>
[[maybe_unused]] static __device__ __forceinline__ void
tdc_mma_by_shuffles(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    const int lane = (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32;
#pragma unroll 1
    for (int t = 0; t < 4; ++t) {
        unsigned row[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) row[i] = __shfl_sync(0xffffffffu, a[i], lane / 4 * 4 + t);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int holder = (lane % 4 * 2 + i) * 4 + t;  // of column 2 t + i
            const unsigned upper = __shfl_sync(0xffffffffu, b[0], holder);
            const unsigned lower = __shfl_sync(0xffffffffu, b[1], holder);
            d[i] = Product::add(Product::add(d[i], row[0], upper), row[2], lower);
            d[i + 2] = Product::add(Product::add(d[i + 2], row[1], upper), row[3], lower);
        }
    }
}

[[maybe_unused]] static __device__ __forceinline__ void
tdc_mma_tf32(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    tdc_mma_by_shuffles<tdc_tf32_product>(d, a, b);
}

[[maybe_unused]] static __device__ __forceinline__ void
tdc_mma_f16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    tdc_mma_by_shuffles<tdc_f16_product>(d, a, b);
}

[[maybe_unused]] static __device__ __forceinline__ void
tdc_mma_bf16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    tdc_mma_by_shuffles<tdc_bf16_product>(d, a, b);
}
#endif
#endif
