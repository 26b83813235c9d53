// clock.hpp: monotonic time, for deadlines and logs, never for the hot path.
#pragma once
#include <time.h>

#include <chrono>
#include <cstdint>

namespace weft::internal {

inline int64_t now_us() {
    return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

// now_us(), or a clock that a test moves.
using Clock = int64_t (*)();

// now_us() with a resolution of a few milliseconds, at a quarter of the cost.
inline int64_t coarse_now_us() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
    return time.tv_sec * 1'000'000 + time.tv_nsec / 1000;
}

}  // namespace weft::internal
