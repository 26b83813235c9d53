// shm_layout.hpp: what both ends of a transport lay out alike in shared memory: entry words, flag block lines, slot headers.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "src/segment/segment.hpp"

namespace weft::internal {

inline constexpr size_t line_bytes = 64;
constexpr size_t round_to_line(size_t bytes) { return (bytes + line_bytes - 1) / line_bytes * line_bytes; }
inline constexpr int flag_slots =
    SegmentLayout::flag_lines;              // docs/design/shared-memory-protocol.md, rule 3; a power of two
inline constexpr size_t inline_bytes = 48;  // payload of a flag block line

// tile + 1, so that the zeroed word of a fresh flag block is never that of tile 0.
inline constexpr uint64_t flag_word(uint32_t tile, uint32_t fingerprint) {
    return uint64_t(tile + 1) << 32 | fingerprint;
}

// One rank's line for one tile. Written by its owner only; readers acquire `arrival` or `departure`, pairs with the owner's
// release.
struct alignas(line_bytes) FlagLine {
    std::atomic<uint64_t> arrival;
    std::atomic<uint64_t> departure;
    std::byte payload[inline_bytes];
};
static_assert(sizeof(FlagLine) == line_bytes);

// What an agreement round settles for good.
enum Agreement : uint32_t { arenas_mapped = 1, cma_probed = 2 };

// What the first entry of a two-shot, or of a one-shot that is long enough, offers: where peers may read and write this
// rank's buffers; 0: not offered.
struct BufferAddresses {
    uint64_t send_address;
    uint64_t receive_address;
    uint64_t own_send_address;  // in its own process, for copies by the kernel
    uint64_t own_receive_address;
    uint32_t answer;  // in an agreement round: bits of Agreement that this rank can do
    uint32_t unused;
};
static_assert(sizeof(BufferAddresses) <= inline_bytes);

// Of every message on a connection: what it is and where it lies. Written before it is published. Two to a line: where the
// sender is ahead, a line goes from core to core for two messages.
struct alignas(line_bytes / 2) SlotHeader {
    enum Where : uint8_t { among_data = 0xfe, zero_copy = 0xff };
    // The message's number on this connection, from 1, of which 32 bits count, and the operation's fingerprint; release by
    // the sender, acquire by the receiver.
    std::atomic<uint64_t> published;
    uint64_t told;  // the sequence number of the call << 8 | a Where, or so many bytes in `inline_data`
    union {
        std::byte
            inline_data[16];  // a message that finds room here is read here: one line goes from core to core, not two
        struct {
            uint64_t bytes;
            uint64_t address;  // of lent bytes, in the sender's process
        } longer;
    };
};
static_assert(2 * sizeof(SlotHeader) == line_bytes);

}  // namespace weft::internal
