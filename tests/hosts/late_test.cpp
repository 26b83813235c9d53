// late_test.cpp: ranks of other hosts that are alive and do not come, stopped or busy. They are named with their hosts,
// in a warning first and in an error at the deadline. A stopped leader takes its host with it when it misses the
// heartbeat.
#include "tests/hosts/spread_job.hpp"

using namespace weft::internal::test;

namespace {

// All have made a first call; they make the next when they are signalled.
void start_waiting(SpreadJob& job, const std::vector<std::string>& variables, const std::string& call = "reduce=100") {
    const std::string later = job.another_id();
    for (int rank = 0; rank < job.ranks(); ++rank)
        job.start(rank,
                  {"init", "reduce=1", "await", call, "async", "destroy", "id=" + later, "init", "reduce=5", "destroy"},
                  variables);
    for (int rank = 0; rank < job.ranks(); ++rank) CHECK(job[rank].says("reduce "));
}
void go_on_without(SpreadJob& job, int late) {
    for (int rank = 0; rank < job.ranks(); ++rank)
        if (rank != late) job[rank].kill(SIGUSR1);
}
void stop(Subprocess& process) {
    process.kill(SIGSTOP);
    CHECK(eventually([&] { return process_state(process.pid()) == 'T'; }));
}
// It has warned of its second call, or that has ended.
bool warned(SpreadJob& job, int rank) {
    CHECK(eventually(
        [&] { return contains(job[rank].error(), "in operation 2") || contains(job[rank].output(), "async"); }));
    return contains(job[rank].error(), "in operation 2");
}

}  // namespace

TEST_CASE("a rank of another host that computes is known to be outside Weft, which is no error", "[late]") {
    for (const int late : {0, 3})
        // Until the health table has come, a warning names the missing ranks.
        CHECK(with_growing_limit(1500, [&](int64_t warn_ms) {
                  SpreadJob job(2, 2);
                  start_waiting(job, {"WEFT_WARN_MS=" + std::to_string(warn_ms)});
                  go_on_without(job, late);
                  std::string objection;
                  for (int rank = 0; rank < 4; ++rank) {
                      if (rank == late) continue;
                      CHECK(warned(job, rank));
                      CHECK(contains(job[rank].error(), "WARN waits since"));
                      if (!contains(job[rank].error(), "rank " + std::to_string(late) + " " + job.pid_text(late)) ||
                          !contains(job[rank].error(), "outside Weft, last operation 1"))
                          objection = job.everything();
                  }
                  job[late].kill(SIGUSR1);
                  job.finish();
                  for (int rank = 0; rank < 4; ++rank) CHECK(job.answer(rank, "reduce") == "0");
                  return objection;
              }) == "");
}

TEST_CASE("a stopped rank whose leader runs is reported as stopped; if it continues, the call succeeds", "[late]") {
    CHECK(with_growing_limit(1500, [](int64_t limit_ms) {
              SpreadJob job(2, 2);
              start_waiting(job, with(telling, {"WEFT_WARN_MS=" + std::to_string(limit_ms),
                                                "WEFT_HEARTBEAT_MS=" + std::to_string(limit_ms / 3)}));
              const int stopped = job.leader_of(1) ^ 1;
              stop(job[stopped]);
              go_on_without(job, stopped);
              bool as_expected = true;
              for (int rank = 0; rank < 4; ++rank)
                  if (rank != stopped)
                      as_expected &=
                          warned(job, rank) && contains(job[rank].error(), "is stopped (SIGSTOP or a debugger)");
              std::this_thread::sleep_for(std::chrono::milliseconds(limit_ms));  // heartbeats go on
              job[stopped].kill(SIGUSR1);
              job[stopped].kill(SIGCONT);
              job.finish();
              // Leaders that were not given a processor may have been missed.
              for (int rank = 0; rank < 4; ++rank)
                  as_expected &= job.answer(rank, "reduce") == "0" && job.answer(rank, "async") == "0";
              return as_expected ? "" : job.everything();
          }) == "");
}

TEST_CASE("at the deadline ranks of every host name the late one", "[late]") {
    CHECK(with_growing_limit(2000, [](int64_t limit_ms) {
              SpreadJob job(2, 2);
              const std::string deadline_ms = std::to_string(limit_ms);
              start_waiting(job, {"WEFT_TIMEOUT_MS=" + deadline_ms, quiet});
              go_on_without(job, 3);
              for (int rank = 0; rank < 3; ++rank) CHECK(job[rank].says("reduce 8 "));
              job[3].kill(SIGUSR1);
              job.finish();
              // Calls that all make may meet this deadline too.
              bool as_expected = true;
              for (int rank = 0; rank < 4; ++rank) {
                  const std::string told = job[rank].output();
                  as_expected &= contains(told, "the deadline (WEFT_TIMEOUT_MS) is " + deadline_ms + " ms") &&
                                 contains(told, "rank 3 " + job.pid_text(3)) &&
                                 contains(told, "outside Weft, last operation 1") &&
                                 job.first_answer(rank, "async") == "8" && job.answer(rank, "reduce") == "0";
              }
              return as_expected ? "" : job.everything();
          }) == "");
}

TEST_CASE("a stopped leader misses the heartbeat, and learns it when it goes on", "[late]") {
    CHECK(with_growing_limit(1000, [](int64_t heartbeat_ms) {
              SpreadJob job(3, 1);
              start_waiting(job, {"WEFT_HEARTBEAT_MS=" + std::to_string(heartbeat_ms)});
              stop(job[1]);
              go_on_without(job, 1);
              bool as_expected = true;
              for (const int rank : {0, 2}) {
                  CHECK(job[rank].says("async "));
                  const std::string told = job[rank].output();
                  as_expected &=
                      contains(told, "reduce 6 ") && contains(told, "host node1 ") && contains(told, "with rank 1") &&
                      contains(told, "no heartbeat") && contains(told, "[host.lost]") &&
                      contains(told, "so its leader (pid " + std::to_string(job[1].pid()) + ") is stopped") &&
                      contains(told, "async 6");
              }
              job[1].kill(SIGUSR1);
              job[1].kill(SIGCONT);
              job.finish();
              // It reports the others' verdict, not their silence while it was stopped itself.
              as_expected &= contains(job[1].output(), "6 ") && !contains(job[1].output(), "host node0") &&
                             contains(job[1].error(), "this process, which leads its host, was stopped (SIGSTOP");
              for (int rank = 0; rank < 3; ++rank) as_expected &= job.answer(rank, "reduce") == "0";
              return as_expected ? "" : job.everything();
          }) == "");
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
