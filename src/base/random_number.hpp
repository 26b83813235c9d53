// random_number.hpp: random numbers that the host and GPUs compute alike, each one by itself.
#pragma once
#include <cstdint>

#include "src/base/small_float.hpp"

namespace weft::internal {

// Mixes all bits. Source: Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014.
WEFT_INLINE constexpr uint64_t mixed_bits(uint64_t bits) {
    bits += 0x9e3779b97f4a7c15u;
    bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ bits >> 27) * 0x94d049bb133111ebu;
    return bits ^ bits >> 31;
}

// About standard normal: the sum of four uniform whole numbers, of which the mean is 0 and the variance 1.
WEFT_INLINE constexpr float normal_number(uint64_t seed, uint64_t index) {
    const uint64_t bits = mixed_bits(mixed_bits(seed) + index);
    const auto sum = int32_t((bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48));
    constexpr int32_t mean = 2 * 0xffff;
    constexpr float inverse_deviation = 2.642912e-5f;  // sqrt(3) / 65,536
    return float(sum - mean) * inverse_deviation;
}

}  // namespace weft::internal
