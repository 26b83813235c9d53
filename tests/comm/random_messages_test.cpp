// random_messages_test.cpp: random messages between ranks that are threads, processes, or all driven by one thread,
// over shared memory and TCP, on one and several communicators.
#include <cstdlib>
#include <iostream>
#include <random>
#include <thread>

#include "tests/amount.hpp"
#include "tests/catch.hpp"
#include "tests/comm/random_messages.hpp"
#ifdef WEFT_COMMAND
#include "tests/subprocess.hpp"
#endif

namespace weft::internal::test {
namespace {

void check_threads(int ranks, int comms, const MessageSequence& sequence) {
    CAPTURE(ranks, comms, sequence.seed);
    std::vector<weftUniqueId> ids{size_t(comms)};
    for (weftUniqueId& id : ids) REQUIRE(weftGetUniqueId(&id) == weftSuccess);
    std::vector<std::string> wrong{size_t(ranks)};
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank)
        threads.emplace_back([&, rank] {
            std::vector<weftComm_t> own{ids.size()};
            for (size_t i = 0; i < ids.size(); ++i)
                if (weftCommInitRank(&own[i], ranks, ids[i], rank) != weftSuccess) {
                    wrong[size_t(rank)] = weftGetLastError(nullptr);
                    return;
                }
            wrong[size_t(rank)] = run_random_messages(own, sequence);
            for (weftComm_t comm : own)
                (void)(wrong[size_t(rank)].empty() ? weftCommDestroy(comm) : weftCommAbort(comm));
        });
    for (std::thread& thread : threads) thread.join();
    for (const std::string& sentence : wrong) CHECK(sentence == "");
}

#ifdef WEFT_COMMAND
void check_processes(int ranks, int hosts, const std::vector<std::string>& variables) {
    std::string shown;
    for (const std::string& variable : variables) shown += variable + " ";
    CAPTURE(ranks, hosts, seed(), shown);
    std::vector<std::string> all = variables;
    // A rank that is slow is not dead.
    all.insert(all.end(), {"WEFT_WARN_MS=0", "WEFT_TIMEOUT_MS=120000"});
    const ProcessResult outcome =
        run({WEFT_COMMAND, "run", "-n", std::to_string(ranks), WEFT_WORKER, std::to_string(seed()),
             small() ? "8" : "40", small() ? "100000" : "400000", std::to_string(hosts), "messages"},
            all);
    CHECK(outcome.error == "");
    CHECK(outcome.status == 0);
    for (int rank = 0; rank < ranks; ++rank)
        CHECK_THAT(outcome.output, Catch::Contains("rank " + std::to_string(rank) + " is content"));
}
#endif

}  // namespace

TEST_CASE("random messages of threads arrive, in groups and out of them, beside collectives", "[messages]") {
    std::cout << "seed " << seed() << std::endl;
    for (const int ranks : {1, 2, 3, 5, 8})
        for (const int comms : {1, 3}) check_threads(ranks, comms, {seed(), small() ? 8 : 60, 300'000});
}

TEST_CASE("messages larger than one copy arrive", "[messages]") {
    check_threads(2, 1, {seed(), small() ? 2 : 12, 5'000'000});
}

TEST_CASE("one thread that drives all ranks in a group gets their messages through", "[messages]") {
    INFO("seed " << seed());
    for (const int ranks : {1, 2, 4, 7}) {
        std::vector<std::vector<weftComm_t>> comms{size_t(ranks)};
        for (int i = 0; i < 2; ++i) {
            std::vector<weftComm_t> all{size_t(ranks)};
            REQUIRE(weftCommInitAll(all.data(), ranks, nullptr) == weftSuccess);
            for (size_t rank = 0; rank < all.size(); ++rank) comms[rank].push_back(all[rank]);
        }
        CHECK(run_random_messages_of_all(comms, {seed(), small() ? 8 : 60, 300'000}) == "");
        for (const auto& of_rank : comms)
            for (weftComm_t comm : of_rank) CHECK(weftCommDestroy(comm) == weftSuccess);
    }
}

#ifdef WEFT_COMMAND
TEST_CASE("random messages of processes arrive, copied by the kernel or through slots", "[messages]") {
    std::cout << "seed " << seed() << std::endl;
    for (const int ranks : {2, 3, 6})
        for (const std::vector<std::string>& variables :
             {std::vector<std::string>{"WEFT_CROSS_MEMORY=1"}, {"WEFT_CROSS_MEMORY=0"}, {"WEFT_SLEEP_US=0"}}) {
            if (small() && ranks != 3) continue;
            check_processes(ranks, 0, variables);
        }
}

TEST_CASE("random messages between hosts arrive", "[messages][hosts]") {
    std::cout << "seed " << seed() << std::endl;
    struct Shape {
        int hosts, ranks;
    };
    for (const auto& [hosts, ranks] : {Shape{2, 2}, {2, 4}, {3, 5}}) {
        if (small() && ranks > 4) continue;
        check_processes(ranks, hosts, {});
    }
}
#endif

}  // namespace weft::internal::test
