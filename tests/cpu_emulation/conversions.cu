// Pairs of floats rounded to 16-bit numbers, and fp16 converted back; two values per thread.

extern "C" __global__ void to_bf16(const float* x, float* y) {
    const unsigned i = blockIdx.x * 32 + threadIdx.x;
    y[i] = __uint_as_float(tdc_to_bf16x2(x[2 * i], x[2 * i + 1]));
}
