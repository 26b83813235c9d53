// reduce_perf.cpp: the row of reduce.
#include "collective.hpp"

namespace {

const perf::Collective reduce = {
    .served_by = "Weft",
    .program = "reduce_perf",
    .bench_name = "reduce",
    .parted = false,
    .rooted = true,
    .reduces = true,
    .sends = perf::Holds::all_parts,
    .receives = perf::Holds::all_parts_on_root,
    .weft_name = "reduce",
    // Each rank must send the whole buffer once.
    .bus_factor = [](int) { return 1.0; },
    .run =
        [](const perf::Call& call) {
            return weftReduce(call.send, call.receive, call.count, call.type, call.op, call.seat.root, call.comm,
                              call.stream);
        },
};

}  // namespace

int main(int argc, char** argv) { return perf::run_benchmark(reduce, argc, argv); }
