// leave_test.cpp: ranks that leave in order while others are in a call that does not need their data. Leaders go on
// forwarding for other hosts, and report what happens there.
#include "tests/hosts/spread_job.hpp"

using namespace weft::internal::test;

TEST_CASE("a rank that dies after its host's leader has left is named on other hosts", "[leave]") {
    // In a ring of no elements a rank waits only for the rank behind it, until that one has come.
    SpreadJob job(2, 2);
    const std::vector<std::string> variables = with(telling, {"WEFT_ALGO=ring", "WEFT_TIMEOUT_MS=60000"});
    // Rank 3 leads its host.
    job.start(3, {"init", "reduce=0", "destroy", "await"}, variables);
    REQUIRE(eventually([&] { return contains(job[0].error(), "this process leads the rendezvous"); }));
    job.start(2, {"init", "hold"}, variables);
    job.start(0, {"init", "reduce=0", "destroy"}, variables);
    job.start(1, {"init", "reduce=0", "async", "destroy"}, variables);
    for (const int process : {0, 2}) CHECK(job[process].says("destroy 0"));
    CHECK(job[1].says("init 0"));
    job.kill(1);
    CHECK(job[3].says("async 6"));
    INFO(job[3].output());
    CHECK(contains(job.answer(3, "reduce"), "rank 2 (pid " + std::to_string(job[1].pid()) + " on node1) died"));
    job[0].kill(SIGUSR1);
    job.finish();
}

TEST_CASE("the end of a process does not wait for ranks that have finished its calls", "[leave]") {
    // Host 9 is below host 1 in the tree.
    constexpr int hosts = 10, inner = 1;
    SpreadJob job(hosts, 1);
    for (int rank = 0; rank < hosts; ++rank) {
        Steps steps{"init", "reduce=100"};
        if (rank == inner)
            steps.push_back("destroy");
        else
            steps.insert(steps.end(), {"await", "destroy"});
        job.start(rank, steps, {quiet});
    }
    for (int rank = 0; rank < hosts; ++rank) CHECK(job[rank].says("reduce 0"));
    job.finish(inner);
    for (int rank = 0; rank < hosts; ++rank)
        if (rank != inner) {
            CHECK(job.answer(rank, "destroy") == "(no line)");
            job[rank].kill(SIGUSR1);
        }
    job.finish();
    for (int rank = 0; rank < hosts; ++rank) CHECK(job.answer(rank, "destroy") == "0");
}

TEST_CASE("a rank that goes on after its host's leader has exited is not reported as dead", "[leave]") {
    SpreadJob job(2, 2);
    // Rank 0, which comes first, leads. A message had gone from 1 to 2 before, so they need no leader any more.
    job.start(0, {"init", "reduce=10", "destroy", "vanish"}, telling);
    REQUIRE(eventually([&] { return contains(job[0].error(), "this process leads the rendezvous"); }));
    job.start(1, {"init", "send=10,2", "reduce=10", "sleep=2000", "send=10,2", "destroy"}, {quiet});
    job.start(2, {"init", "receive=10,1", "reduce=10", "receive=10,1", "destroy"}, {quiet});
    job.start(3, {"init", "reduce=10", "sleep=3000", "destroy"}, {quiet});
    job.finish();
    INFO(job.everything());
    CHECK(job.answer(0, "destroy") == "0");
    for (const char* call : {"send", "destroy"}) CHECK(job.answer(1, call) == "0");
    for (const char* call : {"receive", "destroy"}) CHECK(job.answer(2, call) == "0");
    CHECK(job.answer(3, "destroy") == "0");
}
