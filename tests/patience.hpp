// patience.hpp: how tests wait, so that no time decides whether one passes: a rank, a thread or a whole process may be
// late by many seconds at any point, as sanitizers and busy machines make them.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>

namespace weft::internal::test {

// Waits until `condition()` holds. A test that needs more than some minutes hangs.
template <class Condition>
bool eventually(Condition condition) {
    for (auto end = std::chrono::steady_clock::now() + std::chrono::minutes(3);
         std::chrono::steady_clock::now() < end;) {
        if (condition()) return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return condition();
}

// A time limit that shall strike strikes too soon, or at another place, where somebody whom it is not meant for is
// late. `attempt(limit_ms)` says what was not as expected, or nothing; it is made again with twice the limit as long as
// it says something, up to a limit that no lateness explains: what is wrong with every limit is wrong. The last words.
template <class Attempt>
std::string with_growing_limit(int64_t first_ms, Attempt attempt) {
    for (int64_t limit_ms = first_ms;; limit_ms *= 2) {
        const std::string objection = attempt(limit_ms);
        if (objection.empty() || limit_ms >= 20'000) return objection;
    }
}

}  // namespace weft::internal::test
