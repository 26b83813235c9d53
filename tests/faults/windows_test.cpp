// windows_test.cpp: one-sided calls whose peer stands still, is late, dies or leaves. Reachable memory needs no peer, a
// waiting rank names the missing one, and every rank lives. On one host, with any access to the memory, and between
// hosts.
#include "tests/faults/job.hpp"
#include "tests/patience.hpp"

using namespace weft::internal::test;

namespace {

// The hosts that the ranks believe to be on, and the memory of their windows.
struct Where {
    const char* name;
    bool apart, shared;
    const char* variable;
};
constexpr Where mapped = {"mapped memory", false, true, ""}, copied = {"copied by the kernel", false, false, ""},
                asked = {"asked of its owner", false, false, "WEFT_CROSS_MEMORY=0"},
                remote = {"on two hosts", true, false, ""};

void start(Job& job, const Where& where, int rank, Steps steps, std::vector<std::string> variables = {}) {
    if (where.apart) variables.push_back("WEFT_HOSTID=node" + std::to_string(rank));
    if (*where.variable) variables.push_back(where.variable);
    variables.push_back(quiet);
    Steps all;
    if (where.shared) all.push_back("shared");
    all.insert(all.end(), {"init", "window"});
    all.insert(all.end(), steps.begin(), steps.end());
    job.start(rank, all, variables);
}

}  // namespace

TEST_CASE("a put and a get where the memory is reached need nothing of a peer that stands still", "[windows]") {
    for (const Where& where : {mapped, copied}) {
        INFO(where.name);
        Job job(2);
        start(job, where, 0,
              {"say=ready", "await", "put=400000,1", "get=400000,1", "signal=1", "end_window", "destroy"});
        start(job, where, 1, {"say=ready", "await", "wait=0,2,400000", "end_window", "destroy"});
        for (int rank = 0; rank < 2; ++rank) CHECK(job[rank].says("ready"));
        job[1].kill(SIGSTOP);
        job[0].kill(SIGUSR1);
        CHECK(job[0].says("signal 0"));
        CHECK(contains(job[0].output(), "put 0"));
        CHECK(contains(job[0].output(), "got 1"));
        job[1].kill(SIGUSR1);
        job[1].kill(SIGCONT);
        job.finish();
        CHECK(contains(job[1].output(), "wait 0"));
        CHECK(contains(job[1].output(), "there 1"));
    }
}

TEST_CASE("a peer that is asked for its memory does it inside any call", "[windows]") {
    for (const Where& where : {asked, remote}) {
        INFO(where.name);
        Job job(2);
        start(job, where, 0, {"put=400000,1", "get=400000,1", "reduce=10", "end_window", "destroy"});
        // An all-reduce that the other comes to later.
        start(job, where, 1, {"reduce=10", "wait=0,1,400000", "end_window", "destroy"});
        job.finish();
        INFO(job.everything());
        CHECK(contains(job[0].output(), "put 0"));
        CHECK(contains(job[0].output(), "got 1"));
        CHECK(contains(job[1].output(), "there 1"));
        for (int rank = 0; rank < 2; ++rank) CHECK(job.answer(rank, "reduce") == "0");
    }
}

TEST_CASE("a signal that does not come is named at the deadline", "[windows]") {
    for (const Where& where : {mapped, remote})
        CHECK(
            with_growing_limit(500, [&](int64_t limit_ms) {
                INFO(where.name);
                Job job(2);
                const std::vector<std::string> limit{"WEFT_TIMEOUT_MS=" + std::to_string(limit_ms)};
                start(job, where, 0, {"reduce=1", "wait=1,3", "async", "end_window", "destroy"}, limit);
                start(job, where, 1, {"signal=0", "reduce=1", "await", "async=failed", "end_window", "destroy"}, limit);
                CHECK(job[0].says("wait "));
                job[1].kill(SIGUSR1);
                job.finish();
                const std::string answer = job.answer(0, "wait");
                const bool right =
                    answer.rfind("8 ", 0) == 0 &&
                    contains(answer, "has sent 1 of the 3 signals with index 0 and context 0 that rank 0 waits for") &&
                    contains(answer, "rank 1 (pid " + std::to_string(job[1].pid())) && job.answer(1, "async") == "8" &&
                    job.answer(0, "end_window") == "0" && job.answer(1, "end_window") == "0";
                return right ? "" : job.everything();
            }) == "");
}

TEST_CASE("a peer that dies or leaves is an error of ranks that wait for its signal, and of a get from it",
          "[windows]") {
    for (const Where& where : {mapped, copied, remote})
        for (const char* step : {"wait=1", "get=300000,1"})
            for (const bool dies : {true, false}) {
                // Mapped memory stays readable.
                if (std::string(step) != "wait=1" && !where.apart && dies && where.shared) continue;
                INFO(step << ' ' << where.name << (dies ? ", dies" : ", leaves"));
                Job job(2);
                const std::string call = std::string(step).substr(0, std::string(step).find('='));
                start(job, where, 0,
                      {"put=5,1", "reduce=1", "say=ready", "await", step, "async", "end_window", "destroy"});
                start(job, where, 1, {"wait=0", "reduce=1", "say=ready", "await", "destroy"});
                for (int rank = 0; rank < 2; ++rank) CHECK(job[rank].says("ready"));
                if (dies)
                    job.kill(1);
                else
                    job[1].kill(SIGUSR1);
                if (!dies) CHECK(job[1].says("destroy "));
                job[0].kill(SIGUSR1);
                job.finish();
                const std::string answer = job.answer(0, call);
                INFO(job.everything());
                CHECK(answer.rfind("6 ", 0) == 0);
                CHECK(contains(answer, "rank 1"));
                CHECK(job.answer(0, "async") == "6");
                CHECK(job.answer(0, "end_window") == "0");
                CHECK(job.answer(0, "destroy") == "0");
            }
}

TEST_CASE("a rank that serves a polling rank fails at the deadline of what it waits for itself", "[windows]") {
    for (const Where& where : {asked, remote})
        for (const std::string step : {"wait=1", "get=1,1", "reduce=1"})
            CHECK(with_growing_limit(500, [&](int64_t limit_ms) {
                      INFO(where.name << ", " << step);
                      Job job(3);
                      const std::vector<std::string> limit{"WEFT_TIMEOUT_MS=" + std::to_string(limit_ms)};
                      // The links of all ranks are there before rank 1 is stopped.
                      start(job, where, 0, {"get=1,1", "reduce=1", "say=ready", "wait=2", step, "destroy"}, limit);
                      start(job, where, 1, {"reduce=1", "say=ready", "await", "destroy"}, limit);
                      start(job, where, 2, {"reduce=1", "say=ready", "await", "signal=0", "get_loop=0", "destroy"});
                      for (int rank = 0; rank < 3; ++rank) CHECK(job[rank].says("ready"));
                      job[1].kill(SIGSTOP);
                      job[2].kill(SIGUSR1);
                      const std::string call = step.substr(0, step.find('='));
                      job.finish(0);
                      job.finish(2);
                      job[1].kill(SIGUSR1);
                      job[1].kill(SIGCONT);
                      job.finish();
                      const std::string answer = job.answer(0, call);
                      const bool right = answer.rfind("8 ", 0) == 0 && contains(answer, "rank") &&
                                         contains(answer, "1") && job.answer(2, "get_loop")[0] != '0';
                      return right ? "" : job.everything();
                  }) == "");
}

TEST_CASE("a rank that is killed at any time among puts is named on the others", "[windows]") {
    for (const Where& where : {mapped, copied, asked, remote})
        for (int round = 0; round < (small() ? 1 : 3); ++round) {
            INFO(where.name);
            Job job(3);
            const char* count = round % 2 ? "put_loop=100000" : "put_loop=10";
            for (int rank = 0; rank < 3; ++rank) start(job, where, rank, {count, "end_window", "destroy"});
            for (int rank = 0; rank < 3; ++rank) CHECK(job[rank].says("turns"));
            job.kill(1);
            for (const int rank : {0, 2}) {
                job.finish(rank);
                const std::string answer = job.answer(rank, "loop");
                INFO(job.everything());
                CHECK(answer.rfind("6 ", 0) == 0);
                CHECK(contains(answer, "rank 1"));
                CHECK(job.answer(rank, "end_window") == "0");
                CHECK(job.answer(rank, "destroy") == "0");
            }
            job.finish();
        }
}

TEST_CASE("an abort ends one-sided calls on every rank", "[windows]") {
    for (const Where& where : {mapped, remote}) {
        INFO(where.name);
        Job job(3);
        start(job, where, 0, {"wait=1", "end_window", "destroy"});
        start(job, where, 1, {"abort_on_signal", "wait=0", "say=told"});
        start(job, where, 2, {"put=10,0", "wait=0", "destroy"});
        for (int rank = 0; rank < 3; ++rank) CHECK(job[rank].says("window 0"));
        job[1].kill(SIGUSR1);
        job.finish();
        INFO(job.everything());
        for (const int rank : {0, 2}) {
            CHECK(job.answer(rank, "wait").rfind("6 ", 0) == 0);
            CHECK(contains(job.answer(rank, "wait"), "rank 1 aborted the communicator"));
        }
        // There it may not have begun yet.
        CHECK((job.answer(1, "wait").rfind("5 ", 0) == 0 || job.answer(1, "wait").rfind("4 ", 0) == 0));
        CHECK(job.answer(0, "end_window") == "0");
    }
}

TEST_CASE("a child after fork has no windows, and its parent keeps them", "[windows]") {
    Job job(2);
    start(job, copied, 0, {"fork_window", "put=10,1", "end_window", "destroy"});
    start(job, copied, 1, {"wait=0,1,10", "end_window", "destroy"});
    job.finish();
    INFO(job.everything());
    for (const char* call : {"child_put", "child_wait", "child_window", "child_end_window"})
        CHECK(job.answer(0, call).rfind("5 ", 0) == 0);
    CHECK(contains(job[0].output(), "child_ended 0"));
    CHECK(contains(job[1].output(), "there 1"));
}
