// dispatch.hpp: executes the calls of a group on the calling thread, or enqueues them on the streams that they name.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "src/calls/queued_call.hpp"
#include "src/comm/joining.hpp"

namespace weft::internal {

// Whether a placed call goes to a stream: its own, or the communicator's. The calling thread need not be inside.
inline bool is_queued(const weftComm* handle, const Call& call) {
    // The calling thread enqueues calls on device memory, or executes them on copies.
    return call.queued ||
           (handle->has_own_stream.load(std::memory_order_relaxed) && call.space == Space::host && !call.copied);
}
// Whether both calls, on one communicator, go to one stream.
bool goes_with(const QueuedCall& one, const QueuedCall& other);

// Executes the calls, or enqueues them on the streams that they name, in order on each communicator.
// Returns the first error of the calls that ran here; weftInProgress if a communicator does not block.
// Each handle keeps the error of its communicator. `statuses` keeps that of each call; null: the calls are in no group.
Status dispatch(std::vector<QueuedCall> calls, const std::shared_ptr<CallStatuses>& statuses = nullptr);
// Enqueues one call, or several messages of one function, for which is_queued() holds. Called by the thread inside.
Status enqueue(weftComm* handle, std::span<const Call> calls);
// The ranks join here. If a communicator does not block, its rank joins on its own stream.
Status dispatch(std::vector<Joining> joinings, const std::shared_ptr<CallStatuses>& statuses = nullptr);
// Runs `work` in its turn on the communicator's own stream. Called by the thread inside.
Status dispatch(weftComm* handle, std::function<Status()> work);

}  // namespace weft::internal
