// expand.hpp: fused instructions as the elementary ones they stand for. The expansion is their definition: the checker
// proves it, and what the executor does in one routine must leave the same bits.
#pragma once
#include <vector>

#include "src/schedule/schedule.hpp"

namespace weft::internal {

// What the ranks of a flag block have agreed that they can reach of each other's buffers. A one_shot whose ranks can reach
// some of them goes on as a two_shot does.
struct DirectMode {
    std::vector<bool> readable;  // by rank: its input is read in place, it stages nothing; empty: nobody's
    bool all_writable = false;   // with everybody readable: results go straight to all outputs

    bool reads(int rank) const { return !readable.empty() && readable[rank]; }
    bool direct(int ranks) const {
        return all_writable && int(readable.size()) == ranks &&
               std::find(readable.begin(), readable.end(), false) == readable.end();
    }
    bool operator==(const DirectMode&) const = default;
};

// A schedule without fused instructions comes back as it is.
Schedule expand(const Schedule& schedule, const DirectMode& mode);

// A two-shot over `tiles` tiles with its phases overlapped: round k stages tile k+1, reduces tile k and copies out tile
// k-1. Of a schedule that is one two_shot instruction. Direct mode is one tile: there is nothing to overlap.
Schedule expand_pipelined(const Schedule& schedule, const DirectMode& mode, int tiles);

}  // namespace weft::internal
