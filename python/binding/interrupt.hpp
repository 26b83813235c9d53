// interrupt.hpp: Ctrl-C ends a blocking call, although Python cannot run its signal handlers before the call returns.
// A handler in front of Python's wakes a thread of ours, and that thread aborts the objects of the call.
#pragma once
#include <atomic>
#include <span>

namespace weft::python {

// An object whose blocking calls Ctrl-C ends.
class Interruptible {
  public:
    // From any thread, without the GIL.
    virtual void abort_quietly() noexcept = 0;

    // The number of threads inside a call.
    std::atomic<int> inside{0};

  protected:
    ~Interruptible() = default;
};

// Call it when the module is imported, after prepare_gil().
void prepare_interrupts();

// A blocking call without the GIL. Construct and call end() and raise_pending() in this order, from one thread.
// Python's default handler ends the call at the first Ctrl-C, any other one at the second.
class Watch {
  public:
    // Raises KeyboardInterrupt if a signal came before the call.
    explicit Watch(std::span<Interruptible* const> objects);
    Watch(const Watch&) = delete;
    ~Watch() { end(); }
    // Without the GIL. Afterwards the objects are not aborted any more.
    void end() noexcept;
    // With the GIL. Runs Python's signal handlers if Ctrl-C came during the call.
    void raise_pending();

    std::span<Interruptible* const> objects() const { return objects_; }

  private:
    std::span<Interruptible* const> objects_;
    Watch* outer_ = nullptr;  // of the call whose function makes this call
    bool watched_ = false;
    unsigned before_ = 0;
};

}  // namespace weft::python
