// straggler_scores.hpp: how slow the ranks of a training are, from the times of their own work, and when to compare them.
#pragma once
#include <cstdint>
#include <vector>

namespace weft::internal::train {

// Of the steps since the last report on one rank, in seconds. 0: there are none.
struct StepTimes {
    double median = 0;
    double best = 0;  // the smallest median so far
};

// The middle one, or the mean of the two in the middle. 0: there are none. Reorders `times`.
double median_of(std::vector<double>& times);

// A score is the reference time divided by the rank's own time: 1 is as fast, 0.5 takes twice as long. NaN: no time.
// The reference of all ranks is the fastest one, or that of each rank its own best.
std::vector<double> scores_against_fastest(const std::vector<StepTimes>& ranks);
std::vector<double> scores_against_own_best(const std::vector<StepTimes>& ranks);

// The steps until the next report. `steps` took `seconds`. At most ten times as many, because the first ones may mislead.
uint64_t steps_to_next_report(double interval_seconds, double seconds, uint64_t steps);

}  // namespace weft::internal::train
