// timing.hpp: the two methods of timing a call.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "arguments.hpp"
#include "collective.hpp"
#include "rank.hpp"

namespace perf {

// One case of the table: the call and its buffers.
// With several `places`, consecutive calls use different messages of the buffers, as in nccl-tests.
// Thus small messages are not always in the same warm cache lines.
struct Case {
    const Collective* collective;
    Call call;
    size_t bytes;  // from one place to the next
    size_t places = 1;
};

struct Measurement {
    double time_us = 0;  // of each call
    double least_us = 0;
    int64_t calls = 0;
    std::vector<double> iterations_us;  // of a call on the slowest rank, in order; shown by -I
};

// The time of this many consecutive calls at place 0 on this rank.
double time_calls(Rank& rank, const Case& measured, int calls);

// Makes one call, at place 0.
void call_once(const Rank& rank, const Case& measured);

// The time of all ranks from that of each, for -a. Ranks that do not take part return from calls at once, so they do not
// count; rank 0 takes part.
double over_ranks(Rank& rank, double value, bool takes_part, Average average);

// nccl-tests' method: warm-up, a barrier, then all iterations between two clock readings. -a combines the ranks.
Measurement measure_mean(Rank& rank, const Case& measured, const Arguments& arguments);

// The method of perf/peers/bench.h, with an 8-byte all-reduce as barrier.
// An iteration is a barrier and a batch of calls that fills some 100 us. The slowest rank's time counts.
// The result is the median over iterations.
Measurement measure_median_max(Rank& rank, const Case& measured, const Arguments& arguments);

// The columns of -I, in us and per cent.
struct Spread {
    double least = 0, most = 0, p99 = 0, variation_percent = 0;
};
Spread spread_of(std::vector<double> times);

}  // namespace perf
