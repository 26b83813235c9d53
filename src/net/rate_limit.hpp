// rate_limit.hpp: limits how often a log line is written.
#pragma once
#include <cstdint>
#include <optional>
#include <utility>

namespace weft::internal::net {

// Limits a log line to one in ten seconds, and counts the suppressed ones.
class RateLimit {
  public:
    // Nothing: not now. Otherwise the number of lines suppressed since the last one.
    std::optional<int> now(int64_t now_us) {
        if (now_us < next_us_) {
            ++suppressed_;
            return {};
        }
        next_us_ = now_us + 10'000'000;
        return std::exchange(suppressed_, 0);
    }

  private:
    int64_t next_us_ = 0;
    int suppressed_ = 0;
};

}  // namespace weft::internal::net
