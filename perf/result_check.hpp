// result_check.hpp: checks the result of a call on data that each check chooses anew.
#pragma once
#include <cstdint>
#include <string>

#include "buffers.hpp"
#include "collective.hpp"
#include "timing.hpp"

namespace perf {

// The properties of a table line other than its size.
struct Setting {
    const Element& element;
    const Reduction& reduction;
    weftRedOp_t op;
    int root;
};

// Thread-bound to the rank's thread. All ranks check the same calls in the same order: the data come from a seed that
// each check advances.
class ResultCheck {
  public:
    ResultCheck(const Collective& collective, Rank& rank) : collective_(collective), rank_(rank) {}

    // Makes the call; returns the number of wrong elements over all ranks. `algorithm`: that serves the call; empty: the
    // selector chooses.
    int64_t check(const Case& measured, const Setting& setting, bool in_place, const Buffers& buffers,
                  const std::string& algorithm = {});
    // Wrong elements on this rank: known even if the sum over ranks is the call that fails.
    int64_t own_wrong() const { return own_wrong_; }

  private:
    const Collective& collective_;
    Rank& rank_;
    uint64_t seed_ = 1;  // of the next check; 0 is the seed of the timed data
    int64_t own_wrong_ = 0;
};

}  // namespace perf
