// plan.hpp: a schedule bound to a size, connections and memory: everything that does not depend on the call's buffers.
// The planner makes it once per key and caches it. Immutable once made.
#pragma once
#include <cstddef>
#include <vector>

#include "src/base/arithmetic.hpp"
#include "src/kernels/cpu_kernels.hpp"
#include "src/kernels/slot_stores.hpp"
#include "src/peer_access/cma.hpp"
#include "src/peer_access/direct_access.hpp"
#include "src/peer_access/remote_address.hpp"
#include "src/schedule/early_receives.hpp"
#include "src/schedule/schedule.hpp"
#include "src/segment/flag_block.hpp"
#include "transports/transport.hpp"
#include "transports/user_memory.hpp"

namespace weft::internal {

// The connections of one block; null where the block has none.
struct BlockEnds {
    Receiver* source = nullptr;
    Sender* target = nullptr;
    bool source_is_remote = false, target_is_remote = false;  // over a network: data goes past the slots where it can
    // Zero-copy messages within a process are read in place; others by CMA or in a mapped arena.
    bool source_in_process = false, target_in_process = false;
    const Transport *source_transport = nullptr, *target_transport = nullptr;
    bool source_offers = false;         // registered memory can be offered to its messages
    bool target_posts = false;          // it posts registered memory without a copy
    CanRead target_reads = {};          // how the target reads zero-copy messages. Valid once connected
    std::byte* source_arena = nullptr;  // the source's arena, mapped here
};

// By block and instruction: whether no later step writes the data that it sends (schedule/stable_sends.hpp).
// Empty: some step may write any of them.
using StableSends = std::vector<std::vector<bool>>;

// Messages over a network that are sent from the caller's memory.
struct PostPlan {
    const StableSends* stable_sends = nullptr;
    const UserMemory* memory = nullptr;
    // Below, a copy takes less time than the acknowledgement, for which the operation waits at its end.
    static constexpr size_t least = 32 << 10;
};

// Messages over a network that come straight to the caller's memory, if it was offered before they were posted.
struct OfferPlan {
    const EarlyReceives* early = nullptr;
    const UserMemory* memory = nullptr;  // null: there is no such source
    uint64_t depth = 0;                  // messages of a connection that may be offered ahead
};

// Messages whose slot holds the address of the data (docs/design/connections.md, Zero-copy).
struct ZeroCopyPlan {
    StableSends stable_sends;  // empty: no send may be zero-copy
    size_t least = 0;          // bytes of the smallest zero-copy message
    bool by_cma = true;        // zero-copy also if the receiver needs CMA
    const Cma* cma = nullptr;  // reads zero-copy messages of this host
    PostPlan posts;
    OfferPlan offers;
};

// The flag block and the rotation of its slots for a tile of all parts; our slots have memory for all of it.
struct FlagSlots {
    FlagBlock* block = nullptr;
    FlagBlock::Rotation rotation;
};

// For two-shot, and for a one-shot whose buffers may be exported.
struct TwoShotPlan {
    bool pipelined = false;        // one loop body stages, reduces and copies results of different tiles
    bool exports_buffers = false;  // the first arrival says which buffers peers can reach; an agreed fact
    DirectAccess* direct_access = nullptr;
    Cma* cma = nullptr;  // CMA copies, once all ranks have agreed that it works; null: not used
};

struct Plan {
    Operation operation;
    uint32_t operation_fingerprint = 0;
    const Schedule* schedule = nullptr;
    std::vector<BlockEnds> ends;  // by block
    ZeroCopyPlan zero_copy;
    FlagSlots flags;
    TwoShotPlan two_shot;
    const CpuKernels* cpu_kernels = nullptr;
    // By rank: for the slots that it reads; our own entry: for the flag block.
    SlotStores* slot_stores = nullptr;
    size_t tile_bytes = 0;      // of each part; a multiple of 64 unless there is one tile
    uint64_t tiles = 1;         // at least 1: an empty message still synchronizes all ranks
    bool networked = false;     // some end is remote
    bool in_one_place = false;  // each result is computed from all contributions at once: Sums::in_rank_order
    // If the schedule uses Buffer::scratch: the rank's, of scratch_bytes(). One operation uses it at a time.
    std::vector<std::byte>* scratch = nullptr;
    Stores stores = Stores::ordinary;

    // Bytes per CMA copy: a block from each other rank stays in the second-level cache until it is reduced.
    size_t cma_block_bytes() const {
        return std::max<size_t>(32 << 10, (256 << 10) / size_t(std::max(1, schedule->ranks - 1)) / 64 * 64);
    }
    size_t bytes() const { return operation.bytes(); }  // of a part
    // Of a part in this tile.
    size_t tile_length(uint64_t tile) const { return weft::internal::tile_length(bytes(), tile_bytes, tile); }
    weftDataType_t type() const { return weftDataType_t(operation.type); }
    // Pre-multiplied sums reduce as sums; their scaling happens where a rank reads its own input.
    weftRedOp_t op() const { return operation.op < weftNumOps ? weftRedOp_t(operation.op) : weftSum; }
    bool scaled() const { return operation.scales(); }
    // The factors of weftAvg.
    Averaging average() const {
        return op() == weftAvg ? averaging(type(), uint32_t(schedule->ranks), in_one_place) : Averaging{};
    }
    // Whether a rank's input is multiplied where the rank reads it.
    bool changes_input() const { return scaled() || average().rounds_shares; }
};

}  // namespace weft::internal
