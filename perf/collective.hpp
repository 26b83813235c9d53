// collective.hpp: the table row that describes one collective. All other code of the benchmarks is shared.
#pragma once
#include <weft/weft.h>

#include <cstdint>

namespace perf {

// The rank from whose view a function answers.
struct Seat {
    int rank = 0;
    int ranks = 1;
    int root = 0;
};
// The next rank on the ring of all ranks.
inline int next(const Seat& seat) { return (seat.rank + 1) % seat.ranks; }
inline int previous(const Seat& seat) { return (seat.rank + seat.ranks - 1) % seat.ranks; }

struct Call {
    const void* send = nullptr;  // null: the rank does not use it
    void* receive = nullptr;     // null: the rank does not use it
    size_t count = 0;            // elements of a part
    weftDataType_t type = weftFloat32;
    weftRedOp_t op = weftSum;
    Seat seat = {};
    weftComm_t comm = nullptr;
    weftStream_t stream = nullptr;  // of the buffers' GPU
    weftWindow_t window = nullptr;  // over the receive buffers; null without one-sided calls
    size_t window_offset = 0;       // bytes from the window's start to `receive`, equal on all ranks
};

// The parts in a rank's buffer. The whole has one part for each rank, or is a single part.
enum class Holds : uint8_t {
    own_part,
    all_parts,
    all_parts_on_root,  // the other ranks do not use the buffer
};

// The expected output follows from the row (placement.hpp).
// A reduction yields each part's reduction over the ranks. With a partner, a rank receives its partner's data.
// Otherwise, part p comes from rank p if each rank sends its own part, and from the root if only the root sends.
// If each rank sends all parts, rank r receives part r of every rank.
struct Collective {
    const char* served_by;   // the library behind weft.h: Weft
    const char* program;     // all_reduce_perf
    const char* bench_name;  // as in perf/peers/bench.h
    bool parted;             // the whole has a part for each rank; the size counts all parts
    bool rooted;             // -r means something
    bool reduces;            // -o means something
    Holds sends, receives;
    bool in_place = true;             // as in NCCL: each buffer holds at its place the data of the other
    bool peers_in_place = false;      // the peers' call uses one buffer on the root, so --json-lines measures in place
    const char* weft_name = nullptr;  // the name in weftCommExplainCollective; null: no algorithm is chosen
    int messages = 1;                 // messages in sequence in a call; the reported time is that of one
    // The rank from which this rank receives, if each rank sends to one and receives from one; -1: none.
    int (*partner)(const Seat& seat) = nullptr;
    // For uneven parts: the elements, of `count`, that go from one rank to another.
    size_t (*share)(size_t count, int from, int to) = nullptr;
    // For one-sided calls on host memory: makes and frees a window over the receive buffers. Collective calls.
    weftResult_t (*open_window)(weftComm_t comm, void* memory, size_t bytes, weftWindow_t* window) = nullptr;
    weftResult_t (*close_window)(weftComm_t comm, weftWindow_t window) = nullptr;
    // Bus bandwidth divided by algorithm bandwidth: the share of the size that must cross the busiest link.
    double (*bus_factor)(int ranks);
    weftResult_t (*run)(const Call& call);
};

inline bool takes_part(const Collective& collective, const Seat& seat) {
    return !collective.partner || collective.partner(seat) >= 0;
}

// main() of a benchmark: parses, makes the ranks, measures, checks, reports.
// Returns the exit status: 0, 1 after a wrong result or a failure, 2 for arguments that cannot be run.
int run_benchmark(const Collective& collective, int argc, const char* const* argv);

}  // namespace perf
