// Fibers: stacks, and switching between them on the same OS thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <sys/mman.h>
#include <vector>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TDC_CPU_ASAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define TDC_CPU_ASAN 1
#endif
#if defined(TDC_CPU_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

// This switch is four times as fast as ucontext, which makes system calls to save the signal mask.
#if !defined(__x86_64__) || !defined(__ELF__)
#define TDC_CPU_UCONTEXT 1
#endif
#if defined(TDC_CPU_UCONTEXT)
#include <ucontext.h>
#endif

#if !defined(TDC_CPU_UCONTEXT)
// Pushes the callee-saved registers onto the current stack, stores the stack pointer in *save, and pops them
// from `load`.
extern "C" void tdc_cpu_switch_stack(void** save, void* load);
asm(R"(
    .text
    .weak tdc_cpu_switch_stack
    .hidden tdc_cpu_switch_stack
    .type tdc_cpu_switch_stack, @function
tdc_cpu_switch_stack:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size tdc_cpu_switch_stack, . - tdc_cpu_switch_stack
)");
#endif

namespace tdc_cpu {

// Instrumented frames are several times as large.
#if defined(TDC_CPU_ASAN)
inline constexpr size_t stack_bytes = 512 << 10;
#else
inline constexpr size_t stack_bytes = 64 << 10;
#endif
// A gap and the stack above it.
inline constexpr size_t gap_bytes = stack_bytes;
inline constexpr size_t stack_distance = gap_bytes + stack_bytes;

// A context to resume: an OS thread's own stack, or a fiber that is not running.
struct Context {
#if defined(TDC_CPU_UCONTEXT)
    ucontext_t state;
#else
    void* stack_pointer = nullptr;
#endif
    // The bounds of the stack, for the address sanitizer.
    const void* stack = nullptr;
    size_t bytes = 0;
    void* fake_stack = nullptr;
};

// Makes `context` start `entry` on `stack`. `entry` must never return.
inline void prepare(Context& context, char* stack, void (*entry)()) {
    context.stack = stack;
    context.bytes = stack_bytes;
    context.fake_stack = nullptr;
#if defined(TDC_CPU_UCONTEXT)
    getcontext(&context.state);
    context.state.uc_stack.ss_sp = stack;
    context.state.uc_stack.ss_size = stack_bytes;
    context.state.uc_link = nullptr;
    makecontext(&context.state, entry, 0);
#else
    // Stacks are a power of two apart. With equal offsets their most used ends would map to the same cache
    // sets.
    const size_t colour = reinterpret_cast<uintptr_t>(stack) / stack_distance % 32 * 192;
    void** top = reinterpret_cast<void**>(stack + stack_bytes - colour);
    *--top = nullptr;                                // return address of `entry`; keeps the stack aligned as after a call
    *--top = reinterpret_cast<void*>(entry);         // where the switch's `ret` goes
    for (int saved_register = 0; saved_register < 6; ++saved_register) {
        *--top = nullptr;
    }
    context.stack_pointer = top;
#endif
}

// Must be called first on a new fiber: stores the bounds of the stack from which it was started.
inline void arrived_on_new_fiber(Context& from) {
#if defined(TDC_CPU_ASAN)
    __sanitizer_finish_switch_fiber(nullptr, &from.stack, &from.bytes);
#else
    (void)from;
#endif
}

// Resumes `to`. Returns when a fiber switches to `from`, which never happens if this is the `last` switch.
inline void switch_context(Context& from, Context& to, bool last = false) {
#if defined(TDC_CPU_ASAN)
    __sanitizer_start_switch_fiber(last ? nullptr : &from.fake_stack, to.stack, to.bytes);
#else
    (void)last;
#endif
#if defined(TDC_CPU_UCONTEXT)
    swapcontext(&from.state, &to.state);
#else
    tdc_cpu_switch_stack(&from.stack_pointer, to.stack_pointer);
#endif
#if defined(TDC_CPU_ASAN)
    __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
#endif
}

// A pool of stacks; the one that was returned last is reused first, because it is still in the cache.
//
// Below each stack there is a gap of the same size. A stack that overflows by no more than that damages no other one, so that the overflow
// can be reported. Gaps that nothing has touched take no memory.
class StackPool {
public:
    StackPool() = default;
    StackPool(const StackPool&) = delete;
    StackPool& operator=(const StackPool&) = delete;

    ~StackPool() {
        for (char* slab : slabs_) {
            munmap(slab, slab_bytes);
        }
    }

    // Null when there is no memory.
    char* take() {
        if (free_.empty() && !grow()) {
            return nullptr;
        }
        char* stack = free_.back();
        free_.pop_back();
        return stack;
    }

    void give_back(char* stack) { free_.push_back(stack); }

    // For a fiber that is never resumed: its frames are still marked in the sanitizer's shadow memory.
    void abandon(char* stack) {
#if defined(TDC_CPU_ASAN)
        __asan_unpoison_memory_region(stack - gap_bytes, stack_distance);
#endif
        mark_end(stack);
        give_back(stack);
    }

    // Whether the fiber that ran on it has not overflowed it.
    static bool intact(const char* stack) { return *reinterpret_cast<const uint64_t*>(stack) == end_mark; }

private:
    static constexpr size_t stacks_per_slab = 16;
    static constexpr size_t slab_bytes = stacks_per_slab * stack_distance;
    static constexpr uint64_t end_mark = 0x5ac7e4d0f57ac4edu;

    static void mark_end(char* stack) { *reinterpret_cast<uint64_t*>(stack) = end_mark; }

    bool grow() {
        void* slab = mmap(nullptr, slab_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (slab == MAP_FAILED) {
            return false;
        }
#if defined(MADV_NOHUGEPAGE)
        // Huge pages would include the gaps.
        madvise(slab, slab_bytes, MADV_NOHUGEPAGE);
#endif
        slabs_.push_back(static_cast<char*>(slab));
        for (size_t i = 0; i < stacks_per_slab; ++i) {
            char* stack = slabs_.back() + i * stack_distance + gap_bytes;
            mark_end(stack);
            free_.push_back(stack);
        }
        return true;
    }

    std::vector<char*> slabs_;
    std::vector<char*> free_;
};

}  // namespace tdc_cpu
