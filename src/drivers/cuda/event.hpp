// event.hpp: a point in a stream's work, which other streams, the host or other processes can wait for.
#pragma once
#include <utility>

#include "src/drivers/cuda/context.hpp"

namespace weft::internal::cuda {

// Thread-safe except for moves. Must not outlive the context that made it.
class Event {
  public:
    enum class EventUse { ordering, timing, interprocess };
    Event() = default;
    static Result<Event> create(const Context& context, EventUse kind = EventUse::ordering);
    // An event that exported() of another process describes.
    static Result<Event> import(const Context& context, const CUipcEventHandle& handle);
    Event(Event&& other) noexcept { *this = std::move(other); }
    Event& operator=(Event&& other) noexcept;
    ~Event();

    explicit operator bool() const { return handle_ != nullptr; }
    CUevent handle() const { return handle_; }
    Status record(CUstream stream) const;
    Result<bool> done() const;  // whether the last recorded work is complete; true if nothing was recorded
    Status synchronize() const;
    Result<float> milliseconds_since(const Event& earlier) const;  // both events are of kind timing
    Result<CUipcEventHandle> exported() const;                     // of kind interprocess

  private:
    const Driver* driver_ = nullptr;
    CUevent handle_ = nullptr;
};

}  // namespace weft::internal::cuda
