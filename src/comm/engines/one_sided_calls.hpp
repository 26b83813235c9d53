// one_sided_calls.hpp: the engine of one-sided calls on windows of host memory.
// Like a message, a one-sided call has no sequence number.
#pragma once
#include "src/comm/engines/call_engine.hpp"
#include "src/comm/windows.hpp"

namespace weft::internal {

// Owned by ActiveCalls. Thread-bound to the rank.
class OneSidedCalls {
  public:
    OneSidedCalls(RankContext& context, Windows& windows) : context_(context), windows_(windows) {}

    Begun begin(const Call& call, const AccessCall& access);
    Progress advance();
    Blocked blocked() const {
        return {&windows_.host().missing(), windows_.host().networked(), windows_.host().connecting()};
    }
    void add_wakeups(Wakeups&) const {}  // ActiveCalls adds those of windows for any call
    PartnerWait awaited() const { return windows_.host().awaited(); }
    Status look();
    Status cause();
    Status take_failure() { return std::move(failure_); }
    void abandon() { windows_.host().abandon(); }

  private:
    RankContext& context_;
    Windows& windows_;
    Limit limit_;
    Status failure_;
};

static_assert(CallEngine<OneSidedCalls>);

}  // namespace weft::internal
