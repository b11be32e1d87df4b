// Replaces the device header of generated source, whose sections are skipped if their guards are defined. The
// device header documents the functions; the comments here describe how errors are detected.
#pragma once

#include "execution.h"
#include "half.h"

#include <cstdint>
#include <cstring>

// Until a copy has been waited for, its destination has NaNs.
#define TDC_ASYNC_COPY
inline void tdc_copy_async4(float* shared, const float* global, bool inside, int line = __builtin_LINE()) {
    tdc_cpu::copy_async(shared, global, 4, inside, line);
}
inline void tdc_copy_async4(float* shared, const float* global, int line = __builtin_LINE()) {
    tdc_cpu::copy_async(shared, global, 4, true, line);
}
inline void tdc_copy_async16(float* shared, const float* global, bool inside, int line = __builtin_LINE()) {
    tdc_cpu::copy_async(shared, global, 16, inside, line);
}
inline void tdc_copy_async16(float* shared, const float* global, int line = __builtin_LINE()) {
    tdc_cpu::copy_async(shared, global, 16, true, line);
}
inline void tdc_commit_copies() { tdc_cpu::commit_copies(); }
template <int PENDING>
void tdc_wait_copies() {
    static_assert(PENDING >= 0, "groups are counted from the latest");
    tdc_cpu::wait_copies(PENDING);
}

// Until a chunk has been waited for, its destination has NaNs. Waiting for one that was not started is an
// error.
#define TDC_BULK_COPY
inline void tdc_init_copy_barriers(float* barriers, int count) {
    static_cast<void>(barriers);
    static_cast<void>(count);
}
inline void tdc_bulk_copy(float* shared, const float* global, int floats, float* barrier, int line = __builtin_LINE()) {
    if (tdc_cpu::has_clusters()) {
        if (threadIdx.x == 0) tdc_cpu::copy_chunk(shared, global, static_cast<unsigned>(4 * floats), barrier, line);
        return;
    }
    for (int i = static_cast<int>(threadIdx.x) * 4; i < floats; i += static_cast<int>(blockDim.x) * 4) {
        tdc_copy_async16(shared + i, global + i, line);
    }
    tdc_commit_copies();
}
template <int PENDING>
void tdc_wait_bulk_copy(float* barrier, int parity, int line = __builtin_LINE()) {
    if (tdc_cpu::has_clusters()) {
        tdc_wait_copies<0>();
        tdc_cpu::await_chunk(barrier, static_cast<unsigned>(parity), line);
    } else {
        tdc_wait_copies<PENDING>();
        __syncthreads(line);
    }
}

// The blocks of a cluster run in random order. A cluster barrier that not all threads reach is an error, and
// so is access to the shared memory of a block that has exited.
#define TDC_CLUSTER
inline bool tdc_has_clusters() { return tdc_cpu::has_clusters(); }
inline void tdc_cluster_arrive(int line = __builtin_LINE()) { tdc_cpu::cluster_arrive(line); }
inline void tdc_cluster_arrive_relaxed(int line = __builtin_LINE()) { tdc_cpu::cluster_arrive(line); }
inline void tdc_cluster_wait(int line = __builtin_LINE()) { tdc_cpu::cluster_wait(line); }
inline void tdc_cluster_sync(int line = __builtin_LINE()) {
    tdc_cpu::cluster_arrive(line);
    tdc_cpu::cluster_wait(line);
}
inline const float* tdc_cluster_shared(const float* shared, unsigned rank, int line = __builtin_LINE()) {
    return static_cast<const float*>(tdc_cpu::cluster_shared(shared, rank, line));
}
inline float* tdc_cluster_shared(float* shared, unsigned rank, int line = __builtin_LINE()) {
    return const_cast<float*>(static_cast<const float*>(tdc_cpu::cluster_shared(shared, rank, line)));
}

// The barrier counts the bytes that have not arrived; a waiting thread resumes when all have, whatever the
// other blocks do.
inline void tdc_expect_bytes(float* barrier, unsigned bytes) {
    if (tdc_cpu::has_clusters()) std::memcpy(barrier, &bytes, sizeof bytes);
}
template <class Value>
void tdc_store_async(float* to, float* barrier, unsigned rank, Value value, int line = __builtin_LINE()) {
    if (tdc_cpu::has_clusters()) {
        barrier = tdc_cluster_shared(barrier, rank, line);
        unsigned bytes;
        std::memcpy(&bytes, barrier, sizeof bytes);
        bytes -= sizeof value;
        std::memcpy(barrier, &bytes, sizeof bytes);
        to = tdc_cluster_shared(to, rank, line);
    }
    if (reinterpret_cast<uintptr_t>(to) % sizeof value != 0) tdc_cpu::report_violation("stores to a misaligned remote address", line);
    std::memcpy(to, &value, sizeof value);
}
inline void tdc_wait_bytes(float* barrier, int line = __builtin_LINE()) {
    if (!tdc_cpu::has_clusters()) {
        __syncthreads(line);
        return;
    }
    tdc_cpu::await_bytes(barrier, line);
}

// Launches run one after another: there is nothing to wait for.
#define TDC_PDL
inline void tdc_pdl_wait() {}
inline void tdc_pdl_trigger() {}
inline void tdc_pdl_wait_and_trigger() {}

#define TDC_PREFETCH
inline void tdc_prefetch_l2(const void*) {}

#define TDC_FP16
inline unsigned tdc_to_fp16x2(float first, float second) {
    return tdc_cpu::f16_of_float(second) << 16 | tdc_cpu::f16_of_float(first);
}
inline float tdc_fp16x2_low(unsigned halves) { return tdc_cpu::float_of_f16(halves & 0xffffu); }
inline float tdc_fp16x2_high(unsigned halves) { return tdc_cpu::float_of_f16(halves >> 16); }

inline float tdc_warp_max(float value) {
    for (int offset = 16; offset > 0; offset /= 2) {
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, offset));
    }
    return value;
}

#define TDC_SATURATED_FP16
inline unsigned tdc_to_saturated_fp16x2(float first, float second) {
    const auto clamped = [](float value) { return value != value ? value : fminf(fmaxf(value, -65504.0f), 65504.0f); };
    return tdc_to_fp16x2(clamped(first), clamped(second));
}

#define TDC_BF16
inline unsigned tdc_to_bf16x2(float first, float second) {
    return tdc_cpu::bf16_of_float(second) << 16 | tdc_cpu::bf16_of_float(first);
}
inline float tdc_bf16x2_low(unsigned pair) { return __uint_as_float(pair << 16); }
inline float tdc_bf16x2_high(unsigned pair) { return __uint_as_float(pair & 0xffff0000u); }

#define TDC_MAX_FP16
inline unsigned tdc_max_fp16x2(unsigned a, unsigned b) {
    const auto larger = [](float x, float y) { return x > y || x != x ? x : y; };
    return tdc_to_fp16x2(larger(tdc_fp16x2_low(a), tdc_fp16x2_low(b)), larger(tdc_fp16x2_high(a), tdc_fp16x2_high(b)));
}

#define TDC_MAX_BF16
inline unsigned tdc_max_bf16x2(unsigned a, unsigned b) {
    const auto larger = [](float x, float y) { return x > y || x != x ? x : y; };
    return tdc_to_bf16x2(larger(tdc_bf16x2_low(a), tdc_bf16x2_low(b)), larger(tdc_bf16x2_high(a), tdc_bf16x2_high(b)));
}

// It is an error if not all lanes of the warp take part in a product.
#define TDC_MMA
inline void tdc_mma_tf32(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], int line = __builtin_LINE()) {
    tdc_cpu::warp_multiply(tdc_cpu::MatrixKind::tf32, d, a, b, line);
}
inline void tdc_mma_f16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], int line = __builtin_LINE()) {
    tdc_cpu::warp_multiply(tdc_cpu::MatrixKind::f16, d, a, b, line);
}
inline void tdc_mma_bf16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], int line = __builtin_LINE()) {
    tdc_cpu::warp_multiply(tdc_cpu::MatrixKind::bf16, d, a, b, line);
}

// Data of a copy is NaNs until a thread waits for it. Waiting for a phase that cannot be told from others by its
// parity is an error, and so are more arrivals than a phase has.
#define TDC_PIPELINE
inline void tdc_init_phases(float* barrier, unsigned arrivals, int line = __builtin_LINE()) {
    tdc_cpu::init_phases(barrier, arrivals, line);
}
inline void tdc_arrive(float* barrier, int line = __builtin_LINE()) { tdc_cpu::arrive(barrier, line); }
inline void tdc_wait_phase(float* barrier, unsigned phase, int line = __builtin_LINE()) {
    tdc_cpu::wait_phase(barrier, phase, line);
}
inline void tdc_copy_and_arrive(float* shared, const float* global, int floats, float* barrier,
                                int line = __builtin_LINE()) {
    if (threadIdx.x % 32 == 0) tdc_cpu::copy_and_arrive(shared, global, static_cast<unsigned>(4 * floats), barrier, line);
}
inline void tdc_prefetch_to_l2(const float* global, int floats, int line = __builtin_LINE()) {
    tdc_cpu::prefetch_to_l2(global, static_cast<unsigned>(4 * floats), line);
}
inline void tdc_arrive_when_copied(float* barrier, int line = __builtin_LINE()) {
    tdc_cpu::arrive_when_copied(barrier, line);
}
inline void tdc_named_barrier(int id, int threads, int line = __builtin_LINE()) {
    tdc_cpu::named_barrier(id, static_cast<unsigned>(threads), line);
}

// Products are computed when they are waited for, from the operands as they are then. Accumulators of pending
// products are NaNs.
#define TDC_WGMMA
template <int REGISTERS>
void tdc_fewer_registers() {}
template <int REGISTERS>
void tdc_more_registers() {}
inline void tdc_wgmma_fence() {}
inline void tdc_wgmma_commit() { tdc_cpu::commit_products(); }
template <int PENDING>
void tdc_wgmma_wait(int line = __builtin_LINE()) {
    tdc_cpu::wait_products(PENDING, line);
}
template <int N, bool BF16>
void tdc_wgmma(float (&d)[N / 2], const unsigned (&a)[4], const float* b, int pitch, bool accumulates,
               int line = __builtin_LINE()) {
    constexpr tdc_cpu::MatrixKind kind = BF16 ? tdc_cpu::MatrixKind::bf16 : tdc_cpu::MatrixKind::f16;
    tdc_cpu::multiply_async(kind, d, a, b, N, pitch, accumulates, line);
}

#define TDC_SWIZZLE
template <int ROW_RUNS>
int tdc_swizzled(int run) {
    return run ^ (run >> 3 & (ROW_RUNS - 1));
}

// Rows of a in shared memory that threads have copied are read after a fence.
#define TDC_WGMMA_SHARED
#define TDC_SWIZZLED_SHARED TDC_DYNAMIC_SHARED
inline int tdc_uniform(int value) { return value; }
inline void tdc_fence_async_proxy() { tdc_cpu::fence_async_proxy(); }
template <int N, int ROW_RUNS, bool BF16 = false>
void tdc_wgmma_shared(float (&d)[N / 2], const float* shared, int a, int b, int pitch, bool accumulates,
                      int line = __builtin_LINE()) {
    const int row = static_cast<int>(threadIdx.x / 32 % 4 * 16);
    constexpr tdc_cpu::MatrixKind kind = BF16 ? tdc_cpu::MatrixKind::bf16 : tdc_cpu::MatrixKind::f16;
    tdc_cpu::multiply_shared_async(kind, d, shared, a + row * ROW_RUNS, ROW_RUNS, shared + 4 * b, N, pitch, accumulates, line);
}
