// checked_operation.hpp: the operations that the checker proves, and its options and further results. Values.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

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

}  // namespace weft::internal
