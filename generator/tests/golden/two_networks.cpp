// A host program that vendors two networks: `two_networks WEIGHTS INPUT OUTPUT`. Prints the messages of calls that must
// fail, one a line; exits with 1 where something differs from what it should be.
#include "mixed.h"
#include "tiny.h"

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <thread>
#include <vector>

namespace {

void require(bool condition, const char* what) {
    if (condition) return;
    std::printf("FAILED: %s\n", what);
    std::exit(1);
}

std::vector<char> read(const char* path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

struct Block {
    explicit Block(std::size_t size) {
        void* memory = nullptr;
        require(cudaMalloc(&memory, size * sizeof(float)) == cudaSuccess, "cudaMalloc");
        data = static_cast<float*>(memory);
    }
    ~Block() { static_cast<void>(cudaFree(data)); }
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;

    float* data;
};

// Runs in a thread of its own: plain launches, then a graph, must give the same bits.
void work(mixed::Network& network, const std::vector<float>& input, std::vector<float>& output) {
    Block x(mixed::Network::inputs[0].size), y(mixed::Network::outputs[0].size);
    cudaStream_t stream = nullptr;
    require(cudaStreamCreate(&stream) == cudaSuccess, "cudaStreamCreate");
    const std::size_t bytes = output.size() * sizeof(float);
    require(cudaMemcpy(x.data, input.data(), input.size() * sizeof(float), cudaMemcpyHostToDevice) == cudaSuccess, "copy");
    require(network.run(x.data, y.data, stream).ok(), "run");
    require(cudaStreamSynchronize(stream) == cudaSuccess, "synchronize");
    require(cudaMemcpy(output.data(), y.data, bytes, cudaMemcpyDeviceToHost) == cudaSuccess, "copy");

    require(cudaMemset(y.data, 0xff, bytes) == cudaSuccess, "cudaMemset");
    require(network.capture(x.data, y.data, stream).ok(), "capture");
    require(network.replay(stream).ok() && network.replay(stream).ok(), "replay");
    require(cudaStreamSynchronize(stream) == cudaSuccess, "synchronize");
    std::vector<float> again(output.size());
    require(cudaMemcpy(again.data(), y.data, bytes, cudaMemcpyDeviceToHost) == cudaSuccess, "copy");
    require(std::memcmp(again.data(), output.data(), bytes) == 0, "the graph gives the bits of the launches");
    require(cudaStreamDestroy(stream) == cudaSuccess, "cudaStreamDestroy");
}

void expect_failure(const mixed::Status& status) {
    require(!status.ok(), "a call that must fail");
    std::printf("%s\n", status.message());
}

// Names, types and sizes of inputs and outputs are known at compile time; pointers are checked.
void tensors_are_described_and_checked(mixed::Network& network) {
    constexpr const mixed::TensorInfo& input = mixed::Network::inputs[0];
    constexpr const mixed::TensorInfo& output = mixed::Network::outputs[0];
    static_assert(mixed::Network::input_count == 1 && mixed::Network::output_count == 1, "one of each");
    static_assert(input.dtype == mixed::DType::fp32 && input.layout == mixed::Layout::nchw, "fp32 NCHW");
    static_assert(input.batch == 2 && input.channels == 3 && input.height == 13 && input.width == 11, "2x3x13x11");
    static_assert(input.size == 2 * 3 * 13 * 11 && input.bytes == 4 * input.size, "the whole batch");
    static_assert(output.batch == 2 && output.channels == 7 && output.size == 14, "2x7");
    require(mixed::Network::find_input("input") == 0 && mixed::Network::find_output("scores") == 0, "names");
    require(mixed::Network::find_input("scores") == -1 && mixed::Network::find_output("") == -1, "other names");

    Block x(input.size + 1), y(output.size);
    expect_failure(network.run(nullptr, y.data, nullptr));
    expect_failure(network.capture(x.data, nullptr, nullptr));
    expect_failure(network.run_layer(0, x.data + 1, y.data, nullptr));
    // The general form, for any number of inputs and outputs.
    expect_failure(network.run({x.data + 1}, {y.data}, nullptr));
    const void* const inputs[] = {x.data};
    void* const outputs[] = {y.data + 1};
    expect_failure(network.run(inputs, outputs, nullptr));
}

}  // namespace

int main(int argc, char** argv) {
    require(argc == 4, "arguments");
    const std::vector<char> input_bytes = read(argv[2]);
    std::vector<float> input(mixed::Network::inputs[0].size);
    require(input_bytes.size() == input.size() * sizeof(float), "size of the input");
    std::memcpy(input.data(), input_bytes.data(), input_bytes.size());

    // Two instances with the same weights, in two threads.
    mixed::Network first, second;
    expect_failure(first.run(nullptr, nullptr, nullptr));
    require(first.load_file(argv[1]).ok(), "load_file");
    tensors_are_described_and_checked(first);
    require(second.use(first.weights()).ok(), "use");
    expect_failure(first.replay(nullptr));
    std::vector<float> first_output(mixed::Network::outputs[0].size), second_output(mixed::Network::outputs[0].size);
    std::thread thread(work, std::ref(first), std::cref(input), std::ref(first_output));
    work(second, input, second_output);
    thread.join();
    require(first_output == second_output, "instances agree");
    std::ofstream(argv[3], std::ios::binary)
        .write(reinterpret_cast<const char*>(first_output.data()),
               static_cast<std::streamsize>(first_output.size() * sizeof(float)));

    // Files that must be refused, each without a trace.
    const std::vector<char> good = read(argv[1]);
    const auto changed = [&good](std::size_t at) {
        std::vector<char> bytes = good;
        bytes[at] = static_cast<char>(bytes[at] ^ 1);
        return bytes;
    };
    expect_failure(first.load_file("no/such/file"));
    expect_failure(first.load_memory(good.data(), 100));
    for (const std::size_t at : {std::size_t{0}, std::size_t{8}, std::size_t{16}, std::size_t{24}, std::size_t{31},
                                 std::size_t{32}, good.size() - 1}) {
        expect_failure(first.load_memory(changed(at).data(), good.size()));
    }
    expect_failure(first.load_memory(good.data(), good.size() - 1));
    std::vector<char> longer = good;
    longer.resize(good.size() + 255);
    expect_failure(first.load_memory(longer.data(), longer.size()));
    longer.resize(good.size() + 256);
    expect_failure(first.load_memory(longer.data(), longer.size()));
    expect_failure(first.load_memory(nullptr, 0));
    expect_failure(first.load_file(argv[1], "a100"));
    std::vector<float> output(mixed::Network::outputs[0].size);
    work(first, input, output);
    require(output == first_output, "refused weights change nothing");

    // Layers out of range and wrong sizes.
    expect_failure(first.run_layer(first.layer_count(), nullptr, nullptr, nullptr));
    expect_failure(first.copy_layer_output(0, nullptr, output.data(), 1, nullptr));
    expect_failure(first.use(nullptr));
    require(first.layer_name(-1) == nullptr && first.layer_output_size(-1) == 0, "out of range");
    const mixed::Network empty;
    require(empty.layer_count() == 0 && empty.layer_name(0) == nullptr && empty.variant() == nullptr, "no variant yet");
    require(first.load_file(argv[1], "h200").ok() && std::strcmp(first.variant(), "h200") == 0, "the variant by its name");

    // The other network, through C.
    tiny_network* network = tiny_create();
    require(network != nullptr, "tiny_create");
    require(std::strcmp(tiny_last_error(network), "") == 0, "no error yet");
    require(tiny_run(network, nullptr, nullptr, nullptr) != 0, "a network without weights cannot run");
    std::printf("%s\n%s\n", tiny_last_error(network), tiny_last_error(nullptr));
    require(tiny_load_random(network, 1, nullptr) == 0, "tiny_load_random");
    require(tiny_input_count() == 1 && tiny_output_count() == 1 && tiny_input(1) == nullptr && tiny_output(-1) == nullptr,
            "one of each");
    const tiny_tensor_info* info = tiny_input(0);
    require(std::strcmp(info->name, "input") == 0 && std::strcmp(tiny_output(0)->name, "a\"quoted\\name\\") == 0, "names");
    require(info->dtype == tiny_fp32 && info->layout == tiny_nchw && info->bytes == 4 * info->size, "fp32 NCHW");
    require(info->batch == 1 && info->channels == 2 && info->height == 4 && info->width == 4, "1x2x4x4");
    require(tiny_run(network, nullptr, nullptr, nullptr) != 0, "no pointers");
    std::printf("%s\n", tiny_last_error(network));
    Block x(info->size), y(tiny_output(0)->size);
    const void* const inputs[] = {x.data};
    void* const outputs[] = {y.data};
    std::vector<float> values(info->size, -1.0f);
    values[3] = 2.0f;
    const std::size_t bytes = values.size() * sizeof(float);
    require(cudaMemcpy(x.data, values.data(), bytes, cudaMemcpyHostToDevice) == cudaSuccess, "copy");
    require(tiny_run(network, inputs, outputs, nullptr) == 0, "tiny_run");
    require(tiny_copy_layer_output(network, 0, outputs, values.data(), values.size(), nullptr) == 0, "copy_layer_output");
    require(values[0] == 0.0f && values[3] == 2.0f, "max(0, x)");
    require(tiny_layer_count(network) == 1 && std::strcmp(tiny_variant(network), "h200") == 0, "layers and variant");
    std::printf("%s\n", tiny_layer_name(network, 0));
    tiny_destroy(network);
    tiny_destroy(nullptr);
    return 0;
}
