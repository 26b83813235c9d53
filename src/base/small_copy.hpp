// small_copy.hpp: inline copies of at most 64 bytes: for a payload beside a flag this is cheaper than a call of memcpy.
#pragma once
#include <cstddef>
#include <cstdint>

namespace weft::internal {

// Two copies that may overlap in the middle cover every size between one and two times `half`. Both loads precede both
// stores, so destination and source may be equal. Never emitted out of line, see arithmetic.hpp.
template <size_t half>
[[gnu::always_inline]] inline void copy_halves(void* destination, const void* source, size_t bytes) {
    char first[half], last[half];
    __builtin_memcpy(first, source, half);
    __builtin_memcpy(last, static_cast<const char*>(source) + bytes - half, half);
    __builtin_memcpy(destination, first, half);
    __builtin_memcpy(static_cast<char*>(destination) + bytes - half, last, half);
}

// bytes <= most <= 64
template <size_t most = 64>
[[gnu::always_inline]] inline void copy_small(void* destination, const void* source, size_t bytes) {
    if constexpr (most > 32) {
        if (bytes > 32) return copy_halves<32>(destination, source, bytes);
    }
    if constexpr (most > 16) {
        if (bytes > 16) return copy_halves<16>(destination, source, bytes);
    }
    if constexpr (most >= 8) {
        if (bytes >= 8) return copy_halves<8>(destination, source, bytes);
    }
    if (bytes >= 4) return copy_halves<4>(destination, source, bytes);
    if (bytes >= 2) return copy_halves<2>(destination, source, bytes);
    if (bytes == 1) *static_cast<char*>(destination) = *static_cast<const char*>(source);
}

}  // namespace weft::internal
