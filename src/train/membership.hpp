// membership.hpp: which ranks still have inputs of their own (Join).
#pragma once
#include <cstdint>
#include <vector>

#include "src/base/result.hpp"
#include "weft/train.h"

namespace weft::internal::train {

class Peers;

// The state of each rank in the current iteration. Without an exchange all ranks are active. Thread-bound.
class Membership {
  public:
    explicit Membership(int ranks);

    // All ranks call it: the states of all, and whether they record. Fails on all ranks alike if active ranks have different modes.
    Status exchange(const Peers& peers, bool active, weftTrainMode_t mode, bool records);
    int active() const;
    // Whether an active rank still records its static graph.
    bool recording() const { return recording_; }
    int lowest_active() const;
    // The highest rank of those that were active last.
    int highest_last_active() const { return highest_last_active_; }
    // Of the active ranks.
    weftTrainMode_t mode() const;

  private:
    enum class State : uint8_t { joined, synchronizes, accumulates };

    std::vector<State> states_;
    int highest_last_active_;
    bool recording_ = false;
};

}  // namespace weft::internal::train
