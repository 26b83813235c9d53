// fusion.hpp: neighbouring small all-reduces of a group as one: their inputs are gathered in one buffer, reduced in one
// call and handed out again, for a small call costs the meeting of the ranks, not the bytes. Which calls are joined
// follows from what ranks must call alike, and each rank's group must hold the same: what was joined is part of the
// Operation, so that ranks that group their calls differently are told.
// Whether a call of a group reads what an earlier one of it writes, only its rank knows. One element more says it to
// all: if it is so on any rank, all throw away what they reduced and carry out the calls one by one.
#pragma once
#include <span>
#include <vector>

#include "src/comm/queued_call.hpp"

namespace weft {

class Fusion {
  public:
    // Joins what may be joined among `calls` on one communicator, in their order; at most `most_bytes` in one.
    static void apply(CallQueue& calls, size_t most_bytes);

    ~Fusion();
    // Before it begins: `call` reduces the communicator's buffer for such calls, of which one is under way at a time.
    void gather(Communicator::Call& call);
    // When it is reduced. False: nothing was handed out, put the calls that it was made of in its place.
    bool scatter() const;
    std::vector<QueuedCall>& calls() { return calls_; }

  private:
    bool in_order() const;

    std::vector<QueuedCall> calls_;
    std::span<std::byte> joined_;  // ends with the vote
    size_t bytes_ = 0;
};

}  // namespace weft
