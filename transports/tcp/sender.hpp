// sender.hpp: the sending end of a TCP connection. Bytes that the kernel does not accept at once wait in a slot. If all
// slots wait, there is no credit. So slots are the sender's memory, and TCP's window is the flow control.
#pragma once
#include <cstdlib>
#include <memory>
#include <vector>

#include "transports/tcp/tcp_connection.hpp"

namespace weft::internal::tcp {

struct Freed {
    void operator()(std::byte* memory) const { free(memory); }
};
using SlotMemory = std::unique_ptr<std::byte, Freed>;
// Aligned to a cache line, every page touched.
Result<SlotMemory> allocate_slot(size_t bytes);

// Each call advances the connection until it is connected. Thread-bound (transport.hpp).
class TcpSender final : public Sender {
  public:
    TcpSender(const ConnectionOptions& options, std::shared_ptr<TcpConnection> connection);
    ~TcpSender() override;

    Result<Slot> acquire() override;
    Status publish(const SlotInfo& info) override;
    Result<bool> send(const std::byte* data, const SlotInfo& info) override;
    Result<bool> progress() override;
    void add_wakeups(Wakeups& wakeups) override;
    Result<bool> post(const std::byte* data, const RegisteredMemory* memory, const SlotInfo& info) override;
    uint64_t sent() override { return first_; }

  private:
    // State of one socket. It sends its shares of the messages in order, independently of the other stripes.
    struct Stripe {
        uint64_t message = 0;  // that it sends; earlier ones are through
        uint64_t done = 0;     // bytes of header and share
    };
    struct Outgoing {
        MessageHeader header;
        const std::byte* data = nullptr;
        SlotMemory memory;
    };

    Outgoing& at(uint64_t message) { return ring_[size_t(message % ring_.size())]; }
    Status back(Outgoing& outgoing);
    Status check(const SlotInfo& info) const;
    void enqueue(const std::byte* data, const SlotInfo& info);
    Status connect();
    Status push(int index);
    Status push_all();

    ConnectionOptions options_;
    std::shared_ptr<TcpConnection> connection_;
    std::vector<Stripe> stripes_;  // empty until connected
    std::vector<Outgoing> ring_;
    uint64_t next_ = 0;   // message to be published
    uint64_t first_ = 0;  // oldest that is not through
    bool broken_ = false;
};

}  // namespace weft::internal::tcp
