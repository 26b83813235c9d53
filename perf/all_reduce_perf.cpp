// all_reduce_perf.cpp: the row of all-reduce.
#include "collective.hpp"

namespace {

#if !defined(PERF_LIBRARY)
#define PERF_LIBRARY "Weft"
#endif

const perf::Collective all_reduce = {
    .served_by = PERF_LIBRARY,
    .program = "all_reduce_perf",
    .bench_name = "allreduce",
    .parted = false,
    .rooted = false,
    .reduces = true,
    .sends = perf::Holds::all_parts,
    .receives = perf::Holds::all_parts,
    .weft_name = "all_reduce",
    // Each rank sends its inputs to the other ranks' sums and receives its own sum: 2(n-1)/n of the buffer.
    .bus_factor = [](int ranks) { return 2.0 * (ranks - 1) / ranks; },
    .run =
        [](const perf::Call& call) {
            return weftAllReduce(call.send, call.receive, call.count, call.type, call.op, call.comm, call.stream);
        },
};

}  // namespace

int main(int argc, char** argv) { return perf::run_benchmark(all_reduce, argc, argv); }
