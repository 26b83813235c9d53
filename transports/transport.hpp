// transport.hpp: all that the rest of Weft knows of a way to move bytes between ranks.
// A *connection* has one direction: the Sender fills slots, the Receiver drains them, a slot returns as a credit. A
// *board* is memory of a group: each rank writes its own part, all read it (src/README.md, "The board"). Nothing
// blocks: "not yet" is an empty slot, and the caller polls. Thread-bound to whoever drives the communicator.
#pragma once
#include <poll.h>

#include <array>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "src/base/host_group.hpp"
#include "src/base/result.hpp"
#include "transports/wire.hpp"

namespace weft {

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
    // Not 0: the bytes are not in the slot but *lent*, until the slot is released: where, says executor/lent_memory.hpp.
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
    virtual bool settled() { return true; }
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
    HostGroup* host = nullptr;    // where both ends share memory; null: they do not
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

// This rank's view of the board of its host's ranks. Plain memory: the executor reads and writes it without a
// call. Thread-bound. The protocol is in src/README.md.
class Board {
  public:
    static constexpr size_t slot_bytes_max = size_t(1) << 20;
    static constexpr size_t slot_bytes_first = 8192;  // backed from the start, as a rule
    // Bytes of the rank's heap that a board takes, from its beginning. Slots are not a power of two apart (cache sets).
    static constexpr size_t slot_stride = slot_bytes_max + 4096 + 320;
    static constexpr size_t heap_bytes = slot_stride * board_slots;

    // `slots_later`: none is backed before reserve() is asked for it.
    static Result<std::unique_ptr<Board>> open(HostGroup& host, int rank, bool slots_later = false);

    int rank() const { return rank_; }
    // `rank` is any rank of this host; which of them take part in an operation is the schedule's to say.
    BoardLine& line(int rank, uint32_t tile) const {
        return *reinterpret_cast<BoardLine*>(lines_ + (size_t(tile % board_slots) * size_t(locals_) + place(rank)) *
                                                          HostGeometry::board_line_stride);
    }
    // Where tiles' data lie: in one slot after the other, and there in one place after the other. Lines that a reader still
    // has in its second-level cache take several times as long to write as others. The same on all ranks.
    struct Rotation {
        uint32_t mask = 0;             // one less than how many places of a slot there are, a power of two
        uint32_t pitch = 0;            // bytes from one to the next
        uint32_t slots = board_slots;  // that the data go round in, a power of two
        size_t bytes() const { return size_t(mask + 1) * pitch; }
        size_t begin(uint32_t tile) const { return size_t(tile / slots & mask) * pitch; }
    };
    // Of tiles of so many bytes, a multiple of a line. What all ranks' slots hold together, and a rank reads, is more than
    // a second-level cache and less than a last-level one. `in_order`: a rank posts no tile before it has read all of the
    // last one, so that two slots do (rule 3). Measured, perf/README.md.
    static Rotation rotation(size_t tile_bytes, int ranks, bool in_order);
    std::byte* slot(int rank, uint32_t tile) const {
        return heaps_ + HostGeometry::heap_stride * place(rank) + slot_stride * (tile % board_slots);
    }
    std::byte* slot(int rank, uint32_t tile, const Rotation& rotation) const {
        return slot(rank, tile % rotation.slots) + rotation.begin(tile);
    }
    void wake() { host_->wake(); }
    bool aborted() const { return host_->aborted(); }
    // Makes this rank's first `slots` hold `bytes` each. Local: nobody is told (rule 4).
    Status reserve(size_t bytes, uint32_t slots = board_slots);
    size_t reserved() const { return std::accumulate(reserved_.begin(), reserved_.end(), size_t(0)); }

    uint32_t tile = 0;  // of the next tile; rises alike on all ranks

    Board(HostGroup& host, int rank);

  private:
    size_t place(int rank) const { return size_t(places_ ? places_[rank] : rank); }
    HostGroup* host_;
    std::byte* lines_;
    std::byte* heaps_;
    const int* places_;  // by rank; null where all ranks are on this host, each at its own place
    int locals_;
    int rank_;
    std::array<size_t, board_slots> reserved_{};  // by slot
};

}  // namespace weft
