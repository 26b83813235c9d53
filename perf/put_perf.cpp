// put_perf.cpp: the row of one-sided puts: every rank puts to the next rank, signals it, and waits for the previous
// one.
#include "collective.hpp"

namespace {

const perf::Collective put = {
    .served_by = "Weft",
    .program = "put_perf",
    .bench_name = "put_ring_shift",
    .parted = false,
    .rooted = false,
    .reduces = false,
    .sends = perf::Holds::all_parts,
    .receives = perf::Holds::all_parts,
    .in_place = false,
    .partner = perf::previous,
    .open_window =
        [](weftComm_t comm, void* memory, size_t bytes, weftWindow_t* window) {
            return weftCommWindowRegister(comm, memory, bytes, window, WEFT_WIN_DEFAULT);
        },
    .close_window = weftCommWindowDeregister,
    // One message crosses each link.
    .bus_factor = [](int) { return 1.0; },
    .run =
        [](const perf::Call& call) {
            const weftResult_t put = weftPutSignal(call.send, call.count, call.type, perf::next(call.seat), call.window,
                                                   call.window_offset, 0, 0, 0, call.comm, call.stream);
            if (put != weftSuccess) return put;
            const weftWaitSignalDesc_t from_previous = {1, perf::previous(call.seat), 0, 0};
            return weftWaitSignal(1, &from_previous, call.comm, call.stream);
        },
};

}  // namespace

int main(int argc, char** argv) { return perf::run_benchmark(put, argc, argv); }
