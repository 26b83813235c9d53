// gather_trace.hpp: the order in which an iteration gathers units, for prefetching. No communication.
#pragma once
#include <optional>
#include <vector>

namespace weft::internal::train {

// The trace of an iteration predicts the next one, until that leaves the recorded order. Thread-bound.
class GatherTrace {
  public:
    // The unit is gathered now. Returns the one that came next in the last iteration.
    std::optional<int> gathered(int unit);
    // The next iteration begins.
    void finish();

  private:
    std::vector<int> recorded_, current_;
    bool follows_ = true;  // the current iteration has followed the recorded order so far
};

}  // namespace weft::internal::train
