// expand.hpp: fused instructions as the elementary ones that they stand for. The expansion is their definition: the
// checker proves it, and the executor's routine must produce the same bits.
#pragma once
#include <vector>

#include "src/schedule/schedule.hpp"

namespace weft::internal {

// The buffers of each other that the ranks of a flag block have agreed to access directly. A one_shot whose ranks can
// access some of them continues as a two_shot.
struct DirectMode {
    std::vector<bool> readable;  // by rank: its input is read in place, so it stages nothing; empty: no rank
    bool all_writable = false;   // if all are readable: results are written directly to all outputs

    bool reads(int rank) const { return !readable.empty() && readable[rank]; }
    bool direct(int ranks) const {
        return all_writable && int(readable.size()) == ranks &&
               std::find(readable.begin(), readable.end(), false) == readable.end();
    }
    bool operator==(const DirectMode&) const = default;
};

// A schedule without fused instructions is returned unchanged.
Schedule expand(const Schedule& schedule, const DirectMode& mode);

// A schedule of one two_shot instruction, over `tiles` tiles with overlapping phases. Round k stages tile k+1, reduces
// tile k and copies out tile k-1. Direct mode has one tile, so nothing overlaps.
Schedule expand_pipelined(const Schedule& schedule, const DirectMode& mode, int tiles);

}  // namespace weft::internal
