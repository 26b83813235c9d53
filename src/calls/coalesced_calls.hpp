// coalesced_calls.hpp: neighbouring small all-reduces of a group as one: their inputs are gathered in one buffer, reduced in one
// call and handed out again, for a small call costs the meeting of the ranks, not the bytes. Which calls are coalesced
// follows from what ranks must call alike, and each rank's group must hold the same: what was coalesced is part of the
// Operation, so that ranks that group their calls differently are told.
// Those on device memory keep their own buffers and are one kernel instead (GpuCollectives::launch_coalesced), which each rank
// decides for itself: there nothing of what follows is needed.
// Whether a call of a group reads what an earlier one of it writes, only its rank knows. One element more says it to
// all: if it is so on any rank, all throw away what they reduced and carry out the calls one by one.
#pragma once
#include <span>
#include <vector>

#include "src/calls/queued_call.hpp"

namespace weft::internal {

class CoalescedCalls {
  public:
    // Joins what may be coalesced among `calls` on one communicator, in their order; `on_device`: in device memory, too.
    static void apply(CallQueue& calls, bool on_device);

    ~CoalescedCalls();
    // Before it begins: `call` reduces the communicator's buffer for such calls, of which one is under way at a time.
    void gather(Communicator::Call& call);
    bool on_device() const;
    Status begin_on_device();  // of those that are, instead of gather()
    // When it is reduced. False: nothing was handed out, put the calls that it was made of in its place.
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
