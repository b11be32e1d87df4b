// Runs the blocks of a launch: every CUDA thread is a fiber, every OS thread carries one block at a time.
#pragma once

#include "execution.h"
#include "fibers.h"

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

// Every translation unit may define the engine; the linker keeps one.
#define TDC_CPU_ENGINE __attribute__((weak))

namespace tdc_cpu {

// ---- seeds -------------------------------------------------------------------------------------------------------------------

// SplitMix64: a small generator whose streams for neighbouring seeds have nothing in common.
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

// A walk over 0..count in an order that depends on the seed, without storing it: i -> (i * step + start) mod count.
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
// clang links the sanitizer's runtime, and with it its thread-local state, into the program's own segment.
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

struct Launch {
    const KernelCall& call;
    dim3 grid;
    dim3 block;
    size_t shared_bytes;
    uint64_t seed;
    BlockOrder order;
    std::atomic<uint64_t> next_block{0};
    std::atomic<bool> failed{false};
    std::mutex message_lock;
    std::string message;

    uint64_t blocks() const { return static_cast<uint64_t>(grid.x) * grid.y * grid.z; }

    // Keeps the first message and stops the others.
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
    in_warp_call,
    finished,
    illegal,  // has broken a rule; never goes on
};

struct Warp;

// One CUDA thread.
struct Thread {
    Context context;
    char* stack;
    uint3 index;
    unsigned lane;
    Warp* warp;
    State state;
    // The call it waits in.
    int line;
    WarpCallKind call;
    unsigned mask;
    int source;
    uint64_t value;
    // What the call gives back.
    uint64_t result;
};

struct Warp {
    Thread* threads;
    unsigned live;
    unsigned waiting;
};

class Worker;
inline thread_local Worker* current_worker = nullptr;

// What one OS thread needs to run blocks. Kept for later launches, as stacks are worth keeping.
class Worker {
public:
    void run(Launch& launch) {
        launch_ = &launch;
        thread_count_ = launch.block.x * launch.block.y * launch.block.z;
        threads_.resize(thread_count_);
        warps_.resize((thread_count_ + 31) / 32);
        order_.resize(thread_count_);
        shared_.resize((launch.shared_bytes + 2 * guard_bytes) / sizeof(SharedUnit) + 1);
        // Touches the segment, so that it exists for this OS thread.
        current_worker = this;
        tls_ = tls_segment_of(&current_worker);
        while (!launch.failed) {
            const uint64_t next = launch.next_block++;
            if (next >= launch.blocks()) {
                break;
            }
            run_block(launch.order[next]);
        }
        current_worker = nullptr;
    }

    int block_barrier(BarrierKind kind, bool predicate, int line) {
        Thread& self = *running_;
        if (barrier_.arrived == 0) {
            barrier_ = {kind, line, 0, 0};
        } else if (barrier_.kind != kind || barrier_.line != line) {
            fail("threads of one block wait at different barriers, in lines %d and %d", barrier_.line, line);
        }
        ++barrier_.arrived;
        barrier_.votes += predicate;
        self.line = line;
        suspend(State::at_barrier);
        return barrier_result_;
    }

    uint64_t warp_call(WarpCallKind kind, unsigned mask, uint64_t value, int source, int line) {
        Thread& self = *running_;
        if ((mask >> self.lane & 1) == 0) {
            fail("line %d: lane %u calls a warp function with mask 0x%08x, which does not name it", line, self.lane, mask);
        }
        self.call = kind;
        self.mask = mask;
        self.value = value;
        self.source = source & 31;
        self.line = line;
        self.warp->waiting |= 1u << self.lane;
        if (complete_warp_call(self)) {
            // The last to come need not stop.
            self.state = State::ready;
            --runnable_;
        } else {
            suspend(State::in_warp_call);
        }
        return self.result;
    }

    unsigned live_lanes() const { return running_->warp->live; }

    void* dynamic_shared() { return reinterpret_cast<char*>(shared_.data()) + guard_bytes; }

private:
    struct alignas(128) SharedUnit {
        char bytes[128];
    };
    static constexpr size_t guard_bytes = 128;
    static constexpr unsigned char guard_byte = 0xfd;

    struct Barrier {
        BarrierKind kind;
        int line;
        unsigned arrived;
        unsigned votes;
    };

    // ---- scheduling ----

    void run_block(uint64_t number) {
        const dim3 grid = launch_->grid;
        const uint3 block{static_cast<unsigned>(number % grid.x), static_cast<unsigned>(number / grid.x % grid.y),
                          static_cast<unsigned>(number / grid.x / grid.y)};
        fill_shared_memory();
        current_worker = this;
        blockIdx = block_ = block;
        gridDim = grid;
        blockDim = launch_->block;
        reset_threads();

        Random random(launch_->seed ^ (number + 1) * 0x2545f4914f6cdd1du);
        while (finished_ < thread_count_) {
            shuffle_order(random);
            if (!run_to_barrier() || !release_barrier()) {
                abandon_stacks();
                return;
            }
        }
        if (!guard_intact(0) || !guard_intact(guard_bytes + launch_->shared_bytes)) {
            report("wrote outside of its %zu bytes of dynamic shared memory", launch_->shared_bytes);
        }
    }

    void reset_threads() {
        const dim3 block = launch_->block;
        for (size_t i = 0; i < warps_.size(); ++i) {
            warps_[i] = {&threads_[32 * i], 0, 0};
        }
        uint3 index{0, 0, 0};
        for (unsigned i = 0; i < thread_count_; ++i) {
            Thread& thread = threads_[i];
            thread.stack = nullptr;
            thread.index = index;
            thread.lane = i % 32;
            thread.warp = &warps_[i / 32];
            thread.warp->live |= 1u << thread.lane;
            thread.state = State::not_started;
            if (++index.x == block.x) {
                index.x = 0;
                if (++index.y == block.y) {
                    index.y = 0;
                    ++index.z;
                }
            }
        }
        runnable_ = thread_count_;
        finished_ = 0;
        barrier_.arrived = 0;
    }

    void shuffle_order(Random& random) {
        for (unsigned i = 0; i < thread_count_; ++i) {
            const unsigned j = random.below(i + 1);
            order_[i] = order_[j];
            order_[j] = i;
        }
    }

    // Runs every thread until it waits at a barrier, has finished, or cannot go on. False when a rule was broken.
    bool run_to_barrier() {
        // More than one pass is needed only when lanes have waited for each other.
        while (runnable_ > 0) {
            for (next_ = 0; next_ < thread_count_;) {
                Thread& thread = threads_[order_[next_++]];
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
                report("no memory for the stacks of %u threads", thread_count_);
                return false;
            }
            prepare(thread.context, thread.stack, start_thread);
        }
        enter(thread);
        switch_context(own_context_, thread.context);
        // Fibers take over further threads, so it need not be the same one that comes back.
        Thread& stopped = *running_;
        if (stopped.state == State::finished) {
            stacks_.give_back(stopped.stack);
            stopped.stack = nullptr;
        }
        return stopped.state != State::illegal;
    }

    void enter(Thread& thread) {
        --runnable_;
        running_ = &thread;
        threadIdx = thread.index;
    }

    // The running thread has returned.
    void retire(Thread& thread) {
        if (!StackPool::intact(thread.stack)) {
            report("thread (%u,%u,%u) needs more than %zu KiB of stack", thread.index.x, thread.index.y, thread.index.z,
                   stack_bytes >> 10);
            thread.state = State::illegal;
            return;
        }
        thread.state = State::finished;
        ++finished_;
        Warp& warp = *thread.warp;
        warp.live &= ~(1u << thread.lane);
        // Others may have waited for this lane only.
        for (unsigned lane = 0; warp.waiting != 0 && lane < 32; ++lane) {
            if ((warp.waiting >> lane & 1) != 0) {
                complete_warp_call(warp.threads[lane]);
            }
        }
    }

    // Nobody can run: lets the threads at the barrier go on, if all are there. False when a rule was broken.
    bool release_barrier() {
        if (finished_ == thread_count_) {
            return true;
        }
        const unsigned arrived = barrier_.arrived;
        const unsigned in_warp_calls = thread_count_ - finished_ - arrived;
        if (in_warp_calls > 0) {
            report("deadlock: %u threads wait in a warp function (line %d), %u at a barrier (line %d), %u have returned",
                   in_warp_calls, line_of(State::in_warp_call), arrived, line_of(State::at_barrier), finished_);
            return false;
        }
        if (finished_ > 0) {
            report("the barrier in line %d was reached by %u of %u threads, the others have returned", barrier_.line, arrived,
                   thread_count_);
            return false;
        }
        switch (barrier_.kind) {
            case BarrierKind::plain: barrier_result_ = 0; break;
            case BarrierKind::any: barrier_result_ = barrier_.votes > 0; break;
            case BarrierKind::all: barrier_result_ = barrier_.votes == arrived; break;
            case BarrierKind::count: barrier_result_ = static_cast<int>(barrier_.votes); break;
        }
        for (Thread& thread : threads_) {
            thread.state = State::ready;
        }
        runnable_ = thread_count_;
        barrier_.arrived = 0;
        return true;
    }

    int line_of(State state) const {
        for (const Thread& thread : threads_) {
            if (thread.state == state) {
                return thread.line;
            }
        }
        return 0;
    }

    // If all live lanes that `caller` names wait in the same call, gives each its result and makes it ready.
    bool complete_warp_call(const Thread& caller) {
        Warp& warp = *caller.warp;
        const unsigned lanes = caller.mask & warp.live;
        if ((warp.waiting & lanes) != lanes) {
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
        for (unsigned lane = 0; lane < 32; ++lane) {
            if ((lanes >> lane & 1) == 0) {
                continue;
            }
            Thread& thread = warp.threads[lane];
            if (thread.call == WarpCallKind::vote) {
                thread.result = votes;
            } else {
                // A lane that does not take part has nothing to give: NaN bits.
                const bool given = (lanes >> thread.source & 1) != 0;
                thread.result = given ? warp.threads[thread.source].value : ~uint64_t{0};
            }
            thread.state = State::ready;
            ++runnable_;
        }
        warp.waiting &= ~lanes;
        return true;
    }

    // ---- on a fiber ----

    static void start_thread() {
        Worker& worker = *current_worker;
        arrived_on_new_fiber(worker.own_context_);
        // A thread that never waits leaves its stack to the next one, which saves two switches: kernels without barriers run
        // all their threads in this loop.
        do {
            worker.launch_->call.run();
            worker.retire(*worker.running_);
        } while (worker.take_over_next());
        switch_context(worker.running_->context, worker.own_context_, true);
        __builtin_unreachable();
    }

    // Lets the running fiber, whose thread has returned, carry the next thread in order. False when that one has a stack.
    bool take_over_next() {
        Thread& done = *running_;
        if (done.state != State::finished || next_ == thread_count_ || threads_[order_[next_]].state != State::not_started) {
            return false;
        }
        Thread& thread = threads_[order_[next_++]];
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

    // Reports and stops the running fiber for good.
    template <class... Args>
    void fail(const char* format, Args... args) {
        report(format, args...);
        suspend(State::illegal);
    }

    // ---- memory and messages ----

    void fill_shared_memory() {
        char* dynamic = reinterpret_cast<char*>(shared_.data());
        std::memset(dynamic, guard_byte, guard_bytes);
        std::memset(dynamic + guard_bytes, 0xff, launch_->shared_bytes);
        std::memset(dynamic + guard_bytes + launch_->shared_bytes, guard_byte, guard_bytes);
        // This also wipes CUDA's built-in variables and `current_worker`, which the caller sets next.
        if (tls_.begin != nullptr) {
            std::memset(tls_.begin, 0xff, tls_.bytes);
        }
    }

    bool guard_intact(size_t offset) const {
        const unsigned char* guard = reinterpret_cast<const unsigned char*>(shared_.data()) + offset;
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
        const int length = std::snprintf(text, sizeof text, "block (%u,%u,%u): ", block_.x, block_.y, block_.z);
        std::snprintf(text + length, sizeof text - static_cast<size_t>(length), format, args...);
        launch_->fail(text);
    }

    Launch* launch_ = nullptr;
    Context own_context_;
    Thread* running_ = nullptr;
    uint3 block_{};
    unsigned thread_count_ = 0;
    unsigned next_ = 0;      // position in order_
    unsigned runnable_ = 0;  // threads not started or ready
    unsigned finished_ = 0;
    Barrier barrier_{};
    int barrier_result_ = 0;
    std::vector<Thread> threads_;
    std::vector<Warp> warps_;
    std::vector<unsigned> order_;
    std::vector<SharedUnit> shared_;
    StackPool stacks_;
    TlsSegment tls_;
};

// Workers that no launch uses at the moment.
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

// Runs a whole launch. Returns what went wrong, or nothing.
inline std::string run_launch(const KernelCall& call, dim3 grid, dim3 block, size_t shared_bytes) {
    const uint64_t seed = environment_number("TDC_CPU_SEED", 1);
    const uint64_t blocks = static_cast<uint64_t>(grid.x) * grid.y * grid.z;
    Launch launch{call, grid, block, shared_bytes, seed, BlockOrder(blocks, seed), {}, {}, {}, {}};

    uint64_t count = environment_number("TDC_CPU_THREADS", std::thread::hardware_concurrency());
    count = count < 1 ? 1 : count < blocks ? count : blocks;
    // The calling thread carries no blocks: its own thread-local variables must survive.
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
        // Fewer threads will do, but one is needed.
        if (os_threads.empty()) {
            launch.fail("the system gives no thread to run blocks on");
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

}  // namespace tdc_cpu
