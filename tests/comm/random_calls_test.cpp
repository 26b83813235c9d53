// random_calls_test.cpp: random sequences of collectives through the C interface, ranks being threads, processes, or
// all driven by one thread in a group; every result against the exact reference.
#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <random>
#include <regex>
#include <thread>
#include <vector>

#include "src/base/datatype.hpp"
#include "tests/amount.hpp"
#include "tests/catch.hpp"
#include "tests/comm/on_threads.hpp"
#include "tests/comm/random_calls.hpp"
#include "tests/reference/exact.hpp"
#ifdef WEFT_COMMAND
#include "tests/folder.hpp"
#include "tests/subprocess.hpp"
#endif

namespace weft::internal::test {
namespace {

// Of ranks that are late, which is no error.
const char* const no_warnings = "WEFT_WARN_MS=0";

// A communicator of `ranks` threads under an algorithm, or any.
void check_threads(int ranks, const char* algo, const Sequence& sequence) {
    CAPTURE(ranks, algo, sequence.seed);
    const auto wrong = on_threads(ranks, algo, [&](weftComm_t comm, int) {
        std::string sentence = run_random_calls(comm, sequence);
        if (!sentence.empty()) (void)weftCommAbort(comm);  // nobody shall wait for this rank
        return sentence;
    });
    for (const std::string& sentence : wrong) CHECK(sentence == "");
}

}  // namespace

TEST_CASE("random calls of threads are right under every algorithm", "[comm]") {
    std::cout << "seed " << seed() << std::endl;
    for (const int ranks : {1, 2, 3, 4, 5, 8})
        for (const char* algo :
             {"one_shot", "two_shot", "ring", "halving_doubling", "pat", "all_pairs", "linear,binomial_tree", ""})
            check_threads(ranks, algo, {seed() + uint32_t(ranks), small() ? 15 : 80, 40'000});
}

TEST_CASE("random calls of sixteen threads on few cores are right", "[comm]") {
    check_threads(16, "", {seed(), small() ? 5 : 40, 20'000});
}

TEST_CASE("several communicators in one process do not disturb each other", "[comm]") {
    std::string wrong[3][2];
    weftUniqueId ids[3];
    for (weftUniqueId& id : ids) REQUIRE(weftGetUniqueId(&id) == weftSuccess);
    std::vector<std::thread> threads;
    for (size_t job = 0; job < 3; ++job)
        for (size_t rank = 0; rank < 2; ++rank)
            threads.emplace_back([&, job, rank] {
                weftComm_t comm = nullptr;
                if (weftCommInitRank(&comm, 2, ids[job], int(rank)) != weftSuccess) {
                    wrong[job][rank] = weftGetLastError(nullptr);
                    return;
                }
                wrong[job][rank] = run_random_calls(comm, {seed() + uint32_t(job), small() ? 10 : 100, 20'000});
                (void)weftCommDestroy(comm);
            });
    for (std::thread& thread : threads) thread.join();
    INFO("seed " << seed());
    for (const auto& job : wrong)
        for (const std::string& sentence : job) CHECK(sentence == "");
}

TEST_CASE("one thread that drives all ranks in a group gets right results", "[comm]") {
    std::mt19937 random(seed());
    INFO("seed " << seed());
    for (const int ranks : {1, 2, 4, 7}) {
        std::vector<weftComm_t> comms{size_t(ranks)};
        REQUIRE(weftCommInitAll(comms.data(), ranks, nullptr) == weftSuccess);
        for (int round = 0; round < (small() ? 5 : 60); ++round) {
            // Two calls of each rank in one group, of different types.
            const size_t count = random() % (round % 8 == 0 ? 60'000 : 500);
            std::vector<reference::Bytes> inputs[2], outputs[2];
            const weftDataType_t types[2] = {weftDataType_t(random() % weftNumTypes),
                                             weftDataType_t(random() % weftNumTypes)};
            for (int call = 0; call < 2; ++call)
                for (int rank = 0; rank < ranks; ++rank) {
                    inputs[call].push_back(reference::whole(types[call], count, ranks, rank, random));
                    outputs[call].push_back(reference::Bytes(count * size_of(types[call]) + 1));
                }
            REQUIRE(weftGroupStart() == weftSuccess);
            for (int rank = 0; rank < ranks; ++rank)
                for (int call = 0; call < 2; ++call)
                    REQUIRE(weftAllReduce(inputs[call][size_t(rank)].data(), outputs[call][size_t(rank)].data(), count,
                                          types[call], weftSum, comms[size_t(rank)], nullptr) == weftSuccess);
            REQUIRE(weftGroupEnd() == weftSuccess);
            for (int call = 0; call < 2; ++call)
                for (int rank = 0; rank < ranks; ++rank)
                    REQUIRE(reference::first_wrong({types[call], weftSum, &inputs[call], nullptr},
                                                   outputs[call][size_t(rank)].data(), true) == count);
        }
        for (weftComm_t comm : comms) CHECK(weftCommDestroy(comm) == weftSuccess);
    }
}

#ifdef WEFT_COMMAND
TEST_CASE("random calls of processes are right, with every algorithm and every way to share buffers", "[comm]") {
    std::cout << "seed " << seed() << std::endl;
    const std::vector<std::vector<std::string>> settings = {
        {},
        {"WEFT_ALGO=one_shot", "WEFT_TILE_BYTES=4096"},
        {"WEFT_ALGO=one_shot", "WEFT_CROSS_MEMORY=1"},
        {"WEFT_ALGO=two_shot", "WEFT_CROSS_MEMORY=1"},
        {"WEFT_ALGO=two_shot", "WEFT_TILE_BYTES=4096", "WEFT_STREAMING_BYTES=0"},
        {"WEFT_ALGO=two_shot", "WEFT_DIRECT=0", "WEFT_TILE_BYTES=1000"},
        {"WEFT_ALGO=ring", "WEFT_CHANNELS=3", "WEFT_TILE_BYTES=8192"},
        {"WEFT_ALGO=ring", "WEFT_CROSS_MEMORY=1"},
        {"WEFT_ALGO=all_pairs,ring,linear", "WEFT_DIRECT=0"},
        {"WEFT_ALGO=all_pairs,ring,linear", "WEFT_TILE_BYTES=300000"},
        {"WEFT_CROSS_MEMORY=1"},
        {"WEFT_SLEEP_US=0", "WEFT_TILE_BYTES=16384"},
    };
    for (const int ranks : {2, 3, 4, 8})
        for (const std::vector<std::string>& variables : settings) {
            if (small() && (ranks == 8 || (variables.size() != 3 && ranks != 3))) continue;
            const uint32_t number = seed() + uint32_t(ranks);
            std::string shown;
            for (const std::string& variable : variables) shown += variable + " ";
            CAPTURE(ranks, number, shown);
            std::vector<std::string> all = variables;
            all.push_back(no_warnings);
            const ProcessResult outcome = run({WEFT_COMMAND, "run", "-n", std::to_string(ranks), WEFT_WORKER,
                                               std::to_string(number), small() ? "10" : "40", "30000", "0"},
                                              all);
            CHECK(outcome.error == "");
            CHECK(outcome.status == 0);
            for (int rank = 0; rank < ranks; ++rank)
                CHECK_THAT(outcome.output, Catch::Contains("rank " + std::to_string(rank) + " is content"));
        }
}

TEST_CASE("random calls of processes are right under a user's algorithms", "[comm]") {
    std::cout << "seed " << seed() << std::endl;
    const int ranks = 4;
    const Folder folder;
    std::string files;
    const auto add = [&](const std::string& algorithm, const std::string& collective, int root,
                         const std::string& bytes) {
        std::vector<std::string> show = {WEFT_COMMAND,          "schedule",     "show",    algorithm, "-n",
                                         std::to_string(ranks), "--collective", collective};
        if (root >= 0) show.insert(show.end(), {"--root", std::to_string(root)});
        const ProcessResult shown = run(show);
        REQUIRE(shown.status == 0);
        std::string text = std::regex_replace(shown.output, std::regex("schedule " + algorithm), "schedule mine");
        if (!bytes.empty())
            text = std::regex_replace(text, std::regex("(schedule .*?)( board.*)?\n"), "$1 bytes " + bytes + "$2\n");
        const std::string path = folder.path / fmt::format("{}_{}_{}.txt", algorithm, collective, root);
        std::ofstream(path) << text;
        files += (files.empty() ? "" : ":") + path;
    };
    add("two_shot", "all_reduce", -1, "0 to 20000");
    add("halving_doubling", "all_reduce", -1, "20001");
    add("pat", "all_gather", -1, "100");
    add("halving_doubling", "reduce_scatter", -1, "");
    add("one_shot", "all_to_all", -1, "");
    add("dissemination", "barrier", -1, "");
    for (int root = 0; root < ranks; root += 2) {
        add("binomial_tree", "broadcast", root, "");
        add("linear", "gather", root, "");
    }
    const std::vector<std::string> variables = {"WEFT_ALGO_FILES=" + files, "WEFT_DEBUG=INFO", "WEFT_DEBUG_SUBSYS=ALGO",
                                                no_warnings};
    const ProcessResult outcome = run({WEFT_COMMAND, "run", "-n", std::to_string(ranks), WEFT_WORKER,
                                       std::to_string(seed()), small() ? "15" : "100", "30000", "0"},
                                      variables);
    INFO("seed " << seed());
    CHECK(outcome.status == 0);
    // It is what ran: all-reduces of any size.
    CHECK_THAT(outcome.error, Catch::Contains(": mine over shm, as WEFT_ALGO_FILES says"));
}

TEST_CASE("random calls of ranks on several hosts are right under every algorithm", "[comm][hosts]") {
    std::cout << "seed " << seed() << std::endl;
    const std::vector<std::string> everything = {"",
                                                 "ring",
                                                 "recursive_doubling",
                                                 "halving_doubling",
                                                 "pat",
                                                 "double_binary_tree",
                                                 "two_level_ring",
                                                 "two_level_tree",
                                                 "two_level_halving_doubling",
                                                 "two_level_doubling",
                                                 "leader_doubling",
                                                 "rail_tree",
                                                 "rail_ring",
                                                 "rail_all_pairs,rail_binomial_tree",
                                                 "rail_halving_doubling",
                                                 "rail_doubling",
                                                 "all_pairs",
                                                 "rank_order",
                                                 "leader_halving_doubling,leader_binomial_tree,two_level_all_pairs",
                                                 "leader_all_pairs",
                                                 "scatter_all_gather,bruck",
                                                 "linear",
                                                 "binomial_tree"};
    struct Shape {
        int hosts, ranks;
    };
    for (const auto& [hosts, ranks] : {Shape{2, 2}, {3, 3}, {2, 4}, {3, 5}, {2, 7}, {4, 8}, {8, 8}}) {
        if (small() && ranks > 4) continue;
        for (const std::string& algo : everything) {
            const auto wants_two_levels = [&](const char* beginning) { return algo.rfind(beginning, 0) == 0; };
            if (hosts == ranks &&
                (wants_two_levels("two_level") || wants_two_levels("leader") || wants_two_levels("rail")))
                continue;
            const uint32_t number = seed() + uint32_t(ranks);
            CAPTURE(hosts, ranks, number, algo);
            // A rank that is slow is not dead.
            std::vector<std::string> variables = {"WEFT_TIMEOUT_MS=120000", no_warnings};
            if (!algo.empty()) variables.push_back("WEFT_ALGO=" + algo);
            if (ranks % 2 == 1) variables.push_back("WEFT_TILE_BYTES=10000");
            const ProcessResult outcome =
                run({WEFT_COMMAND, "run", "-n", std::to_string(ranks), WEFT_WORKER, std::to_string(number),
                     small() ? "8" : "25", "60000", std::to_string(hosts)},
                    variables);
            CHECK(outcome.error == "");
            CHECK(outcome.status == 0);
        }
    }
}
#endif

}  // namespace weft::internal::test
