// seed.hpp: how much is drawn at random, and from what.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <random>

namespace weft::test {

// A sanitizer's run: fewer rounds.
inline bool small() { return std::getenv("WEFT_TEST_SMALL") != nullptr; }

// WEFT_TEST_SEED draws again what a run drew that printed its seed.
inline uint32_t seed() {
    static const uint32_t number = [] {
        const char* given = std::getenv("WEFT_TEST_SEED");
        return given ? uint32_t(std::strtoul(given, nullptr, 10)) : std::random_device{}();
    }();
    return number;
}

}  // namespace weft::test
