// context.hpp: a device's primary context, which the runtime API uses too. Weft makes no other context and changes none
// of its flags.
#pragma once
#include <optional>
#include <utility>

#include "src/drivers/cuda/driver.hpp"

namespace weft::internal::cuda {

// The context is retained as long as the owner lives. Thread-safe. Objects made with it must not outlive it.
class Context {
  public:
    Context() = default;
    static Result<Context> retain(const Driver& driver, int device);
    // Of the first device whose primary context is in use; without a handle: of none, so no memory is on a device.
    static Result<Context> of_any_device(const Driver& driver);
    Context(Context&& other) noexcept { *this = std::move(other); }
    Context& operator=(Context&& other) noexcept;
    ~Context();

    const Driver& driver() const { return *driver_; }
    int device() const { return device_; }
    CUcontext handle() const { return handle_; }
    // Lets kernels of this context access cuMemAlloc memory of `peer`. Repeated calls are no error.
    Status enable_peer(const Context& peer) const;
    // Waits for all work of the context, including the user's.
    Status synchronize() const;

  private:
    const Driver* driver_ = nullptr;
    int device_ = -1;
    CUcontext handle_ = nullptr;
};

// Makes a context current in the calling thread until the end of the scope. Thread-bound.
class ContextScope {
  public:
    explicit ContextScope(const Context& context) : ContextScope(context.driver(), context.handle()) {}
    ContextScope(const Driver& driver, CUcontext context);
    ContextScope(const ContextScope&) = delete;
    ContextScope& operator=(const ContextScope&) = delete;
    ~ContextScope();
    // Whether the context could be made current. Check it once.
    Status take_status() { return std::move(status_); }

  private:
    const Driver& driver_;
    bool pushed_ = false;
    Status status_;
};

// The device of the calling thread's current context; empty: no context is current. Thread-bound.
Result<std::optional<int>> current_device(const Driver& driver);

}  // namespace weft::internal::cuda
