// train_measure.hpp: times of steps that take turns, and the memory of a rank.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "rank.hpp"

namespace perf {

double now_us();
// Of all processes of the job, shared pages once, divided by the ranks.
double memory_mb(Rank& rank);
// The medians over rounds of each body's time on the slowest rank. Each round runs all bodies in turn.
std::vector<double> medians(Rank& rank, int rounds, const std::vector<std::function<void()>>& bodies);
// By the first rank.
void print(const Rank& rank, const std::string& text);
void print_row(const Rank& rank, const std::string& name, double step, double bare, const char* goal);

}  // namespace perf
