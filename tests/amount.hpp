// amount.hpp: how much a test tries, and from what it draws.
#pragma once
#include <cstdint>
#include <cstdio>
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

// Fewer ranks, sizes and rounds, some of every kind, drawn at random: under sanitizers, where everything is many times
// slower, and in tools/test without --nightly. WEFT_TEST_SMALL_LONG means only tests whose row in meson.build sets
// WEFT_TEST_LONG: a drawn part of their cases finds a fault in some push soon, and all of them take minutes.
inline bool small() {
    static const bool set =
        std::getenv("WEFT_TEST_SMALL") != nullptr ||
        (std::getenv("WEFT_TEST_SMALL_LONG") != nullptr && std::getenv("WEFT_TEST_LONG") != nullptr);
    return set;
}
// Whether a small test skips so many ranks: all but the `usual` number under a sanitizer, half of the others elsewhere.
inline bool skips_ranks(int ranks, int usual, std::mt19937& random) {
    return small() && ranks != usual && (sanitized || random() % 2 != 0);
}

// The seed of this process's random numbers: WEFT_TEST_SEED, or a drawn one, which is printed.
inline uint32_t seed() {
    static const uint32_t number = [] {
        if (const char* given = std::getenv("WEFT_TEST_SEED")) return uint32_t(std::strtoul(given, nullptr, 10));
        const uint32_t drawn = std::random_device{}();
        std::fprintf(stderr, "WEFT_TEST_SEED=%u repeats this run's random numbers\n", unsigned(drawn));
        return drawn;
    }();
    return number;
}

}  // namespace weft::internal::test
