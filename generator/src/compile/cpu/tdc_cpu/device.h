// CUDA's built-in device functions.
#pragma once

#include "execution.h"

#include <cstring>
#include <math.h>

inline void __trap(int line = __builtin_LINE()) { tdc_cpu::report_violation("traps", line); }

// ---- barriers and warps ------------------------------------------------------------------------------------------------------

inline void __syncthreads(int line = __builtin_LINE()) {
    tdc_cpu::block_barrier(tdc_cpu::BarrierKind::plain, false, line);
}
inline int __syncthreads_or(int predicate, int line = __builtin_LINE()) {
    return tdc_cpu::block_barrier(tdc_cpu::BarrierKind::any, predicate != 0, line);
}
inline int __syncthreads_and(int predicate, int line = __builtin_LINE()) {
    return tdc_cpu::block_barrier(tdc_cpu::BarrierKind::all, predicate != 0, line);
}
inline int __syncthreads_count(int predicate, int line = __builtin_LINE()) {
    return tdc_cpu::block_barrier(tdc_cpu::BarrierKind::count, predicate != 0, line);
}

inline void __syncwarp(unsigned mask = 0xffffffffu, int line = __builtin_LINE()) {
    tdc_cpu::warp_call(tdc_cpu::WarpCallKind::sync, mask, 0, 0, line);
}
inline unsigned __activemask() { return tdc_cpu::live_lanes(); }

inline unsigned __ballot_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
    return static_cast<unsigned>(tdc_cpu::warp_call(tdc_cpu::WarpCallKind::vote, mask, predicate != 0, 0, line));
}
inline int __any_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
    return __ballot_sync(mask, predicate, line) != 0;
}
inline int __all_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
    return __ballot_sync(mask, !predicate, line) == 0;
}

namespace tdc_cpu {

inline int lane() {
    return static_cast<int>((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32);
}

template <class T>
T shuffle(unsigned mask, T value, int source, int line) {
    static_assert(sizeof(T) <= sizeof(uint64_t), "a shuffle moves at most 8 bytes");
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    bits = warp_call(WarpCallKind::shuffle, mask, bits, source, line);
    std::memcpy(&value, &bits, sizeof(T));
    return value;
}

}  // namespace tdc_cpu

// With a width below 32 the warp is divided into segments; for a source outside the lane's segment the lane's
// own value is returned.
template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, int line = __builtin_LINE()) {
    const int first = tdc_cpu::lane() & ~(width - 1);
    return tdc_cpu::shuffle(mask, value, first | (source & (width - 1)), line);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, int line = __builtin_LINE()) {
    const int lane = tdc_cpu::lane();
    const int first = lane & ~(width - 1);
    const int source = lane - static_cast<int>(delta);
    return tdc_cpu::shuffle(mask, value, source < first ? lane : source, line);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, int line = __builtin_LINE()) {
    const int lane = tdc_cpu::lane();
    const int last = lane | (width - 1);
    const int source = lane + static_cast<int>(delta);
    return tdc_cpu::shuffle(mask, value, source > last ? lane : source, line);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32, int line = __builtin_LINE()) {
    const int lane = tdc_cpu::lane();
    const int last = lane | (width - 1);
    const int source = lane ^ lane_mask;
    return tdc_cpu::shuffle(mask, value, source > last ? lane : source, line);
}

// ---- memory ------------------------------------------------------------------------------------------------------------------

inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

template <class T>
T __ldg(const T* address) {
    return *address;
}
template <class T>
T __ldcs(const T* address) {
    return *address;
}
template <class T>
T __ldcg(const T* address) {
    return *address;
}
template <class T>
void __stcs(T* address, T value) {
    *address = value;
}
template <class T>
void __stcg(T* address, T value) {
    *address = value;
}

// Programmatic dependent launch: launches run one after another here, so there is nothing to wait for.
inline void cudaGridDependencySynchronize() {}
inline void cudaTriggerProgrammaticLaunchCompletion() {}

namespace tdc_cpu {

// Atomically replaces *address by update(*address); returns the old value.
template <class T, class Update>
T atomic_update(T* address, Update update) {
    T old;
    __atomic_load(address, &old, __ATOMIC_RELAXED);
    for (;;) {
        T next = update(old);
        if (__atomic_compare_exchange(address, &old, &next, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
            return old;
        }
    }
}

}  // namespace tdc_cpu

inline int atomicAdd(int* address, int value) { return __atomic_fetch_add(address, value, __ATOMIC_RELAXED); }
inline unsigned atomicAdd(unsigned* address, unsigned value) {
    return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
}
inline unsigned long long atomicAdd(unsigned long long* address, unsigned long long value) {
    return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
}
inline float atomicAdd(float* address, float value) {
    return tdc_cpu::atomic_update(address, [value](float old) { return old + value; });
}
inline double atomicAdd(double* address, double value) {
    return tdc_cpu::atomic_update(address, [value](double old) { return old + value; });
}
inline int atomicSub(int* address, int value) { return __atomic_fetch_sub(address, value, __ATOMIC_RELAXED); }
inline unsigned atomicSub(unsigned* address, unsigned value) {
    return __atomic_fetch_sub(address, value, __ATOMIC_RELAXED);
}
inline int atomicMax(int* address, int value) {
    return tdc_cpu::atomic_update(address, [value](int old) { return old > value ? old : value; });
}
inline unsigned atomicMax(unsigned* address, unsigned value) {
    return tdc_cpu::atomic_update(address, [value](unsigned old) { return old > value ? old : value; });
}
inline int atomicMin(int* address, int value) {
    return tdc_cpu::atomic_update(address, [value](int old) { return old < value ? old : value; });
}
inline unsigned atomicMin(unsigned* address, unsigned value) {
    return tdc_cpu::atomic_update(address, [value](unsigned old) { return old < value ? old : value; });
}
// Counts up to `limit` and restarts at zero.
inline unsigned atomicInc(unsigned* address, unsigned limit) {
    return tdc_cpu::atomic_update(address, [limit](unsigned old) { return old >= limit ? 0 : old + 1; });
}
template <class T>
T atomicExch(T* address, T value) {
    T old;
    __atomic_exchange(address, &value, &old, __ATOMIC_RELAXED);
    return old;
}
template <class T>
T atomicCAS(T* address, T expected, T value) {
    __atomic_compare_exchange(address, &expected, &value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}

// ---- arithmetic --------------------------------------------------------------------------------------------------------------

#define TDC_CPU_MIN_MAX(type, first, second)                                                       \
    constexpr type min(first a, second b) {                                                        \
        return static_cast<type>(a) < static_cast<type>(b) ? static_cast<type>(a) : static_cast<type>(b); \
    }                                                                                              \
    constexpr type max(first a, second b) {                                                        \
        return static_cast<type>(a) > static_cast<type>(b) ? static_cast<type>(a) : static_cast<type>(b); \
    }
TDC_CPU_MIN_MAX(int, int, int)
TDC_CPU_MIN_MAX(unsigned, unsigned, unsigned)
TDC_CPU_MIN_MAX(unsigned, int, unsigned)
TDC_CPU_MIN_MAX(unsigned, unsigned, int)
TDC_CPU_MIN_MAX(long, long, long)
TDC_CPU_MIN_MAX(unsigned long, unsigned long, unsigned long)
TDC_CPU_MIN_MAX(long long, long long, long long)
TDC_CPU_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
#undef TDC_CPU_MIN_MAX
// Unlike the operators, these ignore a NaN operand, as on the GPU.
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __frsqrt_rn(float x) { return 1.0f / sqrtf(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __saturatef(float x) { return fminf(fmaxf(x, 0.0f), 1.0f); }

// These must not be contracted into a multiply-add, which the compiler may do with the operators.
inline float __fadd_rn(float a, float b) {
    volatile float sum = a + b;
    return sum;
}
inline float __fsub_rn(float a, float b) {
    volatile float difference = a - b;
    return difference;
}
inline float __fmul_rn(float a, float b) {
    volatile float product = a * b;
    return product;
}

// glibc declares functions of these names (without defining them), so they can only be macros.
#define __expf(x) expf(x)
#define __exp10f(x) powf(10.0f, x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __log10f(x) log10f(x)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __tanf(x) tanf(x)
#define __powf(x, y) powf(x, y)

// ---- bits and conversions ----------------------------------------------------------------------------------------------------

namespace tdc_cpu {

template <class To, class From>
To same_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "sizes differ");
    To to;
    std::memcpy(&to, &from, sizeof(To));
    return to;
}

}  // namespace tdc_cpu

inline unsigned __float_as_uint(float x) { return tdc_cpu::same_bits<unsigned>(x); }
inline int __float_as_int(float x) { return tdc_cpu::same_bits<int>(x); }
inline float __uint_as_float(unsigned x) { return tdc_cpu::same_bits<float>(x); }
inline float __int_as_float(int x) { return tdc_cpu::same_bits<float>(x); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
inline int __float2int_rn(float x) { return static_cast<int>(nearbyintf(x)); }
inline int __float2int_rz(float x) { return static_cast<int>(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned __umulhi(unsigned a, unsigned b) {
    return static_cast<unsigned>((static_cast<uint64_t>(a) * b) >> 32);
}
inline int __mulhi(int a, int b) { return static_cast<int>((static_cast<int64_t>(a) * b) >> 32); }
