// run_call.hpp: runs a call, or several messages, to the end on the calling thread.
#pragma once
#include <span>

#include "src/comm/communicator.hpp"

namespace weft::internal {

// On every exit the buffers belong to the user again.
Status run(Communicator& communicator, std::span<const Call> calls);

}  // namespace weft::internal
