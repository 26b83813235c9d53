// seed.hpp: how much is drawn at random, and from what.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <random>

namespace weft::test {

// A sanitizer's run: fewer rounds.
inline bool small() { return std::getenv("WEFT_TEST_SMALL") != nullptr; }

inline uint32_t seed() {
    static const uint32_t number = std::random_device{}();
    return number;
}

}  // namespace weft::test
