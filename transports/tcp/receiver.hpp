// receiver.hpp: the receiving end of a TCP connection. It reads whole messages, into the caller's buffer or into one
// slot. It checks every header before it reads the bytes that follow.
#pragma once
#include <memory>
#include <vector>

#include "transports/tcp/sender.hpp"
#include "transports/tcp/tcp_connection.hpp"

namespace weft::internal::tcp {

// Thread-bound (transport.hpp).
class TcpReceiver final : public Receiver {
  public:
    TcpReceiver(const ConnectionOptions& options, std::shared_ptr<TcpConnection> connection);

    Result<Slot> receive(SlotInfo& info) override;
    Status release() override;
    Result<bool> receive_into(std::byte* target, size_t capacity, SlotInfo& info) override;
    void add_wakeups(Wakeups& wakeups) override;

  private:
    // State of one socket. The stash holds bytes that were read ahead, so that one system call reads a small message
    // with its header.
    struct Stripe {
        static constexpr size_t stash_bytes = 8192;
        std::unique_ptr<std::byte[]> stash;
        size_t begin = 0, end = 0;  // of the bytes in the stash
        bool headed = false;        // the current message's header has been read
        uint64_t done = 0;          // bytes of the share
    };

    Result<bool> connect();
    Result<bool> read_header(int index);
    Result<bool> read_share(int index, std::byte* target);
    Result<bool> read_head();
    Result<bool> read_message(std::byte* target);
    Status broken(int index, const Status& how) const;
    Status damaged(int index, const MessageHeader& header) const;
    SlotInfo info() const { return {header_.bytes, header_.operation, header_.fingerprint}; }
    void finish();

    ConnectionOptions options_;
    std::shared_ptr<TcpConnection> connection_;
    std::vector<Stripe> stripes_;  // empty until connected
    MessageHeader header_;         // of the current message
    uint64_t sequence_ = 1;        // of the current message
    SlotMemory slot_;
    bool in_slot_ = false;  // the current message is read into slot_
    bool whole_ = false;    // all of it is in slot_
};

}  // namespace weft::internal::tcp
