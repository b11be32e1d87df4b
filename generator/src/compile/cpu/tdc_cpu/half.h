// Conversion to fp16 and bf16 as on a GPU.
#pragma once

#include <cmath>
#include <cstring>

namespace tdc_cpu {

inline float float_of_f16(unsigned bits) {
    const int exponent = bits >> 10 & 31;
    const int fraction = bits & 1023;
    float value = 0.0f;
    if (exponent == 31) {
        value = fraction != 0 ? NAN : INFINITY;
    } else if (exponent == 0) {
        value = std::ldexp(static_cast<float>(fraction), -24);
    } else {
        value = std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
    }
    return (bits >> 15 & 1) != 0 ? -value : value;
}

// The nearest fp16 number, ties to even; too large values become infinite.
inline unsigned f16_of_float(float value) {
    const unsigned sign = std::signbit(value) ? 0x8000u : 0u;
    const float magnitude = std::fabs(value);
    if (std::isnan(value)) return sign | 0x7e00u;
    if (magnitude >= 65520.0f) return sign | 0x7c00u;
    if (magnitude == 0.0f) return sign;
    int exponent;
    std::frexp(magnitude, &exponent);  // magnitude < 2^exponent
    const int step = exponent - 11 < -24 ? -24 : exponent - 11;  // distance of neighbours: its power of two
    const unsigned steps = static_cast<unsigned>(std::nearbyint(std::ldexp(magnitude, -step)));
    // Subnormal numbers count from zero, others from 1024; a carry increments the exponent.
    return sign | (static_cast<unsigned>(step + 24) * 1024u + steps);
}

// The nearest bf16 number, ties to even; all NaNs become the same NaN.
inline unsigned bf16_of_float(float value) {
    if (std::isnan(value)) return 0x7fffu;
    unsigned bits;
    std::memcpy(&bits, &value, sizeof bits);
    const unsigned below = bits >> 16, rest = bits & 0xffffu;  // the neighbour nearer to zero
    return below + (rest > 0x8000u || (rest == 0x8000u && below % 2 == 1) ? 1 : 0);
}

}  // namespace tdc_cpu
