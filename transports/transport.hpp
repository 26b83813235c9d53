// transport.hpp: the interface of a transport, which moves bytes from one rank to another.
// A *connection* has one direction: the Sender fills slots, the Receiver drains them, and a slot returns as a credit.
// No call blocks: an empty result means "not yet", and the caller polls. Thread-bound to the thread that drives the
// communicator. For all ranks of a host at once, see segment/flag_block.hpp.
#pragma once
#include <poll.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "src/segment/segment.hpp"

namespace weft::internal {

namespace net {
struct Identity;
}

// One buffer of a connection: `capacity` bytes at `data`. Empty: not yet.
struct Slot {
    std::byte* data = nullptr;
    size_t capacity = 0;
    explicit operator bool() const { return data != nullptr; }
};

// The header of a message; the receiver compares it with its own call.
struct SlotInfo {
    uint64_t bytes = 0;
    uint64_t operation = 0;    // sequence number of the call
    uint32_t fingerprint = 0;  // of the operation
    // Not 0: a zero-copy message. The bytes stay in the sender's memory at this address until the slot is released
    // (peer_access/remote_address.hpp). Only for receivers that can read there.
    uint64_t address = 0;
};

class Sender {
  public:
    virtual ~Sender() = default;
    // The next slot to fill, the same one until it is published. Empty until a credit returns.
    virtual Result<Slot> acquire() = 0;
    // Passes the acquired slot to the transport.
    virtual Status publish(const SlotInfo& info) = 0;
    // Acquires a slot, copies `info.bytes` from `data` and publishes. False: no credit yet. `data` may change afterwards.
    virtual Result<bool> send(const std::byte* data, const SlotInfo& info) {
        auto slot = acquire();
        if (!slot) return slot.take_status();
        if (!*slot) return false;
        memcpy(slot->data, data, info.bytes);
        WEFT_TRY(publish(info));
        return true;
    }
    virtual Result<bool> progress() { return true; }  // sends what is in flight; true: nothing is left
    // Whether the receiver has released every zero-copy message.
    virtual bool zero_copy_done() { return true; }
    // Descriptors to poll while sleeping; none if the transport only uses flags in the segment.
    virtual void add_descriptors(std::vector<pollfd>&) const {}
};

class Receiver {
  public:
    virtual ~Receiver() = default;
    // The next filled slot, the same one until it is released. Empty until a message is there.
    virtual Result<Slot> receive(SlotInfo& info) = 0;
    // Returns the received slot to the sender as a credit.
    virtual Status release() = 0;
    // Receives `info.bytes` at `target`, which has room for `capacity`, and releases. False: not complete yet, and
    // `target` may be written in part; pass the same target until the result is true. A larger message is an error.
    virtual Result<bool> receive_into(std::byte* target, size_t capacity, SlotInfo& info) {
        auto slot = receive(info);
        if (!slot) return slot.take_status();
        if (!*slot) return false;
        if (info.bytes > capacity)
            return fail(error::internal_damaged, "a message of {} bytes came where {} were expected", info.bytes,
                        capacity);
        memcpy(target, slot->data, info.bytes);
        WEFT_TRY(release());
        return true;
    }
    virtual void add_descriptors(std::vector<pollfd>&) const {}  // as Sender::add_descriptors()
};

// State that the two connections between two ranks, one in each direction, may share.
class Shared {
  public:
    virtual ~Shared() = default;
};

struct ConnectionOptions {
    int self = 0;
    int peer = 0;
    int channel = 0;
    int depth = 2;  // slots
    size_t slot_bytes = 0;
    Segment* host = nullptr;                  // the segment of both ends; null: they are on different hosts
    size_t* heap_used = nullptr;              // used bytes of this rank's heap; a transport that takes more advances it
    const net::Identity* identity = nullptr;  // of the communicator, for the handshake of a socket
    // Null: there is no connection in the other direction. Otherwise both ends set it, listen first, and connect when
    // both have listened.
    std::shared_ptr<Shared>* shared = nullptr;
    // In shared memory: the size of the data ring, if that is more than the slots hold. The receiver's value is used.
    size_t ring_bytes = 0;
};

// A receiver's address: it listens and fills a blob, the planner passes the blob to the sender, and the sender connects.
struct Blob {
    static constexpr size_t of_transport = 11;  // words; the last word belongs to the connector
    uint64_t words[of_transport + 1] = {};
};

struct Transport {
    const char* name;  // as in logs and `weft info`
    // Empty: the ranks can connect; otherwise the reason why they cannot.
    std::string (*can_connect)(const ConnectionOptions& options);
    Result<std::unique_ptr<Receiver>> (*listen)(const ConnectionOptions& options, Blob& address);
    Result<std::unique_ptr<Sender>> (*connect)(const ConnectionOptions& options, const Blob& address);
    // Empty: the transport works on this machine; otherwise the reason why it does not, for `weft info`.
    std::string (*available)();
};

}  // namespace weft::internal
