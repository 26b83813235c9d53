// timing.hpp: the two meanings of "time of a call".
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "arguments.hpp"
#include "collective.hpp"
#include "rank.hpp"

namespace perf {

// One case of the table: what is called, and where its buffers lie. With `places` above 1, calls walk through that many
// messages in the buffers, as nccl-tests does, so that small messages are not always the same warm lines.
struct Case {
    const Collective* collective;
    Call call;
    size_t bytes;  // from one place to the next
    size_t places = 1;
};

struct Measurement {
    double time_us = 0;  // of a call
    double least_us = 0;
    int64_t calls = 0;
    std::vector<double> iterations_us;  // of a call, the slowest rank's, in order; what -I shows
};

// What so many calls take on this rank, one after the other at place 0.
double time_calls(Rank& rank, const Case& measured, int calls);

// Calls once, at place 0.
void call_once(const Rank& rank, const Case& measured);

// nccl-tests': warm-ups, a barrier, then all iterations between two readings of the clock; over ranks as -a says.
Measurement measure_mean(Rank& rank, const Case& measured, const Arguments& arguments);

// That of perf/peers/bench.h, with an 8-byte all-reduce for MPI's barrier: an iteration is a barrier and a batch of
// calls that fills some 100 us; it takes what the slowest rank takes; the result is the median over iterations.
Measurement measure_median_max(Rank& rank, const Case& measured, const Arguments& arguments);

// The columns of -I, in us and per cent.
struct Spread {
    double least = 0, most = 0, p99 = 0, variation_percent = 0;
};
Spread spread_of(std::vector<double> times);

}  // namespace perf
