// The scores of slow ranks: golden values of NVIDIA's straggler detection, medians, and the steps between reports.
#include "src/train/straggler_scores.hpp"

#include <algorithm>
#include <cmath>
#include <random>

#include "tests/catch.hpp"

using namespace weft::internal::train;

TEST_CASE("scores are the reference time divided by the own time") {
    const std::vector<StepTimes> ranks = {{1, 1}, {1, 0.5}, {2, 2}, {1.25, 1}};
    CHECK(scores_against_fastest(ranks) == std::vector<double>{1, 1, 0.5, 0.8});
    CHECK(scores_against_own_best(ranks) == std::vector<double>{1, 0.5, 1, 0.8});
    CHECK(scores_against_fastest({{3, 1}}) == std::vector<double>{1});
}

TEST_CASE("a rank without a time has no score, and is no reference") {
    const auto scores = scores_against_fastest({{4, 4}, {0, 0}, {2, 2}});
    CHECK(scores[0] == 0.5);
    CHECK(std::isnan(scores[1]));
    CHECK(scores[2] == 1);
    CHECK(std::isnan(scores_against_fastest({{0, 0}})[0]));
    CHECK(std::isnan(scores_against_own_best({{0, 3}})[0]));
}

TEST_CASE("the median is that of the sorted times") {
    std::mt19937 random(20261128);
    for (size_t count = 0; count < 40; ++count) {
        std::vector<double> times(count);
        for (double& time : times) time = double(random() % 16 + 1);
        std::vector<double> sorted = times;
        std::sort(sorted.begin(), sorted.end());
        const double wanted = count == 0       ? 0
                              : count % 2 == 1 ? sorted[count / 2]
                                               : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
        CHECK(median_of(times) == wanted);
    }
}

TEST_CASE("the next report comes after as many steps as take the interval, and at most ten times as many") {
    CHECK(steps_to_next_report(60, 20, 10) == 30);
    CHECK(steps_to_next_report(60, 0.1, 10) == 100);
    CHECK(steps_to_next_report(60, 0, 10) == 100);
    CHECK(steps_to_next_report(60, 6000, 10) == 1);
    CHECK(steps_to_next_report(60, 61, 30) == 30);
}
