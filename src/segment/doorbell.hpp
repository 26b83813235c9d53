// doorbell.hpp: by which a rank wakes its host's leader to read the segment.
#pragma once
#include <utility>

#include "src/base/fd.hpp"

namespace weft::internal {

// Owned by the Segment. Without set(), which is not called if there is one host, ring() does nothing. Thread-safe once
// set.
class Doorbell {
  public:
    void set(Fd eventfd) { event_ = std::move(eventfd); }
    void ring() const {
        if (event_) ring_event(event_);
    }
    // For the leader, which polls number().
    void drain() const { drain_event(event_); }
    int number() const { return event_.number(); }

  private:
    Fd event_;
};

}  // namespace weft::internal
