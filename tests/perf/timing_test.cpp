// timing_test.cpp: ranks that do not take part in a call do not count in its time.
#include "perf/timing.hpp"

#include <chrono>
#include <thread>

#include "tests/catch.hpp"

using namespace perf;

namespace {

// Rank 0's result of `body` on this many ranks, which are threads.
double on_ranks(int count, const std::function<double(Rank&)>& body) {
    weftUniqueId id;
    REQUIRE(weftGetUniqueId(&id) == weftSuccess);
    std::vector<double> results(static_cast<size_t>(count));
    std::vector<weftComm_t> comms(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i)
        REQUIRE(weftCommInitRankConfig(&comms[size_t(i)], count, id, i, nullptr) == weftSuccess);
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i)
        threads.emplace_back([&, i] {
            Rank rank(comms[size_t(i)]);
            results[size_t(i)] = body(rank);
        });
    for (std::thread& thread : threads) thread.join();
    for (weftComm_t comm : comms) (void)weftCommDestroy(comm);
    return results[0];
}

}  // namespace

TEST_CASE("a rank that does not take part is in neither mean nor least nor most") {
    const auto combined = [](Average average) {
        return on_ranks(3, [&](Rank& rank) {
            const double values[] = {20, 10, rank.index() == 2 && average == Average::most ? 99 : 0.1};
            return over_ranks(rank, values[rank.index()], rank.index() < 2, average);
        });
    };
    CHECK(combined(Average::rank_0) == 20);
    CHECK(combined(Average::mean) == 15);
    CHECK(combined(Average::least) == 10);
    CHECK(combined(Average::most) == 20);
}

TEST_CASE("the time of a ping-pong is that of ranks with a partner") {
    Collective sleep = {};
    sleep.partner = [](const Seat& seat) { return (seat.rank ^ 1) < seat.ranks ? seat.rank ^ 1 : -1; };
    sleep.run = [](const Call& call) {
        if ((call.seat.rank ^ 1) < call.seat.ranks) std::this_thread::sleep_for(std::chrono::milliseconds(2));
        return weftSuccess;
    };
    Arguments arguments;
    arguments.average = Average::least;
    arguments.iterations = 3;
    const double us = on_ranks(3, [&](Rank& rank) {
        Case measured{&sleep, {}, 0};
        measured.call.seat = {rank.index(), rank.count()};
        return measure_mean(rank, measured, arguments).time_us;
    });
    CHECK(us >= 2000);
}
