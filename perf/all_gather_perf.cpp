// all_gather_perf.cpp: the row of all-gather.
#include "collective.hpp"

namespace {

const perf::Collective all_gather = {
    .served_by = "Weft",
    .program = "all_gather_perf",
    .bench_name = "allgather",
    .parted = true,
    .rooted = false,
    .reduces = false,
    .sends = perf::Holds::own_part,
    .receives = perf::Holds::all_parts,
    .weft_name = "all_gather",
    // Each rank must receive all parts except its own.
    .bus_factor = [](int ranks) { return (ranks - 1.0) / ranks; },
    .run =
        [](const perf::Call& call) {
            return weftAllGather(call.send, call.receive, call.count, call.type, call.comm, call.stream);
        },
};

}  // namespace

int main(int argc, char** argv) { return perf::run_benchmark(all_gather, argc, argv); }
