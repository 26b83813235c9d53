// reduce_scatter_perf.cpp: the row of reduce-scatter.
#include "collective.hpp"

namespace {

const perf::Collective reduce_scatter = {
    .served_by = "Weft",
    .program = "reduce_scatter_perf",
    .bench_name = "reduce_scatter",
    .parted = true,
    .rooted = false,
    .reduces = true,
    .sends = perf::Holds::all_parts,
    .receives = perf::Holds::own_part,
    .weft_name = "reduce_scatter",
    // Each rank must send its inputs to the other ranks' sums.
    .bus_factor = [](int ranks) { return (ranks - 1.0) / ranks; },
    .run =
        [](const perf::Call& call) {
            return weftReduceScatter(call.send, call.receive, call.count, call.type, call.op, call.comm, call.stream);
        },
};

}  // namespace

int main(int argc, char** argv) { return perf::run_benchmark(reduce_scatter, argc, argv); }
