// random_splits_test.cpp: families of communicators, of ranks that are threads, processes of one or several hosts, or
// share a thread.
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include "tests/amount.hpp"
#include "tests/catch.hpp"
#include "tests/comm/random_splits.hpp"
#ifdef WEFT_COMMAND
#include "tests/subprocess.hpp"
#endif

namespace weft::internal::test {
namespace {

// `ranks` of which each thread has as many.
void check_threads(int ranks, int of_a_thread, int steps) {
    CAPTURE(seed(), ranks, of_a_thread);
    std::vector<weftComm_t> comms{size_t(ranks)};
    REQUIRE(weftCommInitAll(comms.data(), ranks, nullptr) == weftSuccess);
    std::vector<std::string> wrong{size_t(ranks)};
    std::vector<std::thread> threads;
    for (int first = 0; first < ranks; first += of_a_thread)
        threads.emplace_back([&, first] {
            std::map<int, weftComm_t> own;
            for (int rank = first; rank < std::min(first + of_a_thread, ranks); ++rank) own[rank] = comms[size_t(rank)];
            wrong[size_t(first)] = run_random_splits(own, ranks, seed() + uint32_t(ranks), steps);
        });
    for (std::thread& thread : threads) thread.join();
    for (const std::string& sentence : wrong) CHECK(sentence == "");
}

}  // namespace

TEST_CASE("families of communicators of threads, and of ranks that share a thread, are as the model says", "[splits]") {
    for (const int ranks : {1, 2, 3, 5, 8})
        for (const int of_a_thread : {1, 2, 8}) check_threads(ranks, of_a_thread, small() ? 30 : 200);
}

#ifdef WEFT_COMMAND
TEST_CASE("families of communicators of processes, on one host and on several, are as the model says", "[splits]") {
    struct Shape {
        int hosts, ranks;
    };
    for (const auto& [hosts, ranks] : {Shape{0, 3}, {0, 6}, {2, 4}, {3, 5}, {4, 4}}) {
        CAPTURE(seed(), hosts, ranks);
        const ProcessResult outcome =
            run({WEFT_COMMAND, "run", "-n", std::to_string(ranks), WEFT_WORKER, std::to_string(seed()),
                 small()     ? "20"
                 : hosts > 0 ? "60"
                             : "200",
                 "0", std::to_string(hosts), "splits"},
                // Of what ends with an aborted communicator the library warns.
                {"WEFT_TIMEOUT_MS=120000", "WEFT_DEBUG=NONE"});
        CHECK(outcome.error == "");
        CHECK(outcome.status == 0);
    }
}
#endif

TEST_CASE("a call that fails beside a split in a group makes no rank wait for that split", "[comm]") {
    for (int round = 0; round < (small() ? 5 : 30); ++round) {
        weftUniqueId id;
        REQUIRE(weftGetUniqueId(&id) == weftSuccess);
        std::string wrong[3];
        std::vector<std::thread> threads;
        for (int rank = 0; rank < 3; ++rank)
            threads.emplace_back([&, rank] {
                weftComm_t comm = nullptr, child = nullptr;
                if (weftCommInitRank(&comm, 3, id, rank) != weftSuccess) {
                    wrong[rank] = weftGetLastError(nullptr);
                    return;
                }
                // Ranks 0 and 1 disagree on a message; rank 2 splits and knows nothing of it.
                int value = 0;
                (void)weftGroupStart();
                (void)weftCommSplit(comm, 0, rank, &child, nullptr);
                if (rank == 0) (void)weftSend(&value, 1, weftInt32, 1, comm, nullptr);
                if (rank == 1) (void)weftRecv(&value, 1, weftFloat32, 0, comm, nullptr);
                const weftResult_t ended = weftGroupEnd();
                if (ended == weftTimeout) wrong[rank] = weftGetLastError(comm);
                if (child) {
                    if (weftBarrier(child, nullptr) == weftTimeout) wrong[rank] = weftGetLastError(child);
                    (void)weftCommDestroy(child);
                }
                (void)weftCommDestroy(comm);
            });
        for (std::thread& thread : threads) thread.join();
        for (const std::string& sentence : wrong) CHECK(sentence == "");
    }
}

}  // namespace weft::internal::test
