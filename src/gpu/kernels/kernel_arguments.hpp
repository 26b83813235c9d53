// kernel_arguments.hpp: what the host hands to a kernel by value, and the words in device and host memory that a kernel
// reads and writes. Plain data, laid out alike by the host's compiler and the device's.
#pragma once
#include <cstddef>
#include <cstdint>

#include "src/schedule/instruction.hpp"
#include "weft/types.h"

namespace weft::internal::cuda {

inline constexpr int ranks_max = 16;         // whose kernels know each other's words and memory
inline constexpr int domain_ranks_max = 64;  // that have device memory in common, or connections to it
inline constexpr int blocks_max = 64;        // of one kernel

// What a device, its driver and the ranks of a domain can do; a kernel's row in kernel.def says what it needs of that.
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

// A rank's words that its own and its peers' kernels share. Zero when the communicator begins; in this rank's device
// memory, mapped by its peers. Written by peers: `barrier` and what is offered. The rest is the rank's own.
struct RankFlags {
    // By block and rank: the furthest that block of that rank has come.
    uint64_t barrier[blocks_max][ranks_max];
    // By block and rank: buffers of that rank that this rank's kernel may use in place, before the block's barrier of
    // entry. Null: it may not.
    const std::byte* exported_inputs[blocks_max][ranks_max];
    std::byte* exported_outputs[blocks_max][ranks_max];
    // By block: the epoch after the last operation. On the device, so that a captured graph can be replayed.
    uint32_t epoch[blocks_max];
    uint32_t failed;    // launch << 8 | KernelFailure, the first; other blocks then leave
    uint32_t finished;  // blocks of a step machine that have ended
    uint64_t
        steps[blocks_max];  // iterations that a step machine's block has behind it; others of the rank wait for them
};

enum class KernelFailure : uint32_t { none, aborted, timeout, mismatch, counts };
enum class KernelWait : uint32_t {
    nothing,
    entry,    // for a rank to enter the operation, or a tile of it
    exit,     // for a rank to have done its share of a tile
    packet,   // for data of a rank
    message,  // for a filled slot of the connection from a rank
    credit,   // for a slot of the connection to a rank
    step,     // for another block of this rank
    signal,   // for signals of a rank
};

// Written once by the first block that fails; `failure` last, released. In host memory that the device reaches.
struct FailureReport {
    KernelFailure failure;
    KernelWait waiting;
    int32_t rank;  // who reports
    int32_t peer;  // whom it waits for, or whose operation is another; -1: nobody
    uint32_t block;
    uint32_t epoch;
    uint32_t fingerprint;        // of this rank's operation
    uint32_t other_fingerprint;  // mismatch: of the peer's
    uint64_t tile;
    uint64_t timeout_ns;  // of the kernel
};

// Packets (packets.hpp): a line carries 8 bytes of data and the epoch twice, so that each half says whether it is
// there.
struct alignas(16) PacketLine {
    uint32_t data0, epoch0, data1, epoch1;
};
// Room of a rank: lines by parity of the epoch, block, sending rank. Zero when the communicator begins.
inline constexpr int lines_per_sender = 512;
inline constexpr int packet_blocks = 32;  // the most that a kernel of packets has
constexpr size_t packet_memory_bytes(int ranks) {
    return sizeof(PacketLine) * 2 * packet_blocks * lines_per_sender * size_t(ranks);
}
constexpr PacketLine* packet_lines(PacketLine* memory, int ranks, uint32_t parity, int block, int sender) {
    return memory +
           ((size_t(parity) * packet_blocks + size_t(block)) * size_t(ranks) + size_t(sender)) * lines_per_sender;
}

// One direction between two ranks. The slots and `filled` lie in the receiver's memory, `consumed` in the sender's;
// each end counts by itself. Slot i holds message i modulo `depth`. If the peer is on another host all that lies in
// this rank's pinned host memory, where the proxy (proxy.hpp) stands for the peer.
struct ConnectionEnd {
    std::byte* slots;     // receiver's memory
    uint64_t* filled;     // by slot: barrier_word(number of the message, from 1; fingerprint); receiver's memory
    uint32_t* consumed;   // messages that the receiver is done with; sender's memory
    uint32_t* count;      // messages that this end has sent or received; this rank's memory
    uint64_t slot_bytes;  // from one to the next: a multiple of 16
    uint32_t depth;
    int32_t peer;                 // -1: there is no connection
    uint64_t* lengths = nullptr;  // sending to another host: by slot, bytes of the message, before `filled`
    uint32_t* wanted = nullptr;   // receiving from another host: the number of the message that is waited for
};
struct StepBlock {
    int32_t first, count;  // of the program's instructions
    ConnectionEnd source, target;
};

// Of a message for each block of packets, in one round: half of its lines.
inline constexpr size_t packet_bytes_a_block = 2 << 10;

struct MessageItem;

struct KernelArguments {
    int32_t rank, ranks;
    uint32_t launch;  // tells a kernel from those that this rank launched before and after it
    uint32_t fingerprint;
    weftRedOp_t op;  // weftSum for averages and scaled sums too
    // See Averaging in base/arithmetic.hpp. Shares that are rounded each rank makes where it reads its input.
    uint32_t average_of, share_of;
    bool rounds_shares;
    bool scaled;      // inputs count multiplied by the scalar
    uint64_t scalar;  // its bits; not used if there is a pointer
    const void* scalar_pointer;
    // The rank's buffers; what it does not hold is not touched. Of steps: where the whole would begin.
    const std::byte* send;
    std::byte* receive;
    uint64_t bytes;  // of a part
    // Fused bodies: who gives to whom. The rank that alone gives or takes; -1: all do.
    int32_t source_rank = -1, destination_rank = -1;
    // From what a rank gives to one taker to what it gives to the next, and from one giver's to the next one's where it
    // takes: `bytes`, or 0 where all get the same, or what all give becomes one.
    uint64_t send_stride, receive_stride;
    bool reduces = true;    // what is given is combined, else each giver's has a place of its own
    uint64_t tile_bytes;    // of a part; steps: of the plan; peer bodies: the most in half of the staging memory, or 0
    uint64_t timeout_ns;    // of one wait; 0: never
    const uint32_t* abort;  // not 0: leave; host memory
    // By block: the last launch that it has come to the end of, well or not; pinned host memory. Null: nobody asks.
    uint32_t* ended;
    FailureReport* report;
    RankFlags* own;                      // this rank's
    bool domain;                         // peers' words are mapped; else ranks meet over connections alone
    RankFlags* flags[ranks_max];         // by rank, with those of this one
    PacketLine* packets[ranks_max];      // by rank
    const std::byte* inputs[ranks_max];  // peer bodies: the message or staging memory of each; local_reduce: sources
    std::byte* outputs[ranks_max];       // peer bodies: where each wants the result, or its staging memory
    // Peer bodies with staging memory: the ranks tell each other where their `send` and `receive` can be used where
    // they lie, and need no staging if all can. The same on all ranks; not for scaled sums.
    bool exports_buffers;
    // A rank's own: where kernels of each rank have its `send` and `receive`; all null: they are not to be used.
    const std::byte* exported_send[ranks_max];
    std::byte* exported_receive[ranks_max];
    // steps: the program, in device memory
    const Instruction* instructions;
    const StepBlock* step_blocks;
    int32_t step_block_count;
    int32_t chunks;      // of the schedule
    int32_t parts = 1;   // of the whole
    int32_t tiles;       // of one run of the schedule
    std::byte* scratch;  // Buffer::scratch: device memory of the rank's own
    bool dependent;      // some instruction waits for another block
    // packet_one_shot of an all-reduce: batched ones behind it, each with the blocks, epochs and fingerprint that it has
    // as a kernel of its own, so peers need not know. In device memory: `data` receives, `other` is sent, `mark` is the
    // fingerprint.
    const MessageItem* batched = nullptr;
    int32_t batched_count = 0;
};
static_assert(sizeof(KernelArguments) <= 4096, "passed by value");

}  // namespace weft::internal::cuda
