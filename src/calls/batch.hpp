// batch.hpp: calls that one thread carries out together: in order on each communicator, in turn across communicators,
// so that one thread can be several ranks; all messages between two ranks each beside them, in no order. A stream's
// thread does it, or the caller's.
#pragma once
#include <vector>

#include "src/calls/coalesced_calls.hpp"
#include "src/comm/joining.hpp"

namespace weft::internal {

// Whether it is given to a stream.
bool is_queued(const QueuedCall& queued);
// Whether both, on one communicator, go to one stream.
bool goes_with(const QueuedCall& one, const QueuedCall& other);

// Carries the calls out, or gives them to the streams that they name, in their order among all calls on their
// communicators. The first error of those that were carried out here; weftInProgress: a communicator does not block.
// Each communicator's handle keeps its own, `statuses` (null: they are of no group) each call's.
Status submit(std::vector<QueuedCall> calls, const std::shared_ptr<CallStatuses>& statuses = nullptr);
// One call, or some messages, by who is inside their communicator.
Status submit(Entered& entered, weftComm* handle, std::span<const Communicator::Call> calls);
// The ranks that `joinings` are join: here, or, where a communicator shall not block, on its own stream.
Status submit(std::vector<Joining> joinings, const std::shared_ptr<CallStatuses>& statuses = nullptr);
// `work` in its turn on the communicator's own stream, by who is inside.
Status submit(weftComm* handle, std::function<Status()> work);

}  // namespace weft::internal
