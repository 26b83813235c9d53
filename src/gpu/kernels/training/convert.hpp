// convert.hpp: the kernels of training that take one element at a time, with the bits of the host. One converts floats to
// and from 16 bits; float64 is rounded to float32 first. One multiplies or divides.
#pragma once
#include "src/base/arithmetic.hpp"
#include "src/gpu/kernels/device.hpp"
#include "src/gpu/kernels/training/convert_arguments.hpp"

namespace weft::internal::cuda {

// The elements of a thread: first, first + step, ...
struct ElementsOfThread {
    uint64_t first, step;
};
WEFT_DEVICE ElementsOfThread elements_of_thread(const Team& team) {
    return {uint64_t(team.block) * uint64_t(team.threads) + uint64_t(team.thread),
            uint64_t(team.threads) * uint64_t(team.blocks)};
}

template <weftDataType_t from, weftDataType_t to>
WEFT_DEVICE void convert_all(const Team& team, const ConvertArguments& arguments) {
    using From = Arithmetic<from>;
    using To = Arithmetic<to>;
    const auto* const source = static_cast<const typename From::Element*>(arguments.from);
    auto* const target = static_cast<typename To::Element*>(arguments.to);
    const ElementsOfThread own = elements_of_thread(team);
    for (uint64_t i = own.first; i < arguments.count; i += own.step)
        target[i] = To::round(typename To::Accumulator(float(From::widen(source[i]))));
}

template <weftDataType_t small>
WEFT_DEVICE void convert_small(const Team& team, const ConvertArguments& arguments) {
    if (arguments.from_type == weftFloat32) return convert_all<weftFloat32, small>(team, arguments);
    if (arguments.from_type == weftFloat64) return convert_all<weftFloat64, small>(team, arguments);
    if (arguments.to_type == weftFloat32) return convert_all<small, weftFloat32>(team, arguments);
    convert_all<small, weftFloat64>(team, arguments);
}

WEFT_DEVICE void convert(const Team& team, const ConvertArguments& arguments) {
    if (arguments.from_type == weftFloat16 || arguments.to_type == weftFloat16)
        convert_small<weftFloat16>(team, arguments);
    else
        convert_small<weftBfloat16>(team, arguments);
}

template <weftDataType_t type>
WEFT_DEVICE void scale_all(const Team& team, const ScaleArguments& arguments) {
    using Numbers = Arithmetic<type>;
    auto* const elements = static_cast<typename Numbers::Element*>(arguments.elements);
    const auto factor = typename Numbers::Accumulator(arguments.factor);
    const auto divisor = typename Numbers::Accumulator(arguments.divisor);
    const ElementsOfThread own = elements_of_thread(team);
    for (uint64_t i = own.first; i < arguments.count; i += own.step)
        elements[i] = Numbers::round(Numbers::widen(elements[i]) * factor / divisor);
}

WEFT_DEVICE void scale(const Team& team, const ScaleArguments& arguments) {
    switch (arguments.type) {
        case weftFloat16: return scale_all<weftFloat16>(team, arguments);
        case weftBfloat16: return scale_all<weftBfloat16>(team, arguments);
        case weftFloat64: return scale_all<weftFloat64>(team, arguments);
        default: return scale_all<weftFloat32>(team, arguments);
    }
}

}  // namespace weft::internal::cuda
