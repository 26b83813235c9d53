// kernel_arguments.hpp: the arguments that the host passes to a kernel by value, and the flags in device and host
// memory that a kernel uses. Plain data with the same layout in the host's compiler and the device's.
#pragma once
#include <cstddef>
#include <cstdint>

#include "src/schedule/instruction.hpp"
#include "weft/types.h"

namespace weft::internal::cuda {

// Ranks that share device memory or have connections to it. The tables by rank fill the 4 KiB of arguments that every
// driver passes. Kernels index the constant bank by rank without a copy, so one kernel serves few ranks and many.
inline constexpr int ranks_max = 72;
inline constexpr int flag_row_ranks = 80;  // ranks_max, rounded up to whole cache lines of flags
inline constexpr int few_ranks_max = 16;   // limits and memory are scaled for more ranks than published results have
inline constexpr int blocks_max = 64;      // of one kernel
// Without a setting. A block takes a multiprocessor, so kernels of four communicators find room on 132 of them.
// Published for H100: copies by registers reach 323 GB/s with 24 multiprocessors, and 343 with all.
inline constexpr int blocks_usual = 32;

// Capabilities of a device, its driver and the ranks of a domain. A kernel's row in kernel.def lists the ones that it
// needs.
enum class CapabilityIndex : uint32_t {
#define WEFT_CAPABILITY(name, what) name,
#include "src/gpu/kernels/capability.def"
#undef WEFT_CAPABILITY
};
enum Capability : uint32_t {
#define WEFT_CAPABILITY(name, what) name = 1u << uint32_t(CapabilityIndex::name),
#include "src/gpu/kernels/capability.def"
#undef WEFT_CAPABILITY
};

// A barrier word: epoch << 32 | fingerprint of the operation. The epoch counts the block's barriers and rounds.
constexpr uint64_t barrier_word(uint32_t epoch, uint32_t fingerprint) { return uint64_t(epoch) << 32 | fingerprint; }
constexpr uint32_t epoch_of(uint64_t word) { return uint32_t(word >> 32); }

// Packets (packets/packet_line.hpp): a line carries 8 bytes of data and the epoch twice, so that each half proves its
// arrival. Full lines carry 16 bytes of data: `epoch0` and `epoch1` are data, too.
struct alignas(16) PacketLine {
    uint32_t data0, epoch0, data1, epoch1;
};

// A rank's flags, shared by its kernels and its peers' kernels. In the rank's device memory, mapped by its peers; zero
// when the communicator begins. Peers write only `barrier` and the exported addresses.
struct RankFlags {
    // By block and rank: the latest epoch that this block of that rank has announced.
    uint64_t barrier[blocks_max][flag_row_ranks];
    // By block and rank: the addresses of that rank's input and output, as this rank's kernel needs them. That rank writes
    // them with the epoch of its entry barrier. 0: the kernel must use staging memory.
    PacketLine exports[blocks_max][ranks_max][2];
    // The same addresses after they have arrived. Written by the block.
    const std::byte* exported_inputs[blocks_max][ranks_max];
    std::byte* exported_outputs[blocks_max][ranks_max];
    // By block: the epoch after the last operation. It lives on the device so that a captured graph can be replayed.
    uint32_t epoch[blocks_max];
    uint32_t failed;    // launch << 8 | KernelFailure of the first failure; the other blocks then leave
    uint32_t finished;  // blocks of the current kernel that have ended, if it counts them
    // By rank: the latest departure that this rank has announced: barrier_word(its number, fingerprint).
    uint64_t departed[ranks_max];
    uint32_t departures;         // of this rank
    uint64_t steps[blocks_max];  // iterations that the step machine's block has completed; other blocks wait for them
};

enum class KernelFailure : uint32_t { none, aborted, timeout, mismatch, counts };
enum class KernelWait : uint32_t {
    nothing,
    entry,    // for a rank to enter the operation or a tile
    exit,     // for a rank to finish its share of a tile
    packet,   // for a rank's packets
    message,  // for a filled slot of the connection from a rank
    credit,   // for a free slot of the connection to a rank
    step,     // for another block of this rank
    signal,   // for a rank's signals
    ready,    // by a stream without a kernel: for a rank's data
    done,     // likewise: for a rank to have read this rank's data
};

// Written once by the first block that fails; `failure` last, with release. In host memory that the device can access.
struct FailureReport {
    KernelFailure failure;
    KernelWait waiting;
    int32_t rank;  // the reporting rank
    int32_t peer;  // the late peer, or the peer with a mismatched operation; -1: none
    uint32_t block;
    uint32_t epoch;
    uint32_t fingerprint;        // of this rank's operation
    uint32_t other_fingerprint;  // mismatch: of the peer's operation
    uint64_t tile;
    uint64_t timeout_ns;  // of the kernel
};

// A rank's packet memory: lines by parity of the epoch, block and sending rank. Then come the full lines. Zero when the
// communicator begins. Many ranks have many lines together: 64 of each keep those with epochs below 5 MiB.
constexpr int lines_per_sender(int ranks) { return ranks <= few_ranks_max ? 512 : 64; }
inline constexpr int packet_blocks = 32;  // the most blocks of a packet kernel
constexpr uint32_t packet_lines(int ranks) { return 2u * packet_blocks * uint32_t(lines_per_sender(ranks) * ranks); }
// Full lines by buffer, block, whether they carry results, and sending rank. The blocks together carry up to 1 MiB in a round.
// Four buffers, because three rounds of a long message are on their way while peers clear another one.
inline constexpr uint32_t full_line_buffers = 4;
inline constexpr uint32_t full_lines_of_block = 2048;  // contributions, and as many results
// In whole lines of the cache.
constexpr int full_lines_per_sender(int ranks) { return int(full_lines_of_block / uint32_t(ranks) / 8 * 8); }
// The index in the packet memory of any rank.
constexpr uint32_t full_line_index(int ranks, uint32_t buffer, int block, bool result, int sender, int line) {
    const uint32_t area = (buffer * packet_blocks + uint32_t(block)) * 2 + result;
    return packet_lines(ranks) + area * full_lines_of_block + uint32_t(sender * full_lines_per_sender(ranks) + line);
}
constexpr size_t packet_memory_bytes(int ranks) {
    return sizeof(PacketLine) *
           (packet_lines(ranks) + full_line_buffers * packet_blocks * 2 * size_t(full_lines_of_block));
}
// The lines of all senders take turns in groups, so the lines of consecutive senders have a constant distance, and a kernel
// loads eight of them from one address register. A group is two warps' lines, which a link carries together.
inline constexpr int packet_group = 64;
static_assert(lines_per_sender(1) % packet_group == 0 && lines_per_sender(ranks_max) % packet_group == 0);
// The index of a sender's line in the packet memory of any rank. In 32 bits: there are fewer than 2^20 lines.
constexpr uint32_t packet_index(int ranks, uint32_t parity, int block, int sender, int line) {
    const uint32_t groups = uint32_t(lines_per_sender(ranks) / packet_group);
    const uint32_t group = (parity * packet_blocks + uint32_t(block)) * groups + uint32_t(line) / packet_group;
    return (group * uint32_t(ranks) + uint32_t(sender)) * packet_group + uint32_t(line) % packet_group;
}

// One direction between two ranks. The slots and `filled` lie in the receiver's memory, `consumed` in the sender's.
// Each end keeps its own count. Message i uses slot i modulo `depth`.
// If the peer is on another host, all of this lies in this rank's pinned host memory. The proxy (proxy.hpp) then acts
// for the peer.
struct ConnectionEnd {
    std::byte* slots;     // receiver's memory
    uint64_t* filled;     // by slot: barrier_word(number of the message, from 1; fingerprint); receiver's memory
    uint32_t* consumed;   // messages that the receiver has consumed; sender's memory
    uint32_t* count;      // messages that this end has sent or received; this rank's memory
    uint64_t slot_bytes;  // distance between slots: a multiple of 16
    uint32_t depth;
    int32_t peer;                 // -1: no connection
    uint64_t* lengths = nullptr;  // sending to another host: by slot, the message's bytes, written before `filled`
    uint32_t* wanted = nullptr;   // receiving from another host: the number of the awaited message
};
struct StepBlock {
    int32_t first, count;  // of the program's instructions
    ConnectionEnd source, target;
};

// The bytes of a message per block of one-shot packets and round: half of the block's lines.
inline constexpr size_t packet_bytes_a_block = 2 << 10;

struct MessageItem;

struct KernelArguments {
    int32_t rank, ranks;
    uint32_t launch;  // distinguishes this kernel from this rank's other launches
    uint32_t fingerprint;
    weftRedOp_t op;                  // weftSum for averages and scaled sums too
    bool unsigned_elements = false;  // of kernels for integers: they are unsigned
    // See Averaging in base/arithmetic.hpp. If shares are rounded, each rank rounds them where it reads its input.
    // average_of: with the bit of_unsigned if elements are. A register of its own would be spilled in sums.
    uint32_t average_of, share_of;
    static constexpr uint32_t of_unsigned = 1u << 31;
    bool rounds_shares;
    bool scaled;      // inputs are multiplied by the scalar
    uint64_t scalar;  // its bits; unused if scalar_pointer is set
    const void* scalar_pointer;
    // The rank's buffers. A buffer that the rank does not have is not accessed. Steps: where the full buffer would
    // begin.
    const std::byte* send;
    std::byte* receive;
    uint64_t bytes;  // of a part
    // Fused bodies: the only source or destination rank; -1: all ranks.
    int32_t source_rank = -1, destination_rank = -1;
    // The distance between the data for consecutive destinations, and between the data from consecutive sources. 0 if
    // all destinations get the same data, or if the sources' data are reduced.
    uint64_t send_stride, receive_stride;
    bool reduces = true;    // false: each source's data has its own place in the result
    uint64_t tile_bytes;    // of a part; steps: of the plan; peer bodies: the most in half of the staging memory, or 0
    uint64_t timeout_ns;    // of one wait; 0: never
    const uint32_t* abort;  // nonzero: the kernel leaves; host memory
    // By block: the last launch that the block has ended; pinned host memory. Null: not needed. Bodies but steps leave it
    // out after a failure.
    uint32_t* ended;
    FailureReport* report;
    RankFlags* own;                      // this rank's
    bool domain;                         // peers' flags are mapped; otherwise ranks use connections alone
    RankFlags* flags[ranks_max];         // by rank, this rank included
    PacketLine* packets[ranks_max];      // by rank
    const std::byte* inputs[ranks_max];  // peer bodies: each rank's message or staging memory; local_reduce: the
                                         // sources
    std::byte* outputs[ranks_max];       // peer bodies: each rank's result buffer or staging memory
    // Peer bodies with staging memory: the ranks exchange the addresses of `send` and `receive`. If all can be used in
    // place, no staging is needed. Equal on all ranks; false for scaled sums.
    bool exports_buffers;
    // This rank's: where each rank's kernels have mapped its `send` and `receive`. All null: peers must not use them.
    const std::byte* exported_send[ranks_max];
    std::byte* exported_receive[ranks_max];
    // multicast: `send` and `receive` in windows behind the switch, for multimem instructions. Tokens of these places are
    // exported instead of addresses. If all ranks have the same, no staging is needed.
    const std::byte* switched_send;
    std::byte* switched_receive;
    // Steps: the program, in device memory.
    const Instruction* instructions;
    const StepBlock* step_blocks;
    int32_t step_block_count;
    int32_t chunks;     // of the schedule
    int32_t parts = 1;  // of the full buffer
    int32_t tiles;      // of one run of the schedule
    // Buffer::scratch: this rank's device memory. multicast: the multicast object; this rank's staging memory in it is
    // outputs[rank].
    std::byte* scratch;
    bool dependent;  // some instruction waits for another block
    // packet_one_shot of an all-reduce: further calls batched into this kernel. Each keeps the blocks, epochs and
    // fingerprint of a kernel of its own, so peers need not know about the batch.
    // In device memory: `data` receives, `other` is sent, `mark` is the fingerprint.
    const MessageItem* batched = nullptr;
    int32_t batched_count = 0;
};
static_assert(sizeof(KernelArguments) <= 4096, "passed by value");

}  // namespace weft::internal::cuda
