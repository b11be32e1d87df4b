// A host program that moves one instance between the variants of a network: `variants WEIGHTS`, a file with a section for
// each. Exits with 1 where something differs from what it should be.
#include "pair.h"

#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

namespace {

void require(bool condition, const char* what) {
    if (condition) return;
    std::printf("FAILED: %s\n", what);
    std::exit(1);
}

void require(const pair::Status& status) { require(status.ok(), status.message()); }

float* device_block(const std::vector<float>& values) {
    void* memory = nullptr;
    const std::size_t bytes = values.size() * sizeof(float);
    require(cudaMalloc(&memory, bytes) == cudaSuccess, "cudaMalloc");
    require(cudaMemcpy(memory, values.data(), bytes, cudaMemcpyHostToDevice) == cudaSuccess, "copy");
    return static_cast<float*>(memory);
}

// What the network makes of x in a graph, which must be what it makes of it in plain launches.
std::vector<float> output(pair::Network& network, const float* x, float* y) {
    std::vector<float> plain(pair::Network::outputs[0].size), graph(plain.size());
    const std::size_t bytes = plain.size() * sizeof(float);
    cudaStream_t stream = nullptr;
    require(cudaStreamCreate(&stream) == cudaSuccess, "cudaStreamCreate");
    require(network.run(x, y, stream));
    require(cudaMemcpy(plain.data(), y, bytes, cudaMemcpyDeviceToHost) == cudaSuccess, "copy");
    require(!network.replay(stream).ok(), "a graph of other weights is gone");
    require(network.capture(x, y, stream));
    require(cudaMemset(y, 0xff, bytes) == cudaSuccess, "cudaMemset");
    require(network.replay(stream));
    require(cudaMemcpy(graph.data(), y, bytes, cudaMemcpyDeviceToHost) == cudaSuccess, "copy");
    require(std::memcmp(plain.data(), graph.data(), bytes) == 0, "the graph gives the bits of the launches");
    require(cudaStreamDestroy(stream) == cudaSuccess, "cudaStreamDestroy");
    return plain;
}

bool is_variant(const char* found, const char* expected) { return found != nullptr && std::strcmp(found, expected) == 0; }

}  // namespace

int main(int argc, char** argv) {
    require(argc == 2, "arguments");
    std::vector<float> input(pair::Network::inputs[0].size);
    for (std::size_t i = 0; i < input.size(); ++i) input[i] = static_cast<float>(i * 37 % 101) / 50.0f - 1.0f;
    float* x = device_block(input);
    float* y = device_block(std::vector<float>(pair::Network::outputs[0].size));

    // To and fro: to the variant with the larger arena, back, and to it again.
    pair::Network network;
    std::vector<std::vector<float>> outputs;
    for (const char* gpu : {"h200", "rtx2080ti", "h200", "rtx2080ti"}) {
        require(network.load_file(argv[1], gpu));
        require(is_variant(network.variant(), gpu), "the variant that was asked for");
        require(is_variant(network.weights()->variant(), gpu), "weights of that variant");
        require(network.layer_count() > 0 && network.layer_name(network.layer_count()) == nullptr, "layers");
        outputs.push_back(output(network, x, y));
    }
    require(outputs[0] == outputs[2] && outputs[1] == outputs[3], "a variant gives the same bits again");
    double difference = 0.0, norm = 0.0;
    for (std::size_t i = 0; i < outputs[0].size(); ++i) {
        difference += std::pow(static_cast<double>(outputs[0][i]) - outputs[1][i], 2);
        norm += std::pow(static_cast<double>(outputs[0][i]), 2);
    }
    require(norm > 0.0 && std::sqrt(difference / norm) < 1e-5, "both variants compute the same");

    // Another instance works with the variant of the weights that it is given.
    pair::Network other;
    require(other.load_random(1, "h200"));
    require(other.use(network.weights()));
    require(is_variant(other.variant(), "rtx2080ti"), "the variant of the shared weights");
    require(output(other, x, y) == outputs[1], "shared weights");

    // A call that fails leaves the instance as it was.
    require(!network.load_file(argv[1], "a100").ok() && !network.load_random(1, "").ok(), "variants that are not there");
    require(is_variant(network.variant(), "rtx2080ti"), "the variant of before");

    // Random weights are the same numbers in every layout.
    require(network.load_random(7, "h200"));
    const std::vector<float> random = output(network, x, y);
    require(network.load_random(7, "rtx2080ti"));
    const std::vector<float> again = output(network, x, y);
    for (std::size_t i = 0; i < random.size(); ++i) require(std::fabs(random[i] - again[i]) < 1e-4f, "random weights");

    // The same through C.
    pair_network* c = pair_create();
    require(c != nullptr && pair_variant(c) == nullptr && pair_layer_count(c) == 0, "no variant yet");
    require(pair_load_file(c, argv[1], "rtx2080ti") == 0 && is_variant(pair_variant(c), "rtx2080ti"), "load_file");
    std::ifstream file(argv[1], std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    require(pair_load_memory(c, bytes.data(), bytes.size(), "h200") == 0 && is_variant(pair_variant(c), "h200"), "load_memory");
    require(pair_load_memory(c, bytes.data(), bytes.size(), "h2000") != 0, "a variant that is not there");
    std::printf("%s\n", pair_last_error(c));
    require(pair_variant(nullptr) == nullptr && pair_layer_count(nullptr) == 0 && pair_layer_name(nullptr, 0) == nullptr, "null");
    pair_destroy(c);
    static_cast<void>(cudaFree(x));
    static_cast<void>(cudaFree(y));
    return 0;
}
