// rank_row.hpp: the row of each rank in the segment: a struct of small structs, each declared by the room that writes it.
#pragma once
#include <atomic>
#include <cstdint>

#include "src/base/cpu.hpp"
#include "src/comm/held_calls_row.hpp"
#include "src/control/remote_row.hpp"
#include "src/gpu/domain/gpu_row.hpp"
#include "src/rendezvous/split_row.hpp"
#include "src/rma/window_row.hpp"
#include "src/segment/position.hpp"
#include "src/segment/returned_error.hpp"

namespace weft::internal {

// dead: its leader reported its death, or its whole host is lost.
enum class RankState : uint32_t { absent, joined, left, dead };

// Zero for a rank of another host until its leader has reported it.
struct alignas(64) RankRow {
    // Written once by the rank, when it joins.
    std::atomic<RankState> state;
    int32_t pid;
    uint64_t pid_namespace;  // of that process; equal to ours if its pid is valid here
    uint64_t process;        // random token, equal for the ranks of one process
    // address of that token in its memory: a process that can read the token there can read all of its memory
    uint64_t token_address;
    int32_t arena_fd;  // descriptor number in that process; -1: none (see arena.hpp)
    uint64_t arena_inode;
    CpuSet cpus;     // that it may run on
    CpuQuota quota;  // of processor time
    GpuRow gpu;
    // The rank writes this line at every call.
    Position position;
    // The rank writes this line while it waits.
    alignas(64) std::atomic<int32_t> cpu;  // one more than the processor's number; 0: unknown
    std::atomic<uint32_t> sleeping;        // futex word: 1 while it sleeps or is about to; pairs with Segment::wake()
    std::atomic<uint64_t> gave_up;  // the call that it left early; it accesses no peer's buffers any more (release)
    WindowRow window;
    std::atomic<int64_t> in_function_us;  // since when it is in a user's reduction function; 0: it is not
    // The start of a long wait outside of collectives; 0: none. `partner_wait` is its PartnerWait.
    std::atomic<int64_t> partner_wait_us;
    std::atomic<uint64_t> partner_wait;
    alignas(64) HeldCallsRow held;
    // Number of out-of-band entries that it has put.
    alignas(64) std::atomic<uint32_t> oob_entries;
    RemoteRow remote;  // if it is on another host
    SplitRow split;
    // Written before any communicator of its process returns an error to the caller.
    ReturnedError returned_error;
};

}  // namespace weft::internal
