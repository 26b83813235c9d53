// message_arguments.hpp: what the host hands to the kernel of messages, and where the two ends of a message meet: in
// memory that all ranks of a host reach, laid out alike by all from the number of ranks alone, so that no two ranks
// have to connect. Plain data, laid out alike by the host's compiler and the device's.
#pragma once
#include <cstddef>
#include <cstdint>

#include "src/gpu/kernels/kernel_arguments.hpp"

namespace weft::internal::cuda {

inline constexpr int message_ranks_max = 64;
// Of a p2p channel. A block copies 20 bytes a nanosecond at most and a flag takes two microseconds there and two back: four
// slots of 32 KiB keep a p2p channel busy.
inline constexpr uint32_t message_slots = 4;
inline constexpr size_t message_slot_bytes = 32 << 10;

// A *p2p channel*: one direction between two ranks, on a channel of theirs. What a rank has of its two p2p channels with a peer on a
// channel; zero when the communicator begins.
struct MessageChannelState {
    struct MessageSlotHeader {
        uint64_t filled;   // barrier_word(number of the slot's filling, from 1; the message's mark), released
        uint64_t bytes;    // of the whole message
        uint64_t address;  // where the receiver's kernels find the piece; 0: in slots
    };
    alignas(128) MessageSlotHeader headers[message_slots];  // of what comes: written by the peer
    alignas(128) uint32_t consumed;        // of what goes: slots that the peer is done with, written by it
    alignas(128) uint32_t sent, received;  // slots, ever; by this rank's kernels alone
};

// The same of the one channel with a peer on another host, whom the proxy stands for, but for `sent` and `received`: in
// the rank's own pinned memory.
struct RemoteMessageArea {
    // The first line's writer is who sends, the kernel or the proxy, the second's who receives.
    struct RemoteDirection {
        alignas(128) uint64_t filled[message_slots];  // as in MessageChannelState
        uint64_t lengths[message_slots];              // bytes in the slot
        uint64_t wholes[message_slots];               // bytes of the whole message
        alignas(128) uint32_t consumed;
        uint32_t wanted;  // as in ConnectionEnd
    };
    RemoteDirection outgoing, incoming;
    // Need not be zero when the communicator begins.
    alignas(256) std::byte sent_slots[message_slots][message_slot_bytes];
    std::byte received_slots[message_slots][message_slot_bytes];
};
inline constexpr int message_channel_remote = 1 << 12;  // of these connections: none of a schedule's

// Long messages are cut in pieces, one for each channel of the two ranks: as many as keep a rank's memory at 4 MiB,
// and its p2p channels below 128.
struct MessageGeometry {
    int ranks;
    constexpr int channels() const {
        int least = 2;
        while (least < ranks) least *= 2;
        return least < 32 ? 32 / least : 1;
    }
    constexpr uint64_t pieces(uint64_t bytes) const {
        // Of any number that fits, for a buffer whose end is not known may have them all.
        const uint64_t wanted = bytes / message_slot_bytes + (bytes % message_slot_bytes != 0 ? 1 : 0);
        const uint64_t most = uint64_t(channels());
        return wanted == 0 ? 1 : wanted < most ? wanted : most;
    }
    constexpr size_t p2p_channels() const { return size_t(ranks) * size_t(channels()); }
    constexpr size_t state_bytes() const { return p2p_channels() * sizeof(MessageChannelState); }
    constexpr size_t bytes() const { return state_bytes() + p2p_channels() * message_slots * message_slot_bytes; }
    // In a rank's area, by the peer that it is shared with.
    constexpr size_t p2p(int peer, int channel) const { return size_t(peer) * size_t(channels()) + size_t(channel); }
};
inline constexpr int message_p2p_max = 128;  // of a kernel: both directions

// A message, or what a rank gives itself.
struct MessageItem {
    std::byte* data;         // this rank's buffer; of a send only read
    const std::byte* other;  // send: where the peer's kernels find it, or null; own: what is copied to `data`
    uint64_t bytes;
    uint32_t mark;  // message_mark.hpp
};
// Those between this rank and another in one direction, in their order.
struct MessageQueue {
    enum Direction : uint8_t { outgoing, incoming, own };
    int16_t peer;
    Direction kind;
    uint8_t channels;       // that the longest of them is cut for
    uint16_t first, count;  // of the items
};

// An all-to-all whose counts are device memory: what its messages are made from, before they move.
struct MessageCounts {
    const uint64_t *sent, *send_places, *received, *receive_places;  // the user's: elements, by rank
    std::byte *send, *receive;                                       // the buffers
    uint64_t send_room, receive_room;                                // elements that they have
    uint64_t zero_copy_least;                                        // bytes of a message that is read where it lies
    uint32_t element;                                                // bytes
    uint32_t mark;
    const std::byte* remote_sends[message_ranks_max];  // where the peer's kernels find `send`; null: nowhere
};

// KernelFailure::counts, all elements.
struct CountReport {
    enum Fault : uint8_t {
        outside,  // a count, its displacement, and what there is of the buffer
        own,      // what a rank gives itself, and what it takes
        overlap,  // of two parts that are received: what the first has, and how far behind its begin the other's is
        sent,     // what goes to a rank overlaps what comes from one
    } fault;
    int32_t other_rank;
    uint64_t count, other, room;
};
// Beside the FailureReport of a kernel of messages, before its `failure`.
struct MessageReport {
    bool valid;
    bool outgoing;
    bool begun;  // a part has moved
    uint64_t bytes, other_bytes;
    CountReport counts;
};
// What a block that has waited for a while waits for, in host memory; one writer.
struct BlockWait {
    alignas(16) uint64_t ranks;  // by bit; 0: it moves, or has ended
    uint64_t polls;              // at all its p2p channels, since it waits
};

inline constexpr int message_items_within = 72;    // the arguments themselves
inline constexpr int message_items_max = 8 << 10;  // of one kernel

struct MessageArguments {
    int32_t rank, ranks;
    uint32_t launch;  // as in KernelArguments
    int32_t queue_count, item_count;
    enum KernelAction : int32_t {
        move,
        note,   // writes `items` into the table, from place `noted` on
        count,  // writes those that `counts` tells into the table, one a queue
    } does;
    int32_t noted;
    bool counted;  // move: the kernel before has written the items
    uint64_t timeout_ns;
    const uint32_t* abort;
    FailureReport* report;
    MessageReport* message_report;
    BlockWait* block_waits;  // by block
    RankFlags* own;
    MessageItem* table;                   // this rank's device memory
    bool in_table;                        // where the items are; else in `items`
    uint32_t* ended;                      // as in KernelArguments
    uint64_t remote;                      // peers on other hosts, by bit
    std::byte* areas[message_ranks_max];  // of a remote peer its RemoteMessageArea
    MessageQueue queues[message_p2p_max];
    union {
        MessageItem items[message_items_within];
        MessageCounts counts;
    };
};
static_assert(sizeof(MessageArguments) <= 4096, "passed by value");

inline constexpr const char* message_entry_point = "weft_messages";

}  // namespace weft::internal::cuda
