// collective.hpp: the row that makes a benchmark of a collective; everything else is shared.
#pragma once
#include <weft/weft.h>

#include "pattern.hpp"

namespace perf {

struct Call {
    const void* send = nullptr;
    void* receive = nullptr;
    size_t count = 0;  // elements
    weftDataType_t type = weftFloat32;
    weftRedOp_t op = weftSum;
    int root = 0;
    weftComm_t comm = nullptr;
    weftStream_t stream = nullptr;  // of the buffers' GPU
};

struct Collective {
    const char* served_by;   // what weft.h is served by: Weft
    const char* program;     // all_reduce_perf
    const char* bench_name;  // as in perf/peers/bench.h
    bool rooted;             // -r means something
    // Bus bandwidth over algorithm bandwidth: the share of the size that must cross the busiest link.
    double (*bus_factor)(int ranks);
    weftResult_t (*run)(const Call& call);
    // What must be in the receive buffer of `rank`.
    Period (*expected)(const Pattern& pattern, int rank);
};

// main() of a benchmark: parses, makes the ranks, measures, checks, reports. The exit status: 0, or 1 after a wrong
// result or a failure, 2 for arguments that cannot be run.
int run_benchmark(const Collective& collective, int argc, const char* const* argv);

}  // namespace perf
