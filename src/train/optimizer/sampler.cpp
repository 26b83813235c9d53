#include "src/train/optimizer/sampler.hpp"

#include <utility>

namespace weft::internal::train {

namespace {

// Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
class SplitMix {
  public:
    explicit SplitMix(uint64_t seed) : state_(seed) {}
    uint64_t next() {
        uint64_t mixed = state_ += 0x9e3779b97f4a7c15u;
        mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9u;
        mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebu;
        return mixed ^ mixed >> 31;
    }
    // Below `bound`, all equally likely: numbers of an incomplete last range are drawn again.
    uint64_t below(uint64_t bound) {
        const uint64_t excess = -bound % bound;
        uint64_t drawn = next();
        while (drawn < excess) drawn = next();
        return drawn % bound;
    }

  private:
    uint64_t state_;
};

}  // namespace

// Fisher and Yates.
void shuffle(uint64_t seed, std::span<uint64_t> order) {
    SplitMix random(seed);
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
}

}  // namespace weft::internal::train
