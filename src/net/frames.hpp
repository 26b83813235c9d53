// frames.hpp: messages (frames) over a connected stream socket: queued, sent as the kernel takes them, received whole.
#pragma once
#include <poll.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "src/base/fd.hpp"
#include "src/net/address.hpp"

namespace weft::internal::net {

struct Frame {
    uint32_t kind = 0;
    std::vector<std::byte> bytes;
};

// Owned by its creator, thread-bound. Never blocks. A direction that has failed always fails again with the same
// sentence. Frames that came before the connection broke can still be received.
class FrameStream {
  public:
    static constexpr size_t frame_bytes_max = size_t(16) << 20;
    static constexpr size_t queue_bytes_max = size_t(32) << 20;  // more than a peer that reads ever leaves unread

    FrameStream() = default;
    explicit FrameStream(Fd socket);

    // Keeps a copy until flush() has sent it. internal.state: the frame is larger than frame_bytes_max. tcp.broken: the
    // peer has left more than queue_bytes_max unread.
    Status queue(uint32_t kind, const void* bytes, size_t count);
    // True: nothing is left to send. tcp.broken names the peer's address and errno.
    Result<bool> flush();
    // The next complete frame. tcp.broken: the peer closed, or sent data that is no frame.
    Result<std::optional<Frame>> receive();
    bool ended() const { return ended_; }  // the peer closed, at the end of a frame

    size_t queued_bytes() const { return outgoing_.size() - sent_; }
    explicit operator bool() const { return bool(socket_); }
    int descriptor() const { return socket_.number(); }
    short events() const { return short(POLLIN | (queued_bytes() > 0 ? POLLOUT : 0)); }
    void add_descriptors(std::vector<pollfd>& list) const { list.push_back({descriptor(), events(), 0}); }
    const Address& peer() const { return peer_; }

  private:
    struct Header {
        static constexpr uint32_t expected_magic = 0x6d726677;  // "wfrm"
        uint32_t magic = expected_magic;
        uint32_t kind = 0;
        uint64_t bytes = 0;
    };
    Status broken(std::string& failure, const std::string& how) const;
    Result<bool> next(Frame& frame);

    Fd socket_;
    Address peer_;
    std::vector<std::byte> outgoing_;
    size_t sent_ = 0;  // of outgoing_
    std::vector<std::byte> incoming_;
    size_t begin_ = 0, end_ = 0;  // of the data in incoming_ that no frame was made of yet
    std::string send_failure_, receive_failure_;
    bool ended_ = false;
};

}  // namespace weft::internal::net
