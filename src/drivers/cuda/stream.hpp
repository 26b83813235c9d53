// stream.hpp: Weft's own streams, and queries of users' streams. A user's stream is a CUstream, which equals the
// runtime API's cudaStream_t. NULL and CU_STREAM_LEGACY are the legacy stream. CU_STREAM_PER_THREAD is the calling
// thread's stream.
#pragma once
#include <array>
#include <utility>

#include "src/drivers/cuda/context.hpp"
#include "src/drivers/cuda/event.hpp"

namespace weft::internal::cuda {

// It does not synchronise with the legacy stream. Thread-safe except for moves. Must not outlive its context.
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
    Result<bool> done() const;  // whether all work enqueued so far is complete
    Status wait_for(const Event& event) const;

  private:
    const Driver* driver_ = nullptr;
    CUstream handle_ = nullptr;
};

// Properties of a user's stream. The query is thread-bound if the stream is the thread's own.
struct StreamFacts {
    uint64_t id = 0;  // unique; before driver 12.0 the handle, which may be recycled
    CUcontext context = nullptr;
    int device = -1;
    bool capturing = false;
    uint64_t capture_id = 0;  // of the active capture
    CUgraph graph = nullptr;  // the graph of the active capture
};
// Fails if an error has invalidated the stream's capture.
Result<StreamFacts> describe_stream(const Driver& driver, CUstream stream);

// The streams of a rank's calls. The driver is asked once for what does not change. Thread-bound.
class KnownStreams {
  public:
    // As describe_stream(), with two driver calls if the stream is known.
    Result<StreamFacts> describe(const Driver& driver, CUstream stream);

  private:
    std::array<StreamFacts, 4> known_;  // by id; without an id: unused
};

// Allows calls in this thread that a capture of any thread would forbid, as long as it lives. It is for set-up that is
// no part of the graph. Thread-bound.
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
