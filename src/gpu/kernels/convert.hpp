// convert.hpp: the kernel that converts floats to and from 16 bits. float64 is rounded to float32 first, as on the host.
#pragma once
#include "src/base/arithmetic.hpp"
#include "src/gpu/kernels/convert_arguments.hpp"
#include "src/gpu/kernels/device.hpp"

namespace weft::internal::cuda {

template <weftDataType_t from, weftDataType_t to>
WEFT_DEVICE void convert_all(const Team& team, const ConvertArguments& arguments) {
    using From = Arithmetic<from>;
    using To = Arithmetic<to>;
    const auto* const source = static_cast<const typename From::Element*>(arguments.from);
    auto* const target = static_cast<typename To::Element*>(arguments.to);
    const uint64_t step = uint64_t(team.threads) * uint64_t(team.blocks);
    for (uint64_t i = uint64_t(team.block) * uint64_t(team.threads) + uint64_t(team.thread); i < arguments.count;
         i += step)
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

}  // namespace weft::internal::cuda
