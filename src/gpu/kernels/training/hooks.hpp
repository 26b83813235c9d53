// hooks.hpp: the kernel of compressing hooks. One serves all work, because memory is its limit.
#pragma once
#include "src/gpu/kernels/training/hook_matrices.hpp"
#include "src/gpu/kernels/training/hook_messages.hpp"
#include "src/gpu/kernels/training/hook_selection.hpp"

namespace weft::internal::cuda {

WEFT_DEVICE void measure_magnitude(const Team& team, const HookArguments& a) {
    const NumbersOfThread own(team);
    uint32_t largest = 0;
    for (uint64_t i = own.first; i < a.count; i += own.step) {
        const uint32_t bits = magnitude_bits(a.numbers[i]);
        largest = bits > largest ? bits : largest;
    }
    raise_to(&a.facts->largest_bits, largest);
}

WEFT_DEVICE void add_up_squares(const Team& team, const HookArguments& a, HookBlock& shared) {
    const double root_mean = root_mean_square(team, a.sums, a.count, shared.wide);
    if (team.thread != 0) return;
    if (a.work == HookWork::layer_scale) return set_layer_scale(a.scale, root_mean);
    const auto narrow = float(root_mean);
    const bool finite = magnitude_bits(narrow) < infinity_bits;
    a.facts->root_mean_square = finite ? narrow : __builtin_bit_cast(float, 0x7fc00000u);
}

WEFT_DEVICE void select_largest(const Team& team, const HookArguments& a, HookBlock& shared) {
    switch (a.work) {
        case HookWork::count_high: return count_high(team, a);
        case HookWork::find_high: return find_high(team, a, shared);
        case HookWork::count_low: return count_low(team, a);
        case HookWork::find_low: return find_low(team, a, shared);
        case HookWork::count_parts: return count_parts(team, a, shared);
        case HookWork::place_parts: return place_parts(team, a, shared);
        case HookWork::select: return select(team, a, shared);
        case HookWork::add_selected: return add_selected(team, a);
        default: return zero_selected(team, a);
    }
}

WEFT_DEVICE void use_matrix(const Team& team, const HookArguments& a, HookBlock& shared) {
    switch (a.work) {
        case HookWork::begin_right:
            return begin_right(team, a.numbers, a.kept, a.matrix.columns, a.matrix.seed, shared);
        case HookWork::orthonormalize: return orthonormalize(team, a.numbers, a.kept, a.matrix.rows, shared);
        case HookWork::multiply_right: return multiply_right(team, a, shared);
        case HookWork::multiply_left: return multiply_left(team, a);
        default: return multiply_factors(team, a);
    }
}

WEFT_DEVICE void use_message(const Team& team, const HookArguments& a) {
    const bool wide_range = a.type == weftFloat8e5m2;
    switch (a.work) {
        case HookWork::encode_bits: return encode_bits(team, a);
        case HookWork::decode_bits: return decode_bits(team, a);
        case HookWork::encode_float8:
            return wide_range ? encode_float8<weftFloat8e5m2>(team, a) : encode_float8<weftFloat8e4m3>(team, a);
        default: return wide_range ? decode_float8<weftFloat8e5m2>(team, a) : decode_float8<weftFloat8e4m3>(team, a);
    }
}

WEFT_DEVICE void hook(const Team& team, const HookArguments& a, HookBlock& shared) {
    if (a.work == HookWork::read) return read_elements(NumbersOfThread(team), a);
    if (a.work == HookWork::write) return write_elements(NumbersOfThread(team), a);
    if (a.work <= HookWork::keep) return hook_elements(NumbersOfThread(team), a);
    if (a.work == HookWork::measure) return measure_magnitude(team, a);
    if (a.work == HookWork::squares) return sum_squares(team, a.numbers, a.count, a.sums, shared.wide);
    if (a.work <= HookWork::layer_scale) return add_up_squares(team, a, shared);
    if (a.work <= HookWork::decode_float8) return use_message(team, a);
    if (a.work <= HookWork::zero_selected) return select_largest(team, a, shared);
    use_matrix(team, a, shared);
}

}  // namespace weft::internal::cuda
