// amount.hpp: how much a test tries, and from what it draws.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <random>

namespace weft::internal::test {

// By either compiler: which sanitizer looks on, for what it cannot run.
#if defined(__has_feature)
#define WEFT_TEST_HAS_FEATURE(feature) __has_feature(feature)
#else
#define WEFT_TEST_HAS_FEATURE(feature) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || WEFT_TEST_HAS_FEATURE(address_sanitizer)
#define WEFT_TEST_ASAN 1
#else
#define WEFT_TEST_ASAN 0
#endif
#if defined(__SANITIZE_THREAD__) || WEFT_TEST_HAS_FEATURE(thread_sanitizer)
#define WEFT_TEST_TSAN 1
#else
#define WEFT_TEST_TSAN 0
#endif
inline constexpr bool sanitized = WEFT_TEST_ASAN || WEFT_TEST_TSAN;

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

}  // namespace weft::internal::test
