#include "src/calls/submit.hpp"

#include "src/calls/group.hpp"
#include "src/comm/run_call.hpp"

namespace weft::internal {

Status not_placed(Entered& entered, Communicator& communicator, Status reason) {
    if (reason.code() != weftUnhandledCudaError) return reason;
    entered.settle();
    return communicator.die(std::move(reason));
}

Status submit(Entered& entered, weftComm* handle, std::span<Call> calls, CountsOnDevice* counts) {
    Communicator& communicator = *handle->communicator;
    CallPlacement& placement = communicator.inputs().placement;
    for (Call& call : calls) {
        Status placed = placement.place(call);
        if (placed && counts) [[unlikely]]
            placed = placement.place_counts(call, *counts);
        if (!placed) [[unlikely]]
            return not_placed(entered, communicator, std::move(placed));
    }
    if (Group* const group = Group::current_open()) [[unlikely]] {
        for (const Call& call : calls) WEFT_TRY(group->add(handle, call));
        return ok();
    }
    if (is_queued(handle, calls[0])) [[unlikely]]
        return enqueue(handle, calls);
    entered.settle();
    return run(communicator, calls);
}

}  // namespace weft::internal
