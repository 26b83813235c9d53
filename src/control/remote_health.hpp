// remote_health.hpp: what is known on this host of ranks on others. Their rows show what the leaders told last, and they tell
// when asked (control/control.hpp).
#pragma once
#include <atomic>
#include <cstdint>

#include "src/segment/segment.hpp"

namespace weft::internal {

// Thread-safe. On one host there is nothing to ask.
class RemoteHealth {
  public:
    explicit RemoteHealth(Segment& segment) : segment_(&segment) {}

    // Asks, twice a second at most, where the ranks of other hosts are.
    void ask();
    // Whether it is known where all ranks that live and have not left were at that time or later.
    bool since(int64_t since_us) const;
    // Whether the cause of a connection that broke at that time may still be told: a broken connection is often what
    // another's end looks like from here.
    bool cause_may_come(int64_t broken_us) const;

    // What a rank sent before it died may come so long after the news of that; of one that left in order, which nobody
    // saw begin or end a connection, later still.
    static constexpr int64_t settled_us = 500'000, departed_us = 5'000'000;

    static constexpr int64_t ask_apart_us = 500'000;  // the answer takes a message to every host

  private:
    Segment* segment_;
    std::atomic<int64_t> next_question_us_{0};
};

}  // namespace weft::internal
