// connection.hpp: the two ends of a connection, which moves messages from one rank to another.
// A *connection* has one direction: the Sender fills slots, the Receiver drains them, and a slot returns as a credit.
// Messages of a connection have numbers, from 0, in the order of posting. No call blocks: an empty or false result means
// "not yet", and the caller polls. Thread-bound to the thread that drives the communicator, or to the proxy.
// docs/design/transports.md says which end owns which memory.
#pragma once
#include <cstring>
#include <memory>
#include <span>

#include "src/base/result.hpp"
#include "src/base/wakeups.hpp"
#include "transports/memory.hpp"

namespace weft::internal {

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
        if (info.bytes > 0) memcpy(slot->data, data, info.bytes);
        WEFT_TRY(publish(info));
        return true;
    }
    // Sends what is in flight. True: nothing is left, and all posted memory may change.
    virtual Result<bool> progress() { return true; }
    // Whether the receiver has released every zero-copy message.
    virtual bool zero_copy_done() { return true; }
    // Before a sleep: adds what wakes it. A transport that must be armed looks once more after arming.
    virtual void add_wakeups(Wakeups&) {}

    // Capability::posts. Posts `info.bytes` at `data` without a copy, into the offer of this message or else into a slot.
    // False: no credit yet. `data` must not change before sent() counts the message. `memory` holds `data`; it may be
    // null without Capability::registers.
    virtual Result<bool> post(const std::byte* data, const RegisteredMemory* memory, const SlotInfo& info) {
        (void)memory;
        return send(data, info);
    }
    // How many messages, from the first, no longer need the sender's memory: posted, or in given slots.
    virtual uint64_t sent() { return UINT64_MAX; }

    // Capability::one_sided. A peer's memory, for put() and get(); it must end before this connection.
    virtual Result<std::unique_ptr<RemoteMemory>> attach(std::span<const std::byte> key);
    // Post a copy between `bytes` at `own`, which `memory` holds, and `offset` in the peer's range. False: not yet.
    // The peer takes no part. A message that is sent after a put arrives after the put's bytes.
    virtual Result<bool> put(const std::byte* own, const RegisteredMemory* memory, RemoteMemory& peer, size_t offset,
                             size_t bytes);
    virtual Result<bool> get(std::byte* own, const RegisteredMemory* memory, RemoteMemory& peer, size_t offset,
                             size_t bytes);
    // How many puts and gets, from the first, are complete: a put's bytes are in the peer's memory, a get's are here.
    virtual uint64_t transferred() { return UINT64_MAX; }
};

class Receiver {
  public:
    virtual ~Receiver() = default;
    // The next filled slot, the same one until it is released. Empty until a message is there. A message that went into
    // an offer is a slot at the offered target. Bytes in device memory are visible to kernels.
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
        if (target != slot->data && info.bytes > 0) memcpy(target, slot->data, info.bytes);
        WEFT_TRY(release());
        return true;
    }
    virtual void add_wakeups(Wakeups&) {}  // as Sender::add_wakeups()

    // Capability::given_slots. The filled slot that is `ahead` messages behind that of receive(). Empty: not yet, or the
    // transport shows one message at a time. release() returns the oldest.
    virtual Result<Slot> look_ahead(uint64_t ahead, SlotInfo& info) {
        if (ahead > 0) return Slot{};
        return receive(info);
    }

    // Capability::offers. Offers `capacity` bytes at `target`, which `memory` holds, for message number `message`.
    // False: declined, as when the message is on its way already; it then arrives in a slot. A sender may use a slot
    // in spite of an offer. The offer ends with the release of its message, with withdraw(), or with the connection.
    // Until then `target` must stay valid.
    virtual Result<bool> offer(std::byte* target, size_t capacity, RegisteredMemory* memory, uint64_t message) {
        (void)target, (void)capacity, (void)memory, (void)message;
        return false;
    }
    // The number of the message that receive() shows next.
    virtual uint64_t next() const { return 0; }
    // After a failure, when no message is received any more: ends all offers and declines later ones. When it returns,
    // nothing writes to offered memory: their registrations are revoked.
    virtual void withdraw() {}
};

}  // namespace weft::internal
