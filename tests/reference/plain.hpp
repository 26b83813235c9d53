// plain.hpp: each reduction of each data type, for the reference alone. It shares no arithmetic with
// src/base/arithmetic.hpp. A table holds all numbers of a small float's format, and rounding searches it for the
// nearest. tests/base compares both.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "weft/types.h"

namespace weft::internal::reference {

// A floating-point format below 32 bits, by the formula of its definition.
struct Format {
    int exponent_bits, mantissa_bits;
    bool infinite;   // the highest exponent is infinity and NaN
    bool saturates;  // finite numbers too large become the largest

    int bits() const { return 1 + exponent_bits + mantissa_bits; }
    uint32_t sign() const { return 1u << (bits() - 1); }
    double value(uint32_t pattern) const {
        const int exponent = int(pattern >> mantissa_bits) & ((1 << exponent_bits) - 1);
        const int mantissa = int(pattern) & ((1 << mantissa_bits) - 1);
        const int bias = (1 << (exponent_bits - 1)) - 1;
        double magnitude;
        if (infinite && exponent == (1 << exponent_bits) - 1) {
            magnitude = mantissa ? NAN : INFINITY;
        } else if (!infinite && (pattern & (sign() - 1)) == sign() - 1) {
            magnitude = NAN;
        } else if (exponent == 0) {
            magnitude = std::ldexp(mantissa, 1 - bias - mantissa_bits);
        } else {
            magnitude = std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
        }
        return pattern & sign() ? -magnitude : magnitude;
    }

    // Every finite number from 0 up; their patterns are 0, 1, 2, ...
    std::vector<double> magnitudes() const {
        std::vector<double> list;
        for (uint32_t pattern = 0; pattern < sign() && std::isfinite(value(pattern)); ++pattern)
            list.push_back(value(pattern));
        return list;
    }

    uint32_t nearest(double wanted, const std::vector<double>& list) const {
        const uint32_t sign_bit = std::signbit(wanted) ? sign() : 0;
        const double size = std::fabs(wanted);
        const auto largest = uint32_t(list.size() - 1);
        if (std::isinf(size)) return sign_bit | (infinite ? largest + 1 : largest);
        const auto above = uint32_t(std::lower_bound(list.begin(), list.end(), size) - list.begin());
        if (above > largest) {
            // Beyond the largest: infinity counts as the number that would come next.
            const double next = list[largest] + (list[largest] - list[largest - 1]);
            const bool up = size - list[largest] >= next - size;
            return sign_bit | (up && !saturates ? largest + 1 : largest);
        }
        if (list[above] == size) return sign_bit | above;
        const double to_above = list[above] - size, to_below = size - list[above - 1];
        const bool up = to_above < to_below || (to_above == to_below && above % 2 == 0);
        return sign_bit | (up ? above : above - 1);
    }
};

template <weftDataType_t type>
inline constexpr Format format{};
template <>
inline constexpr Format format<weftFloat16>{5, 10, true, false};
template <>
inline constexpr Format format<weftBfloat16>{8, 7, true, false};
template <>
inline constexpr Format format<weftFloat8e4m3>{4, 3, false, true};
template <>
inline constexpr Format format<weftFloat8e5m2>{5, 2, true, true};

// Of a small float: the number of each pattern, and of the positive ones the magnitudes in order.
struct Table {
    explicit Table(const Format& of) : format(of), magnitudes(of.magnitudes()) {
        for (uint32_t pattern = 0; pattern < 2 * of.sign(); ++pattern) numbers.push_back(float(of.value(pattern)));
    }
    uint32_t nearest(float wanted) const {
        if (wanted != wanted) return format.infinite ? uint32_t(magnitudes.size()) + 1 : format.sign() - 1;
        return format.nearest(double(wanted), magnitudes);
    }
    Format format;
    std::vector<double> magnitudes;
    std::vector<float> numbers;
};
template <weftDataType_t type>
const Table& table_of() {
    static const Table table(format<type>);
    return table;
}

// Element: as in memory, a small float by its bits. Wide: as it is combined.
template <weftDataType_t type, class E, class W>
struct PlainType {
    static constexpr bool integer = std::is_integral_v<W>;
    using Element = E;
    using Wide = W;
    static Wide wide(Element element) {
        if constexpr (std::is_same_v<E, W>)
            return element;
        else
            return table_of<type>().numbers[element];
    }
    static Element narrow(Wide value) {
        if constexpr (std::is_same_v<E, W>)
            return value;
        else
            return Element(table_of<type>().nearest(value));
    }
};
template <weftDataType_t type>
struct Plain;
#define WEFT_PLAIN(type, element, wide) \
    template <>                         \
    struct Plain<type> : PlainType<type, element, wide> {};
WEFT_PLAIN(weftInt8, int8_t, int8_t)
WEFT_PLAIN(weftUint8, uint8_t, uint8_t)
WEFT_PLAIN(weftInt32, int32_t, int32_t)
WEFT_PLAIN(weftUint32, uint32_t, uint32_t)
WEFT_PLAIN(weftInt64, int64_t, int64_t)
WEFT_PLAIN(weftUint64, uint64_t, uint64_t)
WEFT_PLAIN(weftFloat16, uint16_t, float)
WEFT_PLAIN(weftFloat32, float, float)
WEFT_PLAIN(weftFloat64, double, double)
WEFT_PLAIN(weftBfloat16, uint16_t, float)
WEFT_PLAIN(weftFloat8e4m3, uint8_t, float)
WEFT_PLAIN(weftFloat8e5m2, uint8_t, float)
#undef WEFT_PLAIN

// visitor(std::integral_constant<weftDataType_t, type>{}), and likewise for reductions.
template <class Visitor>
decltype(auto) with_type(weftDataType_t type, Visitor&& visitor) {
#define WEFT_VISIT(name) \
    if (type == name) return visitor(std::integral_constant<weftDataType_t, name>{});
    WEFT_VISIT(weftInt8)
    WEFT_VISIT(weftUint8)
    WEFT_VISIT(weftInt32)
    WEFT_VISIT(weftUint32)
    WEFT_VISIT(weftInt64)
    WEFT_VISIT(weftUint64)
    WEFT_VISIT(weftFloat16)
    WEFT_VISIT(weftFloat64)
    WEFT_VISIT(weftBfloat16)
    WEFT_VISIT(weftFloat8e4m3)
    WEFT_VISIT(weftFloat8e5m2)
#undef WEFT_VISIT
    return visitor(std::integral_constant<weftDataType_t, weftFloat32>{});
}
template <class Visitor>
decltype(auto) with_op(weftRedOp_t op, Visitor&& visitor) {
#define WEFT_VISIT(name) \
    if (op == name) return visitor(std::integral_constant<weftRedOp_t, name>{});
    WEFT_VISIT(weftProd)
    WEFT_VISIT(weftMax)
    WEFT_VISIT(weftMin)
    WEFT_VISIT(weftAvg)
    WEFT_VISIT(weftBand)
    WEFT_VISIT(weftBor)
    WEFT_VISIT(weftBxor)
#undef WEFT_VISIT
    return visitor(std::integral_constant<weftRedOp_t, weftSum>{});
}

// Integers modulo 2^n; floats as IEEE 754-2019 says (minimum and maximum: a NaN wins, and -0 is less than +0). An average
// is a sum here; bits of floats are not combined.
template <weftRedOp_t op, class T>
T combined(T left, T right) {
    if constexpr (std::is_integral_v<T>) {
        const __int128 a = left, b = right;
        switch (op) {
            case weftProd: return T(static_cast<unsigned __int128>(a) * static_cast<unsigned __int128>(b));
            case weftMax: return std::max(left, right);
            case weftMin: return std::min(left, right);
            case weftBand: return T(a & b);
            case weftBor: return T(a | b);
            case weftBxor: return T(a ^ b);
            default: return T(a + b);
        }
    } else {
        if (op == weftProd) return left * right;
        if (op != weftMax && op != weftMin) return left + right;
        if (std::isnan(left) || std::isnan(right)) return T(NAN);
        const bool left_is_less = left == right ? std::signbit(left) : left < right;
        return left_is_less == (op == weftMin) ? left : right;
    }
}
// Toward zero.
template <class T>
T divided(T sum, uint32_t divisor) {
    return T(static_cast<__int128>(sum) / static_cast<__int128>(divisor));
}

}  // namespace weft::internal::reference
