// Packs weights in device memory, with the same bits as `WeightLayout::pack` on the host. The source serves
// every layout, which is passed as numbers: it runs once for the weights of a layer. `pack.ptx` is compiled
// from this file; loops are not unrolled, which keeps it small.

struct Dim {
    unsigned axis, count, step;  // axis: 0 to 3 of OIHW
};

// Followed by `dim_count` dimensions, outermost first.
struct Layout {
    unsigned source[4];      // sizes of the weight, OIHW
    unsigned points;         // along each axis of F(m x m, 3 x 3); 0 for taps
    int g[6][3];             // G of that F, over `denominator`
    int denominator;
    unsigned merged, group_n;  // groups of a merged one, output channels of a group; 1 if none are merged
    unsigned run, terms;     // of fp16 weights; `run` is 0 for other formats
    unsigned bf16;
    unsigned dim_count;
};

// The weight at a tap, or G g G^T of its filter at a point, computed in double and rounded once.
static __device__ float weight_at(const float* weight, const Layout& layout, unsigned o, unsigned i, unsigned r, unsigned s) {
    const unsigned long long filter = (unsigned long long)o * layout.source[1] + i;
    if (layout.points == 0) return weight[(filter * layout.source[2] + r) * layout.source[3] + s];
    const float* const taps = weight + 9 * filter;
    double sum = 0.0;
#pragma unroll 1
    for (int tap = 0; tap < 9; ++tap) {
        sum += (double)(layout.g[r][tap / 3] * layout.g[s][tap % 3]) * taps[tap];
    }
    return (float)(sum / (layout.denominator * layout.denominator));
}

// The value at an index of the packed tensor before conversion; zero past the end of an axis.
static __device__ float value_at(const float* weight, const float* dequant_scale, const Layout& layout, unsigned long long index) {
    const Dim* const dims = reinterpret_cast<const Dim*>(&layout + 1);
    unsigned long long at[4] = {};
    for (unsigned d = layout.dim_count; d-- > 0; index /= dims[d].count) {
        at[dims[d].axis] += index % dims[d].count * dims[d].step;
    }
    // Input channels of preceding groups wrap around to huge indices.
    at[1] -= at[0] / layout.group_n % layout.merged * layout.source[1];
    for (int axis = 0; axis < 4; ++axis) {
        const unsigned size = axis < 2 || layout.points == 0 ? layout.source[axis] : layout.points;
        if (at[axis] >= size) return 0.0f;
    }
    const float value = weight_at(weight, layout, (unsigned)at[0], (unsigned)at[1], (unsigned)at[2], (unsigned)at[3]);
    return layout.run > 0 ? value / dequant_scale[at[0]] : value;  // by a power of two: exact
}

// The nearest fp16 number, ties to even; all NaNs give the same NaN.
static __device__ unsigned to_half(float value) {
    const unsigned bits = __float_as_uint(value), sign = bits >> 16 & 0x8000u;
    const float magnitude = fabsf(value);
    if (!(magnitude <= __uint_as_float(0x7f800000u))) return 0x7e00u;
    if (magnitude >= 65520.0f) return sign | 0x7c00u;
    // Below 2^-14 the distance of fp16 numbers is 2^-24: adding 0.5 leaves a multiple of it in the lower
    // bits.
    if (magnitude < __uint_as_float(0x38800000u)) return sign | (__float_as_uint(magnitude + 0.5f) - 0x3f000000u);
    const unsigned rounded = (bits & 0x7fffffffu) + 0xfffu + (bits >> 13 & 1u);
    return sign | ((rounded >> 13) - (112u << 10));
}

static __device__ float from_half(unsigned half) {
    const unsigned sign = (half & 0x8000u) << 16, exponent = half >> 10 & 0x1fu, fraction = half & 0x3ffu;
    unsigned magnitude = (exponent + 112u) << 23 | fraction << 13;
    if (exponent == 0) magnitude = __float_as_uint((float)fraction * __uint_as_float(0x33800000u));
    if (exponent == 31) magnitude = 0x7f800000u | fraction << 13;
    return __uint_as_float(sign | magnitude);
}

// The nearest bf16 number, the upper 16 bits of a float, ties to even; all NaNs give the same NaN.
static __device__ unsigned to_bf16(float value) {
    const unsigned bits = __float_as_uint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;
    return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

// The dequantisation scale: the power of two that maps the largest weight of an output channel back from
// [2^14, 2^15). One block per channel.
extern "C" __global__ void __launch_bounds__(256) tdc_pack_dequant_scales(const float* weight, float* dequant_scale, const Layout* layout_at) {
    const Layout& layout = *layout_at;
    __shared__ float largest_of[256];
    const unsigned o = blockIdx.x;
    float largest = 0.0f;
    if (o < layout.source[0]) {
        const unsigned rows = layout.points == 0 ? layout.source[2] : layout.points;
        const unsigned columns = layout.points == 0 ? layout.source[3] : layout.points;
        const unsigned long long count = (unsigned long long)layout.source[1] * rows * columns;
#pragma unroll 1
        for (unsigned long long k = threadIdx.x; k < count; k += 256) {
            const unsigned s = (unsigned)(k % columns), r = (unsigned)(k / columns % rows);
            largest = fmaxf(largest, fabsf(weight_at(weight, layout, o, (unsigned)(k / columns / rows), r, s)));
        }
    }
    largest_of[threadIdx.x] = largest;
    __syncthreads();
#pragma unroll 1
    for (unsigned half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            largest_of[threadIdx.x] = fmaxf(largest_of[threadIdx.x], largest_of[threadIdx.x + half]);
        }
        __syncthreads();
    }
    if (threadIdx.x > 0) return;
    const unsigned bits = __float_as_uint(largest_of[0]);
    // The exponent of a subnormal is raised to that of the smallest normal number, so that results are normal
    // numbers.
    const unsigned exponent = bits >> 23 < 15u ? 15u : bits >> 23;
    dequant_scale[o] = bits >= 0x7f800000u ? 1.0f : __uint_as_float((exponent - 14u) << 23);
}

// The packed weights, one thread per 32-bit word.
extern "C" __global__ void __launch_bounds__(256)
tdc_pack_weights(const float* weight, const float* dequant_scale, unsigned* packed, const Layout* layout_at, long long words) {
    const Layout& layout = *layout_at;
    for (long long word = blockIdx.x * 256ll + threadIdx.x; word < words; word += gridDim.x * 256ll) {
        if (layout.run == 0 && !layout.bf16) {
            packed[word] = __float_as_uint(value_at(weight, dequant_scale, layout, word));
            continue;
        }
        // Each run of weights has the words with the hi terms first, followed by those with the lo terms.
        unsigned long long first = 2 * word;
        bool is_rest = false;
        if (layout.run > 0) {
            const unsigned term_words = layout.run / 2, run_words = term_words * layout.terms;
            const unsigned in_run = (unsigned)(word % run_words);
            first = word / run_words * layout.run + 2 * (in_run % term_words);
            is_rest = in_run >= term_words;
        }
        unsigned rounded[2];
#pragma unroll 1
        for (int i = 0; i < 2; ++i) {
            const float value = value_at(weight, dequant_scale, layout, first + i);
            rounded[i] = layout.bf16 ? to_bf16(value) : to_half(value);
            if (is_rest) rounded[i] = to_half(value - from_half(rounded[i]));
        }
        packed[word] = rounded[1] << 16 | rounded[0];
    }
}
