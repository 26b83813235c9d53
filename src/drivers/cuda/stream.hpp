// stream.hpp: Weft's own streams, and what can be asked of the user's. A user's stream is a CUstream, which the runtime
// API's cudaStream_t is too; NULL and CU_STREAM_LEGACY are the legacy stream, CU_STREAM_PER_THREAD the calling
// thread's.
#pragma once
#include <utility>

#include "src/drivers/cuda/context.hpp"
#include "src/drivers/cuda/event.hpp"

namespace weft::internal::cuda {

// Does not synchronise with the legacy stream. Thread-safe but for being moved; must not outlive its context.
class Stream {
  public:
    enum class Priority { lowest, highest };
    Stream() = default;
    static Result<Stream> create(const Context& context, Priority priority = Priority::lowest);
    Stream(Stream&& other) noexcept { *this = std::move(other); }
    Stream& operator=(Stream&& other) noexcept;
    ~Stream();

    explicit operator bool() const { return handle_ != nullptr; }
    CUstream handle() const { return handle_; }
    Status synchronize() const;
    Result<bool> done() const;  // whether all work so far has ended
    Status wait_for(const Event& event) const;

  private:
    const Driver* driver_ = nullptr;
    CUstream handle_ = nullptr;
};

// What a stream of the user's is. Thread-bound where the stream is the thread's own.
struct StreamFacts {
    uint64_t id = 0;  // no other stream's; of a driver before 12.0 the handle, which may have been one's that is gone
    CUcontext context = nullptr;
    int device = -1;
    bool capturing = false;
    uint64_t capture_id = 0;  // of the capture, if there is one
    CUgraph graph = nullptr;  // that it is captured into
};
// A capture that an error has ended is a failure that says so.
Result<StreamFacts> describe_stream(const Driver& driver, CUstream stream);

// While it lives, calls that a capture of another thread, or this one, forbids are allowed in the calling thread: for
// set-up that is no part of the graph. Thread-bound.
class RelaxedCapture {
  public:
    explicit RelaxedCapture(const Driver& driver);
    RelaxedCapture(const RelaxedCapture&) = delete;
    RelaxedCapture& operator=(const RelaxedCapture&) = delete;
    ~RelaxedCapture();

  private:
    const Driver& driver_;
    CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
    bool exchanged_;
};

}  // namespace weft::internal::cuda
