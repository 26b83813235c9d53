// submission.hpp: how a function of the API submits its calls: their buffers are placed first. Then the calls are added to
// the thread's open group, executed, or enqueued on their stream.
#pragma once
#include <span>

#include "src/calls/group.hpp"

namespace weft::internal {

// Finds where a call's buffers are (CallPlacement). `counts`: in device memory, or null. The caller has entered the
// communicator. If the CUDA context is lost, the communicator dies, so that the other ranks do not wait for this one.
inline Status place(Entered& entered, Communicator& communicator, Call& call, CountsOnDevice* counts = nullptr) {
    call.settings = communicator.inputs().settings.get();
    CallPlacement& placement = communicator.inputs().placement;
    Status placed = placement.place(call);
    if (placed && counts) [[unlikely]]
        placed = placement.place_counts(call, *counts);
    if (placed || placed.code() != weftUnhandledCudaError) [[likely]]
        return placed;
    entered.settle();
    return communicator.die(std::move(placed));
}

// The caller has entered the communicator of the handle.
inline Status submit(Entered& entered, weftComm* handle, std::span<Call> calls, CountsOnDevice* counts = nullptr) {
    for (Call& call : calls) WEFT_TRY(place(entered, *handle->communicator, call, counts));
    Group* const group = Group::current_open();
    if (!group) [[likely]]
        return submit_placed(entered, handle, calls);
    for (const Call& call : calls) WEFT_TRY(group->add(handle, call));
    return ok();
}

}  // namespace weft::internal
