// block_scale.hpp: how a block of float32 numbers becomes whole numbers with one scale. The rule serves the host and GPUs.
// The numbers are multiples of the scale, rounded to nearest, ties to even.
#pragma once
#include <cstdint>

#include "src/base/small_float.hpp"
#include "weft/types.h"

namespace weft::internal {

struct BlockScale {
    float scale = 0, inverse = 0;
};

// The order of magnitudes is that of these bits. Those of a NaN are above infinity's.
WEFT_INLINE constexpr uint32_t magnitude_bits(float number) {
    return __builtin_bit_cast(uint32_t, number) & 0x7fffffffu;
}

// Maps the largest magnitude to `highest`, and an infinity or NaN to NaN. Numbers whose scale would be subnormal count as
// zero: its inverse may overflow.
WEFT_INLINE constexpr BlockScale scale_to(float highest, uint32_t largest_bits) {
    constexpr uint32_t infinity = 0x7f800000u, quiet_nan = 0x7fc00000u;
    constexpr float least_normal = 0x1p-126f;
    if (largest_bits >= infinity) return {__builtin_bit_cast(float, quiet_nan), 0};
    const float largest = __builtin_bit_cast(float, largest_bits);
    if (largest < highest * least_normal) return {};
    return {largest / highest, highest / largest};
}

// The lowest bits of the nearest whole number, which is small. Adding `magic` rounds, and the lowest bits hold the result.
WEFT_INLINE constexpr uint32_t rounded_bits(float number) {
    constexpr float magic = 0x1.8p23f;
    return __builtin_bit_cast(uint32_t, number + magic);
}

// The highest whole number of so many bits, 4 or 8.
WEFT_INLINE constexpr float highest_number(int bits) { return bits == 4 ? 7 : 127; }
// The highest finite number of a float8 type.
WEFT_INLINE constexpr float highest_float8(weftDataType_t type) { return type == weftFloat8e4m3 ? 448.0f : 57344.0f; }

}  // namespace weft::internal
