// alltoallv_perf.cpp: the row of all-to-all with uneven parts.
// If exactly one of the two ranks is odd, half a part goes between them.
#include <vector>

#include "collective.hpp"

namespace {

size_t share(size_t count, int from, int to) { return (from + to) % 2 == 0 ? count : count / 2; }

const perf::Collective all_to_all_v = {
    .served_by = "Weft",
    .program = "alltoallv_perf",
    .bench_name = "alltoallv",
    .parted = true,
    .rooted = false,
    .reduces = false,
    .sends = perf::Holds::all_parts,
    .receives = perf::Holds::all_parts,
    .in_place = false,
    .share = share,
    // A rank keeps one of its n parts, and every other one of the remaining parts is a half.
    .bus_factor =
        [](int ranks) {
            double halves = 0;
            for (int to = 1; to < ranks; ++to) halves += double(share(2, 0, to));
            return halves / 2 / ranks;
        },
    .run =
        [](const perf::Call& call) {
            static thread_local std::vector<size_t> counts, places;
            const int rank = call.seat.rank, ranks = call.seat.ranks;
            counts.clear();
            places.clear();
            for (int peer = 0; peer < ranks; ++peer) {
                counts.push_back(share(call.count, rank, peer));
                places.push_back(size_t(peer) * call.count);
            }
            return weftAlltoAllv(call.send, counts.data(), places.data(), call.receive, counts.data(), places.data(),
                                 call.type, call.comm, call.stream);
        },
};

}  // namespace

int main(int argc, char** argv) { return perf::run_benchmark(all_to_all_v, argc, argv); }
