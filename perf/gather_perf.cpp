// gather_perf.cpp: the row of gather.
#include "collective.hpp"

namespace {

const perf::Collective gather = {
    .served_by = "Weft",
    .program = "gather_perf",
    .bench_name = "gather",
    .parted = true,
    .rooted = true,
    .reduces = false,
    .sends = perf::Holds::own_part,
    .receives = perf::Holds::all_parts_on_root,
    .weft_name = "gather",
    // The root must receive all parts except its own.
    .bus_factor = [](int ranks) { return (ranks - 1.0) / ranks; },
    .run =
        [](const perf::Call& call) {
            return weftGather(call.send, call.receive, call.count, call.type, call.seat.root, call.comm, call.stream);
        },
};

}  // namespace

int main(int argc, char** argv) { return perf::run_benchmark(gather, argc, argv); }
