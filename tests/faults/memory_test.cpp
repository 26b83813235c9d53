// memory_test.cpp: shared memory that is refused, at each request for it. Every rank gets an error, no signal ends a
// process, and the processes go on when there is memory again.
#include "tests/faults/job.hpp"

using namespace weft::internal::test;

namespace {

struct MemoryScene {
    const char* what;
    Steps before, calls;
    std::string variable = "WEFT_CHANNELS=2";
};

const MemoryScene memory_scenes[] = {
    {"slots that grow", {"reduce=1"}, {"reduce=1000000"}},
    {"slots that grow after calls that need no more", {"reduce=20000"}, {"reduce=1", "reduce=3000000"}},
    {"a ring's connections", {}, {"reduce=100000"}, "WEFT_ALGO=ring"},
    {"a tree's connections", {"reduce=1"}, {"call=broadcast,100000"}, "WEFT_ALGO=binomial_tree"},
    {"messages' connections", {"reduce=1"}, {"all_to_all_v=1000,1000,1000"}},
    {"a window", {"reduce=1"}, {"window"}},
    {"a communicator made from another", {"reduce=1"}, {"split=0"}},
};

// Whether it says that this process was short of memory.
bool says_so(Job& job, int poor, const std::string& told) {
    return contains(told, "process " + std::to_string(job[poor].pid()) + ": ") &&
           contains(told, " KiB of shared memory could not be allocated: No space left on device");
}

void check_goes_on(Job& job) {
    for (int rank = 0; rank < job.processes(); ++rank) {
        INFO("rank " << rank << " said\n" << job[rank].output());
        CHECK(job.answer(rank, "init") == "0");
        CHECK(job.answer(rank, "reduce") == "0");
    }
}

}  // namespace

TEST_CASE("a call whose memory is refused is an error of every rank that says so", "[memory]") {
    for (const MemoryScene& scene : memory_scenes) {
        int refusals = 0;
        for (const int poor : small() ? std::vector{1} : std::vector{0, 1}) {
            bool refused = true;
            for (int granted = 0; refused; ++granted) {
                INFO(scene.what << ": rank " << poor << " is refused memory after " << granted << " requests");
                Job job(3);
                const std::string later = job.another_id();
                for (int rank = 0; rank < 3; ++rank) {
                    Steps steps = scene.before;
                    steps.insert(steps.begin(), "init");
                    if (rank == poor) steps.push_back("scarce=" + std::to_string(granted));
                    steps.insert(steps.end(), scene.calls.begin(), scene.calls.end());
                    steps.insert(steps.end(), {"plenty", "destroy", "id=" + later, "init", "reduce=100000", "destroy"});
                    job.start(rank, steps, {scene.variable, quiet});
                }
                job.finish();
                REQUIRE(job.answer(poor, "refused") != "(no line)");
                refused = job.answer(poor, "refused") != "0";
                refusals += refused;
                const std::string call = scene.calls.back().substr(0, scene.calls.back().find('='));
                for (int rank = 0; rank < 3; ++rank) {
                    INFO("rank " << rank << " said\n" << job[rank].output());
                    // A communicator that is being made fails on the others, or in their first call on it. Of messages
                    // another rank may have exchanged all of its own before that one was refused.
                    if (call == "split" && rank != poor) continue;
                    if (call == "all_to_all_v" && rank != poor && job.answer(rank, call) == "0") continue;
                    CHECK(says_so(job, poor, job[rank].output()) == refused);
                    if (call != "reduce") CHECK(job.answer(rank, call).rfind(refused ? "2 " : "0", 0) == 0);
                }
                check_goes_on(job);
            }
        }
        INFO(scene.what);
        CHECK(refusals > 0);
    }
}

TEST_CASE("a rendezvous in which memory cannot be had ends with a sentence on every rank", "[memory]") {
    for (const int poor : {0, 1}) {
        bool refused = true;
        for (int granted = 0; refused; ++granted) {
            INFO("rank " << poor << " is refused memory after " << granted << " requests");
            CHECK(with_growing_limit(500, [&](int64_t limit_ms) {
                      Job job(2);
                      const std::string later = job.another_id();
                      for (int rank = 0; rank < 2; ++rank) {
                          Steps steps{"init=" + std::to_string(limit_ms),
                                      "plenty",
                                      "loop=1,1",
                                      "destroy",
                                      "id=" + later,
                                      "init",
                                      "reduce=100000",
                                      "destroy"};
                          if (rank == poor) steps.insert(steps.begin(), "scarce=" + std::to_string(granted));
                          job.start(rank, steps, {quiet});
                          // The first to come leads: both parts are played.
                          if (rank == 0) CHECK(job.started_rendezvous());
                      }
                      job.finish();
                      REQUIRE(job.answer(poor, "refused") != "(no line)");
                      refused = job.answer(poor, "refused") != "0";
                      bool as_expected = true;
                      for (int rank = 0; rank < 2; ++rank) {
                          const std::string init = job.first_answer(rank, "init"), call = job.answer(rank, "loop");
                          if (!refused)
                              as_expected &= init == "0" && call == "0";
                          else if (rank == poor)
                              as_expected &= says_so(job, poor, init);
                          else  // a leader that could not begin was never met
                              as_expected &= says_so(job, poor, init) || (poor == 0 && init.rfind("8 ", 0) == 0) ||
                                             (init == "0" && says_so(job, poor, call));
                      }
                      check_goes_on(job);
                      return as_expected ? "" : job.everything();
                  }) == "");
        }
    }
}

TEST_CASE("memory for weftHostAlloc that cannot be had is a sentence, and later it can", "[memory]") {
    Job job(1);
    job.start(0,
              {"scarce=0", "alloc=1000000", "plenty", "init", "alloc=1000000", "shared", "reduce=1000000", "destroy"},
              {quiet});
    job.finish();
    CHECK(says_so(job, 0, job.first_answer(0, "alloc")));
    CHECK(job.answer(0, "refused") == "1");
    CHECK(job.answer(0, "alloc") == "0");
    check_goes_on(job);
}
