// waiting_test.cpp: the waiting rule. A rank publishes that it sleeps before it sleeps, and a rank that publishes
// afterwards wakes it.
#include "src/segment/waiting.hpp"

#include <sched.h>

#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "src/segment/failure_record.hpp"
#include "tests/catch.hpp"

namespace weft::internal::test {
namespace {

std::shared_ptr<Segment> waiting_group_of(int ranks) {
    auto segment = Segment::create(ranks);
    REQUIRE(segment.ok());
    return *segment;
}

RankSet only(int rank) {
    RankSet set{};
    set.insert(rank);
    return set;
}

}  // namespace

TEST_CASE("a waiting rank says on which processor it was last seen", "[waiting]") {
    const auto segment = waiting_group_of(2);
    CHECK(segment->row(0).cpu.load() == 0);
    Waiting waiting(*segment, 0, 1'000'000);
    waiting.seen_here();
    CHECK(segment->row(0).cpu.load() > 0);
    CHECK(segment->row(1).cpu.load() == 0);
}

TEST_CASE("the processor is the one that runs the thread", "[waiting]") {
#if defined(WEFT_HAS_RSEQ)
    const char* const tunables = getenv("GLIBC_TUNABLES");  // tests/base/meson.build
    if (tunables && strstr(tunables, "pthread.rseq=0")) CHECK(__rseq_size == 0);
#endif
    const CpuSet allowed = allowed_cpus();
    std::thread([&] {
        for (int cpu = 0; cpu < 1024; ++cpu) {
            if ((allowed.words[cpu / 64] >> cpu % 64 & 1) == 0) continue;
            cpu_set_t only;
            CPU_ZERO(&only);
            CPU_SET(size_t(cpu), &only);
            REQUIRE(sched_setaffinity(0, sizeof only, &only) == 0);
            CHECK(current_cpu() == cpu);
        }
    }).join();
}

TEST_CASE("after silence a rank announces that it sleeps; a wake before it sleeps is not lost; stirring takes it back",
          "[waiting]") {
    const auto segment = waiting_group_of(2);
    Waiting waiting(*segment, 0, 0);
    const RankSet missing = only(1);
    CHECK(segment->header().sleepers.load() == 0);
    while (segment->row(0).sleeping.load() == 0) waiting.pause(missing);
    CHECK(segment->header().sleepers.load() == 1);
    segment->wake();
    CHECK(segment->row(0).sleeping.load() == 0);  // so that the kernel refuses to let it sleep
    waiting.pause(missing);
    CHECK(segment->row(0).sleeping.load() == 1);  // ready to sleep again
    waiting.stir();
    CHECK(segment->row(0).sleeping.load() == 0);
    CHECK(segment->header().sleepers.load() == 0);
    CHECK(segment->row(1).sleeping.load() == 0);
}

TEST_CASE("a rank that leaves while it says that it sleeps is no sleeper any more", "[waiting]") {
    const auto segment = waiting_group_of(2);
    {
        Waiting waiting(*segment, 0, 0);
        while (segment->row(0).sleeping.load() == 0) waiting.pause(only(1));
    }
    CHECK(segment->header().sleepers.load() == 0);
}

TEST_CASE("a thread that drives other ranks too never sleeps", "[waiting]") {
    const auto segment = waiting_group_of(2);
    Waiting waiting(*segment, 0, 0);
    for (int i = 0; i < 3000; ++i) {
        waiting.pause(only(1), false);
        REQUIRE(segment->row(0).sleeping.load() == 0);
    }
    CHECK(segment->header().sleepers.load() == 0);
}

TEST_CASE("silence is counted from the last movement", "[waiting]") {
    const auto segment = waiting_group_of(2);
    Waiting waiting(*segment, 0, 1'000'000'000);
    while (waiting.silence_us() < 2000) waiting.pause(only(1));
    waiting.stir();
    waiting.pause(only(1));
    CHECK(waiting.silence_us() == 0);
}

TEST_CASE("a rank that serves others polls on, and looks for failures in its own silence", "[waiting]") {
    const auto segment = waiting_group_of(2);
    Waiting waiting(*segment, 0, 1'000);
    while (!waiting.served()) REQUIRE(segment->row(0).sleeping.load() == 0);
    const int64_t silence_us = waiting.silence_us();
    CHECK(silence_us >= 20'000);
    while (segment->row(0).sleeping.load() == 0) waiting.pause(only(1));
    CHECK(waiting.silence_us() >= silence_us + 1'000);
    waiting.served();
    CHECK(segment->row(0).sleeping.load() == 0);
    waiting.pause(only(1));
    CHECK(waiting.silence_us() >= silence_us);
    waiting.stir();
    waiting.served();
    CHECK(waiting.silence_us() == 0);
}

TEST_CASE("a waiting rank sees an abort, and polls for failures now and then", "[waiting]") {
    const auto segment = waiting_group_of(2);
    Waiting waiting(*segment, 0, 1'000);
    while (!waiting.pause(only(1))) {
    }  // silence is worth a look
    CHECK(!segment->aborted());
    CHECK(waiting.silence_us() > 0);
    waiting.stir();
    FailureRecord(*segment).raise(error::rank_failed, 1, "over");
    while (!waiting.pause(only(1))) {
    }
    SUCCEED();
}

TEST_CASE("a sleeping rank is woken when another one publishes", "[waiting]") {
    const auto segment = waiting_group_of(2);
    std::atomic<bool> published{false}, seen{false};
    std::thread sleeper([&] {
        Waiting waiting(*segment, 0, 0);
        while (!published.load(std::memory_order_acquire)) waiting.pause(only(1));
        seen = true;
    });
    while (segment->row(0).sleeping.load() == 0) std::this_thread::yield();
    published.store(true, std::memory_order_release);
    segment->wake();
    sleeper.join();
    CHECK(seen);
}

TEST_CASE("ranks that sleep at once and wake each other come through ten thousand turns", "[waiting]") {
    constexpr int ranks = 3;
    constexpr uint64_t turns = 3'500;
    const auto segment = waiting_group_of(ranks);
    std::atomic<uint64_t> turn{0};
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank)
        threads.emplace_back([&, rank] {
            Waiting waiting(*segment, rank, 0);
            const RankSet missing = only((rank + ranks - 1) % ranks);
            for (uint64_t mine = uint64_t(rank); mine < turns * ranks; mine += ranks) {
                while (turn.load(std::memory_order_acquire) != mine) waiting.pause(missing);
                waiting.stir();
                turn.store(mine + 1, std::memory_order_release);
                segment->wake();
            }
        });
    for (std::thread& thread : threads) thread.join();
    CHECK(turn == turns * ranks);
    CHECK(segment->header().sleepers.load() == 0);
}

}  // namespace weft::internal::test
