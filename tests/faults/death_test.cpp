// death_test.cpp: processes that end at any moment and in any way. The surviving ranks get errors that name them, and
// go on.
#include <random>

#include "tests/amount.hpp"
#include "tests/faults/job.hpp"

using namespace weft::internal::test;

namespace {

struct Scene {
    const char* what;
    bool during_init;
    Steps calls;  // before the loop
    const char* loop;
    const char* algo;
};

const Scene scenes[] = {
    {"init", true, {}, "loop=10", ""},
    {"small calls", false, {}, "loop=2", ""},
    {"calls of many tiles", false, {}, "loop=3000000", ""},
    {"calls in mappable memory", false, {"shared"}, "loop=1000000", ""},
    {"short calls in mappable memory", false, {"shared"}, "loop=4000", "one_shot"},
    {"connecting a ring", true, {}, "loop=100000", "ring"},
    {"a ring", false, {}, "loop=500000", "ring"},
    {"broadcasts", false, {}, "loop=1000,-1,broadcast", ""},
    {"broadcasts along a chain", false, {}, "loop=100000,-1,broadcast", "ring"},
    {"short broadcasts ahead of each other", false, {}, "loop=2,-1,broadcast", "linear"},
    {"large all-gathers", false, {}, "loop=300000,-1,all_gather", "all_pairs"},
    {"large all-gathers of mappable memory", false, {"shared"}, "loop=300000,-1,all_gather", "all_pairs"},
    {"reductions up a tree", false, {}, "loop=100000,-1,reduce", "binomial_tree"},
    {"all-gathers", false, {}, "loop=30000,-1,all_gather", "halving_doubling"},
    {"all-to-alls", false, {}, "loop=30000,-1,all_to_all", "all_pairs"},
    {"gathers", false, {}, "loop=30000,-1,gather", "linear"},
    {"short scatters ahead of each other", false, {}, "loop=2,-1,scatter", "linear_ahead"},
    {"barriers", false, {}, "loop=1,-1,barrier", ""},
};

// Kills one rank of a new job after this delay. Returns the survivors' wrong output; `limit_ms` is how long they wait
// for each other.
std::string kill_in(const Scene& scene, int ranks, int victim, int delay_us, int64_t limit_ms) {
    Job job(ranks);
    const std::string later = job.another_id();
    for (int rank = 0; rank < ranks; ++rank) {
        Steps steps = scene.calls;
        // A rank killed before it came is one that never comes: the deadline is for those.
        steps.insert(steps.end(),
                     {"say=started", scene.during_init ? "init=" + std::to_string(limit_ms) : "init", scene.loop});
        if (rank != victim)
            steps.insert(steps.end(), {"async", "destroy", "id=" + later,
                                       "as=" + std::to_string(rank - (rank > victim)) + "," + std::to_string(ranks - 1),
                                       "init", "reduce=100000", "destroy"});
        job.start(rank, steps, {std::string("WEFT_ALGO=") + scene.algo, quiet});
    }
    const char* ready = scene.during_init ? "started" : "init 0";
    for (int rank = 0; rank < ranks; ++rank)
        if (!scene.during_init || rank == victim) CHECK(job[rank].says(ready));
    std::this_thread::sleep_for(std::chrono::microseconds(delay_us));
    const std::string pid = std::to_string(job[victim].pid());
    job.kill(victim);
    job.finish();
    return check_survivors(job, victim, scene.during_init, [&](const std::string& told) {
        return contains(told, "rank " + std::to_string(victim) + " (pid " + pid + ")") || misses(told, victim);
    });
}

}  // namespace

TEST_CASE("a rank killed at any moment is named by every survivor, which go on without it", "[death]") {
    std::mt19937 random(seed());
    const int rounds = small() ? 1 : 4;
    for (int round = 0; round < rounds; ++round)
        for (const Scene& scene : scenes)
            for (int ranks = small() ? 3 : 2; ranks <= (small() ? 3 : 4); ++ranks) {
                if (small() && sanitized && random() % 2 != 0) continue;
                const int victim = int(random() % unsigned(ranks)),
                          delay_us = int(random() % (scene.during_init ? 15'000 : 60'000));
                INFO(scene.what << ": rank " << victim << " of " << ranks << " killed after " << delay_us
                                << " us; seed " << seed());
                CHECK(with_growing_limit(small() ? 6000 : 1500, [&](int64_t limit_ms) {
                          return kill_in(scene, ranks, victim, delay_us, limit_ms);
                      }) == "");
            }
}

TEST_CASE("a rank killed between its claim and its joining is dead to the others without a deadline", "[death]") {
    // In its first or second request for shared memory: for its row, and rank 0 for its texts.
    for (const auto& moment : {std::pair{0, 0}, {0, 1}, {2, 0}}) {
        const int victim = moment.first, request = moment.second;
        INFO("rank " << victim << ", request " << request);
        // A rank that starts after the death finds no other, so all get the time to come before.
        CHECK(with_growing_limit(100, [&](int64_t pause_ms) {
                  Job job(3);
                  job.start(1, {"init=20000"}, {quiet});
                  CHECK(job.started_rendezvous());
                  job.start(victim, {"freeze=" + std::to_string(request), "init"}, {quiet});
                  job.start(2 - victim, {"init=20000"}, {quiet});
                  CHECK(eventually([&] { return process_state(job[1].pid()) == 'T'; }));
                  std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
                  job.kill(1);
                  job.finish();
                  const auto names_victim = [&](const std::string& answer) {
                      return contains(answer, "rank " + std::to_string(victim) + " (pid " +
                                                  std::to_string(job[1].pid()) + ")") &&
                             contains(answer, "[init.rank-died]");
                  };
                  return names_victim(job.answer(0, "init")) && names_victim(job.answer(2, "init")) ? ""
                                                                                                    : job.everything();
              }) == "");
    }
}

TEST_CASE("ranks that end right after their last call do not disturb those still inside", "[death]") {
    std::mt19937 random(seed());
    for (int round = 0; round < (small() ? 1 : 4); ++round)
        for (const char* way : {"destroy", "exit", "vanish"})
            for (const Scene& scene : scenes) {
                if (scene.during_init || (small() && sanitized && random() % 3 != 0)) continue;
                INFO(scene.what << ", ended by " << way << "; seed " << seed());
                const int ranks = 2 + round % 3;
                Job job(ranks);
                for (int rank = 0; rank < ranks; ++rank) {
                    Steps steps = scene.calls;
                    // So often, instead of for ever.
                    std::string loop = scene.loop;
                    const char* times = loop.find("00000") != std::string::npos ? ",2" : ",200";
                    if (const size_t endless = loop.find(",-1"); endless != std::string::npos)
                        loop.replace(endless, 3, times);
                    else
                        loop += times;
                    steps.insert(steps.end(), {"init", loop, way});
                    job.start(rank, steps, {std::string("WEFT_ALGO=") + scene.algo, quiet});
                }
                job.finish();
                for (int rank = 0; rank < ranks; ++rank) {
                    INFO("rank " << rank << " said\n" << job[rank].output());
                    CHECK(job.answer(rank, "loop") == "0");
                }
            }
}

TEST_CASE("a rank whose process exits without leaving is dead to later callers", "[death]") {
    Job job(2);
    job.start(0, {"init", "reduce=10", "exit"}, {quiet});
    job.start(1, {"init", "reduce=10", "await", "reduce=10", "async"}, {quiet});
    job.finish(0);
    job[1].kill(SIGUSR1);
    job.finish();
    CHECK(contains(job.answer(1, "reduce"),
                   "6 rank 0 (pid " + std::to_string(job[0].pid()) + ") died outside Weft after operation 1"));
    CHECK(job.answer(1, "async") == "6");
}

TEST_CASE("an abort from another thread ends the call on every rank", "[death]") {
    for (int ranks = 2; ranks <= 3; ++ranks) {
        Job job(ranks);
        job.start(0, {"init", "abort_on_signal", "loop=100000"}, {quiet});
        for (int rank = 1; rank < ranks; ++rank)
            job.start(rank, {"init", "say=in", "loop=100000", "async", "destroy"}, {quiet});
        for (int rank = 1; rank < ranks; ++rank) CHECK(job[rank].says("in"));
        CHECK(job[0].says("init 0"));
        job[0].kill(SIGUSR1);
        job.finish();
        CHECK(job.answer(0, "abort") == "0");
        // Inside a call it was aborted here; between two the handle is gone.
        CHECK((contains(job.answer(0, "loop"), "5 the communicator was aborted here") ||
               contains(job.answer(0, "loop"), "destroyed or aborted")));
        for (int rank = 1; rank < ranks; ++rank) {
            CHECK(contains(job.answer(rank, "loop"), "rank 0 aborted the communicator"));
            CHECK(job.answer(rank, "async") == "6");
        }
    }
}

TEST_CASE("a process that ends inside a group leaves nothing and is dead to the others", "[death]") {
    Job job(2);
    job.start(0, {"init", "open_group"});
    job.start(1, {"init", "reduce=0,7"}, {quiet});
    job.finish();
    CHECK(job.answer(0, "queued") == "0");
    CHECK(contains(job[0].error(),
                   "a thread ends inside weftGroupStart, and calls were never begun: 1; call weftGroupEnd"));
    CHECK(contains(job.answer(0, "destroy_inside"), "5 weftCommDestroy inside a group"));
    CHECK(contains(job.answer(1, "reduce"),
                   "6 rank 0 (pid " + std::to_string(job[0].pid()) + ") died outside Weft after operation 0"));
}
