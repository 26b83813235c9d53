// stopped_test.cpp: processes stopped by a signal, at any moment and for longer than any rank waits. The others name
// it, and it gets an error when it goes on.
#include <random>

#include "tests/amount.hpp"
#include "tests/faults/job.hpp"

using namespace weft::internal::test;

namespace {

struct StopScene {
    const char* what;
    Steps before;
    const char* loop;
    std::vector<std::string> variables;
};

const StopScene stop_scenes[] = {
    {"small calls", {}, "loop=2", {}},
    {"calls of many tiles", {}, "loop=1000000", {"WEFT_CROSS_MEMORY=0"}},
    {"calls in mappable memory", {"shared"}, "loop=3000000", {}},
    {"short calls in mappable memory", {"shared"}, "loop=4000", {"WEFT_ALGO=one_shot", "WEFT_TILE_BYTES=4096"}},
    {"calls that the kernel copies", {}, "loop=1000000", {"WEFT_CROSS_MEMORY=1"}},
    {"a ring", {}, "loop=500000", {"WEFT_ALGO=ring"}},
    {"broadcasts along a chain", {}, "loop=100000,-1,broadcast", {"WEFT_ALGO=ring"}},
    {"all-to-alls", {}, "loop=30000,-1,all_to_all", {"WEFT_ALGO=all_pairs"}},
    {"all-to-alls of mappable memory", {"shared"}, "loop=300000,-1,all_to_all", {"WEFT_ALGO=all_pairs"}},
};

// False: it has ended instead.
bool stops(Subprocess& process) {
    CHECK(eventually([&] { return process_state(process.pid()) == 'T' || is_gone(process.pid()); }));
    return process_state(process.pid()) == 'T';
}
bool stop(Subprocess& process) {
    process.kill(SIGSTOP);
    return stops(process);
}

std::string stopped_in(const StopScene& scene, int victim, int delay_us, int64_t limit_ms) {
    Job job(3);
    const std::string later = job.another_id();
    for (int rank = 0; rank < 3; ++rank) {
        Steps steps = scene.before;
        steps.insert(steps.end(), {"init", "reduce=1", scene.loop, "async", "destroy", "id=" + later, "init",
                                   "reduce=100000", "destroy"});
        std::vector<std::string> variables = scene.variables;
        variables.insert(variables.end(), {"WEFT_TIMEOUT_MS=" + std::to_string(limit_ms), quiet});
        job.start(rank, steps, variables);
    }
    bool as_expected = true;
    for (int rank = 0; rank < 3; ++rank) as_expected &= job[rank].says("reduce 0");
    std::this_thread::sleep_for(std::chrono::microseconds(delay_us));
    as_expected &= stop(job[victim]);
    for (int rank = 0; rank < 3; ++rank)
        if (rank != victim) as_expected &= job[rank].says("loop ");
    job[victim].kill(SIGCONT);
    job.finish();
    const std::string named =
        "rank " + std::to_string(victim) + " (pid " + std::to_string(job[victim].pid()) + ") is stopped";
    for (int rank = 0; rank < 3; ++rank) {
        const std::string told = job.first_answer(rank, "loop");
        as_expected &= job.first_answer(rank, "reduce") == "0";
        as_expected &= told.rfind("8 ", 0) == 0 && contains(told, named) && job.first_answer(rank, "async") == "8";
        // Later calls have only their own deadlines, which slow ranks meet.
        as_expected &= job.answer(rank, "init") == "0" && job.answer(rank, "reduce") == "0";
    }
    return as_expected ? "" : job.everything();
}

}  // namespace

TEST_CASE("a rank stopped in any kind of call for longer than the deadline is named to all, and to itself",
          "[stopped]") {
    std::mt19937 random(seed());
    for (const StopScene& scene : stop_scenes) {
        const int victim = int(random() % 3), delay_us = int(random() % 60'000);
        INFO(scene.what << ": rank " << victim << " stopped after " << delay_us << " us; seed " << seed());
        CHECK(with_growing_limit(
                  300, [&](int64_t limit_ms) { return stopped_in(scene, victim, delay_us, limit_ms); }) == "");
    }
}

TEST_CASE("a rank that leaves a call while a stopped rank may use its buffers logs that, and waits for a bounded time",
          "[stopped]") {
    CHECK(with_growing_limit(300, [&](int64_t limit_ms) {
              Job job(3);
              for (int rank = 0; rank < 3; ++rank)
                  job.start(rank, {"shared", "init", "reduce=100000", "function=100000,2", "async", "destroy"},
                            {"WEFT_TIMEOUT_MS=" + std::to_string(limit_ms), "WEFT_DEBUG=WARN"});
              bool as_expected = job[2].says("in the function") && stop(job[2]);
              for (const int rank : {0, 1}) as_expected &= job[rank].says("function 8 ");
              job[2].kill(SIGUSR1);
              job[2].kill(SIGCONT);
              job.finish();
              for (const int rank : {0, 1})
                  as_expected &=
                      contains(job[rank].error(), "returns although rank 2 (pid " + std::to_string(job[2].pid()) +
                                                      ") does not move and may still use the buffers");
              return as_expected ? "" : job.everything();
          }) == "");
}

TEST_CASE("a rank stopped at any moment of the rendezvous is named by the others, and learns it", "[stopped]") {
    std::mt19937 random(seed());
    // Before its first request for shared memory, in one of them, or after so many microseconds.
    for (const std::string freeze : {"freeze=0", "freeze=1", "freeze=2", ""}) {
        const int victim = int(random() % 3), delay_us = int(random() % 15'000);
        INFO("rank " << victim << " stopped by " << freeze << " or after " << delay_us << " us; seed " << seed());
        CHECK(with_growing_limit(300, [&](int64_t limit_ms) {
                  Job job(3);
                  const std::string later = job.another_id();
                  for (int rank = 0; rank < 3; ++rank) {
                      Steps steps{"say=started", "init=" + std::to_string(limit_ms),
                                  "loop=10",     "id=" + later,
                                  "init",        "reduce=100000",
                                  "destroy"};
                      if (rank == victim && freeze != "") steps.insert(steps.begin(), freeze);
                      job.start(rank, steps, {"WEFT_TIMEOUT_MS=" + std::to_string(limit_ms), quiet});
                  }
                  CHECK(job[victim].says("started"));
                  if (freeze.empty()) {
                      std::this_thread::sleep_for(std::chrono::microseconds(delay_us));
                      stop(job[victim]);
                  }
                  for (int rank = 0; rank < 3; ++rank)
                      if (rank != victim) CHECK(job[rank].says("loop "));
                  // It may be the last to begin.
                  bool as_expected = freeze.empty() || stops(job[victim]);
                  job[victim].kill(SIGCONT);
                  job.finish();
                  const std::string pid = std::to_string(job[victim].pid());
                  for (int rank = 0; rank < 3; ++rank) {
                      const std::string init = job.first_answer(rank, "init"),
                                        told = init == "0" ? job.answer(rank, "loop") : init;
                      as_expected &=
                          told != "0" && job.answer(rank, "init") == "0" && job.answer(rank, "reduce") == "0";
                      if (rank != victim)
                          as_expected &= contains(told, "(pid " + pid + ") is stopped") ||
                                         contains(told, "process " + pid + ", ") || misses(told, victim);
                  }
                  return as_expected ? "" : job.everything();
              }) == "");
    }
}
