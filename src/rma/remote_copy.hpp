// remote_copy.hpp: copies between this rank's memory and a window of another host, by the transport's puts and gets
// (Capability::one_sided). The target takes no part.
#pragma once
#include <map>
#include <memory>
#include <vector>

#include "src/executor/progress.hpp"
#include "src/rma/one_sided_call.hpp"
#include "transports/user_memory.hpp"

namespace weft::internal {

// Owned by OneSided. Thread-bound to the rank. One copy at a time: begin(), then advance() until done. Nothing blocks.
class RemoteCopy {
  public:
    explicit RemoteCopy(UserMemory& memory) : memory_(&memory) {}

    // By the connection to the call's peer. `window`: the peer's part.
    void begin(const OneSidedCall& call, Sender& sender, RemoteMemory& window);
    // moved, blocked or done. A put is done when its buffer may change.
    Result<Progress> advance();
    bool active() const { return peer_ != nullptr; }
    // Whether the transport may still write into the caller's buffer.
    bool writes_buffer() const { return active() && !call_.is_put() && own_ != nullptr && posted_ > done_; }
    void abandon() { peer_ = nullptr; }

  private:
    // The transfers with one peer.
    struct Peer {
        Sender* sender = nullptr;
        uint64_t posted = 0;       // puts and gets
        bool unconfirmed = false;  // some put may not be in the peer's memory yet
    };
    // Registered memory, for callers' buffers that are not.
    struct Staging {
        std::unique_ptr<std::byte[]> bytes;
        std::unique_ptr<RegisteredMemory> memory;
    };
    Status make_staging();
    Result<bool> post_some();
    Result<bool> post(uint64_t bytes);
    void complete();

    UserMemory* memory_;
    Staging staging_;
    std::map<int, Peer> peers_;  // by rank
    OneSidedCall call_{};
    Peer* peer_ = nullptr;
    RemoteMemory* window_ = nullptr;
    const RegisteredMemory* own_ = nullptr;  // holds the caller's buffer; null: through the staging memory
    uint64_t posted_ = 0, done_ = 0;         // bytes of the call
};

}  // namespace weft::internal
