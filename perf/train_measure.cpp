#include "train_measure.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>

#include "src/base/printing.hpp"

namespace perf {
namespace {

// Of this process; a page that n processes share counts as 1/n.
double proportional_mb() {
    std::ifstream file("/proc/self/smaps_rollup");
    for (std::string word; file >> word;)
        if (word == "Pss:") {
            double kib = 0;
            file >> kib;
            return kib * 1024 / 1e6;
        }
    return 0;
}

}  // namespace

double now_us() {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double memory_mb(Rank& rank) {
    rank.barrier();
    const std::string own = fmt::format("{}", getpid());
    const std::vector<std::string> processes = rank.gather(own);
    const auto ranks_here = double(std::count(processes.begin(), processes.end(), own));
    return rank.combine(proportional_mb() / ranks_here, weftSum) / rank.count();
}

std::vector<double> medians(Rank& rank, int rounds, const std::vector<std::function<void()>>& bodies) {
    std::vector<std::vector<double>> times(bodies.size());
    for (int round = 0; round < rounds; ++round)
        for (size_t i = 0; i < bodies.size(); ++i) {
            rank.barrier();
            const double begin = now_us();
            bodies[i]();
            times[i].push_back(now_us() - begin);
        }
    std::vector<double> result;
    for (std::vector<double>& each : times) {
        rank.combine(each, weftMax);
        std::nth_element(each.begin(), each.begin() + rounds / 2, each.end());
        result.push_back(each[size_t(rounds) / 2]);
    }
    return result;
}

void print(const Rank& rank, const std::string& text) {
    if (rank.is_first()) weft::internal::print_output("{}", text);
}

void print_row(const Rank& rank, const std::string& name, double step, double bare, const char* goal) {
    print(rank, fmt::format("{:<36} {:>10.1f} {:>10.1f} {:>7.2f}  {}\n", name, step, bare, step / bare, goal));
}

}  // namespace perf
