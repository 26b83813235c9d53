// interpreter.hpp: the meaning of a set of schedules, as slowly and plainly as possible. It takes one element at a time
// with the arithmetic of plain.hpp, has queues as connections, and keeps every slot of the flag block for ever. The
// executor must leave the same bits, with all its shortcuts.
#pragma once
#include <cstddef>
#include <vector>

#include "src/schedule/expand.hpp"

namespace weft::internal::reference {

using Bytes = std::vector<std::byte>;

struct Job {
    std::vector<Schedule> schedules;  // of all ranks; fused instructions already expanded
    DirectMode mode;                  // as they were expanded
    weftDataType_t type = weftInt8;
    weftRedOp_t op = weftSum;
    std::vector<Bytes> inputs;   // by rank: those parts of the whole that it holds
    std::vector<Bytes> scalars;  // by rank, one element: inputs count multiplied by it; empty: as they are
    std::vector<bool> in_place;  // by rank; empty: nobody
    // Each result is made at once of the contributions of all ranks, which then are added before they are divided.
    bool in_one_place = false;
    size_t tile_bytes = 0;  // of a part: a multiple of 64, or all of it
};

// Every rank's receive buffer afterwards. Throws std::logic_error if the schedules block for ever or read unwritten
// data.
std::vector<Bytes> interpret(const Job& job);

// The schedules of all ranks of one algorithm's schedule, fused instructions expanded.
template <class Build>
std::vector<Schedule> expanded(int ranks, const DirectMode& mode, Build&& build) {
    std::vector<Schedule> all;
    for (int rank = 0; rank < ranks; ++rank) all.push_back(expand(build(rank), mode));
    return all;
}

}  // namespace weft::internal::reference
