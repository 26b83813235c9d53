// transport.hpp: all that the rest of Weft knows of a way to move bytes from one rank to another; to all of a host at
// once: flag_block.hpp. A *connection* has one direction: the Sender fills slots, the Receiver drains them, a slot returns as
// a credit. Nothing blocks: "not yet" is an empty slot, and the caller polls. Thread-bound to whoever drives the
// communicator.
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

// A cell of a connection: `capacity` bytes at `data`. Empty: not yet.
struct Slot {
    std::byte* data = nullptr;
    size_t capacity = 0;
    explicit operator bool() const { return data != nullptr; }
};

// What a slot says of itself; the receiver compares it with what it expects.
struct SlotInfo {
    uint64_t bytes = 0;
    uint64_t operation = 0;    // sequence number of the call
    uint32_t fingerprint = 0;  // of the operation
    // Not 0: the bytes are not in the slot but *lent*, until the slot is released: where, says peer_access/remote_address.hpp.
    // Only to receivers that can read there.
    uint64_t address = 0;
};

class Sender {
  public:
    virtual ~Sender() = default;
    virtual Result<Slot>
    acquire() = 0;  // the next slot to fill; empty until a credit returns; the same until published
    virtual Status publish(const SlotInfo& info) = 0;  // the acquired slot is the transport's from here on
    // acquire, fill with `info.bytes` from `data` and publish in one; false: no credit yet. `data` may change
    // afterwards.
    virtual Result<bool> send(const std::byte* data, const SlotInfo& info) {
        auto slot = acquire();
        if (!slot) return slot.take_status();
        if (!*slot) return false;
        memcpy(slot->data, data, info.bytes);
        WEFT_TRY(publish(info));
        return true;
    }
    virtual Result<bool> progress() { return true; }  // push what is in flight; true: nothing is left
    // Whether the receiver has released every slot that lent it something.
    virtual bool zero_copy_done() { return true; }
    // What a sleeper waits for, besides the host group's words: nothing if those are all.
    virtual void add_descriptors(std::vector<pollfd>&) const {}
};

class Receiver {
  public:
    virtual ~Receiver() = default;
    virtual Result<Slot> receive(
        SlotInfo& info) = 0;       // the next filled slot; empty until it is there; the same until released
    virtual Status release() = 0;  // the received slot returns to the sender as a credit
    // receive and release in one, the message's `info.bytes` at `target`, which has room for `capacity` and may be
    // written in part while the answer is false: not there yet. The same target until true. Larger messages: an error.
    virtual Result<bool> receive_into(std::byte* target, size_t capacity, SlotInfo& info) {
        auto slot = receive(info);
        if (!slot) return slot.take_status();
        if (!*slot) return false;
        if (info.bytes > capacity)
            return fail(weftInternalError, "a message of {} bytes came where {} were expected", info.bytes, capacity);
        memcpy(target, slot->data, info.bytes);
        WEFT_TRY(release());
        return true;
    }
    virtual void add_descriptors(std::vector<pollfd>&) const {}  // as the Sender's
};

// What a connection and the one the other way between the same two ranks may have in common.
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
    Segment* host = nullptr;      // where both ends share memory; null: they do not
    size_t* heap_used = nullptr;  // how much of this rank's heap there is taken; a transport that takes more moves it
    const net::Identity* identity = nullptr;  // of the communicator, proved where a connection crosses a socket
    // Null: there is none the other way. Else both ends say so, listen first, and connect when both have listened.
    std::shared_ptr<Shared>* shared = nullptr;
    // Where both ends share memory: through how much of it data shall go round, if that is more than the slots hold. The
    // receiver's word counts.
    size_t ring_bytes = 0;
};

// The Receiver listens and writes where into a blob; bootstrap carries it; the Sender connects to it.
// A blob holds offsets and addresses.
struct Blob {
    static constexpr size_t of_transport = 11;  // words; the last is who connects'
    uint64_t words[of_transport + 1] = {};
};

struct Transport {
    const char* name;  // as in logs and `weft info`
    // Empty: yes; else why not.
    std::string (*can_connect)(const ConnectionOptions& options);
    Result<std::unique_ptr<Receiver>> (*listen)(const ConnectionOptions& options, Blob& address);
    Result<std::unique_ptr<Sender>> (*connect)(const ConnectionOptions& options, const Blob& address);
    // Empty: usable on this machine; else the reason why not, for `weft info`.
    std::string (*available)();
};

}  // namespace weft::internal
