// offered_receives.hpp: offers the caller's registered memory to the network messages that come next, so that their data
// needs no slot (docs/design/verbs-offers.md).
#pragma once
#include <vector>

#include "src/executor/operands.hpp"

namespace weft::internal {

// Owned by MessageSteps. Thread-bound to the rank.
class OfferedReceives {
  public:
    OfferedReceives(const Plan& plan, const Operands& operands)
        : plan_(&plan), operands_(&operands), cursors_(plan.schedule->blocks.size()) {}
    void begin();
    // Before the block executes this instruction, whose block has a source that takes offers.
    Status offer(const StepAt& at) { return active_ ? offer_ahead(at) : ok(); }
    void withdraw();

  private:
    // The receive that is offered next.
    struct Cursor {
        StepAt at{};
        uint64_t message = 0;  // of its connection
        bool begun = false, ended = false;
    };
    Status offer_ahead(const StepAt& now);
    bool may_come_early(const StepAt& at) const;
    void advance(Cursor& cursor) const;

    const Plan* plan_;
    const Operands* operands_;
    bool active_ = false;          // the rank has registered memory
    bool in_place_ = false;        // of the call
    std::vector<Cursor> cursors_;  // by block
};

}  // namespace weft::internal
