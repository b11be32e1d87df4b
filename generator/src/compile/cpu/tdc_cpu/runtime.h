// The definitions of the runtime API: errors, memory, streams, events, graphs, and the checks before a
// launch.
#pragma once

#include "runtime_api.h"
#include "scheduler.h"

#include <chrono>
#include <functional>
#include <map>
#include <set>

namespace tdc_cpu {

// ---- limits of the emulated device, those of compute capability 9.0 ----------------------------------------------------------

inline constexpr unsigned max_threads = 1024;
inline constexpr dim3 max_block{1024, 1024, 64};
inline constexpr dim3 max_grid{2147483647u, 65535, 65535};
inline constexpr unsigned portable_cluster = 8;
inline constexpr unsigned max_cluster = 16;
inline constexpr size_t max_shared = 48 << 10;
inline constexpr size_t max_shared_optin = 227 << 10;

// The name that the device reports. It can be set, to test code that depends on the name or the compute
// capability.
inline const char* device_name() {
    const char* name = std::getenv("TDC_CPU_DEVICE");
    return name != nullptr ? name : "CPU emulation";
}

// ---- errors ------------------------------------------------------------------------------------------------------------------

// Plain arrays: they are in the segment that the scheduler overwrites in its own OS threads, and must not
// need a destructor.
inline thread_local cudaError_t last_error = cudaSuccess;
inline thread_local char last_message[512] = "";

inline cudaError_t error(cudaError_t code, const std::string& message) {
    last_error = code;
    std::snprintf(last_message, sizeof last_message, "%s", message.c_str());
    return code;
}

inline std::string text(const void* address) {
    char buffer[32];
    std::snprintf(buffer, sizeof buffer, "%p", address);
    return buffer;
}

inline std::string text(dim3 size) {
    return std::to_string(size.x) + "x" + std::to_string(size.y) + "x" + std::to_string(size.z);
}

// ---- memory ------------------------------------------------------------------------------------------------------------------

// Allocations with guards on both sides. Guards and fresh memory read as NaN.
class Memory {
public:
    ~Memory() {
        for (auto& [address, bytes] : sizes_) {
            (void)bytes;
            unguard(address);
            std::free(address - guard_bytes);
        }
    }

    void* allocate(size_t bytes) {
        const size_t total = bytes + 2 * guard_bytes;
        // Rounded up as aligned_alloc demands; the guard after it starts at the last byte.
        char* base = total < bytes ? nullptr : static_cast<char*>(std::aligned_alloc(alignment, round_up(total)));
        if (base == nullptr) {
            return nullptr;
        }
        char* address = base + guard_bytes;
        for (size_t i = 0; i < guard_bytes; ++i) {
            base[i] = guard_pattern(i);
            address[bytes + i] = guard_pattern(i);
        }
        std::memset(address, 0xff, bytes);
#if defined(TDC_CPU_ASAN)
        __asan_poison_memory_region(base, guard_bytes);
        __asan_poison_memory_region(address + bytes, guard_bytes);
#endif
        const std::lock_guard<std::mutex> guard(lock_);
        sizes_.emplace(address, bytes);
        return address;
    }

    enum class Freed { intact, damaged, unknown };

    Freed release(void* memory) {
        const std::lock_guard<std::mutex> guard(lock_);
        const auto found = sizes_.find(static_cast<char*>(memory));
        if (found == sizes_.end()) {
            return Freed::unknown;
        }
        const bool intact = guards_intact(found->first, found->second);
        std::free(found->first - guard_bytes);
        sizes_.erase(found);
        return intact ? Freed::intact : Freed::damaged;
    }

    // Whether the range is inside one allocation.
    bool contains(const void* memory, size_t bytes) {
        const char* address = static_cast<const char*>(memory);
        const std::lock_guard<std::mutex> guard(lock_);
        auto next = sizes_.upper_bound(const_cast<char*>(address));
        if (next == sizes_.begin()) {
            return false;
        }
        const auto& [begin, size] = *--next;
        const size_t offset = static_cast<size_t>(address - begin);
        return offset <= size && bytes <= size - offset;
    }

    // Counts damaged allocations; describes the first one.
    int damaged(std::string& description) {
        const std::lock_guard<std::mutex> guard(lock_);
        int count = 0;
        for (const auto& [address, bytes] : sizes_) {
            if (!guards_intact(address, bytes) && count++ == 0) {
                description = "allocation " + text(address) + " of " + std::to_string(bytes) + " bytes was written out of bounds";
            }
        }
        return count;
    }

private:
    static constexpr size_t alignment = 256;
    static constexpr size_t guard_bytes = 256;

    static size_t round_up(size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

    // 0xffc0dead, a NaN as a float.
    static char guard_pattern(size_t index) {
        constexpr unsigned char pattern[] = {0xad, 0xde, 0xc0, 0xff};
        return static_cast<char>(pattern[index % 4]);
    }

    void unguard(char* address) {
        (void)address;
#if defined(TDC_CPU_ASAN)
        const size_t bytes = sizes_.at(address);
        __asan_unpoison_memory_region(address - guard_bytes, guard_bytes);
        __asan_unpoison_memory_region(address + bytes, guard_bytes);
#endif
    }

    bool guards_intact(char* address, size_t bytes) {
        unguard(address);
        for (size_t i = 0; i < guard_bytes; ++i) {
            if (address[-static_cast<ptrdiff_t>(guard_bytes) + static_cast<ptrdiff_t>(i)] != guard_pattern(i) ||
                address[bytes + i] != guard_pattern(i)) {
                return false;
            }
        }
        return true;
    }

    std::mutex lock_;
    std::map<char*, size_t> sizes_;
};

inline Memory device_memory;
inline Memory host_memory;

// ---- streams and graphs ------------------------------------------------------------------------------------------------------

// A piece of work. Captured work runs whenever its graph is launched.
using Work = std::function<cudaError_t()>;

// Streams being captured in the mode that forbids calls that wait or allocate (cudaStreamCaptureModeGlobal).
inline std::atomic<int> strict_captures{0};

}  // namespace tdc_cpu

struct CUgraph_st {
    std::vector<tdc_cpu::Work> work;
};

struct CUgraphExec_st {
    std::vector<tdc_cpu::Work> work;
};

struct CUstream_st {
    // Records the work while the stream is being captured. Belongs to the stream on which the capture was
    // started.
    CUgraph_st* capture = nullptr;
    bool began_capture = false;
    cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
    bool invalidated = false;
};

struct CUevent_st {
    unsigned flags = 0;
    bool recorded = false;
    std::chrono::steady_clock::time_point time;
    // The capture in which it was last recorded; another stream joins the capture by waiting for the event.
    CUgraph_st* capture = nullptr;
};

namespace tdc_cpu {

struct Streams {
    std::mutex lock;
    std::set<cudaStream_t> live;
};
inline Streams streams;

// The default stream has no object. 1 and 2 are cudaStreamLegacy and cudaStreamPerThread.
inline bool is_default(cudaStream_t stream) { return reinterpret_cast<uintptr_t>(stream) <= 2; }

inline bool is_valid(cudaStream_t stream) {
    if (is_default(stream)) {
        return true;
    }
    const std::lock_guard<std::mutex> guard(streams.lock);
    return streams.live.count(stream) != 0;
}

inline cudaError_t invalid_stream() { return error(cudaErrorInvalidResourceHandle, "the stream does not exist"); }

// Runs the work, or records it if the stream is being captured.
inline cudaError_t submit(cudaStream_t stream, Work work) {
    if (!is_valid(stream)) {
        return invalid_stream();
    }
    if (is_default(stream)) {
        if (strict_captures > 0) {
            return error(cudaErrorStreamCaptureImplicit, "the default stream was used while another stream is being captured");
        }
        return work();
    }
    if (stream->capture == nullptr) {
        return work();
    }
    stream->capture->work.push_back(std::move(work));
    return cudaSuccess;
}

// Rejects calls that wait or allocate.
inline cudaError_t refuse_in_capture(const char* call) {
    if (strict_captures > 0) {
        return error(cudaErrorStreamCaptureUnsupported, std::string(call) + " is not permitted while a stream is being captured");
    }
    return cudaSuccess;
}

inline cudaError_t run_all(const std::vector<Work>& work) {
    for (const Work& step : work) {
        const cudaError_t result = step();
        if (result != cudaSuccess) {
            return result;
        }
    }
    return cudaSuccess;
}

// ---- launches ----------------------------------------------------------------------------------------------------------------

// Limits of kernels that were raised with cudaFuncSetAttribute.
struct Grants {
    std::mutex lock;
    std::map<const void*, size_t> shared_bytes;
    std::set<const void*> large_clusters;
};
inline Grants grants;

inline bool fits(dim3 size, dim3 limit) {
    return size.x >= 1 && size.y >= 1 && size.z >= 1 && size.x <= limit.x && size.y <= limit.y && size.z <= limit.z;
}

inline cudaError_t check_launch(const void* entry, const std::string& name, const LaunchShape& shape) {
    const uint64_t threads = static_cast<uint64_t>(shape.block.x) * shape.block.y * shape.block.z;
    if (!fits(shape.grid, max_grid)) {
        return error(cudaErrorInvalidConfiguration,
                     name + ": a grid of " + text(shape.grid) + " blocks; 1 to " + text(max_grid) + " are allowed");
    }
    if (!fits(shape.block, max_block) || threads > max_threads) {
        return error(cudaErrorInvalidConfiguration, name + ": a block of " + text(shape.block) + " threads; 1 to " +
                                                        std::to_string(max_threads) + " are allowed, at most 64 in z");
    }
    const dim3 cluster = shape.cluster;
    if (!fits(cluster, dim3(max_cluster, max_cluster, max_cluster)) || shape.grid.x % cluster.x != 0 ||
        shape.grid.y % cluster.y != 0 || shape.grid.z % cluster.z != 0) {
        return error(cudaErrorInvalidConfiguration,
                     name + ": clusters of " + text(cluster) + " blocks do not divide a grid of " + text(shape.grid));
    }
    const unsigned cluster_blocks = cluster.x * cluster.y * cluster.z;
    const std::lock_guard<std::mutex> guard(grants.lock);
    const unsigned largest = grants.large_clusters.count(entry) != 0 ? max_cluster : portable_cluster;
    if (cluster_blocks > largest) {
        return error(cudaErrorInvalidClusterSize, name + ": clusters of " + std::to_string(cluster_blocks) + " blocks; " +
                                                      std::to_string(largest) +
                                                      " are allowed, cudaFuncSetAttribute can raise that to " +
                                                      std::to_string(max_cluster));
    }
    const auto granted = grants.shared_bytes.find(entry);
    const size_t limit = granted == grants.shared_bytes.end() ? max_shared : granted->second;
    if (shape.shared_bytes > limit) {
        return error(cudaErrorInvalidValue, name + ": " + std::to_string(shape.shared_bytes) +
                                                " bytes of dynamic shared memory; " + std::to_string(limit) +
                                                " are allowed, cudaFuncSetAttribute can raise that to " +
                                                std::to_string(max_shared_optin));
    }
    return cudaSuccess;
}

TDC_CPU_ENGINE cudaError_t launch(const void* entry, const char* name, const LaunchShape& shape, KernelCall* call,
                                  cudaStream_t stream) {
    const std::shared_ptr<KernelCall> owned(call);
    const std::string kernel = name != nullptr ? name : "kernel";
    const cudaError_t result = check_launch(entry, kernel, shape);
    if (result != cudaSuccess) {
        return result;
    }
    return submit(stream, [owned, kernel, shape] {
        const std::string message = run_launch(*owned, shape);
        return message.empty() ? cudaSuccess : error(cudaErrorLaunchFailure, kernel + ", " + message);
    });
}

TDC_CPU_ENGINE cudaError_t read_attributes(const cudaLaunchConfig_t& config, dim3& cluster) {
    for (unsigned i = 0; i < config.numAttrs; ++i) {
        const cudaLaunchAttribute& attribute = config.attrs[i];
        switch (attribute.id) {
            case cudaLaunchAttributeIgnore: break;
            case cudaLaunchAttributeClusterDimension:
                cluster = dim3(attribute.val.clusterDim.x, attribute.val.clusterDim.y, attribute.val.clusterDim.z);
                [[fallthrough]];
            case cudaLaunchAttributeProgrammaticStreamSerialization:
                if (!device_has_clusters()) {
                    return error(cudaErrorNotSupported, "programmatic dependent launch and clusters need compute capability 9.0");
                }
                break;
            case cudaLaunchAttributeCooperative:
                if (attribute.val.cooperative != 0) {
                    return error(cudaErrorNotSupported,
                                 "cooperative launches are not emulated: blocks do not run concurrently");
                }
                break;
        }
    }
    return cudaSuccess;
}

TDC_CPU_ENGINE cudaError_t set_function_attribute(const void* entry, cudaFuncAttribute attribute, int value) {
    const std::lock_guard<std::mutex> guard(grants.lock);
    switch (attribute) {
        case cudaFuncAttributePreferredSharedMemoryCarveout:
            if (value < -1 || value > 100) {
                return error(cudaErrorInvalidValue, "a carve-out is 0 to 100 percent, or -1");
            }
            return cudaSuccess;
        case cudaFuncAttributeNonPortableClusterSizeAllowed:
            if (!device_has_clusters()) {
                return error(cudaErrorNotSupported, "clusters need compute capability 9.0");
            }
            if (value != 0) {
                grants.large_clusters.insert(entry);
            } else {
                grants.large_clusters.erase(entry);
            }
            return cudaSuccess;
        case cudaFuncAttributeMaxDynamicSharedMemorySize: break;
    }
    if (value < 0 || static_cast<size_t>(value) > max_shared_optin) {
        return error(cudaErrorInvalidValue, "a kernel can have at most " + std::to_string(max_shared_optin) +
                                                " bytes of dynamic shared memory, not " + std::to_string(value));
    }
    size_t& granted = grants.shared_bytes.try_emplace(entry, max_shared).first->second;
    granted = static_cast<size_t>(value) > max_shared ? static_cast<size_t>(value) : max_shared;
    return cudaSuccess;
}

// Kernels report that they are compiled for the device's architecture.
TDC_CPU_ENGINE cudaError_t get_function_attributes(cudaFuncAttributes* attributes, const void* entry) {
    const std::lock_guard<std::mutex> guard(grants.lock);
    const auto granted = grants.shared_bytes.find(entry);
    *attributes = {};
    attributes->maxThreadsPerBlock = max_threads;
    attributes->ptxVersion = device_arch();
    attributes->binaryVersion = device_arch();
    attributes->maxDynamicSharedSizeBytes =
        static_cast<int>(granted == grants.shared_bytes.end() ? max_shared : granted->second);
    attributes->preferredShmemCarveout = -1;
    return cudaSuccess;
}

TDC_CPU_ENGINE int launch_granted(const void* entry, const char* name, LaunchShape shape, KernelCall* call) {
    cudaError_t result = set_function_attribute(entry, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                static_cast<int>(shape.shared_bytes));
    if (!device_has_clusters()) {
        shape.cluster = dim3();
    } else if (result == cudaSuccess) {
        result = set_function_attribute(entry, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    }
    if (result != cudaSuccess) {
        delete call;
        return result;
    }
    return launch(entry, name, shape, call, nullptr);
}

// ---- copies ------------------------------------------------------------------------------------------------------------------

// The device range of a copy must be inside one allocation; host memory is not checked.
inline cudaError_t check_copy(const void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (bytes > 0 && to_device && !device_memory.contains(to, bytes)) {
        return error(cudaErrorInvalidValue, "a copy of " + std::to_string(bytes) + " bytes to " + text(to) +
                                                " does not stay inside one device allocation");
    }
    if (bytes > 0 && from_device && !device_memory.contains(from, bytes)) {
        return error(cudaErrorInvalidValue, "a copy of " + std::to_string(bytes) + " bytes from " + text(from) +
                                                " does not stay inside one device allocation");
    }
    return cudaSuccess;
}

inline cudaError_t check_memset(const void* memory, size_t bytes) {
    if (bytes > 0 && !device_memory.contains(memory, bytes)) {
        return error(cudaErrorInvalidValue, "setting " + std::to_string(bytes) + " bytes at " + text(memory) +
                                                " does not stay inside one device allocation");
    }
    return cudaSuccess;
}

inline cudaError_t free_memory(Memory& memory, void* address, const char* kind) {
    if (address == nullptr) {
        return cudaSuccess;
    }
    switch (memory.release(address)) {
        case Memory::Freed::intact: return cudaSuccess;
        case Memory::Freed::damaged:
            return error(cudaErrorIllegalAddress, std::string(kind) + " allocation " + text(address) + " was written out of bounds");
        case Memory::Freed::unknown: break;
    }
    return error(cudaErrorInvalidValue, text(address) + " is not a live " + kind + " allocation");
}

inline cudaError_t allocate_memory(Memory& memory, void** address, size_t bytes, const char* call) {
    const cudaError_t refused = refuse_in_capture(call);
    if (refused != cudaSuccess) {
        return refused;
    }
    *address = bytes == 0 ? nullptr : memory.allocate(bytes);
    if (bytes != 0 && *address == nullptr) {
        return error(cudaErrorMemoryAllocation, std::string(call) + ": no memory for " + std::to_string(bytes) + " bytes");
    }
    return cudaSuccess;
}

struct ErrorText {
    cudaError_t code;
    const char* name;
    const char* description;
};

inline constexpr ErrorText error_texts[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorInvalidClusterSize, "cudaErrorInvalidClusterSize", "requested cluster size is not possible"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched", "the capture was not initiated in this stream"},
    {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing blocking stream"},
};

inline ErrorText text_of(cudaError_t code) {
    for (const ErrorText& text : error_texts) {
        if (text.code == code) {
            return text;
        }
    }
    return {code, "cudaErrorUnknown", "unknown error"};
}

}  // namespace tdc_cpu

// ---- the API -----------------------------------------------------------------------------------------------------------------

extern "C" __attribute__((weak, visibility("default"))) const char* tdc_cpu_last_error() { return tdc_cpu::last_message; }

extern "C" __attribute__((weak, visibility("default"))) int tdc_cpu_check_memory() {
    std::string description;
    const int count = tdc_cpu::device_memory.damaged(description) + tdc_cpu::host_memory.damaged(description);
    if (count > 0) {
        tdc_cpu::error(cudaErrorIllegalAddress, description);
    }
    return count;
}

TDC_CPU_ENGINE cudaError_t cudaGetLastError() {
    const cudaError_t code = tdc_cpu::last_error;
    tdc_cpu::last_error = cudaSuccess;
    return code;
}

TDC_CPU_ENGINE cudaError_t cudaPeekAtLastError() { return tdc_cpu::last_error; }

TDC_CPU_ENGINE const char* cudaGetErrorName(cudaError_t code) { return tdc_cpu::text_of(code).name; }

TDC_CPU_ENGINE const char* cudaGetErrorString(cudaError_t code) { return tdc_cpu::text_of(code).description; }

TDC_CPU_ENGINE cudaError_t cudaGetDevice(int* device) {
    *device = 0;
    return cudaSuccess;
}

TDC_CPU_ENGINE cudaError_t cudaSetDevice(int device) {
    return device == 0 ? cudaSuccess : tdc_cpu::error(cudaErrorInvalidDevice, "the only device is 0");
}

TDC_CPU_ENGINE cudaError_t cudaGetDeviceCount(int* count) {
    *count = 1;
    return cudaSuccess;
}

TDC_CPU_ENGINE cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    if (device != 0) {
        return cudaSetDevice(device);
    }
    switch (attribute) {
        case cudaDevAttrMaxThreadsPerBlock: *value = tdc_cpu::max_threads; break;
        case cudaDevAttrMaxSharedMemoryPerBlock: *value = tdc_cpu::max_shared; break;
        case cudaDevAttrWarpSize: *value = 32; break;
        case cudaDevAttrClockRate: *value = 1000000; break;
        case cudaDevAttrMultiProcessorCount: *value = static_cast<int>(std::thread::hardware_concurrency()); break;
        case cudaDevAttrL2CacheSize: *value = 1 << 20; break;
        case cudaDevAttrComputeCapabilityMajor: *value = tdc_cpu::device_arch() / 10; break;
        case cudaDevAttrComputeCapabilityMinor: *value = tdc_cpu::device_arch() % 10; break;
        case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = tdc_cpu::max_shared_optin + 1024; break;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = tdc_cpu::max_shared_optin; break;
        default: return tdc_cpu::error(cudaErrorInvalidValue, "the device attribute is not emulated");
    }
    return cudaSuccess;
}

TDC_CPU_ENGINE cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
    if (device != 0) {
        return cudaSetDevice(device);
    }
    *properties = {};
    std::snprintf(properties->name, sizeof properties->name, "%s", tdc_cpu::device_name());
    properties->totalGlobalMem = size_t{8} << 30;
    properties->sharedMemPerBlock = tdc_cpu::max_shared;
    properties->regsPerBlock = 65536;
    properties->warpSize = 32;
    properties->maxThreadsPerBlock = tdc_cpu::max_threads;
    properties->maxThreadsDim[0] = tdc_cpu::max_block.x;
    properties->maxThreadsDim[1] = tdc_cpu::max_block.y;
    properties->maxThreadsDim[2] = tdc_cpu::max_block.z;
    properties->maxGridSize[0] = tdc_cpu::max_grid.x;
    properties->maxGridSize[1] = tdc_cpu::max_grid.y;
    properties->maxGridSize[2] = tdc_cpu::max_grid.z;
    properties->totalConstMem = 65536;
    properties->major = tdc_cpu::device_arch() / 10;
    properties->minor = tdc_cpu::device_arch() % 10;
    properties->multiProcessorCount = static_cast<int>(std::thread::hardware_concurrency());
    properties->concurrentKernels = 1;
    properties->memoryBusWidth = 64;
    properties->l2CacheSize = 1 << 20;
    properties->maxThreadsPerMultiProcessor = 2048;
    properties->sharedMemPerMultiprocessor = tdc_cpu::max_shared_optin + 1024;
    properties->regsPerMultiprocessor = 65536;
    properties->sharedMemPerBlockOptin = tdc_cpu::max_shared_optin;
    return cudaSuccess;
}

TDC_CPU_ENGINE cudaError_t cudaDeviceSynchronize() { return tdc_cpu::refuse_in_capture("cudaDeviceSynchronize"); }

TDC_CPU_ENGINE cudaError_t cudaMalloc(void** memory, size_t bytes) {
    return tdc_cpu::allocate_memory(tdc_cpu::device_memory, memory, bytes, "cudaMalloc");
}

TDC_CPU_ENGINE cudaError_t cudaFree(void* memory) {
    return tdc_cpu::free_memory(tdc_cpu::device_memory, memory, "device");
}

TDC_CPU_ENGINE cudaError_t cudaMallocHost(void** memory, size_t bytes) {
    return tdc_cpu::allocate_memory(tdc_cpu::host_memory, memory, bytes, "cudaMallocHost");
}

TDC_CPU_ENGINE cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
    return tdc_cpu::allocate_memory(tdc_cpu::host_memory, memory, bytes, "cudaHostAlloc");
}

TDC_CPU_ENGINE cudaError_t cudaFreeHost(void* memory) {
    return tdc_cpu::free_memory(tdc_cpu::host_memory, memory, "host");
}

TDC_CPU_ENGINE cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                                           cudaStream_t stream) {
    const cudaError_t result = tdc_cpu::check_copy(to, from, bytes, kind);
    if (result != cudaSuccess) {
        return result;
    }
    return tdc_cpu::submit(stream, [=] {
        std::memmove(to, from, bytes);
        return cudaSuccess;
    });
}

TDC_CPU_ENGINE cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                                             size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
    if (width > to_pitch || width > from_pitch) {
        return cudaErrorInvalidValue;
    }
    for (size_t row = 0; row < height; ++row) {
        const cudaError_t result = cudaMemcpyAsync(static_cast<char*>(to) + row * to_pitch,
                                                   static_cast<const char*>(from) + row * from_pitch, width, kind, stream);
        if (result != cudaSuccess) {
            return result;
        }
    }
    return cudaSuccess;
}

TDC_CPU_ENGINE cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    return cudaMemcpyAsync(to, from, bytes, kind, nullptr);
}

TDC_CPU_ENGINE cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
    const cudaError_t result = tdc_cpu::check_memset(memory, bytes);
    if (result != cudaSuccess) {
        return result;
    }
    return tdc_cpu::submit(stream, [=] {
        std::memset(memory, value, bytes);
        return cudaSuccess;
    });
}

TDC_CPU_ENGINE cudaError_t cudaMemset(void* memory, int value, size_t bytes) {
    return cudaMemsetAsync(memory, value, bytes, nullptr);
}

TDC_CPU_ENGINE cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
    *stream = new CUstream_st;
    const std::lock_guard<std::mutex> guard(tdc_cpu::streams.lock);
    tdc_cpu::streams.live.insert(*stream);
    return cudaSuccess;
}

TDC_CPU_ENGINE cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithFlags(stream, 0); }

TDC_CPU_ENGINE cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    if (tdc_cpu::is_default(stream) || !tdc_cpu::is_valid(stream)) {
        return tdc_cpu::invalid_stream();
    }
    if (stream->capture != nullptr) {
        return tdc_cpu::error(cudaErrorStreamCaptureUnsupported, "the stream is being captured");
    }
    const std::lock_guard<std::mutex> guard(tdc_cpu::streams.lock);
    tdc_cpu::streams.live.erase(stream);
    delete stream;
    return cudaSuccess;
}

TDC_CPU_ENGINE cudaError_t cudaStreamQuery(cudaStream_t stream) {
    if (!tdc_cpu::is_valid(stream)) {
        return tdc_cpu::invalid_stream();
    }
    if (!tdc_cpu::is_default(stream) && stream->capture != nullptr) {
        stream->invalidated = true;
        return tdc_cpu::error(cudaErrorStreamCaptureUnsupported, "a stream that is being captured cannot be waited for");
    }
    return cudaSuccess;
}

TDC_CPU_ENGINE cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return cudaStreamQuery(stream); }

TDC_CPU_ENGINE cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    if (!tdc_cpu::is_valid(stream)) {
        return tdc_cpu::invalid_stream();
    }
    if (event->capture != nullptr && !tdc_cpu::is_default(stream) && stream->capture == nullptr) {
        stream->capture = event->capture;
    }
    return cudaSuccess;
}

TDC_CPU_ENGINE cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
    *event = new CUevent_st;
    (*event)->flags = flags;
    return cudaSuccess;
}

TDC_CPU_ENGINE cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }

TDC_CPU_ENGINE cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete event;
    return cudaSuccess;
}

TDC_CPU_ENGINE cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    if (!tdc_cpu::is_valid(stream)) {
        return tdc_cpu::invalid_stream();
    }
    event->capture = tdc_cpu::is_default(stream) ? nullptr : stream->capture;
    if (event->capture != nullptr) {
        // An event inside a graph only orders work; it has no time.
        event->recorded = false;
        return cudaSuccess;
    }
    event->recorded = true;
    event->time = std::chrono::steady_clock::now();
    return cudaSuccess;
}

TDC_CPU_ENGINE cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    return event->capture == nullptr ? cudaSuccess
                                     : tdc_cpu::error(cudaErrorStreamCaptureUnsupported, "the event belongs to a capture");
}

TDC_CPU_ENGINE cudaError_t cudaEventQuery(cudaEvent_t event) { return cudaEventSynchronize(event); }

TDC_CPU_ENGINE cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
    if (!start->recorded || !end->recorded || ((start->flags | end->flags) & cudaEventDisableTiming) != 0) {
        return tdc_cpu::error(cudaErrorInvalidResourceHandle, "an event was not recorded, or was created without timing");
    }
    *milliseconds = std::chrono::duration<float, std::milli>(end->time - start->time).count();
    return cudaSuccess;
}

TDC_CPU_ENGINE cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
    if (!tdc_cpu::is_valid(stream)) {
        return tdc_cpu::invalid_stream();
    }
    if (tdc_cpu::is_default(stream) || stream->capture != nullptr) {
        return tdc_cpu::error(cudaErrorStreamCaptureUnsupported,
                              "only a created stream that is not being captured can be captured");
    }
    stream->capture = new CUgraph_st;
    stream->began_capture = true;
    stream->invalidated = false;
    stream->mode = mode;
    tdc_cpu::strict_captures += mode == cudaStreamCaptureModeGlobal;
    return cudaSuccess;
}

TDC_CPU_ENGINE cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
    *graph = nullptr;
    if (tdc_cpu::is_default(stream) || !tdc_cpu::is_valid(stream) || !stream->began_capture) {
        return tdc_cpu::error(cudaErrorStreamCaptureUnmatched, "no capture was started on this stream");
    }
    CUgraph_st* const captured = stream->capture;
    bool invalidated = false;
    {
        const std::lock_guard<std::mutex> guard(tdc_cpu::streams.lock);
        for (cudaStream_t other : tdc_cpu::streams.live) {
            if (other->capture == captured) {
                other->capture = nullptr;
                invalidated |= other->invalidated;
            }
        }
    }
    stream->began_capture = false;
    tdc_cpu::strict_captures -= stream->mode == cudaStreamCaptureModeGlobal;
    if (invalidated) {
        delete captured;
        return tdc_cpu::error(cudaErrorStreamCaptureInvalidated, "a call during the capture was not permitted");
    }
    *graph = captured;
    return cudaSuccess;
}

TDC_CPU_ENGINE cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
    if (!tdc_cpu::is_valid(stream)) {
        return tdc_cpu::invalid_stream();
    }
    if (tdc_cpu::is_default(stream) || stream->capture == nullptr) {
        *status = cudaStreamCaptureStatusNone;
    } else {
        *status = stream->invalidated ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
    }
    return cudaSuccess;
}

TDC_CPU_ENGINE cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
    *executable = new CUgraphExec_st{graph->work};
    return cudaSuccess;
}

TDC_CPU_ENGINE cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, cudaGraphNode_t*, char*,
                                                size_t) {
    return cudaGraphInstantiate(executable, graph, 0ull);
}

TDC_CPU_ENGINE cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t stream) {
    return tdc_cpu::is_valid(stream) ? cudaSuccess : tdc_cpu::invalid_stream();
}

TDC_CPU_ENGINE cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
    return tdc_cpu::submit(stream, [work = executable->work] { return tdc_cpu::run_all(work); });
}

TDC_CPU_ENGINE cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
    delete executable;
    return cudaSuccess;
}

TDC_CPU_ENGINE cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    delete graph;
    return cudaSuccess;
}
