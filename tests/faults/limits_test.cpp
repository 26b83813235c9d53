// limits_test.cpp: resources that are refused, and fork: an error for each, never a signal.
#include <sys/socket.h>

#include "src/net/socket.hpp"
#include "tests/faults/job.hpp"

using namespace weft::internal::test;

// A sanitizer needs terabytes of address space, and descriptors of its own.
constexpr bool limits_are_ours = !sanitized;

namespace {

// One of many jobs that run side by side, for some wait for a rank that could not come.
struct Limited {
    int amount;
    int process = 0;  // that has the limit, where only one has
    std::unique_ptr<Job> job;
};
std::string init_within(int64_t limit_ms) { return "init=" + std::to_string(limit_ms); }

}  // namespace

TEST_CASE("too few descriptors, on either side of the rendezvous, are an error", "[limits]") {
    if (!limits_are_ours) return;
    CHECK(with_growing_limit(4000, [](int64_t limit_ms) {
              std::vector<Limited> all;
              for (const int process : {0, 1})
                  for (const int files : {3, 4, 5, 6, 7, 8, 9, 11, 13, 15, 30}) {
                      all.push_back({files, process, std::make_unique<Job>(2)});
                      Job& job = *all.back().job;
                      for (int rank = 0; rank < 2; ++rank) {
                          Steps steps{"unique_id", init_within(limit_ms), "reduce=100000", "destroy"};
                          if (rank == process) steps.insert(steps.begin(), "limit=nofile," + std::to_string(files));
                          job.start(rank, steps, {quiet});
                          // The first to come leads: both parts are played.
                          if (rank == 0)
                              CHECK(eventually(
                                  [&] { return socket_exists(rendezvous_name(job.id())) || is_gone(job[0].pid()); }));
                      }
                  }
              std::string objection;
              for (const auto& [files, process, job] : all) {
                  INFO("process " << process << " may have " << files << " files");
                  job->finish();
                  INFO((*job)[0].output() << (*job)[1].output());
                  const std::string limited = job->answer(process, "init");
                  if (files == 3) CHECK(limited != "0");
                  // One that is slow may not have met its limit, nor the other, when the time is over.
                  const bool told = limited.rfind("2 ", 0) == 0 &&
                                    (contains(limited, "ulimit -n") || contains(limited, "Too many open files"));
                  if (!(limited == "0" || (told && files < 30)) ||
                      (job->answer(1 - process, "init") == "0") != (limited == "0"))
                      objection = std::to_string(files) + " files: " + job->everything();
              }
              return objection;
          }) == "");
}

TEST_CASE("no address space is a sentence", "[limits]") {
    if (!limits_are_ours) return;
    CHECK(with_growing_limit(4000, [](int64_t limit_ms) {
              std::vector<Limited> all;
              for (const int mebibytes : {60, 100, 140, 180, 250, 600, 2000}) {
                  all.push_back({mebibytes, 0, std::make_unique<Job>(2)});
                  for (int rank = 0; rank < 2; ++rank)
                      all.back().job->start(rank,
                                            {"limit=as," + std::to_string(mebibytes), init_within(limit_ms),
                                             "alloc=8000000000", "reduce=1000000", "async", "destroy"},
                                            {quiet});
              }
              std::string objection;
              for (const auto& [mebibytes, process, job] : all) {
                  INFO("address space of " << mebibytes << " MiB");
                  job->finish();
                  for (int rank = 0; rank < 2; ++rank) {
                      INFO((*job)[rank].output());
                      const std::string init = job->answer(rank, "init");
                      if (mebibytes <= 60) {  // less than the smallest segment of two ranks, and the program
                          CHECK((contains(init, "ulimit -v") || contains(init, "out of memory")));
                          CHECK(init.rfind("2 ", 0) == 0);
                      }
                      if (mebibytes >= 600 && (init != "0" || job->answer(rank, "reduce") != "0"))
                          objection = job->everything();
                      CHECK(job->answer(rank, "alloc").rfind("2 ", 0) == 0);
                  }
              }
              return objection;
          }) == "");
}

TEST_CASE("a file size limit is a sentence and no signal", "[limits]") {
    CHECK(with_growing_limit(4000, [](int64_t limit_ms) {
              std::vector<Limited> all;
              for (const int kibibytes : {64, 1000, 100'000, 200'000}) {  // the least is for what the worker writes
                  all.push_back({kibibytes, 0, std::make_unique<Job>(2)});
                  for (int rank = 0; rank < 2; ++rank)
                      all.back().job->start(rank,
                                            {"limit=fsize," + std::to_string(kibibytes), "alloc=1000000",
                                             init_within(limit_ms), "reduce=1000000", "async", "destroy"},
                                            {quiet});
              }
              std::string objection;
              for (const auto& [kibibytes, process, job] : all) {
                  INFO("files of " << kibibytes << " KiB");
                  job->finish();
                  for (int rank = 0; rank < 2; ++rank) {
                      INFO((*job)[rank].output());
                      CHECK(job->answer(rank, "alloc").rfind("2 ", 0) == 0);
                      CHECK(contains(job->answer(rank, "alloc"), "ulimit -f"));
                      if (kibibytes < 128 << 10) CHECK(job->answer(rank, "init") != "0");
                      if (kibibytes < 128 << 10)
                          CHECK((contains(job->answer(0, "init") + job->answer(1, "init"), "ulimit -f")));
                      if (kibibytes >= 140'000 && job->answer(rank, "reduce") != "0") objection = job->everything();
                  }
              }
              return objection;
          }) == "");
}

#if !WEFT_TEST_TSAN  // which ends a program that forks and goes on
TEST_CASE("a forked child may not use its parent's communicator, makes its own, and harms no other", "[limits]") {
    for (const std::string way : {"exit", "vanish"})
        for (const bool shared : {false, true}) {
            INFO(way << (shared ? " with mappable memory" : ""));
            Job job(2);
            for (int rank = 0; rank < 2; ++rank) {
                Steps steps{"init", "reduce=100000"};
                if (shared) steps.insert(steps.begin(), "shared");
                if (rank == 0) steps.push_back("fork=" + way);
                steps.insert(steps.end(), {"reduce=100000", "loop=10,1000", "async", "destroy"});
                job.start(rank, steps, {quiet});
            }
            job.finish();
            for (const char* call : {"child_reduce", "child_count", "child_abort", "child_destroy"})
                CHECK(contains(job.answer(0, call),
                               "5 the communicator was made before fork(); a child process makes its own"));
            if (shared) CHECK(contains(job.answer(0, "child_free"), "4 "));
            for (const char* call : {"child_init", "child_own_reduce", "alloc", "child_ended"})
                CHECK(job.answer(0, call) == "0");
            for (int rank = 0; rank < 2; ++rank) {
                CHECK(job.answer(rank, "reduce") == "0");
                CHECK(job.answer(rank, "loop") == "0");
                CHECK(job.answer(rank, "async") == "0");
            }
        }
}

#if !WEFT_TEST_ASAN  // whose allocator's locks a child inherits as they are
TEST_CASE("a child may be forked while other threads allocate, rendezvous and ask a launcher's store", "[limits]") {
    // A store that takes the connection and never answers.
    const weft::internal::Fd store(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(listen(store.number(), 64) == 0);
    Job job(2);
    job.start(0, {"fork_busy=200"},
              {quiet, "WEFT_INIT_TIMEOUT_MS=3000", "RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1",
               "MASTER_PORT=" + std::to_string(weft::internal::net::local_address(store.number()).port())});
    job.finish();
    CHECK(job.answer(0, "fork_busy") == "200");
    CHECK(contains(job.answer(0, "environment"), "8 PyTorch's store"));
}
#endif

TEST_CASE("a dead rank is dead although a child of its lives on", "[limits]") {
    Job job(2);
    job.start(0, {"init", "fork=stay", "hold"}, {quiet});
    job.start(1, {"init", "say=calls", "reduce=100", "destroy"}, {quiet});
    CHECK(job[0].says("child "));
    CHECK(job[0].says("alloc 0"));
    job.kill(0);
    CHECK(job[1].says("reduce 6 rank 0 (pid " + std::to_string(job[0].pid()) + ") died"));
    const pid_t child = pid_t(atoi(job.answer(0, "child").c_str()));
    REQUIRE(child > 1);
    CHECK(!is_gone(child));
    ::kill(child, SIGKILL);
    job.finish();
}
#endif
