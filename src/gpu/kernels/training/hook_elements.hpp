// hook_elements.hpp: the work of compressing hooks on one number at a time. The host's loops are the same code.
#pragma once
#include "src/base/arithmetic.hpp"
#include "src/gpu/kernels/device.hpp"
#include "src/gpu/kernels/training/hook_arguments.hpp"

namespace weft::internal::cuda {

// All numbers, for a loop of the host: with a known step the compiler makes vectors of it.
struct AllNumbers {
    static constexpr uint64_t first = 0, step = 1;
};
// Those of a thread.
struct NumbersOfThread {
    WEFT_DEVICE explicit NumbersOfThread(const Team& team)
        : first(uint64_t(team.block) * uint64_t(team.threads) + uint64_t(team.thread)),
          step(uint64_t(team.threads) * uint64_t(team.blocks)) {}
    uint64_t first, step;
};

template <weftDataType_t type, class Range>
WEFT_DEVICE void read_numbers(const Range& own, const HookArguments& a) {
    using From = Arithmetic<type>;
    const auto* const elements = static_cast<const typename From::Element*>(a.memory);
    for (uint64_t i = own.first; i < a.count; i += own.step) a.numbers[i] = float(From::widen(elements[i]));
}
template <weftDataType_t type, class Range>
WEFT_DEVICE void write_numbers(const Range& own, const HookArguments& a) {
    using To = Arithmetic<type>;
    auto* const elements = static_cast<typename To::Element*>(a.memory);
    for (uint64_t i = own.first; i < a.count; i += own.step)
        elements[i] = To::round(typename To::Accumulator(a.numbers[i]));
}
template <class Range>
WEFT_DEVICE void read_elements(const Range& own, const HookArguments& a) {
    switch (a.type) {
        case weftFloat16: return read_numbers<weftFloat16>(own, a);
        case weftBfloat16: return read_numbers<weftBfloat16>(own, a);
        case weftFloat64: return read_numbers<weftFloat64>(own, a);
        default: return read_numbers<weftFloat32>(own, a);
    }
}
template <class Range>
WEFT_DEVICE void write_elements(const Range& own, const HookArguments& a) {
    switch (a.type) {
        case weftFloat16: return write_numbers<weftFloat16>(own, a);
        case weftBfloat16: return write_numbers<weftBfloat16>(own, a);
        case weftFloat64: return write_numbers<weftFloat64>(own, a);
        default: return write_numbers<weftFloat32>(own, a);
    }
}

constexpr uint32_t infinity_bits = 0x7f800000u;

// The arithmetic of float32.
template <class Range>
WEFT_DEVICE void hook_elements(const Range& own, const HookArguments& a) {
    float* const numbers = a.numbers;
    const float *const first = a.first, *const second = a.second;
    const float factor = a.factor;
    const auto all = [&](auto&& body) {
        for (uint64_t i = own.first; i < a.count; i += own.step) body(i);
    };
    switch (a.work) {
        case HookWork::mix: return all([=](uint64_t i) { numbers[i] = factor * first[i] + (1 - factor) * numbers[i]; });
        case HookWork::add_scaled: return all([=](uint64_t i) { numbers[i] += factor * first[i]; });
        case HookWork::subtract: return all([=](uint64_t i) { numbers[i] = first[i] - second[i]; });
        case HookWork::average:
            if (first) return all([=](uint64_t i) { numbers[i] = numbers[i] / factor + first[i]; });
            return all([=](uint64_t i) { numbers[i] = numbers[i] / factor; });
        case HookWork::scale: {
            const auto by = float(*a.scale);
            return all([=](uint64_t i) { numbers[i] *= by; });
        }
        case HookWork::unscale: {
            const auto by = float(*a.scale);
            return all([=](uint64_t i) { numbers[i] /= by; });
        }
        case HookWork::keep:
            if (a.facts->largest_bits < infinity_bits) all([=](uint64_t i) { numbers[i] = first[i]; });
            return;
        default: return;
    }
}

}  // namespace weft::internal::cuda
