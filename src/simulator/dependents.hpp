// dependents.hpp: which blocks of a simulation wait for a step of which other block.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace weft::internal {

class Dependents {
  public:
    void resize(size_t blocks) { places_.resize(blocks); }
    // `block` waits until a step of `other` has ended. It may be added again while it waits for the same block.
    void add(int32_t block, int32_t other) {
        Place& place = places_[size_t(block)];
        if (std::exchange(place.waits, true)) return;
        place.next = std::exchange(places_[size_t(other)].first, block);
    }
    // Takes out the blocks that wait for `other`, in the order of their numbers. Valid until the next call.
    std::span<const int32_t> take(int32_t other) {
        taken_.clear();
        for (int32_t block = std::exchange(places_[size_t(other)].first, -1); block >= 0;) {
            places_[size_t(block)].waits = false;
            taken_.push_back(block);
            block = places_[size_t(block)].next;
        }
        std::sort(taken_.begin(), taken_.end());
        return taken_;
    }

  private:
    struct Place {
        int32_t first = -1;  // that waits for this block
        int32_t next = -1;   // that waits for the same block as this one
        bool waits = false;
    };
    std::vector<Place> places_;
    std::vector<int32_t> taken_;
};

}  // namespace weft::internal
