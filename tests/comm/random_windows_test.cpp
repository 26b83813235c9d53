// random_windows_test.cpp: random one-sided calls of ranks that are threads, processes, or all driven by one thread.
// The memory is mapped, copied by CMA, or reached by its owner only.
#include <iostream>
#include <thread>

#include "tests/amount.hpp"
#include "tests/catch.hpp"
#include "tests/comm/on_threads.hpp"
#include "tests/comm/random_windows.hpp"
#include "tests/subprocess.hpp"

namespace weft::internal::test {
TEST_CASE("random one-sided calls of threads leave every window as the model has it", "[windows][threads]") {
    std::cout << "seed " << seed() << std::endl;
    for (const int ranks : {1, 2, 3, 5, 8}) {
        if (small() && ranks > 3) continue;
        CAPTURE(ranks, seed());
        for (const std::string& wrong : on_threads(ranks, nullptr, [&](weftComm_t comm, int) {
                 return run_random_windows(comm, {seed(), small() ? 8 : 24, 100'000});
             }))
            CHECK(wrong == "");
    }
}

TEST_CASE("one thread that drives all ranks in a group gets their one-sided calls through", "[windows][threads]") {
    INFO("seed " << seed());
    for (const int ranks : {1, 2, 4, 7}) {
        if (small() && ranks > 4) continue;
        std::vector<weftComm_t> comms{size_t(ranks)};
        REQUIRE(weftCommInitAll(comms.data(), ranks, nullptr) == weftSuccess);
        CHECK(run_random_windows_of_all(comms, {seed(), small() ? 6 : 20, 100'000}) == "");
        for (weftComm_t comm : comms) CHECK(weftCommDestroy(comm) == weftSuccess);
    }
}

#ifdef WEFT_COMMAND
namespace {

void check_processes(int ranks, int hosts, const std::vector<std::string>& variables) {
    std::string shown;
    for (const std::string& variable : variables) shown += variable + " ";
    CAPTURE(ranks, hosts, seed(), shown);
    std::vector<std::string> all = variables;
    // A rank that is slow is not dead.
    all.insert(all.end(), {"WEFT_WARN_MS=0", "WEFT_TIMEOUT_MS=120000"});
    const ProcessResult outcome =
        run({WEFT_COMMAND, "run", "-n", std::to_string(ranks), WEFT_WORKER, std::to_string(seed()),
             small() ? "6" : "18", "100000", std::to_string(hosts), "windows"},
            all);
    CHECK(outcome.error == "");
    CHECK(outcome.status == 0);
    for (int rank = 0; rank < ranks; ++rank)
        CHECK_THAT(outcome.output, Catch::Contains("rank " + std::to_string(rank) + " is content"));
}

}  // namespace

TEST_CASE("random one-sided calls of processes are right on any path to the memory", "[windows]") {
    std::cout << "seed " << seed() << std::endl;
    // Mapped or copied by the kernel; the kernel alone; one's own process alone; asleep as soon as possible.
    for (const std::vector<std::string>& variables : {std::vector<std::string>{},
                                                      {"WEFT_DIRECT=0"},
                                                      {"WEFT_CROSS_MEMORY=0"},
                                                      {"WEFT_DIRECT=0", "WEFT_CROSS_MEMORY=0"},
                                                      {"WEFT_SLEEP_US=0"}})
        check_processes(small() ? 2 : 4, 0, variables);
}

TEST_CASE("random one-sided calls between hosts are right", "[windows]") {
    std::cout << "seed " << seed() << std::endl;
    check_processes(2, 2, {});
    if (!small()) check_processes(5, 3, {});
}
#endif

}  // namespace weft::internal::test
