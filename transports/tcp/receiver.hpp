// receiver.hpp: the receiving end of a TCP connection. It reads whole messages, straight to where the caller wants them
// or into one slot. Every header is checked before a byte behind it is read.
#pragma once
#include <memory>
#include <vector>

#include "transports/tcp/sender.hpp"
#include "transports/tcp/tcp_connection.hpp"

namespace weft::internal::tcp {

// Thread-bound as transport.hpp has it.
class TcpReceiver final : public Receiver {
  public:
    TcpReceiver(const ConnectionOptions& options, std::shared_ptr<TcpConnection> connection);

    Result<Slot> receive(SlotInfo& info) override;
    Status release() override;
    Result<bool> receive_into(std::byte* target, size_t capacity, SlotInfo& info) override;
    void add_descriptors(std::vector<pollfd>& list) const override;

  private:
    // Of one socket. The stash is what was read ahead: small messages come, header and all, in one call of the kernel.
    struct Stripe {
        static constexpr size_t stash_bytes = 8192;
        std::unique_ptr<std::byte[]> stash;
        size_t begin = 0, end = 0;  // of what is in it
        bool headed = false;        // the current message's header has been read
        uint64_t done = 0;          // bytes of the share
    };

    Result<bool> connect();
    Result<bool> read_header(int index);
    Result<bool> read_share(int index, std::byte* target);
    Result<bool> read_head();
    Result<bool> read_message(std::byte* target);
    Status broken(int index, const Status& how) const;
    Status lies(int index, const MessageHeader& header) const;
    SlotInfo info() const { return {header_.bytes, header_.operation, header_.fingerprint}; }
    void finish();

    ConnectionOptions options_;
    std::shared_ptr<TcpConnection> connection_;
    std::vector<Stripe> stripes_;  // empty until connected
    MessageHeader header_;         // of the current message
    uint64_t sequence_ = 1;        // of the current message
    SlotMemory slot_;
    bool in_slot_ = false;  // the current message goes there
    bool whole_ = false;    // and is there, whole
};

}  // namespace weft::internal::tcp
