// CUDA's extensions of C++: qualifiers and built-in vector types.
#pragma once

#include <cstddef>
#include <cstdint>

#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __forceinline__ inline __attribute__((always_inline))

// A block-scope thread_local is static storage of the OS thread, and an OS thread runs one block at a time,
// so it behaves like shared memory. All of it is in the module's TLS segment, which the scheduler fills with
// NaN bits before every block.
#define __shared__ thread_local

// The only supported declaration of dynamic shared memory; on CUDA it is `extern __shared__ type name[]`.
#define TDC_DYNAMIC_SHARED(type, name) type* const name = static_cast<type*>(tdc_cpu::dynamic_shared())

#define TDC_CPU_VECTOR(scalar, name, align2, align4)                                             \
    struct alignas(align2) name##2 {                                                             \
        scalar x, y;                                                                             \
    };                                                                                           \
    struct name##3 {                                                                             \
        scalar x, y, z;                                                                          \
    };                                                                                           \
    struct alignas(align4) name##4 {                                                             \
        scalar x, y, z, w;                                                                       \
    };                                                                                           \
    constexpr name##2 make_##name##2(scalar x, scalar y) { return {x, y}; }                      \
    constexpr name##3 make_##name##3(scalar x, scalar y, scalar z) { return {x, y, z}; }         \
    constexpr name##4 make_##name##4(scalar x, scalar y, scalar z, scalar w) { return {x, y, z, w}; }

TDC_CPU_VECTOR(signed char, char, 2, 4)
TDC_CPU_VECTOR(unsigned char, uchar, 2, 4)
TDC_CPU_VECTOR(short, short, 4, 8)
TDC_CPU_VECTOR(unsigned short, ushort, 4, 8)
TDC_CPU_VECTOR(int, int, 8, 16)
TDC_CPU_VECTOR(unsigned, uint, 8, 16)
TDC_CPU_VECTOR(long long, longlong, 16, 16)
TDC_CPU_VECTOR(float, float, 8, 16)
TDC_CPU_VECTOR(double, double, 16, 16)
#undef TDC_CPU_VECTOR

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return {x, y, z}; }
};
