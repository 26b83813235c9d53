// threads_as_ranks.cpp: the ranks are threads of one process, with weft.hpp: a communicator for each, exceptions on
// errors.
// Any buffers are fast: ranks of one process read each other's buffers in place.
//
//     ./threads_as_ranks
#include <cstdio>
#include <exception>
#include <thread>
#include <vector>
#include <weft/weft.hpp>

// Sums the squares of this rank's share of the numbers below `end`, then over all ranks. True if the sum is right.
static bool sum_squares(weft::Communicator& communicator, long long end) {
    long long mine = 0;
    for (long long i = communicator.rank(); i < end; i += communicator.ranks()) mine += i * i;
    long long all[2] = {mine, 1};
    communicator.all_reduce(all, 2);
    return all[0] == (end - 1) * end * (2 * end - 1) / 6 && all[1] == communicator.ranks();
}

int main() {
    constexpr int ranks = 4;
    try {
        std::vector<weft::Communicator> communicators = weft::Communicator::all(ranks);
        std::vector<int> right(ranks, 0);
        std::vector<std::thread> threads;
        for (int rank = 0; rank < ranks; ++rank)
            threads.emplace_back([&, rank] {
                try {
                    right[rank] = sum_squares(communicators[rank], 100'000);
                } catch (const std::exception& error) {
                    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
                }
            });
        for (std::thread& thread : threads) thread.join();
        for (int rank = 0; rank < ranks; ++rank)
            if (!right[rank]) {
                std::fprintf(stderr, "rank %d has no right sum\n", rank);
                return 1;
            }
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    std::printf("%d threads agree\n", ranks);
    return 0;
}
