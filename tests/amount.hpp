// amount.hpp: how much a test tries, and from what it draws.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <random>

namespace weft::test {

#if defined(__has_feature)
#define WEFT_TEST_HAS_FEATURE(feature) __has_feature(feature)
#else
#define WEFT_TEST_HAS_FEATURE(feature) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || WEFT_TEST_HAS_FEATURE(address_sanitizer) || \
    WEFT_TEST_HAS_FEATURE(thread_sanitizer)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

// Fewer ranks, sizes and rounds, of every kind some: by sanitizers, where everything is many times slower, and by who tests
// again and again (tools/test without --all).
inline bool small() {
    static const bool set = std::getenv("WEFT_TEST_SMALL") != nullptr;
    return set;
}

// WEFT_TEST_SEED draws again what a run drew that printed its seed.
inline uint32_t seed() {
    static const uint32_t number = [] {
        const char* given = std::getenv("WEFT_TEST_SEED");
        return given ? uint32_t(std::strtoul(given, nullptr, 10)) : std::random_device{}();
    }();
    return number;
}

}  // namespace weft::test
