// sendrecv_perf.cpp: how fast every rank sends to the next and receives from the one before.
#include "collective.hpp"

namespace {

const perf::Collective send_receive = {
    .served_by = "Weft",
    .program = "sendrecv_perf",
    .bench_name = "ring_shift",
    .parted = false,
    .rooted = false,
    .reduces = false,
    .sends = perf::Holds::all_parts,
    .receives = perf::Holds::all_parts,
    .in_place = false,
    .partner = perf::previous,
    // One message crosses each link.
    .bus_factor = [](int) { return 1.0; },
    .run =
        [](const perf::Call& call) {
            int rank = 0, ranks = 0;
            weftCommUserRank(call.comm, &rank);
            weftCommCount(call.comm, &ranks);
            return weftSendRecv(call.send, call.count, (rank + 1) % ranks, call.receive, call.count,
                                perf::previous({rank, ranks, 0}), call.type, call.comm, call.stream);
        },
};

}  // namespace

int main(int argc, char** argv) { return perf::run_benchmark(send_receive, argc, argv); }
