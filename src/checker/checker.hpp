// checker.hpp: proves whole collectives: all ranks' schedules, one operation after the other over one flag block and one set
// of connections, simulated symbolically. One simulated order proves all, for nothing that becomes possible ever
// becomes impossible again but by the one block that does it; races are judged by happens-before, not by that order.
//
// Proved: every chunk of every output ends complete (each rank's contribution exactly once), finished once, and by the
// same expression on all ranks; nothing blocks for ever with the slots that a connection has; every send meets its
// receive; no two accesses to a chunk, one of them a write, are unordered, be it in a user's buffer (which belongs to
// its user before the call and after it) or in a slot of the flag block, whatever tile or operation used that before; no
// word of the flag block is overwritten that somebody may still wait for.
//
// Order between ranks is taken from posts and waits alone: messages of connections order more, which can only make the
// checker too strict, where a schedule guards memory of the flag block by messages. Sums of contributions are compared by
// 64-bit hashes with weights of rank and chunk.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "src/schedule/expand.hpp"
#include "src/schedule/schedule.hpp"

namespace weft::internal {

// One collective call, as all ranks make it.
struct CheckedOperation {
    std::function<Schedule(int rank)> schedule;  // elementary: expand() first
    int runs = 1;                                // of the schedule, one after the other: the message's tiles
    DirectMode mode;                             // whom `either` reads in place
    std::vector<bool> in_place = {};             // by rank; empty: nobody
    size_t tile_bytes = 0;                       // tells which chunks are empty, and skipped; 0: none is
    size_t last_tile_bytes = 0;                  // of the last tile; 0: as the others
};

// The name of a step in messages, for files that number steps in another way than their schedules do.
using StepName = std::function<std::string(int rank, int block, int step)>;

struct CheckOptions {
    int flag_slots = 4;
    int fifo_depth = 0;       // slots of every connection; 0: as many as the schedule asks for
    bool any_order = false;   // ranks may sum in different orders
    StepName step_name = {};  // none: "rank 1, block 2, step 3"
};

// What a proof found besides; of several proofs, of all.
struct Proved {
    uint64_t steps = 0;  // instructions simulated
    // Every result is made at once of the ranks' own contributions, in rank order: rounded once, and the same whoever
    // makes it of what schedule and size.
    bool in_rank_order = true;
    // Ranks sum in different orders, each of them right: an objection, unless any order will do.
    bool orders_differ = false;
};

// Reentrant. weftInvalidArgument: a sentence naming operation, rank, block, step, instruction and chunk.
Status check(int ranks, std::span<const CheckedOperation> operations, const CheckOptions& options = {},
             Proved* proved = nullptr);

// A set of schedules as from a file, one for each rank, in any order: proves two operations of two runs each (over a
// flag block, or where blocks may be runs apart, as many as use all slots again), out of place, in place and mixed, each with
// no, most and some chunks empty. Fused instructions are proved in every mode and, a two-shot alone, pipelined, too; for
// elementary ones `mode` says whom `either` reads in place.
Status check_set(std::span<const Schedule> schedules, const DirectMode& mode = {}, const CheckOptions& options = {},
                 Proved* proved = nullptr);

}  // namespace weft::internal
