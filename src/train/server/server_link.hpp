// server_link.hpp: the messages between a parameter server and one worker: puts into each other's window.
#pragma once
#include <atomic>
#include <memory>

#include "src/base/result.hpp"
#include "src/train/flat_buffer.hpp"
#include "src/train/memory_space.hpp"
#include "weft/weft.h"

namespace weft::internal::train {

// Owns a communicator of two ranks, and host memory of both directions. The ranks send in turn, the worker first: a
// message stays in `received()` until the answer is sent. Thread-bound, except abort(), which is thread-safe.
class ServerLink {
  public:
    // All ranks of `parent` call it. The two ranks with one color make a link; a negative color makes none: null.
    // `peer` is the other rank's number in `parent`, for errors. Copies of `space` to and from the messages are fast.
    static Result<std::unique_ptr<ServerLink>> make(weftComm_t parent, int color, int peer, int64_t timeout_ms,
                                                    MemorySpace& space, size_t bytes);
    ServerLink(const ServerLink&) = delete;
    ServerLink& operator=(const ServerLink&) = delete;
    ~ServerLink();

    int peer() const { return peer_; }
    std::byte* outgoing() const { return outgoing_.data(); }
    const std::byte* received() const { return received_.data(); }
    // Sends the first bytes of outgoing().
    Status send(size_t bytes);
    // Waits for the next message.
    Status wait();
    // Both ranks call it after their last message.
    void end();
    void abort();

  private:
    ServerLink() = default;
    Status explained(Status status) const;

    std::unique_ptr<MemorySpace> host_ = host_space();
    FlatBuffer outgoing_, received_;
    std::shared_ptr<void> outgoing_pin_, received_pin_;
    weftComm_t comm_ = nullptr;
    weftWindow_t window_ = nullptr;
    int peer_ = 0, other_ = 0;  // the other rank in the parent, and here
    std::atomic<bool> aborted_{false};
};

}  // namespace weft::internal::train
