// scatter_perf.cpp: the row of scatter.
#include "collective.hpp"

namespace {

const perf::Collective scatter = {
    .served_by = "Weft",
    .program = "scatter_perf",
    .bench_name = "scatter",
    .parted = true,
    .rooted = true,
    .reduces = false,
    .sends = perf::Holds::all_parts_on_root,
    .receives = perf::Holds::own_part,
    .weft_name = "scatter",
    // The root must send all parts except its own.
    .bus_factor = [](int ranks) { return (ranks - 1.0) / ranks; },
    .run =
        [](const perf::Call& call) {
            return weftScatter(call.send, call.receive, call.count, call.type, call.seat.root, call.comm, call.stream);
        },
};

}  // namespace

int main(int argc, char** argv) { return perf::run_benchmark(scatter, argc, argv); }
