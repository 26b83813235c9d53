// child_numbers.hpp: numbers that identify the children of a communicator.
// All ranks that take part in a split or shrink compute the same number.
// A rank knows a shrink only if it is in the child, so shrinks are counted per list of excluded ranks. Only shrinks whose
// ranks have met count, because one rank may have tried more often than another.
#pragma once
#include <cstdint>
#include <map>
#include <vector>

namespace weft::internal {

// Thread-bound to the rank.
class ChildNumbers {
  public:
    uint64_t next_split(int color) { return ++splits_ << 32 | uint32_t(color); }
    uint64_t next_shrink(const std::vector<int>& excluded) const {
        uint64_t hash = 0xcbf29ce484222325u;
        for (const int rank : excluded) hash = (hash ^ uint64_t(unsigned(rank))) * 0x100000001b3u;
        return uint64_t(1) << 63 | (hash >> 33) << 32 |
               uint32_t(shrinks_.count(excluded) ? shrinks_.at(excluded) : 0) << 1 | 1;
    }
    void count_shrink(const std::vector<int>& excluded) { ++shrinks_[excluded]; }

  private:
    uint64_t splits_ = 0;                           // number so far; below 2^31
    std::map<std::vector<int>, uint64_t> shrinks_;  // number so far, by the excluded ranks
};

}  // namespace weft::internal
