#ifndef TDC_LOAD_MATRICES
#define TDC_LOAD_MATRICES
// Loads four 8x8 matrices of 16-bit numbers (ldmatrix): lane l says which run of 16 bytes of shared memory is row l % 8
// of matrix l / 8. It gets of each matrix the numbers in row l / 4 and columns 2 (l % 4) and 2 (l % 4) + 1, the first
// in the lower 16 bits. All 32 lanes of a warp take part.
[[maybe_unused]] static __device__ __forceinline__ void
tdc_load_matrices(unsigned (&matrices)[4], const float* shared, int run) {
#if __CUDA_ARCH__ >= 750
    const auto address = static_cast<unsigned>(__cvta_generic_to_shared(shared + 4 * run));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
                 : "r"(address)
                 : "memory");
#else
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int row = __shfl_sync(0xffffffffu, run, 8 * i + lane / 4);
        matrices[i] = reinterpret_cast<const unsigned*>(shared)[4 * row + lane % 4];
    }
#endif
}
#endif
