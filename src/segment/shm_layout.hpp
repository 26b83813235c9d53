// shm_layout.hpp: layouts in shared memory that both ends of a transport share: flag words, flag lines, slot headers.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "src/segment/segment.hpp"

namespace weft::internal {

inline constexpr size_t line_bytes = 64;
constexpr size_t round_to_line(size_t bytes) { return (bytes + line_bytes - 1) / line_bytes * line_bytes; }
// Rule 3 of docs/design/shared-memory-protocol.md; a power of two.
inline constexpr int flag_slots = SegmentLayout::flag_lines;
inline constexpr size_t inline_bytes = 48;  // payload of a flag line

// tile + 1, so that the zeroed word of a new flag block is never the word of tile 0.
inline constexpr uint64_t flag_word(uint32_t tile, uint32_t fingerprint) {
    return uint64_t(tile + 1) << 32 | fingerprint;
}

// One rank's line for one tile. Only its owner writes it. Readers acquire `arrival` or `departure`, which pairs with
// the owner's release store.
struct alignas(line_bytes) FlagLine {
    std::atomic<uint64_t> arrival;
    std::atomic<uint64_t> departure;
    std::byte payload[inline_bytes];
};
static_assert(sizeof(FlagLine) == line_bytes);

// The results of an agreement round; they are final.
enum Agreement : uint32_t { arenas_mapped = 1, cma_probed = 2 };

// The payload of a two-shot's first arrival, and of a one-shot's if the one-shot is long enough: the addresses at which
// peers may access this rank's buffers. 0: not shared.
struct BufferAddresses {
    uint64_t send_address;
    uint64_t receive_address;
    uint64_t own_send_address;  // in this rank's own process, for CMA copies
    uint64_t own_receive_address;
    uint32_t answer;  // in an agreement round: bits of Agreement that this rank can do
    uint32_t unused;
};
static_assert(sizeof(BufferAddresses) <= inline_bytes);

// Type and location of one message. The sender writes it before it publishes the message. Two headers fit a cache line:
// if the sender is ahead, one line transfer carries two messages.
struct alignas(line_bytes / 2) SlotHeader {
    enum Where : uint8_t { among_data = 0xfe, zero_copy = 0xff };
    // Message number on this connection, from 1 (32 bits), and the operation's fingerprint. Release by the sender,
    // acquire by the receiver.
    std::atomic<uint64_t> published;
    uint64_t told;  // sequence number of the call << 8 | a Where, or the number of bytes in `inline_data`
    union {
        std::byte inline_data[16];  // short messages are read here: one line moves between the cores, not two
        struct {
            uint64_t bytes;
            uint64_t address;  // of zero-copy bytes, in the sender's process
        } longer;
    };
};
static_assert(2 * sizeof(SlotHeader) == line_bytes);

}  // namespace weft::internal
