// coalesced_calls.hpp: neighbouring small all-reduces of a group as one call.
// On host memory the inputs are gathered in one buffer, reduced, and scattered again: a small call costs
// synchronization, not bytes. All ranks coalesce the same calls, because the choice depends on agreed facts only. A
// hash of the counts is part of the Operation, so ranks that group their calls differently get an error.
// Only the rank knows whether a call reads what an earlier call of the group writes. Each rank votes in one extra
// element; if any rank objects, all discard the result and run the calls one by one.
// On device memory each rank decides for itself: the calls keep their buffers and become one kernel
// (GpuEngine::launch_coalesced).
#pragma once
#include <span>
#include <vector>

#include "src/calls/queued_call.hpp"

namespace weft::internal {

class CoalescedCalls {
  public:
    // Coalesces `calls` of one communicator where possible, in order. `on_device`: also calls on device memory.
    static void apply(CallQueue& calls, bool on_device);

    ~CoalescedCalls();
    // Before the call begins: points `call` at the communicator's coalescing buffer. One such call runs at a time.
    void gather(Call& call);
    bool on_device() const;
    Status begin_on_device();  // for calls on device memory, instead of gather()
    // After the reduction. False: a rank objected and nothing was written; run the calls one by one.
    bool scatter() const;
    std::vector<QueuedCall>& calls() { return calls_; }

  private:
    static std::vector<QueuedCall> coalesce(std::vector<QueuedCall>& calls, bool on_device);
    bool in_order() const;
    bool apart() const;

    std::vector<QueuedCall> calls_;
    std::span<std::byte> coalesced_;  // ends with the vote
    size_t bytes_ = 0;
};

}  // namespace weft::internal
