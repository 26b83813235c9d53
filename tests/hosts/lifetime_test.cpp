// lifetime_test.cpp: communicators over several hosts that come and go, unused unique ids, and children after fork:
// nothing leaks and no rank is disturbed.
#include "tests/hosts/spread_job.hpp"

using namespace weft::internal::test;

namespace {

// Descriptors, threads and segments, as the worker's step `holds` printed them for the n-th time.
std::vector<int> held(Job& job, int process, int index) {
    for (const std::string& line : lines_of(job[process].output()))
        if (line.rfind("holds ", 0) == 0 && index-- == 0) {
            std::stringstream words(line.substr(6));
            std::vector<int> numbers(3);
            for (int& number : numbers) words >> number;
            return numbers;
        }
    return {};
}

}  // namespace

TEST_CASE("hundreds of communicators over two hosts, one after the other, leave nothing", "[lifetime]") {
    const int times = small() ? 20 : 200;
    SpreadJob job(2, 2);
    for (int rank = 0; rank < 4; ++rank)
        job.start(rank,
                  {"init", "churn=5,1000", "sleep=300", "holds", "churn=" + std::to_string(times) + ",1000",
                   "churn=20,0", "holds=2,0,0", "async", "destroy"},
                  {quiet});
    job.finish();
    for (int rank = 0; rank < 4; ++rank) {
        INFO(job[rank].output());
        CHECK(job.answer(rank, "churn") == "0");
        CHECK(job.answer(rank, "async") == "0");
        const std::vector<int> before = held(job, rank, 0), after = held(job, rank, 1);
        REQUIRE(after.size() == 3);
        // A connection that is just being closed may count once.
        CHECK(after[0] <= before[0] + 2);
        CHECK(after[1] <= before[1]);
        CHECK(after[2] <= before[2]);
    }
}

TEST_CASE("communicators of one host leave no listener open and no thread", "[lifetime]") {
    Job job(2);
    for (int rank = 0; rank < 2; ++rank)
        job.start(rank, {"init", "holds", "churn=20,1000", "holds=10,1,0", "async", "destroy"}, {quiet});
    job.finish();
    for (int rank = 0; rank < 2; ++rank) {
        INFO(job[rank].output());
        CHECK(job.answer(rank, "churn") == "0");
        const std::vector<int> before = held(job, rank, 0), after = held(job, rank, 1);
        REQUIRE(after.size() == 3);
        // The root of the last may not have ended yet, if its ranks were slow to meet.
        CHECK(after[0] <= before[0] + 10);
        CHECK(after[1] <= before[1] + 1);
        CHECK(after[2] <= before[2]);
    }
}

TEST_CASE("thousands of unused unique ids cost a bounded amount, and the last ones work", "[lifetime]") {
    Job job(2);
    job.use_id("make");
    job.start(0,
              {"make_ids=1", "holds", "make_ids=3000", "holds", "make_later", "id=later", "say=made", "init",
               "reduce=1000", "destroy"},
              {"WEFT_HOSTID=node0"});
    CHECK(job[0].says("made"));
    job.use_id(job.answer(0, "later"));
    job.start(1, {"init", "reduce=1000", "destroy"}, {quiet, "WEFT_HOSTID=node1"});
    job.finish();
    CHECK(job.answer(0, "make_ids") == "0");
    CHECK(held(job, 0, 0) == held(job, 0, 1));
    CHECK(contains(job[0].error(), "unique ids that no rank has used"));
    for (int rank = 0; rank < 2; ++rank) CHECK(job.answer(rank, "reduce") == "0");
}

#if !WEFT_TEST_TSAN  // which ends a program that forks and goes on
TEST_CASE("children after fork may not use the parents' communicator, make their own, and end as they like",
          "[lifetime]") {
    for (const char* way : {"exit", "vanish"}) {
        SpreadJob job(2, 1);
        for (int rank = 0; rank < 2; ++rank)
            job.start(rank,
                      {"init", "reduce=100000", std::string("fork=") + way, "reduce=100000", "loop=10,300", "async",
                       "destroy"},
                      {quiet});
        job.finish();
        for (int rank = 0; rank < 2; ++rank) {
            INFO(job[rank].output());
            CHECK(contains(job.answer(rank, "child_reduce"), "the communicator was made before fork()"));
            for (const char* call : {"child_init", "child_own_reduce", "child_ended", "reduce", "loop", "async"})
                CHECK(job.answer(rank, call) == "0");
        }
    }
}

TEST_CASE("children of all ranks make a communicator over the hosts beside their parents'", "[lifetime]") {
    SpreadJob job(2, 2);
    const std::string another = job.another_id();
    for (int rank = 0; rank < 4; ++rank)
        job.start(rank, {"init", "reduce=1000", "fork_job=" + another, "reduce=1000", "async", "destroy"}, {quiet});
    job.finish();
    for (int rank = 0; rank < 4; ++rank) {
        INFO(job[rank].output());
        for (const char* call : {"child_init", "child_sum", "child_end", "child_ended", "reduce", "async"})
            CHECK(job.answer(rank, call) == "0");
    }
}
#endif

TEST_CASE("a child that lives on does not keep its dead parent's hosts waiting", "[lifetime]") {
#if !WEFT_TEST_TSAN
    // A host that is not given a processor while they meet is missed as well.
    CHECK(with_growing_limit(1500, [](int64_t heartbeat_ms) {
              const std::string limit = "WEFT_HEARTBEAT_MS=" + std::to_string(heartbeat_ms);
              SpreadJob job(2, 1);
              job.start(0, {"init", "fork=stay", "hold"}, {quiet, limit});
              job.start(1, {"init", "say=calls", "reduce=100", "async", "destroy"}, {quiet, limit});
              CHECK(job[0].says("alloc 0"));
              job.kill(0);
              CHECK(job[1].says("async "));
              const bool told = job.answer(1, "async") == "6" && job.names(job.answer(1, "reduce"), 0);
              const pid_t child = pid_t(atoi(job.answer(0, "child").c_str()));
              REQUIRE(child > 1);
              ::kill(child, SIGKILL);
              job.finish();
              return told ? "" : job.everything();
          }) == "");
#endif
}
