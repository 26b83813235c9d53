// remote_health.hpp: the health of remote ranks as this host knows it. Their rows have the leaders' last report, and the
// leaders report on request (control/control.hpp).
#pragma once
#include <atomic>
#include <cstdint>

#include "src/segment/segment.hpp"

namespace weft::internal {

// Thread-safe. Does nothing on one host.
class RemoteHealth {
  public:
    explicit RemoteHealth(Segment& segment) : segment_(&segment) {}

    // Requests the health of remote ranks, at most twice a second.
    void ask();
    // Whether the health of all ranks that live and have not left is known as of that time or later. Ranks whose reports
    // cannot come, because a leader on the way has ended, do not count.
    bool since(int64_t since_us) const;
    // Whether the cause of a connection that broke at that time may still be reported: often another rank's end is the
    // cause.
    bool cause_may_come(int64_t broken_us) const;

    // The data that a rank sent before it died may arrive this long after the report of its death. After a report that
    // it left in order, data may arrive later still.
    static constexpr int64_t settled_us = 500'000, departed_us = 5'000'000;

    static constexpr int64_t ask_apart_us = 500'000;  // the answer takes a message to every host

  private:
    Segment* segment_;
    std::atomic<int64_t> next_question_us_{0};
};

}  // namespace weft::internal
