// python_caller.hpp: the Python code that calls: its end is noticed, and its lock is released for waits.
#pragma once
#include <functional>

namespace weft_torch {

// Runs `gone`, with the GIL held, when the Python generator that made this call does not exist any more.
// Does nothing if the caller is no generator.
// torch's context managers are generators. An exception in a with statement skips their second half, and a backend learns of
// it by this function.
void when_caller_is_gone(std::function<void()> gone);

// Releases the GIL for its scope if this thread holds it. torch holds it in some calls that wait, such as synchronize().
// The operation that ends the wait may need Python.
class WithoutGil {
  public:
    WithoutGil();
    ~WithoutGil();
    WithoutGil(const WithoutGil&) = delete;

  private:
    struct _ts* held_;  // of Python; null: this thread did not hold it
};

}  // namespace weft_torch
