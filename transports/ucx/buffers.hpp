// buffers.hpp: the messages of one end of a connection over UCX: their headers, slots and requests.
#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "transports/ucx/library.hpp"

namespace weft::internal::ucx {

// The header of a message, or of each of its parts, as an active message carries it.
struct MessageHeader {
    uint64_t connection = 0;  // the receiver's token, which no other connection of its process has
    uint64_t sequence = 0;    // from 1
    uint64_t bytes = 0;       // of the whole message
    uint64_t offset = 0;      // of this part's data in the message
    uint64_t operation = 0;
    uint32_t fingerprint = 0;
    uint32_t credits = 0;   // that go along, for a connection in the other direction
    uint64_t credited = 0;  // the token of that one
};
// Returns credits to the sender.
struct CreditHeader {
    uint64_t connection = 0;
    uint64_t credits = 0;
};

// Of a message or a part, with UCX's own.
constexpr uint64_t headers_bytes = sizeof(MessageHeader) + 64;
// Bytes for which a socket has room for sure: Linux's net.ipv4.tcp_wmem.
constexpr uint64_t on_the_way_most = 16'384;

// Operations that UCX may complete later.
struct Transfer {
    int active = 0;
    ucs_status_t status = UCS_OK;  // the first failure
    void begin() { ++active; }
    void end(ucs_status_t how) {
        --active;
        if (status == UCS_OK) status = how;
    }
};

// Over TCP a message goes as eager active messages of this size at most. UCX then receives each into one buffer of its
// own, whose data is copied once, and it never reads or writes the memory of the other end.
constexpr size_t part_bytes = 7'680;  // with headers less than 8 KiB, UCX's default of a buffer from which it sends

// Memory of one end. It outlives the end while UCX may still use it.
class Buffers {
  public:
    static Result<std::shared_ptr<Buffers>> make(const Library& library, int depth, size_t slot_bytes);
    Buffers() = default;
    Buffers(const Buffers&) = delete;
    Buffers& operator=(const Buffers&) = delete;
    ~Buffers();
    std::byte* slot(uint64_t message) { return memory_.get() + message % transfers.size() * stride_; }
    ucp_mem_h handle() const { return handle_; }
    bool active() const;
    // Of a part of the message in a slot, by index; not the first one.
    MessageHeader& later_part(size_t place, size_t index) {
        return part_headers_[place * (part_headers_.size() / headers.size()) + index - 1];
    }

    // One for each slot.
    std::vector<Transfer> transfers;
    std::vector<MessageHeader> headers;
    std::vector<Transfer> credit_transfers;
    std::vector<CreditHeader> credits;
    Transfer flush;

  private:
    struct Freed {
        void operator()(std::byte* memory) const;
    };
    const Library* library_ = nullptr;
    std::unique_ptr<std::byte, Freed> memory_;
    ucp_mem_h handle_ = nullptr;
    size_t stride_ = 0;
    std::vector<MessageHeader> part_headers_;
};

}  // namespace weft::internal::ucx
