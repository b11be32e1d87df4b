// The matrix product of a warp, with operands rounded as by the tensor cores.
#pragma once

#include "execution.h"
#include "half.h"

#include <cmath>
#include <cstring>

namespace tdc_cpu {

// The operands of one lane: 4 registers of d (16x8), 4 of a (16xK), 2 of b (Kx8).
struct Product {
    MatrixKind kind;
    float* d;
    const unsigned* a;
    const unsigned* b;
};

inline float float_of_bits(unsigned bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

// The values in a register: one tf32 number, or two 16-bit numbers, the lower half first.
inline void unpack(MatrixKind kind, unsigned bits, float values[2]) {
    switch (kind) {
        case MatrixKind::tf32: values[0] = float_of_bits(bits & 0xffffe000u); break;
        case MatrixKind::f16:
            values[0] = float_of_f16(bits & 0xffffu);
            values[1] = float_of_f16(bits >> 16);
            break;
        case MatrixKind::bf16:
            values[0] = float_of_bits(bits << 16);
            values[1] = float_of_bits(bits & 0xffff0000u);
            break;
    }
}

// d += a * b, summed in double and rounded once. All lanes have the same kind.
inline void multiply(const Product (&lanes)[32]) {
    const MatrixKind kind = lanes[0].kind;
    const int width = kind == MatrixKind::tf32 ? 1 : 2;  // values of a register
    const int depth = 8 * width;
    float a[16][16], b[16][8], values[2] = {};
    for (int lane = 0; lane < 32; ++lane) {
        const int g = lane / 4, t = lane % 4;
        for (int i = 0; i < 4; ++i) {
            unpack(kind, lanes[lane].a[i], values);
            for (int j = 0; j < width; ++j) {
                a[g + i % 2 * 8][(t + i / 2 * 4) * width + j] = values[j];
            }
        }
        for (int i = 0; i < 2; ++i) {
            unpack(kind, lanes[lane].b[i], values);
            for (int j = 0; j < width; ++j) {
                b[(t + i * 4) * width + j][g] = values[j];
            }
        }
    }
    for (int lane = 0; lane < 32; ++lane) {
        for (int i = 0; i < 4; ++i) {
            const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
            double sum = lanes[lane].d[i];
            for (int k = 0; k < depth; ++k) {
                sum += static_cast<double>(a[row][k]) * b[k][column];
            }
            lanes[lane].d[i] = static_cast<float>(sum);
        }
    }
}

}  // namespace tdc_cpu
