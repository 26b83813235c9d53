// collective.hpp: the row that makes a benchmark of a collective; everything else is shared.
#pragma once
#include <weft/weft.h>

#include <cstdint>

namespace perf {

// Whose view it is.
struct Seat {
    int rank = 0;
    int ranks = 1;
    int root = 0;
};
// On the ring of all ranks.
inline int next(const Seat& seat) { return (seat.rank + 1) % seat.ranks; }
inline int previous(const Seat& seat) { return (seat.rank + seat.ranks - 1) % seat.ranks; }

struct Call {
    const void* send = nullptr;  // null: the rank has no use for it
    void* receive = nullptr;     // likewise
    size_t count = 0;            // elements of a part
    weftDataType_t type = weftFloat32;
    weftRedOp_t op = weftSum;
    Seat seat = {};
    weftComm_t comm = nullptr;
    weftStream_t stream = nullptr;  // of the buffers' GPU
    weftWindow_t window = nullptr;  // of the receiving buffers, if they are lent
    size_t window_offset = 0;       // of `receive` in it, in bytes, alike on all ranks
};

// What a rank's buffer holds of the whole, which has a part for each rank or is one part.
enum class Holds : uint8_t {
    own_part,
    all_parts,
    all_parts_on_root,  // the other ranks have no use for the buffer
};

// What must arrive follows from it (placement.hpp): the reduction over ranks of each part; without one, part p from
// rank p if each sends its own, part r of everybody at rank r if each sends all, else from the root; where a rank has
// a partner, what that one sends.
struct Collective {
    const char* served_by;   // what weft.h is served by: Weft
    const char* program;     // all_reduce_perf
    const char* bench_name;  // as in perf/peers/bench.h
    bool parted;             // the whole has a part for each rank; its size is that of all together
    bool rooted;             // -r means something
    bool reduces;            // -o means something
    Holds sends, receives;
    bool in_place = true;             // as NCCL defines it: a buffer lies where the other holds the same
    bool peers_in_place = false;      // what peers offer has one buffer on the root, so --json-lines measures that
    const char* weft_name = nullptr;  // as weftCommExplainCollective has it; null: no algorithm is chosen for it
    int messages = 1;                 // one after the other in a call, whose time is told for one of them
    // From whom a rank receives, if each sends to one and receives from one; -1: from nobody.
    int (*partner)(const Seat& seat) = nullptr;
    // Where parts are uneven: of `count` elements so many go from one rank to another.
    size_t (*share)(size_t count, int from, int to) = nullptr;
    // Of one-sided calls: lets the others reach a receiving buffer, and ends it; on host memory. All ranks call them.
    weftResult_t (*open_window)(weftComm_t comm, void* memory, size_t bytes, weftWindow_t* window) = nullptr;
    weftResult_t (*close_window)(weftComm_t comm, weftWindow_t window) = nullptr;
    // Bus bandwidth over algorithm bandwidth: the share of the size that must cross the busiest link.
    double (*bus_factor)(int ranks);
    weftResult_t (*run)(const Call& call);
};

// main() of a benchmark: parses, makes the ranks, measures, checks, reports. The exit status: 0, or 1 after a wrong
// result or a failure, 2 for arguments that cannot be run.
int run_benchmark(const Collective& collective, int argc, const char* const* argv);

}  // namespace perf
