// random_programs_test.cpp: random programs of all ways to call, of ranks that are threads or processes, on one host
// and on several.
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include "tests/amount.hpp"
#include "tests/catch.hpp"
#include "tests/comm/random_programs.hpp"
#ifdef WEFT_COMMAND
#include "tests/subprocess.hpp"
#endif

namespace weft::internal::test {

TEST_CASE("random programs of threads are right", "[programs]") {
    for (const int ranks : {1, 2, 3, 5, 8}) {
        CAPTURE(seed(), ranks);
        std::vector<weftComm_t> comms{size_t(ranks)};
        REQUIRE(weftCommInitAll(comms.data(), ranks, nullptr) == weftSuccess);
        std::vector<std::string> wrong{size_t(ranks)};
        std::vector<std::thread> threads;
        for (int rank = 0; rank < ranks; ++rank)
            threads.emplace_back([&, rank] {
                const auto self = size_t(rank);
                wrong[self] =
                    run_random_program(comms[self], {seed() + uint32_t(ranks), small() ? 30 : 120, 20'000, false});
                (void)(wrong[self].empty() ? weftCommDestroy(comms[self]) : weftCommAbort(comms[self]));
            });
        for (std::thread& thread : threads) thread.join();
        for (const std::string& sentence : wrong) CHECK(sentence == "");
    }
}

#ifdef WEFT_COMMAND
TEST_CASE("random programs of processes are right, on one host and on several", "[programs]") {
    struct Shape {
        int hosts, ranks;
    };
    for (const auto& [hosts, ranks] : {Shape{0, 2}, {0, 4}, {0, 7}, {2, 4}, {3, 3}}) {
        CAPTURE(seed(), hosts, ranks);
        const ProcessResult outcome =
            run({WEFT_COMMAND, "run", "-n", std::to_string(ranks), WEFT_WORKER, std::to_string(seed()),
                 small() ? "15" : "60", "20000", std::to_string(hosts), "programs"},
                {"WEFT_TIMEOUT_MS=120000", "WEFT_WARN_MS=0"});
        CHECK(outcome.error == "");
        CHECK(outcome.status == 0);
    }
}
#endif

}  // namespace weft::internal::test
