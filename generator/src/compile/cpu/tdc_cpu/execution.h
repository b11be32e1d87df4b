// The engine's interface for kernels and host code. The engine is in scheduler.h and runtime.h.
#pragma once

#include "language.h"

#include <tuple>
#include <utility>

// CUDA's built-in variables. The scheduler sets them whenever it resumes a thread.
inline thread_local uint3 threadIdx{};
inline thread_local uint3 blockIdx{};
inline thread_local dim3 blockDim{};
inline thread_local dim3 gridDim{};
inline constexpr int warpSize = 32;

namespace tdc_cpu {

enum class BarrierKind : unsigned char { plain, any, all, count };
enum class WarpCallKind : unsigned char { sync, shuffle, vote, multiply };
enum class MatrixKind : unsigned char { tf32, f16, bf16 };

// Waits until every thread of the block has reached this barrier. `line` identifies barriers in checks and
// messages.
int block_barrier(BarrierKind kind, bool predicate, int line);

// Waits until every live lane of `mask` has reached this call. A shuffle returns the value of lane `source`,
// a vote the mask of the lanes with a non-zero value.
uint64_t warp_call(WarpCallKind kind, unsigned mask, uint64_t value, int source, int line);

// The lanes of the calling thread's warp that have not exited.
unsigned live_lanes();

// The block's dynamic shared memory.
void* dynamic_shared();

// Starts a copy of 4 or 16 bytes to shared memory, of zeros if not `inside`. The destination becomes NaNs
// immediately; the copy arrives when the thread waits for its group.
void copy_async(void* shared, const void* global, unsigned bytes, bool inside, int line);
// Ends a group of copies.
void commit_copies();
// Completes all copies of the calling thread except those of its latest `pending` groups and those not in a
// group yet.
void wait_copies(unsigned pending);

// Starts a bulk copy to shared memory for the complete block; `barrier` signals its completion.
void copy_chunk(void* shared, const void* global, unsigned bytes, const void* barrier, int line);
// Completes the latest copy of `barrier`; `parity` is that of the number of copies before it.
void await_chunk(const void* barrier, unsigned parity, int line);

// Barriers of a pipeline (mbarriers), whose phases are counted. A thread that waits for a phase other than the
// current one or the one before is an error: the parity of the phase would be ambiguous.
void init_phases(const void* barrier, unsigned arrivals, int line);
void arrive(const void* barrier, int line);
void wait_phase(const void* barrier, unsigned phase, int line);
// Starts a bulk copy to shared memory that arrives at a barrier when a thread waits for it. Its destination has
// NaNs until then.
void copy_and_arrive(void* shared, const void* global, unsigned bytes, const void* barrier, int line);
// Reads memory that a kernel brings to the cache.
void prefetch_to_l2(const void* global, unsigned bytes, int line);
// Arrives at a barrier when the calling thread's copies are complete: when a thread waits for its phase. The copies
// belong to the barrier from now on.
void arrive_when_copied(const void* barrier, int line);
// Waits until `threads` threads of the block have reached the barrier with this number.
void named_barrier(int id, unsigned threads, int line);

// Starts d += a * b, or d = a * b, by a warp: its 16 rows of a warpgroup's product. `d` has NaNs, and `a` and `b`
// are read, when the thread waits for the product's group.
void multiply_async(MatrixKind kind, float* d, const unsigned* a, const void* b, int columns, int pitch,
                    bool accumulates, int line);
// The same with the warp's rows of a in shared memory, swizzled runs from `at` on. It is an error if a thread
// has waited for copies of threads, and called no fence_async_proxy() since.
void multiply_shared_async(MatrixKind kind, float* d, const void* shared, int at, int row_runs, const void* b,
                           int columns, int pitch, bool accumulates, int line);
void fence_async_proxy();
// Ends a group of products.
void commit_products();
// Completes all products of the calling thread except those of its latest `pending` groups and those not in a
// group yet.
void wait_products(unsigned pending, int line);

// Whether the device supports clusters.
bool has_clusters();
// Arrive and wait of a barrier of all threads of the cluster.
void await_bytes(const void* bytes, int line);
void cluster_arrive(int line);
void cluster_wait(int line);
// The address in another block's dynamic shared memory that corresponds to `shared` in the calling block's.
const void* cluster_shared(const void* shared, unsigned rank, int line);

// Ends the launch with an error that describes the violation in that line.
void report_violation(const char* what, int line);

// d += a * b by all 32 lanes of a warp, with 4, 4 and 2 registers per lane.
void warp_multiply(MatrixKind kind, float* d, const unsigned* a, const unsigned* b, int line);

// A kernel with its arguments.
class KernelCall {
public:
    virtual ~KernelCall() = default;
    // Runs one thread.
    virtual void run() const = 0;
};

template <class... Params>
class TypedKernelCall final : public KernelCall {
public:
    template <class... Args>
    explicit TypedKernelCall(void (*kernel)(Params...), Args&&... args)
        : kernel_(kernel), args_(static_cast<Params>(std::forward<Args>(args))...) {}

    void run() const override { std::apply(kernel_, args_); }

private:
    void (*kernel_)(Params...);
    std::tuple<Params...> args_;
};

// Unpacks `args` as for cudaLaunchKernel: one pointer to each parameter's value.
template <class... Params, size_t... Index>
KernelCall* unpack_arguments(void (*kernel)(Params...), void** args, std::index_sequence<Index...>) {
    (void)args;
    return new TypedKernelCall<Params...>(kernel, *static_cast<std::remove_reference_t<Params>*>(args[Index])...);
}

template <class... Params>
KernelCall* unpack_arguments(void (*kernel)(Params...), void** args) {
    return unpack_arguments(kernel, args, std::index_sequence_for<Params...>{});
}

template <class... Params>
const void* entry_of(void (*kernel)(Params...)) {
    return reinterpret_cast<const void*>(kernel);
}

}  // namespace tdc_cpu
