// deterministic_test.cpp: deterministic mode gives the bits of rank order with any algorithm, size and hosts; without
// it some algorithms give others. Set by variable or by config.
#include <iostream>
#include <thread>

#include "tests/amount.hpp"
#include "tests/catch.hpp"
#include "tests/comm/rank_order_calls.hpp"
#include "tests/subprocess.hpp"

namespace weft::internal::test {
namespace {

struct Ran {
    int calls = 0, differing = 0;  // of all ranks
    std::string error;
};

Ran run_ranks(int ranks, int hosts, std::vector<std::string> variables) {
    for (const char* standing : {"WEFT_WARN_MS=0", "WEFT_TIMEOUT_MS=120000"}) variables.push_back(standing);
    const ProcessResult outcome =
        run({WEFT_COMMAND, "run", "-n", std::to_string(ranks), WEFT_WORKER, std::to_string(seed()), "0",
             small() ? "9000" : "60000", std::to_string(hosts), "order"},
            variables);
    Ran ran{0, 0, outcome.error};
    if (outcome.status != 0 && ran.error.empty()) ran.error = "status " + std::to_string(outcome.status);
    std::istringstream lines(outcome.output);
    for (std::string word; lines >> word;) {
        int differing = 0, calls = 0;
        if (word == "order" && lines >> differing >> word >> calls) ran.differing += differing, ran.calls += calls;
    }
    return ran;
}

}  // namespace

TEST_CASE("deterministic reductions have the bits of rank order, by every algorithm left and on any hosts", "[comm]") {
    std::cout << "seed " << seed() << std::endl;
    const std::vector<std::vector<std::string>> settings = {{},
                                                            {"WEFT_ALGO=^two_shot"},
                                                            {"WEFT_ALGO=^one_shot", "WEFT_TILE_BYTES=4096"},
                                                            {"WEFT_DIRECT=0", "WEFT_TILE_BYTES=1000"},
                                                            {"WEFT_ALGO=rank_order"}};
    struct Shape {
        int ranks, hosts;
    };
    for (const auto& [ranks, hosts] : {Shape{2, 0}, {4, 0}, {4, 2}, {3, 3}, {7, 4}}) {
        if (small() && ranks > 4) continue;
        for (size_t i = 0; i < settings.size(); ++i) {
            if (i > 0 && (ranks != 4 || hosts > 0)) continue;  // what one host can choose among
            std::vector<std::string> variables = settings[i];
            variables.push_back("WEFT_DETERMINISTIC=1");
            const Ran ran = run_ranks(ranks, hosts, variables);
            CAPTURE(ranks, hosts, i);
            CHECK(ran.error == "");
            CHECK(ran.calls >= ranks * 6 * 14 * 5);
            CHECK(ran.differing == 0);
        }
    }
}

TEST_CASE("other algorithms give other bits, and are refused in deterministic mode", "[comm]") {
    for (const char* algo : {"WEFT_ALGO=ring", "WEFT_ALGO=halving_doubling"}) {
        const Ran ran = run_ranks(4, 0, {algo});
        CAPTURE(algo);
        CHECK(ran.error == "");
        CHECK(ran.differing > ran.calls / 8);
    }
    const Ran between = run_ranks(4, 2, {"WEFT_ALGO=two_level_ring"});
    CHECK(between.error == "");
    CHECK(between.differing > 0);
    const Ran refused = run_ranks(2, 0, {"WEFT_ALGO=ring", "WEFT_DETERMINISTIC=1"});
    CHECK_THAT(refused.error, Catch::Contains("ring: does not combine in rank order, as WEFT_DETERMINISTIC wants"));
}

TEST_CASE("the config of rank 0 makes all ranks deterministic, and explain names the excluded algorithms", "[comm]") {
    weftUniqueId id;
    REQUIRE(weftGetUniqueId(&id) == weftSuccess);
    std::string explained[3];
    RankOrderResult results[3];
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 3; ++rank)
        threads.emplace_back([&, rank] {
            weftConfig_t config = WEFT_CONFIG_INITIALIZER;
            if (rank == 0) config.deterministic = 1;
            weftComm_t comm = nullptr;
            if (weftCommInitRankConfig(&comm, 3, id, rank, &config) != weftSuccess) {
                results[rank].wrong = weftGetLastError(nullptr);
                return;
            }
            results[rank] = run_rank_order_calls(comm, seed(), 3000);
            char text[8192] = "";
            if (weftCommExplain(comm, 1000, weftFloat32, weftSum, text, sizeof text, nullptr) != weftSuccess)
                results[rank].wrong = weftGetLastError(comm);
            explained[rank] = text;
            (void)weftCommDestroy(comm);
        });
    for (std::thread& thread : threads) thread.join();
    INFO("seed " << seed());
    for (int rank = 0; rank < 3; ++rank) {
        CHECK(results[rank].wrong == "");
        CHECK(results[rank].calls > 0);
        CHECK(results[rank].differing == 0);
        CHECK_THAT(explained[rank],
                   Catch::Contains("out: does not combine in rank order, as WEFT_DETERMINISTIC wants"));
    }
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    config.deterministic = 2;
    weftComm_t comm = nullptr;
    CHECK(weftCommInitRankConfig(&comm, 1, id, 0, &config) == weftInvalidArgument);
    CHECK_THAT(weftGetLastError(nullptr), Catch::Contains("config.deterministic is 2; it is 0, 1 or undefined"));
    config = WEFT_CONFIG_INITIALIZER;
    config.maxBlocks = 65;
    CHECK(weftCommInitRankConfig(&comm, 1, id, 0, &config) == weftInvalidArgument);
    CHECK_THAT(weftGetLastError(nullptr), Catch::Contains("config.maxBlocks is 65; it is 1 to 64, or undefined"));
    config.maxBlocks = 8;
    config.minBlocks = 0;
    CHECK(weftCommInitRankConfig(&comm, 1, id, 0, &config) == weftInvalidArgument);
    CHECK_THAT(weftGetLastError(nullptr), Catch::Contains("config.minBlocks is 0; it is 1 to 64, or undefined"));
    config.minBlocks = 9;
    CHECK(weftCommInitRankConfig(&comm, 1, id, 0, &config) == weftInvalidArgument);
    CHECK_THAT(weftGetLastError(nullptr), Catch::Contains("config.minBlocks is 9, more than config.maxBlocks"));
    config = WEFT_CONFIG_INITIALIZER;
    config.launchOrderImplicit = 2;
    CHECK(weftCommInitRankConfig(&comm, 1, id, 0, &config) == weftInvalidArgument);
    CHECK_THAT(weftGetLastError(nullptr), Catch::Contains("config.launchOrderImplicit is 2; it is 0, 1 or undefined"));
}

}  // namespace weft::internal::test
