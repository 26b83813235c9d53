// event.hpp: a point in a stream's work, for other streams, the host, or other processes to wait for.
#pragma once
#include <utility>

#include "src/drivers/cuda/context.hpp"

namespace weft::internal::cuda {

// Thread-safe but for being moved. Of the context that made it, which it must not outlive.
class Event {
  public:
    enum class EventUse { ordering, timing, interprocess };
    Event() = default;
    static Result<Event> create(const Context& context, EventUse kind = EventUse::ordering);
    // One made in another process, by its exported().
    static Result<Event> import(const Context& context, const CUipcEventHandle& handle);
    Event(Event&& other) noexcept { *this = std::move(other); }
    Event& operator=(Event&& other) noexcept;
    ~Event();

    explicit operator bool() const { return handle_ != nullptr; }
    CUevent handle() const { return handle_; }
    Status record(CUstream stream) const;
    Result<bool> done() const;  // whether what was recorded last has happened; true if nothing was
    Status synchronize() const;
    Result<float> milliseconds_since(const Event& earlier) const;  // both of kind timing
    Result<CUipcEventHandle> exported() const;                     // of kind interprocess

  private:
    const Driver* driver_ = nullptr;
    CUevent handle_ = nullptr;
};

}  // namespace weft::internal::cuda
