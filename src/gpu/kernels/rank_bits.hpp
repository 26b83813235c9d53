// rank_bits.hpp: a set of ranks of a domain, one bit each. A value with the same layout in the host's compiler and the
// device's. No member is indexed by a variable, which would put a set of a kernel into local memory.
#pragma once
#include <cstdint>

namespace weft::internal::cuda {

struct RankBits {
    uint64_t low = 0, high = 0;  // ranks 0 to 63, and 64 to 127

    constexpr void add(int rank) {
        const uint64_t bit = uint64_t(1) << (unsigned(rank) & 63);
        if (rank < 64)
            low |= bit;
        else
            high |= bit;
    }
    constexpr bool has(int rank) const { return ((rank < 64 ? low : high) >> (unsigned(rank) & 63) & 1) != 0; }
    constexpr bool none() const { return (low | high) == 0; }
    // The members that are less than `rank`.
    constexpr RankBits below(int rank) const {
        const uint64_t bits = (uint64_t(1) << (unsigned(rank) & 63)) - 1;
        return rank < 64 ? RankBits{low & bits, 0} : RankBits{low, high & bits};
    }
    constexpr RankBits& operator|=(const RankBits& other) {
        low |= other.low;
        high |= other.high;
        return *this;
    }
    friend constexpr bool operator==(const RankBits&, const RankBits&) = default;
};

}  // namespace weft::internal::cuda
