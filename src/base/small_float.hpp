// small_float.hpp: the formats below 32 bits, and the one rule by which they are widened to fp32 and rounded from it.
// The rule serves a single number (float, int32_t, uint32_t), on the host and on GPUs, and vectors of such numbers: all
// alternatives are computed, and one is selected. GPUs and processors may use instructions that give the same bits.
#pragma once
#include <cstdint>

// Never emitted out of line: cpu_kernels_avx512.cpp includes this file, and the linker must not keep its AVX-512 copy.
#define WEFT_INLINE __attribute__((always_inline)) inline

namespace weft::internal {

// A binary floating-point format with subnormals, in the lowest bits of a Word. `infinite`: the highest exponent means
// infinity or NaN, as in IEEE 754. Otherwise only the pattern of all ones is a NaN, and the rest are numbers ("fn").
template <int exponent_bits, int mantissa_bits, bool infinite>
struct SmallFloat {
    static constexpr int bits = 1 + exponent_bits + mantissa_bits;
    static constexpr int shift = 23 - mantissa_bits;  // from fp32's mantissa to this one
    static constexpr int32_t bias = (1 << (exponent_bits - 1)) - 1;
    static constexpr int32_t rebias = (127 - bias) << 23;  // between the exponents, at fp32's bit position
    static constexpr int32_t magnitude = (1 << (exponent_bits + mantissa_bits)) - 1;
    static constexpr int32_t infinity = ((1 << exponent_bits) - 1) << mantissa_bits;  // only if `infinite`
    static constexpr int32_t nan = infinite ? infinity | 1 << (mantissa_bits - 1) : magnitude;
    static constexpr int32_t largest = (infinite ? infinity : nan) - 1;
    static constexpr bool saturates = bits == 8;
    // fp32 bits of this format's smallest normal number, and of the number whose last bit weighs as much as the
    // smallest subnormal. Adding the latter makes the processor round a subnormal correctly.
    static constexpr int32_t smallest_normal = rebias + (1 << 23);
    static constexpr int32_t subnormal_magic = (127 + 24 - bias - mantissa_bits) << 23;

    // The bits above the format's are ignored.
    template <class Float = float, class Int = int32_t, class Word = uint32_t>
    static WEFT_INLINE constexpr Float widen(Word value) {
        constexpr int32_t beyond_numbers = infinite ? infinity : nan;
        constexpr int32_t quiet = infinite ? 0x7f800000 : 0x7fc00000;
        const Int sign = __builtin_bit_cast(Int, value << (32 - bits)) & INT32_MIN;
        const Int rest = __builtin_bit_cast(Int, value) & magnitude;
        const Int normal = (rest << shift) + rebias;
        // 1.m - 1 leaves 0.m, exactly.
        const Float subnormal =
            __builtin_bit_cast(Float, normal + (1 << 23)) - __builtin_bit_cast(float, smallest_normal);
        Int wide = rest < (1 << mantissa_bits) ? __builtin_bit_cast(Int, subnormal) : normal;
        wide |= rest >= beyond_numbers ? Int{} + quiet : Int{};
        return __builtin_bit_cast(Float, wide | sign);
    }

    // To nearest, ties to even. An overflow gives infinity, or the largest number in the formats that saturate.
    template <class Float = float, class Int = int32_t, class Word = uint32_t>
    static WEFT_INLINE constexpr Word round(Float value) {
        const Word all = __builtin_bit_cast(Word, value);
        const Word rest_bits = all & 0x7fffffffu;
        const Int rest = __builtin_bit_cast(Int, rest_bits);
        const Word sign = all >> 31 << (bits - 1);
        const Word odd = rest_bits >> shift & 1u;
        const Word moved = rest_bits + odd + uint32_t((1 << (shift - 1)) - 1 - rebias);
        const Int normal = __builtin_bit_cast(Int, moved) >> shift;
        const Float sum = __builtin_bit_cast(Float, rest) + __builtin_bit_cast(float, subnormal_magic);
        const Int subnormal = __builtin_bit_cast(Int, sum) - subnormal_magic;
        const Int limit = Int{} + (saturates ? largest : infinity);
        Int small = rest < smallest_normal ? subnormal : normal;
        small = small < limit ? small : limit;
        if constexpr (saturates && infinite) small = rest == 0x7f800000 ? Int{} + infinity : small;
        small = rest > 0x7f800000 ? Int{} + nan : small;
        return __builtin_bit_cast(Word, small) | sign;
    }
};
using Float16Format = SmallFloat<5, 10, true>;
using Float8e4m3Format = SmallFloat<4, 3, false>;
using Float8e5m2Format = SmallFloat<5, 2, true>;

// The upper half of an fp32.
struct Bfloat16Format {
    template <class Float = float, class Word = uint32_t>
    static WEFT_INLINE constexpr Float widen(Word value) {
        return __builtin_bit_cast(Float, value << 16);
    }
    // The result is the upper half of the word; the lower half is undefined.
    template <class Float = float, class Word = uint32_t>
    static WEFT_INLINE constexpr Word round_upper(Float value) {
        const Word bits = __builtin_bit_cast(Word, value);
        // Rounding could turn a NaN into infinity.
        return value != value ? bits | 0x400000u : bits + 0x7fffu + (bits >> 16 & 1u);
    }
};

}  // namespace weft::internal
