// A host program that runs batches of 1, 2, ... images: `several_batches WEIGHTS INPUT GPU OUTPUT...`, an output for each. The memory of
// inputs and outputs ends with the last image. Exits with 1 where something differs from what it should be.
#include "batches_of_two.h"

#include <cuda_runtime_api.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

using batches_of_two::Network;
using batches_of_two::Status;

namespace {

void require(bool condition, const char* what) {
    if (condition) return;
    std::printf("FAILED: %s\n", what);
    std::exit(1);
}

void require(const Status& status) { require(status.ok(), status.message()); }

void print(const Status& status) { std::printf("%s\n", status.message()); }

std::vector<char> content(const char* path) {
    std::ifstream file(path, std::ios::binary);
    return std::vector<char>(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

// Device memory that ends at most 12 bytes before a page that cannot be accessed, aligned to 16 bytes. The emulation's is host memory.
class Guarded {
public:
    explicit Guarded(std::size_t bytes) : bytes_(bytes) {
        page_size_ = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
        const std::size_t rounded = (bytes + 15) / 16 * 16;
        require(cudaMalloc(&block_, rounded + 2 * page_size_) == cudaSuccess, "cudaMalloc");
        const auto end = reinterpret_cast<std::uintptr_t>(block_) + rounded + page_size_ - 1;
        page_ = reinterpret_cast<char*>(end / page_size_ * page_size_);
        require(mprotect(page_, page_size_, PROT_NONE) == 0, "mprotect");
        data_ = page_ - rounded;
        std::memset(data_, 0x7f, rounded);
    }
    ~Guarded() {
        static_cast<void>(mprotect(page_, page_size_, PROT_READ | PROT_WRITE));
        static_cast<void>(cudaFree(block_));
    }
    Guarded(const Guarded&) = delete;
    Guarded& operator=(const Guarded&) = delete;

    char* data() const { return data_; }
    // Whether the bytes between the end and the guarded page are as they were.
    bool is_untouched() const {
        for (std::size_t i = bytes_; i % 16 != 0; ++i) {
            if (data_[i] != 0x7f) return false;
        }
        return true;
    }

private:
    std::size_t bytes_, page_size_ = 0;
    void* block_ = nullptr;
    char* page_ = nullptr;
    char* data_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
    require(argc == 4 + Network::max_batch, "arguments");
    const std::vector<char> x = content(argv[2]);
    require(x.size() == Network::inputs[0].bytes, "the size of the input");
    Network network;
    cudaStream_t stream = nullptr;
    require(cudaStreamCreate(&stream) == cudaSuccess, "cudaStreamCreate");
    float* const none = nullptr;
    print(network.run(none, none, 1, stream));
    require(network.plan_for(1) == -1 && network.layer_count(0) == 0, "a plan before there are weights");
    require(network.load_file(argv[1], argv[3]));
    require(network.plan_for(Network::max_batch) == Network::plan_count - 1 && network.plan_for(0) == -1, "plan_for");
    for (int batch = 1; batch <= Network::max_batch; ++batch) {
        const auto images = static_cast<std::size_t>(batch);
        const Guarded input(x.size() / Network::max_batch * images);
        const Guarded plain(Network::outputs[0].bytes / Network::max_batch * images);
        const Guarded graph(Network::outputs[0].bytes / Network::max_batch * images);
        const std::size_t bytes = Network::outputs[0].bytes / Network::max_batch * images;
        std::memcpy(input.data(), x.data(), x.size() / Network::max_batch * images);
        const auto* from = reinterpret_cast<const float*>(input.data());
        require(network.run(from, reinterpret_cast<float*>(plain.data()), batch, stream));
        require(network.capture(from, reinterpret_cast<float*>(graph.data()), batch, stream));
        require(network.replay(batch, stream));
        require(cudaStreamSynchronize(stream) == cudaSuccess, "cudaStreamSynchronize");
        require(std::memcmp(plain.data(), graph.data(), bytes) == 0, "the graph computes the same");
        require(plain.is_untouched() && graph.is_untouched() && input.is_untouched(), "memory beyond the batch");
        std::ofstream(argv[3 + batch], std::ios::binary).write(plain.data(), static_cast<std::streamsize>(bytes));
    }
    const Guarded input(Network::inputs[0].bytes), output(Network::outputs[0].bytes);
    auto* const from = reinterpret_cast<const float*>(input.data());
    auto* const to = reinterpret_cast<float*>(output.data());
    print(network.run(from, to, 0, stream));
    print(network.capture(from, to, Network::max_batch + 1, stream));
    require(network.load_file(argv[1], argv[3]));
    print(network.replay(2, stream));
    print(network.run_layer(3, 0, from, to, stream));
    print(network.run_layer(2, 3, from, to, stream));
    return 0;
}
