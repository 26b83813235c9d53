// convert_loops.hpp: the loops that convert fp32 to floats of 16 bits and back (simd_vector.hpp).
#pragma once
#include "src/kernels/simd_vector.hpp"

namespace weft::internal {
namespace {

using Halves = Vector<uint16_t, words>;
constexpr bool converts_adjacent_halves = SimdVector<weftFloat16>::parts == 1;

// The low halves of the words. GCC 12 makes single moves of __builtin_convertvector.
WEFT_INLINE Halves low_halves(Words value) {
#if WEFT_VECTOR_BYTES == 64
    return (Halves)_mm512_maskz_cvtepi32_epi16(0xffff, (__m512i)value);
#elif WEFT_VECTOR_BYTES == 32
    const __m256i packed = _mm256_packus_epi32((__m256i)value, (__m256i)value);  // in each half of the vector
    return (Halves)_mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08));
#else
    return __builtin_convertvector(value, Halves);
#endif
}
WEFT_INLINE Words as_words(Halves value) {
#if WEFT_VECTOR_BYTES == 64
    return (Words)_mm512_maskz_cvtepu16_epi32(0xffff, (__m256i)value);
#elif WEFT_VECTOR_BYTES == 32
    return (Words)_mm256_cvtepu16_epi32((__m128i)value);
#else
    return __builtin_convertvector(value, Words);
#endif
}

template <weftDataType_t type>
WEFT_INLINE Halves narrow_lanes(Floats value) {
    if constexpr (type == weftBfloat16)
        return low_halves(Bfloat16Format::round_upper<Floats, Words>(value) >> 16);
    else if constexpr (converts_adjacent_halves)
        return SimdVector<type>::round({{value}});
    else
        return low_halves(Float16Format::round<Floats, Ints, Words>(value));
}

template <weftDataType_t type>
WEFT_INLINE Floats widen_lanes(Halves value) {
    if constexpr (type == weftBfloat16)
        return Bfloat16Format::widen<Floats>(as_words(value));
    else if constexpr (converts_adjacent_halves)
        return SimdVector<type>::widen(value).part[0];
    else
        return Float16Format::widen<Floats, Ints, Words>(as_words(value));
}

template <weftDataType_t type>
void narrow(void* destination, const void* source, size_t count) {
    char* const to = static_cast<char*>(destination);
    const char* const from = static_cast<const char*>(source);
    size_t i = 0;
    for (; i + words <= count; i += words) store(to + 2 * i, narrow_lanes<type>(load<Floats>(from + 4 * i)), false);
    if (i == count) return;
    Floats last{};
    for (size_t k = 0; k < count - i; ++k) last[k] = load<float>(from + 4 * (i + k));
    const Halves rounded = narrow_lanes<type>(last);
    for (size_t k = 0; k < count - i; ++k) store<uint16_t>(to + 2 * (i + k), rounded[k], false);
}

template <weftDataType_t type>
void widen(void* destination, const void* source, size_t count) {
    char* const to = static_cast<char*>(destination);
    const char* const from = static_cast<const char*>(source);
    size_t i = 0;
    for (; i + words <= count; i += words) store(to + 4 * i, widen_lanes<type>(load<Halves>(from + 2 * i)), false);
    if (i == count) return;
    Halves last{};
    for (size_t k = 0; k < count - i; ++k) last[k] = load<uint16_t>(from + 2 * (i + k));
    const Floats wide = widen_lanes<type>(last);
    for (size_t k = 0; k < count - i; ++k) store<float>(to + 4 * (i + k), wide[k], false);
}

}  // namespace
}  // namespace weft::internal
