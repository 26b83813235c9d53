// python_caller.hpp: learns of the end of the Python code that calls.
#pragma once
#include <functional>

namespace weft_torch {

// Runs `gone`, with the GIL held, when the Python generator that made this call does not exist any more.
// Does nothing if the caller is no generator.
// torch's context managers are generators. An exception in a with statement skips their second half, and a backend learns of
// it by this function.
void when_caller_is_gone(std::function<void()> gone);

}  // namespace weft_torch
