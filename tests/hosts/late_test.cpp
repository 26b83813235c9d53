// late_test.cpp: ranks of other hosts that are alive and do not come, stopped or busy: warned of with where they are,
// waited for, named at the deadline; a stopped leader takes its host with it when the heartbeat is missed.
#include "tests/hosts/spread_job.hpp"

using namespace weft::test;

namespace {

// All call; the late one first waits to be signalled.
void start_waiting(SpreadJob& job, int late, const std::vector<std::string>& variables,
                   const std::string& call = "reduce=100") {
    const std::string later = job.another_id();
    for (int rank = 0; rank < job.ranks(); ++rank) {
        Steps steps{"init", "reduce=1"};
        if (rank == late) steps.push_back("await");
        steps.insert(steps.end(), {call, "async", "destroy", "id=" + later, "init", "reduce=5", "destroy"});
        job.start(rank, steps, variables);
    }
    CHECK(job[late].says("reduce 0"));
}

const std::vector<std::string> warning{"WEFT_WARN_MS=1500"};

}  // namespace

TEST_CASE("a rank of another host that computes is known to be outside Weft, which is no error", "[late]") {
    for (const int late : {0, 3}) {
        SpreadJob job(2, 2);
        start_waiting(job, late, warning);
        const std::string where = "rank " + std::to_string(late) + " " + job.pid_text(late);
        for (int rank = 0; rank < 4; ++rank) {
            if (rank == late) continue;
            CHECK(eventually([&] { return contains(job[rank].error(), "WARN waits since"); }));
            INFO(job[rank].error());
            CHECK(contains(job[rank].error(), where));
            CHECK(contains(job[rank].error(), "outside Weft, last operation 1"));
        }
        job[late].kill(SIGUSR1);
        job.finish();
        for (int rank = 0; rank < 4; ++rank) CHECK(job.answer(rank, "reduce") == "0");
    }
}

TEST_CASE("a stopped rank whose leader runs is said to be stopped; continued, the call succeeds", "[late]") {
    SpreadJob job(2, 2);
    const std::string later = job.another_id();
    for (int rank = 0; rank < 4; ++rank) {
        Steps steps{"init", "reduce=1", "await", "reduce=100", "async", "destroy"};
        job.start(rank, steps, with(telling, {"WEFT_WARN_MS=1500", "WEFT_HEARTBEAT_MS=500"}));
    }
    for (int rank = 0; rank < 4; ++rank) CHECK(job[rank].says("reduce 0"));
    const int stopped = job.leader_of(1) ^ 1;
    job[stopped].kill(SIGSTOP);
    for (int rank = 0; rank < 4; ++rank) job[rank].kill(SIGUSR1);
    for (int rank = 0; rank < 4; ++rank) {
        if (rank == stopped) continue;
        INFO(job[rank].error());
        CHECK(eventually([&] { return contains(job[rank].error(), "is stopped (SIGSTOP or a debugger)"); }));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // heartbeats go on
    job[stopped].kill(SIGCONT);
    job.finish();
    for (int rank = 0; rank < 4; ++rank) {
        CHECK(job.answer(rank, "reduce") == "0");
        CHECK(job.answer(rank, "async") == "0");
    }
}

TEST_CASE("at the deadline ranks of every host are told who is late", "[late]") {
    SpreadJob job(2, 2);
    const std::string deadline_ms = small() ? "8000" : "2000";
    start_waiting(job, 3, {"WEFT_TIMEOUT_MS=" + deadline_ms, quiet});
    for (int rank = 0; rank < 3; ++rank) CHECK(job[rank].says("reduce 8 "));
    job[3].kill(SIGUSR1);
    job.finish();
    for (int rank = 0; rank < 4; ++rank) {
        const std::string told = rank == 3 ? job[3].output() : job[rank].output();
        INFO(told);
        CHECK(contains(told, "the deadline (WEFT_TIMEOUT_MS) is " + deadline_ms + " ms"));
        CHECK(contains(told, "rank 3 " + job.pid_text(3)));
        CHECK(contains(told, "outside Weft, last operation 1"));
        CHECK(job.first_answer(rank, "async") == "8");
        CHECK(job.answer(rank, "reduce") == "0");
    }
}

TEST_CASE("a stopped leader is missed by the heartbeat, and told so when it goes on", "[late]") {
    SpreadJob job(3, 1);
    start_waiting(job, 1, {"WEFT_HEARTBEAT_MS=1000", quiet});
    job[1].kill(SIGSTOP);
    for (const int rank : {0, 2}) {
        CHECK(job[rank].says("reduce 6 "));
        INFO(job[rank].output());
        CHECK(contains(job.answer(rank, "reduce"), "host node1 "));
        CHECK(contains(job.answer(rank, "reduce"), "with rank 1"));
        CHECK(contains(job.answer(rank, "reduce"), "no sign of life"));
        CHECK(job[rank].says("async 6"));
    }
    job[1].kill(SIGUSR1);
    job[1].kill(SIGCONT);
    job.finish();
    INFO(job[1].output());
    // What the others found, not that they were silent while it was stopped itself.
    CHECK(contains(job[1].output(), "6 "));
    CHECK(!contains(job[1].output(), "host node0"));
    for (int rank = 0; rank < 3; ++rank) CHECK(job.answer(rank, "reduce") == "0");
}

TEST_CASE("ranks stopped for less than the heartbeat lose nothing", "[late]") {
    for (const char* loop :
         {small() ? "loop=10,500" : "loop=10,5000", small() ? "loop=1000000,5" : "loop=1000000,30"}) {
        SpreadJob job(2, 2);
        for (int rank = 0; rank < 4; ++rank) job.start(rank, {"init", loop, "destroy"}, {quiet});
        for (int rank = 0; rank < 4; ++rank) CHECK(job[rank].says("init 0"));
        for (int stop = 0; stop < 8; ++stop) {
            job[stop % 4].kill(SIGSTOP);
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            job[stop % 4].kill(SIGCONT);
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
        job.finish();
        for (int rank = 0; rank < 4; ++rank) CHECK(job.answer(rank, "loop") == "0");
    }
}
