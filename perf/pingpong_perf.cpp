// pingpong_perf.cpp: the row of the ping-pong: pairs of ranks send one message there and one back.
// If the number of ranks is odd, the last rank has no partner, and its time does not count.
#include "collective.hpp"

namespace {

int partner(const perf::Seat& seat) { return (seat.rank ^ 1) < seat.ranks ? seat.rank ^ 1 : -1; }

const perf::Collective ping_pong = {
    .served_by = "Weft",
    .program = "pingpong_perf",
    .bench_name = "sendrecv",
    .parted = false,
    .rooted = false,
    .reduces = false,
    .sends = perf::Holds::all_parts,
    .receives = perf::Holds::all_parts,
    .in_place = false,
    .messages = 2,
    .partner = partner,
    .bus_factor = [](int) { return 1.0; },
    .run =
        [](const perf::Call& call) {
            const int other = partner(call.seat);
            if (other < 0) return weftSuccess;
            const auto send = [&] { return weftSend(call.send, call.count, call.type, other, call.comm, call.stream); };
            const auto receive = [&] {
                return weftRecv(call.receive, call.count, call.type, other, call.comm, call.stream);
            };
            const weftResult_t first = call.seat.rank < other ? send() : receive();
            if (first != weftSuccess) return first;
            return call.seat.rank < other ? receive() : send();
        },
};

}  // namespace

int main(int argc, char** argv) { return perf::run_benchmark(ping_pong, argc, argv); }
