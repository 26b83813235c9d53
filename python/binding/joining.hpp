// joining.hpp: makes communicators in a thread of its own, so that Ctrl-C ends the wait for the other ranks.
// The library has no handle to abort before all ranks have joined.
#pragma once
#include <weft/weft.h>

#include <cstddef>
#include <functional>
#include <vector>

namespace weft::python {

// Calls `make` with places for `count` handles and returns the handles. The thread has the caller's CUDA context.
// If a signal handler of Python raises, the thread continues alone and aborts what it makes. Needs the GIL.
std::vector<weftComm_t> join_interruptibly(size_t count, std::function<weftResult_t(weftComm_t**)> make);

}  // namespace weft::python
