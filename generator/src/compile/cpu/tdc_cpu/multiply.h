// The matrix product of a warp, with operands rounded as by the tensor cores.
#pragma once

#include "execution.h"
#include "half.h"

#include <cmath>
#include <cstring>

namespace tdc_cpu {

// The operands of one lane: 4 registers of d (16x8), 4 of a (16xK), 2 of b (Kx8). Or b is in shared memory, with
// two runs of eight 16-bit numbers for each column, `pitch` columns apart, and d has `columns` / 2 registers; then
// a may point to shared memory as well: to runs of eight 16-bit numbers, swizzled in 128 bytes, of which `a_at` is the
// first of the warp's rows, which are `row_runs` apart.
struct Product {
    MatrixKind kind;
    float* d;
    const unsigned* a;
    const unsigned* b;
    int columns = 8;
    int pitch = 0;
    int row_runs = 0;
    int a_at = 0;
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

// Values of a register.
inline int width_of(MatrixKind kind) { return kind == MatrixKind::tf32 ? 1 : 2; }

// Adds a * b to eight columns of d, summed in double and rounded once. `first` is the first of their registers.
inline void add_columns(const Product (&lanes)[32], const float (&a)[16][16], const float (&b)[16][8], int first) {
    const int depth = 8 * width_of(lanes[0].kind);
    for (int lane = 0; lane < 32; ++lane) {
        for (int i = 0; i < 4; ++i) {
            const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
            double sum = lanes[lane].d[first + i];
            for (int k = 0; k < depth; ++k) {
                sum += static_cast<double>(a[row][k]) * b[k][column];
            }
            lanes[lane].d[first + i] = static_cast<float>(sum);
        }
    }
}

// d += a * b. All lanes have the same kind, and the same b if it is in shared memory.
inline void multiply(const Product (&lanes)[32]) {
    const MatrixKind kind = lanes[0].kind;
    const int width = width_of(kind);
    float a[16][16], b[16][8], values[2] = {};
    for (int lane = 0; lane < 32; ++lane) {
        const int g = lane / 4, t = lane % 4;
        for (int i = 0; i < 4; ++i) {
            const int row_runs = lanes[lane].row_runs, run = lanes[lane].a_at + (g + i % 2 * 8) * row_runs + i / 2;
            const int word = row_runs == 0 ? i : 4 * (run ^ (run >> 3 & (row_runs - 1))) + t;
            unpack(kind, lanes[lane].a[word], values);
            for (int j = 0; j < width; ++j) {
                a[g + i % 2 * 8][(t + i / 2 * 4) * width + j] = values[j];
            }
        }
        for (int i = 0; i < 2 && lanes[lane].pitch == 0; ++i) {
            unpack(kind, lanes[lane].b[i], values);
            for (int j = 0; j < width; ++j) {
                b[(t + i * 4) * width + j][g] = values[j];
            }
        }
    }
    if (lanes[0].pitch == 0) {
        add_columns(lanes, a, b, 0);
        return;
    }
    for (int first = 0; first < lanes[0].columns; first += 8) {
        for (int pair = 0; pair < 64; ++pair) {
            const int column = pair / 8, k = pair % 8 * 2;
            unpack(kind, lanes[0].b[4 * (first + column + k / 8 * lanes[0].pitch) + k % 8 / 2], values);
            b[k][column] = values[0];
            b[k + 1][column] = values[1];
        }
        add_columns(lanes, a, b, first / 2);
    }
}

}  // namespace tdc_cpu
