// alltoall_perf.cpp: the row of all-to-all.
#include "collective.hpp"

namespace {

const perf::Collective all_to_all = {
    .served_by = "Weft",
    .program = "alltoall_perf",
    .bench_name = "alltoall",
    .parted = true,
    .rooted = false,
    .reduces = false,
    .sends = perf::Holds::all_parts,
    .receives = perf::Holds::all_parts,
    .in_place = false,
    .weft_name = "all_to_all",
    // Each rank must send all parts except the one for itself.
    .bus_factor = [](int ranks) { return (ranks - 1.0) / ranks; },
    .run =
        [](const perf::Call& call) {
            return weftAlltoAll(call.send, call.receive, call.count, call.type, call.comm, call.stream);
        },
};

}  // namespace

int main(int argc, char** argv) { return perf::run_benchmark(all_to_all, argc, argv); }
