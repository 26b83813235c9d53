// rank_set.hpp: a set of ranks of one communicator. A value without allocation.
#pragma once
#include <cstdint>
#include <cstring>

namespace weft::internal {

inline constexpr int max_ranks = 4096;  // of a communicator

class RankSet {
  public:
    // All of 0..ranks-1 except `without`.
    void fill(int ranks, int without) {
        words_ = (ranks + 63) / 64;
        for (int w = 0; w < words_; ++w) bits_[w] = ~uint64_t(0);
        if (ranks % 64) bits_[words_ - 1] = (uint64_t(1) << (ranks % 64)) - 1;
        erase(without);
    }
    void clear() { words_ = 0; }
    void insert(int rank) {
        if (words_ == rank / 64) bits_[words_++] = 0;  // GCC compiles the loop below to a call of memset
        while (words_ <= rank / 64) bits_[words_++] = 0;
        bits_[rank / 64] |= uint64_t(1) << (rank % 64);
    }
    void insert(const RankSet& other) {
        other.for_each([this](int rank) { insert(rank); });
    }
    void erase(int rank) { bits_[rank / 64] &= ~(uint64_t(1) << (rank % 64)); }
    bool contains(int rank) const { return rank / 64 < words_ && (bits_[rank / 64] >> (rank % 64) & 1); }
    bool empty() const {
        for (int w = 0; w < words_; ++w)
            if (bits_[w]) return false;
        return true;
    }
    // Calls visit(rank) in rank order; it may erase the rank that it is given.
    template <class Visit>
    void for_each(Visit&& visit) const {
        for (int w = 0; w < words_; ++w)
            for (uint64_t left = bits_[w]; left; left &= left - 1) visit(w * 64 + __builtin_ctzll(left));
    }

  private:
    int words_ = 0;
    uint64_t bits_[max_ranks / 64];  // only the first words_ count
};

}  // namespace weft::internal
