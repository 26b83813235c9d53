// submit.hpp: executes calls on the calling thread, or enqueues them on the streams that they name.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "src/calls/queued_call.hpp"
#include "src/comm/joining.hpp"

namespace weft::internal {

// Whether the call goes to a stream.
bool is_queued(const QueuedCall& queued);
// Whether both calls, on one communicator, go to one stream.
bool goes_with(const QueuedCall& one, const QueuedCall& other);

// Executes the calls, or enqueues them on the streams that they name, in order on each communicator.
// Returns the first error of the calls that ran here; weftInProgress if a communicator does not block.
// Each handle keeps the error of its communicator. `statuses` keeps that of each call; null: the calls are in no group.
Status submit(std::vector<QueuedCall> calls, const std::shared_ptr<CallStatuses>& statuses = nullptr);
// One call, or several messages, whose buffers are placed. Called by the thread inside their communicator.
Status submit_placed(Entered& entered, weftComm* handle, std::span<const Call> calls);
// The ranks join here. If a communicator does not block, its rank joins on its own stream.
Status submit(std::vector<Joining> joinings, const std::shared_ptr<CallStatuses>& statuses = nullptr);
// Runs `work` in its turn on the communicator's own stream. Called by the thread inside.
Status submit(weftComm* handle, std::function<Status()> work);

}  // namespace weft::internal
