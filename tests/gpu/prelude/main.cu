// Checks the device header on a GPU: copies, clusters, conversions, matrix products and PDL, against the
// host's results. Compiled for an older architecture than the GPU's it uses the fallbacks. It runs on the CPU
// emulation too.
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "device/dynamic_shared.cuh"
#include "device/async_copy.cuh"
#include "device/cluster.cuh"
#include "device/pdl.cuh"
#include "device/bf16.cuh"
#include "device/mma.cuh"

#include "clusters.cu"
#include "conversions.cu"
#include "copies.cu"
#include "products.cu"

#define CHECK(call)                                                                            \
    do {                                                                                       \
        const cudaError_t check_error = (call);                                                \
        if (check_error != cudaSuccess) {                                                      \
            std::printf("line %d: %s\n", __LINE__, cudaGetErrorString(check_error));           \
            return 1;                                                                          \
        }                                                                                      \
    } while (0)
#define EXPECT(condition)                                                                      \
    do {                                                                                       \
        if (!(condition)) {                                                                    \
            std::printf("line %d: %s does not hold\n", __LINE__, #condition);                  \
            return 1;                                                                          \
        }                                                                                      \
    } while (0)

// The architecture that the kernels of this program were compiled for.
static int text_arch;

// Pseudo-random values in -1 to 1.
static std::vector<float> noise(std::size_t count, std::uint64_t state) {
    std::vector<float> values(count);
    for (float& value : values) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        value = static_cast<float>(state >> 40) / static_cast<float>(1 << 23) - 1.0f;
    }
    return values;
}

template <class T>
static cudaError_t to_device(T** memory, const std::vector<T>& values) {
    const cudaError_t error = cudaMalloc(memory, values.size() * sizeof(T));
    return error != cudaSuccess ? error : cudaMemcpy(*memory, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice);
}

template <class T>
static cudaError_t to_host(std::vector<T>* values, const T* memory) {
    return cudaMemcpy(values->data(), memory, values->size() * sizeof(T), cudaMemcpyDeviceToHost);
}

static int copies() {
    for (const int count : {1, 63, 64, 65, 500, 640}) {
        const std::vector<float> x = noise(count, 1);
        std::vector<float> y(64, NAN);
        float *x_device, *y_device;
        CHECK(to_device(&x_device, x));
        CHECK(to_device(&y_device, y));
        cudaLaunchConfig_t config = {};
        config.gridDim = dim3(1);
        config.blockDim = dim3(64);
        CHECK(cudaLaunchKernelEx(&config, staged_sums, x_device, y_device, count));
        CHECK(to_host(&y, y_device));
        for (int thread = 0; thread < 64; ++thread) {
            float sum = 0.0f;
            for (int i = 63 - thread; i < count; i += 64) sum += x[i];
            EXPECT(y[thread] == sum);
        }
        CHECK(cudaFree(x_device));
        CHECK(cudaFree(y_device));
    }
    const std::vector<float> x = noise(128, 2);
    std::vector<float> y(128, NAN);
    float *x_device, *y_device;
    CHECK(to_device(&x_device, x));
    CHECK(to_device(&y_device, y));
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(1);
    config.blockDim = dim3(32);
    config.dynamicSmemBytes = 512;
    CHECK(cudaLaunchKernelEx(&config, wide_copies, x_device, y_device));
    CHECK(to_host(&y, y_device));
    for (int i = 0; i < 128; ++i) EXPECT(y[i] == (i < 124 ? x[i] : 0.0f));
    CHECK(cudaFree(x_device));
    CHECK(cudaFree(y_device));
    return 0;
}

static int clusters() {
    if (text_arch < 90) return 0;
    const int width = 4, height = 6, depth = 3, blocks = width * height * depth;
    const std::vector<float> x = noise(blocks * 32, 3);
    std::vector<float> y(x.size(), NAN);
    float *x_device, *y_device;
    CHECK(to_device(&x_device, x));
    CHECK(to_device(&y_device, y));
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = attribute.val.clusterDim.y = 2;
    attribute.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(width, height, depth);
    config.blockDim = dim3(32);
    config.dynamicSmemBytes = 128;
    config.attrs = &attribute;
    config.numAttrs = 1;
    CHECK(cudaLaunchKernelEx(&config, cluster_sums, x_device, y_device));
    CHECK(to_host(&y, y_device));
    for (int block = 0; block < blocks; ++block) {
        const int column = block % width, row = block / width % height, layer = block / width / height;
        for (int thread = 0; thread < 32; ++thread) {
            float sum = 0.0f;
            for (int i = 1; i < 4; ++i) {
                const int rank = (column % 2 + row % 2 * 2 + i) % 4;
                const int other = column / 2 * 2 + rank % 2 + width * (row / 2 * 2 + rank / 2 + height * layer);
                sum += static_cast<float>(i) * x[other * 32 + 31 - thread];
            }
            EXPECT(std::fabs(y[block * 32 + thread] - sum) < 1e-5f);
        }
    }

    attribute.val.clusterDim.y = 1;
    config.gridDim = dim3(8);
    CHECK(cudaLaunchKernelEx(&config, halves, x_device, y_device));
    CHECK(to_host(&y, y_device));
    for (int block = 0; block < 8; ++block) {
        for (int thread = 0; thread < 32; ++thread) {
            const float own = x[31 - thread] + static_cast<float>(block);
            EXPECT(y[block * 32 + thread] == own + (x[thread] + static_cast<float>(block ^ 1)));
        }
    }
    CHECK(cudaFree(x_device));
    CHECK(cudaFree(y_device));
    return 0;
}

// Bits of `value`, a multiple of 1/8 below 16 in size, in tf32, f16 or bf16.
static unsigned bits_of(int kind, float value) {
    unsigned bits;
    std::memcpy(&bits, &value, sizeof bits);
    if (kind == 0) return bits | 0x1555u;  // the bits below tf32 are ignored
    if (kind == 2) return bits >> 16;
    const unsigned sign = bits >> 31 << 15;
    return value == 0.0f ? sign : sign | ((bits >> 23 & 255) - 112) << 10 | (bits >> 13 & 1023);
}

static int products() {
    for (int kind = 0; kind < 3; ++kind) {
        const int depth = kind == 0 ? 8 : 16;
        const auto eighths = [](std::vector<float> values) {
            for (float& value : values) value = std::trunc(value * 64.0f) / 8.0f;
            return values;
        };
        const std::vector<float> a = eighths(noise(16 * depth, 4)), b = eighths(noise(depth * 8, 5)), c = noise(16 * 8, 6);
        const auto a_bits = [&](int row, int k) { return bits_of(kind, a[row * depth + k]); };
        const auto b_bits = [&](int k, int column) { return bits_of(kind, b[k * 8 + column]); };
        // Positions of the operands' elements as in the PTX manual.
        std::vector<unsigned> a_lanes(128), b_lanes(64);
        std::vector<float> d(128);
        for (int lane = 0; lane < 32; ++lane) {
            const int group = lane / 4, thread = lane % 4;
            for (int i = 0; i < 4; ++i) {
                const int row = group + i % 2 * 8, k = kind == 0 ? thread + i / 2 * 4 : 2 * thread + i / 2 * 8;
                a_lanes[4 * lane + i] = kind == 0 ? a_bits(row, k) : a_bits(row, k) | a_bits(row, k + 1) << 16;
                d[4 * lane + i] = c[(group + i / 2 * 8) * 8 + 2 * thread + i % 2];
            }
            for (int i = 0; i < 2; ++i) {
                const int k = kind == 0 ? thread + 4 * i : 2 * thread + 8 * i;
                b_lanes[2 * lane + i] = kind == 0 ? b_bits(k, group) : b_bits(k, group) | b_bits(k + 1, group) << 16;
            }
        }
        unsigned *a_device, *b_device;
        float* d_device;
        CHECK(to_device(&a_device, a_lanes));
        CHECK(to_device(&b_device, b_lanes));
        CHECK(to_device(&d_device, d));
        cudaLaunchConfig_t config = {};
        config.gridDim = dim3(1);
        config.blockDim = dim3(32);
        CHECK(cudaLaunchKernelEx(&config, product, kind, a_device, b_device, d_device));
        CHECK(to_host(&d, d_device));
        for (int lane = 0; lane < 32; ++lane) {
            for (int i = 0; i < 4; ++i) {
                const int row = lane / 4 + i / 2 * 8, column = 2 * (lane % 4) + i % 2;
                double sum = c[row * 8 + column];
                for (int k = 0; k < depth; ++k) sum += static_cast<double>(a[row * depth + k]) * b[k * 8 + column];
                EXPECT(std::fabs(d[4 * lane + i] - sum) < 1e-3);
            }
        }
        CHECK(cudaFree(a_device));
        CHECK(cudaFree(b_device));
        CHECK(cudaFree(d_device));
    }
    return 0;
}

// The nearest bf16 number, ties to even.
static unsigned nearest_bf16(float value) {
    unsigned bits;
    std::memcpy(&bits, &value, sizeof bits);
    const unsigned below = bits >> 16, rest = bits & 0xffffu;
    return below + (rest > 0x8000u || (rest == 0x8000u && below % 2 == 1) ? 1 : 0);
}

static int conversions() {
    std::vector<float> x = noise(64 * 32, 11), y(32 * 32);
    for (std::size_t i = 0; i < x.size(); ++i) {
        // Every exponent; every fourth value is a tie.
        unsigned bits;
        std::memcpy(&bits, &x[i], sizeof bits);
        bits = (bits & 0x807fffffu) | static_cast<unsigned>(i % 255) << 23;
        if (i % 4 == 0) bits = (bits & 0xffff0000u) | 0x8000u;
        std::memcpy(&x[i], &bits, sizeof bits);
    }
    float *x_device, *y_device;
    CHECK(to_device(&x_device, x));
    CHECK(to_device(&y_device, y));
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(32);
    config.blockDim = dim3(32);
    CHECK(cudaLaunchKernelEx(&config, to_bf16, static_cast<const float*>(x_device), y_device));
    CHECK(to_host(&y, y_device));
    for (std::size_t i = 0; i < y.size(); ++i) {
        unsigned pair;
        std::memcpy(&pair, &y[i], sizeof pair);
        EXPECT(pair == (nearest_bf16(x[2 * i]) | nearest_bf16(x[2 * i + 1]) << 16));
    }
    CHECK(cudaFree(x_device));
    CHECK(cudaFree(y_device));
    return 0;
}

// Reads the results of the two preceding launches, at an index other than the thread's own, and overwrites
// those of the launch before them.
extern "C" __global__ void __launch_bounds__(128) dependent_launch(const unsigned* newest, const unsigned* older, unsigned* y, int count) {
    const int i = blockIdx.x * 128 + threadIdx.x;
    if (i >= count) return;
    tdc_pdl_wait_and_trigger();
    y[i] = 3 * newest[(i + 1237) % count] + older[count - 1 - i] + 1;
}

// The time of a launch is printed; results are checked after each replay.
static int chain(bool pdl) {
    const int count = 50001, launches = 300;
    std::vector<unsigned> values[3];
    unsigned* memory[3];
    for (int i = 0; i < 3; ++i) {
        values[i].assign(count, i);
        CHECK(to_device(&memory[i], values[i]));
    }
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((count + 127) / 128);
    config.blockDim = dim3(128);
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = pdl ? 1 : 0;
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    for (int i = 0; i < launches; ++i) {
        CHECK(cudaLaunchKernelEx(&config, dependent_launch, memory[(i + 2) % 3], memory[(i + 1) % 3], memory[i % 3], count));
    }
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    cudaEvent_t start, end;
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&end));
    float ms = 0.0f;
    for (int replay = 0; replay < 3; ++replay) {
        CHECK(cudaEventRecord(start, stream));
        CHECK(cudaGraphLaunch(executable, stream));
        CHECK(cudaEventRecord(end, stream));
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaEventElapsedTime(&ms, start, end));
        for (int i = 0; i < launches; ++i) {
            const std::vector<unsigned>&newest = values[(i + 2) % 3], &older = values[(i + 1) % 3];
            for (int j = 0; j < count; ++j) {
                values[i % 3][j] = 3 * newest[(j + 1237) % count] + older[count - 1 - j] + 1;
            }
        }
        for (int i = 0; i < 3; ++i) {
            std::vector<unsigned> found(count);
            CHECK(to_host(&found, memory[i]));
            EXPECT(found == values[i]);
        }
    }
    std::printf("compiled for sm_%d: %s launches take %.3f us each\n", text_arch, pdl ? "programmatic dependent" : "plain",
                1e3f * ms / launches);
    for (unsigned* array : memory) CHECK(cudaFree(array));
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaEventDestroy(start));
    CHECK(cudaEventDestroy(end));
    CHECK(cudaStreamDestroy(stream));
    return 0;
}

int main() {
    cudaFuncAttributes function;
    CHECK(cudaFuncGetAttributes(&function, dependent_launch));
    text_arch = function.ptxVersion;
    std::printf("ptxVersion %d, binaryVersion %d\n", function.ptxVersion, function.binaryVersion);
    if (copies() != 0 || clusters() != 0 || conversions() != 0 || products() != 0 || chain(false) != 0) return 1;
    return text_arch >= 90 ? chain(true) : 0;
}
