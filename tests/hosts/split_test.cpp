// split_test.cpp: communicators made from one of several hosts: on one of them, across them, and of what is left when
// ranks have died.
#include <algorithm>
#include <array>
#include <list>
#include <random>

#include "tests/amount.hpp"
#include "tests/hosts/spread_job.hpp"

using namespace weft::internal::test;

TEST_CASE("ranks of one host, of several hosts and all of them make communicators, again and again", "[split]") {
    SpreadJob job(3, 2);
    for (int rank = 0; rank < 6; ++rank)
        job.start(rank,
                  {"init", "births=3,1000",                                        // one of each host
                   "split=" + std::to_string(rank / 2), "loop=1000,5", "destroy",  // a host's
                   "back", "split=0," + std::to_string(-rank), "destroy_parent",   // all, the other way round
                   "loop=100000,5", "split=" + std::to_string(rank % 4 ? -1 : 7),  // two of two hosts
                   rank % 4 ? "say=none" : "reduce=10"},
                  {quiet});
    job.finish();
    INFO(job.everything());
    for (int rank = 0; rank < 6; ++rank) {
        for (const char* call : {"births", "split", "loop", "destroy_parent"}) CHECK(job.answer(rank, call) == "0");
        if (rank % 4 == 0) CHECK(job.answer(rank, "reduce") == "0");
    }
}

TEST_CASE("after the death of a leader or another rank in an all-reduce, on any host, the others shrink and go on",
          "[split]") {
    std::mt19937 random(seed());
    for (const auto& [hosts, per_host] : {std::pair(2, 1), std::pair(2, 2), std::pair(3, 1)})
        for (int victim = 0; victim < hosts * per_host; ++victim) {
            SpreadJob job(hosts, per_host);
            const std::string shrink = "shrink=1," + std::to_string(victim);
            for (int rank = 0; rank < job.ranks(); ++rank)
                job.start(rank, {"init", "loop=10000", shrink, "destroy_parent", "reduce=100000", "destroy"}, {quiet});
            for (int rank = 0; rank < job.ranks(); ++rank) CHECK(job[rank].says("init 0"));
            std::this_thread::sleep_for(std::chrono::microseconds(random() % 30'000));
            job.kill(victim);
            job.finish();
            INFO("rank " << victim << '\n' << job.everything());
            for (int rank = 0; rank < job.ranks(); ++rank) {
                if (rank == victim) continue;
                CHECK(job.answer(rank, "loop").rfind("6 ", 0) == 0);
                for (const char* call : {"shrink", "reduce", "destroy"}) CHECK(job.answer(rank, call) == "0");
            }
        }
}

TEST_CASE("when no leader is left the others get an error from shrink", "[split]") {
    SpreadJob job(2, 2);
    const auto leads = [&](int process) {
        return eventually([&] { return contains(job[process].error(), "this process leads the rendezvous"); });
    };
    // The first process of a host leads it. Processes 0 and 1 are ranks 0 and 2.
    for (const int rank : {0, 2}) job.start(rank, {"init", "hold"}, telling);
    for (const int process : {0, 1}) REQUIRE(leads(process));
    for (const int rank : {1, 3}) job.start(rank, {"init", "loop=10", "shrink=1,0,2", "destroy"}, telling);
    for (int process = 0; process < 4; ++process) CHECK(job[process].says("init 0"));
    for (const int process : {0, 1}) job.kill(process);
    job.finish();
    for (const int process : {2, 3}) {
        INFO(job.everything());
        CHECK_JOB_ERROR(job, process, "shrink", "init.leader-lost", -1);
        CHECK(job.answer(process, "destroy") == "0");
    }
}

TEST_CASE("a rank that leaves instead of shrinking with the others is named, with any leader", "[split]") {
    // Ranks in the order in which they start: the first of a host leads it.
    const std::array<int, 4> orders[] = {{0, 2, 1, 3}, {0, 3, 1, 2}, {1, 2, 0, 3}, {1, 3, 0, 2}};
    std::list<SpreadJob> jobs;
    for (const auto& order : orders) {
        SpreadJob& job = jobs.emplace_back(2, 2);
        for (int process = 0; process < 4; ++process) {
            const int rank = order[size_t(process)];
            job.start(rank, {"init", rank % 3 == 0 ? "say=none" : "shrink=0,0", "destroy"}, telling);
            if (process < 2)
                REQUIRE(
                    eventually([&] { return contains(job[process].error(), "this process leads the rendezvous"); }));
        }
    }
    auto job = jobs.begin();
    for (const auto& order : orders) {
        job->finish();
        INFO(job->everything());
        const auto process = [&](int rank) { return int(std::find(order.begin(), order.end(), rank) - order.begin()); };
        const std::string named = "rank 3 (pid " + std::to_string((*job)[process(3)].pid()) +
                                  " on node1) left while the ranks were making a communicator";
        CHECK(contains(job->answer(process(2), "shrink"), named));
        const std::string answer = job->answer(process(1), "shrink");
        CHECK(answer.rfind("6 ", 0) == 0);
        // A rank that failed for that reason is not accused.
        CHECK(!contains(answer, "rank 2 ("));
        ++job;
    }
}

TEST_CASE("a rank that shrinks late is waited for, though its host's leader has died", "[split]") {
    SpreadJob job(2, 2);
    // Of its host the others know nothing more.
    const Steps others{"init", "loop=100000", "shrink=1,0", "destroy_parent", "reduce=100", "destroy"};
    for (const int rank : {0, 2}) {
        job.start(rank, others, telling);
        REQUIRE(eventually([&] { return contains(job[rank / 2].error(), "this process leads the rendezvous"); }));
    }
    job.start(1, {"init", "loop=100000", "sleep=7000", "shrink=1,0", "destroy_parent", "reduce=100", "destroy"},
              {quiet});
    job.start(3, others, {quiet});
    for (int process = 0; process < 4; ++process) CHECK(job[process].says("init 0"));
    job.kill(0);
    job.finish();
    INFO(job.everything());
    for (int process = 1; process < 4; ++process)
        for (const char* call : {"shrink", "reduce", "destroy"}) CHECK(job.answer(process, call) == "0");
}

TEST_CASE("splits of several hosts leave no descriptors, threads or segments behind", "[split]") {
    SpreadJob job(2, 2);
    for (int rank = 0; rank < 4; ++rank)
        job.start(rank, {"init", "births=3,10", "holds", small() ? "births=5,10" : "births=40,10", "holds=0,0,0"},
                  {quiet});
    job.finish();
    INFO(job.everything());
    for (int rank = 0; rank < 4; ++rank) {
        CHECK(job.answer(rank, "births") == "0");
        CHECK(job.holds_no_more(rank));
    }
}
