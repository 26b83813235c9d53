// hook_matrices.hpp: PowerSGD's work on a matrix and the columns of its two factors. The host has loops of its own for
// the products, with the same order of additions, and shares the rest.
#pragma once
#include "src/base/random_number.hpp"
#include "src/gpu/kernels/training/hook_elements.hpp"
#include "src/gpu/kernels/training/hook_sums.hpp"

namespace weft::internal::cuda {

// Of a product of two rows: lane k adds up the products k, k + lanes, ...; then the lanes are added up in their order.
inline constexpr int row_lanes = 16;

WEFT_DEVICE float column_norm(const Team& team, const float* column, uint64_t length, HookBlock& shared) {
    return float(root(laned_sum<hook_threads>(team, shared.wide, 0, length,
                                              [=](uint64_t i) { return double(column[i]) * double(column[i]); })));
}

// Makes columns orthonormal (Gram-Schmidt). Columns that depend on earlier ones become zero. For a block by itself.
WEFT_DEVICE void orthonormalize(const Team& team, float* columns, uint64_t count, uint64_t length, HookBlock& shared) {
    // The rest of a dependent column is noise of the subtraction.
    constexpr float dependent = 1e-5f;
    const auto own = uint64_t(team.thread), step = uint64_t(team.threads);
    for (uint64_t k = 0; k < count; ++k) {
        float* const column = columns + k * length;
        const float before = column_norm(team, column, length, shared);
        // A second pass removes the errors of the first one.
        for (int pass = 0; pass < 2; ++pass)
            for (uint64_t earlier = 0; earlier < k; ++earlier) {
                const float* const other = columns + earlier * length;
                const float common = laned_sum<hook_threads>(team, shared.narrow, 0, length,
                                                             [=](uint64_t i) { return column[i] * other[i]; });
                for (uint64_t i = own; i < length; i += step) column[i] += -common * other[i];
                team.barrier();
            }
        const float left = column_norm(team, column, length, shared);
        // A NaN stays one.
        const bool depends = left <= before * dependent;
        for (uint64_t i = own; i < length; i += step) column[i] = depends ? 0.0f : column[i] / left;
        team.barrier();
    }
}

// A column of zeros would stay zero forever. For a block by itself.
WEFT_DEVICE void begin_right(const Team& team, float* columns, uint64_t count, uint64_t length, uint64_t seed,
                             HookBlock& shared) {
    orthonormalize(team, columns, count, length, shared);
    const auto own = uint64_t(team.thread), step = uint64_t(team.threads);
    bool changed = false;
    for (uint64_t k = 0; k < count; ++k) {
        float* const column = columns + k * length;
        bool has_number = false;
        for (uint64_t i = own; i < length; i += step) has_number |= column[i] != 0;
        if (team.any(has_number)) continue;
        for (uint64_t i = own; i < length; i += step) column[i] = normal_number(seed + k + 1, i);
        changed = true;
    }
    team.barrier();
    if (changed) orthonormalize(team, columns, count, length, shared);
}

WEFT_DEVICE void multiply_right(const Team& team, const HookArguments& a, HookBlock& shared) {
    constexpr int at_once = hook_threads / row_lanes;
    const uint64_t products = a.matrix.rows * a.kept;
    for (uint64_t base = uint64_t(team.block) * at_once; base < products; base += uint64_t(team.blocks) * at_once) {
        for (int slot = team.thread; slot < hook_threads; slot += team.threads) {
            const uint64_t number = base + uint64_t(slot / row_lanes);
            if (number >= products) continue;
            const float* const row = a.first + number % a.matrix.rows * a.matrix.columns;
            const float* const right = a.second + number / a.matrix.rows * a.matrix.columns;
            float sum = 0;
            for (auto i = uint64_t(slot % row_lanes); i < a.matrix.columns; i += row_lanes) sum += row[i] * right[i];
            shared.narrow[slot] = sum;
        }
        team.barrier();
        for (int place = team.thread; place < at_once; place += team.threads) {
            if (base + uint64_t(place) >= products) continue;
            float sum = 0;
            for (int lane = 0; lane < row_lanes; ++lane) sum += shared.narrow[place * row_lanes + lane];
            a.numbers[base + uint64_t(place)] = sum;
        }
        team.barrier();
    }
}

WEFT_DEVICE void multiply_left(const Team& team, const HookArguments& a) {
    const NumbersOfThread own(team);
    for (uint64_t number = own.first; number < a.matrix.columns * a.kept; number += own.step) {
        const uint64_t column = number % a.matrix.columns;
        const float* const left = a.second + number / a.matrix.columns * a.matrix.rows;
        float sum = 0;
        for (uint64_t row = 0; row < a.matrix.rows; ++row) sum += left[row] * a.first[row * a.matrix.columns + column];
        a.numbers[number] = sum;
    }
}

WEFT_DEVICE void multiply_factors(const Team& team, const HookArguments& a) {
    const NumbersOfThread own(team);
    for (uint64_t i = own.first; i < a.matrix.rows * a.matrix.columns; i += own.step) {
        const uint64_t row = i / a.matrix.columns, column = i % a.matrix.columns;
        float sum = 0;
        for (uint64_t k = 0; k < a.kept; ++k)
            sum += a.first[k * a.matrix.rows + row] * a.second[k * a.matrix.columns + column];
        a.numbers[i] = sum;
    }
}

}  // namespace weft::internal::cuda
