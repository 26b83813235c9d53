// random_data.hpp: bytes that follow from a seed and a place, so that a receiver can check them, and buffers with
// guards that no call may write.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace weft::internal::test {

using RandomBytes = std::vector<std::byte>;

// Byte `index` of what has the number `which`.
inline std::byte content(uint32_t seed, size_t which, size_t index) {
    const uint64_t mix = (uint64_t(seed) << 32 | which) * 0x9e3779b97f4a7c15u + index * 0xbf58476d1ce4e5b9u;
    return std::byte(mix >> 56 ^ mix >> 24);
}
inline RandomBytes contents(uint32_t seed, size_t which, size_t bytes) {
    RandomBytes all(bytes);
    for (size_t i = 0; i < bytes; ++i) all[i] = content(seed, which, i);
    return all;
}

// Often few.
inline size_t draw_bytes(std::mt19937& random, size_t most) {
    switch (random() % 6) {
        case 0: return 0;
        case 1: return random() % most;
        case 2: return random() % (most / 8 + 1);
        default: return random() % 200;
    }
}

class Guarded {
  public:
    Guarded() = default;
    Guarded(size_t bytes, size_t offset) : offset_(offset), all_(offset + bytes + guard, untouched) {}
    std::byte* data() { return all_.data() + offset_; }
    size_t size() const { return all_.size() - offset_ - guard; }
    bool intact() const {
        const auto same = [](std::byte each) { return each == untouched; };
        return std::all_of(all_.begin(), all_.begin() + ptrdiff_t(offset_), same) &&
               std::all_of(all_.end() - ptrdiff_t(guard), all_.end(), same);
    }

  private:
    static constexpr size_t guard = 16;
    static constexpr std::byte untouched{0xa5};
    size_t offset_ = 0;
    RandomBytes all_ = RandomBytes(guard, untouched);
};

}  // namespace weft::internal::test
