// A file like those that the generator emits: kernel, launcher and host code in plain CUDA C++. The first
// argument of the program selects the test.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>
#include <vector>

#define CHECK(call)                                                                                  \
    do {                                                                                             \
        const cudaError_t check_error = (call);                                                      \
        if (check_error != cudaSuccess) {                                                            \
            std::printf("line %d: %s\n", __LINE__, cudaGetErrorString(check_error));                 \
            return 1;                                                                                \
        }                                                                                            \
    } while (0)
#define EXPECT(condition)                                                                            \
    do {                                                                                             \
        if (!(condition)) {                                                                          \
            std::printf("line %d: %s does not hold\n", __LINE__, #condition);                        \
            return 1;                                                                                \
        }                                                                                            \
    } while (0)

extern "C" int tdc_cpu_check_memory();
extern "C" const char* tdc_cpu_last_error();

static constexpr int kSize = 1000;

__constant__ float offset;

extern "C" __global__ void __launch_bounds__(128) scale_kernel(const float* __restrict__ x, float* __restrict__ y, float factor,
                                                               int size) {
    __shared__ float4 tile[32];
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    reinterpret_cast<float*>(tile)[threadIdx.x] = i < size ? x[i] : 0.0f;
    __syncthreads();
    if (threadIdx.x < 32) {
        float4& v = tile[threadIdx.x];
        v = make_float4(v.x * factor, v.y * factor, v.z * factor, v.w * factor);
    }
    __syncthreads();
    if (i < size) {
        y[i] = reinterpret_cast<const float*>(tile)[threadIdx.x] + offset;
    }
}

extern "C" cudaError_t scale_launch(const float* x, float* y, float factor, int size, cudaStream_t stream) {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((size + 127) / 128);
    config.blockDim = dim3(128);
    config.stream = stream;
    return cudaLaunchKernelEx(&config, scale_kernel, x, y, factor, size);
}

// Does not know the size.
extern "C" __global__ void unchecked_kernel(float* y) { y[blockIdx.x * blockDim.x + threadIdx.x] = 2.0f; }

extern "C" __global__ void divergent_kernel(float* y) {
    if (threadIdx.x < 16) {
        __syncthreads();
        *y = 1.0f;
    }
}

// Sums the values of pairs of blocks: one reads the other's shared memory or, without clusters, computes
// both.
extern "C" __global__ void pairs_kernel(const float* x, float* y) {
    TDC_DYNAMIC_SHARED(float, tile);
    const float* const values = x + blockIdx.x * 32;
    float* const sums = y + blockIdx.x / 2 * 32;
    const unsigned rank = blockIdx.x % 2;
    if (!tdc_has_clusters()) {
        if (rank == 0) {
            tdc_pdl_wait_and_trigger();
            sums[threadIdx.x] = values[threadIdx.x] + values[32 + threadIdx.x];
        }
        return;
    }
    tdc_pdl_wait_and_trigger();
    tdc_copy_async4(tile + threadIdx.x, values + threadIdx.x);
    tdc_commit_copies();
    tdc_wait_copies<0>();
    tdc_cluster_sync();
    if (rank == 0) {
        sums[threadIdx.x] = tile[threadIdx.x] + tdc_cluster_shared(tile, 1)[threadIdx.x];
    }
    tdc_cluster_sync();
}
TDC_CPU_EXPORT(pairs_kernel)

static int results() {
    thread_local int mine = 77;
    std::vector<float> host(kSize);
    for (int i = 0; i < kSize; ++i) {
        host[i] = static_cast<float>(i);
    }
    float *x, *y;
    CHECK(cudaMalloc(&x, kSize * sizeof(float)));
    CHECK(cudaMalloc(&y, kSize * sizeof(float)));
    float fresh;
    CHECK(cudaMemcpy(&fresh, y + 3, sizeof(float), cudaMemcpyDeviceToHost));
    EXPECT(fresh != fresh);
    const float shift = 0.5f;
    CHECK(cudaMemcpyToSymbol(offset, &shift, sizeof shift));
    CHECK(cudaMemcpy(x, host.data(), kSize * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(scale_launch(x, y, 3.0f, kSize, nullptr));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(host.data(), y, kSize * sizeof(float), cudaMemcpyDeviceToHost));
    for (int i = 0; i < kSize; ++i) {
        EXPECT(host[i] == 3.0f * static_cast<float>(i) + 0.5f);
    }
    // The same with the untyped launch.
    float factor = -1.0f;
    int size = kSize;
    void* args[] = {&x, &y, &factor, &size};
    CHECK(cudaLaunchKernel(scale_kernel, dim3(8), dim3(128), args));
    CHECK(cudaMemcpy(host.data(), y, kSize * sizeof(float), cudaMemcpyDeviceToHost));
    EXPECT(host[999] == -998.5f);
    // Shared memory is poisoned in the emulation's own threads only.
    EXPECT(mine == 77);
    EXPECT(tdc_cpu_check_memory() == 0);
    CHECK(cudaFree(x));
    CHECK(cudaFree(y));
    return 0;
}

static int graph() {
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    float *x, *y, *pinned;
    CHECK(cudaMalloc(&x, kSize * sizeof(float)));
    CHECK(cudaMalloc(&y, kSize * sizeof(float)));
    CHECK(cudaMallocHost(&pinned, kSize * sizeof(float)));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    cudaStreamCaptureStatus status;
    CHECK(cudaStreamIsCapturing(stream, &status));
    EXPECT(status == cudaStreamCaptureStatusActive);
    CHECK(cudaMemcpyAsync(x, pinned, kSize * sizeof(float), cudaMemcpyHostToDevice, stream));
    CHECK(cudaMemsetAsync(y, 0, kSize * sizeof(float), stream));
    // Arguments are copied at this point: later changes have no effect.
    float factor = 2.0f;
    CHECK(scale_launch(x, y, factor, kSize - 1, stream));
    factor = 100.0f;
    CHECK(cudaMemcpyAsync(pinned, y, kSize * sizeof(float), cudaMemcpyDeviceToHost, stream));
    cudaGraph_t graph;
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaStreamIsCapturing(stream, &status));
    EXPECT(status == cudaStreamCaptureStatusNone);
    cudaGraphExec_t executable;
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    for (int i = 0; i < kSize; ++i) {
        pinned[i] = 1.0f;
    }
    // Nothing has run yet.
    float before;
    CHECK(cudaMemcpy(&before, y, sizeof before, cudaMemcpyDeviceToHost));
    EXPECT(before != before);
    for (int i = 0; i < 3; ++i) {
        CHECK(cudaGraphLaunch(executable, stream));
    }
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(pinned[0] == 8.0f && pinned[kSize - 2] == 8.0f && pinned[kSize - 1] == 0.0f);
    CHECK(cudaGraphExecDestroy(executable));

    // Calls that a GPU forbids during a capture.
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    EXPECT(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) != cudaSuccess);
    void* more = nullptr;
    EXPECT(cudaMalloc(&more, 16) == cudaErrorStreamCaptureUnsupported);
    EXPECT(scale_launch(x, y, 1.0f, 1, nullptr) == cudaErrorStreamCaptureImplicit);
    EXPECT(cudaStreamSynchronize(stream) == cudaErrorStreamCaptureUnsupported);
    EXPECT(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated);
    EXPECT(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureUnmatched);

    // A second stream joins through an event.
    cudaStream_t side;
    cudaEvent_t fork, join;
    CHECK(cudaStreamCreate(&side));
    CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    CHECK(cudaMemset(y, 0xff, kSize * sizeof(float)));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaEventRecord(fork, stream));
    CHECK(cudaStreamWaitEvent(side, fork, 0));
    CHECK(cudaMemsetAsync(y, 0, sizeof(float), side));
    CHECK(cudaEventRecord(join, side));
    CHECK(cudaStreamWaitEvent(stream, join, 0));
    CHECK(cudaStreamEndCapture(stream, &graph));
    EXPECT(y[0] != y[0]);
    CHECK(cudaGraphInstantiate(&executable, graph, nullptr, nullptr, 0));
    CHECK(cudaGraphLaunch(executable, stream));
    EXPECT(y[0] == 0.0f);
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaEventDestroy(fork));
    CHECK(cudaEventDestroy(join));
    CHECK(cudaStreamDestroy(side));

    CHECK(cudaStreamDestroy(stream));
    EXPECT(cudaMemsetAsync(y, 0, 4, stream) == cudaErrorInvalidResourceHandle);
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaFree(x));
    CHECK(cudaFree(y));
    return 0;
}

static int events() {
    cudaEvent_t start, end;
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&end));
    float *x, *y, milliseconds = -1.0f;
    CHECK(cudaMalloc(&x, kSize * sizeof(float)));
    CHECK(cudaMalloc(&y, kSize * sizeof(float)));
    EXPECT(cudaEventElapsedTime(&milliseconds, start, end) == cudaErrorInvalidResourceHandle);
    EXPECT(cudaGetLastError() == cudaErrorInvalidResourceHandle);
    CHECK(cudaGetLastError());
    CHECK(cudaEventRecord(start));
    CHECK(scale_launch(x, y, 2.0f, kSize, nullptr));
    CHECK(cudaEventRecord(end));
    CHECK(cudaEventSynchronize(end));
    CHECK(cudaEventElapsedTime(&milliseconds, start, end));
    EXPECT(milliseconds > 0.0f && milliseconds < 60000.0f);
    CHECK(cudaEventElapsedTime(&milliseconds, end, start));
    EXPECT(milliseconds < 0.0f);
    CHECK(cudaEventDestroy(start));
    CHECK(cudaEventDestroy(end));
    CHECK(cudaFree(x));
    CHECK(cudaFree(y));
    return 0;
}

static int device() {
    int count = 0, major = 0, minor = -1;
    CHECK(cudaGetDeviceCount(&count));
    EXPECT(count == 1);
    EXPECT(cudaSetDevice(1) == cudaErrorInvalidDevice);
    CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
    EXPECT(major == 9 && minor == 0);
    cudaDeviceProp properties;
    CHECK(cudaGetDeviceProperties(&properties, 0));
    EXPECT(std::strcmp(properties.name, "CPU emulation") == 0);
    EXPECT(std::strcmp(cudaGetErrorName(cudaErrorInvalidConfiguration), "cudaErrorInvalidConfiguration") == 0);
    return 0;
}

// The environment selects the device to emulate.
static int device_override() {
    int major = 0, minor = 0;
    cudaDeviceProp properties;
    CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
    CHECK(cudaGetDeviceProperties(&properties, 0));
    EXPECT(major == 12 && properties.major == 12);
    EXPECT(minor == 1 && properties.minor == 1);
    EXPECT(std::strcmp(properties.name, "NVIDIA Something") == 0);
    return 0;
}

static int memory() {
    float* y;
    CHECK(cudaMalloc(&y, 250 * sizeof(float)));
    cudaLaunchConfig_t config = {};
    config.gridDim = 2;
    config.blockDim = 125;
    CHECK(cudaLaunchKernelEx(&config, unchecked_kernel, y));
    EXPECT(tdc_cpu_check_memory() == 0);
    config.blockDim = 126;  // two elements too many
    CHECK(cudaLaunchKernelEx(&config, unchecked_kernel, y));
    EXPECT(tdc_cpu_check_memory() == 1);
    EXPECT(std::strstr(tdc_cpu_last_error(), "of 1000 bytes was written out of bounds") != nullptr);
    EXPECT(cudaFree(y) == cudaErrorIllegalAddress);
    EXPECT(cudaFree(y) == cudaErrorInvalidValue);

    // One element before the start.
    CHECK(cudaMalloc(&y, 250 * sizeof(float)));
    config.blockDim = 1;
    CHECK(cudaLaunchKernelEx(&config, unchecked_kernel, y - 1));
    EXPECT(tdc_cpu_check_memory() == 1);
    EXPECT(cudaFree(y) == cudaErrorIllegalAddress);

    CHECK(cudaMalloc(&y, 250 * sizeof(float)));
    float host[251] = {};
    EXPECT(cudaMemcpy(y, host, sizeof host, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
    EXPECT(cudaMemcpy(host, y + 1, 250 * sizeof(float), cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
    EXPECT(cudaMemcpy(host, host + 1, 4, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
    EXPECT(cudaMemset(y, 0, 1001) == cudaErrorInvalidValue);
    EXPECT(tdc_cpu_check_memory() == 0);
    CHECK(cudaFree(y));
    return 0;
}

static int launches() {
    float* y;
    CHECK(cudaMalloc(&y, 2048 * sizeof(float)));
    cudaLaunchConfig_t config = {};
    const auto launch = [&](dim3 grid, dim3 block, size_t shared_bytes) {
        config.gridDim = grid;
        config.blockDim = block;
        config.dynamicSmemBytes = shared_bytes;
        return cudaLaunchKernelEx(&config, unchecked_kernel, y);
    };
    CHECK(launch(1, 1024, 48 << 10));
    EXPECT(launch(0, 32, 0) == cudaErrorInvalidConfiguration);
    EXPECT(launch(dim3(1, 65536), 32, 0) == cudaErrorInvalidConfiguration);
    EXPECT(launch(dim3(1, 1, 65536), 32, 0) == cudaErrorInvalidConfiguration);
    EXPECT(launch(0x80000000u, 32, 0) == cudaErrorInvalidConfiguration);
    EXPECT(launch(1, 0, 0) == cudaErrorInvalidConfiguration);
    EXPECT(launch(1, 1025, 0) == cudaErrorInvalidConfiguration);
    EXPECT(launch(1, dim3(32, 33), 0) == cudaErrorInvalidConfiguration);
    EXPECT(launch(1, dim3(1, 1, 65), 0) == cudaErrorInvalidConfiguration);
    EXPECT(launch(1, 32, (48 << 10) + 4) == cudaErrorInvalidValue);
    CHECK(cudaFuncSetAttribute(unchecked_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 << 10));
    CHECK(launch(1, 32, 227 << 10));
    EXPECT(cudaFuncSetAttribute(unchecked_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (227 << 10) + 1) ==
           cudaErrorInvalidValue);
    CHECK(cudaFuncSetAttribute(unchecked_kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100));
    EXPECT(cudaFuncSetAttribute(unchecked_kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 101) == cudaErrorInvalidValue);
    (void)cudaGetLastError();

    // A failed launch followed by a correct one.
    config.dynamicSmemBytes = 0;
    EXPECT(cudaLaunchKernelEx(&config, divergent_kernel, y) == cudaErrorLaunchFailure);
    EXPECT(cudaPeekAtLastError() == cudaErrorLaunchFailure);
    EXPECT(cudaGetLastError() == cudaErrorLaunchFailure);
    CHECK(cudaGetLastError());
    CHECK(launch(1, 32, 0));

    CHECK(cudaFree(y));
    return 0;
}

// Launches of pairs_kernel on a device with clusters, and on an older one.
static int pairs(int arch) {
    float *x, *y;
    CHECK(cudaMalloc(&x, 8 * 32 * sizeof(float)));
    CHECK(cudaMalloc(&y, 4 * 32 * sizeof(float)));
    for (int i = 0; i < 8 * 32; ++i) {
        x[i] = static_cast<float>(i);
    }
    const auto right = [&] {
        for (int i = 0; i < 4 * 32; ++i) {
            if (y[i] != static_cast<float>(i / 32 * 64 * 2 + i % 32 * 2 + 32)) {
                return false;
            }
            y[i] = -1.0f;
        }
        return true;
    };
    cudaFuncAttributes function;
    CHECK(cudaFuncGetAttributes(&function, pairs_kernel));
    EXPECT(function.ptxVersion == arch && function.binaryVersion == arch);

    cudaLaunchAttribute attributes[2] = {};
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim.x = 2;
    attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = 8;
    config.blockDim = 32;
    config.dynamicSmemBytes = 32 * sizeof(float);
    config.attrs = attributes;
    const bool clusters = arch >= 90;
    for (config.numAttrs = 0; config.numAttrs <= 2; ++config.numAttrs) {
        const bool fits = clusters == (config.numAttrs == 2);  // on an older device without attributes, else with both
        const cudaError_t error = cudaLaunchKernelEx(&config, pairs_kernel, x, y);
        if (clusters) {
            EXPECT(error == (fits ? cudaSuccess : cudaErrorLaunchFailure));  // there is no other block to read from
        } else {
            EXPECT(error == (config.numAttrs == 0 ? cudaSuccess : cudaErrorNotSupported));
        }
        EXPECT(error != cudaSuccess || right());
    }
    const unsigned grid[] = {8, 1, 1}, block[] = {32, 1, 1}, cluster[] = {2, 1, 1};
    void* args[] = {&x, &y};
    EXPECT(tdc_cpu_launch_pairs_kernel(grid, block, cluster, 32 * sizeof(float), args) == cudaSuccess && right());

    config.numAttrs = 2;
    config.gridDim = 7;
    EXPECT(cudaLaunchKernelEx(&config, pairs_kernel, x, y) == (clusters ? cudaErrorInvalidConfiguration : cudaErrorNotSupported));
    config.gridDim = 16;
    attributes[1].val.clusterDim.x = 16;
    const auto large = cudaFuncAttributeNonPortableClusterSizeAllowed;
    if (clusters) {
        // The exported launcher has raised the limit.
        CHECK(cudaFuncSetAttribute(pairs_kernel, large, 0));
        EXPECT(cudaLaunchKernelEx(&config, pairs_kernel, x, y) == cudaErrorInvalidClusterSize);
    } else {
        EXPECT(cudaFuncSetAttribute(pairs_kernel, large, 1) == cudaErrorNotSupported);
    }
    CHECK(cudaFree(x));
    CHECK(cudaFree(y));
    return 0;
}

static int clusters() { return pairs(90); }
static int older() { return pairs(80); }

int main(int, char** arguments) {
    const struct {
        const char* name;
        int (*run)();
    } parts[] = {{"results", results}, {"graph", graph},   {"events", events},
                 {"device", device},   {"memory", memory}, {"launches", launches}, {"device_override", device_override},
                 {"clusters", clusters}, {"older", older}};
    for (const auto& part : parts) {
        if (std::strcmp(part.name, arguments[1]) == 0) {
            return part.run();
        }
    }
    return 2;
}
