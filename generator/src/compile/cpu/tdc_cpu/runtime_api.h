// The part of the CUDA runtime API that generated host code uses. The definitions are in runtime.h.
#pragma once

#include "execution.h"

// Values are CUDA's own.
typedef enum cudaError {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInitializationError = 3,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700,
    cudaErrorLaunchFailure = 719,
    cudaErrorNotSupported = 801,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorStreamCaptureInvalidated = 901,
    cudaErrorStreamCaptureUnmatched = 903,
    cudaErrorStreamCaptureImplicit = 906,
    cudaErrorInvalidClusterSize = 912,
    cudaErrorUnknown = 999,
} cudaError_t;

enum cudaMemcpyKind {
    cudaMemcpyHostToHost = 0,
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
    cudaMemcpyDefault = 4,
};

typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;
typedef struct CUgraph_st* cudaGraph_t;
typedef struct CUgraphExec_st* cudaGraphExec_t;
typedef struct CUgraphNode_st* cudaGraphNode_t;

enum { cudaStreamDefault = 0, cudaStreamNonBlocking = 1 };
enum { cudaEventDefault = 0, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2 };
enum { cudaHostAllocDefault = 0, cudaHostAllocPortable = 1, cudaHostAllocMapped = 2 };

enum cudaStreamCaptureMode {
    cudaStreamCaptureModeGlobal = 0,
    cudaStreamCaptureModeThreadLocal = 1,
    cudaStreamCaptureModeRelaxed = 2,
};

enum cudaStreamCaptureStatus {
    cudaStreamCaptureStatusNone = 0,
    cudaStreamCaptureStatusActive = 1,
    cudaStreamCaptureStatusInvalidated = 2,
};

enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaFuncAttributePreferredSharedMemoryCarveout = 9,
    cudaFuncAttributeNonPortableClusterSizeAllowed = 14,
};

struct cudaFuncAttributes {
    size_t sharedSizeBytes;
    size_t constSizeBytes;
    size_t localSizeBytes;
    int maxThreadsPerBlock;
    int numRegs;
    int ptxVersion;
    int binaryVersion;
    int cacheModeCA;
    int maxDynamicSharedSizeBytes;
    int preferredShmemCarveout;
};

enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1,
    cudaDevAttrMaxSharedMemoryPerBlock = 8,
    cudaDevAttrWarpSize = 10,
    cudaDevAttrClockRate = 13,
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrL2CacheSize = 38,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
};

struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem;
    size_t sharedMemPerBlock;
    int regsPerBlock;
    int warpSize;
    int maxThreadsPerBlock;
    int maxThreadsDim[3];
    int maxGridSize[3];
    size_t totalConstMem;
    int major;
    int minor;
    int multiProcessorCount;
    int concurrentKernels;
    int memoryBusWidth;
    int l2CacheSize;
    int maxThreadsPerMultiProcessor;
    size_t sharedMemPerMultiprocessor;
    int regsPerMultiprocessor;
    size_t sharedMemPerBlockOptin;
};

enum cudaLaunchAttributeID {
    cudaLaunchAttributeIgnore = 0,
    cudaLaunchAttributeCooperative = 2,
    cudaLaunchAttributeClusterDimension = 4,
    cudaLaunchAttributeProgrammaticStreamSerialization = 6,
};

union cudaLaunchAttributeValue {
    char pad[64];
    int cooperative;
    struct {
        unsigned x, y, z;
    } clusterDim;
    int programmaticStreamSerializationAllowed;
};

struct cudaLaunchAttribute {
    cudaLaunchAttributeID id;
    cudaLaunchAttributeValue val;
};

struct cudaLaunchConfig_t {
    dim3 gridDim;
    dim3 blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute* attrs;
    unsigned numAttrs;
};

// The last error of this OS thread; empty if there was none.
extern "C" const char* tdc_cpu_last_error();
// The number of live allocations that were written out of bounds; tdc_cpu_last_error() describes the first.
extern "C" int tdc_cpu_check_memory();

cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();
const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);

cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaDeviceSynchronize();

cudaError_t cudaMalloc(void** memory, size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaMallocHost(void** memory, size_t bytes);
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void* memory);
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream = nullptr);
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream = nullptr);
cudaError_t cudaMemset(void* memory, int value, size_t bytes);
cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream = nullptr);

cudaError_t cudaStreamCreate(cudaStream_t* stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);

cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end);

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags = 0);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, cudaGraphNode_t* node, char* log, size_t size);
cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t stream);
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);

namespace tdc_cpu {

struct LaunchShape {
    dim3 grid;
    dim3 block;
    size_t shared_bytes;
    dim3 cluster;
};

// Checks the launch, then runs it or records it in the stream's graph. Takes ownership of `call`. `name` may
// be null.
cudaError_t launch(const void* entry, const char* name, const LaunchShape& shape, KernelCall* call, cudaStream_t stream);

// Reads the cluster size from the attributes. Rejects attributes that change what a kernel may do but are not
// emulated, and those that the device does not support.
cudaError_t read_attributes(const cudaLaunchConfig_t& config, dim3& cluster);

cudaError_t set_function_attribute(const void* entry, cudaFuncAttribute attribute, int value);

cudaError_t get_function_attributes(cudaFuncAttributes* attributes, const void* entry);

// Launches for TDC_CPU_EXPORT, with the limits raised to the requested shared memory and cluster size; a
// device without clusters ignores the latter.
int launch_granted(const void* entry, const char* name, LaunchShape shape, KernelCall* call);

}  // namespace tdc_cpu

// Templates for passing typed pointers and kernels.

template <class T>
cudaError_t cudaMalloc(T** memory, size_t bytes) {
    void* address = nullptr;
    const cudaError_t error = cudaMalloc(&address, bytes);
    *memory = static_cast<T*>(address);
    return error;
}

template <class T>
cudaError_t cudaMallocHost(T** memory, size_t bytes) {
    void* address = nullptr;
    const cudaError_t error = cudaMallocHost(&address, bytes);
    *memory = static_cast<T*>(address);
    return error;
}

template <class T>
cudaError_t cudaMemcpyToSymbol(T& symbol, const void* from, size_t bytes, size_t offset = 0,
                               cudaMemcpyKind kind = cudaMemcpyHostToDevice) {
    (void)kind;
    if (offset > sizeof(T) || bytes > sizeof(T) - offset) {
        return cudaErrorInvalidValue;
    }
    __builtin_memcpy(reinterpret_cast<char*>(&symbol) + offset, from, bytes);
    return cudaSuccess;
}

template <class... Params>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Params...), cudaFuncAttribute attribute, int value) {
    return tdc_cpu::set_function_attribute(tdc_cpu::entry_of(kernel), attribute, value);
}
inline cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
    return tdc_cpu::set_function_attribute(kernel, attribute, value);
}

template <class... Params>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, void (*kernel)(Params...)) {
    return tdc_cpu::get_function_attributes(attributes, tdc_cpu::entry_of(kernel));
}
inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
    return tdc_cpu::get_function_attributes(attributes, kernel);
}

template <class... Params>
cudaError_t cudaLaunchKernel(void (*kernel)(Params...), dim3 grid, dim3 block, void** args, size_t shared_bytes = 0,
                             cudaStream_t stream = nullptr) {
    return tdc_cpu::launch(tdc_cpu::entry_of(kernel), nullptr, {grid, block, shared_bytes, dim3()},
                           tdc_cpu::unpack_arguments(kernel, args), stream);
}

template <class... ExpTypes, class... ActTypes>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(ExpTypes...), ActTypes&&... args) {
    tdc_cpu::LaunchShape shape{config->gridDim, config->blockDim, config->dynamicSmemBytes, dim3()};
    const cudaError_t error = tdc_cpu::read_attributes(*config, shape.cluster);
    if (error != cudaSuccess) {
        return error;
    }
    return tdc_cpu::launch(tdc_cpu::entry_of(kernel), nullptr, shape,
                           new tdc_cpu::TypedKernelCall<ExpTypes...>(kernel, std::forward<ActTypes>(args)...),
                           config->stream);
}

// A launcher with C linkage, for programs that load the compiled kernels as a shared library. It raises the
// kernel's limits as needed, as host code would with cudaFuncSetAttribute.
#define TDC_CPU_EXPORT(kernel)                                                                                       \
    extern "C" __attribute__((visibility("default"))) int tdc_cpu_launch_##kernel(                                   \
        const unsigned grid[3], const unsigned block[3], const unsigned cluster[3], unsigned shared_bytes,           \
        void** args);                                                                                                \
    extern "C" int tdc_cpu_launch_##kernel(const unsigned grid[3], const unsigned block[3],                          \
                                           const unsigned cluster[3], unsigned shared_bytes, void** args) {          \
        return tdc_cpu::launch_granted(tdc_cpu::entry_of(kernel), #kernel,                                           \
                                       {{grid[0], grid[1], grid[2]},                                                 \
                                        {block[0], block[1], block[2]},                                              \
                                        shared_bytes,                                                                \
                                        {cluster[0], cluster[1], cluster[2]}},                                       \
                                       tdc_cpu::unpack_arguments(kernel, args));                                     \
    }
