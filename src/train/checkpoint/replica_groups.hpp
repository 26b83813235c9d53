// replica_groups.hpp: which ranks keep copies of each other's state in memory, and which copies are read.
#pragma once
#include <cstdint>
#include <vector>

#include "src/base/result.hpp"

namespace weft::internal::train {

// The group of a rank, in ascending order: `copies` ranks, each `jump` ranks from the next one. With the number of ranks
// on a host as jump, they are on different hosts. ranks is a multiple of jump * copies.
std::vector<int> replica_group(int ranks, int jump, int copies, int rank);

// A copy of the state of rank `owner` of `ranks` ranks, which rank `holder` has.
struct HeldCopy {
    uint64_t version = 0;
    int32_t owner = 0, ranks = 0, holder = 0;
    int32_t unused = 0;  // instead of padding, which would be sent uninitialized
    uint64_t save = 0;   // its id: a version may be saved several times. A later save has a larger one
};
// For each owner of the newest whole save of the newest such version, its copy. It is at the owner if it has one,
// otherwise at the holder that sends the fewest so far. Fails if there is none, and names an owner whose copies are lost.
Result<std::vector<HeldCopy>> choose_copies(std::vector<HeldCopy> held);

}  // namespace weft::internal::train
