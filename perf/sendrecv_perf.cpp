// sendrecv_perf.cpp: the row of send and receive round a ring: every rank sends to the next rank.
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
            return weftSendRecv(call.send, call.count, perf::next(call.seat), call.receive, call.count,
                                perf::previous(call.seat), call.type, call.comm, call.stream);
        },
};

}  // namespace

int main(int argc, char** argv) { return perf::run_benchmark(send_receive, argc, argv); }
