// broadcast_perf.cpp: the row of broadcast.
#include "collective.hpp"

namespace {

const perf::Collective broadcast = {
    .served_by = "Weft",
    .program = "broadcast_perf",
    .bench_name = "bcast",
    .parted = false,
    .rooted = true,
    .reduces = false,
    .sends = perf::Holds::all_parts_on_root,
    .receives = perf::Holds::all_parts,
    .peers_in_place = true,
    .weft_name = "broadcast",
    // Each rank must receive the whole buffer once.
    .bus_factor = [](int) { return 1.0; },
    .run =
        [](const perf::Call& call) {
            return weftBroadcast(call.send, call.receive, call.count, call.type, call.seat.root, call.comm,
                                 call.stream);
        },
};

}  // namespace

int main(int argc, char** argv) { return perf::run_benchmark(broadcast, argc, argv); }
