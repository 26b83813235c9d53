#include "src/train/straggler_scores.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace weft::internal::train {

namespace {

double score_of(double reference, double own) {
    return own > 0 ? reference / own : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

double median_of(std::vector<double>& times) {
    if (times.empty()) return 0;
    const auto middle = times.begin() + std::ptrdiff_t(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    if (times.size() % 2 == 1) return *middle;
    return (*std::max_element(times.begin(), middle) + *middle) / 2;
}

std::vector<double> scores_against_fastest(const std::vector<StepTimes>& ranks) {
    double fastest = std::numeric_limits<double>::infinity();
    for (const StepTimes& rank : ranks)
        if (rank.median > 0) fastest = std::min(fastest, rank.median);
    std::vector<double> scores;
    for (const StepTimes& rank : ranks) scores.push_back(score_of(fastest, rank.median));
    return scores;
}

std::vector<double> scores_against_own_best(const std::vector<StepTimes>& ranks) {
    std::vector<double> scores;
    for (const StepTimes& rank : ranks) scores.push_back(score_of(rank.best, rank.median));
    return scores;
}

uint64_t steps_to_next_report(double interval_seconds, double seconds, uint64_t steps) {
    const double most = 10 * double(steps);
    const double wanted = seconds > 0 ? interval_seconds / seconds * double(steps) : most;
    return uint64_t(std::clamp(std::round(wanted), 1.0, most));
}

}  // namespace weft::internal::train
