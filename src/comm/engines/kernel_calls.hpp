// kernel_calls.hpp: the engine of calls on device memory, of every kind: it enqueues kernels on the GPU.
// A call is done for this class when its kernels are enqueued. Only a captured call may need advance() for that: it waits
// until all ranks have made it, a second at most.
#pragma once
#include <optional>

#include "src/comm/call.hpp"
#include "src/comm/engines/call_engine.hpp"

namespace weft::internal {

// The call as the GPU's engine takes it.
DeviceCall device_call(const Call& call, const CollectiveCall& collective);

// Owned by ActiveCalls. Thread-bound to the rank. Needs RankContext::device.
class KernelCalls {
  public:
    explicit KernelCalls(RankContext& context) : context_(context) {}

    Begun begin(const Call& call, const CollectiveCall& collective);
    Begun begin(const Call& call, const UnevenCall& collective);
    Begun begin(const Call& call, const OneSidedCall& access);
    // Calls that CoalescedCalls has accepted, in one kernel. If it is refused, no call has begun.
    Begun begin_coalesced(std::span<const Call> calls);
    // Those of `messages` that are on device memory, in one kernel.
    Begun begin_messages(std::span<const Call> messages);
    Progress advance() { return awaiting_ ? launch_awaiting() : Progress::done; }
    Blocked blocked() const { return {&missing_}; }
    void add_wakeups(Wakeups&) const {}
    Status look() { return ok(); }
    Status cause() { return ok(); }
    Status take_failure() { return std::move(failure_); }
    void abandon() { awaiting_.reset(); }

  private:
    // Before a launch. A failure of CUDA is permanent for its context: this rank will not call again, so the other ranks
    // must not wait for it.
    Begun not_prepared(Status failure);
    Begun launched(Status launch);
    Progress launch_awaiting();
    Begun launch_messages(const Call& call, const UnevenCall& collective, Status prepared);
    Begun launch_reductions(const Call& call, const UnevenCall& collective);

    RankContext& context_;
    std::optional<DeviceCall> awaiting_;   // not launched: other ranks put their buffers behind the switch
    std::vector<DeviceMessage> messages_;  // while they are being enqueued
    RankSet missing_;                      // empty
    Status failure_;
};

static_assert(CallEngine<KernelCalls>);

}  // namespace weft::internal
