// deadline.hpp: the end of a wait with a limit.
#pragma once
#include <algorithm>
#include <climits>
#include <cstdint>

#include "src/base/clock.hpp"

namespace weft::internal {

class Deadline {
  public:
    // From now on; 0: no limit, as in the options.
    static Deadline in_ms(int64_t ms) { return Deadline(ms); }
    bool passed() const { return ms_ > 0 && now_us() >= end_us_; }
    // For poll(): -1 is no limit. Rounded up, so that the last millisecond is not a busy loop.
    int remaining_ms() const {
        if (ms_ == 0) return -1;
        return int(std::clamp<int64_t>((end_us_ - now_us() + 999) / 1000, 0, INT_MAX));
    }
    int64_t all_ms() const { return ms_; }  // the whole limit, for sentences

  private:
    explicit Deadline(int64_t ms) : ms_(std::min<int64_t>(ms, INT64_MAX / 4000)), end_us_(now_us() + ms_ * 1000) {}
    int64_t ms_;
    int64_t end_us_;
};

}  // namespace weft::internal
