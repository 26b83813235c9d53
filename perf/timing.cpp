// timing.cpp: the timed loops, which contain only the calls, the requested barriers and the clock.
#include "timing.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

namespace perf {
namespace {

double now_us() {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void call_at(const Rank& rank, const Case& measured, size_t place) {
    Call call = measured.call;
    if (call.send) call.send = static_cast<const std::byte*>(call.send) + place * measured.bytes;
    if (call.receive) call.receive = static_cast<std::byte*>(call.receive) + place * measured.bytes;
    call.window_offset += place * measured.bytes;
    rank.expect(measured.collective->run(call), "the measured call");
}

// The microseconds of `calls`: by the clock or, on a GPU, by events in its stream.
template <class Calls>
double time_us(const Rank& rank, Calls calls) {
    if (rank.gpu()) {
        const double took = rank.gpu()->time_us(calls);
        rank.settle();
        return took;
    }
    const double start = now_us();
    calls();
    return now_us() - start;
}

// One iteration: with -m, that many calls in one group.
void iterate(Rank& rank, const Case& measured, const Arguments& arguments, int iteration) {
    const int calls = arguments.calls_per_group;
    if (calls > 1) rank.expect(weftGroupStart(), "weftGroupStart");
    for (int i = 0; i < calls; ++i) {
        const size_t number = size_t(iteration) * size_t(calls) + size_t(i);
        call_at(rank, measured, measured.places > 1 ? number % measured.places : 0);
        if (arguments.blocking == 1) {
            rank.settle();
            rank.barrier();
        }
    }
    if (calls > 1) rank.expect(weftGroupEnd(), "weftGroupEnd");
}

}  // namespace

double over_ranks(Rank& rank, double value, bool takes_part, Average average) {
    switch (average) {
        case Average::rank_0: return rank.combine(rank.is_first() ? value : 0, weftSum);
        case Average::least: return rank.combine(takes_part ? value : std::numeric_limits<double>::infinity(), weftMin);
        case Average::most: return rank.combine(takes_part ? value : 0, weftMax);
        case Average::mean: break;
    }
    double sums[] = {takes_part ? value : 0, takes_part ? 1.0 : 0.0};
    rank.combine(sums, weftSum);
    return sums[0] / sums[1];
}

double time_calls(Rank& rank, const Case& measured, int calls) {
    return time_us(rank, [&] {
        for (int i = 0; i < calls; ++i) rank.expect(measured.collective->run(measured.call), "the measured call");
    });
}

// Times `batch` iterations; one call in each is the plainest loop.
static double time_batch(Rank& rank, const Case& measured, const Arguments& arguments, int batch) {
    rank.barrier();
    if (arguments.calls_per_group == 1) return time_calls(rank, measured, batch);
    return time_us(rank, [&] {
        for (int i = 0; i < batch; ++i) iterate(rank, measured, arguments, i);
    });
}

void call_once(const Rank& rank, const Case& measured) {
    call_at(rank, measured, 0);
    rank.settle();
}

Measurement measure_mean(Rank& rank, const Case& measured, const Arguments& arguments) {
    for (int i = 0; i < arguments.warmups; ++i) iterate(rank, measured, arguments, i);
    rank.settle();
    rank.barrier();
    Measurement result;
    const bool each = arguments.per_iteration, barriers = arguments.blocking == 3;
    if (each) result.iterations_us.resize(size_t(arguments.iterations));
    const auto iterations = [&] {
        for (int i = 0; i < arguments.iterations; ++i) iterate(rank, measured, arguments, i);
    };
    double total = 0;
    if (arguments.graph_launches > 0) {
        // All iterations are one graph. The first launch is untimed because the driver prepares a graph then.
        // No rank's kernels may run and wait for other ranks during a capture: the capture may wait for the device.
        rank.gpu()->capture(iterations);
        rank.barrier();
        rank.gpu()->replay();
        rank.settle();
        rank.barrier();
        total = time_us(rank, [&] {
            for (int i = 0; i < arguments.graph_launches; ++i) rank.gpu()->replay();
        });
    } else if (!each && !barriers) {
        total = time_us(rank, iterations);
    } else {
        // Each iteration reads the clock twice more, so the barriers between iterations do not count.
        for (int i = 0; i < arguments.iterations; ++i) {
            const double took = time_us(rank, [&] { iterate(rank, measured, arguments, i); });
            total += took;
            if (each) result.iterations_us[size_t(i)] = took / arguments.calls_per_group;
            if (barriers) rank.barrier();
        }
    }
    result.calls = int64_t(arguments.iterations) * arguments.calls_per_group * std::max(1, arguments.graph_launches);
    result.time_us = over_ranks(rank, total / double(result.calls),
                                takes_part(*measured.collective, measured.call.seat), arguments.average);
    result.least_us = result.time_us;
    if (each) {
        rank.combine(result.iterations_us, weftMax);
        result.least_us = *std::min_element(result.iterations_us.begin(), result.iterations_us.end());
    }
    return result;
}

Measurement measure_median_max(Rank& rank, const Case& measured, const Arguments& arguments) {
    const double budget_us = arguments.seconds * 1e6;
    // Batches double until one fills a tenth of the time; this also yields the time of an iteration.
    // The first batch never ends the loop because it may hold set-up costs.
    double iteration_us = 0;
    for (int batch = 1; batch <= 4096; batch *= 2) {
        const double took = rank.combine(time_batch(rank, measured, arguments, batch), weftMax);
        iteration_us = std::max(took / batch, 1e-3);
        if (batch > 1 && took > budget_us / 10) break;
    }
    const int batch = int(100 / iteration_us) + 1;
    const int batches = std::clamp(int(budget_us / (iteration_us * batch)), 3, 4000);
    const int calls = batch * arguments.calls_per_group;
    std::vector<double> times(size_t(batches), 0.0);
    for (double& time : times) time = time_batch(rank, measured, arguments, batch) / calls;
    rank.combine(times, weftMax);
    Measurement result;
    std::sort(times.begin(), times.end());
    result.time_us = times[times.size() / 2];
    result.least_us = times.front();
    result.calls = int64_t(batches) * calls;
    return result;
}

Spread spread_of(std::vector<double> times) {
    std::sort(times.begin(), times.end());
    const double count = double(times.size());
    double mean = 0, squares = 0;
    for (double time : times) mean += time / count;
    for (double time : times) squares += (time - mean) * (time - mean) / count;
    // Nearest rank: the least time that 99 % of the iterations do not exceed.
    const size_t p99 = size_t(std::ceil(count * 0.99)) - 1;
    return {times.front(), times.back(), times[p99], mean > 0 ? std::sqrt(squares) / mean * 100 : 0};
}

}  // namespace perf
