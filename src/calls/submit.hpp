// submit.hpp: how a function of the API submits its calls: their buffers are placed first. Then the calls are added to
// the thread's open group, executed, or enqueued on their stream.
#pragma once
#include <span>

#include "src/comm/handle.hpp"

namespace weft::internal {

// One call, or several messages. The caller has entered the communicator of the handle.
// `counts`: in device memory, or null.
Status submit(Entered& entered, weftComm* handle, std::span<Call> calls, CountsOnDevice* counts = nullptr);
// After CallPlacement refused a call: returns its reason. If the CUDA context is lost, the communicator dies, so that the
// other ranks do not wait for this one.
Status not_placed(Entered& entered, Communicator& communicator, Status reason);

}  // namespace weft::internal
