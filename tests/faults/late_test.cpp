// late_test.cpp: ranks that are alive and do not come: warned of, waited for, named at the deadline.
#include "tests/faults/job.hpp"
#include "tests/faults/job_clock.hpp"

using namespace weft::internal::test;

namespace {

// All have made a first call. They make the next when they are signalled, rank 2 perhaps later.
void start_waiting(Job& job, const std::vector<std::string>& variables, const std::string& call = "reduce=100") {
    const std::string later = job.another_id();
    for (int rank = 0; rank < 3; ++rank)
        job.start(rank,
                  {"init", "reduce=1", "await", call, "async", "destroy", "id=" + later, "init", "reduce=5", "destroy"},
                  variables);
    for (int rank = 0; rank < 3; ++rank) CHECK(job[rank].says("reduce "));
}
void go_on(Job& job, const std::vector<int>& ranks) {
    for (const int rank : ranks) job[rank].kill(SIGUSR1);
}
void stop(Subprocess& process) {
    process.kill(SIGSTOP);
    CHECK(eventually([&] { return process_state(process.pid()) == 'T'; }));
}

// Whether the process sleeps at 20 looks in a row.
bool is_waiting(int pid) {
    for (int look = 0; look < 20; ++look) {
        if (process_state(pid) != 'S') return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
}

}  // namespace

TEST_CASE("a rank that waits for a stopped one warns; if that continues in time, the call succeeds", "[late]") {
    Job job(3);
    start_waiting(job, {"WEFT_WARN_MS=50"});
    stop(job[2]);
    go_on(job, {0, 1});
    const std::string expected = "rank 2 (pid " + std::to_string(job[2].pid()) +
                                 ") is stopped (SIGSTOP or a debugger), outside Weft, last operation 1";
    for (const int rank : {0, 1}) {
        CHECK(eventually([&] { return contains(job[rank].error(), expected); }));
        CHECK(contains(job[rank].error(), "WARN waits since"));
    }
    go_on(job, {2});
    job[2].kill(SIGCONT);
    job.finish();
    for (int rank = 0; rank < 3; ++rank) {
        CHECK(job.first_answer(rank, "async") == "0");
        CHECK(job.answer(rank, "reduce") == "0");
    }
}

TEST_CASE("a rank that computes is alive and outside Weft, which is no error", "[late]") {
    Job job(3);
    start_waiting(job, {"WEFT_WARN_MS=50"});
    go_on(job, {0, 1});
    const std::string expected =
        "rank 2 (pid " + std::to_string(job[2].pid()) + ") is alive, outside Weft, last operation 1";
    for (const int rank : {0, 1}) CHECK(eventually([&] { return contains(job[rank].error(), expected); }));
    go_on(job, {2});
    job.finish();
    for (int rank = 0; rank < 3; ++rank) CHECK(job.answer(rank, "reduce") == "0");
}

TEST_CASE("a rank that waits for a busy one learns its call, and since when", "[late]") {
    struct Elsewhere {
        const char *late, *partner;  // what rank 2 does in place of a call, and rank 1 when it is to go on
        const char* awaited;         // in rank 2's own warning
        const char* told;
    };
    const Elsewhere everything[] = {
        {"receive=10,1", "send=10,2", "s for messages", "is alive, waits for a message of rank 1 (weftRecv) since "},
        {"send=5000000,1", "receive=5000000,2", "s for messages",
         "is alive, waits for rank 1 to take a message (weftSend) since "},
        {"wait=1", "signal=2", "s for one-sided calls",
         "is alive, waits for signals of rank 1 (weftWaitSignal) since "}};
    for (const bool apart : {false, true})
        for (const bool first : {true, false})
            for (const Elsewhere& elsewhere : everything) {
                if (small() && apart == first) continue;
                INFO(elsewhere.late << (apart ? " between hosts" : "") << (first ? ", no collective before" : ""));
                const bool window =
                    std::string(elsewhere.late).rfind("wait", 0) == 0;  // its registration is a collective
                const auto attempt = [&](int64_t warn_ms) -> std::string {
                    Job job(3);
                    for (int rank = 0; rank < 3; ++rank) {
                        Steps steps{"init"};
                        if (window) steps.push_back("window=4");
                        if (!first) steps.push_back("reduce=1");
                        if (rank == 0) steps.insert(steps.end(), {"say=here", "await"});
                        if (rank == 1) steps.insert(steps.end(), {"say=here", "await", elsewhere.partner});
                        if (rank == 2) steps.push_back(elsewhere.late);
                        steps.insert(steps.end(), {"reduce=100", "destroy"});
                        job.start(rank, steps,
                                  {"WEFT_WARN_MS=" + std::to_string(rank == 0 ? warn_ms : 50),
                                   apart ? "WEFT_HOSTID=node" + std::to_string(rank) : "WEFT_HOSTID="});
                    }
                    for (const int rank : {0, 1}) CHECK(job[rank].says("here"));
                    // A warning is given once, so rank 0 enters the collective only when rank 2 has waited for long.
                    CHECK(eventually([&] { return contains(job[2].error(), elsewhere.awaited); }));
                    go_on(job, {0});
                    CHECK(eventually([&] { return contains(job[0].error(), "all_reduce of 100 "); }));
                    const std::string warned = job[0].error();
                    go_on(job, {1});
                    job.finish();
                    for (int rank = 0; rank < 3; ++rank) CHECK(job.answer(rank, "reduce") == "0");
                    bool as_expected = contains(warned, "rank 2 (pid " + std::to_string(job[2].pid())) &&
                                       contains(warned, elsewhere.told);
                    if (first && !window) as_expected &= contains(warned, ", has called no collective yet");
                    if (!first) as_expected &= contains(warned, ", last operation ");
                    return as_expected ? "" : job.everything() + warned;
                };
                // Between hosts the health of rank 2 must come before the warning.
                CHECK((apart ? with_growing_limit(1000, attempt) : attempt(50)) == "");
            }
}

TEST_CASE("a rank is not reported as waiting for data that has come", "[late]") {
    Job job(3);
    for (int rank = 0; rank < 3; ++rank)
        job.start(rank,
                  {"init", "reduce=1", rank == 2 ? "receive=10,1" : "say=here", rank == 2 ? "say=on" : "await",
                   rank == 1 ? "send=10,2" : "say=on", rank == 2 ? "await" : "say=on", "reduce=100", "destroy"},
                  {"WEFT_WARN_MS=100"});
    // Rank 0 warns once, so it enters the collective only when rank 2 has waited for long.
    CHECK(eventually([&] { return contains(job[2].error(), "s for messages"); }));
    go_on(job, {0});
    CHECK(eventually([&] { return contains(job[0].error(), "waits for a message of rank 1 (weftRecv) since "); }));
    go_on(job, {1});
    CHECK(job[2].says("receive 0"));
    // Rank 1 comes to the collective only now, and warns of rank 2.
    CHECK(eventually([&] { return contains(job[1].error(), "is alive, outside Weft, last operation 1"); }));
    CHECK(!contains(job[1].error(), "waits for a message"));
    go_on(job, {2});
    job.finish();
    for (int rank = 0; rank < 3; ++rank) CHECK(job.answer(rank, "reduce") == "0");
}

TEST_CASE("an open group of a rank is named by the ranks that wait for its calls", "[late]") {
    for (const bool apart : {false, true})
        for (const int calls : {1, 3}) {
            Job job(2);
            const std::vector<std::string> variables{"WEFT_WARN_MS=100", "WEFT_JOIN_BYTES=0"};
            for (int rank = 0; rank < 2; ++rank) {
                Steps steps{"init", "reduce=1"};
                if (rank == 1) steps.push_back("held_group=" + std::to_string(calls));
                if (rank == 0) steps.insert(steps.end(), size_t(calls), "reduce=1");
                steps.insert(steps.end(), {"reduce=100", "destroy"});
                auto own = variables;
                if (apart) own.push_back("WEFT_HOSTID=node" + std::to_string(rank));
                job.start(rank, steps, own);
            }
            CHECK(job[1].says("held"));
            const std::string many = calls == 1 ? "holds 1 call in" : "holds 3 calls in";
            const std::string told = ") is alive, " + many + " an open group since ";
            CHECK(eventually([&] { return contains(job[0].error(), told); }));
            CHECK(contains(job[0].error(), "s: weftGroupEnd is missing, last operation 1"));
            go_on(job, {1});
            job.finish();
            for (int rank = 0; rank < 2; ++rank) CHECK(job.answer(rank, "reduce") == "0");
            CHECK(job.answer(1, "group") == "0");
        }
}

TEST_CASE("at the deadline every running rank names the late one", "[late]") {
    for (const char* call : {"reduce=100", "reduce=500000"}) {
        JobClock clock;
        Job job(3);
        // The next communicator waits for the stopped rank, and has no deadline meanwhile.
        start_waiting(job, clock.variables({"WEFT_TIMEOUT_MS=600000", "WEFT_INIT_TIMEOUT_MS=0", quiet}), call);
        stop(job[2]);
        go_on(job, {0, 1});
        for (const int rank : {0, 1})
            CHECK(eventually([&] {
                if (contains(job[rank].output(), "async ")) return true;
                clock.advance(601);  // again: the rank may not have been in its call before
                return false;
            }));
        go_on(job, {2});
        job[2].kill(SIGCONT);
        job.finish();
        INFO(job.everything());
        for (int rank = 0; rank < 3; ++rank) {
            // If the clock advances before both have entered the call, the sentence names the other one first.
            CHECK(contains(job[rank].output(), "the deadline (WEFT_TIMEOUT_MS) is 600000 ms: "));
            CHECK(contains(job[rank].output(), "rank 2 (pid " + std::to_string(job[2].pid()) + ") is stopped"));
            CHECK(job.first_answer(rank, "reduce") == "0");
            CHECK(job.first_answer(rank, "async") == "8");
            CHECK(job.answer(rank, "init") == "0");
            CHECK(job.answer(rank, "reduce") == "0");
        }
    }
}

TEST_CASE("ranks stopped and continued in the middle of calls lose nothing", "[late]") {
    for (const char* loop :
         {small() ? "loop=10,1000" : "loop=10,20000", small() ? "loop=1000000,5" : "loop=1000000,60"})
        for (const bool shared : {false, true}) {
            INFO(loop << (shared ? " in mappable memory" : ""));
            Job job(3);
            for (int rank = 0; rank < 3; ++rank) {
                Steps steps{"init", loop, "destroy"};
                if (shared) steps.insert(steps.begin(), "shared");
                job.start(rank, steps, {quiet});
            }
            for (int rank = 0; rank < 3; ++rank) CHECK(job[rank].says("init 0"));
            for (int stop = 0; stop < 6; ++stop) {
                job[stop % 3].kill(SIGSTOP);
                std::this_thread::sleep_for(std::chrono::milliseconds(10));
                job[stop % 3].kill(SIGCONT);
                std::this_thread::sleep_for(std::chrono::milliseconds(2));
            }
            job.finish();
            for (int rank = 0; rank < 3; ++rank) CHECK(job.answer(rank, "loop") == "0");
        }
}

TEST_CASE("a rank killed while stopped is dead, not late", "[late]") {
    Job job(3);
    start_waiting(job, {quiet});
    stop(job[2]);
    go_on(job, {0, 1});
    job.kill(2);
    // The survivors' new communicator has three ranks: another process takes the place.
    for (const int rank : {0, 1})
        CHECK(job[rank].says("reduce 6 rank 2 (pid " + std::to_string(job[2].pid()) +
                             ") died outside Weft after operation 1"));
    job.kill(0);
    job.kill(1);
    job.finish();
}

TEST_CASE("a user's reduction that does not return is named at the deadline, with its rank", "[late]") {
    // By the flag block the others wait for rank 2, in the ring some for each other. A message of several tiles: in its only
    // one rank 2 would find that all else is there, and return success.
    for (const char* algo : {"WEFT_ALGO=two_shot", "WEFT_ALGO=ring"}) {
        JobClock clock;
        Job job(4);
        for (int rank = 0; rank < 4; ++rank)
            job.start(rank, {"init", "reduce=1", rank == 2 ? "await" : "say=here", "function=3000000,2", "async"},
                      clock.variables({"WEFT_TIMEOUT_MS=600000", quiet, algo}));
        // The clock moves when all are in the call: a rank that comes later is the late one.
        for (const int rank : {0, 1, 3}) {
            CHECK(job[rank].says("here"));
            CHECK(eventually([&] { return is_waiting(job[rank].pid()); }));
        }
        job[2].kill(SIGUSR1);
        CHECK(job[2].says("in the function"));
        for (const int rank : {0, 1, 3})
            CHECK(eventually([&] {
                if (contains(job[rank].output(), "function 8 ")) return true;
                clock.advance(601);
                return false;
            }));
        job[2].kill(SIGUSR1);
        job.finish();
        INFO(job.everything());
        const std::string culprit =
            "rank 2 (pid " + std::to_string(job[2].pid()) + ") is alive, in the function of a user's reduction since ";
        for (int rank = 0; rank < 4; ++rank) CHECK(contains(job[rank].output(), culprit));
    }
}
