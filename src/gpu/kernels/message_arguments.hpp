// message_arguments.hpp: the arguments of the message kernel, and the memory in which the two ends of a message meet.
// All ranks of a host, or of one NVLink domain of hosts, can access it. Its layout follows from the number of ranks
// alone, so no two ranks have to connect. Plain data with the same layout in the host's compiler and the device's.
#pragma once
#include <cstddef>
#include <cstdint>

#include "src/gpu/kernels/kernel_arguments.hpp"
#include "src/gpu/kernels/rank_bits.hpp"

namespace weft::internal::cuda {

// Of a p2p channel, at most. A block copies at most 20 bytes per nanosecond, and a flag's round trip takes four
// microseconds: four slots of 32 KiB keep a p2p channel busy.
inline constexpr uint32_t message_slots = 4;
inline constexpr size_t message_slot_bytes = 32 << 10;

// A *p2p channel*: one direction between two ranks, on one of their channels. This is a rank's state of its two p2p
// channels with a peer on one channel; zero when the communicator begins.
struct MessageChannelState {
    struct MessageSlotHeader {
        uint64_t filled;   // barrier_word(number of the slot's use, from 1; the message's mark), written with release
        uint64_t bytes;    // of the whole message
        uint64_t address;  // where the receiver's kernels read the piece; 0: in the slots
    };
    alignas(128) MessageSlotHeader headers[message_slots];  // incoming; written by the peer
    alignas(128) uint32_t consumed;        // outgoing: slots that the peer has consumed; written by the peer
    alignas(128) uint32_t sent, received;  // total slots; only this rank's kernels write them
};

// The same for the one channel with a peer that is reached over the network, except `sent` and `received`. It lies in the rank's own
// pinned memory, and the proxy acts for the peer. The slots are elsewhere (remote_message_slots()).
struct RemoteMessageArea {
    // The sender (the kernel or the proxy) writes the first line; the receiver writes the second.
    struct RemoteDirection {
        alignas(128) uint64_t filled[message_slots];  // as in MessageChannelState
        uint64_t lengths[message_slots];              // bytes in the slot
        uint64_t wholes[message_slots];               // bytes of the full message
        alignas(128) uint32_t consumed;
        uint32_t wanted;  // as in ConnectionEnd
    };
    RemoteDirection outgoing, incoming;
};
// Of one direction: the slots of the remote rank with this index among the remote ranks.
inline constexpr size_t remote_message_bytes = message_slots * message_slot_bytes;
constexpr std::byte* remote_message_slots(std::byte* slots, size_t index) {
    return slots + index * remote_message_bytes;
}
inline constexpr int message_channel_remote = 1 << 12;  // channel number of these connections; no schedule uses it

// Long messages are cut into pieces, one per channel of the two ranks. Both ends must cut alike, so the number follows
// from the message. A send has few peers beside it, and takes up to 32 blocks. In a collective each rank has all peers,
// which share the blocks. Slots and channels keep a rank's memory at 16 MiB and its p2p channels at 512.
struct MessageGeometry {
    int ranks;
    constexpr int rounded_ranks() const {  // a power of two
        int least = 2;
        while (least < ranks) least *= 2;
        return least;
    }
    constexpr int channels() const { return rounded_ranks() <= 8 ? 32 : 256 / rounded_ranks(); }
    constexpr int channels_of_collective() const { return rounded_ranks() < 32 ? 32 / rounded_ranks() : 1; }
    constexpr uint32_t slots() const { return rounded_ranks() <= 4 ? message_slots : message_slots / 2; }
    constexpr uint64_t pieces(uint64_t bytes, bool of_collective) const {
        // Must not overflow: a buffer with an unknown end may have any size.
        const uint64_t wanted = bytes / message_slot_bytes + (bytes % message_slot_bytes != 0 ? 1 : 0);
        const auto most = uint64_t(of_collective ? channels_of_collective() : channels());
        return wanted == 0 ? 1 : wanted < most ? wanted : most;
    }
    constexpr size_t p2p_channels() const { return size_t(ranks) * size_t(channels()); }
    constexpr size_t state_bytes() const { return p2p_channels() * sizeof(MessageChannelState); }
    constexpr size_t bytes() const { return state_bytes() + p2p_channels() * slots() * message_slot_bytes; }
    // Index in a rank's area, by the peer that shares the channel.
    constexpr size_t p2p(int peer, int channel) const { return size_t(peer) * size_t(channels()) + size_t(channel); }
};
inline constexpr int message_queues_max = 2 * ranks_max;  // of a kernel: both directions
inline constexpr int message_p2p_max = 512;               // of a kernel

// A message, or a rank's copy to itself.
struct MessageItem {
    std::byte* data;         // this rank's buffer; a send only reads it
    const std::byte* other;  // send: where the peer's kernels can read it, or null; own: the source of the copy to
                             // `data`
    uint64_t bytes;
    uint32_t mark;  // message_mark.hpp
};
// The messages between this rank and one peer in one direction, in order.
struct MessageQueue {
    enum Direction : uint8_t { outgoing, incoming, own };
    int16_t peer;
    Direction kind;
    uint8_t channels;       // the number that the longest message is cut for
    uint16_t first, count;  // of the items
};

// An all-to-all with counts in device memory: the data from which its messages are made before they move.
struct MessageCounts {
    const uint64_t *sent, *send_places, *received, *receive_places;  // the user's counts and displacements: elements,
                                                                     // by rank
    std::byte *send, *receive;                                       // the buffers
    uint64_t send_room, receive_room;                                // elements that fit in the buffers
    uint64_t zero_copy_least;                                        // bytes from which the receiver reads a message in
                                                                     // place
    uint32_t element;                                                // bytes
    uint32_t mark;
    const std::byte* remote_sends[ranks_max];  // where the peer's kernels can read `send`; null: nowhere
};

// KernelFailure::counts; all values in elements.
struct CountReport {
    enum Fault : uint8_t {
        outside,  // a count, its displacement, and the room in the buffer
        own,      // the counts that a rank sends to and receives from itself
        overlap,  // two received parts: the first one's count, and the distance to the other's begin
        sent,     // a sent part overlaps a received one
    } fault;
    int32_t other_rank;
    uint64_t count, other, room;
};
// Stored beside the FailureReport of a message kernel, before its `failure`.
struct MessageReport {
    bool valid;
    bool outgoing;
    bool begun;  // a part has moved
    uint64_t bytes, other_bytes;
    CountReport counts;
};
// The ranks that a block has been waiting for, in host memory; one writer.
struct BlockWait {
    alignas(16) RankBits ranks;  // none: the block makes progress, or has ended
    uint64_t polls;              // polls of all its p2p channels since the wait began
};

inline constexpr int message_items_within = 64;    // in the arguments themselves
inline constexpr int message_items_max = 8 << 10;  // of one kernel

struct MessageArguments {
    int32_t rank, ranks;
    uint32_t launch;  // as in KernelArguments
    int32_t queue_count, item_count;
    enum KernelAction : int32_t {
        move,
        note,   // writes `items` into the table, from index `noted` on
        count,  // writes the messages of `counts` into the table, one per queue
    } does;
    int32_t noted;
    bool counted;  // move: the previous kernel has written the items
    uint64_t timeout_ns;
    const uint32_t* abort;
    FailureReport* report;
    MessageReport* message_report;
    BlockWait* block_waits;  // by block
    RankFlags* own;
    MessageItem* table;  // this rank's device memory
    bool in_table;       // the items are in the table; else in `items`
    uint32_t* ended;     // as in KernelArguments
    struct RemotePeers {
        RankBits ranks;
        std::byte *sent_slots, *received_slots;  // remote_message_slots()
    } remote;                                    // peers that are reached over the network
    std::byte* areas[ranks_max];                 // of a remote peer: its RemoteMessageArea
    MessageQueue queues[message_queues_max];
    union {
        MessageItem items[message_items_within];
        MessageCounts counts;
    };
};
static_assert(sizeof(MessageArguments) <= 4096, "passed by value");

inline constexpr const char* message_entry_point = "weft_messages";

}  // namespace weft::internal::cuda
