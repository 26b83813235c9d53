// checker.hpp: proves the schedules of all ranks together. It simulates them symbolically, one operation after the
// other, over one flag block and one set of connections. One simulated order is enough: a step that can run stays able
// to run until its own block runs it. Races are found by happens-before, which does not depend on that order.
//
// The proof shows the following.
// * Every chunk of every output ends complete, with the contribution of each rank exactly once.
// * It is finished once, and by the same expression on all ranks.
// * Nothing deadlocks with the slots of a connection, and every send meets its receive.
// * Two accesses to a chunk are ordered if one of them writes.
// * A user's buffer belongs to the user before the call and after it.
// * A slot of the flag block is checked against all earlier tiles and operations.
// * No flag word is overwritten while a rank may still wait for it.
//
// Only posts and waits order ranks. Messages order more steps, so the checker can be too strict if messages guard
// memory of the flag block. Sums of contributions are compared by 64-bit hashes with weights of rank and chunk.
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
    std::function<Schedule(int rank)> schedule;  // without fused instructions: expand() first
    int runs = 1;                                // runs of the schedule one after the other: the tiles of the message
    DirectMode mode;                             // the ranks whose buffers `either` reads in place
    std::vector<bool> in_place = {};             // by rank; empty: no rank
    size_t tile_bytes = 0;                       // determines which chunks are empty and skipped; 0: none
    size_t last_tile_bytes = 0;                  // of the last tile; 0: like the others
};

// The name of a step in messages, for files that number steps in another way than their schedules.
using StepName = std::function<std::string(int rank, int block, int step)>;

struct CheckOptions {
    int flag_slots = 4;
    int fifo_depth = 0;       // slots of every connection; 0: the number in the schedule
    bool any_order = false;   // ranks may sum in different orders
    StepName step_name = {};  // none: "rank 1, block 2, step 3"
};

// Other results of a proof. Of several proofs: of all together.
struct Proved {
    uint64_t steps = 0;  // instructions simulated
    // Every result is made at once from the ranks' own contributions in rank order. So it is rounded once, and equal on
    // every rank and for every schedule and size.
    bool in_rank_order = true;
    // Ranks sum in different orders, each of which is correct. An error unless any_order is set.
    bool orders_differ = false;
};

// Reentrant. weftInvalidArgument: the sentence names operation, rank, block, step, instruction and chunk.
Status check(int ranks, std::span<const CheckedOperation> operations, const CheckOptions& options = {},
             Proved* proved = nullptr);

// Proves the schedules of a file, one for each rank in any order. Two operations of two runs each run out of place, in
// place and mixed, each with no, most and some empty chunks. With a flag block, or if blocks may be runs apart, there
// are enough runs to use all slots again. Fused instructions are proved in every mode, and a single two-shot also
// pipelined. For elementary ones, `mode` names the ranks whose buffers `either` reads in place.
Status check_set(std::span<const Schedule> schedules, const DirectMode& mode = {}, const CheckOptions& options = {},
                 Proved* proved = nullptr);

}  // namespace weft::internal
