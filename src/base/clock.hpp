// clock.hpp: monotonic time, for deadlines and logs, never for the hot path.
#pragma once
#include <chrono>
#include <cstdint>

namespace weft {

inline int64_t now_us() {
    return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

}  // namespace weft
