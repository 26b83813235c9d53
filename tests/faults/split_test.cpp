// split_test.cpp: communicators made from communicators by processes of one host, while something happens to them.
#include <random>

#include "tests/amount.hpp"
#include "tests/faults/job.hpp"

using namespace weft::internal::test;

namespace {

// Whether the error names this killed process.
bool tells_of(Job& job, const std::string& told, int process) {
    return told.rfind("6 ", 0) == 0 && contains(told, "(pid " + std::to_string(job[process].pid()) + ")");
}

}  // namespace

TEST_CASE("after any rank's death in an all-reduce the others shrink and go on", "[split]") {
    std::mt19937 random(seed());
    for (const char* loop : {"loop=2", "loop=1000000"})
        for (int victim = 0; victim < 4; ++victim) {
            Job job(4);
            const std::string shrink = "shrink=1," + std::to_string(victim);
            for (int rank = 0; rank < 4; ++rank)
                job.start(rank, {"init", loop, shrink, "destroy_parent", "reduce=100000", "destroy"}, {quiet});
            for (int rank = 0; rank < 4; ++rank) CHECK(job[rank].says("init 0"));
            std::this_thread::sleep_for(std::chrono::microseconds(random() % 30'000));
            job.kill(victim);
            job.finish();
            INFO(loop << ", rank " << victim << '\n' << job.everything());
            for (int rank = 0; rank < 4; ++rank) {
                if (rank == victim) continue;
                CHECK(job.answer(rank, "loop").rfind("6 ", 0) == 0);
                CHECK(job.answer(rank, "shrink") == "0");
                CHECK(job.answer(rank, "reduce") == "0");
                CHECK(job.answer(rank, "destroy") == "0");
            }
        }
}

TEST_CASE("when ranks die one after the other, the rest shrinks again, and a healthy child shrinks too", "[split]") {
    Job job(4);
    for (int rank = 0; rank < 4; ++rank) {
        Steps steps{"init", "loop=1000", "shrink=1,1", "destroy_parent", "say=once"};
        if (rank == 2) steps.push_back("hold");
        // Ranks 0, 2 and 3 are 0, 1 and 2 there.
        steps.insert(steps.end(), {"loop=1000", "shrink=1,1", "destroy_parent", "reduce=1000", "split=0", "reduce=10"});
        if (rank == 0) steps.insert(steps.end(), {"shrink=0,1", "reduce=5"});
        job.start(rank, steps, {quiet});
    }
    for (int rank = 0; rank < 4; ++rank) CHECK(job[rank].says("init 0"));
    job.kill(1);
    for (const int rank : {0, 2, 3}) CHECK(job[rank].says("once"));
    job.kill(2);
    job.finish();
    INFO(job.everything());
    for (const int rank : {0, 3}) {
        CHECK(job.answer(rank, "shrink") == "0");
        CHECK(job.answer(rank, "split") == "0");
        CHECK(job.answer(rank, "reduce") == "0");
    }
}

TEST_CASE("a child goes on when a rank outside it dies, and when its parent is gone", "[split]") {
    Job job(3);
    job.start(0, {"init", "split=0,1", "await", "loop=1000,50", "destroy_parent", "loop=100000,50", "destroy"});
    job.start(1, {"init", "split=0,0", "destroy_parent", "await", "loop=1000,50", "loop=100000,50", "destroy"});
    job.start(2, {"init", "split=-1", "hold"});
    for (int rank = 0; rank < 3; ++rank) CHECK(job[rank].says("split 0"));
    job.kill(2);
    for (const int rank : {0, 1}) job[rank].kill(SIGUSR1);
    job.finish();
    INFO(job.everything());
    for (const int rank : {0, 1}) {
        CHECK(job.first_answer(rank, "loop") == "0");
        CHECK(job.answer(rank, "loop") == "0");
        CHECK(job.answer(rank, "destroy") == "0");
    }
}

TEST_CASE("a rank that dies is named in its child, and by the split that it did not join", "[split]") {
    Job job(3);
    for (const int rank : {0, 1}) job.start(rank, {"init", "split=0", "await", "reduce=10", "say=next"});
    job.start(2, {"init", "split=0", "hold"});
    for (int rank = 0; rank < 3; ++rank) CHECK(job[rank].says("split 0"));
    job.kill(2);
    for (const int rank : {0, 1}) job[rank].kill(SIGUSR1);
    job.finish();
    for (const int rank : {0, 1}) CHECK(tells_of(job, job.answer(rank, "reduce"), 2));

    Job other(3);
    for (const int rank : {0, 1}) other.start(rank, {"init", "split=0"});
    other.start(2, {"init", "hold"});
    for (int rank = 0; rank < 3; ++rank) CHECK(other[rank].says("init 0"));
    other.kill(2);
    other.finish();
    for (const int rank : {0, 1}) CHECK(tells_of(other, other.answer(rank, "split"), 2));
}

TEST_CASE("ranks that do not come to a split or a shrink are named at the deadline", "[split]") {
    Job job(3);
    for (const int rank : {0, 1}) job.start(rank, {"init", "split=0,0,300"});
    job.start(2, {"init", "hold"});
    for (const int rank : {0, 1}) CHECK(job[rank].says("split 8 "));
    const std::string absent = "rank 2 (pid " + std::to_string(job[2].pid());
    for (const int rank : {0, 1}) CHECK(contains(job.answer(rank, "split"), absent));
    job.kill(2);
    job.finish();

    Job other(3);
    const std::vector<std::string> soon{"WEFT_INIT_TIMEOUT_MS=" + std::string(sanitized ? "12000" : "4000")};
    other.start(0, {"init", "shrink=0,1"}, soon);
    for (const int rank : {1, 2}) other.start(rank, {"init", "hold"}, soon);
    CHECK(other[0].says("shrink 8 "));
    CHECK(contains(other.answer(0, "shrink"), " ms for rank 2 to make"));
    for (const int rank : {1, 2}) other.kill(rank);
    other.finish();
}

TEST_CASE("a shrink that one rank has tried in vain succeeds when all try it", "[split]") {
    Job job(3);
    const std::vector<std::string> soon{"WEFT_INIT_TIMEOUT_MS=" + std::string(sanitized ? "7000" : "2000"), quiet};
    job.start(0, {"init", "await", "shrink=0,2", "shrink=1,2", "reduce=100"}, soon);
    job.start(1, {"init", "await", "shrink=1,2", "reduce=100"}, soon);
    job.start(2, {"init", "hold"}, soon);
    for (int rank = 0; rank < 3; ++rank) CHECK(job[rank].says("init 0"));
    job.kill(2);
    job[0].kill(SIGUSR1);
    CHECK(job[0].says("shrink 8 "));
    job[1].kill(SIGUSR1);
    job.finish();
    INFO(job.everything());
    for (const int rank : {0, 1}) {
        CHECK(job.answer(rank, "shrink") == "0");
        CHECK(job.answer(rank, "reduce") == "0");
    }
}

TEST_CASE("after a rank's death at any moment among splits the others get errors, and shrink", "[split]") {
    std::mt19937 random(seed());
    for (int round = 0; round < (small() ? 3 : 12); ++round) {
        const int victim = int(random() % 4), delay_us = int(random() % 20'000);
        INFO("seed " << seed() << ", round " << round << ", rank " << victim << ", " << delay_us << " us");
        Job job(4);
        for (int rank = 0; rank < 4; ++rank)
            job.start(rank, {"init", "births=100000,10", "shrink=1," + std::to_string(victim), "reduce=1000"}, {quiet});
        for (int rank = 0; rank < 4; ++rank) CHECK(job[rank].says("init 0"));
        std::this_thread::sleep_for(std::chrono::microseconds(delay_us));
        job.kill(victim);
        job.finish();
        INFO(job.everything());
        for (int rank = 0; rank < 4; ++rank) {
            if (rank == victim) continue;
            CHECK(job.answer(rank, "births").rfind("6 ", 0) == 0);
            CHECK(job.answer(rank, "reduce") == "0");
        }
    }
}

TEST_CASE("thousands of splits leave nothing behind", "[split]") {
    Job job(4);
    const std::string births = small() ? "births=100,100" : "births=2000,100";
    for (int rank = 0; rank < 4; ++rank)
        job.start(rank, {"init", "births=10,100", "holds", births, "holds=0,0,0", "destroy"}, {quiet});
    job.finish();
    INFO(job.everything());
    for (int rank = 0; rank < 4; ++rank) {
        CHECK(job.answer(rank, "births") == "0");
        CHECK(job.holds_no_more(rank));
        // Handles stay, some hundred bytes each: less than 1 KiB, in KiB.
        if (!small()) CHECK(atol(job.answer(rank, "grown").c_str()) < 2000);
    }
}
