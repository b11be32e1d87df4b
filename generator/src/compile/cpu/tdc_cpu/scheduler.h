// Runs the blocks of a launch: every CUDA thread is a fiber, every OS thread runs one cluster of blocks at a
// time.
#pragma once

#include "execution.h"
#include "fibers.h"
#include "multiply.h"
#include "runtime_api.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <link.h>
#endif

// Every translation unit may define the engine; the linker keeps one definition.
#define TDC_CPU_ENGINE __attribute__((weak))

namespace tdc_cpu {

// ---- seeds -------------------------------------------------------------------------------------------------------------------

// SplitMix64: a small generator whose streams for consecutive seeds are unrelated.
class Random {
public:
    explicit Random(uint64_t seed) : state_(seed) {}

    uint64_t next() {
        state_ += 0x9e3779b97f4a7c15u;
        uint64_t z = state_;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }

    uint32_t below(uint32_t bound) { return static_cast<uint32_t>((next() >> 32) * bound >> 32); }

private:
    uint64_t state_;
};

inline uint64_t environment_number(const char* name, uint64_t otherwise) {
    const char* text = std::getenv(name);
    return text != nullptr && *text != '\0' ? std::strtoull(text, nullptr, 10) : otherwise;
}

// Iterates over 0..count in an order that depends on the seed, without storing it: i -> (i * step + start)
// mod count.
class BlockOrder {
public:
    BlockOrder(uint64_t count, uint64_t seed) : count_(count) {
        Random random(seed);
        start_ = random.next() % count;
        do {
            step_ = random.next() % count;
        } while (std::gcd(step_, count) != 1);
    }

    uint64_t operator[](uint64_t index) const {
        return static_cast<uint64_t>((static_cast<unsigned __int128>(index) * step_ + start_) % count_);
    }

    uint64_t count() const { return count_; }

private:
    uint64_t count_;
    uint64_t start_;
    uint64_t step_;
};

// ---- static shared memory ----------------------------------------------------------------------------------------------------

// The calling OS thread's copy of the TLS segment that holds `variable`.
struct TlsSegment {
    char* begin = nullptr;
    size_t bytes = 0;
};

inline TlsSegment tls_segment_of(const void* variable) {
    TlsSegment found;
// clang links the sanitizer's runtime, with its thread-local state, into the program's own segment.
#if defined(__linux__) && !(defined(__clang__) && defined(TDC_CPU_ASAN))
    struct Search {
        const char* variable;
        TlsSegment* found;
    } search{static_cast<const char*>(variable), &found};
    const auto visit = [](dl_phdr_info* module, size_t, void* data) {
        const Search& search = *static_cast<Search*>(data);
        for (int i = 0; i < module->dlpi_phnum; ++i) {
            const auto& header = module->dlpi_phdr[i];
            char* begin = static_cast<char*>(module->dlpi_tls_data);
            if (header.p_type == PT_TLS && begin != nullptr && search.variable >= begin &&
                search.variable < begin + header.p_memsz) {
                *search.found = {begin, header.p_memsz};
                return 1;
            }
        }
        return 0;
    };
    dl_iterate_phdr(visit, &search);
#else
    (void)variable;
#endif
    return found;
}

// ---- one launch --------------------------------------------------------------------------------------------------------------

// The compute capability that the device reports, times ten.
inline int device_arch() { return static_cast<int>(environment_number("TDC_CPU_ARCH", 90)); }

// Whether it supports clusters and programmatic dependent launch.
inline bool device_has_clusters() { return device_arch() >= 90; }

struct Launch {
    const KernelCall& call;
    LaunchShape shape;
    bool has_clusters;
    uint64_t seed;
    BlockOrder order;
    std::atomic<uint64_t> next_cluster{0};
    std::atomic<bool> failed{false};
    std::mutex message_lock;
    std::string message;

    // Keeps the first message and stops the other threads.
    void fail(const std::string& what) {
        const std::lock_guard<std::mutex> guard(message_lock);
        if (!failed.exchange(true)) {
            message = what;
        }
    }
};

enum class State : unsigned char {
    not_started,
    ready,
    at_barrier,
    at_cluster_barrier,
    at_pipeline_barrier,
    awaiting_bytes,
    in_warp_call,
    finished,
    illegal,  // has violated a rule; never resumed
};

struct Warp;

// A copy to shared memory that has not arrived.
struct PendingCopy {
    void* shared;
    const void* global;
    unsigned bytes;
    bool inside;
    unsigned group;
};

// A copy for a complete block, with the number of earlier copies of its barrier.
struct ChunkCopy {
    const void* barrier;
    void* shared;
    const void* global;
    unsigned bytes;
    unsigned number;
    bool arrived;
};

// A barrier of a pipeline: an mbarrier.
struct PhaseBarrier {
    const void* barrier;
    unsigned arrivals;  // of a phase
    unsigned arrived;   // in the current phase
    unsigned complete;  // phases
    unsigned late;      // arrivals that follow when the copies are complete
    std::vector<PendingCopy> copies;
    bool has_thread_copies;  // not only bulk copies
};

// A barrier of some warps of the block.
struct NamedBarrier {
    unsigned threads;
    unsigned arrived;
};

// An asynchronous product, with the values that d had before: d has NaNs until the product is complete.
struct PendingProduct {
    Product product;
    bool accumulates;
    unsigned group;
    std::vector<float> before;
};

// One CUDA thread.
struct Thread {
    Context context;
    char* stack;
    uint3 index;
    unsigned lane;
    Warp* warp;
    State state;
    // Whether it is between arrive and wait of a cluster barrier.
    bool arrived_in_cluster;
    std::vector<PendingCopy> copies;
    // Groups of copies that are complete.
    unsigned copy_groups;
    std::vector<PendingProduct> products;
    // Groups of products that are complete.
    unsigned product_groups;
    // Whether it has waited for copies of threads that its products cannot see yet.
    bool needs_proxy_fence;
    // What it waits for: a barrier of a pipeline, a named barrier or a number of bytes.
    const void* awaited;
    // Source line of the call in which it waits.
    int line;
    WarpCallKind call;
    unsigned mask;
    int source;
    uint64_t value;
    Product product;
    // The return value of that call.
    uint64_t result;
};

struct Warp {
    Thread* threads;
    unsigned live;
    unsigned waiting;
};

struct Barrier {
    BarrierKind kind;
    int line;
    unsigned arrived;
    unsigned votes;
};

struct alignas(128) SharedUnit {
    char bytes[128];
};

// One block of the cluster that an OS thread runs.
struct Block {
    uint3 index;
    Thread* threads;
    unsigned runnable;  // threads that are ready or not started
    unsigned finished;
    unsigned at_cluster_barrier;
    int cluster_line;  // line of the barrier at which those wait
    unsigned awaiting_bytes;  // threads that wait for bytes
    Barrier barrier;
    int barrier_result;
    std::vector<ChunkCopy> chunks;  // the latest of each barrier
    std::vector<PhaseBarrier> phases;
    NamedBarrier named[16];
    std::vector<SharedUnit> shared;  // dynamic shared memory, between guards
};

class Worker;
inline thread_local Worker* current_worker = nullptr;

// The state with which one OS thread runs blocks. Kept for later launches, because stacks are expensive.
class Worker {
public:
    void run(Launch& launch) {
        launch_ = &launch;
        const LaunchShape& shape = launch.shape;
        thread_count_ = shape.block.x * shape.block.y * shape.block.z;
        const unsigned warps = (thread_count_ + 31) / 32;
        blocks_.resize(shape.cluster.x * shape.cluster.y * shape.cluster.z);
        threads_.resize(blocks_.size() * thread_count_);
        warps_.resize(blocks_.size() * warps);
        order_.resize(thread_count_);
        for (Block& block : blocks_) {
            block.shared.resize((shape.shared_bytes + 2 * guard_bytes) / sizeof(SharedUnit) + 1);
        }
        // Accesses the segment, so that it exists for this OS thread.
        current_worker = this;
        tls_ = tls_segment_of(&current_worker);
        while (!launch.failed) {
            const uint64_t next = launch.next_cluster++;
            if (next >= launch.order.count()) {
                break;
            }
            run_cluster(launch.order[next]);
        }
        current_worker = nullptr;
    }

    int block_barrier(BarrierKind kind, bool predicate, int line) {
        Thread& self = *running_;
        Barrier& barrier = block_->barrier;
        if (barrier.arrived == 0) {
            barrier = {kind, line, 0, 0};
        } else if (barrier.kind != kind || barrier.line != line) {
            fail("threads of one block wait at different barriers (lines %d and %d)", barrier.line, line);
        }
        ++barrier.arrived;
        barrier.votes += predicate;
        self.line = line;
        suspend(State::at_barrier);
        return block_->barrier_result;
    }

    // Waits until blocks of the cluster have sent all bytes. `bytes` has the number of those that have not arrived.
    void await_bytes(const void* bytes, int line) {
        if (!is_shared(bytes, 8)) {
            fail("line %d: the mbarrier is not in the block's shared memory", line);
        }
        if (*static_cast<const unsigned*>(bytes) == 0) {
            return;
        }
        Thread& self = *running_;
        self.awaited = bytes;
        self.line = line;
        ++block_->awaiting_bytes;
        suspend(State::awaiting_bytes);
    }

    void cluster_arrive(int line) {
        Thread& self = *running_;
        if (self.arrived_in_cluster) {
            fail("line %d: a thread arrives at the cluster barrier twice without waiting", line);
        }
        self.arrived_in_cluster = true;
    }

    void cluster_wait(int line) {
        Thread& self = *running_;
        if (!self.arrived_in_cluster) {
            fail("line %d: a thread waits at the cluster barrier without having arrived", line);
        }
        if (block_->at_cluster_barrier > 0 && block_->cluster_line != line) {
            fail("threads of one block wait at different cluster barriers (lines %d and %d)", block_->cluster_line, line);
        }
        ++block_->at_cluster_barrier;
        block_->cluster_line = line;
        self.line = line;
        suspend(State::at_cluster_barrier);
    }

    void report_violation(const char* what, int line) { fail("line %d: the thread %s", line, what); }

    const void* cluster_shared(const void* shared, unsigned rank, int line) {
        if (rank >= blocks_.size()) {
            fail("line %d: cluster rank %u in a cluster of %zu blocks", line, rank, blocks_.size());
        }
        const char* const own = dynamic_of(*block_);
        const char* const address = static_cast<const char*>(shared);
        if (address < own || address > own + launch_->shape.shared_bytes) {
            fail("line %d: the address is not in the block's dynamic shared memory", line);
        }
        Block& other = blocks_[rank];
        if (other.finished == thread_count_) {
            fail("line %d: block %u of the cluster has exited; its shared memory is no longer accessible", line, rank);
        }
        return dynamic_of(other) + (address - own);
    }

    void copy_async(void* shared, const void* global, unsigned bytes, bool inside, int line) {
        Thread& self = *running_;
        if (reinterpret_cast<uintptr_t>(shared) % bytes != 0 || reinterpret_cast<uintptr_t>(global) % bytes != 0) {
            fail("line %d: an asynchronous copy of %u bytes with misaligned addresses", line, bytes);
        }
        if (!is_shared(shared, bytes)) {
            fail("line %d: the destination of an asynchronous copy is not in the block's shared memory", line);
        }
        std::memset(shared, 0xff, bytes);
        self.copies.push_back({shared, global, bytes, inside, self.copy_groups});
    }

    void commit_copies() { ++running_->copy_groups; }

    void wait_copies(unsigned pending) {
        Thread& self = *running_;
        size_t kept = 0;
        for (const PendingCopy& copy : self.copies) {
            if (copy.group + pending >= self.copy_groups) {
                self.copies[kept++] = copy;
            } else {
                complete(copy);
            }
        }
        self.copies.resize(kept);
    }

    static void complete(const PendingCopy& copy) {
        if (copy.inside) {
            std::memcpy(copy.shared, copy.global, copy.bytes);
        } else {
            std::memset(copy.shared, 0, copy.bytes);
        }
    }

    void copy_chunk(void* shared, const void* global, unsigned bytes, const void* barrier, int line) {
        const uintptr_t addresses = reinterpret_cast<uintptr_t>(shared) | reinterpret_cast<uintptr_t>(global);
        if ((addresses | bytes) % 16 != 0) {
            fail("line %d: a bulk copy of %u bytes; addresses and size must be multiples of 16", line, bytes);
        }
        if (!is_shared(shared, bytes) || !is_shared(barrier, 8)) {
            fail("line %d: destination or mbarrier of a bulk copy is not in the block's shared memory", line);
        }
        ChunkCopy* copy = chunk_of(barrier);
        if (copy == nullptr) {
            block_->chunks.push_back({barrier, shared, global, bytes, 0, false});
        } else if (copy->arrived) {
            *copy = {barrier, shared, global, bytes, copy->number + 1, false};
        } else {
            fail("line %d: the mbarrier of a bulk copy is still used by an earlier copy that was not awaited", line);
        }
        std::memset(shared, 0xff, bytes);
    }

    void await_chunk(const void* barrier, unsigned parity, int line) {
        ChunkCopy* const copy = chunk_of(barrier);
        if (copy == nullptr || copy->number % 2 != parity) {
            fail("line %d: a thread awaits a bulk copy that was not started", line);
        }
        if (!copy->arrived) {
            std::memcpy(copy->shared, copy->global, copy->bytes);
            copy->arrived = true;
        }
    }

    void init_phases(const void* barrier, unsigned arrivals, int line) {
        if (!is_shared(barrier, 8) || reinterpret_cast<uintptr_t>(barrier) % 8 != 0) {
            fail("line %d: the mbarrier is not in the block's shared memory, or misaligned", line);
        }
        for (const PhaseBarrier& known : block_->phases) {
            if (known.barrier == barrier) fail("line %d: an mbarrier is initialised twice", line);
        }
        block_->phases.push_back({barrier, arrivals, 0, 0, 0, {}, false});
    }

    void arrive(const void* barrier, int line) {
        PhaseBarrier& phases = phases_of(barrier, line);
        if (phases.arrived + phases.late == phases.arrivals) {
            fail("line %d: more threads arrive at an mbarrier than its phase has arrivals", line);
        }
        ++phases.arrived;
        finish_phase(phases);
    }

    void wait_phase(const void* barrier, unsigned phase, int line) {
        Thread& self = *running_;
        for (;;) {
            PhaseBarrier& phases = phases_of(barrier, line);
            if (phase > phases.complete || phase + 1 < phases.complete) {
                fail("line %d: a thread waits for phase %u of an mbarrier, of which %u are complete", line, phase,
                     phases.complete);
            }
            // Copies arrive as late as possible.
            if (phase == phases.complete && phases.arrived + phases.late == phases.arrivals) {
                for (const PendingCopy& copy : phases.copies) complete(copy);
                phases.arrived = phases.arrivals;
                phases.late = 0;
                phases.copies.clear();
                finish_phase(phases);
            }
            if (phase < phases.complete) {
                self.needs_proxy_fence = self.needs_proxy_fence || phases.has_thread_copies;
                return;
            }
            self.awaited = barrier;
            self.line = line;
            suspend(State::at_pipeline_barrier);
        }
    }

    void copy_and_arrive(void* shared, const void* global, unsigned bytes, const void* barrier, int line) {
        const uintptr_t addresses = reinterpret_cast<uintptr_t>(shared) | reinterpret_cast<uintptr_t>(global);
        if ((addresses | bytes) % 16 != 0) {
            fail("line %d: a bulk copy of %u bytes; addresses and size must be multiples of 16", line, bytes);
        }
        if (!is_shared(shared, bytes)) {
            fail("line %d: the destination of a bulk copy is not in the block's shared memory", line);
        }
        PhaseBarrier& phases = phases_of(barrier, line);
        if (phases.arrived + phases.late == phases.arrivals) {
            fail("line %d: a bulk copy starts while the phase of its mbarrier waits for others", line);
        }
        std::memset(shared, 0xff, bytes);
        phases.copies.push_back({shared, global, bytes, true, 0});
        ++phases.late;
        wake(barrier);
    }

    void prefetch_to_l2(const void* global, unsigned bytes, int line) {
        if ((reinterpret_cast<uintptr_t>(global) | bytes) % 16 != 0 || bytes == 0) {
            fail("line %d: a prefetch of %u bytes; address and size must be multiples of 16, and not 0", line, bytes);
        }
        // Memory that the kernel may not read is found like that of a copy.
        static_cast<void>(*static_cast<const volatile char*>(global));
        static_cast<void>(*(static_cast<const volatile char*>(global) + bytes - 1));
    }

    void arrive_when_copied(const void* barrier, int line) {
        Thread& self = *running_;
        PhaseBarrier& phases = phases_of(barrier, line);
        if (phases.arrived + phases.late == phases.arrivals) {
            fail("line %d: more threads arrive at an mbarrier than its phase has arrivals", line);
        }
        phases.copies.insert(phases.copies.end(), self.copies.begin(), self.copies.end());
        self.copies.clear();
        phases.has_thread_copies = true;
        ++phases.late;
        wake(barrier);
    }

    void named_barrier(int id, unsigned threads, int line) {
        if (id < 1 || id > 15 || threads == 0 || threads % 32 != 0 || threads > thread_count_) {
            fail("line %d: named barrier %d of %u threads", line, id, threads);
        }
        Thread& self = *running_;
        NamedBarrier& barrier = block_->named[id];
        if (barrier.arrived == 0) {
            barrier.threads = threads;
        } else if (barrier.threads != threads) {
            fail("line %d: named barrier %d of %u threads, and of %u elsewhere", line, id, threads, barrier.threads);
        }
        if (++barrier.arrived == threads) {
            barrier.arrived = 0;
            wake(&barrier);
            return;
        }
        self.awaited = &barrier;
        self.line = line;
        suspend(State::at_pipeline_barrier);
    }

    void multiply_async(const Product& product, bool accumulates, int line) {
        Thread& self = *running_;
        if (self.warp->live != all_lanes) {
            fail("line %d: a product of a warpgroup without all lanes of the warp", line);
        }
        if (reinterpret_cast<uintptr_t>(product.b) % 16 != 0 ||
            !is_shared(product.b, static_cast<size_t>(16) * (product.pitch + product.columns))) {
            fail("line %d: an operand is misaligned, or not in the block's shared memory", line);
        }
        if (product.row_runs != 0) check_shared_rows(product, line);
        self.products.push_back({product, accumulates, self.product_groups, {}});
        hide_accumulators(self);
    }

    void check_shared_rows(const Product& product, int line) {
        const unsigned* const first = product.a + 4 * product.a_at;
        if (product.a_at % 2 != 0 || !is_shared(first, static_cast<size_t>(256) * product.row_runs)) {
            fail("line %d: rows of a product are misaligned, or not in the block's shared memory", line);
        }
        if (running_->needs_proxy_fence) {
            fail("line %d: a product of rows that were copied, without tdc_fence_async_proxy() since", line);
        }
    }

    void fence_async_proxy() { running_->needs_proxy_fence = false; }

    void commit_products() { ++running_->product_groups; }

    void wait_products(unsigned pending, int line) {
        Thread& self = *running_;
        size_t done = 0;
        for (; done < self.products.size() && self.products[done].group + pending < self.product_groups; ++done) {
            PendingProduct& next = self.products[done];
            const size_t registers = static_cast<size_t>(next.product.columns) / 2;
            if (!next.before.empty()) {
                std::memcpy(next.product.d, next.before.data(), registers * sizeof(float));
            }
            if (!next.accumulates) {
                std::fill_n(next.product.d, registers, 0.0f);
            }
            warp_multiply(next.product, line);
        }
        self.products.erase(self.products.begin(), self.products.begin() + static_cast<ptrdiff_t>(done));
        hide_accumulators(self);
    }

    void warp_multiply(const Product& product, int line) {
        running_->product = product;
        if (running_->warp->live != all_lanes) {
            fail("line %d: an mma instruction without all 32 lanes of the warp", line);
        }
        warp_call(WarpCallKind::multiply, all_lanes, 0, 0, line);
    }

    bool has_clusters() const { return launch_->has_clusters; }

    uint64_t warp_call(WarpCallKind kind, unsigned mask, uint64_t value, int source, int line) {
        Thread& self = *running_;
        if ((mask >> self.lane & 1) == 0) {
            fail("line %d: lane %u calls a warp function with mask 0x%08x, which does not include it", line, self.lane, mask);
        }
        self.call = kind;
        self.mask = mask;
        self.value = value;
        self.source = source & 31;
        self.line = line;
        self.warp->waiting |= 1u << self.lane;
        if (complete_warp_call(self)) {
            // The last thread to arrive does not wait.
            self.state = State::ready;
            --block_->runnable;
        } else {
            suspend(State::in_warp_call);
        }
        return self.result;
    }

    unsigned live_lanes() const { return running_->warp->live; }

    void* dynamic_shared() { return dynamic_of(*block_); }

private:
    static constexpr size_t guard_bytes = 128;
    static constexpr unsigned char guard_byte = 0xfd;
    static constexpr unsigned all_lanes = 0xffffffffu;

    // ---- scheduling ----

    void run_cluster(uint64_t number) {
        fill_dynamic_shared();
        place_blocks(number);
        reset_threads();

        Random random(launch_->seed ^ (number + 1) * 0x2545f4914f6cdd1du);
        size_t running = blocks_.size();
        while (running > 0) {
            if (!choose_block(random)) {
                if (!release_cluster_barrier()) {
                    abandon_stacks();
                    return;
                }
                continue;
            }
            shuffle_order(random);
            if (!run_to_barrier() || !release_barrier()) {
                abandon_stacks();
                return;
            }
            if (block_->finished == thread_count_) {
                close_block();
                --running;
            }
        }
    }

    void place_blocks(uint64_t number) {
        const LaunchShape& shape = launch_->shape;
        const dim3 cluster = shape.cluster;
        const uint64_t columns = shape.grid.x / cluster.x, rows = shape.grid.y / cluster.y;
        const uint3 first{static_cast<unsigned>(number % columns) * cluster.x,
                          static_cast<unsigned>(number / columns % rows) * cluster.y,
                          static_cast<unsigned>(number / columns / rows) * cluster.z};
        for (unsigned rank = 0; rank < blocks_.size(); ++rank) {
            blocks_[rank].index = {first.x + rank % cluster.x, first.y + rank / cluster.x % cluster.y,
                                   first.z + rank / cluster.x / cluster.y};
        }
        block_ = nullptr;
    }

    // Picks a random block that can run, so that blocks advance unevenly. False if none can.
    bool choose_block(Random& random) {
        Block* chosen = nullptr;
        unsigned able = 0;
        for (Block& block : blocks_) {
            resume_after_bytes(block);
            if (block.runnable > 0 && random.below(++able) == 0) {
                chosen = &block;
            }
        }
        if (chosen != nullptr && chosen != block_) {
            block_ = chosen;
            // Static shared memory belongs to the OS thread: the blocks of a cluster must not use it.
            fill_static_shared();
            current_worker = this;
            blockIdx = block_->index;
            gridDim = launch_->shape.grid;
            blockDim = launch_->shape.block;
        }
        return chosen != nullptr;
    }

    // All threads of the block have exited.
    void close_block() {
        const size_t bytes = launch_->shape.shared_bytes;
        if (!guard_intact(0) || !guard_intact(guard_bytes + bytes)) {
            report("write outside its %zu bytes of dynamic shared memory", bytes);
        }
        std::memset(dynamic_of(*block_), 0xff, bytes);
    }

    void reset_threads() {
        const dim3 shape = launch_->shape.block;
        const unsigned warps = (thread_count_ + 31) / 32;
        for (size_t rank = 0; rank < blocks_.size(); ++rank) {
            Block& block = blocks_[rank];
            block.threads = &threads_[rank * thread_count_];
            block.runnable = thread_count_;
            block.finished = 0;
            block.at_cluster_barrier = 0;
            block.awaiting_bytes = 0;
            block.barrier.arrived = 0;
            block.chunks.clear();
            block.phases.clear();
            std::fill(std::begin(block.named), std::end(block.named), NamedBarrier{});
            Warp* const block_warps = &warps_[rank * warps];
            for (unsigned i = 0; i < warps; ++i) {
                block_warps[i] = {&block.threads[32 * i], 0, 0};
            }
            uint3 index{0, 0, 0};
            for (unsigned i = 0; i < thread_count_; ++i) {
                Thread& thread = block.threads[i];
                thread.stack = nullptr;
                thread.index = index;
                thread.lane = i % 32;
                thread.warp = &block_warps[i / 32];
                thread.warp->live |= 1u << thread.lane;
                thread.state = State::not_started;
                thread.arrived_in_cluster = false;
                thread.copies.clear();
                thread.copy_groups = 0;
                thread.products.clear();
                thread.product_groups = 0;
                thread.needs_proxy_fence = false;
                if (++index.x == shape.x) {
                    index.x = 0;
                    if (++index.y == shape.y) {
                        index.y = 0;
                        ++index.z;
                    }
                }
            }
        }
    }

    void shuffle_order(Random& random) {
        for (unsigned i = 0; i < thread_count_; ++i) {
            const unsigned j = random.below(i + 1);
            order_[i] = order_[j];
            order_[j] = i;
        }
    }

    // Runs every thread of the block until it waits at a barrier, has exited, or cannot run. False after a
    // violation.
    bool run_to_barrier() {
        // More than one pass is needed only if lanes waited for each other.
        while (block_->runnable > 0) {
            for (next_ = 0; next_ < thread_count_;) {
                Thread& thread = block_->threads[order_[next_++]];
                if (thread.state != State::not_started && thread.state != State::ready) {
                    continue;
                }
                if (!resume(thread)) {
                    return false;
                }
            }
        }
        return true;
    }

    bool resume(Thread& thread) {
        if (thread.state == State::not_started) {
            thread.stack = stacks_.take();
            if (thread.stack == nullptr) {
                report("out of memory for the stacks of %u threads", thread_count_);
                return false;
            }
            prepare(thread.context, thread.stack, start_thread);
        }
        enter(thread);
        switch_context(own_context_, thread.context);
        // A fiber takes over further threads, so the thread that switches back may be a different one.
        Thread& stopped = *running_;
        if (stopped.state == State::finished) {
            stacks_.give_back(stopped.stack);
            stopped.stack = nullptr;
        }
        return stopped.state != State::illegal;
    }

    void enter(Thread& thread) {
        --block_->runnable;
        running_ = &thread;
        threadIdx = thread.index;
    }

    // The running thread has exited.
    void retire(Thread& thread) {
        if (!StackPool::intact(thread.stack)) {
            report("thread (%u,%u,%u) overflows its stack of %zu KiB", thread.index.x, thread.index.y, thread.index.z,
                   stack_bytes >> 10);
            thread.state = State::illegal;
            return;
        }
        if (thread.arrived_in_cluster) {
            report("thread (%u,%u,%u) exits between arrive and wait of a cluster barrier", thread.index.x, thread.index.y,
                   thread.index.z);
            thread.state = State::illegal;
            return;
        }
        thread.state = State::finished;
        ++block_->finished;
        Warp& warp = *thread.warp;
        warp.live &= ~(1u << thread.lane);
        // Other lanes may have waited for this one only.
        for (unsigned lane = 0; warp.waiting != 0 && lane < 32; ++lane) {
            if ((warp.waiting >> lane & 1) != 0) {
                complete_warp_call(warp.threads[lane]);
            }
        }
    }

    // No thread of the block can run: opens the barrier if all threads have arrived. False after a violation.
    bool release_barrier() {
        Block& block = *block_;
        if (block.finished == thread_count_) {
            return true;
        }
        Barrier& barrier = block.barrier;
        const unsigned arrived = barrier.arrived;
        const unsigned in_warp_calls = thread_count_ - block.finished - arrived - block.at_cluster_barrier;
        if (block.awaiting_bytes > 0) {
            return true;  // the other blocks of the cluster must run first
        }
        if (const int line = line_of(State::at_pipeline_barrier); line != 0) {
            report("deadlock: threads wait for a barrier of a pipeline (line %d) at which no thread arrives", line);
            return false;
        }
        if (in_warp_calls > 0) {
            report("deadlock: %u threads wait in a warp function (line %d), %u at a barrier (line %d), %u have exited",
                   in_warp_calls, line_of(State::in_warp_call), arrived + block.at_cluster_barrier,
                   line_of(arrived > 0 ? State::at_barrier : State::at_cluster_barrier), block.finished);
            return false;
        }
        if (arrived > 0 && block.at_cluster_barrier > 0) {
            report("deadlock: %u threads wait at the barrier in line %d, %u at the cluster barrier in line %d", arrived,
                   barrier.line, block.at_cluster_barrier, block.cluster_line);
            return false;
        }
        if (block.finished > 0) {
            report("the barrier in line %d was reached by %u of %u threads; the others have exited",
                   arrived > 0 ? barrier.line : block.cluster_line, arrived + block.at_cluster_barrier, thread_count_);
            return false;
        }
        if (arrived == 0) {
            return true;  // the other blocks of the cluster must run first
        }
        switch (barrier.kind) {
            case BarrierKind::plain: block.barrier_result = 0; break;
            case BarrierKind::any: block.barrier_result = barrier.votes > 0; break;
            case BarrierKind::all: block.barrier_result = barrier.votes == arrived; break;
            case BarrierKind::count: block.barrier_result = static_cast<int>(barrier.votes); break;
        }
        barrier.arrived = 0;
        make_ready(block);
        return true;
    }

    // Makes the threads of a block ready whose bytes have arrived.
    void resume_after_bytes(Block& block) {
        for (unsigned i = 0; block.awaiting_bytes > 0 && i < thread_count_; ++i) {
            Thread& thread = block.threads[i];
            if (thread.state == State::awaiting_bytes && *static_cast<const unsigned*>(thread.awaited) == 0) {
                thread.state = State::ready;
                ++block.runnable;
                --block.awaiting_bytes;
            }
        }
    }

    // No block can run: opens the cluster barrier if no thread has exited. False if one has.
    bool release_cluster_barrier() {
        unsigned waiting = 0;
        Block* some = nullptr;
        for (Block& block : blocks_) {
            if (block.awaiting_bytes > 0) {
                block_ = &block;
                report_missing_bytes();
                return false;
            }
            waiting += block.at_cluster_barrier;
            some = block.at_cluster_barrier > 0 ? &block : some;
        }
        if (waiting < threads_.size()) {
            block_ = some;
            report("the cluster barrier in line %d was reached by %u of %zu threads; the others have exited",
                   block_->cluster_line, waiting, threads_.size());
            return false;
        }
        for (Block& block : blocks_) {
            block.at_cluster_barrier = 0;
            make_ready(block);
        }
        for (Thread& thread : threads_) {
            thread.arrived_in_cluster = false;
        }
        return true;
    }

    // The block waits for bytes that do not arrive.
    void report_missing_bytes() {
        for (unsigned i = 0; i < thread_count_; ++i) {
            const Thread& thread = block_->threads[i];
            if (thread.state == State::awaiting_bytes) {
                report("deadlock: line %d waits for %u bytes that no block sends", thread.line,
                       *static_cast<const unsigned*>(thread.awaited));
                return;
            }
        }
    }

    // Completes the phase if all have arrived.
    void finish_phase(PhaseBarrier& phases) {
        if (phases.arrived == phases.arrivals) {
            phases.arrived = 0;
            ++phases.complete;
            wake(phases.barrier);
        }
    }

    PhaseBarrier& phases_of(const void* barrier, int line) {
        for (PhaseBarrier& known : block_->phases) {
            if (known.barrier == barrier) return known;
        }
        fail("line %d: the mbarrier was not initialised", line);
        __builtin_unreachable();
    }

    // Makes the threads that wait at a barrier of a pipeline ready.
    void wake(const void* barrier) {
        for (unsigned i = 0; i < thread_count_; ++i) {
            Thread& thread = block_->threads[i];
            if (thread.state == State::at_pipeline_barrier && thread.awaited == barrier) {
                thread.state = State::ready;
                ++block_->runnable;
            }
        }
    }

    // Replaces the accumulators of pending products by NaNs, and keeps their values.
    void hide_accumulators(Thread& thread) {
        for (size_t i = 0; i < thread.products.size(); ++i) {
            PendingProduct& pending = thread.products[i];
            float* const d = pending.product.d;
            bool hidden = !pending.before.empty();
            for (size_t earlier = 0; earlier < i; ++earlier) {
                hidden = hidden || thread.products[earlier].product.d == d;
            }
            if (!hidden) {
                const size_t registers = static_cast<size_t>(pending.product.columns) / 2;
                pending.before.assign(d, d + registers);
                std::memset(d, 0xff, registers * sizeof(float));
            }
        }
    }

    void make_ready(Block& block) {
        for (unsigned i = 0; i < thread_count_; ++i) {
            block.threads[i].state = State::ready;
        }
        block.runnable = thread_count_;
    }

    // The line of some thread of the block in that state.
    int line_of(State state) const {
        for (unsigned i = 0; i < thread_count_; ++i) {
            if (block_->threads[i].state == state) {
                return block_->threads[i].line;
            }
        }
        return 0;
    }

    // If all live lanes in the mask of `caller` wait in the same call, sets their results and makes them
    // ready.
    bool complete_warp_call(const Thread& caller) {
        Warp& warp = *caller.warp;
        const unsigned lanes = caller.mask & warp.live;
        // A product needs all lanes, the other calls only the live ones.
        if ((warp.waiting & lanes) != lanes || (caller.call == WarpCallKind::multiply && lanes != all_lanes)) {
            return false;
        }
        unsigned votes = 0;
        for (unsigned lane = 0; lane < 32; ++lane) {
            if ((lanes >> lane & 1) == 0) {
                continue;
            }
            const Thread& thread = warp.threads[lane];
            if (thread.call != caller.call || thread.mask != caller.mask || thread.line != caller.line) {
                return false;
            }
            votes |= static_cast<unsigned>(thread.value != 0) << lane;
        }
        if (caller.call == WarpCallKind::multiply) {
            Product products[32];
            for (unsigned lane = 0; lane < 32; ++lane) {
                products[lane] = warp.threads[lane].product;
            }
            multiply(products);
        }
        for (unsigned lane = 0; lane < 32; ++lane) {
            if ((lanes >> lane & 1) == 0) {
                continue;
            }
            Thread& thread = warp.threads[lane];
            if (thread.call == WarpCallKind::vote) {
                thread.result = votes;
            } else {
                // The value of a lane that does not take part is undefined: NaN bits.
                const bool given = (lanes >> thread.source & 1) != 0;
                thread.result = given ? warp.threads[thread.source].value : ~uint64_t{0};
            }
            thread.state = State::ready;
            ++block_->runnable;
        }
        warp.waiting &= ~lanes;
        return true;
    }

    // ---- on a fiber ----

    static void start_thread() {
        Worker& worker = *current_worker;
        arrived_on_new_fiber(worker.own_context_);
        // A thread that never waits passes its stack on to the next one, which saves two switches: all
        // threads of a kernel without barriers run in this loop.
        do {
            worker.launch_->call.run();
            worker.retire(*worker.running_);
        } while (worker.take_over_next());
        switch_context(worker.running_->context, worker.own_context_, true);
        __builtin_unreachable();
    }

    // Lets the running fiber, whose thread has exited, run the next thread in order. False if that one has a
    // stack.
    bool take_over_next() {
        Thread& done = *running_;
        if (done.state != State::finished || next_ == thread_count_ ||
            block_->threads[order_[next_]].state != State::not_started) {
            return false;
        }
        Thread& thread = block_->threads[order_[next_++]];
        thread.context.stack = done.context.stack;
        thread.context.bytes = done.context.bytes;
        thread.stack = done.stack;
        done.stack = nullptr;
        enter(thread);
        return true;
    }

    void suspend(State state) {
        Thread& self = *running_;
        self.state = state;
        switch_context(self.context, own_context_);
    }

    // Reports a violation and stops the running fiber for good.
    template <class... Args>
    void fail(const char* format, Args... args) {
        report(format, args...);
        suspend(State::illegal);
    }

    // ---- memory and messages ----

    static char* dynamic_of(Block& block) { return reinterpret_cast<char*>(block.shared.data()) + guard_bytes; }

    void fill_dynamic_shared() {
        const size_t bytes = launch_->shape.shared_bytes;
        for (Block& block : blocks_) {
            char* dynamic = dynamic_of(block);
            std::memset(dynamic - guard_bytes, guard_byte, guard_bytes);
            std::memset(dynamic, 0xff, bytes);
            std::memset(dynamic + bytes, guard_byte, guard_bytes);
        }
    }

    // This also overwrites CUDA's built-in variables and `current_worker`, which the caller sets next.
    void fill_static_shared() {
        if (tls_.begin != nullptr) {
            std::memset(tls_.begin, 0xff, tls_.bytes);
        }
    }

    ChunkCopy* chunk_of(const void* barrier) {
        for (ChunkCopy& copy : block_->chunks) {
            if (copy.barrier == barrier) return &copy;
        }
        return nullptr;
    }

    bool is_shared(const void* address, size_t bytes) const {
        const auto inside = [=](const char* begin, size_t size) {
            const char* const first = static_cast<const char*>(address);
            return first >= begin && first + bytes <= begin + size;
        };
        // If the segment is unknown, any address may be in a static array.
        return tls_.begin == nullptr || inside(dynamic_of(*block_), launch_->shape.shared_bytes) || inside(tls_.begin, tls_.bytes);
    }

    bool guard_intact(size_t offset) const {
        const unsigned char* guard = reinterpret_cast<const unsigned char*>(block_->shared.data()) + offset;
        for (size_t i = 0; i < guard_bytes; ++i) {
            if (guard[i] != guard_byte) {
                return false;
            }
        }
        return true;
    }

    void abandon_stacks() {
        for (Thread& thread : threads_) {
            if (thread.stack != nullptr) {
                stacks_.abandon(thread.stack);
                thread.stack = nullptr;
            }
        }
    }

    template <class... Args>
    void report(const char* format, Args... args) {
        char text[256];
        const int length = std::snprintf(text, sizeof text, "block (%u,%u,%u): ", block_->index.x, block_->index.y,
                                         block_->index.z);
        std::snprintf(text + length, sizeof text - static_cast<size_t>(length), format, args...);
        launch_->fail(text);
    }

    Launch* launch_ = nullptr;
    Context own_context_;
    Thread* running_ = nullptr;
    Block* block_ = nullptr;     // the block whose threads run
    unsigned thread_count_ = 0;  // threads of a block
    unsigned next_ = 0;          // position in order_
    std::vector<Block> blocks_;  // blocks of the cluster
    std::vector<Thread> threads_;
    std::vector<Warp> warps_;
    std::vector<unsigned> order_;
    StackPool stacks_;
    TlsSegment tls_;
};

// Workers that are not used by a launch.
class WorkerPool {
public:
    std::unique_ptr<Worker> take() {
        const std::lock_guard<std::mutex> guard(lock_);
        if (idle_.empty()) {
            return std::make_unique<Worker>();
        }
        std::unique_ptr<Worker> worker = std::move(idle_.back());
        idle_.pop_back();
        return worker;
    }

    void give_back(std::unique_ptr<Worker> worker) {
        const std::lock_guard<std::mutex> guard(lock_);
        idle_.push_back(std::move(worker));
    }

private:
    std::mutex lock_;
    std::vector<std::unique_ptr<Worker>> idle_;
};

inline WorkerPool idle_workers;

// Runs a launch. Returns the violation, or an empty string.
inline std::string run_launch(const KernelCall& call, const LaunchShape& shape) {
    const uint64_t seed = environment_number("TDC_CPU_SEED", 1);
    const dim3 grid = shape.grid, cluster = shape.cluster;
    const uint64_t clusters = uint64_t{grid.x / cluster.x} * (grid.y / cluster.y) * (grid.z / cluster.z);
    Launch launch{call, shape, device_has_clusters(), seed, BlockOrder(clusters, seed), {}, {}, {}, {}};

    uint64_t count = environment_number("TDC_CPU_THREADS", std::thread::hardware_concurrency());
    count = count < 1 ? 1 : count < clusters ? count : clusters;
    // The calling thread runs no blocks, because its thread-local variables must be preserved.
    std::vector<std::thread> os_threads;
    const auto work = [&launch] {
        std::unique_ptr<Worker> worker = idle_workers.take();
        worker->run(launch);
        idle_workers.give_back(std::move(worker));
    };
    try {
        for (uint64_t i = 0; i < count; ++i) {
            os_threads.emplace_back(work);
        }
    } catch (const std::system_error&) {
        // Fewer threads are enough, but at least one is needed.
        if (os_threads.empty()) {
            launch.fail("cannot create an OS thread to run blocks on");
        }
    }
    for (std::thread& os_thread : os_threads) {
        os_thread.join();
    }
    return launch.message;
}

TDC_CPU_ENGINE int block_barrier(BarrierKind kind, bool predicate, int line) {
    return current_worker->block_barrier(kind, predicate, line);
}

TDC_CPU_ENGINE uint64_t warp_call(WarpCallKind kind, unsigned mask, uint64_t value, int source, int line) {
    return current_worker->warp_call(kind, mask, value, source, line);
}

TDC_CPU_ENGINE unsigned live_lanes() { return current_worker->live_lanes(); }

TDC_CPU_ENGINE void* dynamic_shared() { return current_worker->dynamic_shared(); }

TDC_CPU_ENGINE void copy_async(void* shared, const void* global, unsigned bytes, bool inside, int line) {
    current_worker->copy_async(shared, global, bytes, inside, line);
}

TDC_CPU_ENGINE void commit_copies() { current_worker->commit_copies(); }

TDC_CPU_ENGINE void wait_copies(unsigned pending) { current_worker->wait_copies(pending); }

TDC_CPU_ENGINE void copy_chunk(void* shared, const void* global, unsigned bytes, const void* barrier, int line) {
    current_worker->copy_chunk(shared, global, bytes, barrier, line);
}

TDC_CPU_ENGINE void await_chunk(const void* barrier, unsigned parity, int line) {
    current_worker->await_chunk(barrier, parity, line);
}

TDC_CPU_ENGINE void init_phases(const void* barrier, unsigned arrivals, int line) {
    current_worker->init_phases(barrier, arrivals, line);
}

TDC_CPU_ENGINE void arrive(const void* barrier, int line) { current_worker->arrive(barrier, line); }

TDC_CPU_ENGINE void wait_phase(const void* barrier, unsigned phase, int line) {
    current_worker->wait_phase(barrier, phase, line);
}

TDC_CPU_ENGINE void copy_and_arrive(void* shared, const void* global, unsigned bytes, const void* barrier, int line) {
    current_worker->copy_and_arrive(shared, global, bytes, barrier, line);
}

TDC_CPU_ENGINE void prefetch_to_l2(const void* global, unsigned bytes, int line) {
    current_worker->prefetch_to_l2(global, bytes, line);
}

TDC_CPU_ENGINE void arrive_when_copied(const void* barrier, int line) {
    current_worker->arrive_when_copied(barrier, line);
}

TDC_CPU_ENGINE void named_barrier(int id, unsigned threads, int line) { current_worker->named_barrier(id, threads, line); }

TDC_CPU_ENGINE void multiply_async(MatrixKind kind, float* d, const unsigned* a, const void* b, int columns, int pitch,
                                   bool accumulates, int line) {
    current_worker->multiply_async({kind, d, a, static_cast<const unsigned*>(b), columns, pitch}, accumulates, line);
}

TDC_CPU_ENGINE void multiply_shared_async(MatrixKind kind, float* d, const void* shared, int at, int row_runs,
                                          const void* b, int columns, int pitch, bool accumulates, int line) {
    const auto* const words = static_cast<const unsigned*>(shared);
    current_worker->multiply_async(
        {kind, d, words, static_cast<const unsigned*>(b), columns, pitch, row_runs, at}, accumulates, line);
}

TDC_CPU_ENGINE void fence_async_proxy() { current_worker->fence_async_proxy(); }

TDC_CPU_ENGINE void commit_products() { current_worker->commit_products(); }

TDC_CPU_ENGINE void wait_products(unsigned pending, int line) { current_worker->wait_products(pending, line); }

TDC_CPU_ENGINE bool has_clusters() { return current_worker->has_clusters(); }

TDC_CPU_ENGINE void await_bytes(const void* bytes, int line) { current_worker->await_bytes(bytes, line); }

TDC_CPU_ENGINE void cluster_arrive(int line) { current_worker->cluster_arrive(line); }

TDC_CPU_ENGINE void cluster_wait(int line) { current_worker->cluster_wait(line); }

TDC_CPU_ENGINE void report_violation(const char* what, int line) { current_worker->report_violation(what, line); }

TDC_CPU_ENGINE const void* cluster_shared(const void* shared, unsigned rank, int line) {
    return current_worker->cluster_shared(shared, rank, line);
}

TDC_CPU_ENGINE void warp_multiply(MatrixKind kind, float* d, const unsigned* a, const unsigned* b, int line) {
    current_worker->warp_multiply({kind, d, a, b, 8, 0}, line);
}

}  // namespace tdc_cpu
