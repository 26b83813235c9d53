// arithmetic.hpp: the meaning of each reduction for each data type, one element at a time. This is the reference: the
// vector loops of the CPU and GPU kernels must match it bit for bit.
//
// Integers wrap. averaging() below has the rule of weftAvg for each type.
// Floats of 16 and 8 bits are combined in fp32. The result is rounded once, to nearest, ties to even.
// min and max follow IEEE 754-2019: NaN if either operand is NaN, and -0 below +0.
// The payload of the NaN is unspecified. In fp16 and bf16 an overflow gives infinity.
// In fp8 it saturates: e4m3, which has no infinity, gives 448 for everything above it. In e5m2 finite values above 57344
// give 57344, and an infinity stays.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "src/base/datatype.hpp"
#include "src/base/small_float.hpp"

namespace weft::internal {

// Element: the representation in memory (small floats by their bits). Accumulator: the type that is combined. widen is
// exact; round rounds once.
template <weftDataType_t type>
struct Arithmetic;

template <class T>
struct SameArithmetic {
    using Element = T;
    using Accumulator = T;
    static WEFT_INLINE constexpr T widen(T element) { return element; }
    static WEFT_INLINE constexpr T round(T value) { return value; }
};
template <>
struct Arithmetic<weftInt8> : SameArithmetic<int8_t> {};
template <>
struct Arithmetic<weftUint8> : SameArithmetic<uint8_t> {};
template <>
struct Arithmetic<weftInt32> : SameArithmetic<int32_t> {};
template <>
struct Arithmetic<weftUint32> : SameArithmetic<uint32_t> {};
template <>
struct Arithmetic<weftInt64> : SameArithmetic<int64_t> {};
template <>
struct Arithmetic<weftUint64> : SameArithmetic<uint64_t> {};
template <>
struct Arithmetic<weftFloat32> : SameArithmetic<float> {};
template <>
struct Arithmetic<weftFloat64> : SameArithmetic<double> {};

template <class T, class Format_>
struct SmallFloatArithmetic {
    using Format = Format_;
    using Element = T;
    using Accumulator = float;
    static WEFT_INLINE constexpr float widen(T element) { return Format::widen(uint32_t(element)); }
    static WEFT_INLINE constexpr T round(float value) { return T(Format::round(value)); }
};
template <>
struct Arithmetic<weftFloat16> : SmallFloatArithmetic<uint16_t, Float16Format> {};
template <>
struct Arithmetic<weftFloat8e4m3> : SmallFloatArithmetic<uint8_t, Float8e4m3Format> {};
template <>
struct Arithmetic<weftFloat8e5m2> : SmallFloatArithmetic<uint8_t, Float8e5m2Format> {};

template <>
struct Arithmetic<weftBfloat16> {
    using Element = uint16_t;
    using Accumulator = float;
    static WEFT_INLINE constexpr float widen(uint16_t element) { return Bfloat16Format::widen(uint32_t(element)); }
    static WEFT_INLINE constexpr uint16_t round(float value) {
        return uint16_t(Bfloat16Format::round_upper(value) >> 16);
    }
};

#define WEFT_DATATYPE(enumerator, name, bytes) \
    static_assert(is_integer(enumerator) == std::is_integral_v<Arithmetic<enumerator>::Accumulator>);
#include "src/base/datatype.def"
#undef WEFT_DATATYPE

// left op right, on accumulators. avg adds, and averaging() has the divisor. The API rejects bitwise operations on
// floats before they reach this function.
template <weftRedOp_t op, class T>
WEFT_INLINE constexpr T combine(T left, T right) {
    if constexpr (std::is_integral_v<T>) {
        if constexpr (op == weftSum || op == weftAvg) return T(uint64_t(left) + uint64_t(right));
        if constexpr (op == weftProd) return T(uint64_t(left) * uint64_t(right));
        if constexpr (op == weftMax) return left > right ? left : right;
        if constexpr (op == weftMin) return left < right ? left : right;
        if constexpr (op == weftBand) return T(left & right);
        if constexpr (op == weftBor) return T(left | right);
        if constexpr (op == weftBxor) return T(left ^ right);
    } else if constexpr (is_bitwise(op)) {
        __builtin_unreachable();
    } else {
        if constexpr (op == weftSum || op == weftAvg) return left + right;
        if constexpr (op == weftProd) return left * right;
        if (left != left || right != right) return T(__builtin_nanf(""));
        // Equal numbers differ at most in the sign of zero, and -0 is the lesser.
        if (left == right) return (__builtin_signbit(left) != 0) == (op == weftMin) ? left : right;
        return (left > right) == (op == weftMax) ? left : right;
    }
}

// The rule of weftAvg (docs/guide/determinism.md). The complete sum of integers is divided by the number of ranks. Each
// float contribution is multiplied by 1 / share_of, a power of two not below that number, so that no sum overflows. The
// complete sum is divided by average_of / share_of. A product is exact unless it is subnormal.
struct Averaging {
    uint32_t average_of = 0;     // 0: the complete sum is not divided
    uint32_t share_of = 0;       // 0: contributions are not scaled
    bool rounds_shares = false;  // the product is rounded to the element type, in which it travels
};
// `in_one_place`: each result is computed at once from the contributions of all ranks.
WEFT_INLINE constexpr Averaging averaging(weftDataType_t type, uint32_t ranks, bool in_one_place) {
    if (ranks == 1) return {};
    if (is_integer(type)) return {.average_of = ranks};
    const uint32_t share_of = std::bit_ceil(ranks);
    return {share_of == ranks ? 0 : ranks, share_of, !in_one_place};
}
// The divisor of a complete sum of floats.
template <class T>
WEFT_INLINE constexpr T average_divisor(uint32_t average_of, uint32_t share_of) {
    return T(average_of) / T(share_of != 0 ? share_of : 1);
}

template <class T>
WEFT_INLINE constexpr T average(T sum, uint32_t divisor) {
    if constexpr (std::is_floating_point_v<T>)
        return sum / T(divisor);
    else if constexpr (std::is_signed_v<T>)
        return T(int64_t(sum) / int64_t(divisor));
    else
        return T(uint64_t(sum) / divisor);
}

// Calls visitor(std::integral_constant<weftDataType_t, type>{}), and likewise for reductions, to turn a run-time value
// into a template argument.
template <class Visitor>
WEFT_INLINE constexpr decltype(auto) with_datatype(weftDataType_t type, Visitor&& visitor) {
    switch (type) {
#define WEFT_DATATYPE(enumerator, name, bytes) \
    case enumerator:                           \
        return visitor(std::integral_constant<weftDataType_t, enumerator>{});
#include "src/base/datatype.def"
#undef WEFT_DATATYPE
        default: __builtin_unreachable();
    }
}
template <class Visitor>
WEFT_INLINE constexpr decltype(auto) with_reduction(weftRedOp_t op, Visitor&& visitor) {
    switch (op) {
#define WEFT_REDUCTION(enumerator, name) \
    case enumerator:                     \
        return visitor(std::integral_constant<weftRedOp_t, enumerator>{});
#include "src/base/reduction.def"
#undef WEFT_REDUCTION
        default: __builtin_unreachable();
    }
}

}  // namespace weft::internal
